//! [`Indexed`] runs an index under the crash explorer. It implements [`Subject`] for VLAB, NV-Tree, and every other engine of the registry
//! that is not a B+-tree and has no crash suite of its own. [`crate::subject`] has the code that these engines share with the B+-trees.

use std::marker::PhantomData;
use std::path::Path;

use crash::{Contents, Subject};
use index::{Create, Form, Index, Kind, SchemaOf};
use pmem::{Durability, Error, Geometry, Observed};

use crate::subject::{
    Explored, Held, Numbered as _, NumberedWrites, PATH, STRIPES, SYNCED, Sampled, text_of,
};

/// One operation. Keys and values are numbers.
#[derive(Clone, Debug)]
pub enum Op {
    /// Insert or replace.
    Put(u32, u32),
    /// Delete.
    Delete(u32),
    /// An atomic batch; `None` deletes.
    Batch(Vec<(u32, Option<u32>)>),
    /// Separate writes of different keys in one call; `None` deletes.
    Many(Vec<(u32, Option<u32>)>),
    /// Delete every key, in one step.
    Clear,
    /// Complete all background work. In an index over a list, this rebuilds the structure above the leaves.
    Maintain,
    /// Close and open again.
    Reopen,
    /// Open again without a close, as after a kill.
    Kill,
}

/// Parameters for creating and opening an index.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Cache lines of a leaf.
    pub lines: u64,
    /// True for the paper's variant, if an engine has two.
    pub faithful: bool,
    /// The region's geometry.
    pub geometry: Geometry,
    /// Bytes in use at the start. The region grows if it needs more.
    pub len: u64,
    /// Maximum bytes.
    pub capacity: u64,
}

/// Sizes with space for everything.
pub fn sizes(lines: u64, faithful: bool) -> Sizes {
    Sizes { lines, faithful, geometry: Geometry::tiny(), len: 0, capacity: 256 << 10 }
}

/// VLAB, with short braids that are combined often and in small steps.
pub struct Buckets<K, S>(PhantomData<(K, S)>);

fn vlab_options<K: Sampled>(sizes: &Sizes) -> vlab::Options {
    vlab::Options {
        payload_words: K::PAYLOAD_WORDS,
        geometry: sizes.geometry,
        stripes: STRIPES,
        faithful: sizes.faithful,
        braids: 4,
        braid_buckets: Some(2),
        combine_step: 2,
        ..vlab::Options::new(sizes.lines, Durability::Power)
    }
}

impl<K: Sampled, S: SchemaOf<K>> Explored for Buckets<K, S> {
    type Kind = K;
    type Index = vlab::Vlab<Observed, S>;
    type Sizes = Sizes;

    fn bytes(sizes: &Sizes) -> (u64, u64) {
        sizes.bytes()
    }

    fn geometry(sizes: &Sizes) -> Geometry {
        sizes.geometry
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        vlab::Vlab::create(medium, &vlab_options::<K>(sizes))
    }

    fn open(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        let options = vlab_options::<K>(sizes);
        vlab::Vlab::open(medium, Path::new(PATH), &options).map(|(index, _)| index)
    }

    fn maintain(index: &Self::Index) -> Result<(), Error> {
        index.combine()
    }
}

/// NV-Tree, with parents of few leaves, which fill quickly.
pub struct Logs<K, S>(PhantomData<(K, S)>);

fn nvtree_options<K: Sampled>(sizes: &Sizes) -> nvtree::Options {
    nvtree::Options {
        payload_words: K::PAYLOAD_WORDS,
        geometry: sizes.geometry,
        stripes: STRIPES,
        space: 4,
        ..nvtree::Options::new(sizes.lines, Durability::Power)
    }
}

impl<K: Sampled, S: SchemaOf<K>> Explored for Logs<K, S> {
    type Kind = K;
    type Index = nvtree::NvTree<Observed, S>;
    type Sizes = Sizes;

    fn bytes(sizes: &Sizes) -> (u64, u64) {
        sizes.bytes()
    }

    fn geometry(sizes: &Sizes) -> Geometry {
        sizes.geometry
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        nvtree::NvTree::create(medium, &nvtree_options::<K>(sizes))
    }

    fn open(medium: Observed, sizes: &Sizes) -> Result<Self::Index, Error> {
        let options = nvtree_options::<K>(sizes);
        nvtree::NvTree::open(medium, Path::new(PATH), &options).map(|(index, _)| index)
    }

    fn maintain(index: &Self::Index) -> Result<(), Error> {
        index.rebuild()
    }
}

/// An index of the registry without changes, of the kind `K`.
pub struct Registered<K, I>(PhantomData<(K, I)>);

/// The engine's name in superblocks.
const ENGINE: &str = "crash";

impl<K: Sampled, I: Index<K> + Create<Observed>> Explored for Registered<K, I> {
    type Kind = K;
    type Index = I;
    type Sizes = Sizes;

    fn bytes(sizes: &Sizes) -> (u64, u64) {
        sizes.bytes()
    }

    fn geometry(sizes: &Sizes) -> Geometry {
        sizes.geometry
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<I, Error> {
        I::create(medium, &sizes.form(K::PAYLOAD_WORDS))
    }

    fn open(medium: Observed, sizes: &Sizes) -> Result<I, Error> {
        I::open(medium, Path::new(PATH), &sizes.form(K::PAYLOAD_WORDS)).map(|(index, _)| index)
    }

    fn maintain(index: &I) -> Result<(), Error> {
        index.maintain();
        Ok(())
    }
}

impl Sizes {
    fn bytes(&self) -> (u64, u64) {
        (self.len, self.capacity)
    }

    fn form(&self, payload_words: usize) -> Form {
        let usual = Form::new(ENGINE, self.lines, Durability::Power);
        Form { payload_words, geometry: Some(self.geometry), stripes: STRIPES, ..usual }
    }
}

/// See the module's head.
pub struct Indexed<E: Explored>(Held<E>);

/// Value number `n`. Byte strings have the length `n`, so no two are equal.
fn value<K: Sampled>(n: u32) -> K::ValueBuf {
    K::number_value(n * 16)
}

fn numbered<K: Sampled>(writes: &[(u32, Option<u32>)]) -> NumberedWrites<K> {
    writes.iter().map(|(n, v)| (K::number_key(*n), v.map(value::<K>))).collect()
}

impl<E: Explored<Sizes = Sizes>> Subject for Indexed<E> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        E::bytes(sizes)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Held::create(medium, sizes).map(Self)
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Held::recover(medium, sizes).map(Self)
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let index = self.0.index();
        match op {
            Op::Put(key, number) => {
                let (key, value) = (E::Kind::number_key(*key), value::<E::Kind>(*number));
                index.put(E::Kind::key(&key), E::Kind::value(&value), SYNCED).map(drop)
            }
            Op::Delete(key) => index.delete(E::Kind::key(&E::Kind::number_key(*key)), SYNCED).map(drop),
            Op::Batch(writes) => match index.batch(numbered::<E::Kind>(writes), &[], SYNCED) {
                Ok(false) => return Err("a batch was not done".to_owned()),
                other => other.map(drop),
            },
            Op::Many(writes) => self.0.write_many(&numbered::<E::Kind>(writes)),
            Op::Clear => index.clear(),
            Op::Maintain => E::maintain(index),
            Op::Reopen => {
                self.0.close()?;
                return self.0.reopen();
            }
            Op::Kill => return self.0.reopen(),
        }
        .map_err(text_of)
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        match op {
            Op::Put(key, number) => {
                _ = model.insert(E::Kind::number_key(*key).bytes(), value::<E::Kind>(*number).bytes())
            }
            Op::Delete(key) => _ = model.remove(&E::Kind::number_key(*key).bytes()),
            Op::Clear => model.clear(),
            Op::Batch(writes) | Op::Many(writes) => {
                for (key, number) in writes {
                    match number {
                        Some(number) => {
                            _ = model
                                .insert(E::Kind::number_key(*key).bytes(), value::<E::Kind>(*number).bytes())
                        }
                        None => _ = model.remove(&E::Kind::number_key(*key).bytes()),
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
        self.0.verify(0..16)
    }

    fn continuation(op: &Op) -> Vec<Op> {
        let key = match op {
            Op::Put(key, _) | Op::Delete(key) => *key,
            Op::Batch(writes) | Op::Many(writes) => writes.first().map_or(3, |(key, _)| *key),
            _ => 5,
        };
        let mut ops = vec![Op::Delete(key), Op::Put(key, 41)];
        ops.extend((key + 1..key + 7).map(|key| Op::Put(key, 42)));
        ops.push(Op::Maintain);
        ops.extend((key + 1..key + 7).map(Op::Delete));
        ops.push(Op::Kill);
        ops
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.0.close()
    }
}
