//! Crash exploration of the log alone, without a tree. The tags of log generations repeat after 4,096 generations. No workload of a tree
//! has that many, so some workloads here do.

use crash::{Contents, Step, Subject, Workload};
use pmem::log::{DataLines, Format, Log};
use pmem::region::{GENERATION_AT, checked};
use pmem::{Fence, Geometry, Medium, Observed, WORD};

use crate::subject::text_of;

/// Words that change through one log.
pub struct Logged {
    medium: Observed,
    log: Log,
    format: Format,
}

/// An operation on the words.
#[derive(Clone, Debug)]
pub enum Change {
    /// One commit sets the first words.
    Commit {
        /// Number of words.
        words: u64,
        /// Their new value.
        value: u64,
    },
    /// One commit sets words of unused space, and then word 0. Two of them must not follow each other: the second one would change words
    /// in use.
    Fresh {
        /// Number of unused words.
        words: u64,
        /// Their new value.
        value: u64,
    },
    /// One commit sets a word in each of several lines.
    Lines {
        /// Number of lines, at most `LINES`.
        lines: u64,
        /// The new value of the words.
        value: u64,
    },
    /// The process is killed, and the log recovered.
    Reopen,
    /// Sets word 0 and ends the generation, several times.
    Generations {
        /// Number of generations.
        generations: u64,
        /// The new value of the word.
        value: u64,
    },
    /// As `Generations` with one generation. After a crash the next generations are short ones.
    LastGeneration {
        /// The new value of the word.
        value: u64,
    },
}

const WORDS: u64 = 24;
/// Words of a commit that leaves space in the log for other commits.
const SHORT: u64 = 6;
/// Words after the first `WORDS`. They are in use only while they have the value of word 0.
const FRESH: u64 = 18;
/// Number of the first word of [`Change::Lines`].
const FIRST_OF_LINES: u64 = (WORDS + FRESH).next_multiple_of(8);
/// Maximum number of lines of [`Change::Lines`].
const LINES: u64 = 6;

/// The numbers of the words of [`Change::Lines`].
fn of_lines(lines: u64) -> impl Iterator<Item = u64> {
    (0..lines).map(|line| FIRST_OF_LINES + 8 * line)
}

fn geometry() -> Geometry {
    Geometry { log_records: 64, ..Geometry::tiny() }
}

fn home(word: u64) -> u64 {
    geometry().heap_at() + word * WORD
}

/// A word as a pair of the contents.
fn pair(word: u64, value: u64) -> (Vec<u8>, Vec<u8>) {
    (word.to_be_bytes().into(), value.to_be_bytes().into())
}

impl Logged {
    fn commit(&mut self, fresh: &[(u64, u64)], writes: &[(u64, u64)]) -> Result<(), String> {
        match self.format {
            Format::Redo => self.log.commit(&self.medium, &[fresh, writes].concat(), DataLines::Flushed),
            Format::UndoRedo => self.log.commit_undo_redo(&self.medium, fresh, writes, false, || {}),
        }
        .map_err(text_of)
    }

    fn generation(&mut self, value: u64) -> Result<(), String> {
        self.commit(&[], &[(home(0), value)])?;
        self.log.truncate(&self.medium);
        Ok(())
    }
}

impl Subject for Logged {
    type Op = Change;
    type Config = Format;

    fn size(_: &Format) -> (u64, u64) {
        let bytes = home(FIRST_OF_LINES + 8 * LINES);
        (bytes, bytes)
    }

    fn create(medium: Observed, format: &Format) -> Result<Self, String> {
        medium.publish(GENERATION_AT, checked(0));
        medium.flush(GENERATION_AT, WORD);
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
            Change::Lines { lines, value } => {
                let writes: Vec<_> = of_lines(lines).map(|word| (home(word), value)).collect();
                self.commit(&[], &writes)
            }
            Change::Generations { generations, value } => {
                (0..generations).try_for_each(|_| self.generation(value))
            }
            Change::LastGeneration { value } => self.generation(value),
        }
    }

    fn apply_model(change: &Change, model: &mut Contents) {
        let (words, fresh, value) = match *change {
            Change::Reopen => return,
            Change::Lines { lines, value } => {
                return model.extend(of_lines(lines).map(|word| pair(word, value)));
            }
            Change::Commit { words, value } => (words, 0, value),
            Change::Fresh { words, value } => (1, words, value),
            Change::Generations { value, .. } | Change::LastGeneration { value } => (1, 0, value),
        };
        // A new value of word 0 ends the use of the unused space.
        let in_use = |word: &[u8]| *word < *pair(WORDS, 0).0 || *word >= *pair(FIRST_OF_LINES, 0).0;
        model.retain(|word, _| in_use(word));
        model.extend((0..words).chain(WORDS..WORDS + fresh).map(|word| pair(word, value)));
    }

    fn verify(&self) -> Result<Contents, String> {
        let word = |word| self.medium.word(home(word));
        let in_use =
            |at: &u64| if *at < WORDS { word(*at) != 0 } else { word(*at) == word(0) && word(0) != 0 };
        let of_lines = of_lines(LINES).filter(|at| word(*at) != 0);
        Ok((0..WORDS + FRESH).filter(in_use).chain(of_lines).map(|at| pair(at, word(at))).collect())
    }

    fn continuation(change: &Change) -> Vec<Change> {
        let commit = |words, value| Change::Commit { words, value };
        if let Change::LastGeneration { .. } = change {
            // Two generations of one short commit each: recovery must ignore the old records after the second one.
            return vec![Change::Generations { generations: 1, value: 74 }, commit(1, 75), Change::Reopen];
        }
        // A commit as long as old ones, and another recovery: it must ignore the old records after that commit.
        vec![
            commit(SHORT, 76),
            Change::Reopen,
            commit(WORDS, 77),
            Change::Generations { generations: 2, value: 78 },
        ]
    }

    fn close(mut self) -> Result<(), String> {
        self.log.truncate(&self.medium);
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
        leaves_old_commits_of_two_generations(format),
        leaves_short_commits_of_the_second_generation(format),
        changes_many_lines(format),
    ]
}

/// Tags repeat: after the wipe in generation 8,192, the first commit of generation 8,193 is shorter than that of generation 4,097.
fn tags_come_round(format: Format) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let commit = |words, value| Change::Commit { words, value };
    let prepare = vec![generations(4095, 1), commit(8, 2), generations(4094, 3)];
    let steps = vec![generations(1, 4), commit(5, 5), commit(9, 6)];
    Workload { config: format, prepare, steps: steps.into_iter().map(Step::Run).collect() }
}

/// The same with records of unused space, several of which are written before a fence in both formats: the new ones fill a line, and the
/// old ones in the next line have the same count.
fn fresh_tags_come_round(format: Format) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let fresh = |words, value| Change::Fresh { words, value };
    Workload::new(format, [generations(1, 4), fresh(3, 5), generations(1, 6)]).after([
        generations(4095, 1),
        fresh(4, 2),
        generations(4094, 3),
    ])
}

/// The first commit after the wipe has as many records as that of generation 4,097. If the wipe leaves out the next line, the second commit
/// of generation 4,097 follows in the log, whole and with the right tags. Six and eight records end where the third line begins, in one
/// format each, and sixteen where the fifth line begins.
fn ends_before_an_old_commit(format: Format, words: u64) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let commit = |value| Change::Commit { words, value };
    Workload::new(format, [generations(1, 4), commit(5)]).after([
        generations(4095, 1),
        commit(2),
        generations(4094, 3),
    ])
}

/// Before the wipe, the log holds two whole commits of generation 4,098, and one of generation 4,097 after them. If a wipe is incomplete,
/// recovery reads the one of generation 4,097, makes generation 8,193 void, and begins generation 8,194, which has the tag of generation
/// 4,098.
fn leaves_old_commits_of_two_generations(format: Format) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let commit = |value| Change::Commit { words: SHORT, value };
    let longer = [commit(2), commit(3), commit(4)];
    let shorter = [commit(5), commit(6)];
    let prepare =
        [&[generations(4095, 1)][..], &longer, &[generations(1, 4)], &shorter, &[generations(4093, 3)]]
            .concat();
    Workload::new(format, [generations(1, 4), commit(5)]).after(prepare)
}

/// Several commits of one word in the generation before the wipe: a wipe that clears the later ones first must not leave the first one.
fn wiped(format: Format) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, [commit(1, 4), commit(1, 5), generations(1, 6), commit(2, 7)])
        .after([generations(4095, 1), generations(4094, 3)])
}

/// Before the wipe, the first line of the log holds a commit of one word of generation 4,098, after a record that every generation
/// overwrites. If the wipe leaves out that line, the commit of the second generation after the wipe is followed by this old one.
fn leaves_short_commits_of_the_second_generation(format: Format) -> Workload<Logged> {
    let generations = |generations, value| Change::Generations { generations, value };
    let commit = |value| Change::Commit { words: 1, value };
    let prepare = [generations(4095, 1), generations(1, 2), commit(3), commit(4), generations(4093, 5)];
    Workload::new(format, [Change::LastGeneration { value: 6 }]).after(prepare)
}

/// Commits that store to more lines of data, and of the log, than those of small trees.
fn changes_many_lines(format: Format) -> Workload<Logged> {
    let lines = |value| Change::Lines { lines: LINES, value };
    let fresh = Change::Fresh { words: FRESH, value: 6 };
    Workload::new(format, [lines(5), Change::Generations { generations: 1, value: 4 }, fresh])
}

/// Generations of varying length end and begin.
pub fn short_generations(format: Format) -> Workload<Logged> {
    let commit = |words, value| Change::Commit { words, value };
    Workload::new(format, (0..8).map(|i| commit(1 + i * 5 % 23, 10 + i)))
}
