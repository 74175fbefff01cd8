//! Commands on deadlines of keys: EXPIRE, TTL and related ones; and the options of expiry that other commands have.
//!
//! A deadline is a wall-clock time in milliseconds since 1970. From then on the key is absent. Arithmetic and errors are those of Redis.

use bristlecone::{Deadline, Next};

use super::{Call, Command, CommandError, Flags, Handler, ONE_KEY, integer, is};

use crate::notifications::Event;
const GROUP: &str = "generic";

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: ONE_KEY, group: GROUP, summary, handler }
}

const READ: Flags = Flags::READ.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("expire", -3, WRITE, "Lets a key expire after seconds. Options: NX, XX, GT, LT.", |call| {
        expire(call, "expire", Unit::Seconds, true)
    }),
    command("pexpire", -3, WRITE, "Lets a key expire after milliseconds. Options: NX, XX, GT, LT.", |call| {
        expire(call, "pexpire", Unit::Millis, true)
    }),
    command(
        "expireat",
        -3,
        WRITE,
        "Lets a key expire at a time in seconds since 1970. Options: NX, XX, GT, LT.",
        |call| expire(call, "expireat", Unit::Seconds, false),
    ),
    command(
        "pexpireat",
        -3,
        WRITE,
        "Lets a key expire at a time in milliseconds since 1970. Options: NX, XX, GT, LT.",
        |call| expire(call, "pexpireat", Unit::Millis, false),
    ),
    command(
        "ttl",
        2,
        READ,
        "Returns the seconds until a key expires; -1 if it does not, -2 for an absent key.",
        |call| tell(call, |deadline, now| seconds(deadline.saturating_sub(now))),
    ),
    command(
        "pttl",
        2,
        READ,
        "Returns the milliseconds until a key expires; -1 if it does not, -2 for an absent key.",
        |call| tell(call, |deadline, now| deadline.saturating_sub(now)),
    ),
    command(
        "expiretime",
        2,
        READ,
        "Returns the time at which a key expires in seconds since 1970; -1, -2 as TTL.",
        |call| tell(call, |deadline, _| seconds(deadline)),
    ),
    command(
        "pexpiretime",
        2,
        READ,
        "Returns the time at which a key expires in milliseconds since 1970; -1, -2 as TTL.",
        |call| tell(call, |deadline, _| deadline),
    ),
    command("persist", 2, WRITE, "Removes the deadline of a key.", persist),
];

/// The unit of a time in an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
}

/// An expiry option of SET or GETEX.
#[derive(Clone, Copy)]
pub struct Expiry<'a> {
    unit: Unit,
    is_relative: bool,
    argument: &'a [u8],
}

impl<'a> Expiry<'a> {
    /// A time after now.
    #[must_use]
    pub fn after(unit: Unit, argument: &'a [u8]) -> Self {
        Self { unit, is_relative: true, argument }
    }

    /// The option of this name, and its argument. `None` if it is another option or has no argument.
    #[must_use]
    pub fn option(name: &[u8], argument: Option<&'a [u8]>) -> Option<Self> {
        let options = [
            ("EX", Unit::Seconds, true),
            ("PX", Unit::Millis, true),
            ("EXAT", Unit::Seconds, false),
            ("PXAT", Unit::Millis, false),
        ];
        let (_, unit, is_relative) = options.into_iter().find(|(word, ..)| is(name, word))?;
        Some(Self { unit, is_relative, argument: argument? })
    }

    /// The deadline, for command `name`.
    ///
    /// # Errors
    /// `NotInteger`; a time that is not positive or too large; the error of the store's clock.
    pub fn deadline(self, call: &Call<'_>, name: &str) -> Result<u64, CommandError> {
        let time = integer(self.argument)?;
        let base = if self.is_relative { now(call)? } else { 0 };
        let deadline = (time > 0).then(|| moment(time, self.unit, base)).flatten();
        deadline.and_then(|deadline| u64::try_from(deadline).ok()).ok_or_else(|| invalid(name))
    }
}

/// The error of a time that cannot be a deadline.
fn invalid(name: &str) -> CommandError {
    CommandError::Text(format!("ERR invalid expire time in '{name}' command"))
}

/// `time` after `base`, in milliseconds. `None` if the result does not fit in an `i64`.
fn moment(time: i64, unit: Unit, base: i64) -> Option<i64> {
    let millis = if unit == Unit::Seconds { time.checked_mul(1000)? } else { time };
    millis.checked_add(base)
}

/// Milliseconds since 1970, by the clock of the store.
fn now(call: &Call<'_>) -> Result<i64, CommandError> {
    Ok(i64::try_from(call.shared.store.now()?).unwrap_or(i64::MAX))
}

/// Seconds, rounded as Redis does.
fn seconds(millis: u64) -> u64 {
    millis.saturating_add(500) / 1000
}

#[derive(Clone, Copy, Default)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    if_greater: bool,
    if_less: bool,
}

impl Conditions {
    fn parse(call: &Call<'_>) -> Result<Self, CommandError> {
        let mut all = Self::default();
        for option in call.rest(3) {
            let options = [
                ("NX", &mut all.if_none),
                ("XX", &mut all.if_any),
                ("GT", &mut all.if_greater),
                ("LT", &mut all.if_less),
            ];
            match options.into_iter().find(|(word, _)| is(option, word)) {
                Some((_, set)) => *set = true,
                None => {
                    let text = String::from_utf8_lossy(option).into_owned();
                    return Err(CommandError::Text(format!("ERR Unsupported option {text}")));
                }
            }
        }
        if all.if_none && (all.if_any || all.if_greater || all.if_less) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::Text(text.to_owned()));
        }
        if all.if_greater && all.if_less {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(CommandError::Text(text.to_owned()));
        }
        Ok(all)
    }

    /// True if the new deadline may replace the old one. A key without a deadline counts as expiring after every deadline.
    fn hold(self, old: Deadline, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.if_none && old.is_some()
            || self.if_any && old.is_none()
            || self.if_greater && old.is_none_or(|old| new <= old)
            || self.if_less && old.is_some_and(|old| new >= old))
    }
}

fn expire(call: &mut Call<'_>, name: &str, unit: Unit, is_relative: bool) -> Result<(), CommandError> {
    let conditions = Conditions::parse(call)?;
    let time = integer(call.argument(2))?;
    let now = now(call)?;
    let new = moment(time, unit, if is_relative { now } else { 0 }).ok_or_else(|| invalid(name))?;
    let mut is_set = false;
    call.keys.change_stored(call.argument(1), |old| {
        is_set = old.is_some_and(|(_, deadline)| conditions.hold(deadline, new));
        match old.filter(|_| is_set) {
            None => Next::Keep,
            Some((value, _)) if new > now => Next::Put(value.to_vec(), u64::try_from(new).ok()),
            // The deadline has passed.
            Some(_) => Next::Delete,
        }
    })?;
    if is_set {
        call.keys.note(if new > now { Event::EXPIRE } else { Event::DEL }, call.argument(1));
    }
    call.reply.flag(is_set);
    Ok(())
}

fn tell(call: &mut Call<'_>, number: fn(u64, u64) -> u64) -> Result<(), CommandError> {
    let found = call.keys.deadline(call.argument(1))?;
    call.keys.note_read(call.argument(1), found.is_some());
    let answer = match found {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let now = now(call)?;
            i64::try_from(number(deadline, u64::try_from(now).unwrap_or(0))).unwrap_or(i64::MAX)
        }
    };
    call.reply.integer(answer);
    Ok(())
}

fn persist(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut had_one = false;
    call.keys.change_stored(call.argument(1), |old| {
        let old = old.filter(|(_, deadline)| deadline.is_some());
        had_one = old.is_some();
        old.map_or(Next::Keep, |(value, _)| Next::Put(value.to_vec(), None))
    })?;
    if had_one {
        call.keys.note(Event::PERSIST, call.argument(1));
    }
    call.reply.flag(had_one);
    Ok(())
}
