//! Discarded pages on real files: a checkpoint frees their blocks in the file system, and a page gets a block again before the next store
//! to it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pmem::journal::Options;
use pmem::{Journal, Medium};

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

fn open(path: &Path, journal_path: &Path) -> Journal {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Journal::open(file, path, journal_path, 1 << 30).unwrap().0
}

/// Holes among the region's first pages. (Bytes that the file got ahead and that were never written count as a hole after an open.)
fn holes(journal: &Journal) -> Vec<(u64, u64)> {
    let holes = journal.holes().into_iter();
    holes.filter(|(from, _)| *from < PAGES * PAGE).map(|(from, to)| (from, to.min(PAGES * PAGE))).collect()
}

fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn goes_back_and_comes_back(folder: &Path) {
    let (path, journal_path) = (folder.join("store"), folder.join("store.journal"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let options = Options { capacity_bytes: 1 << 20, max_bytes: 1 << 30 };
    let journal = Journal::create(file, &path, &journal_path, &options).unwrap();
    journal.grow(PAGES * PAGE).unwrap();
    let fill = |journal: &Journal, pages: std::ops::Range<u64>, value: u64| {
        pages.for_each(|page| (0..8).for_each(|i| journal.publish(page * PAGE + i * 8, value + page)));
    };
    fill(&journal, 0..PAGES, 1000);
    journal.commit().unwrap();
    journal.checkpoint_all().unwrap();
    let full = allocated(&path);

    // Half of the pages are discarded. `provide` takes a quarter of all pages back before the checkpoint.
    assert!(
        journal.discard(PAGES / 2 * PAGE, PAGES / 4 * PAGE)
            && journal.discard(PAGES / 4 * 3 * PAGE, PAGES / 4 * PAGE)
    );
    journal.publish(0, 7);
    journal.commit().unwrap();
    assert_eq!((allocated(&path), holes(&journal)), (full, Vec::new()), "before the checkpoint");
    journal.provide(PAGES / 2 * PAGE, PAGES / 4 * PAGE).unwrap();
    journal.checkpoint_all().unwrap();
    let hole = (PAGES / 4 * 3 * PAGE, PAGES * PAGE);
    assert_eq!(holes(&journal), [hole]);
    assert_eq!(full - allocated(&path), PAGES / 4 * PAGE);
    let value = |journal: &Journal, page: u64| journal.word(page * PAGE + 56);
    let all = |journal: &Journal, pages: std::ops::Range<u64>, expected: &dyn Fn(u64) -> u64| {
        pages.for_each(|page| assert_eq!(value(journal, page), expected(page), "page {page}"));
    };
    all(&journal, 0..PAGES / 4 * 3, &|page| 1000 + page);
    all(&journal, PAGES / 4 * 3..PAGES, &|_| 0);
    drop(journal);

    let journal = open(&path, &journal_path);
    assert_eq!(
        (holes(&journal), full - allocated(&path)),
        (vec![hole], PAGES / 4 * PAGE),
        "reading takes no block"
    );
    all(&journal, PAGES / 4 * 3..PAGES, &|_| 0);
    assert_eq!(full - allocated(&path), PAGES / 4 * PAGE);
    journal.provide(hole.0, 8 * PAGE).unwrap();
    assert_eq!(holes(&journal), [(hole.0 + 8 * PAGE, hole.1)]);
    fill(&journal, PAGES / 4 * 3..PAGES / 4 * 3 + 8, 5000);
    journal.commit().unwrap();
    drop(journal);

    // The groups are replayed over the hole that was filled.
    let journal = open(&path, &journal_path);
    all(&journal, 0..PAGES / 4 * 3, &|page| 1000 + page);
    all(&journal, PAGES / 4 * 3..PAGES / 4 * 3 + 8, &|page| 5000 + page);
    assert_eq!(full - allocated(&path), (PAGES / 4 - 8) * PAGE);
    // All pages but the first, by a close.
    assert!(journal.discard(PAGE, journal.len() - PAGE));
    journal.commit().unwrap();
    journal.close().unwrap();
    assert!(allocated(&path) <= 16 * PAGE, "{} bytes", allocated(&path));
    drop(journal);
    let journal = open(&path, &journal_path);
    assert_eq!(journal.word(0), 7);
    all(&journal, PAGES - 8..PAGES, &|_| 0);
}

#[test]
fn discarded_pages_leave_the_data_file_with_the_checkpoint_and_have_blocks_again_before_they_are_stored_to() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        goes_back_and_comes_back(tempfile::tempdir_in(memory).unwrap().path());
    }
    goes_back_and_comes_back(tempfile::tempdir().unwrap().path());
}
