//! The report counts everything that is not explored, and an exploration depends only on its seed.

use std::time::Duration;

use crate::toys::{Flaw, List, ListConfig, Pair, Push, Set};
use crash::{Contents, Options, Report, Subject, Workload, explore, interrupted, random, sequences};
use pmem::{Fence, LINE, Medium, Observed};

fn torn(words: u64) -> Workload<List> {
    // Entries that are not flushed, so each line stays open. The flaw does not matter here, only the number of images.
    let config = ListConfig { trusts_length: false, unflushed: true, words };
    Workload::new(config, (1..=3).map(Push))
}

fn run(workload: &Workload<List>, options: &Options) -> Report {
    let mut report = explore(workload, options);
    report.elapsed = Duration::ZERO;
    report
}

#[test]
fn a_crash_point_beyond_the_cap_is_sampled_and_counted() {
    let all = Options { violations_max: usize::MAX, ..Options::default() };
    let full = run(&torn(4), &all);
    assert_eq!(full.sampled_points, 0, "{full}");
    let worst = full.worst.expect("some crash point").images;
    assert!(worst > 16, "{full}");

    let capped = run(&torn(4), &Options { cap: 10, samples: 5, ..all.clone() });
    assert!(capped.sampled_points >= 1, "{capped}");
    assert_eq!(capped.worst.expect("some crash point").images, 10 + 5);
    assert!(capped.images < full.images && capped.crash_points == full.crash_points);

    let exact = run(&torn(4), &Options { cap: worst as usize, samples: 5, ..all });
    assert_eq!(exact.sampled_points, 0, "exactly the cap is not beyond it");
}

#[test]
fn a_line_beyond_its_cap_is_counted() {
    let all = Options { violations_max: usize::MAX, line_cap: 16, ..Options::default() };
    assert_eq!(run(&torn(4), &all).capped_lines, 0);
    assert!(run(&torn(5), &all).capped_lines > 0);
}

#[test]
fn the_same_seed_explores_the_same_images_and_another_seed_others() {
    let options =
        |seed| Options { seed, cap: 4, samples: 20, violations_max: usize::MAX, ..Options::default() };
    let first = run(&torn(6), &options(7));
    assert_eq!(first, run(&torn(6), &options(7)));
    let other = run(&torn(6), &options(8));
    assert_eq!(first.images, other.images);
    let choices = |report: &Report| report.violations.iter().map(|v| v.crash.clone()).collect::<Vec<_>>();
    assert_ne!(choices(&first), choices(&other));
}

#[test]
fn cut_steps_depend_on_the_seed_alone() {
    let mut workload = Workload::<Pair>::new(Flaw::None, []);
    workload.steps = interrupted(1, 2, random(1, 50, |rng| Set(rng.u64(1..9), rng.u64(1..9))));
    let run = |seed| {
        let mut report = explore(&workload, &Options { seed, ..Options::default() });
        report.elapsed = Duration::ZERO;
        assert_eq!(report.violations, []);
        report
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).images, run(2).images);
}

#[test]
fn sequences_are_all_there_once() {
    let all: Vec<Vec<u8>> = sequences(&[0_u8, 1, 2], 2).collect();
    assert_eq!(all.len(), 9);
    assert_eq!((&all[0], &all[1], &all[3], &all[8]), (&vec![0, 0], &vec![0, 1], &vec![1, 0], &vec![2, 2]));
    assert_eq!(sequences(&[0_u8, 1], 0).collect::<Vec<_>>(), [Vec::<u8>::new()]);
}

/// One word in each of several lines, stored together. A crash point with n lines has 2^n images.
struct Flags(Observed);

impl Subject for Flags {
    type Op = u64;
    type Config = u64;

    fn size(lines: &u64) -> (u64, u64) {
        (lines * LINE, lines * LINE)
    }
    fn create(medium: Observed, _: &u64) -> Result<Self, String> {
        Ok(Self(medium))
    }
    fn recover(medium: Observed, _: &u64) -> Result<Self, String> {
        Ok(Self(medium))
    }
    fn apply(&mut self, value: &u64) -> Result<(), String> {
        (0..self.0.len()).step_by(LINE as usize).for_each(|line| self.0.publish(line, *value));
        self.0.flush(0, self.0.len());
        self.0.fence(Fence::Commit);
        Ok(())
    }
    fn apply_model(_: &u64, _: &mut Contents) {}
    fn verify(&self) -> Result<Contents, String> {
        (0..self.0.len()).step_by(LINE as usize).for_each(|line| _ = self.0.word(line));
        Ok(Contents::new())
    }
    fn continuation(_: &u64) -> Vec<u64> {
        Vec::new()
    }
    fn close(self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_crash_point_far_beyond_the_cap_is_given_up_early() {
    let explored = |lines, cap| {
        let report =
            explore(&Workload::<Flags>::new(lines, [1]), &Options { cap, samples: 50, ..Options::default() });
        assert!(!report.is_violated(), "{report}");
        (report.worst.expect("some crash point").images, report.sampled_points)
    };
    assert_eq!(explored(8, 300), (256, 0));
    assert_eq!(explored(9, 300), (300 + 50, 1), "not far beyond: up to the cap");
    assert_eq!(explored(10, 300), (256 + 50, 1));
    assert_eq!(explored(10, 1024), (1024 + 50, 0), "samples tell nothing new where all is explored");
    assert_eq!(explored(14, 4096), (256 + 50, 1));
}

/// An image that recall skips would have had the same verdict.
#[test]
fn what_is_recalled_is_what_would_have_been_found() {
    let flaws = [
        Flaw::None,
        Flaw::NoHomeFenceInRecovery,
        Flaw::NoLastFenceInRecovery,
        Flaw::RecoveryAddsUp,
        Flaw::RecoveryLeavesLog,
        Flaw::RecoveryForgetsTwins,
        Flaw::BreaksLater,
    ];
    let (mut recalled, mut violations) = (0, 0);
    for flaw in flaws {
        for ops in sequences(&crate::toys::ALPHABET, 2) {
            let workload = Workload::<Pair>::new(flaw, ops);
            let all = Options { violations_max: usize::MAX, ..Options::default() };
            let with = explore(&workload, &all);
            let mut without = explore(&workload, &Options { recall: false, ..all });
            assert_eq!(without.nested_recalled, 0);
            (without.nested_recalled, without.elapsed) = (with.nested_recalled, with.elapsed);
            assert_eq!(with, without, "{flaw:?}");
            recalled += with.nested_recalled;
            violations += with.violations.len();
        }
    }
    assert!(recalled > 1000 && violations > 100, "{recalled} recalled, {violations} violations");
}
