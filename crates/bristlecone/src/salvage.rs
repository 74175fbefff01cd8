//! Salvage: copies every key and value of a damaged store that is intact into a new store.
//!
//! There are three sources, from the most to the least reliable:
//! 1. Entries of all allocated leaves. Salvage does not descend through inner nodes, so a damaged inner node hides nothing.
//! 2. Allocated records that no intact leaf references.
//! 3. In chunks (equal parts of the file, each with a header) whose header is damaged: all sequences of bytes that have the tag and the
//!    checksum of a record.
//!
//! Salvage takes a key from the most reliable source that has it. Source 3 may return deleted keys, so its keys are counted separately. A
//! store with integer keys has no records (its keys and values are in the leaves), so it has only source 1. Source 1 may return keys that a
//! clear of the store removed, if their leaves were not freed yet.
//!
//! Invariant: the damaged store is only read. Its file may be read-only.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, Hash, RandomState};
use std::path::Path;

use ::index::engine::{Salvaged, TableOps};
use ::index::kind::{Bytes, Kind as _, U64};
use ::index::{Schema, WriteOptions};
use pmem::alloc::{self, Class, Kind};
use pmem::region::{Geometry, Identity};
use pmem::{Durability, Medium, Native, Region, record};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::registry;
use crate::store::{Store, StoreFixed, StoreU64};
use crate::store_dir::{FILE_NAME, JOURNAL_NAME, StoreDir, has_parts, io, missing};

/// Writes without sync. The close of the new store makes all of them durable.
pub(crate) const UNSYNCED: WriteOptions = WriteOptions { sync: false };

/// The result of a salvage.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SalvageReport {
    /// Keys taken from leaves.
    pub from_leaves: u64,
    /// Keys taken from records that no intact leaf references.
    pub from_records: u64,
    /// Keys taken from chunks with a damaged header. They may have been deleted before.
    pub from_damaged_chunks: u64,
    /// Leaves of a store in files of which a part could not be read.
    pub damaged_leaves: u64,
    /// Leaf entries whose record is damaged.
    pub damaged_records: u64,
    /// Number of records that were left out because the new store refused them as too large: a write of them exceeds the largest write
    /// group, or a key or value exceeds a limit of the store. Records with a key or value longer than any store takes are not counted.
    pub too_long: u64,
    /// True if the superblock could not be read. Then default sizes were assumed. In a store in files: the checkpoint; then deleted keys may
    /// come back.
    pub superblock_lost: bool,
    /// True if the journal (in a store in files: the log) could not be read, or a group in it is damaged. Then the latest writes may be
    /// missing.
    pub journal_lost: bool,
    /// Bytes missing at the end of the store's file. If the store has a journal, the parts that its write groups contain were restored; the
    /// rest is zero.
    pub missing_bytes: u64,
    /// True if nothing is missing: the store is sound after the replay of its journal, and every key was copied.
    pub complete: bool,
    /// "bytes", "u64", or "u64, N bytes" if all values have N bytes. "bytes, tables" if the store has tables.
    pub kind: String,
}

impl SalvageReport {
    /// Number of keys in the new store.
    pub fn keys(&self) -> u64 {
        self.from_leaves + self.from_records + self.from_damaged_chunks
    }
}

/// Copies every intact record of the store in `dir` into a new store in `new_dir`. `progress` gets the finished share, 0 to 1. Takes time
/// linear in the size of the region.
///
/// # Errors
/// `Option` if `new_dir` has a store; `Missing` if `dir` has none; `NotCompiled` or `UnknownEngine` if this program does not have the
/// store's engine; `NotMade` if the file system has no space for the new store; `Pmem` if the store is in use, or files cannot be read or
/// written.
pub fn salvage(dir: &Path, new_dir: &Path, progress: &dyn Fn(f64)) -> Result<SalvageReport> {
    require_no_store(new_dir)?;
    #[cfg(feature = "bwtree")]
    match crate::in_files::Identity::of_store(dir) {
        Ok(Some(identity)) => return crate::salvage_files::salvage(dir, new_dir, &identity, progress),
        Ok(None) | Err(Error::Pmem(pmem::Error::Foreign { .. })) if has_parts(dir).is_some() => {
            return crate::salvage_files::salvage_without_identity(dir, new_dir, progress);
        }
        Ok(None) => {}
        Err(error) => return Err(error),
    }
    let mut report = copy_intact(dir, new_dir, progress)?;
    // The check comes after the copy. If a damaged store makes the check fail, the copied records are already durable.
    let nothing_lost = !report.superblock_lost && !report.journal_lost;
    report.complete = nothing_lost && keys_if_sound(dir).is_ok_and(|keys| keys == report.keys());
    Ok(report)
}

/// Refuses a directory that has a store.
///
/// # Errors
/// `Option`.
fn require_no_store(new_dir: &Path) -> Result<()> {
    if new_dir.join(FILE_NAME).exists() {
        return Err(Error::Option(format!(
            "{} already holds a store: name a directory that has no store yet",
            new_dir.display()
        )));
    }
    Ok(())
}

/// Number of keys of the store in `dir` with its journal replayed in memory. An error if it is not sound.
fn keys_if_sound(dir: &Path) -> Result<u64> {
    let store_dir = StoreDir::look(dir)?;
    let file = pmem::system::duplicate(&store_dir.file, &store_dir.path)
        .map_err(|source| io("cannot open", &store_dir.path, source))?;
    let memory = match store_dir.promise.journaled {
        true => pmem::journal::look(file, &store_dir.path, &dir.join(JOURNAL_NAME))?.image,
        false => Native::map_aside(file, &store_dir.path, 0, 0)?,
    };
    registry::sound_keys(store_dir, memory.into())
}

fn copy_intact(dir: &Path, new_dir: &Path, progress: &dyn Fn(f64)) -> Result<SalvageReport> {
    let path = dir.join(FILE_NAME);
    let file = match pmem::system::open(File::options().read(true), &path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(missing(dir));
        }
        Err(source) => return Err(io("cannot open", &path, source)),
    };
    pmem::file::lock_for_reading(&file, &path)?;
    let journal_path = dir.join(JOURNAL_NAME);
    let journaled = pmem::journal::is_journaled(&file, &path, &journal_path)?;
    // The new journal is at least as large as the old one and as the default, so it holds every value that the old one held. If the new
    // store still refuses a record as too large, `too_long` counts the record.
    let journal_bytes = pmem::journal::capacity_of(&journal_path).filter(|_| journaled);
    let journal_bytes = journal_bytes.map(|bytes| bytes.max(pmem::journal::CAPACITY));
    let durability = (!journaled).then_some(Durability::Process);
    let (medium, journal_lost, missing_bytes) = match journaled {
        true => {
            let left = pmem::journal::look(file, &path, &journal_path)?;
            (left.image, !left.journal_is_whole, left.missing_bytes)
        }
        false => (Native::map_read_only(file, &path)?, false, 0),
    };
    let (identity, geometry, superblock_lost) = match pmem::region::describe(&medium, &path) {
        Ok((identity, geometry)) => (identity, geometry, false),
        Err(_) => (guess(&medium), Geometry::default(), true),
    };
    // Without a journal, no group records the length of the region. The superblock does.
    let noted_bytes = pmem::region::noted_bytes(&medium).unwrap_or(0);
    let missing_bytes = noted_bytes.saturating_sub(medium.len()).max(missing_bytes);
    let region = Region::unchecked(medium, geometry, identity.clone());
    let tables = match superblock_lost {
        true => identity.kind == Bytes::NAME && has_tables(&region),
        false => identity.kind.ends_with(::index::schema::TABLES),
    };
    let options = Options::default()
        .engine(&*identity.engine)
        .journal_bytes(journal_bytes)
        .durability(durability)
        .tables(tables);
    let kind = identity.kind.clone();
    let report =
        SalvageReport { superblock_lost, journal_lost, missing_bytes, kind, ..SalvageReport::default() };
    let engine = registry::find(&identity.engine)?;
    let has_versions = engine.capabilities.versions;
    let mut salvager = Salvager {
        region: &region,
        has_versions,
        newest: HashMap::new(),
        hashers: Default::default(),
        report,
        progress,
    };
    if identity.kind == U64::NAME {
        let store = StoreU64::open(new_dir, options)?.with(UNSYNCED);
        salvager.leaves(engine.leaf_of_words, |(key, value)| store.put_if_absent(&key, &value))?;
        store.close()?;
        return Ok(salvager.report);
    }
    if let Some(words) = ::index::Fixed::payload_words(&identity.kind) {
        let options = options.value_bytes(words as u64 * pmem::WORD);
        let store = StoreFixed::open(new_dir, options)?.with(UNSYNCED);
        salvager.leaves(engine.leaf_of_fixed, |(key, value)| store.put_if_absent(&key, &value))?;
        store.close()?;
        return Ok(salvager.report);
    }
    let store = Store::open(new_dir, options)?.with(UNSYNCED);
    let put = |key: &[u8], value: &[u8]| match store.has_tables() {
        true => Ok(::index::tables::salvage(&**store.engine().stored(), key, value)?),
        false => store.put_if_absent(key, value),
    };
    salvager.leaves(engine.leaf_of_bytes, |(key, value)| put(&key, &value))?;
    salvager.records(put)?;
    store.index().tables().map_or(Ok(()), TableOps::adopt)?;
    store.close()?;
    Ok(salvager.report)
}

/// The most probable identity of a store without a superblock: the first engine of the registry whose default leaf size is that of this
/// store's leaves. Chunks of records indicate byte strings.
fn guess(medium: &Native) -> Identity {
    let classes = || alloc::classes(medium, Geometry::default()).filter_map(|class| class.ok().flatten());
    let leaves = classes().find(|class| class.kind == Kind::Leaf);
    let lines = leaves.map(|class| class.block_bytes / pmem::LINE);
    let usual = lines.and_then(|lines| registry::engines().find(|about| about.default_lines == lines));
    let has_records = classes().any(|class| class.kind == Kind::Record);
    let kind = if leaves.is_some() && !has_records { U64::NAME } else { Bytes::NAME };
    Identity {
        engine: usual.map_or(registry::DEFAULT, |about| about.name).into(),
        kind: kind.into(),
        node_lines: lines.or(usual.map(|about| about.default_lines)).unwrap_or(1),
    }
}

/// Maximum number of records that [`has_tables`] reads.
const SAMPLE: usize = 1000;

/// True if a store without a superblock probably has tables: its first intact records all have the form of pairs of tables. Without tables,
/// it is unlikely that all of these keys and values begin and end in this way.
fn has_tables(region: &Region<Native>) -> bool {
    let (mut key, mut value, mut met) = (Vec::new(), Vec::new(), 0);
    for (chunk, class) in alloc::chunks(region) {
        let Some(class) = class.ok().flatten().filter(|class| class.kind == Kind::Record) else { continue };
        for block in alloc::blocks_in(region, chunk, class) {
            if !record::read(region.medium(), block, Some(&mut key), &mut value) {
                continue;
            }
            if !::index::tables::is_pair(&key, &value) {
                return false;
            }
            met += 1;
            if met == SAMPLE {
                return true;
            }
        }
    }
    met > 0
}

struct Salvager<'a> {
    region: &'a Region<Native>,
    has_versions: bool,
    /// The latest version of each key in any leaf, by two hashes of the key. Together they have 128 random bits, so
    /// in practice no two keys share them. Empty for engines without versions.
    newest: HashMap<(u64, u64), u64>,
    hashers: (RandomState, RandomState),
    report: SalvageReport,
    progress: &'a dyn Fn(f64),
}

impl Salvager<'_> {
    fn hashes(&self, key: &impl Hash) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }

    /// 1 if the pair was stored. 0 if the key was already present, or no store can contain the pair. Salvage finds byte strings twice:
    /// through a leaf, and among the records. `is_last` is true for the second time only, so that a pair that is too large is counted once.
    fn stored(&mut self, outcome: Result<bool>, is_last: bool) -> Result<u64> {
        match outcome {
            Ok(new) => Ok(new.into()),
            Err(Error::KeyLength { .. } | Error::ValueLength { .. }) => Ok(0),
            Err(Error::Pmem(pmem::Error::TooLarge { .. } | pmem::Error::Length { .. })) => {
                self.report.too_long += u64::from(is_last);
                Ok(0)
            }
            Err(other) => Err(other),
        }
    }

    /// Copies every entry of every allocated leaf. For an engine with versions, only the latest version of each key, if it is not removed.
    fn leaves<K: ::index::Kind<KeyBuf: Hash>>(
        &mut self,
        read: fn(&Region<Native>, u64) -> Vec<Salvaged<K>>,
        mut put: impl FnMut((K::KeyBuf, K::ValueBuf)) -> Result<bool>,
    ) -> Result<()> {
        if self.has_versions {
            self.each_leaf(|this, leaf| {
                for Salvaged { pair, start, .. } in read(this.region, leaf) {
                    let Some((key, _)) = pair else { continue };
                    let hashes = this.hashes(&key);
                    let newest = this.newest.entry(hashes).or_default();
                    *newest = start.max(*newest);
                }
                Ok(())
            })?;
        }
        self.each_leaf(|this, leaf| {
            for met in read(this.region, leaf) {
                let Some(pair) = met.pair else {
                    this.report.damaged_records += 1;
                    continue;
                };
                if !this.has_versions
                    || !met.ended && this.newest.get(&this.hashes(&pair.0)) == Some(&met.start)
                {
                    // The records of an engine with versions are not copied a second time.
                    this.report.from_leaves += this.stored(put(pair), this.has_versions)?;
                }
            }
            Ok(())
        })
    }

    fn each_leaf(&mut self, mut visit: impl FnMut(&mut Self, u64) -> Result<()>) -> Result<()> {
        let bytes = self.region.identity().node_lines * pmem::LINE;
        self.each_block(|this, class, block| {
            if class.kind != Kind::Leaf || class.block_bytes != bytes {
                return Ok(());
            }
            visit(this, block)
        })
    }

    /// Copies records that no leaf references: allocated ones first, then those in chunks with damaged headers.
    fn records(&mut self, mut put: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<()> {
        let medium = self.region.medium();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.each_block(|this, class, block| {
            if class.kind == Kind::Record
                && record::read(medium, block, Some(&mut key), &mut value)
                && !this.newest.contains_key(&this.hashes(&key))
            {
                this.report.from_records += this.stored(put(&key, &value), true)?;
            }
            Ok(())
        })?;
        for (chunk, class) in alloc::chunks(self.region) {
            if class.is_ok() {
                continue;
            }
            for block in (chunk..chunk + self.region.geometry().chunk_bytes).step_by(16) {
                if record::read(medium, block, Some(&mut key), &mut value) && !key.is_empty() {
                    self.report.from_damaged_chunks += self.stored(put(&key, &value), true)?;
                }
            }
        }
        Ok(())
    }

    fn each_block(&mut self, mut visit: impl FnMut(&mut Self, Class, u64) -> Result<()>) -> Result<()> {
        let region = self.region;
        let len = region.medium().len().max(1) as f64;
        for (chunk, class) in alloc::chunks(region) {
            (self.progress)(chunk as f64 / len);
            let Ok(Some(class)) = class else { continue };
            for block in alloc::blocks_in(region, chunk, class) {
                visit(self, class, block)?;
            }
        }
        Ok(())
    }
}
