//! ZUNION, ZINTER, ZDIFF and related commands: combinations of sorted sets and of sets.

use std::collections::BTreeMap;

use super::lists::Numbered;
use super::sorted_sets::{make, write};
use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, integer, is, numbered};
use crate::access::{AccessError, Result as Accessed};
use crate::notifications::Event;
use crate::structures::access::{InTransaction, Source, Structure, View, tagged};
use crate::structures::scores::{self, MEMBER, Scored, number};
use crate::structures::{Head, Kind};

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "sorted-set", summary, handler }
}

const STORE: Flags = Flags::WRITE.and(Flags::GROWS);
const COMBINES: &str = "Combines sorted sets. Options: WEIGHTS, AGGREGATE, WITHSCORES.";
const STORES: &str = "Stores a combination of sorted sets. Options: WEIGHTS, AGGREGATE.";

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("zunion", -3, Flags::READ, numbered(1, 0), COMBINES, |call| combine(call, Operation::Union)),
    command("zinter", -3, Flags::READ, numbered(1, 0), COMBINES, |call| {
        combine(call, Operation::Intersection)
    }),
    command(
        "zdiff",
        -3,
        Flags::READ,
        numbered(1, 0),
        "Returns the difference of sorted sets. Option: WITHSCORES.",
        |call| combine(call, Operation::Difference),
    ),
    command("zunionstore", -4, STORE, numbered(2, 1), STORES, |call| store(call, Operation::Union)),
    command("zinterstore", -4, STORE, numbered(2, 1), STORES, |call| store(call, Operation::Intersection)),
    command("zdiffstore", -4, STORE, numbered(2, 1), "Stores the difference of sorted sets.", |call| {
        store(call, Operation::Difference)
    }),
    command(
        "zintercard",
        -3,
        Flags::READ,
        numbered(1, 0),
        "Returns the number of common members. Option: LIMIT.",
        |call| {
            let (keys, limit) = super::sets::card_options(call)?;
            let members = call.keys.view(|view| {
                combined(keys, &Combination::of(Operation::Intersection, keys.len()), |key| read(view, key))
            })?;
            let count = members.len() as u64;
            call.reply.count(if limit > 0 { count.min(limit) } else { count });
            Ok(())
        },
    ),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

impl Operation {
    /// The event of a key that holds the result.
    fn stored(self) -> Event {
        Event::sorted_set(match self {
            Self::Union => "zunionstore",
            Self::Intersection => "zinterstore",
            Self::Difference => "zdiffstore",
        })
    }
}

/// How the scores of a member in several sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // The sum of the two infinities is 0, as in Redis.
            Self::Sum if (one + other).is_nan() => 0.0,
            Self::Sum => one + other,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

/// The options of ZUNION and related commands.
#[derive(Clone, Debug)]
struct Combination {
    operation: Operation,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Combination {
    fn of(operation: Operation, keys: usize) -> Self {
        Self { operation, weights: vec![1.0; keys], aggregate: Aggregate::Sum, with_scores: false }
    }

    fn parse(
        operation: Operation,
        keys: usize,
        options: &[bytes::Bytes],
        is_store: bool,
    ) -> Result<Self, CommandError> {
        let mut combination = Self::of(operation, keys);
        let is_weighted = operation != Operation::Difference;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if is_weighted && is(option, "WEIGHTS") && options.len() >= keys {
                for weight in &mut combination.weights {
                    let text = || text("ERR weight value is not a float");
                    *weight = options.next().and_then(|weight| number(weight).ok()).ok_or_else(text)?;
                }
            } else if is_weighted && is(option, "AGGREGATE") && options.len() >= 1 {
                combination.aggregate = match options.next() {
                    Some(word) if is(word, "SUM") => Aggregate::Sum,
                    Some(word) if is(word, "MIN") => Aggregate::Min,
                    Some(word) if is(word, "MAX") => Aggregate::Max,
                    _ => return Err(CommandError::Syntax),
                };
            } else if !is_store && is(option, "WITHSCORES") {
                combination.with_scores = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(combination)
    }
}

/// The members of one set with their scores. A member of a plain set has the score 1.
fn members_of(source: &mut dyn Source, head: &Head) -> Accessed<BTreeMap<Vec<u8>, f64>> {
    let mut members = BTreeMap::new();
    source.scan(tagged(head, MEMBER, b"", false), false, &mut |member, value| {
        let score = if head.kind == Kind::Set { 1.0 } else { scores::decode(value) };
        members.insert(member.to_vec(), score);
        true
    })?;
    Ok(members)
}

fn read(view: &mut View<'_>, key: &[u8]) -> Accessed<BTreeMap<Vec<u8>, f64>> {
    let head = match view.find(key, Kind::SortedSet) {
        Err(AccessError::WrongType) => view.find(key, Kind::Set)?,
        head => head?,
    };
    head.map_or_else(|| Ok(BTreeMap::new()), |head| members_of(view, &head))
}

/// Combines the sets of the keys. `read` reads one.
fn combined(
    keys: &[bytes::Bytes],
    how: &Combination,
    mut read: impl FnMut(&[u8]) -> Accessed<BTreeMap<Vec<u8>, f64>>,
) -> Accessed<Vec<Scored>> {
    let weigh = |score: f64, weight: f64| {
        let weighed = score * weight;
        if weighed.is_nan() { 0.0 } else { weighed }
    };
    let mut result = BTreeMap::new();
    for (i, (key, weight)) in keys.iter().zip(&how.weights).enumerate() {
        let set = read(key)?;
        if i == 0 {
            result = set.into_iter().map(|(member, score)| (member, weigh(score, *weight))).collect();
            continue;
        }
        match how.operation {
            Operation::Union => {
                for (member, score) in set {
                    let score = weigh(score, *weight);
                    let entry = result.entry(member);
                    entry.and_modify(|sum| *sum = how.aggregate.of(*sum, score)).or_insert(score);
                }
            }
            Operation::Intersection => result.retain(|member, sum| {
                let score = set.get(member).map(|score| weigh(*score, *weight));
                *sum = score.map_or(*sum, |score| how.aggregate.of(*sum, score));
                score.is_some()
            }),
            Operation::Difference => result.retain(|member, _| !set.contains_key(member)),
        }
    }
    let mut members: Vec<Scored> = result.into_iter().collect();
    // Equal scores stay in the order of the members.
    members.sort_by_key(|(_, score)| scores::ordered(*score + 0.0));
    Ok(members)
}

fn combine(call: &mut Call<'_>, operation: Operation) -> Result<(), CommandError> {
    let numbered = set_keys(call, 1)?;
    let options = call.rest(2 + numbered.count);
    let (keys, how) = (numbered.of(call), Combination::parse(operation, numbered.count, options, false));
    // As in Redis, the types of the keys come before the options.
    let none = Combination::of(operation, keys.len());
    let members =
        call.keys.view(|view| combined(keys, how.as_ref().unwrap_or(&none), |key| read(view, key)))?;
    let how = how?;
    write(call, &members, how.with_scores)
}

/// The keys after the argument at `at`, which is their number.
fn set_keys(call: &Call<'_>, at: usize) -> Result<Numbered, CommandError> {
    let count = integer(call.argument(at))?;
    if count < 1 {
        let name = String::from_utf8_lossy(call.argument(0)).to_ascii_lowercase();
        return Err(text(&format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    Numbered::parse(call, at)
}

fn store(call: &mut Call<'_>, operation: Operation) -> Result<(), CommandError> {
    let numbered = set_keys(call, 2)?;
    let options = call.rest(3 + numbered.count);
    let (keys, how) = (numbered.of(call), Combination::parse(operation, numbered.count, options, true));
    let none = Combination::of(operation, keys.len());
    let (db, target) = (call.keys.db(), call.argument(1));
    let count = call.keys.together(|all| {
        let members = combined(keys, how.as_ref().unwrap_or(&none), |key| {
            let set = match Structure::find(all, db, key, Kind::SortedSet) {
                Err(AccessError::WrongType) => Structure::find(all, db, key, Kind::Set)?,
                set => set?,
            };
            let Some(set) = set else {
                all.events.note(Event::MISS, db, key);
                return Ok(BTreeMap::new());
            };
            members_of(&mut InTransaction(&set, all), &set.head)
        })?;
        if how.is_err() {
            return Ok(0);
        }
        let members = members.iter().map(|(member, score)| (&member[..], *score));
        make(all, db, target, members, operation.stored())
    })?;
    how?;
    call.reply.count(count);
    Ok(())
}
