//! The log around a wipe: every fence is needed.

use std::collections::BTreeSet;

use crash::{Kind, Mutant, Options, explore_mutant};
use crash_tree::laps::around_a_wipe;
use pmem::Fence;
use pmem::log::Format;

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
