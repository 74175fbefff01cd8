//! This test measures the resident memory of a journal's image. It is the only test of its process, so the figures contain nothing else.

use pmem::journal::{MEMORY_MIN, Options};
use pmem::{Journal, Medium};

const PAGE: u64 = 4096;
/// Bytes of the region that are stored to: four times the bound.
const BYTES: u64 = 4 * MEMORY_MIN;
/// Memory beyond the bound: the program, the state of pages, and the contents that a checkpoint reads and sorts.
const BESIDES: u64 = 8 << 20;

/// Resident private bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn private_pages_stay_within_the_bound_however_little_of_each_page_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let data = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let options = Options { capacity_bytes: 64 << 20, max_bytes: 1 << 30 };
    let journal = Journal::create(data, &path, &folder.path().join("store.journal"), &options).unwrap();
    journal.bound_memory(MEMORY_MIN);
    journal.grow(BYTES).unwrap();
    let before = resident();
    let mut most = 0;
    for round in 1..=2 {
        for page in 0..BYTES / PAGE {
            // As an index does before each operation.
            let group = journal.group().unwrap();
            if group.lines + 8 > group.lines_max {
                journal.commit().unwrap();
                most = most.max(resident() - before);
            }
            journal.publish(page * PAGE + page % 64 * 64, round * page);
        }
        // Whole pages, too: 64 lines each.
        for word in 0..BYTES / 8 {
            if word % 512 == 0 {
                let group = journal.group().unwrap();
                if group.lines + 64 > group.lines_max {
                    journal.commit().unwrap();
                    most = most.max(resident() - before);
                }
            }
            journal.copy(word * 8, word ^ round << 32);
        }
    }
    journal.commit().unwrap();
    let taken = most.max(resident() - before) >> 20;
    println!("{} MiB stored to, bound {} MiB, {taken} MiB resident", BYTES >> 20, MEMORY_MIN >> 20);
    assert!(journal.activity().checkpoints > 4);
    assert!(taken << 20 <= MEMORY_MIN + BESIDES);
    assert!((0..BYTES / 8).all(|word| journal.word(word * 8) == word ^ 2 << 32));
}
