//! Toy subjects: a pair of counters with a redo log, and a list that grows. Each is correct, or has one deliberate flaw.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crash::{Contents, Subject};
use pmem::{Fence, Medium, Observed};

/// The flaw of a toy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    #[default]
    None,
    /// No fence between the log's payload and its commit word.
    NoPayloadFence,
    /// The payload's second line is not flushed, the first one twice.
    WrongLineFlushed,
    /// The commit word is stored before the payload's fence.
    CommitBeforePayload,
    /// The log is emptied before the home lines are durable.
    NoHomeFence,
    /// Recovery empties the log before the home lines are durable.
    NoHomeFenceInRecovery,
    /// Recovery does not fence the emptied log. Shows only in a later operation.
    NoLastFenceInRecovery,
    /// Recovery redoes the log by adding to the present values.
    RecoveryAddsUp,
    /// Recovery redoes the log but never empties it.
    RecoveryLeavesLog,
    /// Recovery redoes the first word of each home line and assumes that the second is correct.
    RecoveryForgetsTwins,
    /// Recovery panics when it finds work.
    RecoveryPanics,
    /// Recovery never ends when it finds work.
    RecoveryHangs,
    /// Create returns before its magic word is durable.
    CreateNotFenced,
    /// Recovery reads its lines in an order that changes from call to call.
    Moody,
    /// Verification stores.
    VerifyStores,
    /// Operations fail.
    ApplyFails,
    /// After recovery, operations do nothing.
    BreaksLater,
    /// Close overwrites one half of the pair.
    CloseBreaks,
}

static MOOD: AtomicU64 = AtomicU64::new(0);

const MAGIC: u64 = 0x6272_6973_746c_6531;
const COMMITTED: u64 = 0x0000_0001_0000_0001;
const MAGIC_AT: u64 = 0;
const LOG_A: u64 = 64;
const LOG_B: u64 = 128;
const COMMIT: u64 = 192;
const HOME_A: u64 = 256;
const HOME_B: u64 = 320;
const TWIN: u64 = 8;

/// Two words on two lines that always change together, with a redo log on three lines.
pub struct Pair {
    medium: Observed,
    flaw: Flaw,
    recovered: bool,
}

/// Sets both words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set(pub u64, pub u64);

pub const ALPHABET: [Set; 4] = [Set(1, 2), Set(3, 4), Set(0x1_0000_0007, 8), Set(0, 0)];

fn store_home(medium: &Observed, a: u64, b: u64) {
    medium.copy(HOME_A, a);
    medium.copy(HOME_A + TWIN, twin(a));
    medium.copy(HOME_B, b);
    medium.copy(HOME_B + TWIN, twin(b));
    medium.flush(HOME_A, 8);
    medium.flush(HOME_B, 8);
}

/// The value of the second word of a home line.
fn twin(value: u64) -> u64 {
    value.wrapping_mul(3)
}

fn empty_log(medium: &Observed) {
    medium.publish(COMMIT, 0);
    medium.flush(COMMIT, 8);
}

impl Pair {
    fn redo(&self) -> Result<(), String> {
        let medium = &self.medium;
        match medium.word(COMMIT) {
            0 => return Ok(()),
            COMMITTED => {}
            other => return Err(format!("commit word {other:#x}")),
        }
        match self.flaw {
            Flaw::RecoveryPanics => panic!("work to do"),
            Flaw::RecoveryHangs => while medium.word(COMMIT) != 7 {},
            Flaw::RecoveryForgetsTwins => {
                medium.publish(HOME_A, medium.word(LOG_A));
                medium.publish(HOME_B, medium.word(LOG_B));
                medium.flush(HOME_A, 128);
                medium.fence(Fence::Checkpoint);
                empty_log(medium);
                medium.fence(Fence::Commit);
                return Ok(());
            }
            _ => {}
        }
        let base = if self.flaw == Flaw::RecoveryAddsUp { medium.word(HOME_A) } else { 0 };
        store_home(medium, base + medium.word(LOG_A), medium.word(LOG_B));
        if self.flaw != Flaw::NoHomeFenceInRecovery {
            medium.fence(Fence::Checkpoint); // [recovery: home before empty]
        }
        if self.flaw != Flaw::RecoveryLeavesLog {
            empty_log(medium);
        }
        if self.flaw != Flaw::NoLastFenceInRecovery {
            medium.fence(Fence::Commit); // [recovery: empty before reuse]
        }
        Ok(())
    }
}

impl Subject for Pair {
    type Op = Set;
    type Config = Flaw;

    fn size(_: &Flaw) -> (u64, u64) {
        (384, 384)
    }

    fn create(medium: Observed, flaw: &Flaw) -> Result<Self, String> {
        medium.publish(MAGIC_AT, MAGIC); // [magic]
        medium.flush(MAGIC_AT, 8);
        if *flaw != Flaw::CreateNotFenced {
            medium.fence(Fence::Superblock);
        }
        Ok(Self { medium, flaw: *flaw, recovered: false })
    }

    fn recover(medium: Observed, flaw: &Flaw) -> Result<Self, String> {
        if medium.word(MAGIC_AT) != MAGIC {
            return Err("never created".to_owned());
        }
        if *flaw == Flaw::Moody && MOOD.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
            medium.word(HOME_B);
            medium.word(HOME_A);
        }
        let pair = Self { medium, flaw: *flaw, recovered: true };
        pair.redo()?;
        Ok(pair)
    }

    fn apply(&mut self, op: &Set) -> Result<(), String> {
        let (medium, flaw) = (&self.medium, self.flaw);
        match flaw {
            Flaw::ApplyFails => return Err("full of holes".to_owned()),
            Flaw::BreaksLater if self.recovered => return Ok(()),
            _ => {}
        }
        if flaw == Flaw::CommitBeforePayload {
            medium.publish(COMMIT, COMMITTED);
        }
        medium.copy(LOG_A, op.0);
        medium.copy(LOG_B, op.1);
        medium.flush(LOG_A, 8);
        medium.flush(if flaw == Flaw::WrongLineFlushed { LOG_A } else { LOG_B }, 8);
        if flaw != Flaw::NoPayloadFence {
            medium.fence(Fence::Payload); // [payload before commit]
        }
        if flaw != Flaw::CommitBeforePayload {
            medium.publish(COMMIT, COMMITTED);
        }
        medium.flush(COMMIT, 8);
        medium.fence(Fence::Commit); // [commit before home]
        store_home(medium, op.0, op.1);
        if flaw != Flaw::NoHomeFence {
            medium.fence(Fence::Checkpoint);
        }
        empty_log(medium);
        medium.fence(Fence::Commit); // [empty before reuse]
        Ok(())
    }

    fn apply_model(op: &Set, model: &mut Contents) {
        *model = contents(op.0, op.1);
    }

    fn verify(&self) -> Result<Contents, String> {
        if self.flaw == Flaw::VerifyStores {
            self.medium.copy(HOME_A, self.medium.word(HOME_A));
        }
        for home in [HOME_A, HOME_B] {
            if self.medium.word(home + TWIN) != twin(self.medium.word(home)) {
                return Err(format!("the word at {home:#x} is not followed by its twin"));
            }
        }
        match self.medium.word(COMMIT) {
            0 => Ok(contents(self.medium.word(HOME_A), self.medium.word(HOME_B))),
            _ if self.flaw == Flaw::RecoveryLeavesLog => {
                Ok(contents(self.medium.word(HOME_A), self.medium.word(HOME_B)))
            }
            other => Err(format!("the log is not empty: {other:#x}")),
        }
    }

    fn continuation(op: &Set) -> Vec<Set> {
        vec![Set(op.1, op.0), Set(5, 6)]
    }

    fn close(self) -> Result<(), String> {
        if self.flaw == Flaw::CloseBreaks {
            self.medium.copy(HOME_A, 99);
        }
        Ok(())
    }
}

fn contents(a: u64, b: u64) -> Contents {
    let pair = [(b"a".to_vec(), a), (b"b".to_vec(), b)];
    pair.into_iter().filter(|(_, v)| *v != 0).map(|(k, v)| (k, v.to_le_bytes().to_vec())).collect()
}

/// A list of entries, one per line. The count is published after each entry. The memory grows by one line at a time.
pub struct List {
    medium: Observed,
    config: ListConfig,
}

/// The flaws of a [`List`], and the number of payload words of an entry (1 to 8).
#[derive(Clone, Copy, Debug)]
pub struct ListConfig {
    /// Recovery uses the memory's length instead of the published count.
    pub trusts_length: bool,
    /// Entries are not flushed before they are counted.
    pub unflushed: bool,
    /// Words of an entry.
    pub words: u64,
}

/// Appends an entry with this value in every word.
#[derive(Clone, Copy, Debug)]
pub struct Push(pub u64);

impl List {
    fn count(&self) -> u64 {
        if self.config.trusts_length { self.medium.len() / 64 - 1 } else { self.medium.word(8) }
    }
}

impl Subject for List {
    type Op = Push;
    type Config = ListConfig;

    fn size(_: &ListConfig) -> (u64, u64) {
        (64, 64 * 64)
    }

    fn create(medium: Observed, config: &ListConfig) -> Result<Self, String> {
        medium.publish(0, MAGIC);
        medium.flush(0, 8);
        medium.fence(Fence::Superblock);
        Ok(Self { medium, config: *config })
    }

    fn recover(medium: Observed, config: &ListConfig) -> Result<Self, String> {
        if medium.word(0) != MAGIC {
            return Err("never created".to_owned());
        }
        Ok(Self { medium, config: *config })
    }

    fn apply(&mut self, op: &Push) -> Result<(), String> {
        let count = self.count();
        let entry = 64 * (count + 1);
        if self.medium.len() < entry + 64 {
            self.medium.grow(entry + 64).map_err(|error| error.to_string())?;
        }
        for word in 0..self.config.words {
            self.medium.copy(entry + 8 * word, op.0);
        }
        if !self.config.unflushed {
            self.medium.flush(entry, 8 * self.config.words);
            self.medium.fence(Fence::Payload);
        }
        self.medium.publish(8, count + 1);
        self.medium.flush(8, 8);
        self.medium.fence(Fence::Commit);
        Ok(())
    }

    fn apply_model(op: &Push, model: &mut Contents) {
        model.insert((model.len() as u64).to_be_bytes().to_vec(), op.0.to_le_bytes().to_vec());
    }

    fn verify(&self) -> Result<Contents, String> {
        let mut seen = BTreeMap::new();
        for index in 0..self.count() {
            let entry = 64 * (index + 1);
            let value = self.medium.word(entry);
            if (1..self.config.words).any(|word| self.medium.word(entry + 8 * word) != value) {
                return Err(format!("entry {index} is torn"));
            }
            seen.insert(index.to_be_bytes().to_vec(), value.to_le_bytes().to_vec());
        }
        Ok(seen)
    }

    fn continuation(op: &Push) -> Vec<Push> {
        vec![Push(op.0 + 1), Push(op.0 + 2)]
    }

    fn close(self) -> Result<(), String> {
        Ok(())
    }
}
