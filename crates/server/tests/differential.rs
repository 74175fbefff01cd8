//! The same commands to this server and to Debian's `redis-server`: all replies must be equal. For errors, only the first word is compared.
//! A hash has no order in Redis, so of a reply that lists its fields the sorted lines are compared.
//!
//! `BRISTLECONE_SEED` changes the seeds. `BRISTLECONE_ROUNDS` (default 1) multiplies the number of commands, 100,000.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::TestServer;
use crate::templates::TEMPLATES;

/// Commands of a chunk: they are sent at once, and their replies are compared together.
const CHUNK: usize = 64;
/// Commands of each version of the protocol.
const COMMANDS: u64 = 50_000;

/// A `redis-server` on a free port, without persistence. Stopped when dropped.
pub struct Redis {
    process: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl Redis {
    /// Starts it, with this working directory.
    pub fn start(dir: &std::path::Path) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = address.port().to_string();
        let process = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("the Debian package redis-server is installed by `cargo xtask test`");
        let redis = Self { process, address };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends commands and returns the bytes of their replies.
pub fn exchange(socket: &mut TcpStream, commands: &[Vec<Vec<u8>>], marker: &str) -> Vec<u8> {
    let mut request = Vec::new();
    let end = vec![b"ECHO".to_vec(), marker.as_bytes().to_vec()];
    for command in commands.iter().chain([&end]) {
        write!(request, "*{}\r\n", command.len()).unwrap();
        for argument in command {
            write!(request, "${}\r\n", argument.len()).unwrap();
            request.extend_from_slice(argument);
            request.extend_from_slice(b"\r\n");
        }
    }
    socket.write_all(&request).unwrap();
    let tail = format!("${}\r\n{marker}\r\n", marker.len());
    let mut replies = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !replies.ends_with(tail.as_bytes()) {
        let count =
            socket.read(&mut buffer).unwrap_or_else(|error| panic!("{error} after {}", text(commands)));
        assert!(count > 0, "the server closed the connection after {}", text(commands));
        replies.extend_from_slice(&buffer[..count]);
    }
    replies
}

pub fn text(commands: &[Vec<Vec<u8>>]) -> String {
    commands.iter().fold(String::new(), |mut text, command| {
        let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
        let _ = writeln!(text, "  {}", words.join(" "));
        text
    })
}

/// The lines of replies; of an error only the first word.
fn lines(replies: &[u8]) -> Vec<String> {
    let line = |line: &[u8]| {
        let line = line.escape_ascii().to_string();
        match line.starts_with('-') {
            true => line.split([' ', '\\']).next().unwrap_or_default().to_owned(),
            false => line,
        }
    };
    replies.split(|byte| *byte == b'\n').map(line).collect()
}

/// Number of the command whose reply has this line.
fn command_at(lines: &[String], line: usize) -> usize {
    let (mut at, mut commands) = (0, 0);
    while at <= line && at < lines.len() {
        let mut values = 1_usize;
        while values > 0 && at < lines.len() {
            values -= 1;
            let (kind, rest) = lines[at].split_at(1.min(lines[at].len()));
            let count = rest.trim_end_matches("\\r").parse().unwrap_or(0);
            at += 1;
            match kind {
                "*" | "~" => values += count,
                "%" => values += 2 * count,
                "$" if !rest.starts_with('-') => at += 1,
                _ => {}
            }
        }
        commands += 1;
    }
    commands
}

/// Makes commands. Keys are few, so that commands meet each other's results.
pub struct Maker {
    rng: fastrand::Rng,
    number: u64,
    in_transaction: bool,
}

impl Maker {
    /// A maker of the commands that this generator of random numbers chooses.
    pub fn new(rng: fastrand::Rng) -> Self {
        Self { rng, number: 0, in_transaction: false }
    }

    /// At least `count` commands. A transaction is complete.
    pub fn chunk(&mut self, count: usize) -> Vec<Vec<Vec<u8>>> {
        let mut commands = Vec::new();
        while commands.len() < count {
            let alone = self.add(&mut commands);
            commands.extend(alone);
        }
        if std::mem::take(&mut self.in_transaction) {
            commands.push(vec![b"EXEC".to_vec()]);
        }
        commands
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{}", self.rng.u8(..8)).into_bytes()
    }

    /// An integer as an argument, now and then something else.
    fn integer(&mut self) -> Vec<u8> {
        let number = match self.rng.u8(..40) {
            0 => return b"x".to_vec(),
            1 => return b" 1".to_vec(),
            2 => return b"1.5".to_vec(),
            3 => i64::MAX,
            4 => i64::MIN,
            5..10 => self.rng.i64(-100..100),
            _ => self.rng.i64(-12..12),
        };
        number.to_string().into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        self.number += 1;
        match self.rng.u8(..8) {
            0 => self.rng.i64(-1000..1000).to_string().into_bytes(),
            1 => i64::MAX.to_string().into_bytes(),
            2 => Vec::new(),
            3 => vec![self.rng.u8(128..); self.rng.usize(..6)],
            _ => format!("value{}", self.number).into_bytes(),
        }
    }

    fn words(&mut self, template: &str) -> Vec<Vec<u8>> {
        let word = |word: &str, maker: &mut Self| match word {
            "K" => maker.key(),
            "V" => maker.value(),
            "F" => format!("f{}", maker.rng.u8(..6)).into_bytes(),
            // Fields with small numbers. Redis calculates with longer floating-point numbers.
            "G" => format!("g{}", maker.rng.u8(..3)).into_bytes(),
            // Scores that all forms of numbers show alike.
            "P" => maker
                .rng
                .choice(["0", "1", "2", "-1", "1.5", "-0.25", "1000", "inf", "-inf"])
                .unwrap()
                .as_bytes()
                .to_vec(),
            "E" => maker.rng.choice(["0.5", "-1.25", "3", "1e2", "x", "inf"]).unwrap().as_bytes().to_vec(),
            "N" => maker.integer(),
            // Seconds and milliseconds in the year 2100.
            "A" => (4_102_444_800 + maker.rng.u64(..60)).to_string().into_bytes(),
            "M" => (4_102_444_800_000 + maker.rng.u64(..60_000)).to_string().into_bytes(),
            "O" => maker.rng.u16(..100).to_string().into_bytes(),
            "B" => maker.rng.choice(["0", "1", "2"]).unwrap().as_bytes().to_vec(),
            "W" => {
                let letter = maker.rng.choice(["u", "i", "u", "i", "x"]).unwrap();
                let bits = maker.rng.choice([1u8, 3, 7, 8, 16, 31, 32, 63, 64, 65]).unwrap();
                format!("{letter}{bits}").into_bytes()
            }
            "H" => format!("#{}", maker.rng.i8(-1..5)).into_bytes(),
            // Redis saturates the smallest integers of 64 bits to the largest number of a shorter type; this server to the smallest. Redis 7.0
            // takes the smallest rank of LPOS for another one.
            "D" => match maker.integer() {
                number if number == i64::MIN.to_string().as_bytes() => b"-300".to_vec(),
                number => number,
            },
            // IDs of streams: one that is usually higher than those before, and any one.
            "I" => {
                let (ms, seq) = (maker.number / 20 + maker.rng.u64(..4), maker.rng.u8(..3));
                format!("{ms}-{seq}").into_bytes()
            }
            "J" => {
                let last = maker.number / 20;
                let ms = maker.rng.u64(last.saturating_sub(8)..last + 4);
                match maker.rng.u8(..4) {
                    0 => ms.to_string().into_bytes(),
                    _ => format!("{ms}-{}", maker.rng.u8(..3)).into_bytes(),
                }
            }
            // Degrees. No two members are at the same distance, so that their order is certain.
            "X" => format!("{:.6}", (maker.rng.f64() - 0.5) * 60.0).into_bytes(),
            "Y" => format!("{:.6}", (maker.rng.f64() - 0.5) * 140.0).into_bytes(),
            "Z" => maker.rng.u8(..9).to_string().into_bytes(),
            "U" => maker.rng.choice(["BIT", "BYTE", "bits"]).unwrap().as_bytes().to_vec(),
            other => other.as_bytes().to_vec(),
        };
        template.split(' ').map(|part| word(part, self)).collect()
    }

    /// A command; `WATCH` with the commands that belong to it. Returns a command that is to be sent alone, because its reply has no order.
    fn add(&mut self, commands: &mut Vec<Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
        if !self.in_transaction && self.rng.u8(..30) == 0 {
            // A change of a watched key by its own connection counts, too. Most commands here change only one of their keys, or none.
            let between = self.rng.choice(BETWEEN).unwrap();
            for template in ["WATCH k1 k2", between, "MULTI"] {
                commands.push(self.words(template));
            }
            self.in_transaction = true;
            return None;
        }
        let template = self.rng.choice(TEMPLATES).unwrap();
        match *template {
            // This server does not exchange databases within a transaction.
            swap if self.in_transaction && swap.starts_with("SWAPDB") => return None,
            alone if alone.starts_with('~') => {
                return (!self.in_transaction).then(|| self.words(&alone[1..]));
            }
            "MULTI" => self.in_transaction = true,
            "EXEC" | "DISCARD" => self.in_transaction = false,
            _ => {}
        }
        commands.push(self.words(template));
        None
    }
}

/// Commands between WATCH and MULTI.
const BETWEEN: &[&str] = &[
    "PING",
    "APPEND k1 x",
    "DEL k1 k2 k3",
    "UNLINK k2 k3 k4",
    "MSETNX k1 a k2 b",
    "RENAMENX k3 k1",
    "COPY k3 k2",
    "SET k3 v",
    "HSET k1 f v",
    "HDEL k2 f",
    "SADD k1 m",
    "SREM k1 m",
    "SMOVE k1 k2 m",
    "SUNIONSTORE k1 k2 k3",
    "ZADD k2 1 m",
    "ZREM k2 m",
    "LPUSHX k1 a",
    "LMOVE k1 k2 LEFT RIGHT",
    "SORT k3 BY nosort STORE k2",
    "PERSIST k1",
    // An absolute time: both sides then have the same deadline.
    "EXPIREAT k2 9999999999",
];

#[test]
fn replies_are_those_of_redis() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (seed, rounds) = (number("BRISTLECONE_SEED", 0), number("BRISTLECONE_ROUNDS", 1));
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    for version in ["2", "3"] {
        let [mut there, mut here] = [redis.address, ours.address].map(|address| {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            socket.set_nodelay(true).unwrap();
            socket
        });
        let hello = [vec![b"HELLO".to_vec(), version.as_bytes().to_vec()], vec![b"FLUSHALL".to_vec()]];
        for socket in [&mut there, &mut here] {
            exchange(socket, &hello, "begin");
        }
        let rng = fastrand::Rng::with_seed(seed * 2 + u64::from(version == "3"));
        let mut maker = Maker::new(rng);
        let mut done = 0;
        while done < COMMANDS * rounds {
            let (mut commands, mut alone) = (Vec::new(), None);
            while commands.len() < CHUNK && alone.is_none() {
                alone = maker.add(&mut commands);
            }
            let marker = format!("marker{done}");
            // Inside a transaction the marker would be queued.
            if std::mem::take(&mut maker.in_transaction) {
                commands.push(vec![b"EXEC".to_vec()]);
            }
            let [expected, found] =
                [&mut there, &mut here].map(|socket| lines(&exchange(socket, &commands, &marker)));
            if expected != found {
                let at =
                    expected.iter().zip(&found).take_while(|(expected, found)| expected == found).count();
                let near =
                    |lines: &[String]| lines[at.saturating_sub(8)..lines.len().min(at + 3)].join("\n  ");
                panic!(
                    "seed {seed}, protocol {version}, after {done} commands, reply {} of those to\n{}Redis:\n  {}\nhere:\n  {}",
                    command_at(&expected, at),
                    text(&commands),
                    near(&expected),
                    near(&found)
                );
            }
            if let Some(command) = alone {
                let command = [command];
                let [expected, found] = [&mut there, &mut here].map(|socket| {
                    let mut lines = lines(&exchange(socket, &command, &marker));
                    lines.sort_unstable();
                    lines
                });
                assert_eq!(
                    expected,
                    found,
                    "seed {seed}, protocol {version}, after {done} commands, sorted lines of Redis (left) and here:\n{}",
                    text(&command)
                );
                done += 1;
            }
            done += commands.len() as u64;
        }
        println!("protocol {version}: {done} commands");
    }
}

#[test]
fn a_watched_key_that_expires_aborts_exec_as_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let script = |lines: &[&str]| -> Vec<Vec<Vec<u8>>> {
        lines.iter().map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).collect()
    };
    let transaction = ["MULTI", "SET done 1", "EXEC", "EXISTS done", "EXISTS brief", "TTL long"];
    let [there, here] = [redis.address, ours.address].map(|address| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut replies = Vec::new();
        // The pause is before or after WATCH, or there is none.
        for (case, (before, after)) in [(false, true), (true, false), (false, false)].into_iter().enumerate()
        {
            let pause = |is_wanted: bool| {
                if is_wanted {
                    std::thread::sleep(Duration::from_millis(600));
                }
            };
            let brief = if before || after { "SET brief v PX 500" } else { "SET brief v PX 600000" };
            let (set, watch) = (["FLUSHALL", "SET long v EX 1000", brief], "WATCH long brief");
            if before {
                exchange(&mut socket, &script(&set), "set");
                pause(before);
                exchange(&mut socket, &script(&[watch]), "watch");
            } else {
                // Sent together, so that the key is present at WATCH.
                exchange(&mut socket, &script(&[set[0], set[1], set[2], watch]), "watch");
            }
            pause(after);
            replies.extend(lines(&exchange(&mut socket, &script(&transaction), &format!("end{case}"))));
        }
        replies
    });
    assert_eq!(there, here);
    // The first transaction was aborted, the two others were not.
    assert_eq!(here.iter().filter(|line| *line == "*-1\\r").count(), 1, "{here:?}");
}

#[test]
fn answers_at_the_limit_of_memory_are_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let script: Vec<Vec<Vec<u8>>> = [
        "SET k v",
        "SET n 5",
        "CONFIG GET maxmemory-policy",
        "CONFIG SET maxmemory 1x",
        "CONFIG SET maxmemory-policy lru",
        "OBJECT FREQ k",
        "OBJECT FREQ absent",
        "OBJECT IDLETIME absent",
        "CONFIG SET maxmemory 1",
        "CONFIG GET maxmemory",
        "SET k w",
        "SETNX new v",
        "APPEND k w",
        "INCR n",
        "SETRANGE k 1 x",
        "SETBIT k 1 1",
        "COPY k new",
        "MSET a 1 b 2",
        "GETSET k w",
        "GET k",
        "EXPIRE k 1000",
        "RENAME n m",
        "GETEX k",
        "PERSIST k",
        "MULTI",
        "SET k w",
        "EXEC",
        "CONFIG SET maxmemory 0",
        "MULTI",
        "APPEND k queued",
        "CONFIG SET maxmemory 1",
        "EXEC",
        "GET k",
        "DEL k m",
        "DBSIZE",
        "CONFIG SET maxmemory 0",
        "CONFIG SET maxmemory-policy allkeys-lfu",
        "SET k v",
        "OBJECT IDLETIME k",
        "CONFIG SET maxmemory-policy noeviction",
    ]
    .iter()
    .map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    .collect();
    let [there, here] = [redis.address, ours.address].map(|address| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        String::from_utf8(exchange(&mut socket, &script, "end")).unwrap()
    });
    // Whole lines, also of errors.
    let pairs = there.lines().zip(here.lines());
    let different: Vec<_> = pairs.filter(|(there, here)| there != here).collect();
    assert!(different.is_empty() && there.lines().count() == here.lines().count(), "{different:#?}");
}
