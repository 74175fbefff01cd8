//! A sample: the server's state, read from its replies to INFO, CLIENT LIST and SLOWLOG GET, which are sent together.

use std::collections::BTreeMap;

use super::resp::Reply;

/// The commands whose replies make a sample.
pub const COMMANDS: [&[&[u8]]; 3] = [&[b"INFO"], &[b"CLIENT", b"LIST"], &[b"SLOWLOG", b"GET", b"20"]];

/// A connection, as CLIENT LIST shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client(BTreeMap<String, String>);

impl Client {
    /// A field; empty if it is absent.
    pub fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field with a number.
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }
}

/// An entry of the slow log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Time since 1970 in seconds.
    pub at_seconds: u64,
    /// Duration in microseconds.
    pub us: u64,
    /// The command and its arguments.
    pub words: Vec<Vec<u8>>,
    /// Address of the client.
    pub client: String,
}

/// The replies of a server at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    info: BTreeMap<String, String>,
    /// The connections, or the reason why they are not known.
    pub clients: Result<Vec<Client>, String>,
    /// The slow log, newest first, or the reason why it is not known.
    pub slow: Result<Vec<Slow>, String>,
}

fn text(reply: &Reply) -> Result<String, String> {
    match reply {
        Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Reply::Simple(text) => Ok(text.clone()),
        Reply::Error(text) => Err(text.clone()),
        _ => Err("an unknown form of reply".to_owned()),
    }
}

impl Sample {
    /// The sample of the replies to [`COMMANDS`].
    ///
    /// # Errors
    /// A reply is missing, or the server refuses INFO.
    pub fn new(replies: &[Reply]) -> Result<Self, String> {
        let [info, clients, slow] = replies else { return Err("replies are missing".to_owned()) };
        let info = text(info)?;
        let field =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let info = info.lines().filter(|line| !line.starts_with('#')).filter_map(field).collect();
        let clients = text(clients).map(|text| text.lines().map(client).collect());
        let slow = match slow {
            Reply::Array(entries) => Ok(entries.iter().filter_map(entry).collect()),
            other => Err(text(other).err().unwrap_or_default()),
        };
        Ok(Self { info, clients, slow })
    }

    /// A field of INFO.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    /// A field of INFO with a number. `None` if the server does not have it, or if it is not a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The databases with keys: number, keys, keys with a deadline.
    pub fn databases(&self) -> Vec<(u64, u64, u64)> {
        let database = |(name, value): (&String, &String)| {
            let number = name.strip_prefix("db")?.parse().ok()?;
            let part = |name: &str| {
                let parts = value.split(',').filter_map(|part| part.split_once('='));
                parts.into_iter().find(|(known, _)| *known == name)?.1.parse().ok()
            };
            Some((number, part("keys")?, part("expires").unwrap_or(0)))
        };
        let mut all: Vec<_> = self.info.iter().filter_map(database).collect();
        all.sort_unstable();
        all
    }

    /// The latencies in microseconds: kind, and the quantiles in the order of the server, as name and number.
    pub fn latencies(&self) -> Vec<(&str, Vec<(&str, f64)>)> {
        let mut all = Vec::new();
        for (name, value) in &self.info {
            if let Some(kind) = name.strip_prefix("latency_percentiles_usec_") {
                let parts = value.split(',').filter_map(|part| part.split_once('='));
                let quantile = |(name, number): (_, &str)| Some((name, number.parse().ok()?));
                all.push((kind, parts.filter_map(quantile).collect()));
            }
        }
        all
    }
}

/// A line of CLIENT LIST.
fn client(line: &str) -> Client {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    Client(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// An entry of SLOWLOG GET.
fn entry(reply: &Reply) -> Option<Slow> {
    let Reply::Array(parts) = reply else { return None };
    let [_, Reply::Integer(at), Reply::Integer(us), Reply::Array(words), rest @ ..] = parts.as_slice() else {
        return None;
    };
    let word = |word: &Reply| match word {
        Reply::Bulk(bytes) => Some(bytes.clone()),
        _ => None,
    };
    let client = rest.first().and_then(|client| text(client).ok()).unwrap_or_default();
    let (at_seconds, us) = (u64::try_from(*at).ok()?, u64::try_from(*us).ok()?);
    Some(Slow { at_seconds, us, words: words.iter().filter_map(word).collect(), client })
}
