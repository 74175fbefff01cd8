//! Random sequences of groups, the region after each group, and the possible states after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;

use pmem::journal::{Options, Replay};
use pmem::{Error, Journal, Medium};

use crash::{Machine, Which};

pub const ID: [u64; 2] = [0x1234_5678_9ABC_DEF0, 0x0F1E_2D3C_4B5A_6978];
pub const MAX_BYTES: u64 = 16 * PAGE;
const PAGE: u64 = 4096;
const OPTIONS: Options = Options { capacity_bytes: 16 << 10, max_bytes: MAX_BYTES };

/// One step of a program.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Stores a value that no other step stores. The number, modulo the number of the region's words, selects the word.
    Store(u64),
    /// Stores to all words of a line.
    Line(u64),
    /// Stores to all words of the region: more than a half of the journal holds.
    Everything,
    Commit,
    Checkpoint,
    CheckpointAll,
    Grow,
    RollBack,
    /// Discards a page. The number, modulo the number of pages, selects it, but never the first page. Stores call `provide` for their
    /// pages.
    Discard(u64),
    /// A commit, with this many stores between the end of its group and the first write of the group.
    CommitBeside(u64),
}

/// A program of this many groups.
pub fn program(seed: u64, groups: usize) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut steps = vec![Step::Grow];
    for _ in 0..groups {
        // A few pages are hot, so that checkpoints find newer stores in them. Some groups fill much of a half.
        let stores = if rng.u8(..) < 30 { rng.u64(40..90) } else { rng.u64(1..6) };
        for _ in 0..stores {
            let place = if rng.bool() { rng.u64(..700) } else { rng.u64(..1 << 40) };
            steps.push(if rng.u8(..) < 60 { Step::Line(place) } else { Step::Store(place) });
            match rng.u8(..) {
                0..12 => steps.push(Step::Checkpoint),
                12..14 => steps.push(Step::CheckpointAll),
                14..16 => steps.push(Step::RollBack),
                16..24 => steps.push(Step::CommitBeside(rng.u64(1..9))),
                24..28 => steps.push(Step::Grow),
                _ => {}
            }
        }
        steps.push(Step::Commit);
    }
    steps
}

/// As [`program`], with every third group larger than a half.
pub fn with_large_groups(seed: u64, groups: usize) -> Vec<Step> {
    let mut commits = seed;
    let larger = |step: Step| {
        let commits_now = matches!(step, Step::Commit);
        commits += u64::from(commits_now);
        let first = (commits_now && commits.is_multiple_of(3)).then_some(Step::Everything);
        first.into_iter().chain([step])
    };
    program(seed, groups).into_iter().flat_map(larger).collect()
}

/// As [`program`], with pages that are discarded, reused and checkpointed in between.
pub fn with_discards(seed: u64, groups: usize) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut more = |step: Step| {
        let (is_commit, is_checkpoint) = (matches!(step, Step::Commit), rng.u8(..) < 80);
        let mut steps = vec![step];
        if is_commit {
            steps.extend((0..rng.u64(..4)).map(|_| Step::Discard(rng.u64(..))));
            steps.extend([Step::Commit, Step::CheckpointAll].into_iter().filter(|_| is_checkpoint));
        }
        steps
    };
    program(seed, groups).into_iter().flat_map(&mut more).collect()
}

/// A group of several sectors, which a power cut can tear. Most groups of [`program`] fit into one.
pub fn several_sectors() -> Vec<Step> {
    (0..24).map(|line| Step::Line(line * 40)).chain([Step::Commit]).collect()
}

/// The expected states of the region.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The words after each group. Group 0 is the empty region.
    states: Vec<Arc<Vec<u64>>>,
    /// The discarded pages after each group. A word of such a page has its old value or zero.
    loose_states: Vec<BTreeSet<u64>>,
    /// The words after all stores.
    running: Vec<u64>,
    loose: BTreeSet<u64>,
    /// Number of discarded pages, and of those that were holes when they were provided for.
    pub discarded: u64,
    pub refilled: u64,
    /// The newest acknowledged group.
    acknowledged: u64,
    /// The newest group that was begun.
    begun: u64,
    /// True once `create` has returned.
    pub created: bool,
    /// The length in bytes that `grow` acknowledged, and the length that it began to make.
    length: u64,
    length_begun: u64,
    value: u64,
    /// Acknowledges before the sync: an injected fault.
    pub hasty: bool,
    /// After creation, syncs of this file do nothing: another injected fault.
    pub lies: Option<Which>,
}

/// Stores to words of one page when it is dropped, as other threads do while a group is being written.
struct StoresBeside<'a> {
    oracle: &'a mut Oracle,
    journal: &'a Journal,
    stores: u64,
}

impl Drop for StoresBeside<'_> {
    fn drop(&mut self) {
        (0..self.stores).for_each(|i| self.oracle.store(self.journal, i * 5));
    }
}

/// Why a life ended early.
#[derive(Debug)]
pub enum End {
    /// A call failed, because the machine made it fail.
    Error(Error),
    /// A promise was broken.
    Broken(String),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Error(error)
    }
}

pub type Outcome<T> = std::result::Result<T, End>;

fn broken<T>(what: String) -> Outcome<T> {
    Err(End::Broken(what))
}

impl Oracle {
    pub fn new() -> Self {
        Self { states: vec![Arc::default()], loose_states: vec![BTreeSet::new()], ..Self::default() }
    }

    pub fn create(&mut self, machine: &Machine) -> Outcome<Journal> {
        self.create_with(machine, ID)
    }

    pub fn create_with(&mut self, machine: &Machine, id: [u64; 2]) -> Outcome<Journal> {
        let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        let journal = Journal::create_on(data, journal, id, &OPTIONS)?;
        self.created = true;
        machine.lie_about_syncs_of(self.lies);
        Ok(journal)
    }

    /// Opens the files and compares the contents with the possible ones. `None` if there is no store and none was acknowledged.
    pub fn open(&mut self, machine: &Machine) -> Outcome<Option<(Journal, Replay)>> {
        let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        match Journal::open_on(data, journal, MAX_BYTES) {
            Err(Error::Foreign { .. }) if !self.created => Ok(None),
            Err(error @ Error::Io { .. }) => Err(End::Error(error)),
            Err(error) => broken(format!("it does not open: {error}")),
            Ok((journal, replay)) => {
                self.compare_after_crash(&journal, replay)?;
                Ok(Some((journal, replay)))
            }
        }
    }

    fn compare_after_crash(&mut self, journal: &Journal, replay: Replay) -> Outcome<()> {
        let group = replay.newest;
        if !(self.acknowledged..=self.begun).contains(&group) {
            let Self { acknowledged, begun, .. } = self;
            return broken(format!(
                "group {group} is the newest, of {acknowledged} acknowledged, {begun} begun"
            ));
        }
        // A length that is not durable may be any length between the two.
        if !(self.length..=self.length_begun).contains(&journal.len()) {
            return broken(format!("{} bytes, not {} to {}", journal.len(), self.length, self.length_begun));
        }
        (self.length, self.length_begun) = (journal.len(), journal.len());
        self.states.truncate(group as usize + 1);
        (self.acknowledged, self.begun, self.created) = (group, group, true);
        self.loose_states.truncate(group as usize + 1);
        self.loose = self.loose_states[group as usize].clone();
        self.running = self.states[group as usize].to_vec();
        self.running.resize((self.length / 8) as usize, 0);
        self.compare(journal, "after a crash")
    }

    /// Checks that the image equals the stores.
    pub fn compare(&self, journal: &Journal, when: &str) -> Outcome<()> {
        let is_loose = |i: &usize| self.loose.contains(&(*i as u64 * 8 / PAGE));
        let differs = |(i, word): &(usize, &u64)| {
            let found = journal.word(*i as u64 * 8);
            found != **word && !(found == 0 && is_loose(i))
        };
        match self.running.iter().enumerate().find(differs) {
            Some((i, word)) => {
                broken(format!("{when}: word {i} is {:#x}, not {word:#x}", journal.word(i as u64 * 8)))
            }
            None => Ok(()),
        }
    }

    /// Rolls back the stores since the last acknowledged group.
    pub fn roll_back(&mut self, journal: &Journal) {
        journal.roll_back();
        self.loose = self.loose_states[self.acknowledged as usize].clone();
        self.running = self.states[self.acknowledged as usize].to_vec();
        self.running.resize((self.length / 8) as usize, 0);
    }

    /// The numbers of the newest acknowledged group and of the newest one that was begun.
    pub fn in_flight(&self) -> (u64, u64) {
        (self.acknowledged, self.begun)
    }

    /// Acknowledged length of the region in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// True if a growth was begun and not acknowledged.
    pub fn grows(&self) -> bool {
        self.length_begun > self.length
    }

    /// Groups after this one may be missing.
    pub fn doubt_behind(&mut self, group: u64) {
        self.acknowledged = self.acknowledged.min(group);
    }

    /// A growth failed and changed nothing.
    pub fn forget_growth(&mut self) {
        self.length_begun = self.length;
    }

    /// True if stores are waiting for a commit.
    pub fn is_running(&self) -> bool {
        let last = &self.states[self.acknowledged as usize];
        (0..self.running.len()).any(|i| self.running[i] != last.get(i).copied().unwrap_or(0))
    }

    fn store(&mut self, journal: &Journal, word: u64) {
        // A region whose first growth failed has no words.
        let Some(word) = word.checked_rem(self.running.len() as u64) else { return };
        self.value += 1;
        let value = self.value << 16 | 0xABCD;
        self.running[word as usize] = value;
        if value.is_multiple_of(3) { journal.copy(word * 8, value) } else { journal.publish(word * 8, value) }
    }

    fn discard(&mut self, journal: &Journal, page: u64) {
        let pages = self.length / PAGE;
        if let Some(page) = page.checked_rem(pages.saturating_sub(1)).map(|page| page + 1)
            && journal.discard(page * PAGE, PAGE)
        {
            self.discarded += 1;
            self.loose.insert(page);
        }
    }

    /// Calls `provide` for the discarded pages of these words.
    fn provide(&mut self, journal: &Journal, words: impl IntoIterator<Item = u64>) -> Outcome<()> {
        for word in words {
            let Some(word) = word.checked_rem(self.running.len() as u64) else { return Ok(()) };
            let page = word * 8 / PAGE;
            if self.loose.contains(&page) {
                self.compare(journal, "discarded")?;
                let is_hole = journal.holes().iter().any(|(from, to)| (*from..*to).contains(&(page * PAGE)));
                journal.provide(page * PAGE, PAGE)?;
                self.refilled += u64::from(is_hole);
                self.loose.remove(&page);
                let of_page = (page * PAGE / 8) as usize..((page + 1) * PAGE / 8) as usize;
                of_page.for_each(|word| self.running[word] = journal.word(word as u64 * 8));
            }
        }
        Ok(())
    }

    pub fn commit(&mut self, journal: &Journal) -> Outcome<()> {
        self.commit_beside(journal, 0)
    }

    fn commit_beside(&mut self, journal: &Journal, stores: u64) -> Outcome<()> {
        let due = self.is_running();
        if due {
            self.begun = self.acknowledged + 1;
            self.states.truncate(self.begun as usize);
            self.states.push(Arc::new(self.running.clone()));
            self.loose_states.truncate(self.begun as usize);
            self.loose_states.push(self.loose.clone());
        } else {
            self.loose_states[self.acknowledged as usize].extend(&self.loose);
        }
        if self.hasty {
            self.acknowledged = self.begun;
        }
        let begun = self.begun;
        let number = journal.commit_beside(|| Some(StoresBeside { oracle: self, journal, stores }))?;
        self.acknowledged = begun;
        if number == begun { Ok(()) } else { broken(format!("{number} acknowledged, not {begun}")) }
    }

    pub fn run(&mut self, journal: &Journal, steps: &[Step]) -> Outcome<()> {
        for step in steps {
            match *step {
                Step::Store(place) => {
                    self.provide(journal, [place])?;
                    self.store(journal, place);
                }
                Step::Line(place) => {
                    self.provide(journal, (place / 8 * 8..).take(8))?;
                    (place / 8 * 8..).take(8).for_each(|word| self.store(journal, word));
                }
                Step::Everything => {
                    self.provide(journal, (0..self.running.len() as u64).step_by(8))?;
                    (0..self.running.len() as u64).for_each(|word| self.store(journal, word));
                }
                Step::Commit => self.commit(journal)?,
                Step::Checkpoint => {
                    journal.checkpoint()?;
                    self.compare(journal, "after a checkpoint")?;
                }
                Step::CheckpointAll => {
                    journal.checkpoint_all()?;
                    self.compare(journal, "after a whole checkpoint")?;
                }
                Step::Grow if self.length < MAX_BYTES => {
                    self.length_begun = self.length + if self.length == 0 { 6 } else { 1 } * PAGE;
                    let grown = journal.grow(self.length_begun);
                    if grown.is_err() && journal.len() != self.length {
                        return broken("a growth that failed shows".into());
                    }
                    if let Err(Error::NoSpace { .. }) = grown {
                        // Nothing changed, so the program continues.
                        self.length_begun = self.length;
                        continue;
                    }
                    grown?;
                    self.length = self.length_begun;
                    self.running.resize((self.length / 8) as usize, 0);
                    self.compare(journal, "after a growth")?;
                }
                Step::Grow => {}
                Step::RollBack => self.roll_back(journal),
                Step::Discard(page) => self.discard(journal, page),
                Step::CommitBeside(stores) => self.commit_beside(journal, stores)?,
            }
        }
        self.compare(journal, "at the end")
    }

    /// Creates or opens, then runs.
    pub fn live(&mut self, machine: &Machine, steps: &[Step]) -> Outcome<Journal> {
        let journal = match self.created.then(|| self.open(machine)).transpose()?.flatten() {
            Some((journal, _)) => journal,
            None => self.create(machine)?,
        };
        self.run(&journal, steps)?;
        Ok(journal)
    }
}
