//! The oracle: judges one image.
//!
//! It checks four conditions:
//! * the image recovers;
//! * it holds the acknowledged contents, with the operation in flight complete or absent;
//! * a second recovery finds the same contents and stores nothing;
//! * after a few more operations (the continuation) the contents are still correct.
//!
//! A panic and an endless loop count as violations.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use pmem::{Event, Observed};

use crate::erased::{AnyOp, Config};
use crate::stage::Stage;
use crate::subject::Contents;
use crate::tape::Recorded;

/// The contents that an image may hold.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'a> {
    /// The contents without the operation in flight, if they are allowed.
    pub before: Option<&'a Contents>,
    /// The contents with it, if they are allowed.
    pub after: Option<&'a Contents>,
    /// True if the crash was inside `create`. Then recovery may return "never created".
    pub absent: bool,
    /// True if each key may be in its old or its new state.
    pub divisible: bool,
}

impl<'a> Expect<'a> {
    /// Exactly these contents.
    pub fn exactly(contents: &'a Contents) -> Self {
        Self { before: None, after: Some(contents), absent: false, divisible: false }
    }

    /// The operation in flight is complete or absent.
    pub fn either(before: &'a Contents, after: &'a Contents) -> Self {
        Self { before: Some(before), after: Some(after), absent: false, divisible: false }
    }

    /// Each key has its state before or after the operation in flight.
    pub fn mixture(before: &'a Contents, after: &'a Contents) -> Self {
        Self { divisible: true, ..Self::either(before, after) }
    }

    /// Empty or never created.
    pub fn unborn(empty: &'a Contents) -> Self {
        Self { before: None, after: Some(empty), absent: true, divisible: false }
    }

    /// A fingerprint of these expectations.
    pub fn fingerprint(&self) -> u128 {
        let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
        hash.update(&[u8::from(self.absent), u8::from(self.divisible)]);
        for contents in [self.before, self.after] {
            hash.update(&contents.map_or(u64::MAX, |contents| contents.len() as u64).to_le_bytes());
            for bytes in contents.into_iter().flatten().flat_map(|(key, value)| [key, value]) {
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        hash.digest128()
    }

    /// Checks contents against the expectations.
    ///
    /// # Errors
    /// The differences, if the contents are not among the expected ones.
    pub fn check(&self, seen: &Contents) -> Result<(), String> {
        if [self.before, self.after].into_iter().flatten().any(|allowed| allowed == seen) {
            return Ok(());
        }
        if let (Some(before), Some(after), true) = (self.before, self.after, self.divisible) {
            let mut keys = before.keys().chain(after.keys()).chain(seen.keys());
            let allowed = |key| [before, after].iter().any(|contents| contents.get(key) == seen.get(key));
            if keys.all(allowed) {
                return Ok(());
            }
        }
        let mut message = "wrong contents".to_owned();
        for (name, allowed) in [("the operation absent", self.before), ("the operation whole", self.after)] {
            if let Some(allowed) = allowed {
                message += &format!("; against {name}: {}", difference(allowed, seen));
            }
        }
        Err(message)
    }
}

/// Describes the first few differences between two contents, in one line.
fn difference(allowed: &Contents, seen: &Contents) -> String {
    let missing = allowed.iter().filter(|(key, _)| !seen.contains_key(*key)).map(|(key, _)| ("missing", key));
    let extra = seen.iter().filter(|(key, _)| !allowed.contains_key(*key)).map(|(key, _)| ("extra", key));
    let changed = seen.iter().filter(|(key, value)| allowed.get(*key).is_some_and(|other| other != *value));
    let changed = changed.map(|(key, _)| ("changed", key));
    let all: Vec<_> = missing.chain(extra).chain(changed).collect();
    let shown: Vec<_> =
        all.iter().take(4).map(|(what, key)| format!("{what} {}", key.escape_ascii())).collect();
    format!(
        "{}{}",
        shown.join(", "),
        if all.len() > 4 { format!(" and {} more", all.len() - 4) } else { String::new() }
    )
}

/// The result of a good image.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The subject's contents after recovery; `None` if it was never created.
    pub seen: Option<Contents>,
    /// The events of recovery.
    pub recovery: Vec<Recorded>,
    /// Bytes in use after recovery.
    pub len: u64,
    /// Number of choices made before and during the first check of the contents.
    pub taken: usize,
}

/// Recovers and checks the image that `stage` has begun, then runs `continuation`.
///
/// # Errors
/// The first violated condition.
pub(crate) fn judge(
    stage: &Arc<Stage>,
    config: &dyn Config,
    expect: &Expect<'_>,
    continuation: &[AnyOp],
) -> Result<Judged, String> {
    let medium = Observed::new(stage.memory().clone(), stage.clone());
    stage.record(true);
    let subject = match config.recover(medium.clone()) {
        Ok(subject) => subject,
        Err(_) if expect.absent => return Ok(Judged { seen: None, recovery: Vec::new(), len: 0, taken: 0 }),
        Err(message) => return Err(format!("does not recover: {message}")),
    };
    stage.record(false);
    let (recovery, len) = (stage.events(), stage.memory().len());
    let seen = subject.verify().map_err(|message| format!("after recovery: {message}"))?;
    expect.check(&seen)?;
    let taken = stage.taken();
    drop(subject);

    stage.record(true);
    let mut subject = config.recover(medium).map_err(|message| format!("second recovery: {message}"))?;
    stage.record(false);
    stores_nothing(config, &stage.events())?;
    let again = subject.verify().map_err(|message| format!("after a second recovery: {message}"))?;
    if again != seen {
        return Err(format!("a second recovery sees something else: {}", difference(&seen, &again)));
    }

    if !continuation.is_empty() {
        let mut model = again;
        for op in continuation {
            subject.apply(&**op).map_err(|message| format!("continuation {}: {message}", op.name()))?;
            op.apply_model(&mut model);
        }
        let end = subject.verify().map_err(|message| format!("after the continuation: {message}"))?;
        if end != model {
            return Err(format!("after the continuation: {}", difference(&model, &end)));
        }
    }
    Ok(Judged { seen: Some(seen), recovery, len, taken })
}

fn stores_nothing(config: &dyn Config, events: &[Recorded]) -> Result<(), String> {
    for recorded in events {
        if let Event::Store { at, site, .. } = recorded.event
            && !config.idempotence_exempt(at)
        {
            return Err(format!("a second recovery stores to {at:#x} ({site})"));
        }
    }
    Ok(())
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `f`. A panic in it becomes an error with the panic's location, and prints nothing.
///
/// # Errors
/// Those of `f`, and its panics.
pub fn quietly<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
                PANIC.set(format!("panic{place}: {}", payload(info.payload())));
            } else {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result.unwrap_or_else(|_| Err(PANIC.take()))
}

fn payload(payload: &dyn Any) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}
