//! Lists: LPUSH, RPOP and related commands. Their blocking forms are in [`blocking`](super::blocking).
//!
//! An element has the tag `AT` and its position, an integer. The positions of a list are contiguous, so an index leads to its element
//! directly. The head has the first position. An insert or a removal inside a list moves the elements after it.

use std::ops::Bound;

use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY, integer, is, numbered};
use crate::access::{Result as Accessed, Together};
use crate::notifications::Event;
use crate::structures::access::{Structure, View, check_element, tagged};
use crate::structures::{Head, Kind, scan};

/// The tag of an element.
const AT: u8 = b'i';
/// Position of the first element of a new list. A list can grow by 2^63 elements to both sides.
pub(crate) const MIDDLE: u64 = 1 << 63;
/// If a command removes more elements than this and they are all, they become garbage instead of being removed one by one.
const REMOVED_TOGETHER: u64 = 64;

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "list", summary, handler }
}

const PUSH: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);
const POP: Flags = Flags::WRITE.and(Flags::FAST);
const GROW: Flags = Flags::WRITE.and(Flags::GROWS);
/// Two keys.
const TWO: KeyPositions = (1, 2, 1);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("lpush", -3, PUSH, ONE_KEY, "Adds elements before the first one.", |call| {
        push(call, End::Left, false)
    }),
    command("rpush", -3, PUSH, ONE_KEY, "Adds elements after the last one.", |call| {
        push(call, End::Right, false)
    }),
    command("lpushx", -3, PUSH, ONE_KEY, "Adds elements before the first one if the list exists.", |call| {
        push(call, End::Left, true)
    }),
    command("rpushx", -3, PUSH, ONE_KEY, "Adds elements after the last one if the list exists.", |call| {
        push(call, End::Right, true)
    }),
    command("lpop", -2, POP, ONE_KEY, "Removes and returns the first elements.", |call| {
        pop(call, "lpop", End::Left)
    }),
    command("rpop", -2, POP, ONE_KEY, "Removes and returns the last elements.", |call| {
        pop(call, "rpop", End::Right)
    }),
    command("llen", 2, Flags::READ.and(Flags::FAST), ONE_KEY, "Returns the length of a list.", |call| {
        scan::reply_len(call, Kind::List)
    }),
    command("lindex", 3, Flags::READ, ONE_KEY, "Returns the element at an index.", index),
    command("lrange", 4, Flags::READ, ONE_KEY, "Returns the elements between two indices.", range),
    command("lset", 4, GROW, ONE_KEY, "Replaces the element at an index.", set),
    command("linsert", 5, GROW, ONE_KEY, "Inserts an element before or after another one.", insert),
    command("lrem", 4, Flags::WRITE, ONE_KEY, "Removes elements that are equal to a value.", remove),
    command("ltrim", 4, Flags::WRITE, ONE_KEY, "Removes all elements but those between two indices.", trim),
    command(
        "lpos",
        -3,
        Flags::READ,
        ONE_KEY,
        "Returns the indices of an element. Options: RANK, COUNT, MAXLEN.",
        position,
    ),
    command("lmove", 5, GROW, TWO, "Moves an element from one list to another.", |call| {
        let ends = (End::parse(call.argument(3))?, End::parse(call.argument(4))?);
        move_one(call, ends)
    }),
    command("rpoplpush", 3, GROW, TWO, "Moves the last element of a list to the front of another.", |call| {
        move_one(call, (End::Right, End::Left))
    }),
    Command {
        keys: numbered(1, 0),
        ..command(
            "lmpop",
            -4,
            Flags::WRITE,
            ONE_KEY,
            "Removes elements of the first list that has any.",
            |call| {
                let keys = Numbered::parse(call, 1)?;
                let (end, count) = pop_options(call.rest(2 + keys.count))?;
                let popped = pop_any(call, keys.of(call), end, count)?;
                reply_popped(call, popped)
            },
        )
    },
];

const LPUSH: Event = Event::list("lpush");
const RPUSH: Event = Event::list("rpush");
const LPOP: Event = Event::list("lpop");
const RPOP: Event = Event::list("rpop");

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end with the first element.
    Left,
    /// The end with the last element.
    Right,
}

impl End {
    fn pushed(self) -> Event {
        if self == Self::Left { LPUSH } else { RPUSH }
    }

    fn popped(self) -> Event {
        if self == Self::Left { LPOP } else { RPOP }
    }

    /// The end of this name.
    ///
    /// # Errors
    /// `Syntax`.
    pub fn parse(word: &[u8]) -> Result<Self, CommandError> {
        match word {
            word if is(word, "LEFT") => Ok(Self::Left),
            word if is(word, "RIGHT") => Ok(Self::Right),
            _ => Err(CommandError::Syntax),
        }
    }
}

/// Keys whose number is an argument before them.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// Index of the first key among the arguments.
    first: usize,
    /// Number of keys, at least 1.
    pub count: usize,
}

impl Numbered {
    /// The keys after the argument at `at`, which is their number.
    ///
    /// # Errors
    /// A number that is not positive, or larger than the number of arguments.
    pub fn parse(call: &Call<'_>, at: usize) -> Result<Self, CommandError> {
        let text = |text: &str| CommandError::Text(text.to_owned());
        let count = integer(call.argument(at)).ok().and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count > 0);
        let count = count.ok_or_else(|| text("ERR numkeys should be greater than 0"))?;
        if count > call.rest(at + 1).len() {
            return Err(CommandError::Syntax);
        }
        Ok(Self { first: at + 1, count })
    }

    /// The keys.
    #[must_use]
    pub fn of<'a>(&self, call: &Call<'a>) -> &'a [bytes::Bytes] {
        &call.rest(self.first)[..self.count]
    }
}

/// The options of LMPOP: the end, and COUNT.
///
/// # Errors
/// `Syntax`; a count that is not positive.
pub fn pop_options(options: &[bytes::Bytes]) -> Result<(End, u64), CommandError> {
    let (end, rest) = options.split_first().ok_or(CommandError::Syntax)?;
    Ok((End::parse(end)?, pop_count(rest)?))
}

/// The option COUNT of LMPOP and ZMPOP.
///
/// # Errors
/// `Syntax`; a count that is not positive.
pub fn pop_count(options: &[bytes::Bytes]) -> Result<u64, CommandError> {
    match options {
        [] => Ok(1),
        [option, count] if is(option, "COUNT") => {
            let count = integer(count).ok().and_then(|count| u64::try_from(count).ok());
            let text = || CommandError::Text("ERR count should be greater than 0".to_owned());
            count.filter(|count| *count > 0).ok_or_else(text)
        }
        _ => Err(CommandError::Syntax),
    }
}

fn find<'k>(all: &mut Together<'_>, db: usize, key: &'k [u8]) -> Accessed<Option<Structure<'k>>> {
    Structure::find(all, db, key, Kind::List)
}

/// Adds an element at an end.
fn add(list: &mut Structure<'_>, all: &mut Together<'_>, end: End, value: &[u8]) -> Accessed<()> {
    if list.head.count == 0 {
        list.head.extra = MIDDLE;
    }
    let at = match end {
        End::Left => {
            list.head.extra -= 1;
            list.head.extra
        }
        End::Right => list.head.extra + list.head.count,
    };
    list.head.count += 1;
    list.put(all, AT, &at.to_be_bytes(), value)
}

/// The positions of at most `count` elements at an end.
fn at_end(head: &Head, end: End, count: u64) -> std::ops::Range<u64> {
    let count = count.min(head.count);
    let last = head.extra + head.count;
    match end {
        End::Left => head.extra..head.extra + count,
        End::Right => last - count..last,
    }
}

/// At most `count` elements at an end, the outermost first.
fn peek(list: &Structure<'_>, all: &mut Together<'_>, end: End, count: u64) -> Accessed<Vec<Vec<u8>>> {
    let positions = at_end(&list.head, end, count);
    let mut values = Vec::new();
    if positions.end - positions.start == 1 {
        values.extend(list.get(all, AT, &positions.start.to_be_bytes())?);
    } else {
        let range = elements(&list.head, positions.start, positions.end);
        list.scan(all, range, end == End::Right, |_, value| {
            values.push(value.to_vec());
            true
        })?;
    }
    Ok(values)
}

/// Removes at most `count` elements at an end. Finishes the list. `event` is as in [`Structure::finish`].
fn shorten(
    mut list: Structure<'_>,
    all: &mut Together<'_>,
    (end, count): (End, u64),
    event: Option<Event>,
) -> Accessed<()> {
    let positions = at_end(&list.head, end, count);
    let count = positions.end - positions.start;
    if let Some(event) = event.filter(|_| count == list.head.count && count > REMOVED_TOGETHER) {
        return list.remove(all, event);
    }
    for at in positions {
        list.delete(all, AT, &at.to_be_bytes())?;
    }
    list.head.count -= count;
    if end == End::Left {
        list.head.extra += count;
    }
    list.finish(all, event)
}

/// Makes a list of these elements in place of the key's value of any type. Without elements it only removes the key. Returns the length.
///
/// # Errors
/// Those of the store.
pub fn make(
    all: &mut Together<'_>,
    db: usize,
    key: &[u8],
    values: impl IntoIterator<Item = Vec<u8>>,
    event: Event,
) -> Accessed<u64> {
    let mut list = Structure::replacing(all, db, key, Kind::List)?;
    for value in values {
        all.shared.eviction.charge(value.len());
        add(&mut list, all, End::Right, &value)?;
    }
    let count = list.head.count;
    list.finish(all, event)?;
    Ok(count)
}

/// The range of the elements from one position to before another.
#[must_use]
pub fn elements(head: &Head, from: u64, to: u64) -> crate::structures::access::Range {
    let key = |at: u64| head.element(AT, &at.to_be_bytes());
    (Bound::Included(key(from)), Bound::Excluded(key(to)))
}

fn push(call: &mut Call<'_>, end: End, only_present: bool) -> Result<(), CommandError> {
    let (db, key, values) = (call.keys.db(), call.argument(1), call.rest(2));
    values.iter().try_for_each(|value| check_element(b"", value))?;
    let count = call.keys.together(|all| {
        let mut list = match find(all, db, key)? {
            Some(list) => list,
            None if only_present => return Ok(0),
            None => Structure::find_or_new(all, db, key, Kind::List)?,
        };
        for value in values {
            add(&mut list, all, end, value)?;
        }
        let count = list.head.count;
        list.finish(all, end.pushed())?;
        Ok(count)
    })?;
    call.reply.count(count);
    Ok(())
}

/// Removes elements of a list in one step. `None` if the key is absent.
///
/// # Errors
/// `WrongType`; those of the store; a reply that is too long, and then nothing is removed.
pub fn pop_from(
    call: &mut Call<'_>,
    key: &[u8],
    end: End,
    count: u64,
) -> Result<Option<Vec<Vec<u8>>>, CommandError> {
    let Call { keys, reply, .. } = call;
    let db = keys.db();
    let mut fits = Ok(());
    let popped = keys.together(|all| {
        let Some(list) = find(all, db, key)? else { return Ok(None) };
        if count == 0 {
            return Ok(Some(Vec::new()));
        }
        let values = peek(&list, all, end, count)?;
        fits = reply.check_space(values.iter().map(Vec::len).sum());
        if fits.is_ok() {
            shorten(list, all, (end, count), Some(end.popped()))?;
        }
        Ok(Some(values))
    })?;
    fits?;
    Ok(popped)
}

/// A key, and the elements that were removed there.
pub type Popped<'k> = Option<(&'k [u8], Vec<Vec<u8>>)>;

/// Removes elements of the first list that has any. Returns its key, too.
///
/// # Errors
/// As [`pop_from`].
pub fn pop_any<'k>(
    call: &mut Call<'_>,
    keys: &'k [bytes::Bytes],
    end: End,
    count: u64,
) -> Result<Popped<'k>, CommandError> {
    for key in keys {
        if let Some(values) = pop_from(call, key, end, count)? {
            return Ok(Some((key, values)));
        }
    }
    Ok(None)
}

/// Replies as LMPOP does.
///
/// # Errors
/// The reply is too long.
pub fn reply_popped(call: &mut Call<'_>, popped: Popped<'_>) -> Result<(), CommandError> {
    let Some((key, values)) = popped else {
        call.reply.null_array();
        return Ok(());
    };
    call.reply.array(2);
    call.reply.any_bulk(key);
    call.reply.array(values.len());
    values.iter().for_each(|value| call.reply.any_bulk(value));
    Ok(())
}

fn pop(call: &mut Call<'_>, name: &str, end: End) -> Result<(), CommandError> {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(super::count(count)?),
        _ => return Err(CommandError::Arity(name.to_owned())),
    };
    let popped = pop_from(call, call.argument(1), end, count.unwrap_or(1))?;
    match (popped, count) {
        (None, None) => call.reply.null(),
        (None, Some(_)) => call.reply.null_array(),
        (Some(values), None) => match values.first() {
            Some(value) => call.reply.any_bulk(value),
            None => call.reply.null(),
        },
        (Some(values), Some(_)) => {
            call.reply.array(values.len());
            values.iter().for_each(|value| call.reply.any_bulk(value));
        }
    }
    Ok(())
}

/// The position of an index: from the left, or from the right if it is negative. `None` if it is not in the list.
fn at(head: &Head, index: i64) -> Option<u64> {
    let offset = match u64::try_from(index) {
        Ok(offset) => offset,
        Err(_) => head.count.checked_sub(index.unsigned_abs())?,
    };
    (offset < head.count).then(|| head.extra + offset)
}

/// The positions from one index to another, both included.
fn between(head: &Head, start: i64, end: i64) -> std::ops::Range<u64> {
    let count = i64::try_from(head.count).unwrap_or(i64::MAX);
    let absolute = |index: i64| if index < 0 { index.saturating_add(count).max(-1) } else { index };
    let (start, end) = (absolute(start).max(0), absolute(end).min(count - 1));
    if start > end { 0..0 } else { head.extra + start as u64..head.extra + end as u64 + 1 }
}

fn index(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, index) = (call.argument(1), call.argument(2));
    // As in Redis, a wrong index is an error only if the list exists.
    let head = call.keys.head(key, Kind::List)?;
    call.count_lookup(head.is_some());
    if head.is_none() {
        call.reply.null();
        return Ok(());
    }
    let index = integer(index)?;
    let value = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::List)? else { return Ok(None) };
        at(&head, index).map_or(Ok(None), |at| view.get(&head, AT, &at.to_be_bytes()))
    })?;
    call.reply_option(value.as_deref())
}

fn range(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, start, end) = (call.argument(1), integer(call.argument(2))?, integer(call.argument(3))?);
    let free_bytes = call.reply.free_bytes();
    let (is_there, values) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::List)? else { return Ok((false, Vec::new())) };
        let positions = between(&head, start, end);
        let (mut values, mut bytes) = (Vec::new(), 0);
        if !positions.is_empty() {
            view.scan(elements(&head, positions.start, positions.end), false, |_, value| {
                bytes += value.len();
                values.push(value.to_vec());
                bytes <= free_bytes
            })?;
        }
        Ok((true, values))
    })?;
    call.count_lookup(is_there);
    call.reply.array(values.len());
    Ok(values.iter().try_for_each(|value| call.reply.bulk(value))?)
}

fn set(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, index, value) = (call.keys.db(), call.argument(1), call.argument(2), call.argument(3));
    check_element(b"", value)?;
    let text = |text: &str| CommandError::Text(text.to_owned());
    call.keys.together(|all| {
        let Some(mut list) = find(all, db, key)? else { return Ok(Err(text("ERR no such key"))) };
        let index = match integer(index) {
            Ok(index) => index,
            Err(error) => return Ok(Err(error)),
        };
        let Some(at) = at(&list.head, index) else { return Ok(Err(text("ERR index out of range"))) };
        list.put(all, AT, &at.to_be_bytes(), value)?;
        list.finish(all, Event::list("lset"))?;
        Ok(Ok(()))
    })??;
    call.reply.ok();
    Ok(())
}

/// All elements of a list.
fn values_of(list: &Structure<'_>, all: &mut Together<'_>) -> Accessed<Vec<Vec<u8>>> {
    let mut values = Vec::new();
    list.scan(all, tagged(&list.head, AT, b"", false), false, |_, value| {
        values.push(value.to_vec());
        true
    })?;
    Ok(values)
}

/// Writes `values` in place of the elements from `offset` on, and finishes the list.
fn rewrite(
    mut list: Structure<'_>,
    all: &mut Together<'_>,
    (offset, values): (usize, &[Vec<u8>]),
    event: Event,
) -> Accessed<()> {
    let (first, before) = (list.head.extra, list.head.count);
    let after = (offset + values.len()) as u64;
    for (i, value) in values.iter().enumerate() {
        list.put(all, AT, &(first + (offset + i) as u64).to_be_bytes(), value)?;
    }
    for at in after..before {
        list.delete(all, AT, &(first + at).to_be_bytes())?;
    }
    list.head.count = after;
    list.finish(all, event)
}

fn insert(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, pivot, value) = (call.keys.db(), call.argument(1), call.argument(3), call.argument(4));
    let is_after = match call.argument(2) {
        word if is(word, "BEFORE") => false,
        word if is(word, "AFTER") => true,
        _ => return Err(CommandError::Syntax),
    };
    check_element(b"", value)?;
    let count = call.keys.together(|all| {
        let Some(list) = find(all, db, key)? else { return Ok(0) };
        let mut values = values_of(&list, all)?;
        let Some(at) = values.iter().position(|value| value == pivot) else { return Ok(-1) };
        let at = at + usize::from(is_after);
        values.insert(at, value.to_vec());
        rewrite(list, all, (at, &values[at..]), Event::list("linsert"))?;
        Ok(i64::try_from(values.len()).unwrap_or(i64::MAX))
    })?;
    call.reply.integer(count);
    Ok(())
}

fn remove(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, value) = (call.keys.db(), call.argument(1), call.argument(3));
    let count = integer(call.argument(2))?;
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = call.keys.together(|all| {
        let Some(list) = find(all, db, key)? else { return Ok(0) };
        let values = values_of(&list, all)?;
        let equal = values.iter().enumerate().filter(|(_, found)| *found == value).map(|(i, _)| i);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut gone: Vec<usize> =
            if count < 0 { equal.rev().take(most).collect() } else { equal.take(most).collect() };
        gone.sort_unstable();
        let Some(first) = gone.first().copied() else { return Ok(0) };
        let is_gone = |i: &usize| gone.binary_search(i).is_ok();
        let kept: Vec<_> = values
            .into_iter()
            .enumerate()
            .skip(first)
            .filter(|(i, _)| !is_gone(i))
            .map(|(_, value)| value)
            .collect();
        rewrite(list, all, (first, &kept), Event::list("lrem"))?;
        Ok(gone.len())
    })?;
    call.reply.count(removed as u64);
    Ok(())
}

fn trim(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key) = (call.keys.db(), call.argument(1));
    let (start, end) = (integer(call.argument(2))?, integer(call.argument(3))?);
    call.keys.together(|all| {
        let Some(mut list) = find(all, db, key)? else { return Ok(()) };
        let kept = between(&list.head, start, end);
        let event = Event::list("ltrim");
        if kept.is_empty() {
            return list.remove(all, event);
        }
        let (first, last) = (list.head.extra, list.head.extra + list.head.count);
        if kept == (first..last) {
            all.events.note(event, db, key);
            return Ok(());
        }
        for at in (first..kept.start).chain(kept.end..last) {
            list.delete(all, AT, &at.to_be_bytes())?;
        }
        (list.head.extra, list.head.count) = (kept.start, kept.end - kept.start);
        list.finish(all, event)
    })?;
    call.reply.ok();
    Ok(())
}

struct PositionOptions {
    rank: i64,
    count: Option<u64>,
    len_max: u64,
}

fn position_options(call: &Call<'_>) -> Result<PositionOptions, CommandError> {
    let text = |text: &str| CommandError::Text(text.to_owned());
    let mut options = PositionOptions { rank: 1, count: None, len_max: 0 };
    let pairs = call.rest(3).chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(CommandError::Syntax);
    }
    for pair in pairs {
        let number = |what: &str| {
            let number = integer(&pair[1]).ok().and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| text(&format!("ERR {what} can't be negative")))
        };
        if is(&pair[0], "RANK") {
            options.rank = integer(&pair[1])?;
            if options.rank == 0 {
                return Err(text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                ));
            }
            if options.rank == i64::MIN {
                return Err(text("ERR value is out of range, must be greater than -9223372036854775807"));
            }
        } else if is(&pair[0], "COUNT") {
            options.count = Some(number("COUNT")?);
        } else if is(&pair[0], "MAXLEN") {
            options.len_max = number("MAXLEN")?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn position(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, value) = (call.argument(1), call.argument(2));
    let PositionOptions { rank, count, len_max } = position_options(call)?;
    let most = match count {
        None => 1,
        Some(0) => u64::MAX,
        Some(count) => count,
    };
    let found = call.keys.view(|view: &mut View<'_>| {
        let Some(head) = view.find(key, Kind::List)? else { return Ok(Vec::new()) };
        let (mut found, mut read, mut equal) = (Vec::new(), 0, 0);
        view.scan(tagged(&head, AT, b"", false), rank < 0, |_, element| {
            if element == value {
                equal += 1;
                if equal >= rank.unsigned_abs() {
                    found.push(if rank < 0 { (head.count - 1).saturating_sub(read) } else { read });
                }
            }
            read += 1;
            (found.len() as u64) < most && read != len_max
        })?;
        Ok(found)
    })?;
    if count.is_none() {
        match found.first() {
            Some(index) => call.reply.count(*index),
            None => call.reply.null(),
        }
        return Ok(());
    }
    call.reply.array(found.len());
    found.iter().for_each(|index| call.reply.count(*index));
    Ok(())
}

/// Moves an element from the list of the first argument to that of the second in one step. Returns the element. `None` if there is none.
///
/// # Errors
/// `WrongType`; those of the store.
pub fn moved(call: &mut Call<'_>, (from, to): (End, End)) -> Result<Option<Vec<u8>>, CommandError> {
    let (db, source, target) = (call.keys.db(), call.argument(1), call.argument(2));
    Ok(call.keys.together(|all| {
        let Some(list) = find(all, db, source)? else { return Ok(None) };
        find(all, db, target)?;
        if source == target && list.head.count == 1 {
            // The list keeps its deadline.
            all.events.note(to.pushed(), db, target);
            all.events.note(from.popped(), db, source);
            return list.get(all, AT, &list.head.extra.to_be_bytes());
        }
        let Some(value) = peek(&list, all, from, 1)?.pop() else { return Ok(None) };
        let is_last = list.head.count == 1;
        shorten(list, all, (from, 1), None)?;
        let mut list = Structure::find_or_new(all, db, target, Kind::List)?;
        add(&mut list, all, to, &value)?;
        list.finish(all, to.pushed())?;
        // As in Redis, the events of the source come last.
        all.events.note(from.popped(), db, source);
        if is_last {
            all.events.note(Event::DEL, db, source);
        }
        Ok(Some(value))
    })?)
}

fn move_one(call: &mut Call<'_>, ends: (End, End)) -> Result<(), CommandError> {
    let value = moved(call, ends)?;
    call.reply_option(value.as_deref())
}
