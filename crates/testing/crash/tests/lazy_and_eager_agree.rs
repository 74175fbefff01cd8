//! Compares the lazy search with a plain enumerator of the full cross product. They share only the code that derives the possible contents
//! of one line. The tests in `line_contents` compare its results with examples worked by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::toys::{ALPHABET, Flaw, Pair, Set};
use crash::model::{put, words};
use crash::tape::Tape;
use crash::{Contents, Model, Options, Subject, Workload, explore, sequences};
use pmem::{Memory, Observed, Observer};

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _: pmem::Event) {}
}

/// True if some crash inside the recovery from some image of `ops` has a violation. Enumerates the full cross product twice.
fn eager_nested(flaw: Flaw, ops: &[Set]) -> bool {
    let mut broken = false;
    each_image(flaw, ops, &mut |image, (before, after), _| {
        let tape = Tape::new(image.clone());
        let durable = duplicate(&image);
        if Pair::recover(Observed::new(image, tape.clone()), &flaw).is_err() {
            broken = true;
            return;
        }
        let mut model = Model::new(usize::MAX / 8, 0);
        let mut check = |model: &mut Model| {
            for image in cross_product(model, &durable) {
                let seen = Pair::recover(Observed::new(image, Arc::new(Nobody)), &flaw)
                    .and_then(|pair| pair.verify());
                broken |= !seen.is_ok_and(|seen| seen == *after || seen == *before);
            }
        };
        for recorded in tape.take() {
            check(&mut model);
            model.apply(&recorded.event, &durable, &mut Vec::new());
        }
        check(&mut model);
    });
    broken
}

/// Returns the violated crash points (step, event) and the number of images.
fn eager(flaw: Flaw, ops: &[Set]) -> (BTreeSet<(usize, usize)>, u64) {
    let (mut bad, mut images) = (BTreeSet::new(), 0);
    each_image(flaw, ops, &mut |image, (before, after), place| {
        images += 1;
        let seen =
            Pair::recover(Observed::new(image, Arc::new(Nobody)), &flaw).and_then(|pair| pair.verify());
        if !seen.is_ok_and(|seen| seen == *after || seen == *before) {
            bad.insert(place);
        }
    });
    (bad, images)
}

/// Called with an image, its allowed contents, and the step and event after the crash point.
type Visit<'a> = dyn FnMut(Arc<Memory>, (&Contents, &Contents), (usize, usize)) + 'a;

/// Visits every image of every instant of every step.
fn each_image(flaw: Flaw, ops: &[Set], visit: &mut Visit<'_>) {
    let (len, capacity) = Pair::size(&flaw);
    let (live, durable) = (Memory::new(capacity, len), Memory::new(capacity, len));
    let tape = Tape::new(live.clone());
    let mut model = Model::new(usize::MAX / 8, 0);
    let mut pair = Pair::create(Observed::new(live, tape.clone()), &flaw).expect("created");
    tape.take().iter().for_each(|recorded| model.apply(&recorded.event, &durable, &mut Vec::new()));
    let mut before = Contents::new();
    for (step, op) in ops.iter().enumerate() {
        pair.apply(op).expect("applied");
        let events = tape.take();
        let mut after = before.clone();
        Pair::apply_model(op, &mut after);
        for event in 0..=events.len() {
            let absent = if event == events.len() { &after } else { &before };
            for image in cross_product(&mut model, &durable) {
                visit(image, (absent, &after), (step, event));
            }
            if let Some(recorded) = events.get(event) {
                model.apply(&recorded.event, &durable, &mut Vec::new());
            }
        }
        before = after;
    }
}

fn cross_product(model: &mut Model, durable: &Memory) -> Vec<Arc<Memory>> {
    let mut images = vec![duplicate(durable)];
    for (line, choices) in model.open() {
        let each = images.iter().flat_map(|image| {
            choices.contents.iter().map(move |content| {
                let image = duplicate(image);
                put(&image, line, content);
                image
            })
        });
        images = each.collect();
    }
    images
}

fn duplicate(memory: &Memory) -> Arc<Memory> {
    let copy = Memory::new(memory.capacity(), memory.len());
    for line in (0..memory.len()).step_by(64) {
        put(&copy, line, &words(memory, line));
    }
    copy
}

fn lazy(flaw: Flaw, ops: &[Set], every_store: bool) -> (BTreeSet<(usize, usize)>, u64) {
    let options = Options {
        every_store,
        nested: false,
        continuation: false,
        create: false,
        close: false,
        violations_max: usize::MAX,
        ..Options::default()
    };
    let report = explore(&Workload::<Pair>::new(flaw, ops.to_vec()), &options);
    let place = |violation: &crash::Violation| match violation.phase {
        crash::report::Phase::Step(step) => (step, violation.crash.as_ref().expect("an image").event),
        other => panic!("{other}"),
    };
    (report.violations.iter().map(place).collect(), report.images)
}

#[test]
fn lazy_and_eager_enumeration_give_the_same_verdicts_at_the_same_crash_points() {
    let flaws = [
        Flaw::None,
        Flaw::NoPayloadFence,
        Flaw::WrongLineFlushed,
        Flaw::CommitBeforePayload,
        Flaw::NoHomeFence,
        Flaw::RecoveryForgetsTwins,
        Flaw::NoHomeFenceInRecovery,
    ];
    for flaw in flaws {
        let mut violated = 0;
        for ops in sequences(&ALPHABET, 2) {
            let (bad, eager_images) = eager(flaw, &ops);
            let (lazy_bad, lazy_images) = lazy(flaw, &ops, false);
            assert!(lazy_bad.is_subset(&bad), "{flaw:?} {ops:?}: {lazy_bad:?} against {bad:?}");
            assert_eq!(lazy_bad.is_empty(), bad.is_empty(), "{flaw:?} {ops:?}");
            assert!(lazy_images < eager_images);
            let (every_bad, _) = lazy(flaw, &ops, true);
            let steps =
                |bad: &BTreeSet<(usize, usize)>| bad.iter().map(|(step, _)| *step).collect::<BTreeSet<_>>();
            assert!(every_bad.is_subset(&bad) && every_bad.is_superset(&lazy_bad), "{flaw:?} {ops:?}");
            assert_eq!(steps(&every_bad), steps(&bad), "{flaw:?} {ops:?}");
            violated += bad.len();
        }
        let right = matches!(flaw, Flaw::None | Flaw::NoHomeFenceInRecovery);
        assert_eq!(violated == 0, right, "{flaw:?} has {violated} violated crash points");
    }
}

#[test]
fn lazy_and_eager_enumeration_of_crashes_inside_recovery_give_the_same_verdicts() {
    let flaws = [
        (Flaw::None, false),
        (Flaw::NoHomeFenceInRecovery, true),
        (Flaw::NoLastFenceInRecovery, false),
        (Flaw::RecoveryLeavesLog, false),
        (Flaw::RecoveryAddsUp, true),
        (Flaw::RecoveryForgetsTwins, true),
    ];
    for (flaw, some_broken) in flaws {
        let mut broken = 0;
        for ops in sequences(&ALPHABET, 2) {
            let eager = eager_nested(flaw, &ops);
            let options = Options { continuation: false, create: false, close: false, ..Options::default() };
            let report = explore(&Workload::<Pair>::new(flaw, ops.clone()), &options);
            // The plain enumerator does not check whether a second recovery stores.
            let asked =
                |violation: &crash::Violation| !violation.message.contains("a second recovery stores");
            let lazy = report.violations.iter().any(asked);
            assert_eq!(lazy, eager, "{flaw:?} {ops:?}: {report}");
            broken += u32::from(eager);
        }
        assert_eq!(broken > 0, some_broken, "{flaw:?}");
    }
}

#[test]
fn a_line_nobody_reads_is_never_branched_on() {
    // Before the commit word is stored, the log's two payload lines are open: four images. Recovery reads neither line.
    let (_, images) = eager(Flaw::None, &[Set(1, 2)]);
    let (_, lazy_images) = lazy(Flaw::None, &[Set(1, 2)], false);
    // Crash points: before the fence of payload (1 image), of commit (2), of home (1), of the emptied log (2), end (1). Before the fence of
    // home the home lines have sixteen images, but recovery overwrites their words without reading them.
    assert_eq!(lazy_images, 1 + 2 + 1 + 2 + 1);
    assert!(images > 2 * lazy_images, "{images} against {lazy_images}");
}
