//! Thousands of random programs, each used as an operation and as a recovery. After one or two crashes, the lazy search must read exactly
//! the contents that a plain enumerator of every instant and every image reads.
//!
//! The programs guarantee nothing, so the oracle accepts everything. Verification records the contents that it read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crash::model::{put, words};
use crash::tape::Tape;
use crash::{
    Contents, Kind, Model, Mutant, Mutated, Options, Subject, Workload, explore_changed, explore_mutant,
};
use pmem::{Event, Fence, Medium, Memory, Observed, Observer};

const LINES: u64 = 3;
const WORDS: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Instruction {
    Copy(u64, u64),
    Publish(u64, u64),
    /// Copies a word to another offset.
    Move(u64, u64),
    /// Skips the next instructions unless the word has this value.
    Unless(u64, u64, usize),
    Flush(u64),
    Fence,
}

type Program = Vec<Instruction>;

fn program(rng: &mut fastrand::Rng, length: usize) -> Program {
    let word = |rng: &mut fastrand::Rng| 64 * rng.u64(..LINES) + 8 * rng.u64(..WORDS);
    let mut one = || match rng.u32(..15) {
        0..3 => Instruction::Copy(word(rng), rng.u64(1..4)),
        3..5 => Instruction::Publish(word(rng), rng.u64(1..4)),
        5..8 => Instruction::Move(word(rng), word(rng)),
        8..10 => Instruction::Unless(word(rng), rng.u64(..4), rng.usize(1..3)),
        10..13 => Instruction::Flush(64 * rng.u64(..LINES)),
        _ => Instruction::Fence,
    };
    (0..length).map(|_| one()).collect()
}

fn run(program: &[Instruction], medium: &Observed) {
    let mut skip = 0;
    for instruction in program {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        match *instruction {
            Instruction::Copy(at, value) => medium.copy(at, value),
            Instruction::Publish(at, value) => medium.publish(at, value),
            Instruction::Move(from, to) => medium.copy(to, medium.word(from)),
            Instruction::Unless(at, value, count) => skip = if medium.word(at) == value { count } else { 0 },
            Instruction::Flush(line) => medium.flush(line, 8),
            Instruction::Fence => medium.fence(Fence::Commit),
        }
    }
}

thread_local! {
    static SEEN: RefCell<BTreeSet<Vec<u64>>> = const { RefCell::new(BTreeSet::new()) };
}

/// Runs one program as its operations and another as its recovery.
struct Machine {
    medium: Observed,
    recovered: bool,
}

impl Subject for Machine {
    type Op = Program;
    type Config = Program;

    fn size(_: &Program) -> (u64, u64) {
        (64 * LINES, 64 * LINES)
    }

    fn create(medium: Observed, _: &Program) -> Result<Self, String> {
        Ok(Self { medium, recovered: false })
    }

    fn recover(medium: Observed, recovery: &Program) -> Result<Self, String> {
        run(recovery, &medium);
        Ok(Self { medium, recovered: true })
    }

    fn apply(&mut self, op: &Program) -> Result<(), String> {
        run(op, &self.medium);
        Ok(())
    }

    fn apply_model(_: &Program, _: &mut Contents) {}

    fn verify(&self) -> Result<Contents, String> {
        if self.recovered {
            let places = (0..LINES).flat_map(|line| (0..WORDS).map(move |word| 64 * line + 8 * word));
            let read = places.map(|at| self.medium.word(at)).collect();
            SEEN.with_borrow_mut(|seen| seen.insert(read));
        }
        Ok(Contents::new())
    }

    fn continuation(_: &Program) -> Vec<Program> {
        Vec::new()
    }

    fn idempotence_exempt(_: u64) -> bool {
        true
    }

    fn close(self) -> Result<(), String> {
        Ok(())
    }
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _: Event) {}
}

fn duplicate(memory: &Memory) -> Arc<Memory> {
    let copy = Memory::new(memory.capacity(), memory.len());
    (0..LINES).for_each(|line| put(&copy, 64 * line, &words(memory, 64 * line)));
    copy
}

fn images(model: &mut Model, durable: &Memory) -> Vec<Arc<Memory>> {
    let mut images = vec![duplicate(durable)];
    for (line, choices) in model.open() {
        let with = |image: &Arc<Memory>, content| {
            let image = duplicate(image);
            put(&image, line, content);
            image
        };
        images = images
            .iter()
            .flat_map(|image| choices.contents.iter().map(|content| with(image, content)))
            .collect();
    }
    images
}

/// Recovers every image of every instant of `events` on `durable` twice. If `deep`, does the same for the events of its recovery.
fn eager(events: &[Event], durable: &Memory, recovery: &Program, deep: bool, mutant: Option<Mutant>) {
    let mut model = Model::new(usize::MAX / 16, 0);
    for instant in 0..=events.len() {
        for image in images(&mut model, durable) {
            let (before, tape) = (duplicate(&image), Tape::new(image.clone()));
            let once =
                Machine::recover(Observed::new(image.clone(), tape.clone()), recovery).expect("recovers");
            once.verify().expect("reads");
            let mut inside = tape.take();
            let again = Machine::recover(Observed::new(image, Arc::new(Nobody)), recovery).expect("recovers");
            again.verify().expect("reads");
            if deep {
                inside = mutant.map_or(inside.clone(), |mutant| mutant.rewrite(inside));
                let inside: Vec<Event> = inside.iter().map(|recorded| recorded.event).collect();
                eager(&inside, &before, recovery, false, mutant);
            }
        }
        if let Some(event) = events.get(instant) {
            model.apply(event, durable, &mut Vec::new());
        }
    }
}

/// Returns the contents read after a crash in `op`, with and without a second crash in recovery: those of the lazy search, then those of
/// the plain enumerator.
fn both(
    op: &Program,
    recovery: &Program,
    mutant: Option<Mutant>,
) -> (BTreeSet<Vec<u64>>, BTreeSet<Vec<u64>>, u64) {
    let options = Options {
        cap: usize::MAX,
        nested_cap: usize::MAX,
        create: false,
        close: false,
        ..Options::default()
    };
    let report = explore_mutant(&Workload::<Machine>::new(recovery.clone(), [op.clone()]), &options, mutant);
    assert_eq!((&report.violations[..], report.capped_lines), (&[][..], 0));
    assert_eq!((report.sampled_points, report.nested_sampled_points), (0, 0));
    let lazy = SEEN.take();

    let live = Memory::new(64 * LINES, 64 * LINES);
    let tape = Tape::new(live.clone());
    run(op, &Observed::new(live.clone(), tape.clone()));
    let events = mutant.map_or_else(|| tape.take(), |mutant| mutant.rewrite(tape.take()));
    let events: Vec<Event> = events.iter().map(|recorded| recorded.event).collect();
    eager(&events, &Memory::new(64 * LINES, 64 * LINES), recovery, true, mutant);
    (lazy, SEEN.take(), report.nested_images)
}

#[test]
fn lazy_and_eager_search_see_the_same_contents_after_one_crash_or_two() {
    let (mut nested, mut contents) = (0, 0);
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (op, recovery) = (program(&mut rng, 9), program(&mut rng, 10));
        let (lazy, eager, images) = both(&op, &recovery, None);
        assert_eq!(lazy, eager, "seed {seed}: {op:?} recovered by {recovery:?}");
        nested += images;
        contents += lazy.len();
    }
    assert!(nested > 10_000 && contents > 5_000, "{nested} images inside recovery, {contents} contents");
}

#[test]
fn lazy_and_eager_search_see_the_same_contents_of_every_mutant() {
    let mut compared = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (op, recovery) = (program(&mut rng, 8), program(&mut rng, 6));
        let workload = Workload::<Machine>::new(recovery.clone(), [op.clone()]);
        let base = explore_mutant(&workload, &Options::default(), None);
        for mutant in base.mutants.into_iter().filter(|mutant| mutant.kind != Kind::SplitPublish) {
            SEEN.take();
            let (lazy, eager, _) = both(&op, &recovery, Some(mutant));
            assert_eq!(lazy, eager, "seed {seed}, {mutant}: {op:?} recovered by {recovery:?}");
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn points_that_a_mutant_does_not_change_show_nothing_new() {
    let options = Options { cap: usize::MAX, nested_cap: usize::MAX, ..Options::default() };
    let (mut explored, mut unchanged) = (0, 0);
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ops = [program(&mut rng, 7), program(&mut rng, 5), program(&mut rng, 5)];
        let workload = Workload::<Machine>::new(program(&mut rng, 5), ops);
        let mut base = explore_mutant(&workload, &Options { remember: true, ..options.clone() }, None);
        let (good, known) = (SEEN.take(), Arc::new(std::mem::take(&mut base.points)));
        for mutant in base.mutants {
            let whole = explore_mutant(&workload, &options, Some(mutant));
            let whole_seen = SEEN.take();
            let mutated = Mutated { mutant, known: known.clone() };
            let part = explore_changed(&workload, &options, Some(mutated));
            let part_seen = SEEN.take();
            assert!(part_seen.is_subset(&whole_seen), "seed {seed}, {mutant}");
            let both = part_seen.union(&good).cloned().collect();
            assert!(whole_seen.is_subset(&both), "seed {seed}, {mutant}");
            assert_eq!(
                part.crash_points + part.unchanged_points,
                whole.crash_points,
                "seed {seed}, {mutant}"
            );
            explored += part.crash_points;
            unchanged += part.unchanged_points;
        }
    }
    assert!(explored > 1000 && unchanged > 1000, "{explored} explored, {unchanged} unchanged");
}
