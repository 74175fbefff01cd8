//! Counters: values that are decimal numbers and change in one step.
//!
//! Floating-point numbers are IEEE doubles. They are written with the fewest digits that parse to the same double.

use std::borrow::Cow;

use bristlecone::Change;

use super::{Call, Command, CommandError, Flags, ONE_KEY, integer};

use crate::notifications::Event;
const GROUP: &str = "string";
const FLAGS: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "incr",
        arity: 2,
        flags: FLAGS,
        keys: ONE_KEY,
        group: GROUP,
        summary: "Adds one to a number.",
        handler: |call| add(call, 1),
    },
    Command {
        name: "decr",
        arity: 2,
        flags: FLAGS,
        keys: ONE_KEY,
        group: GROUP,
        summary: "Subtracts one from a number.",
        handler: |call| add(call, -1),
    },
    Command {
        name: "incrby",
        arity: 3,
        flags: FLAGS,
        keys: ONE_KEY,
        group: GROUP,
        summary: "Adds to a number.",
        handler: |call| add(call, integer(call.argument(2))?),
    },
    Command {
        name: "decrby",
        arity: 3,
        flags: FLAGS,
        keys: ONE_KEY,
        group: GROUP,
        summary: "Subtracts from a number.",
        handler: |call| {
            let negated = integer(call.argument(2))?.checked_neg();
            let amount =
                negated.ok_or_else(|| CommandError::Text("ERR decrement would overflow".to_owned()))?;
            add(call, amount)
        },
    },
    Command {
        name: "incrbyfloat",
        arity: 3,
        flags: FLAGS,
        keys: ONE_KEY,
        group: GROUP,
        summary: "Adds to a floating-point number.",
        handler: add_float,
    },
];

fn add(call: &mut Call<'_>, amount: i64) -> Result<(), CommandError> {
    let sum = change(call, Event::string("incrby"), |old| {
        let old = old.map_or(Ok(0), integer)?;
        let overflow = || CommandError::Text("ERR increment or decrement would overflow".to_owned());
        let sum = old.checked_add(amount).ok_or_else(overflow)?;
        Ok((sum, sum.to_string()))
    })?;
    call.reply.integer(sum);
    Ok(())
}

fn add_float(call: &mut Call<'_>) -> Result<(), CommandError> {
    let amount = call.argument(2);
    let text = change(call, Event::string("incrbyfloat"), |old| {
        // As in Redis, the old value comes first.
        let sum = old.map_or(Ok(0.0), float)? + float(amount)?;
        if !sum.is_finite() {
            return Err(CommandError::Text("ERR increment would produce NaN or Infinity".to_owned()));
        }
        let text = sum.to_string();
        Ok((text.clone(), text))
    })?;
    call.reply.bulk(text.as_bytes())?;
    Ok(())
}

/// Replaces the value of the first argument in one step. `next` computes a reply and the new text from the old value.
fn change<T>(
    call: &mut Call<'_>,
    event: Event,
    mut next: impl FnMut(Option<&[u8]>) -> Result<(T, String), CommandError>,
) -> Result<T, CommandError> {
    let mut answer = Err(CommandError::NotInteger);
    call.keys.update(call.argument(1), |old| match next(old) {
        Ok((value, text)) => {
            answer = Ok(value);
            Change::Put(Cow::Owned(text.into_bytes()))
        }
        Err(error) => {
            answer = Err(error);
            Change::Keep
        }
    })?;
    if answer.is_ok() {
        call.keys.note(event, call.argument(1));
    }
    answer
}

/// Parses a finite number.
///
/// # Errors
/// `NotFloat`.
pub fn float(text: &[u8]) -> Result<f64, CommandError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number: &f64| number.is_finite()).ok_or(CommandError::NotFloat)
}
