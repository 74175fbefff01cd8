//! Fuzz targets for the files of a log-structured store: segments, checkpoint, commit log.
//!
//! The first byte of the input selects the store (bits 0 to 2), and its memory (bit 3: the budget has room for all pages, so no thread
//! waits for memory). If bits 3 to 6 are set, `bristlecone` opens, checks and salvages it, too; this takes far longer. Bit 7: the checksums
//! of the damaged file are computed anew, so that the reader believes the damage. Then come changes of files of the target's kind. The
//! first byte of a change is its kind (bits 0 to 2) and selects the file (bits 3 to 7). *Units* are the header of a file, and its blocks,
//! images or leaves as they were before the damage.
//!
//! | kind | next bytes | effect |
//! |---|---|---|
//! | 0 | place: 3, word: 8 | overwrites the word with this number, in units of 8 bytes |
//! | 1 | unit: 1, field: 1, number: 4 | overwrites a field of 4 bytes in a unit |
//! | 2 | unit: 1, field: 1, choice: 1 | overwrites such a field with an absurd number, or adds a small one |
//! | 3 | place: 3 | overwrites a sector with zeros |
//! | 4 | unit: 1 | truncates the file where the unit begins |
//! | 5 | unit: 1, unit: 1 | copies the first unit over the second one |
//! | 6 | | removes the file |
//! | 7 | file: 1 | the file gets the contents of another one of its kind |

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::OnceLock;

use bristlecone::Options;
use bristlecone::store_dir::FILE_NAME;
use bwtree::{Bytes, Pairs, Words};
use logstore::identity::Identity;
use logstore::{Settings, Store};

use crate::damage::{Input, scratch};

const ID: u64 = 0x0b5e_55ed;
const KEYS: u64 = 60;
const HEADER: usize = 512;
const SECTOR: usize = 512;
/// More pairs than a store with forged files can have.
const PAIRS_MAX: u64 = 1 << 20;
/// The bits of the first byte that select the use of the program.
const PROGRAM: u8 = 0x78;
/// The bit of the first byte that selects a budget with room for all pages.
const ROOMY: u8 = 8;
/// More changes than this are ignored.
const CHANGES_MAX: usize = 64;

/// Keys and values as bytes.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The kind of files that a target damages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Segment,
    Checkpoint,
    Log,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let is = |text| name.contains(text);
        let kinds = [(Self::Segment, ".pages-"), (Self::Checkpoint, ".checkpoint"), (Self::Log, ".log-")];
        kinds.into_iter().find(|(_, text)| is(*text)).map(|(kind, _)| kind)
    }
}

/// A file as it was before the damage.
struct Sound {
    name: String,
    kind: Option<Kind>,
    bytes: Vec<u8>,
    /// Offsets of the units.
    units: Vec<usize>,
}

/// The files of a store, and its contents from the checkpoint on.
struct Base {
    files: Vec<Sound>,
    /// True if keys and values are words.
    is_words: bool,
    settings: Settings,
    /// Contents after each operation since the checkpoint.
    states: Vec<Model>,
    /// All values that a key ever had.
    had: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let from = bytes.get(at..).unwrap_or_default();
    let count = from.len().min(8);
    word[..count].copy_from_slice(&from[..count]);
    u64::from_le_bytes(word)
}

/// The end of the block or image at an offset, by its own lengths. `None` if it is not in the file.
fn end_of(kind: Kind, bytes: &[u8], at: usize) -> Option<usize> {
    let [first, second] = [16, 24].map(|field| number(bytes, at + field));
    let length = match kind {
        Kind::Log => second.checked_add(number(bytes, at + 32))?.checked_add(48)?,
        // The highest bit says that the image is packed.
        Kind::Segment => (first << 1 >> 1).checked_add(40)?,
        Kind::Checkpoint => return None,
    };
    at.checked_add(usize::try_from(length).ok()?).filter(|end| *end <= bytes.len() && *end > at + 8)
}

impl Sound {
    fn new(name: String, bytes: Vec<u8>) -> Self {
        let kind = Kind::of(&name);
        let (mut units, mut at) = (vec![0], HEADER);
        while let Some(kind) = kind {
            let end = match kind {
                Kind::Checkpoint => {
                    (at + 32 < bytes.len()).then(|| at + 32 + (number(&bytes, at + 24) >> 32) as usize)
                }
                _ if number(&bytes, at) == 0 => None,
                _ => end_of(kind, &bytes, at),
            };
            let Some(end) = end else { break };
            units.push(at);
            at = match kind {
                Kind::Log if number(&bytes, end.next_multiple_of(8)) as u32 == number(&bytes, at) as u32 => {
                    end.next_multiple_of(8)
                }
                Kind::Log => end.next_multiple_of(SECTOR),
                Kind::Segment => end.next_multiple_of(64),
                Kind::Checkpoint => end,
            };
        }
        Self { name, kind, bytes, units }
    }

    fn unit(&self, number: u8) -> usize {
        self.units[usize::from(number) % self.units.len()]
    }

    /// The checksums of a damaged file: the offset of each, its bytes, and the right checksum.
    fn sums(&self, damaged: &[u8]) -> Vec<(usize, usize, u32)> {
        let mut sums = Vec::new();
        if let Some(header) = damaged.get(..HEADER) {
            sums.push((0, HEADER - 4, crc32c::crc32c(&header[..HEADER - 4])));
        }
        match self.kind {
            Some(Kind::Checkpoint) if damaged.len() > HEADER + 8 => {
                let end = damaged.len() - 8;
                sums.push((0, end, crc32c::crc32c(&damaged[..end])));
            }
            Some(kind @ (Kind::Segment | Kind::Log)) => {
                for at in &self.units[1..] {
                    let end = end_of(kind, damaged, *at);
                    sums.extend(end.map(|end| (*at, *at + 4, crc32c::crc32c(&damaged[at + 8..end]))));
                }
            }
            _ => {}
        }
        sums
    }

    /// True if the damage made something else that has a right checksum.
    fn is_forged(&self, damaged: &[u8], all: &[Sound]) -> bool {
        self.sums(damaged).into_iter().any(|(at, place, sum)| {
            let end = match self.kind {
                Some(kind) if at > 0 => end_of(kind, damaged, at).unwrap_or(damaged.len()),
                Some(Kind::Checkpoint) if place > HEADER => damaged.len(),
                _ => HEADER,
            };
            let (found, kind) = (&damaged[at..end], self.kind);
            // A block has its position in the log, and a header has the number of its file. An image does not say whose it is.
            let is_known = |file: &Sound| {
                let units =
                    file.units.iter().filter(|unit| kind == Some(Kind::Log) && at > 0 || **unit == at);
                file.kind == kind && units.copied().any(|unit| file.bytes[unit..].starts_with(found))
            };
            let is_same = self.bytes.get(at..).is_some_and(|own| own.starts_with(found));
            let is_image = kind == Some(Kind::Segment) && at > 0;
            number(damaged, place) as u32 == sum && !is_same && (is_image || !all.iter().any(is_known))
        })
    }
}

/// Keys and values of a kind.
trait Sample: Pairs {
    fn key(n: u64) -> Self::KeyBuf;
    fn value(n: u64) -> Self::ValueBuf;
}

impl Sample for Bytes {
    fn key(n: u64) -> Self::KeyBuf {
        format!("key {n:04}").into_bytes().into()
    }

    fn value(n: u64) -> Self::ValueBuf {
        vec![n as u8; if n.is_multiple_of(37) { 1500 } else { n as usize * 7 % 60 }]
    }
}

impl Sample for Words {
    fn key(n: u64) -> Self::KeyBuf {
        n
    }

    fn value(n: u64) -> Self::ValueBuf {
        n
    }
}

fn key_bytes<P: Pairs>(key: &P::Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    P::write_key(key, &mut bytes);
    bytes
}

fn value_bytes<P: Pairs>(value: &P::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    P::write_value(value, &mut bytes);
    bytes
}

/// How a store of [`bases`] was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Without a close, behind a checkpoint.
    Killed,
    /// With a close.
    Closed,
    /// Without a close, and without a checkpoint since it was made.
    LogOnly,
}

/// A store that its process left so.
fn made<P: Sample>(survives_power: bool, end: End, is_words: bool) -> Base {
    let packs = end == End::Closed || !survives_power;
    let settings = Settings {
        survives_power,
        memory_bytes: if end == End::LogOnly { u64::MAX } else { 12 << 10 },
        log_bytes: 1 << 20,
        is_small: true,
        // In some of the stores.
        compresses: Some(packs),
        ..Settings::default()
    };
    let dir = scratch();
    let store = Store::<P>::create(dir.path(), FILE_NAME, ID, settings.clone()).expect("a new store");
    let mut base = Base { files: Vec::new(), is_words, settings, states: Vec::new(), had: BTreeMap::new() };
    let mut model = Model::new();
    let mut note = |model: &mut Model, n: u64, value: Option<u64>| {
        let key = key_bytes::<P>(P::key(n).borrow());
        match value.map(|value| value_bytes::<P>(P::value(value).borrow())) {
            Some(value) => {
                base.had.entry(key.clone()).or_default().insert(value.clone());
                model.insert(key, value);
            }
            None => _ = model.remove(&key),
        }
    };
    let (turns, checkpoint_at) = if end == End::LogOnly { (40, 0) } else { (190, 150) };
    for turn in 0..turns {
        let n = turn * 7919 % KEYS;
        match turn % 10 {
            8 => {
                note(&mut model, n, None);
                store.set(P::key(n).borrow(), None, true).expect("a removal");
            }
            9 => {
                let keys = [n, (n + 1) % KEYS, (n + 20) % KEYS];
                let writes = keys.map(|n| {
                    note(&mut model, n, Some(turn));
                    (P::key(n), Some(P::value(turn)))
                });
                store.set_batch(writes.into(), turn % 20 == 9).expect("a batch");
            }
            _ => {
                note(&mut model, n, Some(turn));
                store.set(P::key(n).borrow(), Some(P::value(turn).borrow()), turn % 3 > 0).expect("a put");
            }
        }
        if turn + 1 == checkpoint_at {
            store.checkpoint().expect("a checkpoint");
        }
        if turn + 1 >= checkpoint_at {
            base.states.push(model.clone());
        }
    }
    if checkpoint_at == 0 {
        base.states.insert(0, Model::new());
    }
    if end == End::Closed {
        store.close().expect("a close");
        base.states = vec![model];
    } else {
        store.commit().expect("a commit");
    }
    assert_eq!(store.stats().saved_bytes > 0, packs, "packed images");
    drop(store);
    base.files = files_of(dir.path()).into_iter().map(|(name, bytes)| Sound::new(name, bytes)).collect();
    if !is_words {
        base.files.push(identity(survives_power));
    }
    base
}

/// The file that names a store's engine and kind.
fn identity(survives_power: bool) -> Sound {
    let (dir, path) = (scratch(), Path::new(FILE_NAME));
    let file = fs::File::create(dir.path().join(path)).expect("a file");
    let durability = if survives_power { "power" } else { "process" };
    let identity = Identity { id: ID, text: format!("bwtree\nbytes\n64\n{durability}") };
    logstore::identity::write(&file, path, &identity).expect("an identity");
    Sound::new(FILE_NAME.to_owned(), fs::read(dir.path().join(path)).expect("the identity"))
}

fn files_of(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(dir)
        .expect("the directory")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name");
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

/// The stores. They are made once.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        vec![
            made::<Bytes>(true, End::Killed, false),
            made::<Bytes>(false, End::Killed, false),
            made::<Bytes>(true, End::Closed, false),
            made::<Words>(true, End::Killed, true),
            made::<Bytes>(true, End::LogOnly, false),
        ]
    })
}

/// An absurd number for a field, or one that is nearly the old one.
fn absurd(old: u32, choice: u8) -> u32 {
    const NUMBERS: [u32; 10] =
        [0, 1, u32::MAX, 1 << 31, 1 << 30, 1 << 29, u32::MAX >> 1, 1 << 16, 1 << 24, u32::MAX - 7];
    match NUMBERS.get(usize::from(choice)) {
        Some(number) => *number,
        None => old.wrapping_add_signed(i32::from(choice) - 128),
    }
}

/// Applies a change to the files of a kind.
fn change(sound: &[&Sound], files: &mut [Option<Vec<u8>>], what: u8, input: &mut Input<'_>) {
    let at = usize::from(what >> 3) % files.len();
    let own = sound[at];
    let other = files[usize::from(input.0.first().copied().unwrap_or(0)) % files.len()].clone();
    let Some(file) = &mut files[at] else { return };
    let mut place = |unit: usize| {
        let [low, middle, high] = input.take();
        u32::from_le_bytes([low, middle, high, 0]) as usize % (file.len() / unit).max(1) * unit
    };
    match what & 7 {
        0 => {
            let (at, word) = (place(8), input.take::<8>());
            if let Some(bytes) = file.get_mut(at..at + 8) {
                bytes.copy_from_slice(&word);
            }
        }
        kind @ (1 | 2) => {
            let [unit, field] = input.take();
            let at = own.unit(unit) + usize::from(field) * 4;
            let old = number(file, at) as u32;
            let new = match kind {
                1 => u32::from_le_bytes(input.take()),
                _ => absurd(old, input.take::<1>()[0]),
            };
            if let Some(bytes) = file.get_mut(at..at + 4) {
                bytes.copy_from_slice(&new.to_le_bytes());
            }
        }
        3 => {
            let at = place(SECTOR);
            let end = file.len().min(at + SECTOR);
            file[at..end].fill(0);
        }
        4 => {
            let [unit] = input.take();
            file.truncate(own.unit(unit));
        }
        5 => {
            let [from, to] = input.take().map(|unit| own.unit(unit));
            let end = own.units.iter().copied().find(|unit| *unit > from);
            let end = end.unwrap_or(from + SECTOR).min(own.bytes.len());
            let copied = &own.bytes[from..end];
            if let Some(bytes) = file.get_mut(to..to + copied.len()) {
                bytes.copy_from_slice(copied);
            }
        }
        6 => files[at] = None,
        _ => {
            input.take::<1>();
            files[at] = other;
        }
    }
}

/// A store with damage.
struct Damaged {
    base: &'static Base,
    files: Vec<(&'static str, Vec<u8>)>,
    /// The damage has right checksums, so it may look like a store with other contents.
    is_forged: bool,
    with_program: bool,
    is_roomy: bool,
}

fn damaged(input: &[u8], kind: Kind) -> Damaged {
    let mut input = Input(input);
    let [first] = input.take();
    let base = &bases()[usize::from(first & 7) % bases().len()];
    let sound: Vec<&Sound> = base.files.iter().filter(|file| file.kind == Some(kind)).collect();
    let mut files: Vec<Option<Vec<u8>>> = sound.iter().map(|file| Some(file.bytes.clone())).collect();
    for _ in 0..CHANGES_MAX {
        if input.0.is_empty() || files.is_empty() {
            break;
        }
        let [what] = input.take();
        change(&sound, &mut files, what, &mut input);
    }
    let mut is_forged = false;
    for (own, file) in sound.iter().zip(&mut files) {
        let Some(file) = file else { continue };
        if first & 0x80 != 0 {
            // The header's is before those that cover the header.
            for number in 0.. {
                let Some((_, place, sum)) = own.sums(file).get(number).copied() else { break };
                file[place..place + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        is_forged |= own.is_forged(file, &base.files);
    }
    let damaged = sound.iter().zip(files).filter_map(|(own, file)| Some((&*own.name, file?)));
    let others = base.files.iter().filter(|file| file.kind != Some(kind));
    let files = damaged.chain(others.map(|file| (&*file.name, file.bytes.clone()))).collect();
    Damaged {
        base,
        files,
        is_forged,
        with_program: first & PROGRAM == PROGRAM && !base.is_words,
        is_roomy: first & ROOMY != 0,
    }
}

impl Damaged {
    fn write(&self, dir: &Path) {
        for (name, bytes) in &self.files {
            fs::write(dir.join(name), bytes).expect("a file");
        }
    }

    /// The key must have had the value at some time.
    fn had(&self, key: &[u8], value: &[u8]) {
        let is_known = self.base.had.get(key).is_some_and(|values| values.contains(value));
        assert!(self.is_forged || is_known, "{key:?} never had {value:?}");
    }

    /// Reads all pairs that can be read.
    fn salvage<P: Sample>(&self, dir: &Path) {
        let mut found = Model::new();
        let mut apply = |key: &P::Key, value: Option<&P::Value>| {
            let key = key_bytes::<P>(key);
            match value {
                Some(value) => _ = found.insert(key, value_bytes::<P>(value)),
                None => _ = found.remove(&key),
            }
            Ok(())
        };
        let lost = logstore::salvage::salvage::<P>(dir, FILE_NAME, ID, &mut apply, &|_| ());
        found.iter().for_each(|(key, value)| self.had(key, value));
        if lost.is_ok_and(|lost| lost == Default::default()) && !self.is_forged {
            assert!(self.base.states.contains(&found), "a salvage without losses has wrong contents");
        }
    }

    /// All pairs, in both directions.
    fn contents<P: Sample>(&self, store: &Store<P>) -> pmem::Result<Model> {
        let [mut forward, mut backward] = [false, true].map(|descends| {
            let mut cursor = store.range(Bound::Unbounded, Bound::Unbounded, descends);
            let mut found = Model::new();
            let (mut last, mut pairs) = (None::<P::KeyBuf>, 0);
            loop {
                match cursor.next_pair() {
                    Err(error) => return Err(error),
                    Ok(None) => return Ok(found),
                    Ok(Some((key, value))) => {
                        let is_behind = last.as_ref().is_none_or(|last| match descends {
                            false => *last < key,
                            true => key < *last,
                        });
                        assert!(self.is_forged || is_behind, "{key:?} follows {last:?}");
                        pairs += 1;
                        assert!(pairs < PAIRS_MAX, "an endless scan");
                        found.insert(key_bytes::<P>(key.borrow()), value_bytes::<P>(value.borrow()));
                        last = Some(key);
                    }
                }
            }
        });
        if let (Ok(forward), Ok(backward)) = (&mut forward, &mut backward) {
            assert!(self.is_forged || forward == backward, "the directions differ");
        }
        backward.and(forward)
    }

    /// Opens the store and runs all kinds of operations.
    fn used<P: Sample>(&self, dir: &Path) {
        let memory_bytes = if self.is_roomy { u64::MAX } else { self.base.settings.memory_bytes };
        let settings = Settings { memory_bytes, ..self.base.settings.clone() };
        let read_only = Settings { read_only: true, ..settings.clone() };
        let before = files_of(dir);
        let opened = Store::<P>::open(dir, FILE_NAME, ID, read_only);
        let seen = opened.and_then(|(store, _)| self.contents(&store));
        assert!(before == files_of(dir), "a read-only store changed its files");
        let Ok((store, _)) = Store::<P>::open(dir, FILE_NAME, ID, settings.clone()) else { return };
        for n in 0..KEYS {
            let (key, mut found) = (P::key(n), None);
            if store.get(key.borrow(), |value| found = Some(value_bytes::<P>(value))).is_ok()
                && let Some(found) = found
            {
                self.had(&key_bytes::<P>(key.borrow()), &found);
            }
        }
        let found = self.contents(&store);
        let (problems, _) = store.check();
        if !self.is_forged {
            assert_eq!(found.is_err(), !problems.is_empty(), "{problems:?}");
        }
        if let (Ok(found), false) = (&found, self.is_forged) {
            assert!(self.base.states.contains(found), "silently wrong contents");
            assert!(seen.is_ok_and(|seen| seen == *found), "a read-only store has other contents");
        }
        // Operations beside damage are done or refused.
        for n in (0..KEYS + 20).step_by(3) {
            let _ = store.set(P::key(n).borrow(), Some(P::value(n).borrow()), n % 2 > 0);
            let _ = store.update(P::key(n + 1).borrow(), |_| bwtree::Change::<P::ValueBuf>::Delete, false);
        }
        let after = self.contents(&store);
        let checkpointed = store.checkpoint().and_then(|()| store.compact(&|_, _| ()));
        let cleared = if self.is_forged { store.clear() } else { Ok(()) };
        let closed = store.close();
        drop(store);
        if let (Ok(_), false) = (&found, self.is_forged) {
            assert!(checkpointed.is_ok() && closed.is_ok(), "{checkpointed:?}, {closed:?}");
            let (store, _) = Store::<P>::open(dir, FILE_NAME, ID, settings).expect("a sound store");
            let again = self.contents(&store).expect("sound contents");
            assert!(after.is_ok_and(|after| after == again), "other contents after a close");
        } else if cleared.is_ok() {
            let _ = Store::<P>::open(dir, FILE_NAME, ID, settings).map(|(store, _)| store.check());
        }
    }

    /// Opens the store as the program does, checks it, and salvages it into a new one.
    fn programmed(&self, dir: &Path) {
        let new = scratch();
        let new = new.path().join("new");
        if bristlecone::salvage(dir, &new, &|_| ()).is_ok() {
            let options = Options::default().create(false);
            let store = bristlecone::Store::open(&new, options).expect("a salvaged store");
            let report = store.check().expect("a check of a new store");
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            for pair in store.scan(..) {
                let (key, value) = pair.expect("a pair of a new store");
                self.had(&key, &value);
            }
        }
        let options = Options::default().create(false).memory_bytes(64 << 20);
        if let Ok(store) = bristlecone::Store::open(dir, options) {
            let _ = store.check();
            let _ = store.close();
        }
    }

    fn run(&self) {
        let dir = scratch();
        self.write(dir.path());
        match self.base.is_words {
            true => self.salvage::<Words>(dir.path()),
            false => self.salvage::<Bytes>(dir.path()),
        }
        if self.with_program {
            let own = scratch();
            self.write(own.path());
            self.programmed(own.path());
        }
        match self.base.is_words {
            true => self.used::<Words>(dir.path()),
            false => self.used::<Bytes>(dir.path()),
        }
    }
}

/// Damages segments, and uses and salvages the store.
///
/// # Panics
/// If damage without right checksums gives wrong contents instead of errors.
pub fn segment(input: &[u8]) {
    damaged(input, Kind::Segment).run();
}

/// Damages the checkpoint, and uses and salvages the store.
///
/// # Panics
/// As [`segment`].
pub fn checkpoint(input: &[u8]) {
    damaged(input, Kind::Checkpoint).run();
}

/// Damages files of the commit log, and uses and salvages the store. Damage of the end of the log may be a torn write: then the contents
/// are those after an earlier operation.
///
/// # Panics
/// As [`segment`].
pub fn log(input: &[u8]) {
    damaged(input, Kind::Log).run();
}
