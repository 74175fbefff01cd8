//! Kept versions: retained versions, and named versions, which survive a restart.
//!
//! The list of named versions is a record of the kind that batches use. A word of the meta block references it. A change of the list writes
//! a new record. The publish of the word is the commit point, as with a root.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | payload | the new record; some of the allocation bits of both records | the word decides: the record that it references is the list, and the block of the other record is freed |
//! | commit | the word | nothing to do |
//!
//! Invariants:
//! * K1: a mark ([`Mark`], an object that keeps one version) protects each version in the list from garbage collection.
//!   The mark exists before the word is published. After an open, it exists before the first collection.
//! * K2: a rollback puts its versions into a dead interval ([`crate::meta`]). A named version among them is removed from the list of named
//!   versions before the dead interval is removed.

use std::sync::PoisonError;

use index::{Life, WriteOptions};
use pmem::alloc::Kind;
use pmem::sync::{MutexGuard, Ordering};
use pmem::{Error, Fence, Medium, Result, WORD, record};

use crate::pins::{Kept, Mark};
use crate::structure::Versioned;
use crate::structure::{Structure, WriterOf};

/// Maximum length of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum number of named versions.
pub const NAMES_MAX: usize = 1000;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Gives the newest version a name. It can be found by this name also after a restart. False if the name exists. Durable on return.
    ///
    /// # Errors
    /// `TooLarge` for an empty name, a name beyond [`NAME_BYTES_MAX`] bytes, or more than [`NAMES_MAX`] names; otherwise as
    /// [`Versioned::put`].
    pub fn keep(&self, name: &str) -> Result<bool> {
        let bytes = name.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            return Err(Error::TooLarge {
                of: "bytes of a name",
                asked: bytes as u64,
                limit: NAME_BYTES_MAX as u64,
            });
        }
        let list_bytes = (NAMES_MAX * (NAME_BYTES_MAX + 17)) as u64;
        let mut writer =
            self.enter_for(|writer| Ok(X::lines_of(self, writer, &[])? + self.lines_besides(1, list_bytes)))?;
        let mut kept = self.kept();
        if kept.iter().any(|other| other.name == name) {
            return Ok(false);
        }
        if kept.len() == NAMES_MAX {
            return Err(Error::TooLarge {
                of: "names",
                asked: NAMES_MAX as u64 + 1,
                limit: NAMES_MAX as u64,
            });
        }
        let mark = Mark::new(&self.pins, || (writer.state.current, Some(writer.state.keys)));
        let mut list = kept.clone();
        list.push(Kept { name: name.into(), mark });
        self.write_kept(&mut writer, &list)?;
        *kept = list;
        drop(kept);
        self.acknowledge(writer, WriteOptions::default())?;
        Ok(true)
    }

    /// Removes a name. False if it does not exist. Durable on return.
    ///
    /// # Errors
    /// As [`Versioned::put`].
    pub fn forget(&self, name: &str) -> Result<bool> {
        self.forget_all(|kept| kept.name == name)
    }

    /// Removes all names that `which` selects. False if there are none.
    fn forget_all(&self, which: impl Fn(&Kept) -> bool) -> Result<bool> {
        let mut writer = self.enter()?;
        let forgot = self.forget_locked(&mut writer, which)?;
        self.acknowledge(writer, WriteOptions::default())?;
        Ok(forgot)
    }

    fn forget_locked(&self, writer: &mut WriterOf<X>, which: impl Fn(&Kept) -> bool) -> Result<bool> {
        let mut kept = self.kept();
        let list: Vec<Kept> = kept.iter().filter(|kept| !which(kept)).cloned().collect();
        let forgot = list.len() < kept.len();
        if forgot {
            self.write_kept(writer, &list)?;
            *kept = list;
        }
        Ok(forgot)
    }

    /// Removes the names of rolled-back versions (K2).
    pub(crate) fn forget_dead(&self, writer: &mut WriterOf<X>) -> Result<()> {
        let dead = writer.dead.clone();
        let is_dead = |version| dead.intervals().iter().any(|interval| interval.holds(version));
        self.forget_locked(writer, |kept| is_dead(kept.mark.version())).map(drop)
    }

    /// The named versions.
    pub fn kept_versions(&self) -> Vec<Kept> {
        self.kept().clone()
    }

    /// The version with this name.
    pub fn kept_version(&self, name: &str) -> Option<Mark> {
        self.kept().iter().find(|kept| kept.name == name).map(|kept| kept.mark.clone())
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the list durable.
    fn write_kept(&self, writer: &mut WriterOf<X>, list: &[Kept]) -> Result<()> {
        let old = self.meta.kept(self.region.medium());
        let new = match list {
            [] => Ok(0),
            list => record::write(
                &self.region,
                &mut writer.allocator,
                &mut writer.log,
                Kind::Batch,
                &[],
                &encode(list),
            ),
        };
        let given = new.and_then(|new| {
            if old != 0 {
                record::give(&self.region, &mut writer.allocator, old)?;
            }
            Ok(new)
        });
        let new = match given {
            Ok(new) => new,
            Err(error) => {
                writer.allocator.abort(&self.region, &mut writer.log);
                return Err(error);
            }
        };
        let medium = self.region.medium();
        medium.fence(Fence::Payload);
        writer.allocator.flip(&self.region);
        self.meta.publish_kept(medium, self.persist, new);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        Ok(())
    }

    /// Reads the list (K1). No other thread uses the structure yet.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub(crate) fn read_kept(&self, writer: &mut WriterOf<X>) -> Result<()> {
        let at = self.meta.kept(self.region.medium());
        if at == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let corrupt = Error::Corrupt { what: "list of named versions", at };
        if !record::read(self.region.medium(), at, None, &mut bytes) {
            return Err(corrupt);
        }
        let list = decode(&bytes).ok_or(corrupt)?;
        let current = writer.state.current;
        let mark = |(name, version, keys): (String, u64, u64)| {
            (version <= current).then(|| Kept { name, mark: Mark::new(&self.pins, || (version, Some(keys))) })
        };
        *self.kept() = list.into_iter().filter_map(mark).collect();
        self.forget_dead(writer)
    }

    /// Keeps the `count` versions before the newest one, as if there were readers at them. (The newest version is always kept.)
    pub fn retain_versions(&self, count: u64) {
        self.pins.retain_versions(count);
    }

    /// Keeps the versions from `version` on, as if there were readers at them. `None` ends this.
    pub fn retain_since(&self, version: Option<u64>) {
        self.pins.retain_since(version);
    }

    /// The horizon: everything that is visible at this version or a later one is kept, except for rolled-back versions.
    pub fn oldest_version(&self) -> u64 {
        self.pins.horizon(&self.visible)
    }

    /// The oldest version that can be read without a name.
    pub fn oldest_retained(&self) -> u64 {
        self.pins.collected()
    }

    /// Keeps a version for reading. `None` if it does not exist, was rolled back or may have been collected in part.
    pub fn mark_at(&self, version: u64) -> Option<Mark> {
        if version == 0 || version > self.visible.load(Ordering::SeqCst) {
            return None;
        }
        let mark = Mark::of_retained(&self.pins, version)?;
        (!self.is_taken_back(version)).then_some(mark)
    }

    /// True if the version was rolled back or never committed.
    pub(crate) fn is_taken_back(&self, version: u64) -> bool {
        self.dead.get().intervals().iter().any(|interval| interval.holds(version))
    }
}

/// Encodes the list: version, keys, bytes of the name, and name of each entry.
fn encode(list: &[Kept]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Kept { name, mark } in list {
        bytes.extend_from_slice(&mark.version().to_le_bytes());
        bytes.extend_from_slice(&mark.keys().unwrap_or(0).to_le_bytes());
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Vec<(String, u64, u64)>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let word =
            |index: usize| Some(u64::from_le_bytes(*bytes.get(index * WORD as usize..)?.first_chunk()?));
        let (version, keys, length) = (word(0)?, word(1)?, *bytes.get(16)? as usize);
        list.push((String::from_utf8(bytes.get(17..17 + length)?.to_vec()).ok()?, version, keys));
        bytes = &bytes[17 + length..];
    }
    Some(list)
}
