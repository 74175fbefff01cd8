//! Tests every kind of mutant on a subject in which each kind causes a violation. A write of the subject stores two data lines and, after a
//! fence, one commit word for each of them. The subject's creation ends with a sync.

use std::collections::BTreeMap;

use crash::{Contents, Kind, Options, Share, Stage, Subject, Trial, WhichLine, Workload};
use crash::{run_mutants, run_some_mutants};
use pmem::{Fence, Medium, Observed};

const MAGIC: u64 = 7;
const ROWS: u64 = 3;

struct Rows(Observed);

/// Writes this row.
#[derive(Clone, Copy, Debug)]
struct Write(u64);

fn row_at(row: u64) -> u64 {
    64 + row * 256
}

/// Both halves of the word matter.
fn value(row: u64) -> u64 {
    (row + 1) << 32 | (row + 5)
}

/// The pairs of a row: one for each of its lines.
fn pairs(row: u64) -> [(Vec<u8>, Vec<u8>); 2] {
    [0, 1].map(|line| (vec![row as u8, line], value(row).to_le_bytes().to_vec()))
}

impl Subject for Rows {
    type Op = Write;
    type Config = ();

    fn size(_: &()) -> (u64, u64) {
        (row_at(ROWS), row_at(ROWS))
    }

    fn create(medium: Observed, _: &()) -> Result<Self, String> {
        medium.publish(0, MAGIC);
        medium.sync(0, 8).map_err(|error| error.to_string())?;
        Ok(Self(medium))
    }

    fn recover(medium: Observed, _: &()) -> Result<Self, String> {
        if medium.word(0) == MAGIC { Ok(Self(medium)) } else { Err("never created".to_owned()) }
    }

    fn apply(&mut self, op: &Write) -> Result<(), String> {
        let (medium, at) = (&self.0, row_at(op.0));
        medium.copy(at, value(op.0));
        medium.copy(at + 64, value(op.0));
        medium.flush(at, 128);
        medium.fence(Fence::Payload);
        medium.publish(at + 128, value(op.0));
        medium.publish(at + 192, value(op.0));
        medium.flush(at + 128, 128);
        medium.fence(Fence::Commit);
        Ok(())
    }

    fn is_divisible(_: &Write) -> bool {
        true
    }

    fn apply_model(op: &Write, model: &mut Contents) {
        model.extend(pairs(op.0));
    }

    fn verify(&self) -> Result<Contents, String> {
        let mut contents = BTreeMap::new();
        for row in 0..ROWS {
            for (line, pair) in (0..).zip(pairs(row)) {
                let at = row_at(row) + line * 64;
                match self.0.word(at + 128) {
                    0 => {}
                    commit if commit == self.0.word(at) => _ = contents.insert(pair.0, pair.1),
                    commit => return Err(format!("row {row}: {commit:#x} commits what is not there")),
                }
            }
        }
        Ok(contents)
    }

    fn continuation(_: &Write) -> Vec<Write> {
        Vec::new()
    }

    fn close(self) -> Result<(), String> {
        Ok(())
    }
}

fn trials() -> Vec<Trial> {
    vec![Trial::of("rows", Options::default(), Workload::<Rows>::new((), (0..ROWS).map(Write)))]
}

#[test]
fn every_kind_of_mutant_is_found_and_killed() {
    let report = run_mutants(&trials(), &[], |_| Stage::quiet());
    println!("{report}");
    assert!(report.is_good(), "{report}");
    let killed = |kind: Kind| report.killed.iter().filter(|(mutant, _)| mutant.kind == kind).count();
    let expected = [
        (Kind::DropSync, 1),
        (Kind::DropFlush, 2),
        (Kind::DropLine(WhichLine::Nth(0)), 2),
        (Kind::DropLine(WhichLine::Nth(1)), 2),
        (Kind::DropFence(Fence::Payload), 1),
        (Kind::DropFence(Fence::Commit), 1),
        (Kind::SwapPublish, 1),
        (Kind::EarlyPublish, 1),
        (Kind::SplitPublish, 2),
    ];
    for (kind, count) in expected {
        assert_eq!(killed(kind), count, "{kind:?}");
    }
    assert_eq!(report.found(), expected.iter().map(|(_, count)| count).sum());
}

#[test]
fn a_share_of_the_mutants_depends_on_its_seed_alone_and_says_how_many_it_left_out() {
    let run = |share: &Share| run_some_mutants(&trials(), &[], share, &[], |_| Stage::quiet());
    let (one, again) = (run(&Share::OneIn(3, 4)), run(&Share::OneIn(3, 4)));
    let killed =
        |report: &crash::MutationReport| report.killed.iter().map(|(mutant, _)| *mutant).collect::<Vec<_>>();
    assert_eq!(killed(&one), killed(&again));
    assert!(!one.killed.is_empty() && one.left_out > 0);
    assert_eq!(one.killed.len() + one.left_out, one.found());
    let named = run(&Share::Named("DropSync".to_owned()));
    assert_eq!((named.killed.len(), named.found()), (1, one.found()));
    let source = include_str!("mutant_kinds.rs");
    let fence = Kind::DropFence(Fence::Commit);
    let injected_fault =
        crash::Spot::new(fence, "tests/mutant_kinds.rs", source, "medium.fence(Fence::Commit);");
    let share = Share::Named("DropSync".to_owned());
    let both = run_some_mutants(&trials(), &[], &share, &[injected_fault], |_| Stage::quiet());
    assert_eq!(killed(&both).len(), 2);
    assert!(killed(&both).iter().any(|mutant| injected_fault.matches(mutant)));
}

#[test]
fn a_close_that_leaves_a_line_in_doubt_is_a_violation() {
    struct Hasty(Rows);
    impl Subject for Hasty {
        type Op = Write;
        type Config = ();
        fn size(config: &()) -> (u64, u64) {
            Rows::size(config)
        }
        fn create(medium: Observed, config: &()) -> Result<Self, String> {
            Rows::create(medium, config).map(Self)
        }
        fn recover(medium: Observed, config: &()) -> Result<Self, String> {
            Rows::recover(medium, config).map(Self)
        }
        fn apply(&mut self, op: &Write) -> Result<(), String> {
            self.0.apply(op)
        }
        fn apply_model(op: &Write, model: &mut Contents) {
            Rows::apply_model(op, model);
        }
        fn is_divisible(op: &Write) -> bool {
            Rows::is_divisible(op)
        }
        fn verify(&self) -> Result<Contents, String> {
            self.0.verify()
        }
        fn continuation(op: &Write) -> Vec<Write> {
            Rows::continuation(op)
        }
        fn close(self) -> Result<(), String> {
            // Nothing reads this word, so no image is wrong.
            self.0.0.copy(8, 1);
            Ok(())
        }
    }
    let report = crash::explore(&Workload::<Hasty>::new((), [Write(0)]), &Options::default());
    assert_eq!(report.violations.len(), 1);
    assert!(report.violations[0].message.contains("not durable after a clean close"), "{report}");
}
