//! The registry: all engines by name. It has the trees of [`bptree::roster`], and one line for each other engine.
//!
//! Stores, benchmarks and tests find engines only here.

use std::path::Path;
use std::sync::Arc;

use ::index::engine::{About, Capabilities, Count, Family, Salvaged, Visitor, WithIndex};
use ::index::kind::{Bytes, Fixed, U64};
use ::index::{Create, Index, Kind, Schema};
use bptree::TreeFamily;
use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::roster::{self, ByteStrings, TREES};
use pmem::journal::Replay;
use pmem::region::Identity;
use pmem::{Durable, Journal, Native, Region};

use crate::durable_engine::{self, Described, Engine, Home};
use crate::error::{Error, Result};
use crate::in_files;
use crate::open_in_files;
use crate::options::Options;
use crate::store_dir::{FILE_NAME, StoreDir, with_lasting_name};
use crate::tabled::Tabled;

/// Default engine of a new store. `wbtree` if `line` is not compiled.
pub const DEFAULT: &str = if cfg!(feature = "line") { "line" } else { TREES[0].name };
/// Default engine of a new store whose values have one length. It stores the fewest words per write among the engines with such values.
pub const DEFAULT_FIXED: &str = "vlab";

type Opener<K> = fn(Described, Home, &Options) -> Result<Arc<Engine<K>>>;
/// Reads the contents of a leaf.
type Leaf<K> = fn(&Region<Native>, u64) -> Vec<Salvaged<K>>;

/// The registry entry of an engine.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The description.
    pub about: &'static About,
    /// The capabilities.
    pub capabilities: Capabilities,
    /// The capabilities of its stores in files of their own, if it has such stores.
    pub files: Option<Capabilities>,
    bytes_in_files: in_files::Opener<Bytes>,
    words_in_files: in_files::Opener<U64>,
    bytes: Opener<Bytes>,
    words: Opener<U64>,
    fixed: Option<Opener<Fixed>>,
    /// Reads a leaf of byte strings, for salvage.
    pub(crate) leaf_of_bytes: Leaf<Bytes>,
    /// Reads a leaf of integers.
    pub(crate) leaf_of_words: Leaf<U64>,
    /// Reads a leaf of values of one length.
    pub(crate) leaf_of_fixed: Leaf<Fixed>,
}

impl Entry {
    fn described(&self) -> Described {
        Described { about: self.about, capabilities: self.capabilities }
    }
}

/// Makes the registry entry of an engine.
struct MakeEntry;

impl Visitor for MakeEntry {
    type Out = Entry;
    fn visit<F: Family>(self, about: &'static About) -> Entry {
        let fixed = F::fixed::<Durable, _>(OfFixed);
        Entry {
            about,
            capabilities: F::CAPABILITIES,
            files: F::FILES,
            bytes_in_files: F::bytes_in_files,
            words_in_files: F::words_in_files,
            bytes: durable_engine::open::<Bytes, F::Bytes<Durable>>,
            words: durable_engine::open::<U64, F::Words<Durable>>,
            fixed: fixed.map(|(open, _)| open),
            leaf_of_bytes: <F::Bytes<Durable> as Index<Bytes>>::salvage_leaf,
            leaf_of_words: <F::Words<Durable> as Index<U64>>::salvage_leaf,
            leaf_of_fixed: fixed.map_or(|_, _| Vec::new(), |(_, leaf)| leaf),
        }
    }
}

struct OfFixed;

impl WithIndex<Durable, Fixed> for OfFixed {
    type Out = (Opener<Fixed>, Leaf<Fixed>);
    fn with<I: Index<Fixed> + Create<Durable>>(self) -> Self::Out {
        (durable_engine::open::<Fixed, I>, I::salvage_leaf)
    }
}

/// Lists the engines that are not trees of [`bptree::roster`]: the feature that compiles the engine, name, family, description.
macro_rules! others {
    ($($feature:literal $name:literal => $family:ty, $about:expr;)*) => {
        /// The engines of this list that are compiled.
        const OTHERS: &[&About] = &[$(#[cfg(feature = $feature)] $about),*];
        /// The names of all engines of this list, each with its feature.
        const OTHER_FEATURES: &[(&str, &str)] = &[$(($name, $feature)),*];

        /// Shows the engine of this name to a visitor. `None` if the engine is not compiled.
        fn visit_other<V: Visitor>(name: &str, _visitor: V) -> Option<V::Out> {
            match name {
                $(#[cfg(feature = $feature)] $name => Some(_visitor.visit::<$family>($about)),)*
                _ => None,
            }
        }
    };
}

others! {
    "line" "line" => line::LineFamily, &line::ABOUT;
    "cdds" "cdds" => cdds::TreeFamily<cdds::Sorted>, &cdds::ABOUT;
    "paper-engines" "cdds-unsorted" => cdds::TreeFamily<cdds::Unsorted>, &cdds::ABOUT_UNSORTED;
    "paper-engines" "cdds-hash" => cdds::HashFamily, &cdds::hash::ABOUT;
    "vlab" "vlab" => vlab::VlabFamily, &vlab::ABOUT;
    "paper-engines" "nvtree" => nvtree::NvTreeFamily, &nvtree::ABOUT;
    "toy" "toy" => toy::ToyFamily, &toy::ABOUT;
    "bwtree" "bwtree" => crate::bw_index::BwFamily, &crate::bw_index::ABOUT;
}

/// Adapts a visitor of families to the roster of trees.
struct AsFamily<V>(V);

impl<V: Visitor> roster::Visitor for AsFamily<V> {
    type Out = V::Out;
    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> V::Out {
        self.0.visit::<TreeFamily<B, L, D>>(about)
    }
}

/// Shows the engine of this name to a visitor. `None` if there is no such engine, or it is not compiled. The visitor's code is compiled for
/// every engine.
pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
    if !COMPILED_TREES.iter().any(|about| about.name == name) {
        return visit_other(name, visitor);
    }
    #[cfg(feature = "paper-engines")]
    return roster::visit(name, AsFamily(visitor));
    #[cfg(all(feature = "wbtree", not(feature = "paper-engines")))]
    return roster::visit_production(name, AsFamily(visitor));
    #[cfg(not(feature = "wbtree"))]
    None
}

#[cfg(not(any(feature = "line", feature = "wbtree", feature = "cdds", feature = "vlab")))]
compile_error!(
    "a store needs a durable engine: enable the feature line, wbtree, cdds, vlab or paper-engines"
);

/// The trees that are compiled.
const COMPILED_TREES: &[About] = if cfg!(feature = "paper-engines") {
    TREES
} else if cfg!(feature = "wbtree") {
    TREES.split_at(roster::PRODUCTION).0
} else {
    &[]
};

/// The feature of this crate that compiles the engine of this name, enabled or not. `None` if there is no such engine.
pub fn feature_of(name: &str) -> Option<&'static str> {
    if let Some(number) = TREES.iter().position(|about| about.name == name) {
        return Some(if number < roster::PRODUCTION { "wbtree" } else { "paper-engines" });
    }
    OTHER_FEATURES.iter().find(|(other, _)| *other == name).map(|(_, feature)| *feature)
}

/// All compiled engines, the default first.
pub fn engines() -> impl Iterator<Item = &'static About> {
    let all = || COMPILED_TREES.iter().chain(OTHERS.iter().copied());
    let is_default = |about: &&About| about.name == DEFAULT;
    all().filter(is_default).chain(all().filter(move |about| !is_default(about)))
}

/// Names of all compiled engines, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    engines().map(|about| about.name)
}

/// A kind of keys and values, with the functions that open stores of this kind.
pub trait Open: Tabled {
    /// Opens the store in directory `dir`.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn open(dir: &Path, options: &Options) -> Result<Arc<Engine<Self>>>;

    /// Opens a store whose journal and data file are the caller's own implementation of files. `replay` is the result of opening the
    /// journal; `None` for new files.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn open_over(journal: Journal, replay: Option<Replay>, options: &Options) -> Result<Arc<Engine<Self>>>;

    /// Makes an empty store in the memory of a file without a name. The caller names the file after the close. `options` names the engine.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open).
    fn create_unnamed(memory: Durable, options: &Options) -> Result<Arc<Engine<Self>>>;
}

macro_rules! open {
    ($kind:ty, $default:expr, $opener:expr, $in_files:expr) => {
        impl Open for $kind {
            fn open(dir: &Path, options: &Options) -> Result<Arc<Engine<Self>>> {
                if let Some(engine) = open_files(dir, options, $in_files)? {
                    return Ok(engine);
                }
                open(dir, options, $default, $opener)
            }
            fn open_over(
                journal: Journal,
                replay: Option<Replay>,
                options: &Options,
            ) -> Result<Arc<Engine<Self>>> {
                open_over(journal, replay, options, $default, $opener)
            }
            fn create_unnamed(memory: Durable, options: &Options) -> Result<Arc<Engine<Self>>> {
                let entry = asked(options, $opener)?.map_or_else(|| find($default), Ok)?;
                opened(entry, None, Home::Unnamed(memory), options, $opener)
            }
        }
    };
}
open!(Bytes, DEFAULT, |entry| Some(entry.bytes), |entry| Some(entry.bytes_in_files));
open!(U64, DEFAULT, |entry| Some(entry.words), |entry| Some(entry.words_in_files));
open!(Fixed, DEFAULT_FIXED, |entry| entry.fixed, |_| None);

/// Opens or makes a store in files of its own. `None` if there is a store of another kind, or another one is to be made.
fn open_files<K: Tabled>(
    dir: &Path,
    options: &Options,
    opener: fn(&Entry) -> Option<in_files::Opener<K>>,
) -> Result<Option<Arc<Engine<K>>>> {
    let asked = options.engine.as_deref().map(find).transpose()?;
    let found = in_files::Identity::of_store(dir)?;
    let entry = match &found {
        Some(found) => asked.map_or_else(|| find(&found.engine), Ok)?,
        None => {
            let is_asked = |entry: &Entry| entry.files.is_some() && options.durability.is_some();
            match asked.filter(is_asked) {
                Some(entry) if !dir.join(FILE_NAME).exists() => entry,
                _ => return Ok(None),
            }
        }
    };
    let kind =
        found.as_ref().map(|found| found.kind.strip_suffix(::index::schema::TABLES).unwrap_or(&found.kind));
    match (entry.files, opener(&entry)) {
        (Some(capabilities), Some(opener))
            if kind.is_none_or(|kind| kind == K::NAME)
                && found.as_ref().is_none_or(|found| found.engine == entry.about.name) =>
        {
            let described = Described { about: entry.about, capabilities };
            open_in_files::open(described, opener, dir, options).map(Some)
        }
        _ => {
            let found = found.map_or_else(
                || format!("engine {}", entry.about.name),
                |found| format!("engine {} and keys and values of the kind \"{}\"", found.engine, found.kind),
            );
            let asked = format!("engine {} and \"{}\"", entry.about.name, K::NAME);
            let remedy = "leave the engine out, and open it with the store type of its kind";
            Err(pmem::Error::Mismatch { found, asked, remedy }.into())
        }
    }
}

fn open<K: Kind>(
    dir: &Path,
    options: &Options,
    default: &str,
    opener: fn(&Entry) -> Option<Opener<K>>,
) -> Result<Arc<Engine<K>>> {
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
        // Otherwise the store in the directory would seem to be empty.
        if dir.join(FILE_NAME).exists() {
            return Err(Error::Option(format!(
                "{} holds a durable store, and {} keeps nothing: leave the engine out, or name another directory",
                dir.display(),
                entry.about.name
            )));
        }
        if options.durability.is_some() {
            return Err(Error::Option(format!(
                "{} keeps nothing after the end of the process: leave the durability out (`--durability`), or choose another engine",
                entry.about.name
            )));
        }
        return opener(entry.described(), Home::Nowhere, options);
    }
    let store_dir = if options.read_only { StoreDir::look(dir) } else { StoreDir::take(dir, options) };
    let store_dir = store_dir.map_err(with_lasting_name)?;
    if store_dir.fresh {
        // `unfinished` shares the lock. So no other process can make the store before the files are removed.
        let unfinished = store_dir.again()?;
        let entry = asked.map_or_else(|| find(default), Ok);
        let made = entry.and_then(|entry| opened(entry, None, Home::New(store_dir), options, opener));
        return made.map_err(|error| unfinished.give_up(error));
    }
    let (memory, replay) = store_dir.memory(options)?;
    let found: Identity = pmem::region::describe(&memory, &store_dir.path)?.0;
    let entry = asked.map_or_else(|| find(&found.engine), Ok)?;
    opened(entry, Some(found), Home::Found(store_dir, memory, replay), options, opener)
}

fn open_over<K: Kind>(
    journal: Journal,
    replay: Option<Replay>,
    options: &Options,
    default: &str,
    opener: fn(&Entry) -> Option<Opener<K>>,
) -> Result<Arc<Engine<K>>> {
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

/// Opens the files of a store, and closes them cleanly. Returns its number of keys, or an estimate.
pub(crate) fn close_files(identity: &in_files::Identity, dir: &Path) -> Result<Count> {
    let entry = find(&identity.engine)?;
    match identity.kind == U64::NAME {
        true => open_in_files::close(identity, entry.words_in_files, entry.about, dir),
        false => open_in_files::close(identity, entry.bytes_in_files, entry.about, dir),
    }
}

/// Opens the copy of a region in a fresh directory and closes it cleanly. The open recovers the copy. Returns its number of keys.
pub(crate) fn close_copy(store_dir: &StoreDir) -> Result<u64> {
    struct Close;
    impl OnCopy for Close {
        fn run<K: Kind>(self, engine: &Engine<K>) -> Result<u64> {
            engine.close()?;
            engine.keys()
        }
    }
    let (memory, replay) = store_dir.memory_of_copy()?;
    on_copy(store_dir.again()?, memory, replay, Close)
}

/// Opens the store in `memory` and checks all of it. The open recovers the store in this memory. Returns its number of keys if it is sound.
///
/// # Errors
/// As opening a store. `Corrupt` if the check finds a problem.
pub(crate) fn sound_keys(store_dir: StoreDir, memory: Durable) -> Result<u64> {
    struct Check;
    impl OnCopy for Check {
        fn run<K: Kind>(self, engine: &Engine<K>) -> Result<u64> {
            let report = engine.check();
            if !report.problems.is_empty() {
                return Err(pmem::Error::Corrupt { what: "store", at: 0 }.into());
            }
            Ok(report.keys)
        }
    }
    on_copy(store_dir, memory, None, Check)
}

/// An action on a copy of any kind.
trait OnCopy {
    fn run<K: Kind>(self, engine: &Engine<K>) -> Result<u64>;
}

fn on_copy(store_dir: StoreDir, memory: Durable, replay: Option<Replay>, what: impl OnCopy) -> Result<u64> {
    fn run<K: Open>(opener: Opener<K>, of: Described, home: Home, what: impl OnCopy) -> Result<u64> {
        what.run(&*opener(of, home, &Options::default())?)
    }
    let (identity, _) = pmem::region::describe(&memory, &store_dir.path)?;
    let entry = find(&identity.engine)?;
    let home = Home::Copy(store_dir, memory, replay);
    match (entry.fixed, ::index::Fixed::payload_words(&identity.kind)) {
        _ if identity.kind == U64::NAME => run(entry.words, entry.described(), home, what),
        (Some(fixed), Some(_)) => run(fixed, entry.described(), home, what),
        _ => run(entry.bytes, entry.described(), home, what),
    }
}

/// The engine that `options` names. An error if it has no stores of this kind. `None` if `options` names none.
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
) -> Result<Arc<Engine<K>>> {
    match opener(&entry) {
        Some(opener) => opener(entry.described(), home, options),
        None => {
            let found = found.map_or_else(
                || format!("engine {}", entry.about.name),
                |found| format!("engine {} and keys and values of the kind \"{}\"", found.engine, found.kind),
            );
            let (asked, remedy) = (format!("\"{}\"", K::NAME), "open it with the store type of its kind");
            Err(pmem::Error::Mismatch { found, asked, remedy }.into())
        }
    }
}

/// The registry entry of the engine of this name.
///
/// # Errors
/// `NotCompiled` with the feature that compiles the engine; `UnknownEngine` with the known names.
pub fn find(name: &str) -> Result<Entry> {
    visit(name, MakeEntry).ok_or_else(|| match feature_of(name) {
        Some(feature) => Error::NotCompiled { name: name.into(), feature },
        None => Error::UnknownEngine { name: name.into(), known: names().collect::<Vec<_>>().join(", ") },
    })
}

impl From<pmem::Error> for Error {
    fn from(error: pmem::Error) -> Self {
        match error {
            pmem::Error::Unsupported { engine, what } => unsupported(engine, what),
            other => Self::Pmem(other),
        }
    }
}

/// The error of an engine that lacks a capability. It names the engines that have the capability.
fn unsupported(engine: &'static str, what: &'static str) -> Error {
    match what {
        pmem::error::SCANS => Error::Unordered { engine, ordered: names_with(|can| can.ordered) },
        pmem::error::BATCHES => Error::NoBatches { engine, batched: names_with(|can| can.atomic_batch) },
        pmem::error::SNAPSHOTS => Error::Unsupported(format!(
            "{engine} has no snapshots: take a store of an engine that has: {}",
            names_with(|can| can.snapshots)
        )),
        _ => Error::Pmem(pmem::Error::Unsupported { engine, what }),
    }
}

/// The error of an engine without versions.
pub(crate) fn no_past(engine: &str) -> Error {
    Error::Unsupported(format!(
        "{engine} keeps no versions: named versions and rollback need a store of an engine that does: {}",
        names_with(|can| can.versions)
    ))
}

/// Names of the engines with a capability.
fn names_with(what: fn(&Capabilities) -> bool) -> String {
    let can = |name: &&str| find(name).is_ok_and(|entry| what(&entry.capabilities));
    names().filter(can).collect::<Vec<_>>().join(", ")
}
