//! The same commands to this server and to Debian's `memcached` 1.6.18: all replies must be equal.
//!
//! Some parts of replies cannot be equal, and are replaced: a unique number becomes its index in the order of first sight, seconds that are
//! left become a multiple of 100, and seconds since the last access and classes of slabs are left out. Commands on which the server differs
//! on purpose are not made: a token of `O` that is too long (memcached reports it after the command has run), keys with control characters,
//! lines of more than 2048 bytes (also as data behind a wrong command), numbers that memcached cuts to 32 bits, `t` together with a
//! negative expiry, and counters of 2^63 or more (memcached then looks for a minus sign also behind the item).
//!
//! `BRISTLECONE_SEED` changes the seed. `BRISTLECONE_ROUNDS` (default 1) multiplies the number of commands, 40,000.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Client, Server};

/// Commands of a chunk: their replies are compared together.
const CHUNK: usize = 40;
/// Commands of a run.
const COMMANDS: u64 = 40_000;
/// After this many chunks all items are removed. So none becomes so old that its seconds differ.
const CHUNKS_PER_FLUSH: u64 = 50;

/// A `memcached` on a free port. Stopped when dropped.
struct Memcached {
    process: Child,
    address: SocketAddr,
}

impl Memcached {
    fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("memcached");
        command.args(["-p", &address.port().to_string(), "-U", "0", "-l", "127.0.0.1"]);
        // These threads hold references to items now and then. Then `decr` does not keep the length.
        command.args(["-o", "no_lru_crawler,no_lru_maintainer"]);
        // As root, memcached wants a user.
        if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            command.args(["-u", "root"]);
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Debian package memcached is installed by `cargo xtask test`");
        let memcached = Self { process, address };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        // A memcached that has just started takes a short expiry for one before its start.
        std::thread::sleep(Duration::from_millis(2100));
        memcached
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client of one of the servers, with the unique numbers that it has seen.
struct Side {
    client: Client,
    indexes: HashMap<u64, usize>,
    numbers: Vec<u64>,
}

impl Side {
    fn new(address: SocketAddr) -> Self {
        let client = Client::connect(address);
        client.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { client, indexes: HashMap::new(), numbers: Vec::new() }
    }

    /// The index of a unique number.
    fn index(&mut self, number: &str) -> String {
        let Ok(number) = number.parse() else { return number.to_owned() };
        // Not a number of an item.
        if number == 0 {
            return "0".to_owned();
        }
        let next = self.numbers.len();
        let index = *self.indexes.entry(number).or_insert(next);
        if index == next {
            self.numbers.push(number);
        }
        format!("#{index}")
    }

    /// Sends requests, with the numbers of this side, and returns their replies.
    fn ask(&mut self, requests: &[String]) -> String {
        let mut bytes = String::new();
        for request in requests {
            let mut parts = request.split('#');
            bytes += parts.next().unwrap_or_default();
            for part in parts {
                let (index, rest) = part.split_once('#').map_or((part, ""), |parts| parts);
                let end = index.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(index.len());
                let number =
                    index[..end].parse().ok().and_then(|index: usize| self.numbers.get(index).copied());
                bytes += &number.unwrap_or(u64::MAX >> 1).to_string();
                bytes += &index[end..];
                bytes += rest;
            }
        }
        self.client.ask(bytes)
    }

    /// The lines of replies, with indexes in place of unique numbers.
    fn lines(&mut self, replies: &str) -> Vec<String> {
        replies.split("\r\n").map(|line| self.line(line)).collect()
    }

    /// A line of a reply without the parts that differ.
    fn line(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["VALUE", key, flags, bytes, cas] => format!("VALUE {key} {flags} {bytes} {}", self.index(cas)),
            ["HD" | "VA" | "EN" | "NS" | "EX" | "NF", ..] => {
                let word = |word: &&str| match (word.get(..1), word.get(1..)) {
                    (Some("c"), Some(cas)) => format!("c{}", self.index(cas)),
                    (Some("l"), Some(_)) => "l".to_owned(),
                    _ => (*word).to_owned(),
                };
                words.iter().map(word).collect::<Vec<_>>().join(" ")
            }
            ["ME", key, expiry, _, cas, fetched, _, size] => {
                let expiry = expiry.trim_start_matches("exp=-");
                let cas = self.index(cas.trim_start_matches("cas="));
                format!("ME {key} t{expiry} {cas} {fetched} {size}")
            }
            _ => line.to_owned(),
        }
    }
}

/// Most seconds by which the rest of an item's time may differ: the sides answer one after the other, and memcached's clock ticks once a
/// second.
const SECONDS_MAX: i64 = 3;

/// True if two lines are equal, but for the words of the rest of a time (`t`), which may differ by [`SECONDS_MAX`].
fn is_same(there: &str, here: &str) -> bool {
    let seconds = |word: &str| word.strip_prefix('t')?.parse::<i64>().ok();
    let is_same_word = |(there, here): (&str, &str)| {
        there == here
            || match (seconds(there), seconds(here)) {
                // -1 is an item without an end.
                (Some(there), Some(here)) if there >= 0 && here >= 0 => (there - here).abs() <= SECONDS_MAX,
                _ => false,
            }
    };
    there == here
        || (there.split(' ').count() == here.split(' ').count()
            && there.split(' ').zip(here.split(' ')).all(is_same_word))
}

/// Makes commands. Keys are few, so that commands find each other's results.
struct Maker {
    rng: fastrand::Rng,
    number: u64,
    /// Unique numbers that both sides have seen.
    known: usize,
}

impl Maker {
    fn pick(&mut self, words: &[&str]) -> String {
        (*self.rng.choice(words).unwrap()).to_owned()
    }

    fn key(&mut self) -> String {
        match self.rng.u8(..60) {
            0 => "k".repeat(250),
            1 => "k".repeat(251),
            _ => format!("key{}", self.rng.u8(..6)),
        }
    }

    /// A key in base64 for most of the time.
    fn binary_key(&mut self) -> String {
        self.pick(&["a2V5MA==", "a2V5MQ==", "a2V5Mg==", "a2V5Mw==", "a2V5", "key0", "====", "a2V5MQ="])
    }

    fn value(&mut self) -> String {
        self.number += 1;
        match self.rng.u8(..16) {
            0..6 => self.rng.u16(..).to_string(),
            6 => "9223372036854000000".to_owned(),
            7 => String::new(),
            8 => " 5".to_owned(),
            9 => "7 x".to_owned(),
            // memcached looks for a minus behind the end of a large counter, in what earlier items have left there. So an item with a minus
            // is longer than counters are, and takes no memory that a counter has later.
            10 => format!("-3{}", " ".repeat(150)),
            11 => self.rng.u64(..1 << 62).to_string(),
            12 => "x".repeat(self.rng.usize(..1900)),
            13 => "000000000000000000000000000012".to_owned(),
            _ => format!("value{}", self.number),
        }
    }

    fn exptime(&mut self) -> String {
        self.pick(&[
            "0",
            "0",
            "0",
            "0",
            "300",
            "9000",
            "-1",
            "2592000",
            "2592001",
            "x",
            "+300",
            "0300",
            "2000000000",
        ])
    }

    /// A positive expiry for a meta flag.
    fn positive(&mut self) -> String {
        self.pick(&["0", "300", "9000", "300", "2592000"])
    }

    fn cas(&mut self) -> String {
        match self.rng.u8(..12) {
            0..2 => "0".to_owned(),
            2 => "x".to_owned(),
            3 => "18446744073709551615".to_owned(),
            _ if self.known == 0 => "0".to_owned(),
            _ => format!("#{}", self.known.saturating_sub(1 + self.rng.usize(..12))),
        }
    }

    fn delta(&mut self) -> String {
        self.pick(&["1", "5", "999", "18446744073709551616", "-1", "x", "+3", "0"])
    }

    /// A command with data. The length is wrong now and then, and sometimes beyond the limit.
    fn with_data(&mut self, line: impl Fn(&str) -> String) -> String {
        let value = self.value();
        match self.rng.u16(..1500) {
            // Without an error in the line, after which the data would be a line that is too long.
            0 => {
                let line = self.pick(&[
                    "set K 0 0 L",
                    "add K 0 0 L",
                    "replace K 0 0 L",
                    "append K 0 0 L",
                    "ms K L",
                    "ms K L ME c",
                ]);
                let line = line.replace('K', &format!("key{}", self.rng.u8(..6))).replace('L', "1048576");
                format!("{line}\r\n{}\r\n", "y".repeat(1_048_576))
            }
            1..20 => {
                let wrong = self.pick(&["0", "1", "3", "9", "-1", "x"]);
                // The empty lines may be taken for data, so that the next command is not.
                format!("{}\r\n{value}\r\n{}", line(&wrong), "\r\n".repeat(10))
            }
            _ => format!("{}\r\n{value}\r\n", line(&value.len().to_string())),
        }
    }

    fn noreply(&mut self) -> &'static str {
        match self.rng.u8(..12) {
            0 => " noreply",
            1 => " 0",
            _ => "",
        }
    }

    fn flags(&mut self) -> String {
        self.pick(&["0", "0", "0", "5", "4294967295", "4294967296", "-1", "x", "010"])
    }

    fn storage(&mut self) -> String {
        let name = self.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas", "cas"]);
        let (key, flags, exptime, quiet) = (self.key(), self.flags(), self.exptime(), self.noreply());
        let cas = if name == "cas" { format!(" {}", self.cas()) } else { String::new() };
        self.with_data(|bytes| format!("{name} {key} {flags} {exptime} {bytes}{cas}{quiet}"))
    }

    /// Flags of a meta command from these letters. `t` is not beside a negative expiry.
    fn options(&mut self, letters: &[&str]) -> String {
        let mut options = String::new();
        for _ in 0..self.rng.usize(..5) {
            let letter = self.pick(letters);
            let token = match letter.as_str() {
                "T" | "N" => self.positive(),
                "R" => self.pick(&["60", "3000", "20000", "60", "x", ""]),
                "O" => self.pick(&["1", "opaque", "", "0123456789012345678901234567890"]),
                "C" => self.cas(),
                "F" => self.flags(),
                "D" => self.delta(),
                "J" => self.pick(&["0", "13", "9223372036854000000", "x"]),
                _ => String::new(),
            };
            options += &format!(" {letter}{token}");
        }
        if self.rng.u8(..40) == 0 {
            options += " ";
            options += &self.pick(&["z", "S5", "v1", "T-", "X", "~", "E5", "P", "Lpath/", "ks", "b"]);
        }
        options
    }

    fn meta(&mut self) -> String {
        let is_binary = self.rng.u8(..8) == 0;
        let key = if is_binary { self.binary_key() } else { self.key() };
        let binary = if is_binary { " b" } else { "" };
        match self.rng.u8(..20) {
            0..8 => {
                let options = self.options(&[
                    "v", "v", "v", "k", "O", "f", "c", "s", "t", "h", "l", "q", "T", "N", "R", "u",
                ]);
                format!("mg {key}{binary}{options}\r\n")
            }
            8..14 => {
                let options = self.options(&[
                    "c", "k", "O", "q", "I", "C", "C", "C", "F", "T", "MS", "ME", "MR", "MA", "MP", "Mx",
                    "N300",
                ]);
                self.with_data(|bytes| format!("ms {key} {bytes}{binary}{options}"))
            }
            14..16 => {
                let options = self.options(&["k", "O", "q", "I", "I", "C", "T", "I"]);
                format!("md {key}{binary}{options}\r\n")
            }
            16..19 => {
                let options = self.options(&[
                    "v", "t", "c", "k", "O", "q", "N", "J", "D", "T", "MI", "MD", "M+", "M-", "Mi", "Mx",
                    "C", "v",
                ]);
                format!("ma {key}{binary}{options}\r\n")
            }
            _ => format!("me {key}{binary}\r\n"),
        }
    }

    fn command(&mut self) -> String {
        match self.rng.u8(..40) {
            0..10 => self.storage(),
            10..26 => self.meta(),
            26..32 => {
                let name = self.pick(&[
                    "get",
                    "gets",
                    "gets",
                    "get",
                    "gat 0",
                    "gat 300",
                    "gats 9000",
                    "gat -1",
                    "gat x",
                ]);
                let mut keys: Vec<_> = (0..self.rng.usize(..4)).map(|_| self.key()).collect();
                // memcached reads and touches the items before a wrong key.
                keys.sort_by_key(|key| key.len() <= 250);
                format!("{name} {}\r\n", keys.join(" "))
            }
            32 => format!("touch {} {}{}\r\n", self.key(), self.exptime(), self.noreply()),
            33..36 => {
                let name = self.pick(&["incr", "incr", "decr"]);
                format!("{name} {} {}{}\r\n", self.key(), self.delta(), self.noreply())
            }
            36 => {
                let tail = self.pick(&["", "", "", " 0", " noreply", " 0 noreply", " 1", " x y", " 1 2 3"]);
                format!("delete {}{tail}\r\n", self.key())
            }
            37 => {
                self.pick(&[
                    "verbosity 1",
                    "verbosity",
                    "verbosity x",
                    "verbosity 1 noreply",
                    "verbosity 1 2 3",
                    "version",
                    "version 1",
                ]) + "\r\n"
            }
            38 => {
                self.pick(&[
                    "",
                    "x",
                    "GET key1",
                    "mn",
                    "mn x",
                    "set",
                    "set key1 0 0",
                    "incr key1",
                    "touch key1",
                    "mg",
                    "md",
                    "ma",
                    "me",
                    "ms",
                    "ms key1",
                    "shutdown",
                    "flush_all x",
                    "flush_all 0 0 0",
                    " get  key1  key2",
                    "get",
                    "gat 0",
                    "bget key1",
                    "stats foo",
                    "set key1 0 0 1 a b",
                    "\u{7f}",
                ]) + "\r\n"
            }
            _ => {
                self.pick(&[
                    "flush_all",
                    "get key0",
                    "get key1 key2 key3 key4 key5",
                    "flush_all 0",
                    "get key1",
                    "flush_all noreply",
                    "get key3",
                ]) + "\r\n"
            }
        }
    }
}

#[test]
fn replies_are_those_of_memcached() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (seed, rounds) = (number("BRISTLECONE_SEED", 0), number("BRISTLECONE_ROUNDS", 1));
    let (memcached, ours) = (Memcached::start(), Server::start());
    let (mut there, mut here) = (Side::new(memcached.address), Side::new(ours.address));
    let rng = fastrand::Rng::with_seed(seed);
    let mut maker = Maker { rng, number: 0, known: 0 };
    let (mut done, mut chunks, mut before) = (0, 0, Vec::new());
    while done < COMMANDS * rounds {
        let mut requests = Vec::new();
        if chunks % CHUNKS_PER_FLUSH == 0 {
            requests.push("flush_all\r\n".to_owned());
        }
        while requests.len() < CHUNK {
            requests.push(maker.command());
        }
        // memcached treats items otherwise while replies with them wait to be written, and a wrong `get` discards replies before it. So
        // it gets one command at a time. This server gets all of them at once.
        let expected: Vec<_> =
            requests.iter().map(|request| there.ask(std::slice::from_ref(request))).collect();
        let expected = there.lines(&expected.concat());
        let found = here.ask(&requests);
        let found = here.lines(&found);
        let at = expected.iter().zip(&found).take_while(|(there, here)| is_same(there, here)).count();
        if at < expected.len().max(found.len()) {
            let near = |lines: &[String]| {
                let lines = &lines[at.saturating_sub(6)..lines.len().min(at + 3)];
                lines
                    .iter()
                    .map(|line| line.chars().take(200).collect::<String>())
                    .collect::<Vec<_>>()
                    .join("\n  ")
            };
            let sent: Vec<_> = [&before[..], &requests]
                .concat()
                .iter()
                .map(|request| request[..request.len().min(160)].escape_debug().to_string())
                .collect();
            panic!(
                "seed {seed}, after {done} commands, line {at} of the replies to the last {CHUNK} of\n  {}\nmemcached:\n  {}\nhere:\n  {}",
                sent.join("\n  "),
                near(&expected),
                near(&found)
            );
        }
        maker.known = here.numbers.len();
        done += requests.len() as u64;
        before = requests;
        chunks += 1;
    }
    println!("{done} commands, {} unique numbers", here.numbers.len());
}
