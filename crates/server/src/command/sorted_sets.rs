//! Sorted sets: ZADD, ZRANGE and related commands. [`crate::structures::scores`] has their elements.
//!
//! A rank is found by counting, so ZRANK, and ZRANGE by rank, take time in proportion to the rank.

use super::lists::Numbered;
use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY, integer, is, numbered};
use crate::access::{Result as Accessed, Together};
use crate::notifications::Event;
use crate::resp::reply::Protocol;
use crate::structures::access::{InTransaction, Source, Structure, check_element};
use crate::structures::scan::{self, Picks};
use crate::structures::scores::{self, MEMBER, Scored, Selection, format, number};
use crate::structures::{Head, Kind};

/// If a command removes at least this many members and they are all, they become garbage instead of being removed one by one.
const REMOVED_TOGETHER: usize = 64;

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

const ADD: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);
const TAKE: Flags = Flags::WRITE.and(Flags::FAST);
const LOOK: Flags = Flags::READ.and(Flags::FAST);
const STORE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("zadd", -4, ADD, ONE_KEY, "Adds members with scores. Options: NX, XX, GT, LT, CH, INCR.", add),
    command("zincrby", 4, ADD, ONE_KEY, "Adds to the score of a member.", |call| {
        let amount = number(call.argument(2))?;
        let rules = Rules { adds: true, ..Rules::default() };
        let (_, score) = apply(call, rules, &[(amount, call.argument(3))])?;
        reply_score(call, score);
        Ok(())
    }),
    command("zrem", -3, TAKE, ONE_KEY, "Removes members; returns how many were there.", remove),
    command("zcard", 2, LOOK, ONE_KEY, "Returns the number of members.", |call| {
        scan::reply_len(call, Kind::SortedSet)
    }),
    command("zscore", 3, LOOK, ONE_KEY, "Returns the score of a member.", score),
    command("zmscore", -3, LOOK, ONE_KEY, "Returns the scores of several members.", scores_of),
    command("zrank", 3, LOOK, ONE_KEY, "Returns the rank of a member.", |call| rank(call, false)),
    command(
        "zrevrank",
        3,
        LOOK,
        ONE_KEY,
        "Returns the rank of a member, counted from the highest score.",
        |call| rank(call, true),
    ),
    command("zcount", 4, LOOK, ONE_KEY, "Counts members by score.", |call| {
        count(call, Selection::scores(call.argument(2), call.argument(3))?)
    }),
    command("zlexcount", 4, LOOK, ONE_KEY, "Counts members between two members.", |call| {
        count(call, Selection::members(call.argument(2), call.argument(3))?)
    }),
    command(
        "zrange",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members. Options: BYSCORE, BYLEX, REV, LIMIT, WITHSCORES.",
        |call| range(call, Query::parse(call, 2, Style::ANY)?),
    ),
    command(
        "zrevrange",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members by rank, from the highest score.",
        |call| range(call, Query::parse(call, 2, Style { by: By::Rank, is_descending: true, ..Style::OLD })?),
    ),
    command(
        "zrangebyscore",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members by score. Options: WITHSCORES, LIMIT.",
        |call| range(call, Query::parse(call, 2, Style { by: By::Score, ..Style::OLD })?),
    ),
    command(
        "zrevrangebyscore",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members by score, from the highest one. Options: WITHSCORES, LIMIT.",
        |call| {
            range(call, Query::parse(call, 2, Style { by: By::Score, is_descending: true, ..Style::OLD })?)
        },
    ),
    command(
        "zrangebylex",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members between two members. Option: LIMIT.",
        |call| range(call, Query::parse(call, 2, Style { by: By::Member, ..Style::OLD })?),
    ),
    command(
        "zrevrangebylex",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns members between two members, in descending order. Option: LIMIT.",
        |call| {
            range(call, Query::parse(call, 2, Style { by: By::Member, is_descending: true, ..Style::OLD })?)
        },
    ),
    command(
        "zrangestore",
        -5,
        STORE,
        (1, 2, 1),
        "Stores members of another sorted set. Options: BYSCORE, BYLEX, REV, LIMIT.",
        range_store,
    ),
    command("zremrangebyrank", 4, Flags::WRITE, ONE_KEY, "Removes members by rank.", |call| {
        remove_range(call, Selection::ranks(call.argument(2), call.argument(3))?)
    }),
    command("zremrangebyscore", 4, Flags::WRITE, ONE_KEY, "Removes members by score.", |call| {
        remove_range(call, Selection::scores(call.argument(2), call.argument(3))?)
    }),
    command("zremrangebylex", 4, Flags::WRITE, ONE_KEY, "Removes members between two members.", |call| {
        remove_range(call, Selection::members(call.argument(2), call.argument(3))?)
    }),
    command(
        "zpopmin",
        -2,
        TAKE,
        ONE_KEY,
        "Removes and returns the members with the lowest scores.",
        |call| pop(call, false),
    ),
    command(
        "zpopmax",
        -2,
        TAKE,
        ONE_KEY,
        "Removes and returns the members with the highest scores.",
        |call| pop(call, true),
    ),
    command(
        "zmpop",
        -4,
        Flags::WRITE,
        numbered(1, 0),
        "Removes members of the first sorted set that has any.",
        |call| {
            let keys = Numbered::parse(call, 1)?;
            let (from_highest, count) = pop_options(call.rest(2 + keys.count))?;
            let popped = pop_any(call, keys.of(call), from_highest, count)?;
            reply_popped(call, popped);
            Ok(())
        },
    ),
    command(
        "zrandmember",
        -2,
        Flags::READ,
        ONE_KEY,
        "Returns any members; not all are equally likely. Options: a count, WITHSCORES.",
        any,
    ),
    command(
        "zscan",
        -3,
        Flags::READ,
        ONE_KEY,
        "Goes through the members in order. Options: MATCH, COUNT.",
        |call| scan::reply(call, Kind::SortedSet, MEMBER, true),
    ),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

/// The conditions under which ZADD changes a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// Only members that are absent.
    pub if_absent: bool,
    /// Only members that are present.
    pub if_present: bool,
    if_greater: bool,
    if_less: bool,
    /// The reply counts changed members, too.
    pub counts_changes: bool,
    /// The score is added to the one that the member has.
    adds: bool,
}

/// Applies ZADD to pairs. Returns the number of members that were added, and of those whose score has changed; and the score of the last
/// member, if the rules allowed to set it.
pub(super) fn apply(
    call: &mut Call<'_>,
    rules: Rules,
    pairs: &[(f64, &[u8])],
) -> Result<((u64, u64), Option<f64>), CommandError> {
    let (db, key) = (call.keys.db(), call.argument(1));
    pairs.iter().try_for_each(|(_, member)| check_element(member, b""))?;
    call.keys.together(|all| {
        let mut set = match Structure::find(all, db, key, Kind::SortedSet)? {
            Some(set) => set,
            None if rules.if_present => return Ok(Ok(((0, 0), None))),
            None => Structure::find_or_new(all, db, key, Kind::SortedSet)?,
        };
        let (mut added, mut changed, mut last) = (0, 0, None);
        for &(score, member) in pairs {
            let old = scores::get(&set, all, member)?;
            last = None;
            let is_refused = old.is_some() && rules.if_absent || old.is_none() && rules.if_present;
            if is_refused {
                continue;
            }
            let new = if rules.adds { old.unwrap_or(0.0) + score } else { score };
            if new.is_nan() {
                return Ok(Err(text("ERR resulting score is not a number (NaN)")));
            }
            if old.is_some_and(|old| rules.if_greater && new <= old || rules.if_less && new >= old) {
                continue;
            }
            last = Some(new);
            if old == Some(new) {
                continue;
            }
            scores::put(&mut set, all, member, old, new)?;
            added += u64::from(old.is_none());
            changed += u64::from(old.is_some());
        }
        set.finish(all, Event::sorted_set(if rules.adds { "zincr" } else { "zadd" }))?;
        Ok(Ok(((added, changed), last)))
    })?
}

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut rules = Rules::default();
    let mut rest = call.rest(2);
    while let Some((option, after)) = rest.split_first() {
        let flags = [
            ("NX", &mut rules.if_absent),
            ("XX", &mut rules.if_present),
            ("GT", &mut rules.if_greater),
            ("LT", &mut rules.if_less),
            ("CH", &mut rules.counts_changes),
            ("INCR", &mut rules.adds),
        ];
        let Some((_, flag)) = flags.into_iter().find(|(word, _)| is(option, word)) else { break };
        *flag = true;
        rest = after;
    }
    let pairs = rest.chunks_exact(2);
    if rest.is_empty() || !pairs.remainder().is_empty() {
        return Err(CommandError::Syntax);
    }
    if rules.if_absent && rules.if_present {
        return Err(text("ERR XX and NX options at the same time are not compatible"));
    }
    let conditions = [rules.if_greater, rules.if_less, rules.if_absent];
    if conditions.into_iter().filter(|is_set| *is_set).count() > 1 {
        return Err(text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if rules.adds && rest.len() > 2 {
        return Err(text("ERR INCR option supports a single increment-element pair"));
    }
    let pairs = pairs.map(|pair| Ok((number(&pair[0])?, &pair[1][..])));
    let pairs = pairs.collect::<Result<Vec<_>, CommandError>>()?;
    let ((added, changed), score) = apply(call, rules, &pairs)?;
    match (rules.adds, score) {
        (true, Some(_)) => reply_score(call, score),
        (true, None) => call.reply.null(),
        _ => call.reply.count(if rules.counts_changes { added + changed } else { added }),
    }
    Ok(())
}

fn reply_score(call: &mut Call<'_>, score: Option<f64>) {
    match score {
        Some(score) => call.reply.double_text(&format(score)),
        None => call.reply.null(),
    }
}

fn remove(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, members) = (call.keys.db(), call.argument(1), call.rest(2));
    let removed = call.keys.together(|all| {
        let Some(mut set) = Structure::find(all, db, key, Kind::SortedSet)? else { return Ok(0) };
        let mut removed = 0;
        for member in members {
            if let Some(score) = scores::get(&set, all, member)? {
                scores::delete(&mut set, all, member, score)?;
                removed += 1;
            }
        }
        set.finish(all, Event::sorted_set("zrem"))?;
        Ok(removed)
    })?;
    call.reply.count(removed);
    Ok(())
}

fn score(call: &mut Call<'_>) -> Result<(), CommandError> {
    let found = call.keys.element(call.argument(1), Kind::SortedSet, MEMBER, call.argument(2))?;
    call.count_lookup(found.is_some());
    reply_score(call, found.and_then(|(_, value)| value).map(|value| scores::decode(&value)));
    Ok(())
}

fn scores_of(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, members) = (call.argument(1), call.rest(2));
    let (is_there, found) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else {
            return Ok((false, vec![None; members.len()]));
        };
        let scores = members
            .iter()
            .map(|member| Ok(view.get(&head, MEMBER, member)?.map(|value| scores::decode(&value))));
        Ok((true, scores.collect::<Accessed<Vec<_>>>()?))
    })?;
    call.count_lookup(is_there);
    call.reply.array(found.len());
    found.into_iter().for_each(|score| reply_score(call, score));
    Ok(())
}

fn rank(call: &mut Call<'_>, descending: bool) -> Result<(), CommandError> {
    let (key, member) = (call.argument(1), call.argument(2));
    let (is_there, rank) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else { return Ok((false, None)) };
        if view.get(&head, MEMBER, member)?.is_none() {
            return Ok((true, None));
        }
        let mut rank = 0;
        Selection::Ranks(0, -1).visit(view, &head, descending, &mut |found, _| {
            let goes_on = found != member;
            rank += u64::from(goes_on);
            goes_on
        })?;
        Ok((true, Some(rank)))
    })?;
    call.count_lookup(is_there);
    match rank {
        Some(rank) => call.reply.count(rank),
        None => call.reply.null(),
    }
    Ok(())
}

fn count(call: &mut Call<'_>, selection: Selection) -> Result<(), CommandError> {
    let key = call.argument(1);
    let (is_there, count) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else { return Ok((false, 0)) };
        let mut count = 0;
        selection.visit(view, &head, false, &mut |_, _| {
            count += 1;
            true
        })?;
        Ok((true, count))
    })?;
    call.count_lookup(is_there);
    call.reply.count(count);
    Ok(())
}

/// What the two bounds of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// The options that a command of ranges has.
#[derive(Clone, Copy, Debug)]
struct Style {
    by: By,
    is_descending: bool,
    /// True if the options choose `by` and `is_descending`.
    is_free: bool,
    /// True if the command stores its result.
    is_store: bool,
}

impl Style {
    const ANY: Self = Self { by: By::Rank, is_descending: false, is_free: true, is_store: false };
    const OLD: Self = Self { is_free: false, ..Self::ANY };
}

/// A range of a sorted set.
#[derive(Clone, Debug)]
struct Query {
    selection: Selection,
    descending: bool,
    offset: u64,
    limit: u64,
    with_scores: bool,
}

impl Query {
    /// The range in the arguments from `at` on: two bounds, and options.
    fn parse(call: &Call<'_>, at: usize, style: Style) -> Result<Self, CommandError> {
        let Style { mut by, mut is_descending, is_free, is_store } = style;
        let (mut limits, mut with_scores) = (None, false);
        let mut options = call.rest(at + 2).iter();
        while let Some(option) = options.next() {
            if !is_store && is(option, "WITHSCORES") {
                with_scores = true;
            } else if is(option, "LIMIT") && options.len() >= 2 {
                let mut number =
                    || options.next().map_or(Err(CommandError::Syntax), |number| integer(number));
                limits = Some((number()?, number()?));
            } else if is_free && is(option, "BYSCORE") {
                by = By::Score;
            } else if is_free && is(option, "BYLEX") {
                by = By::Member;
            } else if is_free && is(option, "REV") {
                is_descending = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if limits.is_some_and(|limits| limits != (0, -1)) && by == By::Rank {
            return Err(text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut min, mut max) = (call.argument(at), call.argument(at + 1));
        if is_descending && by != By::Rank {
            (min, max) = (max, min);
        }
        let selection = match by {
            By::Rank => Selection::ranks(min, max)?,
            By::Score => Selection::scores(min, max)?,
            By::Member => Selection::members(min, max)?,
        };
        let (offset, limit) = limits.unwrap_or((0, -1));
        // A negative offset selects nothing, a negative limit everything.
        let limit = if offset < 0 { 0 } else { u64::try_from(limit).unwrap_or(u64::MAX) };
        let offset = u64::try_from(offset).unwrap_or(0);
        Ok(Self { selection, descending: is_descending, offset, limit, with_scores })
    }

    /// The members of the range, until they have more than `bytes_max` bytes.
    fn run(&self, source: &mut dyn Source, head: &Head, bytes_max: usize) -> Accessed<Vec<Scored>> {
        let (mut found, mut met, mut bytes) = (Vec::new(), 0, 0);
        if self.limit == 0 {
            return Ok(found);
        }
        self.selection.visit(source, head, self.descending, &mut |member, score| {
            met += 1;
            if met > self.offset {
                bytes += member.len();
                found.push((member.to_vec(), score));
            }
            (found.len() as u64) < self.limit && bytes <= bytes_max
        })?;
        Ok(found)
    }
}

/// Writes members, with their scores if that is wanted: in RESP3 each pair is an array then.
///
/// # Errors
/// The reply is too long.
pub fn write(call: &mut Call<'_>, members: &[Scored], with_scores: bool) -> Result<(), CommandError> {
    let nested = with_scores && call.reply.protocol() == Protocol::Resp3;
    call.reply.array(members.len() * if with_scores && !nested { 2 } else { 1 });
    for (member, score) in members {
        if nested {
            call.reply.array(2);
        }
        call.reply.bulk(member)?;
        if with_scores {
            call.reply.double_text(&format(*score));
        }
    }
    Ok(())
}

fn range(call: &mut Call<'_>, query: Query) -> Result<(), CommandError> {
    let key = call.argument(1);
    let bytes_max = call.reply.free_bytes();
    let (is_there, members) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else { return Ok((false, Vec::new())) };
        Ok((true, query.run(view, &head, bytes_max)?))
    })?;
    call.count_lookup(is_there);
    write(call, &members, query.with_scores)
}

/// Makes a sorted set of these members in place of a value of any type. Nothing is left if there are none.
///
/// # Errors
/// Those of the store.
pub fn make<'m>(
    all: &mut Together<'_>,
    db: usize,
    key: &[u8],
    members: impl IntoIterator<Item = (&'m [u8], f64)>,
    event: Event,
) -> Accessed<u64> {
    let mut set = Structure::replacing(all, db, key, Kind::SortedSet)?;
    for (member, score) in members {
        all.shared.eviction.charge(2 * member.len());
        scores::put(&mut set, all, member, None, score)?;
    }
    let count = set.head.count;
    set.finish(all, event)?;
    Ok(count)
}

fn range_store(call: &mut Call<'_>) -> Result<(), CommandError> {
    let query = Query::parse(call, 3, Style { is_store: true, ..Style::ANY })?;
    let (db, target, key) = (call.keys.db(), call.argument(1), call.argument(2));
    let count = call.keys.together(|all| {
        let members = match Structure::find(all, db, key, Kind::SortedSet)? {
            Some(set) => query.run(&mut InTransaction(&set, all), &set.head, usize::MAX)?,
            None => {
                all.events.note(Event::MISS, db, key);
                Vec::new()
            }
        };
        let members = members.iter().map(|(member, score)| (&member[..], *score));
        make(all, db, target, members, Event::sorted_set("zrangestore"))
    })?;
    call.reply.count(count);
    Ok(())
}

/// Removes these members, and finishes the set.
fn remove_all(
    mut set: Structure<'_>,
    all: &mut Together<'_>,
    members: &[Scored],
    event: Event,
) -> Accessed<()> {
    if members.len() as u64 == set.head.count && members.len() >= REMOVED_TOGETHER {
        return set.remove(all, event);
    }
    for (member, score) in members {
        scores::delete(&mut set, all, member, *score)?;
    }
    set.finish(all, event)
}

fn remove_range(call: &mut Call<'_>, selection: Selection) -> Result<(), CommandError> {
    let (db, key) = (call.keys.db(), call.argument(1));
    let removed = call.keys.together(|all| {
        let Some(set) = Structure::find(all, db, key, Kind::SortedSet)? else { return Ok(0) };
        let mut members = Vec::new();
        selection.visit(&mut InTransaction(&set, all), &set.head, false, &mut |member, score| {
            members.push((member.to_vec(), score));
            true
        })?;
        let name = match &selection {
            Selection::Ranks(..) => "zremrangebyrank",
            Selection::Scores(..) => "zremrangebyscore",
            Selection::Members(_) => "zremrangebylex",
        };
        remove_all(set, all, &members, Event::sorted_set(name))?;
        Ok(members.len())
    })?;
    call.reply.count(removed as u64);
    Ok(())
}

/// Removes at most `count` members with the lowest scores, or with the highest. `None` if the key is absent.
///
/// # Errors
/// `WrongType`; those of the store; a reply that is too long, and then nothing is removed.
pub fn pop_from(
    call: &mut Call<'_>,
    key: &[u8],
    from_highest: bool,
    count: u64,
) -> Result<Option<Vec<Scored>>, CommandError> {
    let Call { keys, reply, .. } = call;
    let db = keys.db();
    let mut fits = Ok(());
    let query = Query {
        selection: Selection::Ranks(0, -1),
        descending: from_highest,
        offset: 0,
        limit: count,
        with_scores: true,
    };
    let popped = keys.together(|all| {
        let Some(set) = Structure::find(all, db, key, Kind::SortedSet)? else { return Ok(None) };
        let members = query.run(&mut InTransaction(&set, all), &set.head, reply.free_bytes())?;
        fits = reply.check_space(members.iter().map(|(member, _)| member.len()).sum());
        if fits.is_ok() {
            let name = if from_highest { "zpopmax" } else { "zpopmin" };
            remove_all(set, all, &members, Event::sorted_set(name))?;
        }
        Ok(Some(members))
    })?;
    fits?;
    Ok(popped)
}

/// A key, and the members that were removed there.
pub type Popped<'k> = Option<(&'k [u8], Vec<Scored>)>;

/// Removes members of the first sorted set that has any. Returns its key, too.
///
/// # Errors
/// As [`pop_from`].
pub fn pop_any<'k>(
    call: &mut Call<'_>,
    keys: &'k [bytes::Bytes],
    from_highest: bool,
    count: u64,
) -> Result<Popped<'k>, CommandError> {
    for key in keys {
        if let Some(members) = pop_from(call, key, from_highest, count)? {
            return Ok(Some((key, members)));
        }
    }
    Ok(None)
}

/// The options of ZMPOP: MIN or MAX, and COUNT. True for MAX.
///
/// # Errors
/// `Syntax`; a count that is not positive.
pub fn pop_options(options: &[bytes::Bytes]) -> Result<(bool, u64), CommandError> {
    let (end, rest) = options.split_first().ok_or(CommandError::Syntax)?;
    let from_highest = match end {
        end if is(end, "MIN") => false,
        end if is(end, "MAX") => true,
        _ => return Err(CommandError::Syntax),
    };
    Ok((from_highest, super::lists::pop_count(rest)?))
}

/// Replies as ZMPOP does.
pub fn reply_popped(call: &mut Call<'_>, popped: Popped<'_>) {
    let Some((key, members)) = popped else {
        call.reply.null_array();
        return;
    };
    call.reply.array(2);
    call.reply.any_bulk(key);
    call.reply.array(members.len());
    for (member, score) in members {
        call.reply.array(2);
        call.reply.any_bulk(&member);
        call.reply.double_text(&format(score));
    }
}

fn pop(call: &mut Call<'_>, from_highest: bool) -> Result<(), CommandError> {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(super::count(count)?),
        _ => return Err(CommandError::Syntax),
    };
    let members = pop_from(call, call.argument(1), from_highest, count.unwrap_or(1))?.unwrap_or_default();
    let nested = count.is_some() && call.reply.protocol() == Protocol::Resp3;
    call.reply.array(members.len() * if nested { 1 } else { 2 });
    for (member, score) in members {
        if nested {
            call.reply.array(2);
        }
        call.reply.any_bulk(&member);
        call.reply.double_text(&format(score));
    }
    Ok(())
}

fn any(call: &mut Call<'_>) -> Result<(), CommandError> {
    let with_scores = match call.rest(3) {
        [] => false,
        [option] if is(option, "WITHSCORES") => true,
        _ => return Err(CommandError::Syntax),
    };
    let picks = call.rest(2).first().map(|count| Picks::parse(count)).transpose()?;
    scan::reply_any(call, Kind::SortedSet, MEMBER, picks, with_scores)
}
