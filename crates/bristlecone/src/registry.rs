//! The engines by name: the trees of [`bptree::roster`], and those of rooms of their own, a line each. The shared test battery runs
//! over all of them.

use std::path::Path;
use std::sync::Arc;

use ::index::{Schema, Words};
use pmem::journal::Replay;
use pmem::region::Identity;
use pmem::{Durable, Journal, Native, Region};
use bptree::Tree;
use bptree::discipline::Discipline;
use bptree::layout::Layouts;
use bptree::roster::{self, About, ByteStrings, TREES, Visitor};
use bptree::shape::Node;

use crate::engine::{Bytes, Capabilities, Engine, Fixed, Kind, U64};
use crate::error::{Error, Result};
use crate::house::{self, Home};
use crate::index::Index;
use crate::place::FILE_NAME;
use crate::place::{Place, with_lasting_name};
use crate::salvage::{self, Met};
use crate::store::Options;

/// Engine of a new store.
pub const DEFAULT: &str = TREES[0].name;
/// Engine of a new store whose values have one length: of those that have such values, the one with the fewest words to write.
pub const DEFAULT_FIXED: &str = "vlab";

type Opener<K> = fn(&'static About, Home, &Options) -> Result<Arc<dyn Engine<K>>>;
/// Reads what a leaf holds.
type Leaf<P> = fn(&Region<Native>, Node) -> Vec<Met<P>>;

/// An engine.
#[derive(Clone, Copy)]
pub struct Entry {
    /// What it is.
    pub about: &'static About,
    /// What it can do.
    pub capabilities: Capabilities,
    bytes: Opener<Bytes>,
    words: Opener<U64>,
    fixed: Option<Opener<Fixed>>,
    /// What a leaf of byte strings holds, for salvage.
    pub(crate) leaf_of_bytes: Leaf<(Vec<u8>, Vec<u8>)>,
    /// What a leaf of integers holds.
    pub(crate) leaf_of_words: Leaf<(u64, u64)>,
    /// What a leaf of values of one length holds.
    pub(crate) leaf_of_fixed: Leaf<(u64, Vec<u8>)>,
}

#[cfg(feature = "wbtree")]
struct Engines;

#[cfg(feature = "wbtree")]
impl Visitor for Engines {
    type Out = Entry;
    fn visit<B: ByteStrings, L: Layouts, D: Discipline>(self, about: &'static About) -> Entry {
        Entry {
            about,
            capabilities: <Tree<Durable, Words, L, D> as Index<U64>>::CAPABILITIES,
            bytes: house::open::<Bytes, Tree<Durable, B, L, D>>,
            words: house::open::<U64, Tree<Durable, Words, L, D>>,
            // A constant of the types: what no user can have is not compiled.
            fixed: if const { L::PAGES } {
                Some(house::open::<Fixed, Tree<Durable, ::index::Fixed, L, D>>)
            } else {
                None
            },
            leaf_of_bytes: salvage::leaf::<B, L>,
            leaf_of_words: salvage::leaf::<Words, L>,
            leaf_of_fixed: salvage::leaf::<::index::Fixed, L>,
        }
    }
}

/// Lists the engines that are no trees of [`bptree::roster`]: the feature that compiles one, its name, its entry.
macro_rules! others {
    ($($feature:literal $name:literal => $entry:expr;)*) => {
        /// Those that were compiled.
        const OTHERS: &[Entry] = &[$(#[cfg(feature = $feature)] $entry),*];
        /// All of them by name, each with its feature.
        const OTHER_FEATURES: &[(&str, &str)] = &[$(($name, $feature)),*];
    };
}

others! {
    "cdds" "cdds" => Entry {
        about: &cdds::ABOUT,
        capabilities: <crate::cdds_index::CddsIndex<cdds::Ordered<Words>> as Index<U64>>::CAPABILITIES,
        bytes: house::open::<Bytes, crate::cdds_index::CddsIndex<cdds::Ordered<cdds::Inlined>>>,
        words: house::open::<U64, crate::cdds_index::CddsIndex<cdds::Ordered<Words>>>,
        fixed: None,
        leaf_of_bytes: salvage::leaf_of_versions::<cdds::Ordered<cdds::Inlined>>,
        leaf_of_words: salvage::leaf_of_versions::<cdds::Ordered<Words>>,
        leaf_of_fixed: |_, _| Vec::new(),
    };
    "paper-engines" "cdds-unsorted" => Entry {
        about: &cdds::ABOUT_UNSORTED,
        capabilities: <crate::cdds_index::CddsIndex<cdds::Ordered<Words, cdds::Unsorted>> as Index<U64>>::CAPABILITIES,
        bytes: house::open::<Bytes, crate::cdds_index::CddsIndex<cdds::Ordered<cdds::Inlined, cdds::Unsorted>>>,
        words: house::open::<U64, crate::cdds_index::CddsIndex<cdds::Ordered<Words, cdds::Unsorted>>>,
        fixed: None,
        leaf_of_bytes: salvage::leaf_of_versions::<cdds::Ordered<cdds::Inlined, cdds::Unsorted>>,
        leaf_of_words: salvage::leaf_of_versions::<cdds::Ordered<Words, cdds::Unsorted>>,
        leaf_of_fixed: |_, _| Vec::new(),
    };
    "paper-engines" "cdds-hash" => Entry {
        about: &cdds::hash::ABOUT,
        capabilities: <crate::cdds_index::CddsIndex<cdds::hash::Hashed<Words>> as Index<U64>>::CAPABILITIES,
        bytes: house::open::<Bytes, crate::cdds_index::CddsIndex<cdds::hash::Hashed<::index::Keyed>>>,
        words: house::open::<U64, crate::cdds_index::CddsIndex<cdds::hash::Hashed<Words>>>,
        fixed: None,
        leaf_of_bytes: salvage::leaf_of_versions::<cdds::hash::Hashed<::index::Keyed>>,
        leaf_of_words: salvage::leaf_of_versions::<cdds::hash::Hashed<Words>>,
        leaf_of_fixed: |_, _| Vec::new(),
    };
    "vlab" "vlab" => Entry {
        about: &vlab::ABOUT,
        capabilities: <crate::chain_index::ChainIndex<vlab::Vlab<Durable, Words>> as Index<U64>>::CAPABILITIES,
        bytes: house::open::<Bytes, crate::chain_index::ChainIndex<vlab::Vlab<Durable, ::index::Prefixed>>>,
        words: house::open::<U64, crate::chain_index::ChainIndex<vlab::Vlab<Durable, Words>>>,
        fixed: Some(house::open::<Fixed, crate::chain_index::ChainIndex<vlab::Vlab<Durable, ::index::Fixed>>>),
        leaf_of_bytes: salvage::leaf_of_buckets::<::index::Prefixed>,
        leaf_of_words: salvage::leaf_of_buckets::<Words>,
        leaf_of_fixed: salvage::leaf_of_buckets::<::index::Fixed>,
    };
    "paper-engines" "nvtree" => Entry {
        about: &nvtree::ABOUT,
        capabilities: <crate::chain_index::ChainIndex<nvtree::NvTree<Durable, Words>> as Index<U64>>::CAPABILITIES,
        bytes: house::open::<Bytes, crate::chain_index::ChainIndex<nvtree::NvTree<Durable, ::index::Prefixed>>>,
        words: house::open::<U64, crate::chain_index::ChainIndex<nvtree::NvTree<Durable, Words>>>,
        fixed: Some(house::open::<Fixed, crate::chain_index::ChainIndex<nvtree::NvTree<Durable, ::index::Fixed>>>),
        leaf_of_bytes: salvage::leaf_of_logs::<::index::Prefixed>,
        leaf_of_words: salvage::leaf_of_logs::<Words>,
        leaf_of_fixed: salvage::leaf_of_logs::<::index::Fixed>,
    };
    "bwtree" "bwtree" => Entry {
        about: &crate::bw_engine::ABOUT,
        capabilities: crate::bw_engine::CAPABILITIES,
        bytes: crate::bw_engine::open::<Bytes, bwtree::Bytes>,
        words: crate::bw_engine::open::<U64, bwtree::Words>,
        fixed: None,
        leaf_of_bytes: |_, _| Vec::new(),
        leaf_of_words: |_, _| Vec::new(),
        leaf_of_fixed: |_, _| Vec::new(),
    };
}

#[cfg(not(any(feature = "wbtree", feature = "cdds", feature = "vlab")))]
compile_error!("a store needs a durable engine: enable the feature wbtree, cdds, vlab or paper-engines");

/// The trees that were compiled.
const COMPILED_TREES: &[About] = if cfg!(feature = "paper-engines") {
    TREES
} else if cfg!(feature = "wbtree") {
    TREES.split_at(roster::PRODUCTION).0
} else {
    &[]
};

/// The tree of this name, if it was compiled.
fn tree_entry(name: &str) -> Option<Entry> {
    #[cfg(feature = "paper-engines")]
    return roster::visit(name, Engines);
    #[cfg(all(feature = "wbtree", not(feature = "paper-engines")))]
    return roster::visit_production(name, Engines);
    #[cfg(not(feature = "wbtree"))]
    return Option::<Entry>::None.filter(|entry| entry.about.name == name);
}

/// The feature of this crate that compiles the engine of this name, whether it is on or not; `None` if there is no such engine.
pub fn feature_of(name: &str) -> Option<&'static str> {
    if let Some(number) = TREES.iter().position(|about| about.name == name) {
        return Some(if number < roster::PRODUCTION { "wbtree" } else { "paper-engines" });
    }
    OTHER_FEATURES.iter().find(|(other, _)| *other == name).map(|(_, feature)| *feature)
}

/// All engines that were compiled, the default first.
pub fn engines() -> impl Iterator<Item = &'static About> {
    COMPILED_TREES.iter().chain(OTHERS.iter().map(|entry| entry.about))
}

/// Names of all engines that were compiled, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    engines().map(|about| about.name)
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

    /// Opens the store in a journal over files of the caller's: `replay` is what opening it found, `None` for new files.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn open_over(
        journal: Journal,
        replay: Option<Replay>,
        options: &Options,
    ) -> Result<Arc<dyn Engine<Self>>>;

    /// Makes an empty store in memory of a file that the caller gives a name when it is closed: `options` say of which engine.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn create_unnamed(memory: Durable, options: &Options) -> Result<Arc<dyn Engine<Self>>>;
}

macro_rules! open {
    ($kind:ty, $default:expr, $opener:expr) => {
        impl Open for $kind {
            fn open(dir: &Path, options: &Options) -> Result<Arc<dyn Engine<Self>>> {
                open(dir, options, $default, $opener)
            }
            fn open_over(
                journal: Journal,
                replay: Option<Replay>,
                options: &Options,
            ) -> Result<Arc<dyn Engine<Self>>> {
                open_over(journal, replay, options, $default, $opener)
            }
            fn create_unnamed(memory: Durable, options: &Options) -> Result<Arc<dyn Engine<Self>>> {
                let entry = asked(options, $opener)?.map_or_else(|| find($default), Ok)?;
                opened(entry, None, Home::Unnamed(memory), options, $opener)
            }
        }
    };
}
open!(Bytes, DEFAULT, |entry| Some(entry.bytes));
open!(U64, DEFAULT, |entry| Some(entry.words));
open!(Fixed, DEFAULT_FIXED, |entry| entry.fixed);

fn open<K: Kind>(
    dir: &Path,
    options: &Options,
    default: &str,
    opener: fn(&Entry) -> Option<Opener<K>>,
) -> Result<Arc<dyn Engine<K>>> {
    let asked = asked(options, opener)?;
    if let Some(entry) = asked.filter(|entry| !entry.about.durable)
        && let Some(opener) = opener(&entry)
    {
        if options.read_only {
            return Err(Error::Option(format!(
                "{} keeps nothing: there is nothing to read",
                entry.about.name
            )));
        }
        // Else it would seem that the store in the directory had been emptied.
        if dir.join(FILE_NAME).exists() {
            return Err(Error::Option(format!(
                "{} holds a durable store, and {} keeps nothing: leave the engine out, or name another directory",
                dir.display(),
                entry.about.name
            )));
        }
        return opener(entry.about, Home::Nowhere, options);
    }
    let place = if options.read_only { Place::look(dir) } else { Place::take(dir, options) };
    let place = place.map_err(with_lasting_name)?;
    if place.fresh {
        // The same lock: no other process can make the store before the files are removed.
        let unfinished = place.again()?;
        let entry = asked.map_or_else(|| find(default), Ok);
        let made = entry.and_then(|entry| opened(entry, None, Home::New(place), options, opener));
        return made.map_err(|error| unfinished.give_up(error));
    }
    let (memory, replay) = place.memory(options)?;
    let found: Identity = pmem::region::describe(&memory, &place.path)?.0;
    let entry = asked.map_or_else(|| find(&found.engine), Ok)?;
    opened(entry, Some(found), Home::Found(place, memory, replay), options, opener)
}

fn open_over<K: Kind>(
    journal: Journal,
    replay: Option<Replay>,
    options: &Options,
    default: &str,
    opener: fn(&Entry) -> Option<Opener<K>>,
) -> Result<Arc<dyn Engine<K>>> {
    let asked = asked(options, opener)?;
    let found = replay.map(|_| pmem::region::describe(&journal, Path::new("store"))).transpose()?;
    let found = found.map(|(identity, _)| identity);
    let name = found.as_ref().map_or(default, |found| &found.engine);
    let entry = asked.map_or_else(|| find(name), Ok)?;
    if !entry.about.durable {
        return Err(Error::Option(format!("{} keeps nothing: it needs no journal", entry.about.name)));
    }
    opened(entry, found, Home::Given(Arc::new(journal), replay), options, opener)
}

/// Opens the copy of a region in a fresh place, which recovers it, and closes it cleanly. Returns its number of keys.
pub(crate) fn close_copy(place: &Place) -> Result<u64> {
    struct Close;
    impl OnCopy for Close {
        fn run<K: Kind>(self, engine: &dyn Engine<K>) -> Result<u64>
        where
            K::Value: ToOwned,
        {
            engine.close()?;
            Ok(engine.len().keys)
        }
    }
    let (memory, replay) = place.memory_of_copy()?;
    on_copy(place.again()?, memory, replay, Close)
}

/// Opens what `memory` holds, which recovers it there, and checks it whole. Returns its number of keys if it is sound.
///
/// # Errors
/// As opening a store; `Corrupt` if the check finds a problem.
pub(crate) fn sound_keys(place: Place, memory: Durable) -> Result<u64> {
    struct Check;
    impl OnCopy for Check {
        fn run<K: Kind>(self, engine: &dyn Engine<K>) -> Result<u64>
        where
            K::Value: ToOwned,
        {
            let report = engine.check()?;
            if !report.problems.is_empty() {
                return Err(pmem::Error::Corrupt { what: "store", at: 0 }.into());
            }
            Ok(report.keys)
        }
    }
    on_copy(place, memory, None, Check)
}

/// What is done with a copy, whatever its kind.
trait OnCopy {
    fn run<K: Kind>(self, engine: &dyn Engine<K>) -> Result<u64>
    where
        K::Value: ToOwned;
}

fn on_copy(place: Place, memory: Durable, replay: Option<Replay>, what: impl OnCopy) -> Result<u64> {
    fn run<K: Kind>(opener: Opener<K>, about: &'static About, home: Home, what: impl OnCopy) -> Result<u64>
    where
        K::Value: ToOwned,
    {
        what.run(&*opener(about, home, &Options::default())?)
    }
    let (identity, _) = pmem::region::describe(&memory, &place.path)?;
    let entry = find(&identity.engine)?;
    let home = Home::Copy(place, memory, replay);
    match (entry.fixed, ::index::Fixed::payload_words(&identity.kind)) {
        _ if identity.kind == U64::NAME => run(entry.words, entry.about, home, what),
        (Some(fixed), Some(_)) => run(fixed, entry.about, home, what),
        _ => run(entry.bytes, entry.about, home, what),
    }
}

/// The engine that was asked for, which has such stores.
fn asked<K: Kind>(options: &Options, opener: fn(&Entry) -> Option<Opener<K>>) -> Result<Option<Entry>> {
    let asked = options.engine.as_deref().map(find).transpose()?;
    if let Some(entry) = asked.filter(|entry| opener(entry).is_none()) {
        let known: Vec<_> = names().filter(|name| find(name).is_ok_and(|e| opener(&e).is_some())).collect();
        return Err(Error::Option(format!(
            "{} has no store of {}: choose one of {}",
            entry.about.name,
            K::NAME,
            known.join(", ")
        )));
    }
    Ok(asked)
}

fn opened<K: Kind>(
    entry: Entry,
    found: Option<Identity>,
    home: Home,
    options: &Options,
    opener: fn(&Entry) -> Option<Opener<K>>,
) -> Result<Arc<dyn Engine<K>>> {
    match opener(&entry) {
        Some(opener) => opener(entry.about, home, options),
        None => {
            let found = found.map_or_else(
                || format!("engine {}", entry.about.name),
                |found| format!("engine {} over {}", found.engine, found.kind),
            );
            Err(pmem::Error::Mismatch { found, asked: K::NAME.into() }.into())
        }
    }
}

/// The engine of this name.
///
/// # Errors
/// `NotCompiled` if it was left out, with the feature that has it; `UnknownEngine`, with the names there are.
pub fn find(name: &str) -> Result<Entry> {
    let other = || OTHERS.iter().find(|entry| entry.about.name == name).copied();
    tree_entry(name).or_else(other).ok_or_else(|| match feature_of(name) {
        Some(feature) => Error::NotCompiled { name: name.into(), feature },
        None => Error::UnknownEngine { name: name.into(), known: names().collect::<Vec<_>>().join(", ") },
    })
}

/// What an engine says that is asked for an order and has none.
pub(crate) fn unordered(engine: &'static str) -> Error {
    Error::Unordered { engine, ordered: names_with(|can| can.ordered) }
}

/// What an engine says that is asked for a batch and has none.
pub(crate) fn no_batches(engine: &'static str) -> Error {
    Error::NoBatches { engine, batched: names_with(|can| can.atomic_batch) }
}

/// What an engine says that is asked for a snapshot and has none.
pub(crate) fn no_snapshots(engine: &str) -> Error {
    Error::Option(format!(
        "{engine} has no snapshots: take a store of an engine that has: {}",
        names_with(|can| can.snapshots)
    ))
}

/// What an engine says that is asked for its past and keeps none.
pub(crate) fn no_past(engine: &str) -> Error {
    Error::Option(format!(
        "{engine} keeps no versions: named versions and rollback need a store of an engine that does: {}",
        names_with(|can| can.versions)
    ))
}

/// Names of the engines that can do something.
fn names_with(what: fn(&Capabilities) -> bool) -> String {
    let can = |name: &&str| find(name).is_ok_and(|entry| what(&entry.capabilities));
    names().filter(can).collect::<Vec<_>>().join(", ")
}
