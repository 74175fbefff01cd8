//! The elements of a sorted set, and ranges of them.
//!
//! A member has two elements: [`MEMBER`] with the member, whose value is the score (8 bytes); and [`SCORE`] with the score in an
//! order-preserving form and the member, without a value. Both change in one transaction.

use std::ops::Bound;

use super::Head;
use super::access::{Range, Source, Structure, tagged};
use crate::access::{Result, Together};
use crate::command::{CommandError, integer};

/// The tag of a member.
pub const MEMBER: u8 = b'm';
/// The tag of a score with its member.
pub const SCORE: u8 = b's';

/// A member and its score.
pub type Scored = (Vec<u8>, f64);

/// A number whose order is that of the scores.
#[must_use]
pub fn ordered(score: f64) -> u64 {
    let bits = score.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of such a number.
#[must_use]
pub fn score_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 0 { !ordered } else { ordered & !(1 << 63) })
}

/// The key of a score's element after its tag.
fn by_score(score: f64, member: &[u8]) -> Vec<u8> {
    [&ordered(score).to_be_bytes(), member].concat()
}

/// The score in the value of a member.
#[must_use]
pub fn decode(value: &[u8]) -> f64 {
    value.first_chunk().map_or(0.0, |bytes| f64::from_bits(u64::from_be_bytes(*bytes)))
}

/// The member and the score of a score's element.
fn split(rest: &[u8]) -> Option<(f64, &[u8])> {
    let (ordered, member) = rest.split_first_chunk()?;
    Some((score_of(u64::from_be_bytes(*ordered)), member))
}

/// The score of a member.
///
/// # Errors
/// Those of the store.
pub fn get(set: &Structure<'_>, all: &mut Together<'_>, member: &[u8]) -> Result<Option<f64>> {
    Ok(set.get(all, MEMBER, member)?.map(|value| decode(&value)))
}

/// Gives a member a score. `old` is the score that it has.
///
/// # Errors
/// Those of the store.
pub fn put(
    set: &mut Structure<'_>,
    all: &mut Together<'_>,
    member: &[u8],
    old: Option<f64>,
    score: f64,
) -> Result<()> {
    // Zero has two forms, which are equal.
    let score = score + 0.0;
    match old {
        Some(old) => set.delete(all, SCORE, &by_score(old, member))?,
        None => set.head.count += 1,
    }
    set.put(all, MEMBER, member, &score.to_bits().to_be_bytes())?;
    set.put(all, SCORE, &by_score(score, member), b"")
}

/// Removes a member, which has this score.
///
/// # Errors
/// Those of the store.
pub fn delete(set: &mut Structure<'_>, all: &mut Together<'_>, member: &[u8], score: f64) -> Result<()> {
    set.delete(all, MEMBER, member)?;
    set.delete(all, SCORE, &by_score(score, member))?;
    set.head.count = set.head.count.saturating_sub(1);
    Ok(())
}

/// Which members of a sorted set are meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// Those from one rank to another, both included. Negative ranks count from the end.
    Ranks(i64, i64),
    /// Those with these scores.
    Scores(Bound<f64>, Bound<f64>),
    /// Those between these members. `None` in place of a bound: nothing is in the range.
    Members(Option<Range>),
}

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

/// Parses a number that may be infinite.
///
/// # Errors
/// `NotFloat`.
pub fn number(text: &[u8]) -> std::result::Result<f64, CommandError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.filter(|number| !number.is_nan()).ok_or(CommandError::NotFloat)
}

impl Selection {
    /// Ranks.
    ///
    /// # Errors
    /// `NotInteger`.
    pub fn ranks(start: &[u8], end: &[u8]) -> std::result::Result<Self, CommandError> {
        Ok(Self::Ranks(integer(start)?, integer(end)?))
    }

    /// Scores: numbers, with `(` in front if they are not included.
    ///
    /// # Errors
    /// They are no numbers.
    pub fn scores(min: &[u8], max: &[u8]) -> std::result::Result<Self, CommandError> {
        let bound = |argument: &[u8]| {
            let parsed = match argument {
                [b'(', rest @ ..] => number(rest).map(Bound::Excluded),
                all => number(all).map(Bound::Included),
            };
            parsed.map_err(|_| text("ERR min or max is not a float"))
        };
        Ok(Self::Scores(bound(min)?, bound(max)?))
    }

    /// Members: `[member`, `(member`, `-` or `+`.
    ///
    /// # Errors
    /// They are something else.
    pub fn members(min: &[u8], max: &[u8]) -> std::result::Result<Self, CommandError> {
        let wrong = || text("ERR min or max not valid string range item");
        let bound = |argument: &[u8]| match argument {
            [b'[', member @ ..] => Ok(Bound::Included(member.to_vec())),
            [b'(', member @ ..] => Ok(Bound::Excluded(member.to_vec())),
            b"-" | b"+" => Ok(Bound::Unbounded),
            _ => Err(wrong()),
        };
        let bounds = (bound(min)?, bound(max)?);
        Ok(Self::Members((min != b"+" && max != b"-").then_some(bounds)))
    }

    /// Passes the selected members to `visit`, each with its score, until it returns false. Those of ranks take time in proportion to the
    /// last rank.
    ///
    /// # Errors
    /// Those of the store.
    pub fn visit(
        &self,
        source: &mut dyn Source,
        head: &Head,
        descending: bool,
        visit: &mut dyn FnMut(&[u8], f64) -> bool,
    ) -> Result<()> {
        let scored = &mut |rest: &[u8], _: &[u8]| match split(rest) {
            Some((score, member)) => visit(member, score),
            None => true,
        };
        match self {
            Self::Ranks(start, end) => {
                let count = i64::try_from(head.count).unwrap_or(i64::MAX);
                let absolute = |rank: i64| if rank < 0 { rank.saturating_add(count).max(-1) } else { rank };
                let (start, end) = (absolute(*start).max(0), absolute(*end).min(count - 1));
                if start > end {
                    return Ok(());
                }
                let mut rank = -1;
                source.scan(tagged(head, SCORE, b"", false), descending, &mut |rest, value| {
                    rank += 1;
                    rank < start || scored(rest, value) && rank < end
                })
            }
            Self::Scores(min, max) => {
                let key = |ordered: u64| head.element(SCORE, &ordered.to_be_bytes());
                // A finite score or an infinite one: one more is a number above all its members.
                let low = match min {
                    Bound::Included(min) => ordered(*min + 0.0),
                    Bound::Excluded(min) => ordered(*min + 0.0) + 1,
                    Bound::Unbounded => 0,
                };
                let high = match max {
                    Bound::Included(max) => ordered(*max + 0.0) + 1,
                    Bound::Excluded(max) => ordered(*max + 0.0),
                    Bound::Unbounded => u64::MAX,
                };
                if low >= high {
                    return Ok(());
                }
                source.scan((Bound::Included(key(low)), Bound::Excluded(key(high))), descending, scored)
            }
            Self::Members(None) => Ok(()),
            Self::Members(Some((min, max))) => {
                let everything = tagged(head, MEMBER, b"", false);
                let key = |member: &Vec<u8>| head.element(MEMBER, member);
                let low = match min {
                    Bound::Included(min) => Bound::Included(key(min)),
                    Bound::Excluded(min) => Bound::Excluded(key(min)),
                    Bound::Unbounded => everything.0,
                };
                let high = match max {
                    Bound::Included(max) => Bound::Included(key(max)),
                    Bound::Excluded(max) => Bound::Excluded(key(max)),
                    Bound::Unbounded => everything.1,
                };
                if is_empty(&low, &high) {
                    return Ok(());
                }
                source.scan((low, high), descending, &mut |member, value| visit(member, decode(value)))
            }
        }
    }
}

/// True if no key is between two bounds.
fn is_empty(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low >= high
        }
        _ => false,
    }
}

/// The text of a score: the fewest digits that parse to the same number.
#[must_use]
pub fn format(score: f64) -> String {
    let size = score.abs();
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if size == 0.0 || (1e-4..1e17).contains(&size) {
        return score.to_string();
    }
    // As in C: a sign and at least two digits.
    let text = format!("{score:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_numbers_is_that_of_the_scores() {
        let scores = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 1.0, 1.5, 1e300, f64::INFINITY];
        let numbers = scores.map(ordered);
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[9] < u64::MAX);
        assert_eq!(numbers.map(score_of), scores);
    }

    #[test]
    fn scores_are_written_as_c_does_but_with_the_fewest_digits() {
        let texts = [
            (0.0, "0"),
            (3.1, "3.1"),
            (-2.0, "-2"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5e+300"),
            (1e-5, "1e-05"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (score, text) in texts {
            assert_eq!(format(score), text);
        }
    }
}
