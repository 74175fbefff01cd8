//! The trees over durable memory as engines.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use pmem::{Durability, Found, Medium, Native};
use tree::discipline::Discipline;
use tree::insert::Decision;
use tree::layout::Layouts;
use tree::roster::{self, About};
use tree::shape::Tail;
use tree::{Schema, Tree, TreeCursor, TreeOptions};

use crate::engine::{Capabilities, Change, CheckReport, Count, Cursor, Decide, Engine, Kind, Stats};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::store::Options;

/// Most bytes of a region: what a log record's home word can name.
const MAX_BYTES: u64 = 1 << 42;

/// A schema whose keys and values are those of a kind.
pub trait SchemaOf<K: Kind>:
    Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
impl<K: Kind, S> SchemaOf<K> for S where
    S: Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}

struct TreeEngine<K, S: Schema, L: Layouts, D: Discipline> {
    tree: Arc<Tree<Native, S, L, D>>,
    about: Opened,
    kind: PhantomData<fn() -> K>,
}

/// What an engine knows of how it was opened.
struct Opened {
    engine: &'static str,
    medium: &'static str,
    reason: &'static str,
    opened: &'static str,
    recovery_us: u64,
}

/// Opens (or makes) a tree as an engine. A volatile one lives in anonymous memory and ignores the place.
pub(crate) fn open<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline>(
    engine: &'static About,
    place: Option<Place>,
    options: &Options,
) -> Result<Arc<dyn Engine<K>>>
where
    K::Value: ToOwned,
{
    let node_lines = options.node_lines.unwrap_or(engine.default_lines);
    if !engine.allows(node_lines) {
        let (least, most) = engine.lines;
        return Err(Error::Option(format!(
            "a node of {node_lines} lines: nodes of {} have {least} to {most} lines of 64 bytes",
            engine.name
        )));
    }
    if options.max_bytes > MAX_BYTES {
        return Err(Error::Option(format!(
            "a maximum of {} bytes: a store has at most {MAX_BYTES}",
            options.max_bytes
        )));
    }
    let is_new = place.as_ref().is_none_or(|place| place.fresh);
    let payload_words = payload_words::<S>(options.value_bytes, is_new)?;
    let made = |durability| {
        let mut made = TreeOptions::new(engine.name, node_lines, durability);
        made.payload_words = payload_words;
        made.geometry.log_records = roster::log_records::<D>(node_lines);
        made
    };
    let start = Instant::now();
    let Some(place) = place else {
        let durability = Durability::Process;
        let medium = Native::anonymous(options.max_bytes, durability)?;
        let tree = Tree::create(medium, &made(durability))?;
        let reason = "a volatile engine: nothing survives the process";
        return Ok(finish::<K, S, L, D>(
            tree,
            Found::New,
            Opened::new(engine.name, "anonymous memory", reason, start),
        ));
    };
    let about = |start| Opened::new(engine.name, place.medium, place.reason, start);
    let medium = place.map(options)?;
    if place.fresh {
        let tree = Tree::create(medium, &made(place.durability))?;
        place.finish()?;
        return Ok(finish::<K, S, L, D>(tree, Found::New, about(start)));
    }
    let (tree, found) = Tree::open(medium, &place.path, engine.name, place.durability, 1024)?;
    if options.value_bytes.is_some() && tree.leaf_shape().payload_words != payload_words {
        let found = tree.region().identity().kind.clone();
        return Err(pmem::Error::Mismatch { found, asked: S::kind(payload_words) }.into());
    }
    Ok(finish::<K, S, L, D>(tree, found, about(start)))
}

/// Words of a payload in a tree of such values, 1 where the store that there is will say.
fn payload_words<S: Schema>(value_bytes: Option<u64>, is_new: bool) -> Result<usize> {
    match value_bytes {
        None if S::Tail::EMPTY || !is_new => Ok(1),
        None => Err(Error::Option(
            "a new store of values of one length: say how many bytes a value has, a multiple of 8 up to 120"
                .into(),
        )),
        Some(bytes) if S::Tail::EMPTY => Err(Error::Option(format!(
            "values of {bytes} bytes each: only a store from 64-bit keys to bytes of one length has them"
        ))),
        Some(bytes) => tree::Fixed::words_of(bytes).ok_or_else(|| {
            Error::Option(format!("values of {bytes} bytes each: they can have a multiple of 8 up to 120"))
        }),
    }
}

/// What a tree of these layouts and this discipline can do.
pub fn capabilities<L: Layouts, D: Discipline>() -> Capabilities {
    Capabilities {
        ordered: true,
        durable: D::DURABLE,
        snapshots: false,
        atomic_batch: false,
        several_writers: false,
        fixed_values: L::PAGES,
    }
}

impl Opened {
    fn new(engine: &'static str, medium: &'static str, reason: &'static str, start: Instant) -> Self {
        let recovery_us = start.elapsed().as_micros() as u64;
        Self { engine, medium, reason, opened: "", recovery_us }
    }
}

fn finish<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline>(
    tree: Tree<Native, S, L, D>,
    found: Found,
    mut about: Opened,
) -> Arc<dyn Engine<K>>
where
    K::Value: ToOwned,
{
    about.opened = match found {
        Found::New => "new",
        Found::Clean { .. } => "clean",
        Found::InUse => "recovered",
    };
    let tree = Arc::new(tree);
    if tree.len().1 {
        count_in_background(&tree);
    }
    Arc::new(TreeEngine { tree, about, kind: PhantomData })
}

/// Counts the keys of a recovered tree beside its users, a little at a time; ends with the tree.
fn count_in_background<S: Schema, L: Layouts, D: Discipline>(tree: &Arc<Tree<Native, S, L, D>>) {
    let tree = Arc::downgrade(tree);
    let count = move || {
        // A damaged leaf ends the count: it stays pending, and reads of that leaf say what is wrong.
        while let Some(tree) = tree.upgrade() {
            if !matches!(tree.count_some(256), Ok(true)) {
                break;
            }
            drop(tree);
            std::thread::yield_now();
        }
    };
    // Without a thread the keys are counted at close; until then the count stays pending.
    let _ = std::thread::Builder::new().name("count keys".into()).spawn(count);
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Engine<K> for TreeEngine<K, S, L, D>
where
    K::Value: ToOwned,
{
    fn capabilities(&self) -> Capabilities {
        capabilities::<L, D>()
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.tree.get(key, Some(value))?)
    }

    fn contains(&self, key: &K::Key) -> Result<bool> {
        Ok(self.tree.get(key, None)?)
    }

    fn put(&self, key: &K::Key, value: &K::Value) -> Result<bool> {
        Ok(self.tree.put(key, value)?)
    }

    fn delete(&self, key: &K::Key) -> Result<bool> {
        Ok(self.tree.delete(key)?)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>) -> Result<()> {
        Ok(self.tree.update(key, |old| match decide(old) {
            Change::Keep => Decision::Keep,
            Change::Put(value) => Decision::<Cow<'static, K::Value>>::Put(value),
            Change::Delete => Decision::Delete,
        })?)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(EngineCursor { cursor: self.tree.cursor(), kind: PhantomData })
    }

    fn len(&self) -> Count {
        let (keys, pending) = self.tree.len();
        Count { keys, pending }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.tree.sync()?)
    }

    fn check(&self) -> Result<CheckReport> {
        let report = self.tree.check();
        Ok(CheckReport {
            keys: report.keys,
            nodes: report.nodes,
            levels: report.levels,
            live_bytes: report.live_bytes,
            problems: report.problems,
        })
    }

    fn stats(&self) -> Stats {
        let (keys, keys_pending) = self.tree.len();
        let (live_bytes, chunks_unseen) = self.tree.live_bytes();
        Stats {
            engine: self.about.engine.into(),
            kind: self.tree.region().identity().kind.clone(),
            medium: self.about.medium.into(),
            durability: self.tree.durability().to_string(),
            durability_reason: self.about.reason.into(),
            keys,
            keys_pending,
            file_bytes: self.tree.region().medium().len(),
            live_bytes,
            chunks_unseen,
            node_bytes: self.tree.leaf_shape().bytes(),
            recovery_us: self.about.recovery_us,
            opened: self.about.opened.into(),
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.tree.clear()?)
    }

    fn close(&self) -> Result<()> {
        Ok(self.tree.close()?)
    }
}

impl<K, S: Schema, L: Layouts, D: Discipline> Drop for TreeEngine<K, S, L, D> {
    fn drop(&mut self) {
        self.tree.close_on_drop();
    }
}

struct EngineCursor<'a, K, S: Schema, L, D: Discipline> {
    cursor: TreeCursor<'a, Native, S, L, D>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, S: SchemaOf<K>, L: Layouts, D: Discipline> Cursor<K> for EngineCursor<'_, K, S, L, D> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.cursor.next(key, value)?)
    }
}
