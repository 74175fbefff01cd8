//! The log by itself, over more laps than its tags have: a tag comes round after 4,096 laps, which no
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
    /// The process is killed, and the log recovered.
    Reopen,
    /// Word 0 becomes `value`, in as many laps.
    Laps {
        /// How many.
        laps: u64,
        /// What.
        value: u64,
    },
}

const WORDS: u64 = 24;
/// Words of a commit that leaves space in the log for others behind it.
const SHORT: u64 = 6;
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
            Change::Reopen => {
                *self = Self::recover(self.medium.clone(), &self.format)?;
                Ok(())
            }
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
            Change::Reopen => return,
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
        // A commit as long as old ones were, and another start: what follows in the log must not be taken for its lap's.
        vec![
            Change::Commit { words: SHORT, value: 76 },
            Change::Reopen,
            Change::Commit { words: WORDS, value: 77 },
            Change::Laps { laps: 2, value: 78 },
        ]
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
        ends_before_an_old_commit(format, 16),
        leaves_old_commits_of_two_laps(format),
    ]
}

/// Tags come round: behind the wipe in lap 8,192, the first commit of lap 8,193 is shorter than that of lap 4,097 was.
fn tags_come_round(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |words, value| Change::Commit { words, value };
    let prepare = vec![laps(4095, 1), commit(8, 2), laps(4094, 3)];
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
        laps(4094, 3),
    ])
}

/// The first commit behind the wipe has as many records as that of lap 4,097 had: what follows in the log is that lap's second
/// commit, whole and with the right tags, if the wipe leaves its line out. Six and eight records end where the third line begins, in one
/// format each, and sixteen where the fifth does.
fn ends_before_an_old_commit(format: Format, words: u64) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |value| Change::Commit { words, value };
    Workload::new(format, [laps(1, 4), commit(5)]).after([laps(4095, 1), commit(2), laps(4094, 3)])
}

/// Before the wipe, the log holds two whole commits of lap 4,098 and, behind them, one of lap 4,097. A wipe that is taken for done and is
/// not: recovery meets the one of lap 4,097, makes lap 8,193 void, and begins lap 8,194, whose tag is that of lap 4,098.
fn leaves_old_commits_of_two_laps(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |value| Change::Commit { words: SHORT, value };
    let longer = [commit(2), commit(3), commit(4)];
    let shorter = [commit(5), commit(6)];
    let prepare = [&[laps(4095, 1)][..], &longer, &[laps(1, 4)], &shorter, &[laps(4093, 3)]].concat();
    Workload::new(format, [laps(1, 4), commit(5)]).after(prepare)
}

/// Several commits of one word in the lap before the wipe: a wipe that takes the later ones first must not leave the first.
fn wiped(format: Format) -> Workload<Logged> {
    let laps = |laps, value| Change::Laps { laps, value };
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, [commit(1, 4), commit(1, 5), laps(1, 6), commit(2, 7)])
        .after([laps(4095, 1), laps(4094, 3)])
}

/// Laps end and begin.
pub fn short_laps(format: Format) -> Workload<Logged> {
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, (0..8).map(|i| commit(1 + i * 5 % 23, 10 + i)))
}
