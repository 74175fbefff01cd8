//! The limit of memory (`maxmemory`), and the eviction of keys before a write that would exceed it.
//!
//! Used memory is [`bristlecone::Space::live_bytes`]: the bytes in blocks of the store that hold nodes, records and separators. Reading it
//! takes time in proportion to the store. So the server measures it now and then, and estimates in between: a write takes its expected cost
//! from a budget, an eviction adds the bytes of its key and value to the budget. The cost is estimated high and the bytes low, so the
//! estimate errs towards eviction until the next measurement.
//!
//! Invariants:
//! * E1: without a limit, a command reads one word of this module.
//! * E2: a write that needs memory runs only if the budget covers its cost, or if eviction for this write has freed as much as it needs.
//!   Otherwise the write is refused and changes nothing. Writes whose result is longer than their arguments may exceed the limit by one
//!   value.
//! * E3: keys are evicted by ordinary deletes, before the write, in steps of few keys. An eviction counts as a write of the key for WATCH,
//!   and is durable with the write that needs the memory.
//! * E4: locks: the lock of the candidates is taken before those of watches and of the store, and held during a step.

pub mod accesses;
mod candidates;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Config;
use crate::access::{AccessError, Result};
use crate::command::{Command, Flags, integer, is, off_the_worker};
use crate::shared::{Shared, lock};
use crate::users::permissions;
use accesses::{Accesses, By};
use candidates::Candidates;

/// The choice of keys to evict, as in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// No key. Writes that need memory are refused.
    #[default]
    NoEviction,
    /// The least recently used of all keys.
    AllkeysLru,
    /// The least frequently used of all keys.
    AllkeysLfu,
    /// Any of all keys.
    AllkeysRandom,
    /// The least recently used of the keys with a deadline.
    VolatileLru,
    /// The least frequently used of the keys with a deadline.
    VolatileLfu,
    /// Any of the keys with a deadline.
    VolatileRandom,
    /// The keys whose deadline comes first.
    VolatileTtl,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::AllkeysLru,
        Self::AllkeysLfu,
        Self::AllkeysRandom,
        Self::NoEviction,
    ];

    /// The name in Redis.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllkeysLru => "allkeys-lru",
            Self::AllkeysLfu => "allkeys-lfu",
            Self::AllkeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    /// True if only keys with a deadline are evicted.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(self, Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl)
    }

    /// True if the policy counts how often keys are accessed.
    #[must_use]
    pub fn is_lfu(self) -> bool {
        matches!(self, Self::AllkeysLfu | Self::VolatileLfu)
    }

    /// True if the policy uses the accesses to keys.
    #[must_use]
    pub fn has_accesses(self) -> bool {
        self.is_lfu() || matches!(self, Self::AllkeysLru | Self::VolatileLru)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The largest value of `maxmemory-samples`.
pub const SAMPLES_MAX: usize = 64;
/// The default of `maxmemory-samples`.
pub const SAMPLES: usize = 5;
/// The error of a write that needs memory when there is none, as in Redis.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Expected cost of a write beside its bytes, per key: a part of a split of a node, and the rounding of a block.
const KEY_COST: u64 = 1024;
/// A measurement is due when the writes since the latest one have cost this part of the limit.
const MEASURED_PART: u64 = 256;
/// If no memory is left, a measurement is also due after this time.
const MEASURED_EACH: Duration = Duration::from_millis(10);
/// An eviction frees at most twice the cost of its write plus this many bytes. So a limit that was lowered is reached in steps.
const EXTRA_BYTES: u64 = 64 << 10;
/// Eviction ends after this many steps in which no key could be evicted.
const VAIN_STEPS: usize = 4;
/// Maximum number of steps of an eviction without a write.
const IDLE_STEPS: usize = 64;

/// The limit, the budget, and the accesses to keys.
#[derive(Debug)]
pub struct Eviction {
    /// Maximum bytes. 0: no limit.
    limit_bytes: AtomicU64,
    policy: AtomicU8,
    samples: AtomicUsize,
    /// Bytes that writes may take before the next measurement. Negative: none.
    budget: AtomicI64,
    /// Cost of the writes that are running.
    running: AtomicI64,
    /// Cost of the writes since the latest measurement.
    charged: AtomicU64,
    /// True if something may have freed memory since the latest measurement.
    is_stale: AtomicBool,
    accesses: OnceLock<Accesses>,
    chosen: Mutex<Chosen>,
}

#[derive(Debug, Default)]
struct Chosen {
    candidates: Candidates,
    measured: Option<Instant>,
}

/// A write that runs within the limit. Dropping it ends the write.
#[derive(Debug)]
pub struct Admission<'a> {
    eviction: &'a Eviction,
    cost: i64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.cost > 0 {
            self.eviction.running.fetch_sub(self.cost, Ordering::SeqCst);
        }
    }
}

/// The reason why a write does not run.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no memory, and no key can be evicted.
    #[error("{OUT_OF_MEMORY}")]
    OutOfMemory,
    /// Keys to evict could not be read or removed.
    #[error("{0}")]
    Access(#[from] AccessError),
}

/// A number of bytes as a signed number, at most a quarter of `i64::MAX`, so that sums do not overflow.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

impl Eviction {
    /// The state of a server that is about to start.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let eviction = Self {
            limit_bytes: AtomicU64::new(0),
            policy: AtomicU8::new(config.memory_policy as u8),
            samples: AtomicUsize::new(config.memory_samples.clamp(1, SAMPLES_MAX)),
            budget: AtomicI64::new(0),
            running: AtomicI64::new(0),
            charged: AtomicU64::new(0),
            is_stale: AtomicBool::new(true),
            accesses: OnceLock::new(),
            chosen: Mutex::default(),
        };
        eviction.set_limit_bytes(config.memory_bytes_max);
        eviction
    }

    /// Maximum bytes of used memory. 0: no limit.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Sets the limit. The next write measures the used memory.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::SeqCst);
        self.is_stale.store(true, Ordering::SeqCst);
        self.budget.store(0, Ordering::SeqCst);
        self.make_accesses();
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let number = self.policy.load(Ordering::Relaxed);
        Policy::ALL.into_iter().find(|policy| *policy as u8 == number).unwrap_or_default()
    }

    /// Sets the policy.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        self.make_accesses();
    }

    /// Number of keys that are compared for each one that is evicted.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples.load(Ordering::Relaxed)
    }

    /// Sets the number of keys that are compared for each one that is evicted, 1 to [`SAMPLES_MAX`].
    pub fn set_samples(&self, samples: usize) {
        self.samples.store(samples.clamp(1, SAMPLES_MAX), Ordering::Relaxed);
    }

    /// Makes the table of accesses when a policy first needs it.
    fn make_accesses(&self) {
        let limit_bytes = self.limit_bytes();
        if limit_bytes > 0 && self.policy().has_accesses() {
            self.accesses.get_or_init(|| Accesses::new(limit_bytes));
        }
    }

    /// The accesses to keys. `None` if they are not noted.
    #[must_use]
    pub fn accesses(&self) -> Option<&Accesses> {
        (self.limit_bytes() > 0 && self.policy().has_accesses()).then(|| self.accesses.get()).flatten()
    }

    /// Notes accesses to keys of a database.
    pub fn note<'k>(&self, db: usize, keys: impl IntoIterator<Item = &'k [u8]>) {
        let Some(accesses) = self.accesses() else { return };
        let by = if self.policy().is_lfu() { By::Frequency } else { By::Recency };
        keys.into_iter().for_each(|key| accesses.note(db, key, by));
    }

    /// Notes the accesses of a command. As in Redis, a command that only asks about a key or removes it does not count as an access.
    pub fn note_command(&self, command: &Command, db: usize, arguments: &[Bytes]) {
        const NO_ACCESS: [&str; 12] = [
            "object",
            "exists",
            "type",
            "ttl",
            "pttl",
            "expiretime",
            "pexpiretime",
            "memory",
            "watch",
            "del",
            "unlink",
            "getdel",
        ];
        if self.limit_bytes() > 0 && !NO_ACCESS.contains(&command.name) {
            self.note(db, permissions::keys(command, arguments).map(|(_, key)| key));
        }
    }

    /// Takes more bytes from the budget: a running write stores a value of this length.
    pub fn charge(&self, bytes: usize) {
        if self.limit_bytes() > 0 {
            self.budget.fetch_sub(signed(bytes as u64), Ordering::SeqCst);
            self.charged.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Notes that a command which needs no memory may have freed some.
    pub fn note_change(&self) {
        if self.limit_bytes() > 0 && !self.is_stale.load(Ordering::Relaxed) {
            self.is_stale.store(true, Ordering::SeqCst);
        }
    }

    /// Measures the used memory. Costs of writes that are admitted meanwhile stay subtracted: a write adds to `running` before it takes
    /// from the budget, and this method reads them in the other order.
    fn measure(&self, shared: &Shared, chosen: &mut Chosen) {
        self.is_stale.store(false, Ordering::SeqCst);
        self.charged.store(0, Ordering::SeqCst);
        let before = self.budget.load(Ordering::SeqCst);
        let running = self.running.load(Ordering::SeqCst);
        let free = signed(self.limit_bytes()) - signed(shared.store.space().live_bytes) - running;
        self.budget.fetch_add(free.saturating_sub(before), Ordering::SeqCst);
        chosen.measured = Some(Instant::now());
    }

    fn is_measurement_due(&self, chosen: &Chosen) -> bool {
        self.is_stale.load(Ordering::SeqCst)
            || self.charged.load(Ordering::Relaxed) >= self.limit_bytes() / MEASURED_PART
            || chosen.measured.is_none_or(|measured| measured.elapsed() >= MEASURED_EACH)
    }

    /// Takes the cost of a write from the budget (E2). Evicts keys first, if that is necessary.
    ///
    /// # Errors
    /// `OutOfMemory`; the errors of eviction.
    pub fn admit<'a>(&'a self, shared: &Shared, cost: u64) -> Result<Admission<'a>, Refused> {
        if self.limit_bytes() == 0 {
            return Ok(Admission { eviction: self, cost: 0 });
        }
        let admission = Admission { eviction: self, cost: signed(cost) };
        self.running.fetch_add(admission.cost, Ordering::SeqCst);
        self.charged.fetch_add(cost, Ordering::Relaxed);
        if self.budget.fetch_sub(admission.cost, Ordering::SeqCst) >= admission.cost {
            return Ok(admission);
        }
        let made = off_the_worker(|| self.make_space(shared, cost));
        if !matches!(made, Ok(true)) {
            self.budget.fetch_add(admission.cost, Ordering::SeqCst);
            self.charged.fetch_sub(cost.min(self.charged.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        if made? { Ok(admission) } else { Err(Refused::OutOfMemory) }
    }

    /// True if the budget is not negative, or if the evicted keys had at least `cost` bytes.
    fn make_space(&self, shared: &Shared, cost: u64) -> Result<bool> {
        let mut chosen = lock(&self.chosen);
        let is_enough = || self.budget.load(Ordering::SeqCst) >= 0;
        if is_enough() {
            return Ok(true);
        }
        if self.is_measurement_due(&chosen) {
            self.measure(shared, &mut chosen);
        }
        let freed =
            self.evict(shared, &mut chosen, cost.saturating_mul(2).saturating_add(EXTRA_BYTES), usize::MAX)?;
        if !is_enough() && freed > 0 {
            self.measure(shared, &mut chosen);
        }
        Ok(is_enough() || freed >= cost)
    }

    /// Evicts keys until the budget is not negative, or until `bytes_max` are free. Returns the bytes of their keys and values.
    fn evict(&self, shared: &Shared, chosen: &mut Chosen, bytes_max: u64, steps_max: usize) -> Result<u64> {
        let (mut freed, mut vain) = (0, 0);
        for _ in 0..steps_max {
            let wanted = self.budget.load(Ordering::SeqCst).min(0).unsigned_abs().min(bytes_max - freed);
            if self.policy() == Policy::NoEviction || wanted == 0 || vain == VAIN_STEPS {
                break;
            }
            let (bytes, keys) = chosen.candidates.step(shared, wanted)?;
            self.budget.fetch_add(signed(bytes), Ordering::SeqCst);
            shared.counters.evicted_keys.fetch_add(keys, Ordering::Relaxed);
            freed = (freed + bytes).min(bytes_max);
            vain = if keys == 0 { vain + 1 } else { 0 };
        }
        Ok(freed)
    }

    /// True if the limit may be exceeded and the policy evicts keys, for example after the limit was lowered.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        let may_be = self.is_stale.load(Ordering::Relaxed) || self.budget.load(Ordering::Relaxed) < 0;
        self.limit_bytes() > 0 && self.policy() != Policy::NoEviction && may_be
    }

    /// Evicts some keys if the limit is exceeded. Bounded work, without a write that needs the memory.
    ///
    /// # Errors
    /// Those of eviction.
    pub fn evict_some(&self, shared: &Shared) -> Result<()> {
        let (evicted, ticket) = shared.store.apply(|_| {
            let mut chosen = lock(&self.chosen);
            self.measure(shared, &mut chosen);
            self.evict(shared, &mut chosen, u64::MAX, IDLE_STEPS)
        });
        evicted?;
        Ok(shared.store.wait(ticket)?)
    }
}

/// The expected cost of a command in bytes. `None` if it needs no memory.
#[must_use]
pub fn cost(command: &Command, arguments: &[Bytes]) -> Option<u64> {
    // FUNCTION has subcommands that need memory, and others that do not.
    let stores_libraries = command.name == "function"
        && arguments.get(1).is_some_and(|word| is(word, "LOAD") || is(word, "RESTORE"));
    if !command.flags.has(Flags::GROWS) && !stores_libraries {
        return None;
    }
    // SETRANGE and SETBIT make a value as long as their offset.
    let offset = |divisor| {
        let offset = arguments.get(2).and_then(|offset| integer(offset).ok()).unwrap_or(0);
        u64::try_from(offset).unwrap_or(0).min(bristlecone::VALUE_BYTES_MAX as u64 * divisor) / divisor
    };
    let value_bytes = match command.name {
        "setrange" => offset(1),
        "setbit" => offset(8),
        _ => 0,
    };
    let bytes: usize = arguments.iter().skip(1).map(Bytes::len).sum();
    let keys = permissions::keys(command, arguments).count() as u64 + u64::from(stores_libraries);
    Some(write_cost(keys, bytes as u64 + value_bytes))
}

/// The expected cost of a write of some keys, with this many bytes of keys and values.
#[must_use]
pub fn write_cost(keys: u64, bytes: u64) -> u64 {
    // A batch is stored twice until it is done.
    keys * KEY_COST + bytes * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn policies_have_the_names_of_redis_in_any_case() {
        for policy in Policy::ALL {
            assert_eq!(Policy::named(&policy.to_string().to_ascii_uppercase()), Some(policy));
        }
        assert_eq!(Policy::named("lru"), None);
        assert_eq!(Policy::named("noeviction"), Some(Policy::default()));
    }

    #[test]
    fn the_cost_covers_the_arguments_and_the_value_that_an_offset_makes() {
        let cost = |text: &str| {
            let arguments: Vec<_> =
                text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            cost(find(&arguments[0]).unwrap(), &arguments)
        };
        assert_eq!(cost("GET k"), None);
        assert_eq!(cost("DEL k"), None);
        assert_eq!(cost("SET k value"), Some(KEY_COST + 12));
        assert_eq!(cost("MSET a 1 b 2"), Some(2 * KEY_COST + 8));
        assert!(cost("SETRANGE k 1000000 x").unwrap() >= 1_000_001);
        assert!(cost("SETBIT k 8000000 1").unwrap() >= 1_000_000);
        assert!(cost("SETRANGE k -1 x").unwrap() < 2 * KEY_COST);
        assert!(cost("SETRANGE k 9223372036854775807 x").unwrap() < u64::MAX / 2);
    }
}
