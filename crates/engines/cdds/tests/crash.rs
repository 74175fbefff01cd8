//! Every state that a crash can leave of a small tree is opened and judged.

use crate::common::Sample;
use crate::common::subject::{Bytes, Work, lives, mixed};
use cdds::Inlined;
use cdds::{Order, Recovery, Sorted, Unsorted};
use crash::{Options, Report, by_tier, explore_all};
use index::Words;

/// Fewest states of the mixed runs, in the short tier and in a soak.
const FLOORS_MIXED: [u64; 2] = [48_500, 92_000];
/// The same of nodes without order.
const FLOORS_MIXED_UNSORTED: [u64; 2] = [32_300, 70_000];

fn bounds(cap: usize) -> Options {
    Options {
        cap,
        nested_cap: (cap / 2).min(8),
        samples: 8,
        line_cap: 64,
        violations_max: 1,
        ..Options::default()
    }
}

fn explore<S: Sample, O: Order>(name: &str, workloads: &[Work<S, O>], cap: usize) -> Report
where
    S::KeyBuf: Bytes,
    S::ValueBuf: Bytes,
{
    let report = explore_all(workloads, &bounds(cap));
    println!(
        "{} over {}, {name}: {} images at {} crash points ({} sampled), {} inside recovery",
        O::ENGINE,
        S::NAME,
        report.images,
        report.crash_points,
        report.sampled_points,
        report.nested_images
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
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    let report = explore::<Words, Sorted>("lives", &[lives(3, scan, 20), lives(2, lazy, 14)], 64);
    at_least(&[report], 6_000);
    let report = explore::<Words, Unsorted>("lives", &[lives(3, scan, 20), lives(2, lazy, 14)], 64);
    at_least(&[report], 5_700);
}

#[test]
fn byte_strings_survive_a_crash_anywhere() {
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    let report = explore::<Inlined, Sorted>("lives", &[lives(2, lazy, 12), lives(3, scan, 14)], 16);
    at_least(&[report], 7_500);
    let report = explore::<Inlined, Unsorted>("lives", &[lives(2, lazy, 12), lives(3, scan, 14)], 16);
    at_least(&[report], 7_200);
}

/// What `mixed` draws and `lives` does not: batches, marks, rollbacks, closes, kills; and steps cut short.
#[test]
fn mixed_operations_survive_a_crash_anywhere() {
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    let words = |name, workloads: &[Work<Words, Sorted>]| explore(name, workloads, by_tier(6, 64));
    let bytes = |name, workloads: &[Work<Inlined, Sorted>]| explore(name, workloads, by_tier(2, 16));
    let reports = [
        words("2 lines", &[mixed(1, 2, lazy, 120, 14, 0), mixed(2, 2, scan, 80, 14, 0)]),
        words("3 lines", &[mixed(3, 3, lazy, 120, 20, 0), mixed(4, 3, scan, 80, 20, 0)]),
        words("4 lines", &[mixed(5, 4, lazy, 120, 30, 0)]),
        words("cut", &[mixed(6, 2, lazy, 150, 14, 4), mixed(8, 3, scan, 80, 20, 4)]),
        bytes("2 lines", &[mixed(11, 2, lazy, 100, 14, 0)]),
        bytes("3 lines", &[mixed(13, 3, lazy, 100, 20, 0), mixed(14, 3, scan, 60, 20, 0)]),
        bytes("cut", &[mixed(16, 2, lazy, 120, 14, 4), mixed(17, 3, lazy, 120, 20, 4)]),
    ];
    at_least(&reports, by_tier(FLOORS_MIXED[0], FLOORS_MIXED[1]));
}

/// The same without order, with fewer steps.
#[test]
fn mixed_operations_without_order_survive_a_crash_anywhere() {
    let (lazy, scan) = (Recovery::Lazy, Recovery::Scan);
    let words = |name, workloads: &[Work<Words, Unsorted>]| explore(name, workloads, by_tier(6, 64));
    let bytes = |name, workloads: &[Work<Inlined, Unsorted>]| explore(name, workloads, by_tier(2, 16));
    let reports = [
        words("2 lines", &[mixed(1, 2, lazy, 80, 14, 0), mixed(2, 2, scan, 60, 14, 0)]),
        words("3 lines", &[mixed(3, 3, lazy, 80, 20, 0), mixed(4, 3, scan, 60, 20, 0)]),
        words("4 lines", &[mixed(5, 4, lazy, 100, 30, 0)]),
        words("cut", &[mixed(6, 2, lazy, 80, 14, 4), mixed(8, 3, scan, 60, 20, 4)]),
        bytes("2 lines", &[mixed(11, 2, lazy, 60, 14, 0)]),
        bytes("3 lines", &[mixed(13, 3, lazy, 60, 20, 0), mixed(14, 3, scan, 40, 20, 0)]),
        bytes("cut", &[mixed(16, 2, lazy, 60, 14, 4), mixed(17, 3, lazy, 60, 20, 4)]),
    ];
    at_least(&reports, by_tier(FLOORS_MIXED_UNSORTED[0], FLOORS_MIXED_UNSORTED[1]));
}
