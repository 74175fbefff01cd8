//! An index over a list as a [`Subject`] of the crash explorer.
//!
//! Beyond the index's own check: scans both ways and lookups agree, the region below is whole ([`crash::region`]), and a second
//! recovery stores nothing.

use std::ops::Bound;
use std::path::Path;

use crash::{Contents, Subject, region};
use index::chain::prelude::*;
use index::{Write, WriteOptions};
use pmem::{Durability, Error, Geometry, Observed};

use crate::subject::{Numbered as _, Pairs, Sample, text_of};

/// One operation. Keys and values are numbers.
#[derive(Clone, Debug)]
pub enum Op {
    /// Insert, or replace.
    Put(u32, u32),
    /// Delete.
    Delete(u32),
    /// All as one: `None` deletes.
    Batch(Vec<(u32, Option<u32>)>),
    /// Each by itself, of different keys; `None` deletes.
    Many(Vec<(u32, Option<u32>)>),
    /// Builds what leads to the leaves anew, at once.
    Rebuild,
    /// Close and open again.
    Reopen,
    /// Open again without closing.
    Kill,
}

/// How an index is made and opened.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cache lines of a leaf.
    pub lines: u64,
    /// As the paper prescribes, where there are two ways.
    pub faithful: bool,
    /// The region's sizes.
    pub geometry: Geometry,
    /// Bytes that there are in the beginning; the region grows if it needs more.
    pub len: u64,
    /// Most bytes.
    pub capacity: u64,
}

/// Sizes with room for everything.
pub fn sizes(lines: u64, faithful: bool) -> Sizes {
    Sizes { lines, faithful, geometry: Geometry::tiny(), len: 0, capacity: 256 << 10 }
}

const STRIPES: usize = 2;

/// Indexes of one kind.
pub trait Family: Send + Sync + 'static {
    /// The index of a schema.
    type Of<S: Sample>: Chain<Medium = Observed, Schema = S>;
    /// Splits and the like can go in two ways.
    const TWO_WAYS: bool;

    /// Makes an empty one.
    ///
    /// # Errors
    /// What making it may say.
    fn create<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error>;
    /// Opens what is in memory.
    ///
    /// # Errors
    /// What opening it may say.
    fn open<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error>;
    /// Builds what leads to the leaves anew, at once.
    ///
    /// # Errors
    /// What it may say.
    fn rebuild<S: Sample>(index: &Self::Of<S>) -> Result<(), Error>;
}

/// VLAB, with short braids that are combined often and slowly.
pub struct Buckets;

impl Buckets {
    fn options<S: Sample>(sizes: &Sizes) -> vlab::Options {
        vlab::Options {
            payload_words: S::PAYLOAD_WORDS,
            geometry: sizes.geometry,
            stripes: STRIPES,
            faithful: sizes.faithful,
            braids: 4,
            braid_buckets: Some(2),
            combine_step: 2,
            ..vlab::Options::new(sizes.lines, Durability::Power)
        }
    }
}

impl Family for Buckets {
    type Of<S: Sample> = vlab::Vlab<Observed, S>;
    const TWO_WAYS: bool = true;

    fn create<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error> {
        vlab::Vlab::create(medium, &Self::options::<S>(sizes))
    }

    fn open<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error> {
        vlab::Vlab::open(medium, Path::new(PATH), &Self::options::<S>(sizes)).map(|(index, _)| index)
    }

    fn rebuild<S: Sample>(index: &Self::Of<S>) -> Result<(), Error> {
        index.combine()
    }
}

/// NV-Tree, with parents of few leaves, which are soon full.
pub struct Logs;

impl Logs {
    fn options<S: Sample>(sizes: &Sizes) -> nvtree::Options {
        nvtree::Options {
            payload_words: S::PAYLOAD_WORDS,
            geometry: sizes.geometry,
            stripes: STRIPES,
            room: 4,
            ..nvtree::Options::new(sizes.lines, Durability::Power)
        }
    }
}

impl Family for Logs {
    type Of<S: Sample> = nvtree::NvTree<Observed, S>;
    const TWO_WAYS: bool = false;

    fn create<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error> {
        nvtree::NvTree::create(medium, &Self::options::<S>(sizes))
    }

    fn open<S: Sample>(medium: Observed, sizes: &Sizes) -> Result<Self::Of<S>, Error> {
        nvtree::NvTree::open(medium, Path::new(PATH), &Self::options::<S>(sizes)).map(|(index, _)| index)
    }

    fn rebuild<S: Sample>(index: &Self::Of<S>) -> Result<(), Error> {
        index.rebuild()
    }
}

const PATH: &str = "observed";

/// See the module's head.
pub struct Indexed<K: Family, S: Sample> {
    medium: Observed,
    sizes: Sizes,
    index: Option<K::Of<S>>,
}

/// Value number `n`, of byte strings as long as the number says: no two are the same.
fn value<S: Sample>(n: u32) -> S::ValueBuf {
    S::value(n * 16)
}

/// All pairs, in either direction.
fn pairs<I: Chain<Schema = S>, S: Sample>(index: &I, descending: bool) -> Result<Pairs<S>, String> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    let mut cursor = index.cursor();
    cursor.seek(Bound::Unbounded, descending);
    let mut pairs = Vec::new();
    while cursor.next(&mut key, &mut value).map_err(text_of)? {
        pairs.push((key.clone(), value.clone()));
    }
    Ok(pairs)
}

impl<K: Family, S: Sample> Indexed<K, S> {
    fn index(&self) -> &K::Of<S> {
        self.index.as_ref().expect("only `reopen` takes the index out, and puts one back")
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.index = None;
        self.index = Some(K::open::<S>(self.medium.clone(), &self.sizes).map_err(text_of)?);
        Ok(())
    }
}

impl<K: Family, S: Sample> Subject for Indexed<K, S> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (sizes.len, sizes.capacity)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        let index = K::create::<S>(medium.clone(), sizes).map_err(text_of)?;
        Ok(Self { medium, sizes: *sizes, index: Some(index) })
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, sizes.geometry) {
            panic!("{problem}");
        }
        match K::open::<S>(medium.clone(), sizes) {
            Ok(index) => Ok(Self { medium, sizes: *sizes, index: Some(index) }),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(text_of(error)),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(key, number) => {
                let (key, value) = (S::key(*key), value::<S>(*number));
                self.index().put(S::borrow(&key), S::borrow_value(&value)).map(drop)
            }
            Op::Delete(key) => self.index().delete(S::borrow(&S::key(*key))).map(drop),
            Op::Batch(writes) => {
                let writes =
                    writes.iter().map(|(key, value)| (S::key(*key), value.map(self::value::<S>))).collect();
                self.index().batch(writes, &[], WriteOptions::default()).map(|done| assert!(done))
            }
            Op::Many(writes) => {
                let pairs: Vec<_> = writes.iter().map(|(n, v)| (S::key(*n), v.map(value::<S>))).collect();
                let writes: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| match value {
                        Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
                        None => Write::Delete(S::borrow(key)),
                    })
                    .collect();
                self.index().write_many_as(&writes, WriteOptions::default()).map(drop)
            }
            Op::Rebuild => K::rebuild::<S>(self.index()),
            Op::Reopen => {
                self.index().close().map_err(text_of)?;
                return self.reopen();
            }
            Op::Kill => return self.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        match op {
            Op::Put(key, number) => _ = model.insert(S::key(*key).bytes(), value::<S>(*number).bytes()),
            Op::Delete(key) => _ = model.remove(&S::key(*key).bytes()),
            Op::Batch(writes) | Op::Many(writes) => {
                for (key, number) in writes {
                    match number {
                        Some(number) => _ = model.insert(S::key(*key).bytes(), value::<S>(*number).bytes()),
                        None => _ = model.remove(&S::key(*key).bytes()),
                    }
                }
            }
            _ => {}
        }
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op, Op::Many(_))
    }

    fn verify(&self) -> Result<Contents, String> {
        let index = self.index();
        region::verify_open(&self.medium)?;
        let problems = index.check().problems;
        if let Some(first) = problems.first() {
            return Err(format!("{first} ({} problems)", problems.len()));
        }
        let up = pairs::<_, S>(index, false)?;
        let mut down = pairs::<_, S>(index, true)?;
        down.reverse();
        if up != down {
            return Err(format!("{} pairs forwards, {} backwards, not the same", up.len(), down.len()));
        }
        if index.len() != up.len() as u64 {
            return Err(format!("{} pairs are scanned, {} counted", up.len(), index.len()));
        }
        let mut got = S::ValueBuf::default();
        for (key, value) in &up {
            if !index.get(S::borrow(key), Some(&mut got)).map_err(text_of)? || got != *value {
                return Err(format!("get and scan differ at {key:?}"));
            }
        }
        let contents: Contents = up.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        for n in 0..16 {
            let key = S::key(n);
            if !contents.contains_key(&key.bytes()) && index.get(S::borrow(&key), None).map_err(text_of)? {
                return Err(format!("get finds {key:?}, the scan does not"));
            }
        }
        Ok(contents)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let key = match op {
            Op::Put(key, _) | Op::Delete(key) => *key,
            Op::Batch(writes) | Op::Many(writes) => writes.first().map_or(3, |(key, _)| *key),
            _ => 5,
        };
        let mut ops = vec![Op::Delete(key), Op::Put(key, 41)];
        ops.extend((key + 1..key + 7).map(|key| Op::Put(key, 42)));
        ops.push(Op::Rebuild);
        ops.extend((key + 1..key + 7).map(Op::Delete));
        ops.push(Op::Kill);
        ops
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.index().close().map_err(text_of)
    }
}
