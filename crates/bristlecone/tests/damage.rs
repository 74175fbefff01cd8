//! Damaged, foreign, truncated, newer, locked and full stores: each gives a clear error or a correct answer, never a panic, and no data is
//! lost.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Durability, Error, Options, Store, StoreFixed, StoreU64, registry, salvage};
use pmem::Geometry;
use pmem::region::{COPIES, GENERATION_AT, LENGTH_AT, ROOT_AT};
use tempfile::TempDir;

const KEYS: u64 = 3000;

fn key(n: u64) -> Vec<u8> {
    format!("key {:06}", n.wrapping_mul(7919) % 1_000_003).into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 10 + n as usize % 90]
}

fn options() -> Options {
    Options::default().max_bytes(1 << 30)
}

fn open(dir: &Path) -> Result<Store, Error> {
    Store::open(dir, options().create(false))
}

/// A directory in memory if possible. These tests open thousands of stores, and every open syncs its mark.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A closed store with some history.
fn made() -> (TempDir, PathBuf) {
    made_by(registry::DEFAULT)
}

/// The same with this engine.
fn made_by(engine: &str) -> (TempDir, PathBuf) {
    made_with(options().engine(engine))
}

/// The same with these options.
fn made_with(options: Options) -> (TempDir, PathBuf) {
    let dir = scratch();
    let store = Store::open(dir.path(), options).unwrap();
    for n in 0..KEYS {
        store.put(&key(n), &value(n)).unwrap();
    }
    for n in (0..KEYS).step_by(3) {
        store.put(&key(n), &value(n + 1)).unwrap();
    }
    store.put(b"large", &vec![7; 300_000]).unwrap();
    drop(store);
    let file = dir.path().join(FILE_NAME);
    (dir, file)
}

fn expected(n: u64) -> Vec<u8> {
    if n.is_multiple_of(3) { value(n + 1) } else { value(n) }
}

fn assert_all_there(store: &Store) {
    for n in 0..KEYS {
        assert_eq!(store.get(&key(n)).unwrap(), Some(expected(n)));
    }
    assert_eq!(store.get(b"large").unwrap().unwrap().len(), 300_000);
}

/// Runs every kind of operation. Errors are allowed, panics and endless loops are not.
fn exercise(store: &Store) {
    let _ = store.check().unwrap();
    for n in (0..KEYS).step_by(37) {
        let _ = store.get(&key(n));
    }
    for descending in [false, true] {
        let is_ordered = store.capabilities().ordered;
        let scan = if is_ordered { store.scan(..) } else { store.walk() };
        let scan = if descending && is_ordered { scan.descending() } else { scan };
        assert!(scan.take(10 * KEYS as usize).filter(Result::is_ok).count() <= KEYS as usize + 1);
    }
    for n in 0..50 {
        let _ = store.put(&key(n * 41), &value(n));
        let _ = store.delete(&key(n * 43));
    }
}

fn flip(file: &fs::File, at: u64, bit: u8) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at).unwrap();
}

fn edit(path: &Path) -> fs::File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_flipped_bit_in_one_superblock_copy_costs_nothing_and_in_both_is_told() {
    let (dir, path) = made();
    for copy in COPIES {
        for bit in 0..256 * 8 {
            flip(&edit(&path), copy + bit / 8, (bit % 8) as u8);
            let store = open(dir.path()).unwrap_or_else(|error| panic!("copy {copy} bit {bit}: {error}"));
            assert_eq!(store.get(&key(1)).unwrap(), Some(expected(1)));
            drop(store);
        }
    }
    for at in COPIES.map(|copy| copy + 9) {
        flip(&edit(&path), at, 3);
    }
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(
        error.contains("both copies of the superblock are damaged") && error.contains("--salvage"),
        "{error}"
    );
    let rescued = scratch();
    let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
    assert!(report.superblock_lost);
    assert_eq!(report.from_leaves, KEYS + 1);
    assert_all_there(&open(rescued.path()).unwrap());
}

#[test]
fn a_flipped_bit_in_the_root_line_or_the_generation_is_reported() {
    let (dir, path) = made();
    for word in [ROOT_AT, LENGTH_AT, GENERATION_AT] {
        for bit in 0..64 {
            flip(&edit(&path), word + bit / 8, (bit % 8) as u8);
            let error = open(dir.path()).err().unwrap_or_else(|| panic!("word {word} bit {bit} opens"));
            assert!(error.to_string().contains("corrupt"), "{error}");
            flip(&edit(&path), word + bit / 8, (bit % 8) as u8);
        }
    }
    assert_all_there(&open(dir.path()).unwrap());
}

#[test]
fn a_flipped_bit_in_any_chunk_header_is_found_by_check_and_hides_no_key() {
    let (dir, path) = made();
    let heap = Geometry::default().heap_at();
    let chunks = (fs::metadata(&path).unwrap().len() - heap) / (256 << 10);
    assert!(chunks >= 3);
    for chunk in 0..chunks {
        let at = heap + chunk * (256 << 10);
        let mut word = [0; 8];
        edit(&path).read_exact_at(&mut word, at).unwrap();
        for bit in (0..64).step_by(5).filter(|_| word != [0; 8]) {
            flip(&edit(&path), at + bit / 8, (bit % 8) as u8);
            let store = open(dir.path()).unwrap();
            assert!(!store.check().unwrap().problems.is_empty(), "chunk {chunk} bit {bit} unnoticed");
            assert_eq!(store.get(&key(5)).unwrap(), Some(expected(5)));
            drop(store);
            flip(&edit(&path), at + bit / 8, (bit % 8) as u8);
        }
    }
    assert!(open(dir.path()).unwrap().check().unwrap().problems.is_empty());
}

#[test]
fn a_flipped_bit_in_a_record_is_told_by_get_and_salvage_saves_the_rest() {
    let (dir, path) = made_with(options().tables(false));
    let content = fs::read(&path).unwrap();
    let victim = expected(1);
    let found =
        content.windows(victim.len() + 16).position(|w| w.starts_with(&key(1)) && w.ends_with(&victim));
    let at = found.expect("the record stands in the file") as u64 + 16;
    flip(&edit(&path), at, 0);
    let store = open(dir.path()).unwrap();
    let error = store.get(&key(1)).unwrap_err().to_string();
    assert!(error.contains("corrupt record"), "{error}");
    assert_eq!(store.check().unwrap().problems.len(), 1);
    drop(store);
    let rescued = scratch();
    let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
    assert_eq!((report.damaged_records, report.from_leaves), (1, KEYS));
    assert_eq!(open(rescued.path()).unwrap().get(&key(2)).unwrap(), Some(expected(2)));
    let again = salvage(dir.path(), rescued.path(), &|_| {}).unwrap_err().to_string();
    assert!(again.contains("already holds a store"), "{again}");
}

#[test]
fn random_damage_zeroed_swapped_and_stale_pages_never_panic() {
    random_damage(registry::DEFAULT, crash::by_tier(40, 120));
}

#[test]
fn random_damage_of_any_other_engine_never_panics() {
    registry::engines()
        .skip(1)
        .filter(|tree| tree.durable)
        .for_each(|tree| random_damage(tree.name, crash::by_tier(4, 24)));
}

#[test]
fn salvage_reads_the_leaves_of_every_engine() {
    for tree in registry::engines().filter(|tree| tree.durable) {
        let (dir, _) = made_by(tree.name);
        let rescued = scratch();
        let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
        assert_eq!((report.from_leaves, report.damaged_records), (KEYS + 1, 0), "{}", tree.name);
        assert_all_there(&open(rescued.path()).unwrap());
    }
}

#[test]
fn salvage_reads_values_of_one_length() {
    for tree in registry::names().filter(|name| registry::find(name).unwrap().capabilities.fixed_values) {
        let (dir, rescued) = (scratch(), scratch());
        let made = options().engine(tree).value_bytes(120);
        let store = StoreFixed::open(dir.path(), made).unwrap();
        for n in 0..500_u64 {
            store.put(&n, &[n as u8; 120]).unwrap();
        }
        drop(store);
        let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
        assert_eq!((report.from_leaves, report.kind.as_str()), (500, "u64, 120 bytes"), "{tree}");
        let store = StoreFixed::open(rescued.path(), options()).unwrap();
        for n in 0..500_u64 {
            assert_eq!(store.get(&n).unwrap(), Some(vec![n as u8; 120]), "{tree}");
        }
    }
}

fn random_damage(engine: &str, rounds: usize) {
    println!("{engine}");
    let (dir, path) = made_by(engine);
    let whole = fs::read(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..rounds {
        let mut content = whole.clone();
        let pages = content.len() / 4096;
        let page = |random: &mut fastrand::Rng| random.usize(..pages) * 4096;
        match round % 4 {
            0 => (0..20).for_each(|_| content[random.usize(..whole.len())] ^= 1 << random.u8(..8)),
            1 => {
                let at = page(&mut random);
                content[at..at + 4096].fill(0);
            }
            2 => {
                let (from, to) = (page(&mut random), page(&mut random));
                content.copy_within(from..from + 4096, to);
            }
            _ => {
                // Invalid words in place of pointers, counts and bitmaps.
                for _ in 0..200 {
                    let at = random.usize(..whole.len() / 8) * 8;
                    let word = [0, u64::MAX, random.u64(..), 0xB700 << 48 | random.u64(..1 << 22)]
                        [random.usize(..4)];
                    content[at..at + 8].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        fs::write(&path, &content).unwrap();
        if let Ok(store) = open(dir.path()) {
            exercise(&store);
        }
        fs::write(&path, &content).unwrap();
        let rescued = scratch();
        salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
        assert!(open(rescued.path()).unwrap().check().unwrap().problems.is_empty());
    }
}

#[test]
fn a_truncated_file_is_told_at_every_boundary() {
    let (dir, path) = made();
    let whole = fs::read(&path).unwrap();
    for len in [0, 1, 255, 256, 4095, 4096, 4352, 8192, 12_288, 28_672, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..len]).unwrap();
        let error = open(dir.path()).err().unwrap_or_else(|| panic!("{len} bytes open")).to_string();
        let told =
            ["truncated", "is not a Bristlecone store", "corrupt"].iter().any(|words| error.contains(words));
        assert!(told, "{len}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    assert_all_there(&open(dir.path()).unwrap());
}

#[test]
fn foreign_missing_and_other_versions_stores_are_told_apart() {
    let dir = scratch();
    assert!(matches!(open(dir.path()), Err(Error::Missing { .. })));
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "looking makes nothing");
    fs::write(dir.path().join(FILE_NAME), vec![b'x'; 100_000]).unwrap();
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("is not a Bristlecone store"), "{error}");
    let (dir, path) = made();
    for version in [1, 2, 3, 4, 99] {
        change_superblock(&path, |words| words[1] = version);
        let error = open(dir.path()).err().unwrap().to_string();
        let told =
            format!("format version {version}, this program reads version 5: open it with the program");
        assert!(error.contains(&told), "{error}");
    }
    let plain = dir.path().join("plain file");
    fs::write(&plain, "").unwrap();
    let error = Store::open(&plain, options()).err().unwrap().to_string();
    assert!(error.contains("plain file"), "{error}");
}

/// Rewrites both superblock copies with a correct checksum.
fn change_superblock(path: &Path, change: impl Fn(&mut [u64; 32])) {
    let file = edit(path);
    for at in COPIES {
        let mut bytes = [0; 256];
        file.read_exact_at(&mut bytes, at).unwrap();
        let mut words = [0; 32];
        words
            .iter_mut()
            .zip(bytes.chunks(8))
            .for_each(|(w, b)| *w = u64::from_le_bytes(b.try_into().unwrap()));
        change(&mut words);
        let content: Vec<u8> = words[..31].iter().flat_map(|w| w.to_le_bytes()).collect();
        words[31] = (words[31] >> 32) << 32 | u64::from(crc32c::crc32c(&content));
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        file.write_all_at(&bytes, at).unwrap();
    }
}

#[test]
fn a_store_left_in_use_by_another_boot_is_not_trusted() {
    let (dir, path) = made();
    change_superblock(&path, |words| {
        words[3] = 2; // in use, with process durability
        words[4] ^= 1; // by another boot
    });
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("when the machine went down") && error.contains("--salvage"), "{error}");
    let rescued = scratch();
    assert_eq!(salvage(dir.path(), rescued.path(), &|_| {}).unwrap().from_leaves, KEYS + 1);
    assert_all_there(&open(rescued.path()).unwrap());
    // The same with this boot: the process died, and the kernel kept the pages.
    let (dir, path) = made();
    change_superblock(&path, |words| words[3] = 2);
    assert_all_there(&open(dir.path()).unwrap());
}

#[test]
fn salvage_keeps_keys_whose_checksums_are_equal() {
    let mut seen = std::collections::HashMap::new();
    let mut keys = (0_u64..).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec());
    let pair = keys.find_map(|key| {
        let other = seen.insert(crc32c::crc32c(&key), key.clone());
        other.map(|other| [key, other])
    });
    let [first, second] = pair.unwrap();
    for (engine, tables) in [("cdds", false), ("cdds", true), ("cdds-unsorted", false), ("cdds-hash", false)]
    {
        let (dir, rescued) = (scratch(), scratch());
        let store = Store::open(dir.path(), options().engine(engine).tables(tables)).unwrap();
        store.put(&first, b"1").unwrap();
        store.put(&second, b"2").unwrap();
        store.put(&first, b"3").unwrap();
        drop(store);
        let target = rescued.path().join("new");
        assert_eq!(salvage(dir.path(), &target, &|_| {}).unwrap().keys(), 2, "{engine}");
        let store = Store::open(&target, options()).unwrap();
        assert_eq!(store.get(&first).unwrap().as_deref(), Some(&b"3"[..]), "{engine}");
        assert_eq!(store.get(&second).unwrap().as_deref(), Some(&b"2"[..]), "{engine}");
    }
}

#[test]
fn a_second_opener_another_engine_and_another_kind_are_refused() {
    let (dir, _) = made();
    let store = open(dir.path()).unwrap();
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("in use by this process already"), "{error}");
    let rescued = scratch();
    assert!(salvage(dir.path(), rescued.path(), &|_| {}).is_err());
    assert_all_there(&store);
    drop(store);
    let other = options().engine("wbtree-keyptr");
    let error = Store::open(dir.path(), other).err().unwrap().to_string();
    assert!(error.contains("made with engine line, not with engine wbtree-keyptr"), "{error}");
    let error = StoreU64::open(dir.path(), options()).err().unwrap().to_string();
    assert!(error.contains("the kind \"bytes") && error.contains("not with \"u64\""), "{error}");
    let error = Store::open(dir.path(), options().engine("oak")).err().unwrap().to_string();
    assert!(error.contains("unknown engine \"oak\"") && error.contains("wbtree, "), "{error}");
    let error = Store::open(dir.path().join("new"), options().node_lines(17)).err().unwrap();
    assert!(error.to_string().contains("nodes of line have 2 to 8 lines"), "{error}");
    assert_all_there(&open(dir.path()).unwrap());
}

#[test]
fn a_full_store_refuses_writes_and_goes_on_reading_and_deleting() {
    let dir = scratch();
    let store = Store::open(dir.path(), options().max_bytes(4 << 20)).unwrap();
    let mut stored = 0;
    let error = loop {
        match store.put(&key(stored), &vec![1; 3000]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("maximum size of 4194304 bytes"), "{error}");
    assert!(stored > 500);
    for n in 0..stored {
        assert_eq!(store.get(&key(n)).unwrap().unwrap().len(), 3000);
    }
    assert!(store.put(b"large", &vec![0; 2 << 20]).is_err());
    let report = store.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.keys, stored);
    for n in 0..stored / 2 {
        assert!(store.delete(&key(n)).unwrap());
    }
    for n in 0..stored / 3 {
        store.put(&key(n), &vec![2; 3000]).unwrap();
    }
    assert!(store.check().unwrap().problems.is_empty());
}

/// The properties of a file that must not change while it is only read.
fn trace(path: &Path) -> (Vec<u8>, u64, u64, std::time::SystemTime, (i64, i64)) {
    let meta = fs::metadata(path).unwrap();
    let changed = (meta.ctime(), meta.ctime_nsec());
    (fs::read(path).unwrap(), meta.len(), meta.blocks(), meta.modified().unwrap(), changed)
}

/// How this process has `path` open and mapped: access modes of descriptors (0: read), protections of mappings.
fn holds(path: &Path) -> (Vec<u8>, Vec<String>) {
    let path = path.canonicalize().unwrap();
    let mut modes = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        if fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            let number = entry.file_name().into_string().unwrap();
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            modes.push(flags.trim().as_bytes().last().unwrap() - b'0');
        }
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let own = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    (modes, own.map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect())
}

#[test]
fn salvage_changes_nothing_of_the_damaged_store() {
    // Both kinds of file system: one allocates pages for holes that are read through a mapping, the other does not.
    for dir in [scratch(), tempfile::tempdir().unwrap()] {
        let (made, whole) = made();
        let path = dir.path().join(FILE_NAME);
        // A sparse file with a superblock. Neither its last bytes nor its length are aligned to a page.
        let content = fs::read(&whole).unwrap();
        drop(made);
        let file = fs::File::create(&path).unwrap();
        file.set_len(content.len() as u64 + (8 << 20) + 777).unwrap();
        for (at, page) in content.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0)) {
            file.write_all_at(page, at as u64 * 4096).unwrap();
        }
        file.write_all_at(b"tail", content.len() as u64 + (8 << 20) + 773).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let before = trace(&path);
        assert!(before.2 * 512 < before.1, "the file is sparse");
        let rescued = scratch();
        let told = std::cell::Cell::new(0);
        let report = salvage(dir.path(), rescued.path(), &|_| {
            let (modes, protections) = holds(&path);
            assert_eq!(modes, [0], "open for reading alone");
            assert!(
                !protections.is_empty() && protections.iter().all(|p| p.starts_with("r--")),
                "{protections:?}"
            );
            told.set(told.get() + 1);
        })
        .unwrap();
        assert!(told.get() > 0 && !report.superblock_lost);
        assert!(trace(&path) == before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no file beside it either");
        assert_all_there(&open(rescued.path()).unwrap());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn salvage_reads_files_of_any_length_to_their_last_byte() {
    let (dir, path) = made();
    let whole = fs::read(&path).unwrap();
    let mut before = 0;
    for len in [0, 1, 4095, 4097, 20_480, 300_001, 560_001, whole.len() - 4097, whole.len() - 1, whole.len()]
    {
        fs::write(&path, &whole[..len]).unwrap();
        let rescued = scratch();
        let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
        let found = report.from_leaves + report.from_records + report.from_damaged_chunks;
        assert!(found >= before, "{len} bytes hold {found} keys, fewer held {before}");
        before = found;
        let store = open(rescued.path()).unwrap();
        for pair in store.scan(..) {
            let (key, value) = pair.unwrap();
            assert!(key == b"large" || (0..KEYS).any(|n| self::key(n) == key && expected(n) == value));
        }
    }
    assert_eq!(before, KEYS + 1);
}

#[test]
fn every_message_that_names_salvage_names_its_directory_alike() {
    use pmem::Error as E;
    let path = PathBuf::from("store");
    let all = [
        E::Foreign { path: path.clone(), why: "it does not begin with a superblock" },
        E::Corrupt { what: "record", at: 64 },
        E::Superblock { path: path.clone() },
        E::Dirty,
        E::Truncated { path, found: 1, expected: 2 },
    ];
    for error in all {
        let text = error.to_string();
        assert!(text.contains("`check --salvage NEW_DIR` to copy every intact record"), "{text}");
        assert!(text.ends_with("(NEW_DIR: a directory that has no store yet)"), "{text}");
    }
}

fn journaled() -> Options {
    Options::default().journal_bytes(4 << 20)
}

#[test]
fn a_store_without_its_journal_says_so_and_is_salvaged() {
    let dir = scratch();
    let store = Store::open(dir.path(), journaled()).unwrap();
    for number in 0..500_u32 {
        store.put(&number.to_be_bytes(), &[7; 40]).unwrap();
    }
    // The files of the open store. Writes that are only in the journal are salvaged, too.
    let copy = scratch();
    for name in [FILE_NAME, JOURNAL_NAME] {
        fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    drop(store);
    let salvaged = |dir: &Path| {
        let rescued = scratch();
        let report = salvage(dir, rescued.path(), &|_| {}).unwrap();
        assert!(!report.superblock_lost && report.too_long == 0);
        Store::open(rescued.path(), Options::default()).unwrap().len().keys
    };
    assert_eq!(salvaged(copy.path()), 500);
    let opened = Store::open(copy.path(), Options::default()).unwrap();
    let stats = opened.stats();
    assert_eq!(
        (stats.opened.as_str(), stats.journal.unwrap().activity.unwrap().replayed_groups >= 500),
        ("recovered", true)
    );
    assert_eq!(opened.scan(..).count(), 500);
    drop(opened);
    fs::remove_file(dir.path().join(JOURNAL_NAME)).unwrap();
    let error = Store::open(dir.path(), Options::default()).err().unwrap().to_string();
    assert!(error.contains("store.bristlecone.journal is missing: put the journal back"), "{error}");
    assert_eq!(salvaged(dir.path()), 500);
    // The journal of another store.
    let other = scratch();
    drop(Store::open(other.path(), journaled()).unwrap());
    fs::copy(other.path().join(JOURNAL_NAME), dir.path().join(JOURNAL_NAME)).unwrap();
    let error = Store::open(dir.path(), Options::default()).err().unwrap().to_string();
    assert!(error.contains("put the journal back"), "{error}");
}

#[test]
fn a_journal_alone_is_not_overwritten_unless_its_store_was_never_finished() {
    let dir = scratch();
    let store = Store::open(dir.path(), journaled()).unwrap();
    store.put(b"a", b"b").unwrap();
    drop(store);
    let (file, journal) = (dir.path().join(FILE_NAME), dir.path().join(JOURNAL_NAME));
    let away = dir.path().join("away");
    fs::rename(&file, &away).unwrap();
    let before = fs::read(&journal).unwrap();
    for options in [Options::default(), journaled()] {
        let error = Store::open(dir.path(), options).err().unwrap().to_string();
        assert!(error.contains("put the store's file back beside its journal"), "{error}");
    }
    assert!(fs::read(&journal).unwrap() == before);
    fs::rename(&away, &file).unwrap();
    assert_eq!(Store::open(dir.path(), Options::default()).unwrap().get(b"a").unwrap().unwrap(), b"b");
    // As after a crash between the two renames.
    fs::rename(&file, dir.path().join("store.bristlecone.new")).unwrap();
    assert!(Store::open(dir.path(), journaled()).unwrap().is_quiet());
    assert_eq!(Store::open(dir.path(), Options::default()).unwrap().len().keys, 0);
}

#[test]
fn a_store_keeps_the_journal_that_it_was_made_with_or_without() {
    let dir = scratch();
    let asked = |durability| Options::default().durability(durability);
    let error = |options| Store::open(dir.path(), options).err().unwrap().to_string();
    assert!(error(Options::default().journal_bytes(4096)).contains("from 4 MiB to 1 GiB"));
    let store = Store::open(dir.path(), journaled()).unwrap();
    assert!(store.stats().medium.contains("with a journal"), "{:?}", store.stats());
    store.put(b"a", b"b").unwrap();
    drop(store);
    assert!(error(asked(Durability::Process)).contains("this store has a journal"));
    let store = Store::open(dir.path(), asked(Durability::Power)).unwrap();
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"b");
    // A value larger than a half of this journal.
    assert!(!store.put(b"large", &vec![1; 3 << 20]).unwrap());
    store.put(b"a", b"c").unwrap();
    assert!(store.check().unwrap().problems.is_empty());
    drop(store);
    assert_eq!(
        Store::open(dir.path(), Options::default()).unwrap().get(b"large").unwrap().unwrap(),
        vec![1; 3 << 20]
    );
    let plain = scratch();
    let store = Store::open(plain.path(), asked(Durability::Process)).unwrap();
    assert!(store.stats().journal.is_none());
    drop(store);
    let error = Store::open(plain.path(), journaled()).err().unwrap().to_string();
    assert!(error.contains("made without one stays so"), "{error}");
}

/// A store with a journal as kill -9 leaves it, from a copy of its files. Every write is acknowledged, and is still only in the journal.
fn killed(keys: u64) -> (TempDir, PathBuf) {
    let (live, dir) = (scratch(), scratch());
    let store = Store::open(live.path(), options().journal_bytes(64 << 20)).unwrap();
    for n in 0..keys {
        store.put(&key(n), &value(n)).unwrap();
    }
    for name in [FILE_NAME, JOURNAL_NAME] {
        fs::copy(live.path().join(name), dir.path().join(name)).unwrap();
    }
    let path = dir.path().join(FILE_NAME);
    (dir, path)
}

/// A former defect: salvage dropped the journal's groups beyond the end of a truncated file. It found no key and reported success.
#[test]
fn salvage_of_a_truncated_file_replays_the_journal_and_says_whether_that_is_everything() {
    let (dir, path) = killed(KEYS);
    edit(&path).set_len(98_304).unwrap();
    assert!(open(dir.path()).err().unwrap().is_damage());
    let rescued = scratch();
    let report = salvage(dir.path(), rescued.path(), &|_| {}).unwrap();
    assert!(report.complete && report.missing_bytes > 0, "{report:?}");
    assert_eq!(report.keys(), KEYS);
    let store = open(rescued.path()).unwrap();
    (0..KEYS).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(value(n))));
    // A closed store has nothing in its journal. The truncated data is lost, and salvage says so.
    let (dir, path) = made();
    edit(&path).set_len(98_304).unwrap();
    let report = salvage(dir.path(), &rescued.path().join("other"), &|_| {}).unwrap();
    assert!(!report.complete && report.missing_bytes > 0 && report.keys() < KEYS, "{report:?}");
}

#[test]
fn salvage_is_complete_if_nothing_is_missing_and_only_then() {
    let complete = |dir: &Path| {
        let report = salvage(dir, &scratch().path().join("new"), &|_| {}).unwrap();
        (report.complete, report.journal_lost)
    };
    for engine in registry::engines().filter(|engine| engine.durable) {
        let (dir, _) = made_by(engine.name);
        assert_eq!(complete(dir.path()), (true, false), "{}", engine.name);
    }
    let (dir, _) = killed(KEYS);
    assert_eq!(complete(dir.path()), (true, false));
    // A damaged group, a missing journal, a damaged record.
    let journal = edit(&dir.path().join(JOURNAL_NAME));
    flip(&journal, 8192 + 40 * 512 + 100, 3);
    assert_eq!(complete(dir.path()), (false, true));
    flip(&journal, 8192 + 40 * 512 + 100, 3);
    assert_eq!(complete(dir.path()), (true, false));
    fs::remove_file(dir.path().join(JOURNAL_NAME)).unwrap();
    assert_eq!(complete(dir.path()), (false, true));
    let (dir, path) = made_with(options().tables(false));
    let content = fs::read(&path).unwrap();
    let victim = expected(1);
    let found =
        content.windows(victim.len() + 16).position(|w| w.starts_with(&key(1)) && w.ends_with(&victim));
    flip(&edit(&path), found.expect("the record stands in the file") as u64 + 16, 0);
    assert_eq!(complete(dir.path()), (false, false));
}

#[test]
fn a_new_store_is_for_its_owner_alone() {
    for journal_bytes in [None, Some(4 << 20)] {
        let dir = scratch();
        let store_dir = dir.path().join("above/store");
        let store = Store::open(&store_dir, options().journal_bytes(journal_bytes)).unwrap();
        store.put(b"key", b"value").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&store_dir), mode(store_dir.parent().unwrap())], [0o700; 2]);
        let files: Vec<_> = fs::read_dir(&store_dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1 + usize::from(journal_bytes.is_some()));
        assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    }
}
