//! GEOADD, GEOSEARCH and related commands: sorted sets whose scores are places ([`crate::geohash`]).

use super::sorted_sets::{self, Rules, make};
use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY, integer, is};
use crate::access::Result as Accessed;
use crate::geohash::{Area, Place, Shape};
use crate::notifications::Event;
use crate::structures::access::{InTransaction, Source, Structure};
use crate::structures::scores::{MEMBER, Selection, decode};
use crate::structures::{Head, Kind};

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "geo", summary, handler }
}

const STORE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command(
        "geoadd",
        -5,
        STORE,
        ONE_KEY,
        "Adds places: longitude, latitude, member. Options: NX, XX, CH.",
        add,
    ),
    command("geodist", -4, Flags::READ, ONE_KEY, "Returns the distance of two members.", distance),
    command("geohash", -2, Flags::READ, ONE_KEY, "Returns the geohashes of members.", hash),
    command("geopos", -2, Flags::READ, ONE_KEY, "Returns longitudes and latitudes of members.", position),
    command(
        "geosearch",
        -7,
        Flags::READ,
        ONE_KEY,
        "Returns the members in an area. Options: FROMMEMBER or FROMLONLAT, BYRADIUS or BYBOX, ASC, DESC, COUNT, WITHCOORD, WITHDIST, WITHHASH.",
        |call| search(call, Style::Search),
    ),
    command(
        "geosearchstore",
        -8,
        STORE,
        (1, 2, 1),
        "Stores the members in an area. Options: as GEOSEARCH, STOREDIST.",
        |call| search(call, Style::SearchStore),
    ),
    command("georadius", -6, STORE, ONE_KEY, "Returns or stores the members in a circle.", |call| {
        search(call, Style::Radius { of_member: false, reads: false })
    }),
    command(
        "georadiusbymember",
        -5,
        STORE,
        ONE_KEY,
        "Returns or stores the members in a circle around a member.",
        |call| search(call, Style::Radius { of_member: true, reads: false }),
    ),
    command("georadius_ro", -6, Flags::READ, ONE_KEY, "Returns the members in a circle.", |call| {
        search(call, Style::Radius { of_member: false, reads: true })
    }),
    command(
        "georadiusbymember_ro",
        -5,
        Flags::READ,
        ONE_KEY,
        "Returns the members in a circle around a member.",
        |call| search(call, Style::Radius { of_member: true, reads: true }),
    ),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(format!("ERR {text}"))
}

/// A number that is finite.
fn finite(argument: &[u8]) -> Result<f64, CommandError> {
    let number = crate::structures::scores::number(argument)?;
    if number.is_finite() { Ok(number) } else { Err(CommandError::NotFloat) }
}

fn place(longitude: &[u8], latitude: &[u8]) -> Result<Place, CommandError> {
    let (longitude, latitude) = (finite(longitude)?, finite(latitude)?);
    Place::new(longitude, latitude)
        .ok_or_else(|| text(&format!("invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// The length of a unit in metres.
fn unit(argument: &[u8]) -> Result<f64, CommandError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.into_iter().find(|(name, _)| is(argument, name));
    found.map(|(_, metres)| metres).ok_or_else(|| text("unsupported unit provided. please use M, KM, FT, MI"))
}

/// The place of a score, which may be any.
fn of_score(score: f64) -> Place {
    Place::of_number(score as u64)
}

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut rules = Rules::default();
    let mut rest = call.rest(2);
    while let Some((option, after)) = rest.split_first() {
        match option {
            option if is(option, "NX") => rules.if_absent = true,
            option if is(option, "XX") => rules.if_present = true,
            option if is(option, "CH") => rules.counts_changes = true,
            _ => break,
        }
        rest = after;
    }
    let triples = rest.chunks_exact(3);
    if rest.is_empty() || !triples.remainder().is_empty() || rules.if_absent && rules.if_present {
        return Err(CommandError::Syntax);
    }
    let pairs = triples.map(|triple| Ok((place(&triple[0], &triple[1])?.number() as f64, &triple[2][..])));
    let pairs = pairs.collect::<Result<Vec<_>, CommandError>>()?;
    let ((added, changed), _) = sorted_sets::apply(call, rules, &pairs)?;
    call.reply.count(if rules.counts_changes { added + changed } else { added });
    Ok(())
}

/// The scores of members. The outer `None`: the key is absent.
fn scores(call: &mut Call<'_>, members: &[bytes::Bytes]) -> Result<Option<Vec<Option<f64>>>, CommandError> {
    let key = call.argument(1);
    let found = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else { return Ok(None) };
        let scores =
            members.iter().map(|member| Ok(view.get(&head, MEMBER, member)?.map(|value| decode(&value))));
        Ok(Some(scores.collect::<Accessed<Vec<_>>>()?))
    })?;
    call.count_lookup(found.is_some());
    Ok(found)
}

/// The places of members.
fn places(call: &mut Call<'_>, members: &[bytes::Bytes]) -> Result<Vec<Option<Place>>, CommandError> {
    let scores = scores(call, members)?.unwrap_or_else(|| vec![None; members.len()]);
    Ok(scores.into_iter().map(|score| score.map(of_score)).collect())
}

fn reply_distance(call: &mut Call<'_>, distance: f64) {
    call.reply.text(&format!("{distance:.4}"));
}

fn distance(call: &mut Call<'_>) -> Result<(), CommandError> {
    let unit = match call.rest(4) {
        [] => 1.0,
        [argument] => unit(argument)?,
        _ => return Err(CommandError::Syntax),
    };
    match places(call, &call.rest(2)[..2])?[..] {
        [Some(from), Some(to)] => reply_distance(call, from.distance(to) / unit),
        _ => call.reply.null(),
    }
    Ok(())
}

fn hash(call: &mut Call<'_>) -> Result<(), CommandError> {
    let places = places(call, call.rest(2))?;
    call.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => call.reply.text(&place.letters()),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// Degrees, with 17 decimals but without zeros at the end.
fn degrees(value: f64) -> String {
    let text = format!("{value:.17}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn reply_place(call: &mut Call<'_>, place: Place) {
    call.reply.array(2);
    call.reply.double_text(&degrees(place.longitude));
    call.reply.double_text(&degrees(place.latitude));
}

fn position(call: &mut Call<'_>) -> Result<(), CommandError> {
    let places = places(call, call.rest(2))?;
    call.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => reply_place(call, place),
            None => call.reply.null_array(),
        }
    }
    Ok(())
}

/// The form of a search's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Search,
    SearchStore,
    Radius { of_member: bool, reads: bool },
}

/// The middle of a search.
enum Middle<'a> {
    Member(&'a [u8]),
    Place(Place),
}

/// A search.
struct Query<'a> {
    middle: Option<Middle<'a>>,
    shape: Option<Shape>,
    /// Metres of the unit of distances.
    unit: f64,
    /// `None`: any order. True: descending.
    order: Option<bool>,
    count: Option<usize>,
    /// True to stop at any `count` members.
    is_any: bool,
    with_place: bool,
    with_distance: bool,
    with_hash: bool,
    /// The key for the result, and true if its scores are distances.
    store: Option<(&'a [u8], bool)>,
}

/// A member in the area.
struct Found {
    member: Vec<u8>,
    score: f64,
    place: Place,
    /// Metres from the middle.
    distance: f64,
}

fn radius(argument: &[u8]) -> Result<f64, CommandError> {
    let radius = finite(argument).map_err(|_| text("need numeric radius"))?;
    if radius < 0.0 { Err(text("radius cannot be negative")) } else { Ok(radius) }
}

impl<'a> Query<'a> {
    fn parse(arguments: &'a [bytes::Bytes], style: Style) -> Result<Self, CommandError> {
        let mut query = Self {
            middle: None,
            shape: None,
            unit: 1.0,
            order: None,
            count: None,
            is_any: false,
            with_place: false,
            with_distance: false,
            with_hash: false,
            store: None,
        };
        let mut rest = match (style, arguments) {
            (Style::Radius { of_member: true, .. }, [_, _, member, length, name, rest @ ..]) => {
                query.middle = Some(Middle::Member(member));
                query.unit = unit(name)?;
                query.shape = Some(Shape::Circle(radius(length)? * query.unit));
                rest
            }
            (Style::Radius { .. }, [_, _, longitude, latitude, length, name, rest @ ..]) => {
                query.middle = Some(Middle::Place(place(longitude, latitude)?));
                query.unit = unit(name)?;
                query.shape = Some(Shape::Circle(radius(length)? * query.unit));
                rest
            }
            (Style::Search, [_, _, rest @ ..]) => rest,
            (Style::SearchStore, [_, target, _, rest @ ..]) => {
                query.store = Some((target, false));
                rest
            }
            _ => return Err(CommandError::Syntax),
        };
        let is_search = !matches!(style, Style::Radius { .. });
        let stores = matches!(style, Style::Radius { reads: false, .. });
        while let [option, after @ ..] = rest {
            rest = match (option, after) {
                (option, after) if is(option, "WITHCOORD") => {
                    query.with_place = true;
                    after
                }
                (option, after) if is(option, "WITHDIST") => {
                    query.with_distance = true;
                    after
                }
                (option, after) if is(option, "WITHHASH") => {
                    query.with_hash = true;
                    after
                }
                (option, after) if is(option, "ASC") || is(option, "DESC") => {
                    query.order = Some(is(option, "DESC"));
                    after
                }
                (option, [count, after @ ..]) if is(option, "COUNT") => {
                    let count = integer(count)?;
                    let count = usize::try_from(count).ok().filter(|count| *count > 0);
                    query.count = Some(count.ok_or_else(|| text("COUNT must be > 0"))?);
                    after
                }
                (option, after) if is(option, "ANY") => {
                    query.is_any = true;
                    after
                }
                (option, after) if style == Style::SearchStore && is(option, "STOREDIST") => {
                    query.store = query.store.map(|(key, _)| (key, true));
                    after
                }
                (option, [key, after @ ..]) if stores && (is(option, "STORE") || is(option, "STOREDIST")) => {
                    query.store = Some((key, is(option, "STOREDIST")));
                    after
                }
                (option, [member, after @ ..])
                    if is_search && query.middle.is_none() && is(option, "FROMMEMBER") =>
                {
                    query.middle = Some(Middle::Member(member));
                    after
                }
                (option, [longitude, latitude, after @ ..])
                    if is_search && query.middle.is_none() && is(option, "FROMLONLAT") =>
                {
                    query.middle = Some(Middle::Place(place(longitude, latitude)?));
                    after
                }
                (option, [length, name, after @ ..])
                    if is_search && query.shape.is_none() && is(option, "BYRADIUS") =>
                {
                    query.unit = unit(name)?;
                    query.shape = Some(Shape::Circle(radius(length)? * query.unit));
                    after
                }
                (option, [width, height, name, after @ ..])
                    if is_search && query.shape.is_none() && is(option, "BYBOX") =>
                {
                    let width = finite(width).map_err(|_| text("need numeric width"))?;
                    let height = finite(height).map_err(|_| text("need numeric height"))?;
                    if width < 0.0 || height < 0.0 {
                        return Err(text("height or width cannot be negative"));
                    }
                    query.unit = unit(name)?;
                    query.shape = Some(Shape::Box(width * query.unit, height * query.unit));
                    after
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        if query.store.is_some() && (query.with_place || query.with_distance || query.with_hash) {
            let name = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(text(&format!(
                "{name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if query.middle.is_none() {
            return Err(text("exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH"));
        }
        if query.shape.is_none() {
            return Err(text("exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH"));
        }
        if query.is_any && query.count.is_none() {
            return Err(text("the ANY argument requires COUNT argument"));
        }
        if query.count.is_some() && !query.is_any && query.order.is_none() {
            query.order = Some(false);
        }
        Ok(query)
    }

    /// The members in the area.
    fn run(&self, source: &mut dyn Source, head: &Head, middle: Place) -> Accessed<Vec<Found>> {
        let shape = self.shape.unwrap_or(Shape::Circle(0.0));
        let area = Area { middle, shape };
        let mut found = Vec::new();
        let limit = self.count.filter(|_| self.is_any).unwrap_or(usize::MAX);
        for (from, before) in area.ranges() {
            let scores = Selection::Scores(
                std::ops::Bound::Included(from as f64),
                std::ops::Bound::Excluded(before as f64),
            );
            scores.visit(source, head, false, &mut |member, score| {
                let place = of_score(score);
                if let Some(distance) = area.distance(place) {
                    found.push(Found { member: member.to_vec(), score, place, distance });
                }
                found.len() < limit
            })?;
            if found.len() >= limit {
                break;
            }
        }
        match self.order {
            Some(false) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(true) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            None => {}
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        Ok(found)
    }
}

/// The result of a search: no key, no such member in the middle, or members.
enum Outcome {
    NoKey,
    NoMember,
    Found(Vec<Found>),
}

fn no_member() -> CommandError {
    text("could not decode requested zset member")
}

fn search(call: &mut Call<'_>, style: Style) -> Result<(), CommandError> {
    let query = Query::parse(call.arguments, style)?;
    let key = call.argument(if style == Style::SearchStore { 2 } else { 1 });
    if let Some((target, is_distance)) = query.store {
        let name = if style == Style::SearchStore { "geosearchstore" } else { "georadiusstore" };
        return search_and_store(call, &query, key, (target, is_distance), Event::sorted_set(name));
    }
    let outcome = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::SortedSet)? else { return Ok(Outcome::NoKey) };
        let middle = match &query.middle {
            Some(Middle::Member(member)) => {
                let score = view.get(&head, MEMBER, member)?.map(|value| decode(&value));
                score.map(of_score)
            }
            Some(Middle::Place(place)) => Some(*place),
            None => None,
        };
        let Some(middle) = middle else { return Ok(Outcome::NoMember) };
        Ok(Outcome::Found(query.run(view, &head, middle)?))
    })?;
    call.count_lookup(!matches!(outcome, Outcome::NoKey));
    let found = match outcome {
        Outcome::NoKey => Vec::new(),
        Outcome::NoMember => return Err(no_member()),
        Outcome::Found(found) => found,
    };
    let options = [query.with_distance, query.with_hash, query.with_place];
    let options = options.into_iter().filter(|is_set| *is_set).count();
    call.reply.array(found.len());
    for found in found {
        if options > 0 {
            call.reply.array(1 + options);
        }
        call.reply.bulk(&found.member)?;
        if query.with_distance {
            reply_distance(call, found.distance / query.unit);
        }
        if query.with_hash {
            call.reply.integer(found.score as i64);
        }
        if query.with_place {
            reply_place(call, found.place);
        }
    }
    Ok(())
}

fn search_and_store(
    call: &mut Call<'_>,
    query: &Query<'_>,
    key: &[u8],
    (target, is_distance): (&[u8], bool),
    event: Event,
) -> Result<(), CommandError> {
    let db = call.keys.db();
    let stored = call.keys.together(|all| {
        let found = match Structure::find(all, db, key, Kind::SortedSet)? {
            Some(set) => {
                let middle = match &query.middle {
                    Some(Middle::Member(member)) => {
                        set.get(all, MEMBER, member)?.map(|value| of_score(decode(&value)))
                    }
                    Some(Middle::Place(place)) => Some(*place),
                    None => None,
                };
                let Some(middle) = middle else { return Ok(Err(no_member())) };
                query.run(&mut InTransaction(&set, all), &set.head, middle)?
            }
            None => {
                all.events.note(Event::MISS, db, key);
                Vec::new()
            }
        };
        let score = |found: &Found| if is_distance { found.distance / query.unit } else { found.score };
        let members = found.iter().map(|found| (&found.member[..], score(found)));
        Ok(Ok(make(all, db, target, members, event)?))
    })?;
    call.reply.count(stored?);
    Ok(())
}
