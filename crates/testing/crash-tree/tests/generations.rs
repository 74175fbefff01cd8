//! The redo log and a *wipe*, which clears all old records before a generation number repeats. Mutation runs show that every fence is
//! necessary.

use std::collections::BTreeSet;
use std::sync::Arc;

use crash::{Kind, Mutant, Options, Subject as _, explore_mutant};
use crash_tree::generations::{Change, Logged, around_a_wipe};
use pmem::log::Format;
use pmem::region::{GENERATION_AT, checked, unchecked};
use pmem::{Counter, Fence, Medium as _, Memory, Observed};

/// Words of a commit (see `ends_before_an_old_commit`).
const WORDS: u64 = 6;

/// Once, recovery did not repeat a wipe that a crash had prevented. After the first commit of the next generation with the same tag, the
/// log still held the old generation's second commit, complete, with the right tags and counts. Recovery replayed it over the new one.
#[test]
fn a_wipe_that_a_crash_prevented_is_done_by_recovery() {
    for format in [Format::Redo, Format::UndoRedo] {
        let medium = memory(&format);
        let mut logged = Logged::create(medium.clone(), &format).unwrap();
        let settled = || unchecked(medium.word(GENERATION_AT)).unwrap();
        let commit = |value| Change::Commit { words: WORDS, value };
        // Runs up to generation 8,190: all records of generation 4,097 except the first stay until the wipe.
        while settled() < 8190 {
            if settled() == 4096 {
                logged.apply(&commit(2)).unwrap();
                logged.apply(&commit(3)).unwrap();
            }
            logged.apply(&Change::Generations { generations: 1, value: 4 }).unwrap();
        }
        logged.apply(&Change::Commit { words: 1, value: 5 }).unwrap();
        // The generation is void, and the crash comes before the wipe of any record.
        medium.publish(GENERATION_AT, checked(8191));
        drop(logged);
        for value in [6, 7] {
            let mut logged = Logged::recover(medium.clone(), &format).unwrap();
            logged.apply(&commit(value)).unwrap();
            drop(logged);
            let found = Logged::recover(medium.clone(), &format).unwrap().verify().unwrap();
            let words = found.values().take(WORDS as usize);
            assert!(words.clone().all(|word| *word == value.to_be_bytes()), "{format:?}, {value}: {found:?}");
        }
    }
}

fn memory(format: &Format) -> Observed {
    let (len, capacity) = Logged::size(format);
    Observed::new(Memory::new(capacity, len), Arc::new(Counter::default()))
}

#[test]
fn no_fence_of_a_settling_can_be_left_out_around_a_wipe() {
    let options = Options {
        cap: 16_384,
        line_cap: 1024,
        nested_cap: 4,
        samples: 8,
        create: false,
        close: false,
        ..Options::default()
    };
    for format in [Format::Redo, Format::UndoRedo] {
        let (mut fences, mut missed) = (BTreeSet::new(), BTreeSet::new());
        for work in around_a_wipe(format) {
            let base = explore_mutant(&work, &options, None);
            assert!(!base.is_violated(), "{format:?}: {:?}", base.violations);
            let of_settling = |mutant: &&Mutant| mutant.kind == Kind::DropFence(Fence::Checkpoint);
            for mutant in base.mutants.iter().filter(of_settling) {
                fences.insert(mutant.to_string());
                if explore_mutant(&work, &options, Some(*mutant)).is_violated() {
                    missed.insert(mutant.to_string());
                }
            }
        }
        assert_eq!((fences.len(), &missed), (3, &fences), "{format:?}");
    }
}
