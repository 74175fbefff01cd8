//! Toys are small structures in durable memory. The explorer finds no violation of a correct toy. It finds each flaw of a flawed toy in the
//! intended way: by an image that the toy's oracle rejects, or by a rule of the explorer.

use crate::toys::{ALPHABET, Flaw, List, ListConfig, Pair, Push, Set};
use crash::{Options, Report, Violation, Workload, explore, explore_all, interrupted, random, sequences};

fn pairs(flaw: Flaw, ops: &[Set]) -> Report {
    explore(&Workload::<Pair>::new(flaw, ops.to_vec()), &Options::default())
}

#[track_caller]
fn caught(flaw: Flaw) -> Violation {
    let report = pairs(flaw, &[Set(1, 2), Set(3, 4)]);
    report.violations.into_iter().next().unwrap_or_else(|| panic!("{flaw:?} is not caught"))
}

#[test]
fn a_right_redo_log_survives_every_crash_in_all_sequences_of_three() {
    let mut total = Report::default();
    for ops in sequences(&ALPHABET, 3) {
        total.merge(pairs(Flaw::None, &ops));
    }
    println!("{total}");
    assert_eq!(total.violations, []);
    assert_eq!((total.sampled_points, total.nested_sampled_points, total.capped_lines), (0, 0, 0));
    assert!(
        total.images > 64 * 3 * 5,
        "five crash points in each operation, most with several images: {total}"
    );
    assert!(total.nested_images > 64 * 3, "recovery is crashed too: {total}");
    assert!(total.crash_points < total.images && total.nested_points <= total.nested_images);
}

#[test]
fn a_missing_payload_fence_is_caught() {
    let violation = caught(Flaw::NoPayloadFence);
    assert!(violation.message.contains("wrong contents"), "{violation}");
}

#[test]
fn a_wrong_line_flushed_is_caught() {
    assert!(caught(Flaw::WrongLineFlushed).crash.is_some());
}

#[test]
fn a_commit_word_stored_before_its_payload_is_fenced_is_caught() {
    assert!(caught(Flaw::CommitBeforePayload).message.contains("wrong contents"));
}

#[test]
fn a_log_emptied_before_the_home_lines_are_durable_is_caught() {
    assert!(caught(Flaw::NoHomeFence).message.contains("not followed by its twin"));
}

#[test]
fn a_create_that_returns_too_early_is_caught() {
    let violation = caught(Flaw::CreateNotFenced);
    assert_eq!(violation.phase, crash::report::Phase::Create);
    assert!(violation.message.contains("never created"), "{violation}");
}

#[test]
fn a_close_that_breaks_what_was_whole_is_caught() {
    assert_eq!(caught(Flaw::CloseBreaks).phase, crash::report::Phase::Close);
}

#[test]
fn a_missing_fence_inside_recovery_needs_the_nested_crash() {
    let violation = caught(Flaw::NoHomeFenceInRecovery);
    assert!(violation.crash.is_some_and(|crash| crash.inside.is_some()));
    let workload = Workload::<Pair>::new(Flaw::NoHomeFenceInRecovery, [Set(1, 2), Set(3, 4)]);
    assert!(!explore(&workload, &Options { nested: false, ..Options::default() }).is_violated());
}

#[test]
fn a_recovery_that_overwrites_half_of_a_line_unread_is_caught_by_the_other_half() {
    let violation = caught(Flaw::RecoveryForgetsTwins);
    assert!(violation.message.contains("not followed by its twin"), "{violation}");
}

#[test]
fn a_recovery_that_cannot_be_repeated_is_caught() {
    assert!(caught(Flaw::RecoveryAddsUp).crash.is_some());
    assert!(caught(Flaw::RecoveryLeavesLog).message.contains("a second recovery stores to"));
}

#[test]
fn what_recovery_left_unflushed_is_caught_by_the_operations_after_a_cut_step() {
    let workload = |flaw| {
        let mut workload = Workload::<Pair>::new(flaw, []);
        let ops = random(3, 60, |rng| Set(rng.u64(1..100), rng.u64(1..100)));
        workload.steps = interrupted(3, 3, ops);
        workload
    };
    let right = explore(&workload(Flaw::None), &Options::default());
    assert_eq!(right.violations, []);
    let wrong = explore(&workload(Flaw::NoLastFenceInRecovery), &Options::default());
    assert!(wrong.is_violated());
    assert!(
        !pairs(Flaw::NoLastFenceInRecovery, &[Set(1, 2), Set(3, 4)]).is_violated(),
        "only a cut step shows it"
    );
}

#[test]
fn a_panic_in_recovery_is_a_violation_that_names_its_place() {
    let violation = caught(Flaw::RecoveryPanics);
    assert!(violation.message.contains("work to do") && violation.message.contains("toys"), "{violation}");
}

#[test]
fn a_recovery_without_end_is_a_violation() {
    let workload = Workload::<Pair>::new(Flaw::RecoveryHangs, [Set(1, 2)]);
    let report = explore(&workload, &Options { steps_max: 10_000, ..Options::default() });
    assert!(report.violations[0].message.contains("no end"), "{report}");
}

#[test]
fn a_subject_that_is_not_deterministic_is_refused() {
    assert!(caught(Flaw::Moody).message.contains("not deterministic"));
}

#[test]
fn a_verification_that_stores_is_a_violation() {
    let violation = caught(Flaw::VerifyStores);
    assert!(violation.crash.is_none() && violation.message.contains("verify stores"), "{violation}");
}

#[test]
fn an_operation_that_fails_without_a_crash_is_a_violation() {
    let workload = Workload::<Pair>::new(Flaw::ApplyFails, [Set(1, 2)]);
    let report = explore(&workload, &Options { continuation: false, ..Options::default() });
    assert_eq!(
        (report.violations[0].crash.clone(), report.violations[0].message.as_str()),
        (None, "full of holes")
    );
    assert!(caught(Flaw::ApplyFails).message.contains("continuation"), "it fails after recovery too");
}

#[test]
fn a_continuation_that_finds_a_broken_subject_is_caught() {
    let workload = Workload::<Pair>::new(Flaw::BreaksLater, [Set(1, 2)]);
    let report = explore(&workload, &Options::default());
    assert!(report.violations[0].message.contains("continuation"), "{report}");
    assert!(!explore(&workload, &Options { continuation: false, ..Options::default() }).is_violated());
}

#[test]
fn a_list_that_grows_inside_an_operation_survives_and_one_that_trusts_the_length_does_not() {
    let workload = |config| Workload::<List>::new(config, (1..=5).map(Push));
    let right = ListConfig { trusts_length: false, unflushed: false, words: 3 };
    let report = explore(&workload(right), &Options::default());
    assert_eq!(report.violations, []);
    assert!(report.images > 20, "{report}");
    let wrong = explore(&workload(ListConfig { trusts_length: true, ..right }), &Options::default());
    assert!(wrong.violations[0].message.contains("wrong contents"), "{wrong}");
    let all = Options { violations_max: usize::MAX, ..Options::default() };
    let torn = explore(&workload(ListConfig { unflushed: true, ..right }), &all);
    assert!(torn.violations.iter().any(|violation| violation.message.contains("is torn")), "{torn}");
}

#[test]
fn garbage_that_later_operations_overwrite_costs_no_images() {
    let config = ListConfig { trusts_length: false, unflushed: false, words: 8 };
    let workloads: Vec<_> =
        (0..40).map(|seed| Workload::<List>::new(config, (1..=60).map(|n| Push(seed + n)))).collect();
    let report = explore_all(&workloads, &Options::default());
    println!("{report}");
    assert_eq!(report.violations, []);
    // An entry that is not counted yet has 256 images, and the continuation's push overwrites it without reading it. Images of each push:
    // before the payload's fence 1 (the count is not stored yet), before the commit's fence 2, at the end 1.
    assert_eq!(report.images, 40 * (60 * 4 + 4));
}

#[test]
fn a_violation_is_found_again_by_its_coordinates_alone() {
    for flaw in [Flaw::NoPayloadFence, Flaw::NoHomeFenceInRecovery, Flaw::RecoveryAddsUp] {
        let found = caught(flaw);
        let crash = found.crash.clone().expect("an image");
        let only: crash::Crash = crash.to_string().parse().expect("readable");
        assert_eq!(only, crash);
        assert!(found.reproduction().contains(&crash.to_string()));
        let workload = Workload::<Pair>::new(flaw, [Set(1, 2), Set(3, 4)]);
        let again = explore(&workload, &Options { only: Some(only), ..Options::default() });
        assert_eq!(again.violations, [found]);
        assert!(again.images == 1 && again.nested_images <= 1, "{again}");
    }
}
