//! The log by itself, over more laps than its tags have: a lap's tag comes round after 4,096 settlings, which no
//! workload of a tree reaches.

use crash::{Contents, Step, Subject, Workload};
use pmem::log::{Format, Homes, Log};
use pmem::region::{LAP_AT, checked};
use pmem::{Fence, Geometry, Medium, Observed, WORD};

use crate::subject::text_of;

/// Words under one log.
pub struct Logged {
    medium: Observed,
    log: Log,
    format: Format,
}

/// A change of words.
#[derive(Clone, Debug)]
pub enum Change {
    /// The first `words` become `value`, in one commit.
    Commit {
        /// How many.
        words: u64,
        /// What.
        value: u64,
    },
    /// So many words of unused space become `value`, then word 0, in one commit. (Never two in a row: the second would take
    /// what the first has put to use.)
    Fresh {
        /// How many.
        words: u64,
        /// What.
        value: u64,
    },
    /// Word 0 becomes `value`, in as many laps.
    Laps {
        /// How many.
        laps: u64,
        /// What.
        value: u64,
    },
}

const WORDS: u64 = 24;
/// Words behind them, in use only while they hold what word 0 does.
const FRESH: u64 = 12;

fn geometry() -> Geometry {
    Geometry { log_records: 64, ..Geometry::tiny() }
}

fn home(word: u64) -> u64 {
    geometry().heap_at() + word * WORD
}

/// As an integer of the contents.
fn pair(word: u64, value: u64) -> (Vec<u8>, Vec<u8>) {
    (word.to_be_bytes().into(), value.to_be_bytes().into())
}

impl Logged {
    fn commit(&mut self, fresh: &[(u64, u64)], writes: &[(u64, u64)]) -> Result<(), String> {
        match self.format {
            Format::Redo => self.log.commit(&self.medium, &[fresh, writes].concat(), Homes::Flushed),
            Format::UndoRedo => self.log.commit_undo_redo(&self.medium, fresh, writes, false, || {}),
        }
        .map_err(text_of)
    }
}

impl Subject for Logged {
    type Op = Change;
    type Config = Format;

    fn size(_: &Format) -> (u64, u64) {
        (home(WORDS + FRESH), home(WORDS + FRESH))
    }

    fn create(medium: Observed, format: &Format) -> Result<Self, String> {
        medium.publish(LAP_AT, checked(0));
        medium.flush(LAP_AT, WORD);
        medium.fence(Fence::Superblock);
        Ok(Self { medium, log: Log::new(geometry(), *format), format: *format })
    }

    fn recover(medium: Observed, format: &Format) -> Result<Self, String> {
        let log = Log::recover(&medium, geometry(), *format).map_err(text_of)?;
        Ok(Self { medium, log, format: *format })
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        match *change {
            Change::Commit { words, value } => {
                let writes: Vec<_> = (0..words).map(|word| (home(word), value)).collect();
                self.commit(&[], &writes)
            }
            Change::Fresh { words, value } => {
                let fresh: Vec<_> = (WORDS..WORDS + words).map(|word| (home(word), value)).collect();
                self.commit(&fresh, &[(home(0), value)])
            }
            Change::Laps { laps, value } => (0..laps).try_for_each(|_| {
                self.commit(&[], &[(home(0), value)])?;
                self.log.settle(&self.medium);
                Ok(())
            }),
        }
    }

    fn apply_model(change: &Change, model: &mut Contents) {
        let (words, fresh, value) = match *change {
            Change::Commit { words, value } => (words, 0, value),
            Change::Fresh { words, value } => (1, words, value),
            Change::Laps { value, .. } => (1, 0, value),
        };
        model.retain(|word, _| *word < pair(WORDS, 0).0);
        model.extend((0..words).chain(WORDS..WORDS + fresh).map(|word| pair(word, value)));
    }

    fn verify(&self) -> Result<Contents, String> {
        let word = |word| self.medium.word(home(word));
        let in_use =
            |at: &u64| if *at < WORDS { word(*at) != 0 } else { word(*at) == word(0) && word(0) != 0 };
        Ok((0..WORDS + FRESH).filter(in_use).map(|at| pair(at, word(at))).collect())
    }

    fn continuation(_: &Change) -> Vec<Change> {
        vec![Change::Commit { words: WORDS, value: 77 }, Change::Laps { laps: 2, value: 78 }]
    }

    fn close(mut self) -> Result<(), String> {
        self.log.settle(&self.medium);
        Ok(())
    }
}

/// The workloads around a wipe.
pub fn around_a_wipe(format: Format) -> Vec<Workload<Logged>> {
    vec![
        tags_come_round(format),
        fresh_tags_come_round(format),
        wiped(format),
        ends_before_an_old_commit(format, 6),
        ends_before_an_old_commit(format, 8),
    ]
}

/// Tags come round: the wipe between lap 8,191 and 8,192, whose first commit is shorter than lap 4,096's was.
fn tags_come_round(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |words, value| Change::Commit { words, value };
    let prepare = vec![laps(4095, 1), commit(8, 2), laps(4095, 3)];
    let steps = vec![laps(1, 4), commit(5, 5), commit(9, 6)];
    Workload { config: format, prepare, steps: steps.into_iter().map(Step::Run).collect() }
}

/// The same with records of unused space, of which several are written before a fence in either format: the new ones fill a line,
/// and old ones in the next have the count of theirs.
fn fresh_tags_come_round(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let fresh = |words, value| Change::Fresh { words, value };
    Workload::new(format, [laps(1, 4), fresh(3, 5), laps(1, 6)]).after([
        laps(4095, 1),
        fresh(4, 2),
        laps(4095, 3),
    ])
}

/// The first commit behind the wipe has as many records as lap 4,096's first one had: what follows in the log is that lap's second
/// commit, whole and with the right tags, if the wipe leaves its line out. Six and eight records end at the third line, in one format each.
fn ends_before_an_old_commit(format: Format, words: u64) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |value| Change::Commit { words, value };
    Workload::new(format, [laps(1, 4), commit(5)]).after([laps(4095, 1), commit(2), laps(4095, 3)])
}

/// Several commits of one word in the lap before the wipe: a wipe that takes the later ones first must not leave the first.
fn wiped(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, [commit(1, 4), commit(1, 5), laps(1, 6), commit(2, 7)])
        .after([laps(4095, 1), laps(4095, 3)])
}

/// Laps end and begin.
pub fn short_laps(format: Format) -> Workload<Logged> {
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, (0..8).map(|i| commit(1 + i * 5 % 23, 10 + i)))
}
