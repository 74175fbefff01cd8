//! The engines by name. Those over durable memory are the trees of [`tree::roster`], a line each; the shared test battery runs
//! over all of them.

use std::path::Path;
use std::sync::Arc;

use pmem::{Native, Region};
use tree::Words;
use tree::discipline::Discipline;
use tree::layout::Layouts;
use tree::roster::{self, About, ByteStrings, TREES, Visitor};
use tree::shape::Node;

use crate::engine::{Bytes, Capabilities, Engine, Kind, U64};
use crate::error::{Error, Result};
use crate::place::{FILE_NAME, Place};
use crate::store::Options;
use crate::{salvage, tree_engine};

/// Engine of a new store.
pub const DEFAULT: &str = TREES[0].name;

type Opener<K> = fn(&'static About, Option<Place>, &Options) -> Result<Arc<dyn Engine<K>>>;
/// Reads a leaf's pairs; `None` stands for one that is damaged.
type Leaf<P> = fn(&Region<Native>, Node) -> Vec<Option<P>>;

/// An engine.
#[derive(Clone, Copy)]
pub struct Entry {
    /// What it is.
    pub about: &'static About,
    /// What it can do.
    pub capabilities: Capabilities,
    bytes: Opener<Bytes>,
    words: Opener<U64>,
    /// What a leaf of byte strings holds, for salvage.
    pub(crate) leaf_of_bytes: Leaf<(Vec<u8>, Vec<u8>)>,
    /// What a leaf of integers holds.
    pub(crate) leaf_of_words: Leaf<(u64, u64)>,
}

struct Engines;

impl Visitor for Engines {
    type Out = Entry;
    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Entry {
        Entry {
            about,
            capabilities: tree_engine::capabilities::<D>(),
            bytes: tree_engine::open::<Bytes, B, L, D>,
            words: tree_engine::open::<U64, Words, L, D>,
            leaf_of_bytes: salvage::leaf::<B, L>,
            leaf_of_words: salvage::leaf::<Words, L>,
        }
    }
}

/// Names of all engines, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    TREES.iter().map(|about| about.name)
}

/// Kinds that engines can be opened for.
pub trait Open: Kind
where
    Self::Value: ToOwned,
{
    /// Opens the store in directory `dir`.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn open(dir: &Path, options: &Options) -> Result<Arc<dyn Engine<Self>>>;
}

impl Open for Bytes {
    fn open(dir: &Path, options: &Options) -> Result<Arc<dyn Engine<Self>>> {
        open(dir, options, |entry| entry.bytes)
    }
}

impl Open for U64 {
    fn open(dir: &Path, options: &Options) -> Result<Arc<dyn Engine<Self>>> {
        open(dir, options, |entry| entry.words)
    }
}

fn open<K: Kind>(
    dir: &Path,
    options: &Options,
    opener: fn(&Entry) -> Opener<K>,
) -> Result<Arc<dyn Engine<K>>> {
    let asked = options.engine.as_deref().map(find).transpose()?;
    if let Some(entry) = asked.filter(|entry| !entry.about.durable) {
        // Else it would seem that the store in the directory had been emptied.
        if dir.join(FILE_NAME).exists() {
            return Err(Error::Option(format!(
                "{} holds a durable store, and {} keeps nothing: leave the engine out, or name another directory",
                dir.display(),
                entry.about.name
            )));
        }
        return opener(&entry)(entry.about, None, options);
    }
    let place = Place::take(dir, options)?;
    let entry = match asked {
        Some(entry) => entry,
        None if place.fresh => find(DEFAULT)?,
        None => find(&engine_of(&place, options)?)?,
    };
    opener(&entry)(entry.about, Some(place), options)
}

fn engine_of(place: &Place, options: &Options) -> Result<String> {
    let medium: Native = place.map(options)?;
    Ok(pmem::region::describe(&medium, &place.path)?.0.engine)
}

/// The engine of this name.
///
/// # Errors
/// `UnknownEngine`, with the names there are.
pub fn find(name: &str) -> Result<Entry> {
    roster::visit(name, Engines).ok_or_else(|| Error::UnknownEngine {
        name: name.into(),
        known: names().collect::<Vec<_>>().join(", "),
    })
}
