//! Every state that a crash can leave of a small index is opened and judged.

mod common;

use common::Sample;
use common::subject::{Work, lives, mixed, sizes};
use crash::{Options, Report, explore_all};
use tree::{Fixed, Keyed, Prefixed, Words};

fn bounds(cap: usize) -> Options {
    Options { cap, nested_cap: 8, samples: 8, line_cap: 64, violations_max: 1, ..Options::default() }
}

fn explore<S: Sample>(name: &str, workloads: &[Work<S>], cap: usize) -> Report {
    let report = explore_all(workloads, &bounds(cap));
    println!(
        "{name}: {} images at {} crash points ({} sampled), {} inside recovery",
        report.images, report.crash_points, report.sampled_points, report.nested_images
    );
    assert!(!report.is_violated(), "{report}");
    report
}

/// Enough to be sure that nothing stopped testing; may only be raised.
fn at_least(reports: &[Report], floor: u64) {
    let states: u64 = reports.iter().map(|report| report.images + report.nested_images).sum();
    println!("{states} states");
    assert!(states >= floor, "{states} states, {floor} were explored before");
}

#[test]
fn words_survive_a_crash_anywhere() {
    let report = explore::<Words>("lives", &[lives(sizes(2, false), 24)], 64);
    at_least(&[report], 3_800);
}

#[test]
fn byte_strings_survive_a_crash_anywhere() {
    let report = explore::<Keyed>("lives", &[lives(sizes(2, false), 16)], 32);
    at_least(&[report], 4_900);
}

#[test]
fn wide_values_survive_a_crash_anywhere() {
    let report = explore::<Fixed>("lives", &[lives(sizes(3, false), 16)], 64);
    at_least(&[report], 3_100);
}

/// What `mixed` draws and `lives` does not: rebuilds, closes, kills; and steps cut short.
#[test]
fn mixed_operations_survive_a_crash_anywhere() {
    let of = |lines| sizes(lines, false);
    let reports = [
        explore::<Words>("2 lines", &[mixed(1, of(2), 140, 16, 0), mixed(2, of(2), 140, 10, 0)], 64),
        explore::<Words>("3 lines", &[mixed(3, of(3), 140, 30, 0), mixed(4, of(3), 140, 20, 0)], 64),
        explore::<Words>("cut", &[mixed(6, of(2), 140, 16, 4), mixed(8, of(3), 140, 24, 4)], 64),
        explore::<Fixed>("3 lines", &[mixed(9, of(3), 100, 16, 0), mixed(10, of(3), 100, 16, 4)], 64),
        explore::<Keyed>("2 lines", &[mixed(11, of(2), 100, 16, 0), mixed(12, of(2), 100, 16, 0)], 32),
        explore::<Prefixed>("3 lines", &[mixed(13, of(3), 100, 24, 0), mixed(14, of(3), 90, 16, 4)], 32),
        explore::<Keyed>("cut", &[mixed(16, of(2), 120, 16, 4), mixed(17, of(3), 100, 20, 4)], 32),
    ];
    at_least(&reports, 400_000);
}
