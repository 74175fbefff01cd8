//! Crash exploration of small hash tables: every state that a crash can leave is opened and judged.
//!
//! In addition to the table's own check, a walk and lookups must agree, and a second recovery must store nothing.

use crate::common::Sample;
use crate::common::subject::{LAZY, Op, SCAN, Sizes, Work, at_least, explore, lives, mixed, sizes};
use cdds::Recovery;
use cdds::hash::Hashed;
use crash::by_tier;
use index::{Keyed, Words};

/// Minimum number of states of the mixed runs, in the short tier and in a soak.
const FLOORS_MIXED: [u64; 2] = [85_000, 98_000];

/// Number of images at a point inside recovery.
const NESTED: usize = 8;

#[test]
fn words_survive_a_crash_anywhere() {
    let report = explore::<Hashed<Words>>(
        "lives",
        &[lives(sizes(3, SCAN), 30), lives(sizes(2, LAZY), 20)],
        (64, NESTED),
    );
    at_least(&[report], 6_100);
}

#[test]
fn byte_strings_survive_a_crash_anywhere() {
    let report = explore::<Hashed<Keyed>>(
        "lives",
        &[lives(sizes(2, LAZY), 16), lives(sizes(3, SCAN), 20)],
        (16, NESTED),
    );
    at_least(&[report], 7_900);
}

/// Values in pieces are written and freed, also by batches and rollbacks.
#[test]
fn values_in_pieces_survive_a_crash_anywhere() {
    let large = |key| Op::Put(key, 11_000 + key);
    let back = vec![(0, None), (1, Some(11_001)), (2, Some(11_002)), (3, None)];
    let ops = vec![
        large(1),
        large(2),
        Op::Mark,
        large(3),
        Op::Put(1, 5),
        Op::Back(back),
        Op::Release,
        Op::Batch(vec![(2, None), (4, Some(12_000)), (4, Some(13_000)), (1, Some(7))]),
        Op::CollectAll,
        Op::Delete(4),
        Op::CollectAll,
    ];
    let report = explore::<Hashed<Keyed>>("pieces", &[Work::new(sizes(2, LAZY), ops)], (16, NESTED));
    at_least(&[report], 4_000);
}

#[test]
fn with_a_fence_around_each_flush_it_survives_too() {
    let faithful = |lines, recovery| Sizes { faithful: true, ..sizes(lines, recovery) };
    let words = explore::<Hashed<Words>>("words", &[lives(faithful(2, LAZY), 14)], (64, NESTED));
    let bytes = explore::<Hashed<Keyed>>("bytes", &[mixed(21, faithful(2, SCAN), 75, 12, 0)], (16, NESTED));
    at_least(&[words, bytes], 9_400);
}

/// Batches in write groups of a few blocks, over a table that must grow for them and over one that need not. Refused batches, whose write
/// groups are rolled back. Conditions. A clear, with a kept version and without.
fn together<S: Sample>(recovery: Recovery) -> Work<Hashed<S>> {
    let all = |from: u32, to: u32, value| (from..to).map(|key| (key, Some(value + key))).collect::<Vec<_>>();
    let gone = |from: u32, to: u32| (from..to).map(|key| (key, None)).collect::<Vec<_>>();
    let ops = vec![
        Op::Batch(all(0, 9, 10)),
        Op::Mark,
        Op::Batch([all(6, 10, 20), gone(0, 2)].concat()),
        Op::Back([all(0, 2, 10), all(6, 9, 10), gone(9, 10)].concat()),
        Op::Release,
        Op::If(all(2, 6, 40), vec![(3, Some(13)), (9, None)]),
        // Only a byte string can lack space.
        if S::PLAIN { Op::Kill } else { Op::Refused([all(0, 4, 5), gone(7, 9)].concat()) },
        Op::Put(3, 3),
        Op::CollectAll,
        Op::Mark,
        Op::Clear,
        Op::Batch(all(1, 4, 2)),
        Op::Release,
        Op::Clear,
        Op::Put(5, 5),
        Op::CollectAll,
        Op::Batch(all(3, 6, 1)),
    ];
    Work::new(Sizes { capacity: 96 << 10, ..sizes(3, recovery) }, ops)
}

#[test]
fn batches_in_groups_and_clearing_survive_a_crash_anywhere() {
    let words = explore::<Hashed<Words>>("words", &[together(LAZY), together(SCAN)], (32, NESTED));
    let bytes = explore::<Hashed<Keyed>>("bytes", &[together(LAZY)], (64, NESTED));
    at_least(&[words, bytes], 28_900);
}

/// Operations that `mixed` draws and `lives` does not: updates, batches, marks, rollbacks, closes, kills, and interrupted steps.
#[test]
fn mixed_operations_survive_a_crash_anywhere() {
    let of = sizes;
    let reports = [
        explore::<Hashed<Words>>(
            "2 lines",
            &[mixed(1, of(2, LAZY), 250, 20, 0), mixed(2, of(2, SCAN), 160, 20, 0)],
            (by_tier(12, 64), NESTED),
        ),
        explore::<Hashed<Words>>(
            "3 lines",
            &[mixed(3, of(3, LAZY), 250, 30, 0), mixed(4, of(3, SCAN), 160, 30, 0)],
            (by_tier(12, 64), NESTED),
        ),
        explore::<Hashed<Words>>("4 lines", &[mixed(5, of(4, LAZY), 250, 40, 0)], (by_tier(12, 64), NESTED)),
        explore::<Hashed<Words>>(
            "cut",
            &[mixed(6, of(2, LAZY), 250, 20, 4), mixed(8, of(3, SCAN), 160, 24, 4)],
            (by_tier(12, 64), NESTED),
        ),
        explore::<Hashed<Keyed>>("2 lines", &[mixed(11, of(2, LAZY), 200, 18, 0)], (by_tier(4, 16), NESTED)),
        explore::<Hashed<Keyed>>(
            "3 lines",
            &[mixed(13, of(3, LAZY), 200, 24, 0), mixed(14, of(3, SCAN), 130, 24, 0)],
            (by_tier(4, 16), NESTED),
        ),
        explore::<Hashed<Keyed>>(
            "cut",
            &[mixed(16, of(2, LAZY), 200, 18, 4), mixed(17, of(3, LAZY), 200, 24, 4)],
            (by_tier(4, 16), NESTED),
        ),
    ];
    at_least(&reports, by_tier(FLOORS_MIXED[0], FLOORS_MIXED[1]));
}
