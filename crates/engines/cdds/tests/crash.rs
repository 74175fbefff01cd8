//! Crash exploration of small trees: every state that a crash can leave is opened and judged.

use crate::common::subject::{LAZY, SCAN, Work, at_least, explore, lives, mixed, sizes};
use cdds::{Inlined, Order, Ordered, Sorted, Unsorted};
use crash::{Report, by_tier};
use index::Words;

/// Minimum number of states of the mixed runs, in the short tier and in a soak.
const FLOORS_MIXED: [u64; 2] = [48_500, 92_000];
/// The same for nodes without order.
const FLOORS_MIXED_UNSORTED: [u64; 2] = [32_300, 70_000];

/// This many images at a point, fewer inside recovery.
fn caps(cap: usize) -> (usize, usize) {
    (cap, (cap / 2).min(8))
}

#[test]
fn words_survive_a_crash_anywhere() {
    fn of<O: Order>(floor: u64) {
        let workloads = [lives(sizes(3, SCAN), 20), lives(sizes(2, LAZY), 14)];
        at_least(&[explore::<Ordered<Words, O>>("lives", &workloads, caps(64))], floor);
    }
    of::<Sorted>(6_000);
    of::<Unsorted>(5_700);
}

#[test]
fn byte_strings_survive_a_crash_anywhere() {
    fn of<O: Order>(floor: u64) {
        let workloads = [lives(sizes(2, LAZY), 12), lives(sizes(3, SCAN), 14)];
        at_least(&[explore::<Ordered<Inlined, O>>("lives", &workloads, caps(16))], floor);
    }
    of::<Sorted>(7_500);
    of::<Unsorted>(7_200);
}

/// Operations that `mixed` draws and `lives` does not: batches, marks, rollbacks, closes, kills, and interrupted steps. `steps`: steps per
/// workload.
fn explore_mixed<O: Order>(steps: [usize; 12]) -> [Report; 7] {
    let words = |name, workloads: &[Work<Ordered<Words, O>>]| explore(name, workloads, caps(by_tier(6, 64)));
    let bytes =
        |name, workloads: &[Work<Ordered<Inlined, O>>]| explore(name, workloads, caps(by_tier(2, 16)));
    let [a, b, c, d, e, f, g, h, i, j, k, l] = steps;
    [
        words("2 lines", &[mixed(1, sizes(2, LAZY), a, 14, 0), mixed(2, sizes(2, SCAN), b, 14, 0)]),
        words("3 lines", &[mixed(3, sizes(3, LAZY), c, 20, 0), mixed(4, sizes(3, SCAN), d, 20, 0)]),
        words("4 lines", &[mixed(5, sizes(4, LAZY), e, 30, 0)]),
        words("cut", &[mixed(6, sizes(2, LAZY), f, 14, 4), mixed(8, sizes(3, SCAN), g, 20, 4)]),
        bytes("2 lines", &[mixed(11, sizes(2, LAZY), h, 14, 0)]),
        bytes("3 lines", &[mixed(13, sizes(3, LAZY), i, 20, 0), mixed(14, sizes(3, SCAN), j, 20, 0)]),
        bytes("cut", &[mixed(16, sizes(2, LAZY), k, 14, 4), mixed(17, sizes(3, LAZY), l, 20, 4)]),
    ]
}

#[test]
fn mixed_operations_survive_a_crash_anywhere() {
    let reports = explore_mixed::<Sorted>([120, 80, 120, 80, 120, 150, 80, 100, 100, 60, 120, 120]);
    at_least(&reports, by_tier(FLOORS_MIXED[0], FLOORS_MIXED[1]));
}

/// The same test without order, with fewer steps.
#[test]
fn mixed_operations_without_order_survive_a_crash_anywhere() {
    let reports = explore_mixed::<Unsorted>([80, 60, 80, 60, 100, 80, 60, 60, 60, 40, 60, 60]);
    at_least(&reports, by_tier(FLOORS_MIXED_UNSORTED[0], FLOORS_MIXED_UNSORTED[1]));
}
