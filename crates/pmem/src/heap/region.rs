//! A region is one file: superblock, root line, intent ring, redo log, heap.
//!
//! ```text
//! 0      superblock copy A (256 bytes, crc32c in its last word)
//! 4096   superblock copy B
//! 8192   root line: word 0 address of the index's root, word 1 length of the region, word 2 address of the running batch's
//!        record, word 3 the garbage of a clear (see [`Garbage`]); each word is self-checking, but words 2 and 3 may also be
//!        zero, which means none
//! 8256   log line: word 0 the last truncated generation
//! 8320   intent ring: 128 words
//! 12288  log: 16 bytes times `log_records` (see `log`)
//! heap   chunks of `chunk_bytes`, each with its header (see `alloc`)
//! ```
//!
//! Invariants:
//! * R1: a superblock copy is changed only while the other one is valid, durable and the newest. Each copy has a block of 4 KiB
//!   that contains nothing else, so losing one whole block leaves the other copy.
//! * R2: the words of the root line and of the log line change while the store runs. They are self-checking: 48 bits of value,
//!   16 bits of hash.
//! * R3: the state in the superblock is durably `in use` before the first store of a session. It becomes `clean` only
//!   after everything else is durable.
//!
//! Commit point of a superblock change: the checksum word of the copy with the higher sequence number.

use std::path::Path;

use crate::error::{Error, Result};
use crate::file::REGION_MAGIC as MAGIC;
use crate::medium::buffer_pool::Access;
use crate::medium::native::Durability;
use crate::medium::traits::{Fence, LINE, Medium, WORD};
use crate::sync::atomics::unmodelled::Mutex;

/// Format version that this program writes and reads.
pub const FORMAT_VERSION: u64 = 5;
/// Most cache lines of a node.
const NODE_LINES_MAX: u64 = 64;

/// Offsets of the superblock copies.
pub const COPIES: [u64; 2] = [0, 4096];
/// Offset of the second copy before version 5.
const OLD_COPY: u64 = 1024;
const SUPER_WORDS: usize = 32;
/// Offset of the word with the index's root.
pub const ROOT_AT: u64 = 8192;
/// Offset of the word with the region's length.
pub const LENGTH_AT: u64 = ROOT_AT + WORD;
/// Offset of the word with the address of the running batch's record. A word of zeros also means none.
pub const BATCH_AT: u64 = ROOT_AT + 2 * WORD;
/// Offset of the word with the garbage of a clear ([`Garbage`]). A word of zeros also means none.
pub const GARBAGE_AT: u64 = ROOT_AT + 3 * WORD;
/// Offset of the word with the log's last truncated generation.
pub const GENERATION_AT: u64 = ROOT_AT + LINE;
/// Offset of the intent ring.
pub const INTENTS_AT: u64 = GENERATION_AT + LINE;
/// Words in the intent ring: the most blocks that one operation may allocate or free.
pub const INTENTS: usize = 128;
/// Offset of the redo log.
pub const LOG_AT: u64 = 12288;

const _: () = assert!(INTENTS_AT + INTENTS as u64 * WORD <= LOG_AT && ROOT_AT.is_multiple_of(64));

/// Sizes that are fixed when a region is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a heap chunk: a power of two from 4 KiB to 1 MiB.
    pub chunk_bytes: u64,
    /// Records of 16 bytes in the redo log: a multiple of 4 from 64 to 2,044.
    pub log_records: u64,
}

impl Default for Geometry {
    /// Chunks of 256 KiB hold the largest record head. 1,024 log records are enough for some seventy splits between two
    /// truncations.
    fn default() -> Self {
        Self { chunk_bytes: 256 << 10, log_records: 1024 }
    }
}

impl Geometry {
    /// Small sizes for tests: a few operations fill a chunk and a log generation.
    pub fn tiny() -> Self {
        Self { chunk_bytes: 4096, log_records: 128 }
    }

    /// Offset of the heap.
    pub fn heap_at(&self) -> u64 {
        (LOG_AT + self.log_records * 16).next_multiple_of(4096)
    }

    fn is_sane(&self) -> bool {
        self.chunk_bytes.is_power_of_two()
            && (4096..=1 << 20).contains(&self.chunk_bytes)
            && self.log_records.is_multiple_of(4)
            && (64..=2044).contains(&self.log_records)
    }
}

/// The engine and the data types of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Engine's name, at most 32 bytes.
    pub engine: String,
    /// Kind of keys and values, at most 16 bytes.
    pub kind: String,
    /// Cache lines of a node.
    pub node_lines: u64,
}

/// How to make a region.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    /// The fixed sizes.
    pub geometry: Geometry,
    /// Engine and data types.
    pub identity: Identity,
}

/// The state of a region at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// New.
    New,
    /// Closed cleanly, with this many keys.
    Clean {
        /// Keys at the close.
        keys: u64,
    },
    /// Not closed: recovery must check the operations in flight.
    InUse,
}

#[derive(Clone, Debug)]
struct Superblock {
    sequence: u64,
    clean: bool,
    /// The store ran with process durability, so another boot must not trust the content.
    fragile: bool,
    boot: [u64; 2],
    keys: u64,
    geometry: Geometry,
    identity: Identity,
}

/// An open region over a medium.
#[derive(Debug)]
pub struct Region<M> {
    medium: M,
    geometry: Geometry,
    identity: Identity,
    copies: Mutex<Copies>,
}

/// The content of the two superblock copies.
#[derive(Debug)]
struct Copies {
    current: Superblock,
    /// The copy with this content.
    newest: usize,
    /// The other copy has the same content. After a crash between two copies it is older, or torn.
    agree: bool,
}

impl<M: Medium> Region<M> {
    /// The same region with its heap accessed through `A`. Pages are as large as nodes.
    pub fn reached_by<A: Access<M>>(self) -> Region<A> {
        let page_bytes = self.identity.node_lines * LINE;
        let medium = A::over(self.medium, self.geometry.heap_at(), page_bytes);
        Region { medium, geometry: self.geometry, identity: self.identity, copies: self.copies }
    }

    /// Formats a fresh medium (all zeros, any length). Geometry and identity must be within the bounds that their fields state.
    ///
    /// # Errors
    /// The errors of [`Medium::grow`] and [`Medium::provide`], and `Io` if a sync fails.
    pub fn create(medium: M, options: &RegionOptions, durability: Durability) -> Result<Self> {
        assert!(options.geometry.is_sane(), "geometry out of bounds: {:?}", options.geometry);
        medium.grow(options.geometry.heap_at())?;
        medium.provide(0, medium.len())?;
        medium.copy(ROOT_AT, checked(0));
        medium.copy(LENGTH_AT, checked(medium.len() / WORD));
        medium.copy(GENERATION_AT, checked(0));
        // The words that a valid superblock refers to must be durable before it exists.
        medium.sync(ROOT_AT, INTENTS_AT - ROOT_AT)?;
        let superblock = Superblock {
            sequence: 1,
            clean: false,
            fragile: durability == Durability::Process,
            boot: boot_id(),
            keys: 0,
            geometry: options.geometry,
            identity: options.identity.clone(),
        };
        for at in COPIES {
            superblock.write(&medium, at);
        }
        medium.sync(0, options.geometry.heap_at())?;
        let (geometry, identity) = (options.geometry, options.identity.clone());
        let copies = Copies { current: superblock, newest: 0, agree: true };
        Ok(Self { medium, geometry, identity, copies: Mutex::new(copies) })
    }

    /// Reads the superblock of an existing region and returns its state. It stores nothing.
    ///
    /// # Errors
    /// `NoSpace` if the file has holes for which the disk has no space, `Io` if they cannot be filled otherwise. `Foreign`,
    /// `Version`, `Superblock`, `Truncated`, `Dirty`, or `Corrupt` if a word of the root line or the log line is damaged.
    pub fn open(medium: M, path: &Path) -> Result<(Self, Found)> {
        let copies = Copies::read(&medium, path)?;
        let superblock = &copies.current;
        let expected = read_checked(&medium, LENGTH_AT, "region length")? * WORD;
        if medium.len() < expected {
            return Err(Error::Truncated { path: path.to_owned(), found: medium.len(), expected });
        }
        if !superblock.clean && superblock.fragile && !is_same_boot(superblock.boot, boot_id()) {
            return Err(Error::Dirty);
        }
        read_checked(&medium, ROOT_AT, "root")?;
        read_checked(&medium, GENERATION_AT, "log generation")?;
        if medium.word(BATCH_AT) != 0 && read_checked(&medium, BATCH_AT, "batch")? != 0 && superblock.clean {
            return Err(Error::Corrupt { what: "batch of a store that was closed", at: BATCH_AT });
        }
        let found = if superblock.clean { Found::Clean { keys: superblock.keys } } else { Found::InUse };
        let (geometry, identity) = (superblock.geometry, superblock.identity.clone());
        let region = Self { medium, geometry, identity, copies: Mutex::new(copies) };
        region.fill_holes()?;
        Ok((region, found))
    }

    /// Allocates storage for the ranges without storage that may be stored to. These are holes outside of free chunks (a copy of the file
    /// may have some), and space that was reserved but not written. A chunk whose header is in a hole is free. The allocator provides
    /// storage for it when it takes the chunk.
    fn fill_holes(&self) -> Result<()> {
        let (heap_at, chunk_bytes) = (self.geometry.heap_at(), self.geometry.chunk_bytes);
        let start_of = |at: u64| heap_at + at.saturating_sub(heap_at) / chunk_bytes * chunk_bytes;
        let last_end = start_of(self.medium.len());
        for (from, to) in self.medium.holes() {
            // The chunk in which the hole begins, or the space before the heap.
            let first = start_of(from);
            let first_end = if from < heap_at { heap_at } else { first + chunk_bytes };
            if from < heap_at || (from != first && self.medium.word(first) != 0) {
                self.medium.provide(from, first_end.min(to) - from)?;
            }
            if to > last_end {
                self.medium.provide(from.max(last_end), to - from.max(last_end))?;
            }
        }
        Ok(())
    }

    /// A region for salvage: nothing is verified, and it must not be written.
    pub fn unchecked(medium: M, geometry: Geometry, identity: Identity) -> Self {
        let superblock = Superblock {
            sequence: 0,
            clean: false,
            fragile: true,
            boot: [0; 2],
            keys: 0,
            geometry,
            identity: identity.clone(),
        };
        let copies = Copies { current: superblock, newest: 0, agree: false };
        Self { medium, geometry, identity, copies: Mutex::new(copies) }
    }

    /// Marks the region durably in use, before the session's first store (R3).
    ///
    /// # Errors
    /// `Io` if the mark cannot be synced.
    pub fn mark_in_use(&self, durability: Durability) -> Result<()> {
        self.change_superblock(|superblock| {
            superblock.clean = false;
            superblock.fragile = durability == Durability::Process;
            superblock.boot = boot_id();
        })?;
        // After a crash the file may be longer than the recorded length, because a growth was kept and its length was not. The
        // new chunks will be used anyway.
        if unchecked(self.medium.word(LENGTH_AT)) != Some(self.medium.len() / WORD) {
            self.note_length();
        }
        Ok(())
    }

    /// Makes everything durable, then durably marks the region clean with its exact number of keys (R3).
    ///
    /// # Errors
    /// `Io` if the data or the mark cannot be synced. The mark may be durable anyway, so the caller must store nothing
    /// afterwards.
    pub fn mark_clean(&self, keys: u64) -> Result<()> {
        self.medium.sync(0, self.medium.len())?;
        self.change_superblock(|superblock| {
            superblock.clean = true;
            superblock.keys = keys;
        })
    }

    fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut copies = self.copies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = copies.current.clone();
        change(&mut next);
        if copies.agree && next.words() == copies.current.words() {
            return Ok(());
        }
        next.sequence += 1;
        copies.agree = false;
        // The older copy first (R1): the other may be the only valid one, or the only one that says in use.
        for copy in [1 - copies.newest, copies.newest] {
            next.write(&self.medium, COPIES[copy]);
            self.medium.sync(COPIES[copy], SUPER_WORDS as u64 * WORD)?;
            copies.newest = copy;
            copies.current = next.clone();
        }
        copies.agree = true;
        Ok(())
    }

    /// Grows the region to at least `bytes` bytes and records the new length durably.
    ///
    /// # Errors
    /// The errors of [`Medium::grow`]; nothing changes then.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.medium.grow(bytes)?;
        self.note_length();
        Ok(())
    }

    fn note_length(&self) {
        self.medium.copy(LENGTH_AT, checked(self.medium.len() / WORD));
        self.medium.flush(LENGTH_AT, WORD);
        self.medium.fence(Fence::Allocate);
    }

    /// The medium below.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The fixed sizes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The engine and the data types of the region.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The address of the index's root; 0 if there is none yet.
    ///
    /// # Errors
    /// `Corrupt` if the hash of the word does not match.
    pub fn root(&self) -> Result<u64> {
        Ok(read_checked(&self.medium, ROOT_AT, "root")? * WORD)
    }

    /// The address of the running batch's record; 0 if there is none.
    ///
    /// # Errors
    /// `Corrupt` if the hash of the word does not match.
    pub fn batch(&self) -> Result<u64> {
        match self.medium.word(BATCH_AT) {
            0 => Ok(0),
            _ => Ok(read_checked(&self.medium, BATCH_AT, "batch")? * WORD),
        }
    }

    /// The word to store at [`ROOT_AT`] for a root, or at [`BATCH_AT`] for a batch, whose address is `at`.
    pub fn root_word(at: u64) -> u64 {
        checked(at / WORD)
    }
}

/// The garbage of a clear: a structure that nothing references any more and whose blocks are freed in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Address of its first node: a multiple of [`LINE`].
    pub node: u64,
    /// Number of entries of the next leaf to free whose blocks are already free: its first ones, in the order of their places.
    pub done: u64,
}

impl Garbage {
    /// Bits of [`Garbage::done`] in the word.
    const DONE_BITS: u32 = 12;

    /// The word to store for this garbage, or for none.
    pub fn word(garbage: Option<Self>) -> u64 {
        checked(garbage.map_or(0, |garbage| (garbage.node / LINE) << Self::DONE_BITS | garbage.done))
    }

    /// Reads the word at `at`.
    ///
    /// # Errors
    /// `Corrupt` if the hash of the word does not match.
    pub fn read<M: Medium>(medium: &M, at: u64) -> Result<Option<Self>> {
        let word = match medium.word(at) {
            0 => 0,
            _ => read_checked(medium, at, "garbage of a clear")?,
        };
        let (node, done) = ((word >> Self::DONE_BITS) * LINE, word & ((1 << Self::DONE_BITS) - 1));
        Ok((node != 0).then_some(Self { node, done }))
    }
}

/// Reads the identity and the sizes of a region without opening it.
///
/// # Errors
/// `Foreign`, `Version`, `Superblock`.
pub fn describe<M: Medium>(medium: &M, path: &Path) -> Result<(Identity, Geometry)> {
    let current = Copies::read(medium, path)?.current;
    Ok((current.identity, current.geometry))
}

/// The length in bytes that a region recorded; `None` if the word is damaged.
pub fn noted_bytes<M: Medium>(medium: &M) -> Option<u64> {
    let noted = (medium.len() >= LENGTH_AT + WORD).then(|| unchecked(medium.word(LENGTH_AT)))??;
    Some(noted.saturating_mul(WORD))
}

impl Superblock {
    fn words(&self) -> [u64; SUPER_WORDS] {
        let mut words = [0; SUPER_WORDS];
        words[0] = MAGIC;
        words[1] = FORMAT_VERSION;
        words[2] = self.sequence;
        words[3] = u64::from(self.clean) | u64::from(self.fragile) << 1;
        words[4] = self.boot[0];
        words[5] = self.boot[1];
        words[6] = self.keys;
        words[7] = self.geometry.chunk_bytes;
        words[8] = self.geometry.log_records;
        words[9] = self.identity.node_lines;
        put_text(&mut words[10..14], &self.identity.engine);
        put_text(&mut words[14..16], &self.identity.kind);
        words[SUPER_WORDS - 1] = checksum(&words);
        words
    }

    /// Writes one copy. The caller syncs it before it writes the other (R1).
    fn write<M: Medium>(&self, medium: &M, at: u64) {
        for (i, word) in self.words().into_iter().enumerate() {
            medium.copy(at + i as u64 * WORD, word);
        }
    }
}

impl Copies {
    fn read<M: Medium>(medium: &M, path: &Path) -> Result<Self> {
        let copies = COPIES.map(|at| copy_at(medium, at));
        let newest = (0..2).filter(|copy| is_whole(&copies[*copy])).max_by_key(|copy| copies[*copy][2]);
        let Some((newest, words)) = newest.map(|newest| (newest, &copies[newest])) else {
            let old = copy_at(medium, OLD_COPY);
            if is_whole(&old) && old[1] < FORMAT_VERSION {
                return Err(Error::Version { found: old[1], known: FORMAT_VERSION });
            }
            return Err(if copies.iter().any(|words| words[0] == MAGIC) {
                Error::Superblock { path: path.to_owned() }
            } else {
                Error::Foreign { path: path.to_owned(), why: "it does not begin with a superblock" }
            });
        };
        if words[1] != FORMAT_VERSION {
            return Err(Error::Version { found: words[1], known: FORMAT_VERSION });
        }
        let geometry = Geometry { chunk_bytes: words[7], log_records: words[8] };
        let identity = (get_text(&words[10..14]), get_text(&words[14..16]));
        let (Some(engine), Some(kind), true, 2..=NODE_LINES_MAX) =
            (identity.0, identity.1, geometry.is_sane(), words[9])
        else {
            return Err(Error::Superblock { path: path.to_owned() });
        };
        let current = Superblock {
            sequence: words[2],
            clean: words[3] & 1 != 0,
            fragile: words[3] & 2 != 0,
            boot: [words[4], words[5]],
            keys: words[6],
            geometry,
            identity: Identity { engine, kind, node_lines: words[9] },
        };
        Ok(Self { current, newest, agree: copies[0] == copies[1] })
    }
}

fn copy_at<M: Medium>(medium: &M, at: u64) -> [u64; SUPER_WORDS] {
    std::array::from_fn(|word| medium.word(at + word as u64 * WORD))
}

fn is_whole(words: &[u64; SUPER_WORDS]) -> bool {
    words[0] == MAGIC && words[SUPER_WORDS - 1] == checksum(words)
}

/// crc32c of all words except the last. The upper half is constant, so every bit of the word is checked.
fn checksum(words: &[u64; SUPER_WORDS]) -> u64 {
    let mut crc = 0;
    for word in &words[..SUPER_WORDS - 1] {
        crc = crc32c::crc32c_append(crc, &word.to_le_bytes());
    }
    u64::from(crc) | 0xB215_71C0 << 32
}

fn put_text(words: &mut [u64], text: &str) {
    assert!(text.len() <= words.len() * 8 && !text.is_empty(), "name too long for the superblock: {text}");
    for (i, byte) in text.bytes().enumerate() {
        words[i / 8] |= u64::from(byte) << (i % 8 * 8);
    }
}

fn get_text(words: &[u64]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

/// A self-checking word: 48 bits of value below 16 bits of hash (R2).
#[inline]
pub fn checked(value: u64) -> u64 {
    assert!(value < 1 << 48);
    value | hash16(value) << 48
}

/// The value of a self-checking word; `None` if the hash does not match.
#[inline]
pub fn unchecked(word: u64) -> Option<u64> {
    let value = word & ((1 << 48) - 1);
    (word >> 48 == hash16(value)).then_some(value)
}

/// Multiplicative hash of 48 bits to 16; never 0, so the hash of a word of zeros never matches.
#[inline]
fn hash16(value: u64) -> u64 {
    ((value ^ 0x5851_F42D_4C95).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) | 1
}

fn read_checked<M: Medium>(medium: &M, at: u64, what: &'static str) -> Result<u64> {
    unchecked(medium.word(at)).ok_or(Error::Corrupt { what, at })
}

/// True if both are known and equal. An unknown boot may be another one.
fn is_same_boot(noted: [u64; 2], now: [u64; 2]) -> bool {
    noted == now && now != [0; 2]
}

/// The machine's boot id; zeros if the system does not report it.
fn boot_id() -> [u64; 2] {
    static BOOT: std::sync::OnceLock<[u64; 2]> = std::sync::OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let id = u128::from_str_radix(&hex, 16).unwrap_or(0);
        [(id >> 64) as u64, id as u64]
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format_page::assert_row;
    use crate::medium::counter::Counter;
    use crate::medium::observed::{Memory, Observed};

    #[test]
    fn the_format_page_has_the_offsets_of_the_region() {
        let [first, second] = COPIES;
        assert_row(&format!(
            "{first}, {second} | superblock copies, {} bytes each | `COPIES`",
            SUPER_WORDS as u64 * WORD
        ));
        let places = [
            (ROOT_AT, "ROOT_AT"),
            (LENGTH_AT, "LENGTH_AT"),
            (BATCH_AT, "BATCH_AT"),
            (GARBAGE_AT, "GARBAGE_AT"),
            (GENERATION_AT, "GENERATION_AT"),
            (LOG_AT, "LOG_AT"),
        ];
        places.iter().for_each(|(at, name)| assert_row(&format!("{at} | … | `{name}`")));
        assert_row(&format!("{INTENTS_AT} | intent ring, {INTENTS} words | `INTENTS_AT`, `INTENTS`"));
        let records = |log_records| Geometry { log_records, ..Geometry::default() }.heap_at();
        assert_row(&format!("{LOG_AT} + 16 n, rounded up to 4,096 | … | `Geometry::heap_at`"));
        assert_eq!([records(4), records(512)], [4, 512].map(|n| (LOG_AT + 16 * n).next_multiple_of(4096)));
    }

    /// Once, both copies were in the first block of 4 KiB.
    #[test]
    fn a_region_opens_without_one_of_its_first_two_blocks() {
        for lost in COPIES {
            let medium = Observed::new(Memory::new(1 << 20, 0), Arc::new(Counter::default()));
            let identity = Identity { engine: "engine".into(), kind: "kind".into(), node_lines: 4 };
            let options = RegionOptions { geometry: Geometry::tiny(), identity: identity.clone() };
            let region = Region::create(medium.clone(), &options, Durability::Process).unwrap();
            region.mark_clean(7).unwrap();
            (lost..lost + 4096).step_by(8).for_each(|at| medium.copy(at, 0));
            let (region, found) = Region::open(medium.clone(), Path::new("region")).unwrap();
            assert_eq!((found, region.identity()), (Found::Clean { keys: 7 }, &identity));
            // The next change writes the lost copy again.
            region.mark_in_use(Durability::Process).unwrap();
            let kept = COPIES.into_iter().find(|copy| *copy != lost).unwrap();
            (kept..kept + 4096).step_by(8).for_each(|at| medium.copy(at, 0));
            assert_eq!(Region::open(medium, Path::new("region")).unwrap().1, Found::InUse);
        }
    }

    #[test]
    fn a_region_of_version_4_is_refused_by_whichever_copy_is_whole() {
        for copy in [0, OLD_COPY] {
            let medium = Observed::new(Memory::new(1 << 20, 1 << 16), Arc::new(Counter::default()));
            let mut words = [0; SUPER_WORDS];
            (words[0], words[1]) = (MAGIC, 4);
            words[SUPER_WORDS - 1] = checksum(&words);
            (0..).zip(words).for_each(|(word, value)| medium.copy(copy + word * WORD, value));
            let error = Region::open(medium, Path::new("region")).err().unwrap();
            assert!(matches!(error, Error::Version { found: 4, known: 5 }), "{error}");
        }
    }

    #[test]
    fn a_boot_that_is_not_known_is_another_one() {
        assert!(is_same_boot([1, 2], [1, 2]));
        assert!(!is_same_boot([1, 2], [1, 3]));
        assert!(
            !is_same_boot([0, 0], [1, 2]) && !is_same_boot([1, 2], [0, 0]) && !is_same_boot([0, 0], [0, 0])
        );
    }
}
