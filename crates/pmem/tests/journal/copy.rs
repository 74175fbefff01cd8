//! Copies of a region while its groups are committed and checkpointed: by the process that has the journal open, and from the two files
//! (data file and journal) while another process has them open.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crash::by_tier;
use pmem::copy::Target;
use pmem::journal::{self, Options};
use pmem::{Error, Journal, Medium};

const PAGE: u64 = 4096;
/// Initial number of pages, more than one step copies. Some groups add one.
const PAGES: u64 = 4200;
const WORDS: u64 = PAGE / 8;

/// The words that group `number` sets to its number: word 0 and many others, each in a line of its own.
fn stores(number: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(number);
    let lines = length(number) * WORDS / 8;
    let chosen = (0..rng.u64(20..100)).map(|_| rng.u64(..lines) * 8 + 1);
    std::iter::once(0).chain(chosen).collect()
}

/// Number of pages of the region after a group.
fn length(number: u64) -> u64 {
    PAGES + number / 50
}

/// Checks that the copy equals the region after the group that its first word names. Returns the number of that group.
fn judge(copy: &Path, origin: u64) -> u64 {
    let bytes = std::fs::read(copy).unwrap();
    let words: Vec<u64> = bytes[origin as usize..]
        .as_chunks()
        .0
        .iter()
        .map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes))
        .collect();
    let number = words[0];
    let mut expected = vec![0; words.len()];
    for group in 1..=number {
        stores(group).into_iter().for_each(|word| expected[word as usize] = group);
    }
    let wrong = (0..words.len()).find(|word| words[*word] != expected[*word]);
    assert_eq!(wrong.map(|at| (at, words[at], expected[at])), None, "not what group {number} left");
    assert!(words.len() as u64 >= length(number) * WORDS);
    number
}

/// A new journal with small halves, and a region with space for the words.
fn made() -> (tempfile::TempDir, PathBuf, PathBuf, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = (folder.path().join("store"), folder.path().join("store.journal"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let sizes = Options { capacity_bytes: 64 << 10, max_bytes: 1 << 30 };
    let journal = Journal::create(file, &path, &journal_path, &sizes).unwrap();
    journal.grow(PAGES * PAGE).unwrap();
    (folder, path, journal_path, journal)
}

/// Commits groups and makes checkpoints while `copies` runs.
fn beside(copies: impl FnOnce(&Journal, &Path, &Path, &AtomicU64) + Send) {
    let (_folder, path, journal_path, journal) = made();
    let (ends, newest) = (AtomicBool::new(false), AtomicU64::new(0));
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&ends);
            for number in 1.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                journal.grow(length(number) * PAGE).unwrap();
                stores(number).into_iter().for_each(|word| journal.copy(word * 8, number));
                assert_eq!(journal.commit().unwrap(), number);
                newest.store(number, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                if journal.wait_until_due(Duration::from_millis(5)).unwrap() {
                    journal.checkpoint().unwrap();
                }
            }
        });
        let _ends = Ends(&ends);
        copies(&journal, &path, &journal_path, &newest);
    });
}

#[test]
fn a_copy_beside_the_writer_is_what_one_group_left_with_all_that_was_durable_before() {
    beside(|journal, path, _, newest| {
        let to = path.with_file_name("copy");
        let mut during = 0;
        let rounds = by_tier(10, 30);
        for round in 0..rounds {
            let before = newest.load(Ordering::SeqCst);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&to).unwrap();
            let origin = if round % 2 == 0 { 0 } else { journal::ORIGIN };
            let target = Target { file: &file, path: &to, origin };
            // Called while the data file is copied. Groups that are committed now are only in the journal.
            let durable = AtomicU64::new(0);
            let wait = |_: u64, _: u64| {
                // Waits until both halves of the journal are full.
                let mut now = newest.load(Ordering::SeqCst);
                loop {
                    std::thread::sleep(Duration::from_millis(10));
                    let then = std::mem::replace(&mut now, newest.load(Ordering::SeqCst));
                    if then == now {
                        break durable.store(now, Ordering::SeqCst);
                    }
                }
            };
            journal.copy_region(&target, &wait).unwrap();
            let found = judge(&to, origin);
            let durable = durable.into_inner();
            assert!(found >= durable && durable >= before, "group {found} of {durable}");
            during += u64::from(found > before);
        }
        assert!(during > rounds / 3, "{during} of {rounds} copies have groups of while they were made");
    });
}

#[test]
fn files_that_somebody_writes_to_are_copied_as_one_group_left_them_or_not_at_all() {
    beside(|journal, path, journal_path, newest| {
        let to = path.with_file_name("copy");
        let (mut whole, mut busy) = (0, 0);
        for _ in 0..by_tier(15, 60) {
            let before = newest.load(Ordering::SeqCst);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&to).unwrap();
            let target = Target { file: &file, path: &to, origin: 0 };
            let pause = || std::thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
            match journal::copy_files(path, journal_path, true, &target, &|_, _| pause()) {
                Ok(()) => {
                    whole += 1;
                    assert!(judge(&to, 0) >= before);
                }
                Err(Error::Busy { .. }) => busy += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("{whole} whole, {busy} busy, {} groups", journal.newest());
        assert!(whole > 0);
    });
}

#[test]
fn a_copy_and_a_journal_of_its_own_are_a_pair_and_nobody_elses() {
    beside(|journal, path, journal_path, _| {
        let (to, its_journal) = (path.with_file_name("copy"), path.with_file_name("copy.journal"));
        let file = File::options().read(true).write(true).create_new(true).open(&to).unwrap();
        journal.copy_region(&Target { file: &file, path: &to, origin: journal::ORIGIN }, &|_, _| {}).unwrap();
        let number = judge(&to, journal::ORIGIN);
        journal::pair(file.try_clone().unwrap(), &to, &its_journal, 32 << 10).unwrap();
        let seen = |memory: &dyn Fn(u64) -> u64| {
            assert_eq!(memory(0), number);
            stores(number).into_iter().for_each(|word| assert_eq!(memory(word * 8), number));
        };
        let view = journal::view(File::open(&to).unwrap(), &to, &its_journal).unwrap();
        seen(&|at| view.word(at));
        let (copy, replay) = Journal::open(file, &to, &its_journal, 1 << 30).unwrap();
        seen(&|at| copy.word(at));
        assert_eq!((replay.groups, copy.capacity_bytes()), (0, 32 << 10));
        let error = journal::view(File::open(&to).unwrap(), &to, journal_path).unwrap_err();
        assert!(matches!(error, Error::Journal { .. }), "{error}");
    });
}

#[test]
fn a_view_has_the_groups_that_are_not_home_and_keeps_what_is_stored_to_itself() {
    let (_folder, path, journal_path, journal) = made();
    for number in 1..=9 {
        stores(number).into_iter().for_each(|word| journal.copy(word * 8, number));
        journal.commit().unwrap();
        if number == 4 {
            journal.checkpoint_all().unwrap();
        }
    }
    drop(journal);
    let trace = || [&path, &journal_path].map(|path| std::fs::read(path).unwrap());
    let before = trace();
    let view = journal::view(File::open(&path).unwrap(), &path, &journal_path).unwrap();
    let mut expected = vec![0; (PAGES * WORDS) as usize];
    (1..=9).for_each(|group| stores(group).into_iter().for_each(|word| expected[word as usize] = group));
    assert!((0..expected.len()).all(|word| view.word(word as u64 * 8) == expected[word]));
    (0..expected.len()).for_each(|word| view.publish(word as u64 * 8, 77));
    view.grow((PAGES + 3) * PAGE).unwrap();
    view.copy((PAGES + 2) * PAGE, 78);
    view.sync(0, view.len()).unwrap();
    assert_eq!((view.word(8), view.word((PAGES + 2) * PAGE)), (77, 78));
    drop(view);
    assert!(trace() == before);
    // A damaged acknowledged group is reported, as when the pair is opened.
    let mut bytes = before[1].clone();
    bytes[8192 + (32 << 10) + 100] ^= 1; // group 5, the first one in the other half since the checkpoint
    std::fs::write(&journal_path, &bytes).unwrap();
    let opened = journal::view(File::open(&path).unwrap(), &path, &journal_path);
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
}
