//! Tables and deadlines over an index, as the explorer's subject.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crash::{Contents, Subject, region};
use index::engine::{Commit, Deadline, Next, TableOps as _, TableWrite};
use index::kind::Bytes;
use index::tables::{Clock, Table, Tables};
use index::{Create, Form, Index, Lifecycle as _, WriteOptions};
use pmem::{Durability, Error, Geometry, Observed};

const SYNCED: WriteOptions = WriteOptions { sync: true };
/// No deadline of the workload has passed then.
const EARLY: u64 = 0;

/// One operation. Tables are named by letters; the default table has no letter.
#[derive(Clone, Debug)]
pub enum Op {
    Put(&'static str, u8, Deadline),
    /// Stores a value of this many bytes without a deadline.
    Long(&'static str, u8, u16),
    Delete(&'static str, u8),
    Persist(&'static str, u8),
    Make(&'static str),
    Drop(&'static str),
    Clear(&'static str),
    Swap(&'static str, &'static str),
    /// Puts the key into one table and removes it from the other, in one step.
    Move(&'static str, &'static str, u8, Deadline),
    /// One transaction that puts (true) or removes keys of several tables.
    Together(Vec<(&'static str, u8, bool)>),
    /// Removes the keys whose deadline has passed at this time.
    Expire(u64),
    /// Completes all background work.
    Maintain,
    Kill,
    Reopen,
    /// A fault on purpose: stores a value with a deadline before its entry.
    ValueFirst(u8, u64),
}

/// The sizes of an index.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Lines of a node.
    pub lines: u64,
    /// Sizes of the region.
    pub geometry: Geometry,
    /// Bytes of the region when it is new; 0: it grows from the start.
    pub len: u64,
}

/// The new value of a key of a table, with its deadline; `None` removes the key.
type Named = (&'static str, u8, Option<(Vec<u8>, Deadline)>);

pub struct Tabled<I> {
    tables: RefCell<Option<Table>>,
    stored: RefCell<Option<Arc<dyn Index<Bytes>>>>,
    medium: Observed,
    sizes: Sizes,
    now: Arc<AtomicU64>,
    index: PhantomData<fn() -> I>,
}

fn form(sizes: Sizes) -> Form {
    let usual = Form::new("crash", sizes.lines, Durability::Power);
    Form { geometry: Some(sizes.geometry), stripes: 4, tables: true, ..usual }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<I: Index<Bytes> + Create<Observed>> Tabled<I> {
    fn made(medium: Observed, sizes: Sizes, is_new: bool) -> Result<Self, Error> {
        let this = Self {
            tables: RefCell::new(None),
            stored: RefCell::new(None),
            medium,
            sizes,
            now: Arc::new(AtomicU64::new(EARLY)),
            index: PhantomData,
        };
        this.open(is_new)?;
        Ok(this)
    }

    fn open(&self, is_new: bool) -> Result<(), Error> {
        let form = form(self.sizes);
        let (index, found) = match is_new {
            true => (I::create(self.medium.clone(), &form)?, pmem::Found::New),
            false => I::open(self.medium.clone(), Path::new("memory"), &form)?,
        };
        let (stored, now): (Arc<dyn Index<Bytes>>, _) = (Arc::new(index), Arc::clone(&self.now));
        let clock = Clock::new(move || now.load(Ordering::Relaxed));
        let tables = Tables::open(Arc::clone(&stored), found, clock)?;
        *self.tables.borrow_mut() = Some(tables.default_table());
        *self.stored.borrow_mut() = Some(stored);
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        *self.tables.borrow_mut() = None;
        *self.stored.borrow_mut() = None;
        self.open(false).map_err(text)
    }

    fn default_table(&self) -> Table {
        self.tables.borrow().clone().expect("it is open")
    }

    fn table(&self, name: &str) -> Result<Arc<dyn Index<Bytes>>, String> {
        self.default_table().table(name, false).map_err(text)?.ok_or_else(|| format!("no table {name:?}"))
    }

    /// Writes to several tables in one step.
    fn commit(&self, writes: Vec<Named>) -> Result<(), String> {
        let write = |(name, number, next): Named| {
            let table = self.table(name)?;
            let slot = Arc::clone(table.tables().ok_or("no tables")?.slot());
            Ok(TableWrite { table: slot, key: key(number), next })
        };
        let writes = writes.into_iter().map(write).collect::<Result<Vec<_>, String>>()?;
        match self.default_table().commit_tables(Commit { writes, reads: &[], validate: None }, SYNCED) {
            Ok(false) => Err("a transaction without reads conflicted".to_owned()),
            other => other.map(drop).map_err(text),
        }
    }

    fn maintain(&self) {
        // Deadlines that have not passed ask for another step for ever.
        for _ in 0..50 {
            if self.default_table().maintain().is_none_or(|pause| !pause.is_zero()) {
                return;
            }
        }
    }
}

fn key(number: u8) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

fn value(number: u8, deadline: Deadline) -> Vec<u8> {
    vec![number ^ deadline.unwrap_or(7) as u8; usize::from(number) * 3]
}

fn long(number: u8, bytes: u16) -> Vec<u8> {
    vec![number; usize::from(bytes)]
}

/// A pair in the contents that the explorer compares: table, key; value, deadline.
fn shown(table: &str, key: &[u8], value: &[u8], deadline: Deadline) -> (Vec<u8>, Vec<u8>) {
    let key = [table.as_bytes(), b"/", key].concat();
    (key, [value, format!("@{deadline:?}").as_bytes()].concat())
}

impl<I: Index<Bytes> + Create<Observed>> Subject for Tabled<I> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (sizes.len, 128 * sizes.geometry.chunk_bytes)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Self::made(medium, *sizes, true).map_err(text)
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, sizes.geometry) {
            panic!("{problem}");
        }
        match Self::made(medium, *sizes, false) {
            // Even inside `create`, everything that a valid superblock references is complete.
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
            Ok(opened) => Ok(opened),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let default = self.default_table();
        let ops = |name: &str| self.table(name);
        match op {
            Op::Put(name, number, deadline) => {
                let table = ops(name)?;
                let (key, value) = (key(*number), value(*number, *deadline));
                let tables = table.tables().ok_or("no tables")?;
                match deadline {
                    None => table.put(&key, &value, SYNCED).map(drop),
                    Some(_) => tables.change(&key, &mut |_| Next::Put(value.clone(), *deadline), SYNCED),
                }
            }
            Op::Long(name, number, bytes) => {
                ops(name)?.put(&key(*number), &long(*number, *bytes), SYNCED).map(drop)
            }
            Op::Delete(name, number) => ops(name)?.delete(&key(*number), SYNCED).map(drop),
            Op::Persist(name, number) => {
                let table = ops(name)?;
                let decide = &mut |old: Option<(&[u8], Deadline)>| match old {
                    Some((value, Some(_))) => Next::Put(value.to_vec(), None),
                    _ => Next::Keep,
                };
                table.tables().ok_or("no tables")?.change(&key(*number), decide, SYNCED)
            }
            Op::Make(name) => default.table(name, true).map(drop),
            Op::Drop(name) => default.drop_table(name).map(drop),
            Op::Clear(name) => ops(name)?.clear(),
            Op::Swap(one, other) => default.swap(one, other).map(drop),
            Op::Move(from, to, number, deadline) => {
                let next = Some((value(*number, *deadline), *deadline));
                return self.commit(vec![(*to, *number, next), (*from, *number, None)]);
            }
            Op::Together(writes) => {
                let next = |number, is_put| if is_put { Some((value(number, None), None)) } else { None };
                let writes =
                    writes.iter().map(|&(name, number, is_put)| (name, number, next(number, is_put)));
                return self.commit(writes.collect());
            }
            Op::Expire(now) => {
                self.now.store(*now, Ordering::Relaxed);
                self.maintain();
                self.now.store(EARLY, Ordering::Relaxed);
                default.sync()
            }
            Op::Maintain => {
                self.maintain();
                Ok(())
            }
            Op::Kill => return self.reopen(),
            Op::Reopen => {
                default.close().map_err(text)?;
                return self.reopen();
            }
            Op::ValueFirst(number, deadline) => {
                let stored = Arc::clone(self.stored.borrow().as_ref().expect("it is open"));
                // The layout that docs/format.md describes.
                let stored_key = [&[1][..], &key(*number)].concat();
                let stored_value =
                    [&value(*number, Some(*deadline))[..], &deadline.to_le_bytes(), &[1]].concat();
                let entry = [&[0, 3][..], &deadline.to_be_bytes(), &stored_key].concat();
                stored.put(&stored_key, &stored_value, SYNCED).map_err(text)?;
                stored.put(&entry, &[], SYNCED).map(drop)
            }
        }
        .map_err(text)
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op, Op::Expire(_))
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        let of = |model: &Contents, name: &str| -> Contents {
            let begins = [name.as_bytes(), b"/"].concat();
            model
                .iter()
                .filter(|(key, _)| key.starts_with(&begins))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        };
        let renamed = |pairs: Contents, from: &str, to: &str| {
            pairs
                .into_iter()
                .map(|(key, value)| ([to.as_bytes(), &key[from.len()..]].concat(), value))
                .collect::<Contents>()
        };
        match op {
            Op::Put(name, number, deadline) => {
                model.extend([shown(name, &key(*number), &value(*number, *deadline), *deadline)]);
            }
            Op::Long(name, number, bytes) => {
                model.extend([shown(name, &key(*number), &long(*number, *bytes), None)]);
            }
            Op::ValueFirst(number, deadline) => {
                model.extend([shown("", &key(*number), &value(*number, Some(*deadline)), Some(*deadline))]);
            }
            Op::Delete(name, number) => _ = model.remove(&shown(name, &key(*number), &[], None).0),
            Op::Persist(name, number) => {
                if let Some(value) = model.get_mut(&shown(name, &key(*number), &[], None).0) {
                    let at =
                        value.iter().rposition(|byte| *byte == b'@').expect("every value has its deadline");
                    value.truncate(at);
                    value.extend(b"@None");
                }
            }
            Op::Drop(name) | Op::Clear(name) => {
                for key in of(model, name).keys() {
                    model.remove(key);
                }
            }
            Op::Swap(one, other) => {
                let (first, second) = (of(model, one), of(model, other));
                model.retain(|key, _| !first.contains_key(key) && !second.contains_key(key));
                model.extend(renamed(first, one, other));
                model.extend(renamed(second, other, one));
            }
            Op::Move(from, to, number, deadline) => {
                model.remove(&shown(from, &key(*number), &[], None).0);
                model.extend([shown(to, &key(*number), &value(*number, *deadline), *deadline)]);
            }
            Op::Together(writes) => {
                for (name, number, is_put) in writes {
                    let (key, value) = shown(name, &key(*number), &value(*number, None), None);
                    match is_put {
                        true => _ = model.insert(key, value),
                        false => _ = model.remove(&key),
                    }
                }
            }
            Op::Expire(now) => model.retain(|_, value| {
                let text = String::from_utf8_lossy(value);
                let deadline =
                    text.rsplit_once("@Some(").and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok());
                deadline.is_none_or(|deadline: u64| deadline > *now)
            }),
            Op::Make(_) | Op::Maintain | Op::Kill | Op::Reopen => {}
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        region::verify_open(&self.medium)?;
        let default = self.default_table();
        let report = default.check();
        if let Some(problem) = report.problems.first() {
            return Err(problem.clone());
        }
        default.count_all().map_err(text)?;
        let mut contents = BTreeMap::new();
        for (name, count) in default.list() {
            let table = self.table(&name)?;
            let (mut key, mut value, mut keys) = (Vec::new(), Vec::new(), 0);
            let mut cursor = table.cursor();
            cursor.walk(None).map_err(text)?;
            while cursor.next(&mut key, &mut value).map_err(text)? {
                let mut again = Vec::new();
                let deadline =
                    table.tables().ok_or("no tables")?.get_until(&key, &mut again).map_err(text)?;
                let deadline =
                    deadline.ok_or_else(|| format!("{key:?} of {name:?} is scanned and absent"))?;
                if again != value {
                    return Err(format!("{key:?} of {name:?} has two values"));
                }
                contents.extend([shown(&name, &key, &value, deadline)]);
                keys += 1;
            }
            if count.pending || count.keys != keys {
                return Err(format!("{name:?} counts {count:?} and has {keys} keys"));
            }
        }
        Ok(contents)
    }

    fn continuation(_op: &Op) -> Vec<Op> {
        vec![Op::Put("", 2, None), Op::Put("", 3, Some(9)), Op::Maintain, Op::Expire(9), Op::Kill]
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.default_table().close().map_err(text)
    }
}
