//! A frame of `top`: the difference of two samples as lines of text, or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::sample::{Client, Sample};
use crate::text::escaped;

/// Maximum number of connections in JSON.
const CLIENTS_MAX: usize = 100;

/// Two samples with the time between them.
pub struct Frame<'a> {
    /// Address of the server, as the user gave it.
    pub address: &'a str,
    /// The previous sample.
    pub before: &'a Sample,
    /// The newest sample.
    pub now: &'a Sample,
    /// Seconds between the two samples.
    pub seconds: f64,
    /// Time since 1970 in seconds.
    pub unix_seconds: u64,
}

/// The counters whose rates are shown: name in JSON, field of INFO.
const RATES: [(&str, &str); 11] = [
    ("commands", "total_commands_processed"),
    ("errors", "total_error_replies"),
    ("hits", "keyspace_hits"),
    ("misses", "keyspace_misses"),
    ("input_bytes", "total_net_input_bytes"),
    ("output_bytes", "total_net_output_bytes"),
    ("connections", "total_connections_received"),
    ("evicted_keys", "evicted_keys"),
    ("groups", "total_groups_committed"),
    ("syncs", "total_syncs"),
    ("checkpoints", "total_checkpoints"),
];

impl Frame<'_> {
    /// Increase of a counter per second. `None` if the server does not have it. After a reset of the counters it is 0.
    fn rate(&self, name: &str) -> Option<f64> {
        let field = RATES.iter().find(|(known, _)| *known == name)?.1;
        let (before, now) = (self.before.number(field)?, self.now.number(field)?);
        Some(if self.seconds > 0.0 { now.saturating_sub(before) as f64 / self.seconds } else { 0.0 })
    }

    /// At most `rows` lines of at most `columns` characters.
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let mut lines = self.head();
        self.latencies(&mut lines);
        self.databases(&mut lines);
        let free = rows.saturating_sub(lines.len() + 4);
        // The slow log gets at most a third of the free rows. The connections get the others.
        self.slow(&mut lines, free / 3);
        let free = rows.saturating_sub(lines.len() + 2);
        self.clients(&mut lines, free);
        lines.truncate(rows);
        for line in &mut lines {
            *line = line.trim_end().chars().take(columns).collect();
        }
        lines
    }

    fn head(&self) -> Vec<String> {
        let (now, text) = (self.now, |name| self.now.field(name).unwrap_or("-"));
        let version = now.field("bristlecone_version").map_or_else(
            || format!("Redis {}", text("redis_version")),
            |version| format!("bristlecone {version}"),
        );
        let bytes = |name: &str| now.number(name).map_or_else(|| "-".to_owned(), bytes);
        let rate =
            |name: &str| self.rate(name).map_or_else(|| "-".to_owned(), |rate| self::rate(rate) + "/s");
        let byte_rate =
            |name: &str| self.rate(name).map_or_else(|| "-".to_owned(), |rate| bytes_of(rate) + "/s");
        let (hits, misses) = (self.rate("hits").unwrap_or(0.0), self.rate("misses").unwrap_or(0.0));
        let found = match hits + misses > 0.0 {
            true => format!("{:.1} %", hits * 100.0 / (hits + misses)),
            false => "-".to_owned(),
        };
        let limit = match now.number("maxmemory") {
            None | Some(0) => String::new(),
            Some(limit) => format!(" of {} ({})", self::bytes(limit), text("maxmemory_policy")),
        };
        let clients = now.number("connected_clients").map_or_else(|| "-".to_owned(), grouped);
        let clients_max = now.number("maxclients").map_or_else(|| "-".to_owned(), grouped);
        vec![
            format!(
                "{version}  {}  up {}  pid {}  engine {}  durability {}",
                escaped(self.address.as_bytes()),
                duration(now.number("uptime_in_seconds").unwrap_or(0)),
                text("process_id"),
                text("engine"),
                text("durability"),
            ),
            format!(
                "commands    {}   errors {}   found {found}   in {}   out {}",
                rate("commands"),
                rate("errors"),
                byte_rate("input_bytes"),
                byte_rate("output_bytes"),
            ),
            format!(
                "clients     {clients} of {clients_max}   new {}   hold {}",
                rate("connections"),
                bytes("held_by_clients"),
            ),
            format!(
                "memory      used {}{limit}   evicted {}   free {}   resident {}",
                bytes("used_memory"),
                rate("evicted_keys"),
                bytes("store_free_bytes"),
                bytes("used_memory_rss"),
            ),
            format!(
                "journal     groups {}   syncs {}   checkpoints {}   waiting {}",
                rate("groups"),
                rate("syncs"),
                rate("checkpoints"),
                bytes("journal_waiting_bytes"),
            ),
        ]
    }

    fn latencies(&self, lines: &mut Vec<String>) {
        for (index, (kind, quantiles)) in self.now.latencies().into_iter().enumerate() {
            let mut line = format!("{:<12}", if index == 0 { "latency µs" } else { "" });
            let _ = write!(line, "{kind:<8}");
            for (name, us) in quantiles {
                let _ = write!(line, "{name} {us:<12.1}");
            }
            lines.push(escaped(line.as_bytes()));
        }
    }

    fn databases(&self, lines: &mut Vec<String>) {
        let mut line = "keys        ".to_owned();
        for (number, keys, deadlines) in self.now.databases() {
            let _ = write!(line, "db{number} {}", grouped(keys));
            if deadlines > 0 {
                let _ = write!(line, " ({} expire)", grouped(deadlines));
            }
            line += "   ";
        }
        if self.now.number("keys_pending") == Some(1) {
            line += "the count after a recovery is running";
        }
        lines.push(line);
    }

    fn slow(&self, lines: &mut Vec<String>, most: usize) {
        lines.push(String::new());
        match &self.now.slow {
            Err(why) => lines.push(format!("slow commands: {}", escaped(why.as_bytes()))),
            Ok(entries) => {
                lines.push(format!("{:<10}{:>12}  {:<22}  slow command", "ago", "ms", "client"));
                for entry in entries.iter().take(most) {
                    let words: Vec<_> = entry.words.iter().map(|word| escaped(word)).collect();
                    lines.push(format!(
                        "{:<10}{:>12.3}  {:<22}  {}",
                        duration(self.unix_seconds.saturating_sub(entry.at_seconds)),
                        entry.us as f64 / 1000.0,
                        escaped(entry.client.as_bytes()),
                        words.join(" "),
                    ));
                }
            }
        }
    }

    /// The connections: those that were active last come first.
    fn sorted_clients(clients: &[Client]) -> Vec<&Client> {
        let mut sorted: Vec<_> = clients.iter().collect();
        sorted.sort_by_key(|client| (client.number("idle"), client.number("id")));
        sorted
    }

    fn clients(&self, lines: &mut Vec<String>, most: usize) {
        lines.push(String::new());
        match &self.now.clients {
            Err(why) => lines.push(format!("clients: {}", escaped(why.as_bytes()))),
            Ok(clients) => {
                let row = |fields: [&str; 8]| {
                    let [id, address, user, database, age, idle, command, name] =
                        fields.map(|field| escaped(field.as_bytes()));
                    format!(
                        "{id:<8}{address:<24}{user:<12}{database:>3}{age:>9}{idle:>9}  {command:<14}{name}"
                    )
                };
                lines.push(row(["client", "address", "user", "db", "age", "idle", "command", "name"]));
                for client in Self::sorted_clients(clients).into_iter().take(most) {
                    let names = ["id", "addr", "user", "db", "age", "idle", "cmd", "name"];
                    lines.push(row(names.map(|name| client.field(name))));
                }
            }
        }
    }

    /// One JSON object. Rates are per second.
    pub fn json(&self) -> Value {
        let now = self.now;
        let rates: serde_json::Map<_, _> = RATES
            .iter()
            .filter_map(|(name, _)| Some(((*name).to_owned(), json!(self.rate(name)?))))
            .collect();
        let numbers = |names: &[&str]| -> Value {
            names.iter().filter_map(|name| Some(((*name).to_owned(), json!(now.number(name)?)))).collect()
        };
        let latencies: serde_json::Map<_, _> = now
            .latencies()
            .into_iter()
            .map(|(kind, quantiles)| {
                let quantiles: Value =
                    quantiles.into_iter().map(|(name, us)| (name.to_owned(), json!(us))).collect();
                (kind.to_owned(), quantiles)
            })
            .collect();
        let database = |(number, keys, deadlines): (u64, u64, u64)| {
            (number.to_string(), json!({ "keys": keys, "expires": deadlines }))
        };
        let slow = now.slow.as_ref().map_or_else(
            |why| json!({ "error": why }),
            |entries| {
                let entry = |entry: &super::sample::Slow| {
                    let words: Vec<_> = entry.words.iter().map(|word| escaped(word)).collect();
                    json!({ "time": entry.at_seconds, "us": entry.us, "client": entry.client, "command": words })
                };
                entries.iter().map(entry).collect()
            },
        );
        let clients = now.clients.as_ref().map_or_else(
            |why| json!({ "error": why }),
            |clients| {
                let client = |client: &Client| {
                    json!({
                        "id": client.number("id"),
                        "address": client.field("addr"),
                        "user": client.field("user"),
                        "database": client.number("db"),
                        "age": client.number("age"),
                        "idle": client.number("idle"),
                        "command": client.field("cmd"),
                        "name": client.field("name"),
                    })
                };
                Self::sorted_clients(clients).into_iter().take(CLIENTS_MAX).map(client).collect()
            },
        );
        json!({
            "time": self.unix_seconds,
            "address": self.address,
            "seconds": self.seconds,
            "uptime_seconds": now.number("uptime_in_seconds"),
            "rates": rates,
            "memory": numbers(&[
                "used_memory", "maxmemory", "store_live_bytes", "store_free_bytes", "used_memory_rss", "held_by_clients",
            ]),
            "connected_clients": now.number("connected_clients"),
            "journal_waiting_bytes": now.number("journal_waiting_bytes"),
            "latency_us": latencies,
            "databases": now.databases().into_iter().map(database).collect::<Value>(),
            "slow": slow,
            "clients": clients,
        })
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: with one digit after the point if it is small.
fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

fn bytes(bytes: u64) -> String {
    bytes_of(bytes as f64)
}

/// Bytes with a unit, a power of 1024.
fn bytes_of(mut bytes: f64) -> String {
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if bytes < 1000.0 {
            return if unit == "B" { format!("{bytes:.0} B") } else { format!("{bytes:.1} {unit}") };
        }
        bytes /= 1024.0;
    }
    format!("{bytes:.1} TiB")
}

/// A time in its two largest units.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d {}h", hours % 24),
        () if hours > 0 => format!("{hours}h {}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resp::Reply;
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    fn sample(commands: u64, hits: u64, clients: Reply) -> Sample {
        let info = format!(
            "# Server\r\nbristlecone_version:1.2.3\r\nprocess_id:7\r\nuptime_in_seconds:93784\r\nengine:wbtree\r\ndurability:power\r\n\
             connected_clients:2\r\nmaxclients:10000\r\nheld_by_clients:0\r\ntotal_commands_processed:{commands}\r\n\
             total_error_replies:4\r\nkeyspace_hits:{hits}\r\nkeyspace_misses:100\r\ntotal_net_input_bytes:{}\r\n\
             used_memory:1572864\r\nmaxmemory:3145728\r\nmaxmemory_policy:allkeys-lru\r\nevicted_keys:9\r\n\
             latency_percentiles_usec_get:p50=1.250,p99=3.500,max=1200.0\r\n\
             latency_percentiles_usec_write:p50=2.000,p99=9.000,max=80.0\r\n\
             db0:keys=1234567,expires=12,avg_ttl=0\r\ndb10:keys=3,expires=0,avg_ttl=0\r\n",
            commands * 2048
        );
        let words = Reply::Array(vec![bulk("KEYS"), bulk("a\x1b[2J*")]);
        let slow = Reply::Array(vec![
            Reply::Integer(1),
            Reply::Integer(1000),
            Reply::Integer(12_345),
            words,
            bulk("127.0.0.1:5"),
            bulk(""),
        ]);
        Sample::new(&[bulk(&info), clients, Reply::Array(vec![slow])]).unwrap()
    }

    fn clients() -> Reply {
        bulk(
            "id=3 addr=127.0.0.1:5 name=slow age=50 idle=40 db=0 cmd=keys user=default\n\
             id=4 addr=127.0.0.1:6 name=busy age=9 idle=0 db=10 cmd=get user=ann\n",
        )
    }

    #[test]
    fn a_frame_shows_rates_memory_latencies_keys_slow_commands_and_clients() {
        let (before, now) = (sample(1000, 0, clients()), sample(25_690, 300, clients()));
        let frame =
            Frame { address: "host:7379", before: &before, now: &now, seconds: 2.0, unix_seconds: 1065 };
        let lines = frame.lines(100, 24);
        let expected = [
            "bristlecone 1.2.3  host:7379  up 1d 2h  pid 7  engine wbtree  durability power",
            "commands    12,345/s   errors 0/s   found 100.0 %   in 24.1 MiB/s   out -",
            "clients     2 of 10,000   new -   hold 0 B",
            "memory      used 1.5 MiB of 3.0 MiB (allkeys-lru)   evicted 0/s   free -   resident -",
            "journal     groups -   syncs -   checkpoints -   waiting -",
            "latency µs  get     p50 1.2         p99 3.5         max 1200.0",
            "            write   p50 2.0         p99 9.0         max 80.0",
            "keys        db0 1,234,567 (12 expire)   db10 3",
            "",
            "ago                 ms  client                  slow command",
            "1m 5s           12.345  127.0.0.1:5             KEYS a\\x1B[2J*",
            "",
            "client  address                 user         db      age     idle  command       name",
            "4       127.0.0.1:6             ann          10        9        0  get           busy",
            "3       127.0.0.1:5             default       0       50       40  keys          slow",
        ];
        assert_eq!(lines, expected);
        // A small terminal gets a part.
        let small = frame.lines(30, 5);
        assert!(small.len() == 5 && small.iter().all(|line| line.chars().count() <= 30), "{small:?}");
        assert!(frame.lines(0, 0).is_empty());
    }

    #[test]
    fn what_the_user_may_not_see_is_named_and_a_reset_is_no_negative_rate() {
        let refused = Reply::Error("NOPERM this user has no permissions".to_owned());
        let (before, now) = (sample(1000, 0, clients()), sample(10, 0, refused));
        let frame = Frame { address: "a", before: &before, now: &now, seconds: 1.0, unix_seconds: 0 };
        let lines = frame.lines(100, 40);
        assert!(lines[1].starts_with("commands    0/s"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "clients: NOPERM this user has no permissions");
        assert!(Sample::new(&[Reply::Error("NOAUTH".into()), Reply::Null, Reply::Null]).is_err());
        let json = frame.json();
        assert_eq!(json["clients"]["error"], "NOPERM this user has no permissions");
    }

    #[test]
    fn json_has_numbers() {
        let (before, now) = (sample(0, 0, clients()), sample(10, 5, clients()));
        let frame = Frame { address: "a", before: &before, now: &now, seconds: 2.0, unix_seconds: 77 };
        let json = frame.json();
        assert_eq!(json["rates"]["commands"], 5.0);
        assert_eq!((&json["memory"]["maxmemory"], &json["time"]), (&json!(3_145_728), &json!(77)));
        assert_eq!(json["latency_us"]["get"]["p99"], 3.5);
        assert_eq!(json["databases"]["10"], json!({ "keys": 3, "expires": 0 }));
        assert_eq!(json["slow"][0]["command"][1], "a\\x1B[2J*");
        assert_eq!((&json["clients"][0]["id"], &json["clients"][1]["name"]), (&json!(4), &json!("slow")));
        assert_eq!(json["rates"].get("syncs"), None, "the server does not have it");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([rate(0.0), rate(0.25), rate(12.6)], ["0", "0.2", "13"]);
        assert_eq!([bytes(999), bytes(1000), bytes(u64::MAX)], ["999 B", "1.0 KiB", "16777216.0 TiB"]);
        assert_eq!([duration(59), duration(3600), duration(90_000)], ["59s", "1h 0m", "1d 1h"]);
    }
}
