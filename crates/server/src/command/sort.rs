//! SORT and SORT_RO: the elements of a list, a set or a sorted set in another order, or values of keys that are named after them.
//!
//! The command reads its elements, weights and results at one moment. They are in memory together, and count against the limit of a reply.

use std::cmp::Ordering;

use super::{Call, Command, CommandError, Flags, Handler, ONE_KEY, integer, is, lists};
use crate::access::{AccessError, Result as Accessed};
use crate::notifications::Event;
use crate::resp::reply::ReplyTooLong;
use crate::structures::access::{View, tagged};
use crate::structures::scores::{MEMBER, Selection};
use crate::structures::{Head, Kind, Value, decode};

const fn command(name: &'static str, flags: Flags, summary: &'static str, handler: Handler) -> Command {
    Command {
        name,
        arity: -2,
        flags: flags.and(Flags::SLOW),
        keys: ONE_KEY,
        group: "generic",
        summary,
        handler,
    }
}

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command(
        "sort",
        Flags::WRITE.and(Flags::GROWS),
        "Sorts the elements of a list, a set or a sorted set. Options: BY, LIMIT, GET, ASC, DESC, ALPHA, STORE.",
        |call| sort(call, true),
    ),
    command("sort_ro", Flags::READ, "Sorts elements as SORT does, without the option STORE.", |call| {
        sort(call, false)
    }),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

/// The options of SORT.
#[derive(Default)]
struct Query<'a> {
    /// The pattern of the keys with weights. Without `*`, the elements keep their order.
    by: Option<&'a [u8]>,
    /// Patterns of the values to return in place of an element.
    gets: Vec<&'a [u8]>,
    /// Index of the first result, and number of results. A negative number: all.
    limit: Option<(i64, i64)>,
    descending: bool,
    is_alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(call: &Call<'a>, may_store: bool) -> Result<Self, CommandError> {
        let user = call.session.user.as_ref();
        let sees_all = user.is_none_or(|user| user.may_read_all_keys());
        let denied = |option: &str| {
            text(&format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
        };
        let mut query = Self::default();
        let mut rest = call.rest(2);
        while let [option, after @ ..] = rest {
            rest = match after {
                after if is(option, "ASC") || is(option, "DESC") => {
                    query.descending = is(option, "DESC");
                    after
                }
                after if is(option, "ALPHA") => {
                    query.is_alpha = true;
                    after
                }
                [start, count, after @ ..] if is(option, "LIMIT") => {
                    query.limit = Some((integer(start)?, integer(count)?));
                    after
                }
                [key, after @ ..] if may_store && is(option, "STORE") => {
                    query.store = Some(key);
                    after
                }
                [pattern, after @ ..] if is(option, "BY") => {
                    if pattern.contains(&b'*') && !sees_all {
                        return Err(denied("BY"));
                    }
                    query.by = Some(pattern);
                    after
                }
                [pattern, after @ ..] if is(option, "GET") => {
                    if !sees_all {
                        return Err(denied("GET"));
                    }
                    query.gets.push(pattern);
                    after
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        Ok(query)
    }

    /// True if the elements keep their order.
    fn keeps_order(&self) -> bool {
        self.by.is_some_and(|pattern| !pattern.contains(&b'*'))
    }

    /// The indices of the results among `count` elements.
    fn range(&self, count: u64) -> std::ops::Range<u64> {
        let Some((start, limit)) = self.limit else { return 0..count };
        let start = u64::try_from(start).unwrap_or(0).min(count);
        let end = u64::try_from(limit).map_or(count, |limit| start.saturating_add(limit).min(count));
        start..end
    }
}

/// A limit on the bytes that a command holds.
struct Space {
    free_bytes: usize,
    bytes_max: usize,
}

impl Space {
    /// Takes space. False if there is not enough.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.free_bytes.checked_sub(bytes);
        self.free_bytes = left.unwrap_or(0);
        left.is_some()
    }

    fn checked(&mut self, bytes: usize) -> Result<(), CommandError> {
        if self.take(bytes) { Ok(()) } else { Err(ReplyTooLong(self.bytes_max).into()) }
    }
}

/// The value by which an element is sorted.
enum Weight {
    Number(f64),
    /// `None`: there is no such value.
    Text(Option<Vec<u8>>),
    /// The element itself, as a text.
    Element,
}

struct Item {
    element: Vec<u8>,
    weight: Weight,
}

impl Item {
    fn compare(&self, other: &Self) -> Ordering {
        let by_weight = match (&self.weight, &other.weight) {
            (Weight::Number(one), Weight::Number(other)) => one.partial_cmp(other).unwrap_or(Ordering::Equal),
            (Weight::Text(one), Weight::Text(other)) => return one.cmp(other),
            _ => Ordering::Equal,
        };
        by_weight.then_with(|| self.element.cmp(&other.element))
    }
}

/// A number as the function `strtod` of C reads it, without hexadecimal forms. `None` if Redis refuses the text.
fn number(text: &[u8]) -> Option<f64> {
    // A text of C ends with its first zero byte.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(0);
    let text = std::str::from_utf8(&text[start..]).ok()?;
    let number = text.parse::<f64>().ok()?;
    let is_infinite = || text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = || mantissa.bytes().all(|byte| !matches!(byte, b'1'..=b'9'));
    // Numbers that are too large or too small for the type are refused.
    let is_exact = match number.classify() {
        std::num::FpCategory::Nan | std::num::FpCategory::Subnormal => false,
        std::num::FpCategory::Infinite => is_infinite(),
        std::num::FpCategory::Zero => is_zero(),
        std::num::FpCategory::Normal => true,
    };
    is_exact.then_some(number)
}

/// Key and field of a pattern, with the element in place of the first `*`. `None` if the pattern has no `*`.
fn named<'p>(pattern: &'p [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'p [u8]>)> {
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < after.len());
    let (after, field) = arrow.map_or((after, None), |at| (&after[..at], Some(&after[at + 2..])));
    Some(([before, element, after].concat(), field))
}

/// The value that a pattern names. `None` if there is none.
fn lookup(view: &mut View<'_>, pattern: &[u8], element: &[u8]) -> Accessed<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some((key, field)) = named(pattern, element) else { return Ok(None) };
    // The store has no such key.
    if !(1..=bristlecone::TABLE_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(None);
    }
    let Some(stored) = view.stored(&key)? else { return Ok(None) };
    match (decode(&stored)?, field) {
        (Value::String(string), None) => Ok(Some(string.to_vec())),
        (Value::Structure(head), Some(field)) if head.kind == Kind::Hash => {
            view.get(&head, super::hashes::FIELD, field)
        }
        _ => Ok(None),
    }
}

/// The elements of a range of indices, in the order of the structure.
fn elements(
    view: &mut View<'_>,
    head: &Head,
    range: std::ops::Range<u64>,
    descending: bool,
    space: &mut Space,
) -> Result<Vec<Item>, CommandError> {
    let mut items = Vec::new();
    let mut fits = true;
    if range.is_empty() {
        return Ok(items);
    }
    let mut add = |element: &[u8]| {
        fits = space.take(element.len() + size_of::<Item>());
        items.push(Item { element: element.to_vec(), weight: Weight::Element });
        fits
    };
    let signed = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
    match head.kind {
        Kind::List => {
            let range = if descending { head.count - range.end..head.count - range.start } else { range };
            let positions = lists::elements(head, head.extra + range.start, head.extra + range.end);
            view.scan(positions, descending, |_, value| add(value))?;
        }
        Kind::SortedSet => {
            let ranks = Selection::Ranks(signed(range.start), signed(range.end - 1));
            ranks.visit(view, head, descending, &mut |member, _| add(member))?;
        }
        _ => {
            let mut index = 0;
            view.scan(tagged(head, MEMBER, b"", false), descending, |member, _| {
                index += 1;
                index <= range.start || add(member) && index < range.end
            })?;
        }
    }
    if fits { Ok(items) } else { Err(ReplyTooLong(space.bytes_max).into()) }
}

/// Gives the items their weights. The outer error is that of a text that is no number.
fn weigh(
    view: &mut View<'_>,
    query: &Query<'_>,
    items: &mut [Item],
    space: &mut Space,
) -> Result<(), CommandError> {
    let mut is_wrong = false;
    for item in items {
        let text = match query.by {
            None if query.is_alpha => return Ok(()),
            None => Some(item.element.clone()),
            Some(pattern) => lookup(view, pattern, &item.element)?,
        };
        item.weight = match text {
            text if query.is_alpha => {
                space.checked(text.as_ref().map_or(0, Vec::len))?;
                Weight::Text(text)
            }
            text => {
                let number = text.map_or(Some(0.0), |text| number(&text));
                is_wrong |= number.is_none();
                Weight::Number(number.unwrap_or(0.0))
            }
        };
    }
    if is_wrong { Err(text("ERR One or more scores can't be converted into double")) } else { Ok(()) }
}

/// The results: `None` for a value that is missing.
type Results = Vec<Option<Vec<u8>>>;

/// Reads and sorts the elements of a key. The outer `None`: the key is absent.
fn sorted(
    view: &mut View<'_>,
    query: &Query<'_>,
    key: &[u8],
    space: &mut Space,
) -> Result<Option<Results>, CommandError> {
    let Some(stored) = view.stored(key)? else { return Ok(None) };
    let head = match decode(&stored).map_err(AccessError::from)? {
        Value::Structure(head) if matches!(head.kind, Kind::List | Kind::Set | Kind::SortedSet) => head,
        _ => return Err(AccessError::WrongType.into()),
    };
    let range = query.range(head.count);
    let items = if query.keeps_order() {
        elements(view, &head, range, query.descending, space)?
    } else {
        let mut items = elements(view, &head, 0..head.count, false, space)?;
        weigh(view, query, &mut items, space)?;
        match query.descending {
            false => items.sort_by(Item::compare),
            true => items.sort_by(|one, other| other.compare(one)),
        }
        items.truncate(usize::try_from(range.end).unwrap_or(usize::MAX));
        items.drain(..items.len().min(usize::try_from(range.start).unwrap_or(usize::MAX)));
        items
    };
    if query.gets.is_empty() {
        return Ok(Some(items.into_iter().map(|item| Some(item.element)).collect()));
    }
    let mut results = Vec::new();
    for item in &items {
        for pattern in &query.gets {
            let found = lookup(view, pattern, &item.element)?;
            space.checked(size_of::<Option<Vec<u8>>>() + found.as_ref().map_or(0, Vec::len))?;
            results.push(found);
        }
    }
    Ok(Some(results))
}

fn sort(call: &mut Call<'_>, may_store: bool) -> Result<(), CommandError> {
    let query = Query::parse(call, may_store)?;
    let key = call.argument(1);
    let free_bytes = call.reply.free_bytes();
    let bytes_max = call.shared.reply_bytes_max(&call.session.client);
    let space = || Space { free_bytes, bytes_max };
    let Some(target) = query.store else {
        let results = call.keys.view(|view| Ok(sorted(view, &query, key, &mut space())))??;
        call.count_lookup(results.is_some());
        let results = results.unwrap_or_default();
        call.reply.array(results.len());
        for result in &results {
            call.reply_option(result.as_deref())?;
        }
        return Ok(());
    };
    let db = call.keys.db();
    let count = call.keys.together(|all| {
        let results = match sorted(&mut all.view(db), &query, key, &mut space()) {
            Ok(results) => results.unwrap_or_default(),
            Err(error) => return Ok(Err(error)),
        };
        let values = results.into_iter().map(Option::unwrap_or_default);
        Ok(Ok(lists::make(all, db, target, values, Event::list("sortstore"))?))
    })??;
    call.reply.count(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_c_reads() {
        let good =
            [(&b""[..], 0.0), (b" 1", 1.0), (b"+.5e1", 5.0), (b"-0", 0.0), (b"1\0x", 1.0), (b"0e999", 0.0)];
        for (text, expected) in good {
            assert_eq!(number(text), Some(expected), "{}", text.escape_ascii());
        }
        assert_eq!(number(b"-inf"), Some(f64::NEG_INFINITY));
        for wrong in [&b" "[..], b"1 ", b"x", b"nan", b"1e999", b"1e-999", b"1e-310", b"\xff"] {
            assert_eq!(number(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_pattern_names_a_key_and_perhaps_a_field() {
        let named = |pattern: &'static str| {
            let (key, field) = named(pattern.as_bytes(), b"7")?;
            Some((String::from_utf8(key).unwrap(), field.map(|field| std::str::from_utf8(field).unwrap())))
        };
        assert_eq!(named("w"), None);
        assert_eq!(named("w->*"), Some(("w->7".to_owned(), None)));
        assert_eq!(named("*"), Some(("7".to_owned(), None)));
        assert_eq!(named("w_*_*"), Some(("w_7_*".to_owned(), None)));
        assert_eq!(named("w_*->f"), Some(("w_7".to_owned(), Some("f"))));
        assert_eq!(named("w_*x->f->g"), Some(("w_7x".to_owned(), Some("f->g"))));
        assert_eq!(named("w_*->"), Some(("w_7->".to_owned(), None)));
    }
}
