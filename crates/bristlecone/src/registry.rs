//! The engines by name. A new engine is one room and one line here; the shared test battery runs over this table.

use std::path::Path;
use std::sync::Arc;

use pmem::Native;
use tree::{Keyed, Prefixed, Slotted, Sorted, Volatile, Words, WriteAtomic};

use crate::engine::{Bytes, Engine, Kind, U64};
use crate::error::{Error, Result};
use crate::place::{FILE_NAME, Place};
use crate::store::Options;
use crate::tree_engine;

/// Engine of a new store.
pub const DEFAULT: &str = "wbtree";

type Opener<K> = fn(&'static str, Option<Place>, &Options) -> Result<Arc<dyn Engine<K>>>;

/// An engine.
pub struct Entry {
    /// Name, as users give it and superblocks hold it.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Contents survive the process; else no file is used.
    pub durable: bool,
    bytes: Opener<Bytes>,
    words: Opener<U64>,
}

/// All engines, the default first.
pub const ENGINES: &[Entry] = &[
    Entry {
        name: DEFAULT,
        about: "wB+-Tree: slot+bitmap nodes, write-atomic; byte strings with an inline 8-byte prefix",
        durable: true,
        bytes: tree_engine::open::<Bytes, Prefixed, Slotted, WriteAtomic>,
        words: tree_engine::open::<U64, Words, Slotted, WriteAtomic>,
    },
    Entry {
        name: "wbtree-keyptr",
        about: "wB+-Tree as in the paper's section 4.6: byte strings by 8-byte key pointer",
        durable: true,
        bytes: tree_engine::open::<Bytes, Keyed, Slotted, WriteAtomic>,
        words: tree_engine::open::<U64, Words, Slotted, WriteAtomic>,
    },
    Entry {
        name: "btree",
        about: "volatile cache-optimised prefetching B+-Tree: nothing survives the process",
        durable: false,
        bytes: tree_engine::open::<Bytes, Prefixed, Sorted, Volatile>,
        words: tree_engine::open::<U64, Words, Sorted, Volatile>,
    },
];

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
    if let Some(entry) = asked.filter(|entry| !entry.durable) {
        // Else it would seem that the store in the directory had been emptied.
        if dir.join(FILE_NAME).exists() {
            return Err(Error::Option(format!(
                "{} holds a durable store, and {} keeps nothing: leave the engine out, or name another directory",
                dir.display(),
                entry.name
            )));
        }
        return opener(entry)(entry.name, None, options);
    }
    let place = Place::take(dir, options)?;
    let entry = match asked {
        Some(entry) => entry,
        None if place.fresh => find(DEFAULT)?,
        None => find(&engine_of(&place, options)?)?,
    };
    opener(entry)(entry.name, Some(place), options)
}

fn engine_of(place: &Place, options: &Options) -> Result<String> {
    let medium: Native = place.map(options)?;
    Ok(pmem::region::describe(&medium, &place.path)?.0.engine)
}

fn find(name: &str) -> Result<&'static Entry> {
    ENGINES.iter().find(|entry| entry.name == name).ok_or_else(|| Error::UnknownEngine {
        name: name.into(),
        known: ENGINES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}
