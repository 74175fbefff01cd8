//! Real files: a checkpoint thread and readers beside a writer, and the state that a later open finds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pmem::journal::{MEMORY_MIN, Options, Replay};
use pmem::{Error, Journal, Medium};

use crash::{Fault, Machine, Survivors, Which};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
/// Number of words of each page that readers read.
const HOT: u64 = 4;

fn options() -> Options {
    Options { capacity_bytes: 64 << 10, max_bytes: 64 << 20 }
}

fn files(folder: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    (folder.join("store"), folder.join("store.journal"))
}

fn locked(path: &Path, how: &mut std::fs::OpenOptions) -> pmem::Result<std::fs::File> {
    let file = how.read(true).write(true).open(path).unwrap();
    pmem::file::lock(&file, path)?;
    Ok(file)
}

/// Creates the files as a store does.
fn create(path: &Path, journal_path: &Path, options: &Options) -> pmem::Result<Journal> {
    let data = locked(path, std::fs::File::options().create(true).truncate(false))?;
    Journal::create(data, path, journal_path, options)
}

fn open(path: &Path, journal_path: &Path, max_bytes: u64) -> pmem::Result<(Journal, Replay)> {
    Journal::open(locked(path, &mut std::fs::File::options())?, path, journal_path, max_bytes)
}

/// Ends the loops of the other threads, also after a failed assertion.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A writer that only increases words, with one group after the other; readers that must never see a word decrease; a thread that makes
/// checkpoints. A page that is dropped too early, or with an uncommitted store in it, would show older words.
#[test]
fn readers_beside_a_writer_and_a_checkpoint_thread_never_see_a_word_fall() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.bound_memory(MEMORY_MIN); // no page is kept after its checkpoint
    journal.grow(PAGES * PAGE).unwrap();
    let done = AtomicBool::new(false);
    let (looks, rises) = (AtomicU64::new(0), AtomicU64::new(0));
    let checkpoints = AtomicU64::new(0);
    let dropped = AtomicU64::new(0);
    let mut expected = vec![0; (PAGES * PAGE / 8) as usize];
    let mut rng = fastrand::Rng::with_seed(11);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (journal, done, looks, rises) = (&journal, &done, &looks, &rises);
            scope.spawn(move || {
                let _ends = Ends(done);
                let mut rng = fastrand::Rng::with_seed(reader);
                // Few words, so that readers read each of them between any two steps of the other threads.
                let mut seen = vec![0; (PAGES * HOT) as usize];
                while !done.load(Ordering::Acquire) {
                    let i = rng.usize(..seen.len());
                    let word = i as u64 / HOT * 512 + i as u64 % HOT;
                    let now = journal.word(word * 8);
                    assert!(now >= seen[i], "word {word} fell to {now}");
                    rises.fetch_add(u64::from(now > seen[i]), Ordering::Relaxed);
                    seen[i] = now;
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let _ends = Ends(&done);
            while !done.load(Ordering::Acquire) {
                if journal.wait_until_due(Duration::from_millis(20)).unwrap()
                    && let Some(checkpoint) = journal.checkpoint().unwrap()
                {
                    checkpoints.fetch_add(1, Ordering::Relaxed);
                    dropped.fetch_add(checkpoint.pages_dropped, Ordering::Relaxed);
                }
            }
        });
        let _ends = Ends(&done);
        let mut value = 0;
        for group in 1..=600 {
            // Groups change few lines of few pages and move on to other pages. So pages become idle and are dropped.
            for _ in 0..rng.u64(1..60) {
                let page = (group / 8 * 7 + rng.u64(..6)) % PAGES;
                let word = page * 512 + if rng.bool() { rng.u64(..HOT) } else { rng.u64(..512) };
                value += 1;
                expected[word as usize] = value;
                journal.publish(word * 8, value);
            }
            assert_eq!(journal.commit().unwrap(), group);
            let same = |word: &usize| journal.word(*word as u64 * 8) == expected[*word];
            assert!((0..expected.len()).all(|word| same(&word)), "group {group}");
        }
    });
    println!(
        "{looks:?} looks, {rises:?} rises, {checkpoints:?} checkpoints beside the writer, {dropped:?} pages given up"
    );
    assert!(looks.into_inner() > 0 && rises.into_inner() > 0);
    assert!(checkpoints.into_inner() > 0 && dropped.into_inner() > 0);
    drop(journal);
    let (journal, replay) = open(&path, &journal_path, 64 << 20).unwrap();
    assert_eq!(replay.newest, 600);
    assert!(replay.groups > 0);
    for (word, value) in expected.iter().enumerate() {
        assert_eq!(journal.word(word as u64 * 8), *value);
    }
}

/// A word is a lower bound of another word and is stored after it. So a rollback must undo it first.
#[test]
fn a_roll_back_takes_the_last_line_back_first() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.bound_memory(MEMORY_MIN); // no page is kept after its checkpoint
    journal.grow(PAGES * PAGE).unwrap();
    let (behind, done, seen) = (200 * 64, AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let (before, word, after) = (journal.word(behind), journal.word(0), journal.word(behind));
                if before == after && before > 0 {
                    assert_eq!(word, before, "the older line went back first");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let _ends = Ends(&done);
        // On a busy machine the reader may start late.
        for value in (1..).take_while(|value| *value <= 20_000 || seen.load(Ordering::Relaxed) == 0) {
            // The lines in between make the rollback long. No value is stored twice, so an equal value was there throughout.
            for at in (0..=behind).step_by(64) {
                journal.publish(at, value);
            }
            journal.roll_back();
            if reader.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    println!("{} looks at both", seen.into_inner());
}

#[test]
fn whole_checkpoints_give_up_pages_that_keep_their_bytes_and_leave_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.bound_memory(MEMORY_MIN); // no page is kept after its checkpoint
    journal.grow(PAGES * PAGE).unwrap();
    let mut dropped = 0;
    for round in 1..=200 {
        // Eight pages for a while, then eight others. The former ones can be dropped.
        let pages = (0..8).map(|i| round / 25 % 8 * 8 + i);
        let at = |page| page * PAGE + round % 50 * 64 + 64;
        for page in pages.clone() {
            journal.publish(at(page), round * 1000 + page);
        }
        journal.commit().unwrap();
        // A store of the next group. Its page is not dropped, and the checkpoint does not write the store.
        journal.publish(5 * PAGE + 8, round);
        dropped += journal.checkpoint().unwrap().map_or(0, |checkpoint| checkpoint.pages_dropped);
        for page in pages {
            assert_eq!(journal.word(at(page)), round * 1000 + page);
        }
        assert_eq!(journal.word(5 * PAGE + 8), round);
    }
    println!("{dropped} pages given up");
    assert!(dropped > 20);
    journal.checkpoint_all().unwrap();
    assert_eq!(journal.word(5 * PAGE + 8), 200);
    drop(journal);
    let (journal, replay) = open(&path, &journal_path, 64 << 20).unwrap();
    assert_eq!((replay.groups, replay.lines, replay.bytes, replay.newest), (0, 0, 0, 200));
    // The running store of the last round was never committed. The previous one was committed with the last round's group.
    assert_eq!(journal.word(5 * PAGE + 8), 199);
    assert_eq!((journal.len(), journal.word(7 * PAGE + 64)), (PAGES * PAGE, 200_007));
}

#[test]
fn files_are_made_once_opened_by_one_and_refused_without_their_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    for capacity_bytes in [0, (16 << 10) - 1, (1 << 30) + 1] {
        let options = Options { capacity_bytes, max_bytes: 1 << 20 };
        assert!(matches!(create(&path, &journal_path, &options), Err(Error::Durability(_))));
    }
    // A journal without a store is overwritten.
    std::fs::write(&journal_path, [7; 100]).unwrap();
    let journal = create(&path, &journal_path, &options()).unwrap();
    assert!(matches!(create(&path, &journal_path, &options()), Err(Error::Locked { .. })));
    assert!(matches!(open(&path, &journal_path, 1 << 20), Err(Error::Locked { .. })));
    assert!(matches!(journal.grow((64 << 20) + 1), Err(Error::Full { .. })));
    journal.grow(1 << 20).unwrap();
    for word in 0..journal.group_lines_max() * 8 {
        journal.copy(word * 8, word / 8 + 1);
    }
    assert_eq!(journal.commit().unwrap(), 1);
    assert!(!journal.has_failed());
    drop(journal);
    let moved = folder.path().join("moved");
    std::fs::rename(&journal_path, &moved).unwrap();
    let refused = open(&path, &journal_path, 1 << 20).unwrap_err();
    assert!(matches!(refused, Error::Journal { why: "is missing", .. }), "{refused}");
    let (journal, replay) = open(&path, &moved, 1 << 20).unwrap();
    assert_eq!((replay.groups, replay.newest), (1, 1));
    assert_eq!(journal.word(100 * 64), 101);
}

#[test]
fn a_group_that_is_larger_than_a_half_goes_through_an_annex_that_is_there_as_long_as_its_generation() {
    const HALF: u64 = 32 << 10;
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.grow(1 << 20).unwrap();
    let bytes = || std::fs::metadata(&journal_path).unwrap().len();
    let store = |value: u64| {
        (0..1 << 17).for_each(|word| journal.copy(word * 8, value.wrapping_mul(word | 1)));
        journal.commit().unwrap();
    };
    assert_eq!(bytes(), journal.file_bytes());
    store(0x9E37_79B9_7F4A_7C15);
    assert!(bytes() > journal.file_bytes() + (1 << 20) && journal.activity().waiting_bytes == 512);
    // Small groups follow in the same half, until its generation is checkpointed. Then the file is short again.
    for value in 1.. {
        journal.publish(8, value);
        journal.commit().unwrap();
        assert_eq!(pmem::journal::capacity_of(&journal_path), Some(2 * HALF));
        if journal.checkpoint().unwrap().is_some() {
            assert!(value > HALF / 512 - 2, "{value}");
            break;
        }
    }
    assert_eq!(bytes(), journal.file_bytes());
    // One large group after the other: each waits until the previous one is checkpointed.
    (1..6).for_each(|value| store(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(value)));
    let groups = journal.newest();
    drop(journal);
    let left = pmem::journal::look(std::fs::File::open(&path).unwrap(), &path, &journal_path).unwrap();
    let value = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(5);
    assert!(left.journal_is_whole && left.image.word(8 * 1001) == value.wrapping_mul(1001));
    let (journal, replay) = open(&path, &journal_path, 1 << 20).unwrap();
    assert_eq!((replay.newest, bytes()), (groups, journal.file_bytes()));
    assert!((0..1 << 17).all(|word| journal.word(word * 8) == value.wrapping_mul(word | 1)));
}

#[test]
fn a_disk_without_space_for_a_large_group_refuses_it_and_takes_smaller_ones() {
    let mut refused = 0;
    for call in 1..6 {
        let machine = Machine::new(5);
        let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        let journal = Journal::create_on(data, journal, [1, 2], &options()).unwrap();
        journal.grow(1 << 18).unwrap();
        (0..1 << 15).for_each(|word| journal.copy(word * 8, u64::MAX));
        machine.fail_at(machine.calls() + call, Fault::NoSpace);
        let outcome = journal.commit();
        if !matches!(outcome, Err(Error::NoSpace { .. })) {
            continue; // not the call that allocates
        }
        refused += 1;
        journal.roll_back();
        assert_eq!(journal.word(800), 0);
        journal.publish(800, 7);
        assert_eq!(journal.commit().unwrap(), 1);
        let machine = machine.after_power_cut(Survivors::None);
        let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        let (journal, _) = Journal::open_on(data, journal, 64 << 20).unwrap();
        assert_eq!([800, 808].map(|at| journal.word(at)), [7, 0]);
    }
    assert_eq!(refused, 1);
}

#[test]
fn what_is_left_can_be_looked_at_with_its_groups_and_without_them_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.bound_memory(MEMORY_MIN); // no page is kept after its checkpoint
    journal.grow(PAGES * PAGE).unwrap();
    for value in 1..4 {
        journal.publish(9 * PAGE, value);
        journal.publish(value * PAGE, value);
        journal.commit().unwrap();
    }
    journal.publish(9 * PAGE, 7);
    drop(journal);
    let before = [&path, &journal_path].map(|path| std::fs::read(path).unwrap());
    let look = || {
        let left = pmem::journal::look(std::fs::File::open(&path).unwrap(), &path, &journal_path).unwrap();
        let image = left.image;
        image.copy(0, 5);
        let words = [image.len(), image.word(9 * PAGE), image.word(PAGE), image.word(3 * PAGE)];
        (words, left.journal_is_whole, left.missing_bytes)
    };
    assert_eq!(look(), ([PAGES * PAGE, 3, 1, 3], true, 0));
    // The data file is truncated. The journal has everything that was stored to it.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(PAGE + 4 * PAGE + 100).unwrap();
    assert_eq!(look(), ([PAGES * PAGE, 3, 1, 3], true, (PAGES - 4) * PAGE));
    std::fs::write(&path, &before[0]).unwrap();
    // The page that pairs the files is damaged. The journal still counts.
    let mut unpaired = before[0].clone();
    unpaired[20] ^= 1;
    std::fs::write(&path, &unpaired).unwrap();
    assert_eq!(look(), ([PAGES * PAGE, 3, 1, 3], true, 0));
    std::fs::write(&path, &before[0]).unwrap();
    assert_eq!(before, [&path, &journal_path].map(|path| std::fs::read(path).unwrap()));
    // The third group is torn. The image has the first two groups.
    let mut torn = before[1].clone();
    let third = 8192 + 2 * 512 + 50;
    torn[third] ^= 1;
    std::fs::write(&journal_path, &torn).unwrap();
    assert_eq!(look(), ([PAGES * PAGE, 2, 1, 0], true, 0));
    // The second group is damaged, and a third one follows.
    let mut damaged = before[1].clone();
    damaged[third - 512] ^= 1;
    std::fs::write(&journal_path, &damaged).unwrap();
    assert_eq!(look(), ([PAGES * PAGE, 1, 1, 0], false, 0));
    std::fs::remove_file(&journal_path).unwrap();
    assert_eq!(look(), ([PAGES * PAGE, 0, 0, 0], false, 0));
}

#[test]
fn a_group_takes_what_it_changed_and_a_generation_is_left_before_it_is_in_too_many_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let options = Options { capacity_bytes: 64 << 10, max_bytes: 64 << 20 };
    let journal = create(&path, &journal_path, &options).unwrap();
    journal.grow(8 << 20).unwrap();
    // 28 lines with one changed word each fit into a sector. So the number of pages (460 at most) ends a generation, not its 64 sectors.
    let (pages_max, mut value) = (journal.group_lines_max(), 0);
    assert_eq!(pages_max, 460);
    let mut generations = Vec::new();
    for group in 0..60 {
        for _ in 0..28 {
            value += 1;
            journal.publish(value * PAGE + 64 * (value % 64), value);
        }
        let before = journal.activity().waiting_bytes;
        journal.commit().unwrap();
        assert_eq!(journal.activity().waiting_bytes, before + 512);
        if journal.checkpoint().unwrap().is_some() {
            generations.push(group);
        }
    }
    // 460 / 28 = 16 groups per generation: the 17th begins the next one.
    assert_eq!(generations, [16, 32, 48]);
    drop(journal);
    let (journal, _) = open(&path, &journal_path, 64 << 20).unwrap();
    for value in 1..=value {
        assert_eq!(journal.word(value * PAGE + 64 * (value % 64)), value);
    }
}

#[test]
fn holes_of_the_journal_get_blocks_when_it_is_opened_and_those_of_the_data_file_before_they_are_stored_to() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let folder = tempfile::tempdir().unwrap();
    let (path, journal_path) = files(folder.path());
    let journal = create(&path, &journal_path, &options()).unwrap();
    journal.bound_memory(MEMORY_MIN); // no page is kept after its checkpoint
    journal.grow(PAGES * PAGE).unwrap();
    journal.publish(9 * PAGE, 3);
    journal.commit().unwrap();
    drop(journal);
    for path in [&path, &journal_path] {
        let bytes = std::fs::read(path).unwrap();
        let copy = std::fs::File::create(path).unwrap();
        copy.set_len(bytes.len() as u64).unwrap();
        for (page, content) in bytes.chunks(PAGE as usize).enumerate() {
            if content.iter().any(|byte| *byte != 0) {
                copy.write_all_at(content, page as u64 * PAGE).unwrap();
            }
        }
    }
    let allocated = |path: &Path| {
        let meta = path.metadata().unwrap();
        meta.blocks() * 512 >= meta.len()
    };
    assert!(!allocated(&path) && !allocated(&journal_path));
    let (journal, _) = open(&path, &journal_path, 1 << 20).unwrap();
    assert!(!allocated(&path) && allocated(&journal_path));
    assert_eq!((journal.len(), journal.word(9 * PAGE)), (PAGES * PAGE, 3));
    assert_eq!(journal.holes(), [(0, 9 * PAGE), (10 * PAGE, PAGES * PAGE)]);
    let stored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| journal.publish(8 * PAGE, 4)));
    assert!(stored.is_err(), "a store to a hole ends in a panic, not in a signal");
    journal.provide(0, journal.len()).unwrap();
    assert!(allocated(&path) && journal.holes().is_empty());
    journal.publish(8 * PAGE, 4);
    journal.commit().unwrap();
    journal.checkpoint_all().unwrap();
    assert_eq!((journal.word(8 * PAGE), journal.word(9 * PAGE)), (4, 3));
}
