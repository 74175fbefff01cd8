//! The contents of a server by its reading commands, and the invariants of the stored elements (docs/format.md).

use std::collections::{BTreeMap, BTreeSet};

use crash::Contents;
use redis::Value;
use server::shared::Shared;
use server::structures::{Head, Kind, TABLE, head_of};

use super::subject::{LIBRARY, Open, text};

/// The databases that workloads use.
const DATABASES: usize = 2;

/// Begins the names of sets whose members are counted, and not compared.
pub const ANY: &str = "any";

/// All keys with their types, elements and deadlines, and the libraries of functions. The key of a database other than 0 has its number
/// before it.
pub fn read(open: &Open) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for db in (0..DATABASES).filter(|db| open.shared.databases.known(*db).is_some()) {
        for key in open.ask::<Vec<String>>(db, "KEYS *")? {
            let mut shown = show(open, db, &key).map_err(|problem| format!("{key}: {problem}"))?;
            let deadline: i64 = open.ask(db, &format!("PEXPIRETIME {key}"))?;
            if deadline != -1 {
                shown += &format!(" until {deadline}");
            }
            let name = if db == 0 { key } else { format!("{db}/{key}") };
            contents.insert(name.into_bytes(), shown.into_bytes());
        }
    }
    for library in open.ask::<Vec<BTreeMap<String, Value>>>(0, "FUNCTION LIST")? {
        let functions: Vec<Value> = redis::from_redis_value(library["functions"].clone()).map_err(text)?;
        let name = format!("{LIBRARY}{}", field(&library, "library_name")?);
        contents.insert(name.into_bytes(), format!("{} functions", functions.len()).into_bytes());
    }
    Ok(contents)
}

fn show(open: &Open, db: usize, key: &str) -> Result<String, String> {
    let kind: String = open.ask(db, &format!("TYPE {key}"))?;
    let (length, words) = match kind.as_str() {
        "string" => return show_string(open, db, key),
        "stream" => return show_stream(open, db, key),
        "hash" => {
            let fields: Vec<(String, String)> = open.ask(db, &format!("HGETALL {key}"))?;
            ("HLEN", sorted(fields.into_iter().map(|(field, value)| format!("{field}={value}")).collect()))
        }
        "set" => {
            let members: Vec<String> = open.ask(db, &format!("SMEMBERS {key}"))?;
            // Commands remove members by chance from such a set.
            let shown =
                if key.starts_with(ANY) { vec![ANY.to_owned(); members.len()] } else { sorted(members) };
            ("SCARD", shown)
        }
        "list" => ("LLEN", open.ask(db, &format!("LRANGE {key} 0 -1"))?),
        "zset" => ("ZCARD", scores(open, db, key)?),
        other => return Err(format!("the type {other}")),
    };
    let length: usize = open.ask(db, &format!("{length} {key}"))?;
    match length == words.len() {
        true => Ok(format!("{kind} {}", words.join(" "))),
        false => Err(format!("a {kind} of length {length} has {} elements", words.len())),
    }
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort_unstable();
    words
}

fn show_string(open: &Open, db: usize, key: &str) -> Result<String, String> {
    let value: Vec<u8> = open.ask(db, &format!("GET {key}"))?;
    match value.starts_with(b"HYLL") {
        true => Ok(format!("about {}", open.ask::<u64>(db, &format!("PFCOUNT {key}"))?)),
        false => Ok(format!("string {}", value.escape_ascii())),
    }
}

/// The members in the order of the score index, with the scores of the member index.
fn scores(open: &Open, db: usize, key: &str) -> Result<Vec<String>, String> {
    let members: Vec<(String, String)> = open.ask(db, &format!("ZRANGE {key} 0 -1 WITHSCORES"))?;
    let mut words = Vec::new();
    for (member, score) in members {
        let again: String = open.ask(db, &format!("ZSCORE {key} {member}"))?;
        if again != score {
            return Err(format!("the member {member} has the scores {score} and {again}"));
        }
        words.push(format!("{member}:{score}"));
    }
    Ok(words)
}

fn show_stream(open: &Open, db: usize, key: &str) -> Result<String, String> {
    let entries: Vec<(String, Vec<String>)> = open.ask(db, &format!("XRANGE {key} - +"))?;
    let length: usize = open.ask(db, &format!("XLEN {key}"))?;
    if length != entries.len() {
        return Err(format!("a stream of length {length} has {} entries", entries.len()));
    }
    let mut words = vec!["stream".to_owned()];
    words.extend(entries.into_iter().map(|(id, fields)| format!("{id}[{}]", fields.join(" "))));
    let about: BTreeMap<String, Value> = open.ask(db, &format!("XINFO STREAM {key}"))?;
    words.push(format!("last {}", field(&about, "last-generated-id")?));
    let groups: Vec<BTreeMap<String, Value>> = open.ask(db, &format!("XINFO GROUPS {key}"))?;
    for group in groups {
        let name = field(&group, "name")?;
        words.push(format!("group {name} at {}", field(&group, "last-delivered-id")?));
        let pending: Vec<(String, String, u64, u64)> =
            open.ask(db, &format!("XPENDING {key} {name} - + 100"))?;
        if field(&group, "pending")? != pending.len().to_string() {
            return Err(format!("the group {name} has {} pending entries", pending.len()));
        }
        words.extend(pending.into_iter().map(|(id, consumer, _, count)| format!("{id}:{consumer}:{count}")));
    }
    Ok(words.join(" "))
}

fn field(fields: &BTreeMap<String, Value>, name: &str) -> Result<String, String> {
    let value = fields.get(name).ok_or_else(|| format!("no {name}"))?;
    redis::from_redis_value(value.clone()).map_err(text)
}

/// The keys of the table of elements that have one number.
#[derive(Default)]
struct Group {
    owner: Option<Vec<u8>>,
    /// The byte that tells what an element is, the rest of its key, and its value.
    elements: Vec<(u8, Vec<u8>, Vec<u8>)>,
}

impl Group {
    fn tagged(&self, tag: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
        let of_tag = self.elements.iter().filter(move |(found, ..)| *found == tag);
        of_tag.map(|(_, rest, value)| (&rest[..], &value[..]))
    }

    fn require(&self, tags: &[u8]) -> Result<(), String> {
        match self.elements.iter().find(|(tag, ..)| !tags.contains(tag)) {
            Some((tag, ..)) => Err(format!("an element of the kind {:?}", char::from(*tag))),
            None => Ok(()),
        }
    }

    /// Checks that the elements are exactly those that the head counts.
    fn check(&self, head: &Head) -> Result<(), String> {
        let count = |tag| self.tagged(tag).count() as u64;
        let counted = |tag, expected: u64| match count(tag) == expected {
            true => Ok(()),
            false => Err(format!("{} elements {:?} for {expected}", count(tag), char::from(tag))),
        };
        match head.kind {
            Kind::Hash => self.require(b"f").and_then(|()| counted(b'f', head.count)),
            Kind::Set => self.require(b"m").and_then(|()| counted(b'm', head.count)),
            Kind::List => {
                self.require(b"i")?;
                let positions: Vec<_> = self.tagged(b'i').map(|(position, _)| position.to_vec()).collect();
                let expected = (0..head.count).map(|n| head.extra.wrapping_add(n).to_be_bytes().to_vec());
                match positions == expected.collect::<Vec<_>>() {
                    true => Ok(()),
                    false => Err(format!("the positions {positions:?} of {head:?}")),
                }
            }
            Kind::SortedSet => {
                self.require(b"ms")?;
                counted(b'm', head.count)?;
                let members: BTreeSet<_> = self
                    .tagged(b'm')
                    .map(|(member, score)| [&in_order(score)[..], member].concat())
                    .collect();
                let scores: BTreeSet<_> = self.tagged(b's').map(|(key, _)| key.to_vec()).collect();
                match members == scores {
                    true => Ok(()),
                    false => Err("the score index differs from the member index".to_owned()),
                }
            }
            Kind::Stream => {
                self.require(b"eigcp")?;
                counted(b'e', head.count - 1)?;
                counted(b'i', 1)?;
                self.check_groups()
            }
        }
    }

    /// Checks that consumers are of groups, and pending entries of consumers.
    fn check_groups(&self) -> Result<(), String> {
        let (_, meta) = self.tagged(b'i').next().ok_or("no record of the stream")?;
        if meta[40..48] != (self.tagged(b'e').count() as u64).to_be_bytes() {
            return Err("the record of the stream counts other entries".to_owned());
        }
        let groups: BTreeSet<&[u8]> = self.tagged(b'g').map(|(_, group)| &group[..8]).collect();
        let consumers: BTreeSet<&[u8]> = self.tagged(b'c').map(|(key, _)| key).collect();
        if let Some(alone) = consumers.iter().find(|key| !groups.contains(&key[..8])) {
            return Err(format!("a consumer without a group: {}", alone.escape_ascii()));
        }
        for (key, value) in self.tagged(b'p') {
            if !consumers.contains(&[&key[..8], &value[16..]].concat()[..]) {
                return Err(format!("a pending entry without a consumer: {}", key.escape_ascii()));
            }
        }
        Ok(())
    }
}

/// The bits of a score, in the order of the scores.
fn in_order(score: &[u8]) -> [u8; 8] {
    let bits = score.try_into().map_or(0, u64::from_be_bytes);
    let ordered = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    ordered.to_be_bytes()
}

/// Checks the elements of all structures. Returns the number of structures that are garbage.
pub fn garbage(shared: &Shared) -> Result<usize, String> {
    let mut groups = BTreeMap::<u64, Group>::new();
    if let Some(elements) = shared.store.find_table(TABLE).map_err(text)? {
        for pair in elements.scan(..) {
            let (key, value) = pair.map_err(text)?;
            let (id, rest) = key.split_first_chunk().ok_or("a short key among the elements")?;
            let group = groups.entry(u64::from_be_bytes(*id)).or_default();
            match rest.split_first() {
                None => group.owner = Some(value),
                Some((tag, rest)) => group.elements.push((*tag, rest.to_vec(), value)),
            }
        }
    }
    if let Some(id) = groups.iter().find(|(_, group)| group.owner.is_none()).map(|(id, _)| id) {
        return Err(format!("the structure {id} has elements and no owner"));
    }
    for db in 0..DATABASES {
        let Some(store) = shared.databases.known(db) else { continue };
        for pair in store.scan(..) {
            let (key, value) = pair.map_err(text)?;
            let Some(head) = head_of(&value) else { continue };
            let name = key.escape_ascii();
            let group =
                groups.remove(&head.id).ok_or_else(|| format!("{name} has no elements of its own"))?;
            if group.owner.as_ref() != Some(&key) {
                return Err(format!("{name} has another owner"));
            }
            group.check(&head).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(groups.len())
}
