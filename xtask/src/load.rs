//! A load for servers that speak the protocol of Redis or the text protocol of memcached.
//!
//! Each thread has a part of the connections. In each turn it sends a batch of requests on each of its connections, and then reads all
//! replies. So all connections have requests under way at the same time. The latency of a batch is the time from its send to its last
//! reply; it includes the wait for the replies of the thread's earlier connections.
//!
//! The keys are random, with a fixed seed for each thread. Both protocols get the same keys.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Number of threads. Two processors are shared with the server.
const THREADS: u64 = 2;
/// A reply that takes longer is an error.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Memcached,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Set,
    Get,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub protocol: Protocol,
    pub verb: Verb,
    pub connections: u64,
    pub pipeline: u64,
    pub value_bytes: u64,
    /// Number of different keys.
    pub keys: u64,
    /// Digits of a key. Loads with the same seed, connections and pipeline have the same keys.
    pub key_digits: usize,
    pub seed: u64,
    /// Number of requests in all. Rounded up to whole turns of all connections.
    pub requests: u64,
}

/// The figures of a load.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub per_second: f64,
    /// The 99th percentile of the latency of a batch.
    pub p99_ms: f64,
}

impl Protocol {
    /// Appends a request.
    fn request(self, verb: Verb, key: &str, value: &[u8], batch: &mut Vec<u8>) {
        let head = match (self, verb) {
            (Self::Redis, Verb::Set) => {
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len())
            }
            (Self::Redis, Verb::Get) => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            (Self::Memcached, Verb::Set) => format!("set {key} 0 0 {}\r\n", value.len()),
            (Self::Memcached, Verb::Get) => format!("get {key}\r\n"),
        };
        batch.extend_from_slice(head.as_bytes());
        if verb == Verb::Set {
            batch.extend_from_slice(value);
            batch.extend_from_slice(b"\r\n");
        }
    }

    /// Reads the reply to a request. Every reply other than success, a value, or the absence of a value is an error.
    fn reply(self, verb: Verb, from: &mut impl BufRead, line: &mut String) -> Result<(), String> {
        let mut next = |line: &mut String| {
            line.clear();
            match from.read_line(line) {
                Ok(0) => Err("the server closed a connection".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(format!("no reply: {error}")),
            }
        };
        next(line)?;
        let text = line.trim_end();
        let value_bytes = match (self, verb) {
            (Self::Redis, Verb::Set) if text == "+OK" => return Ok(()),
            (Self::Memcached, Verb::Set) if text == "STORED" => return Ok(()),
            (Self::Redis, Verb::Get) if text == "$-1" => return Ok(()),
            (Self::Memcached, Verb::Get) if text == "END" => return Ok(()),
            (Self::Redis, Verb::Get) => text.strip_prefix('$'),
            (Self::Memcached, Verb::Get) => {
                text.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next())
            }
            _ => None,
        };
        let bytes = value_bytes.and_then(|bytes| bytes.parse::<u64>().ok());
        let bytes = bytes.ok_or_else(|| format!("not a reply to {verb:?}: {text}"))? + 2;
        let skipped = std::io::copy(&mut from.take(bytes), &mut std::io::sink());
        if !skipped.is_ok_and(|skipped| skipped == bytes) {
            return Err("a value is incomplete".to_owned());
        }
        match self {
            Self::Redis => Ok(()),
            Self::Memcached => {
                line.clear();
                let end = from.read_line(line).map_err(|error| format!("no reply: {error}"))?;
                if end > 0 && line.trim_end() == "END" {
                    Ok(())
                } else {
                    Err(format!("not the end of a value: {line}"))
                }
            }
        }
    }
}

/// Pseudo-random numbers: a multiplicative congruential generator, whose upper bits are used.
pub struct Random(u64);

impl Random {
    /// Numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        ((u128::from(self.0 >> 11) * u128::from(limit)) >> 53) as u64
    }
}

impl Load {
    /// Runs the load against the server on this port of the loopback interface.
    ///
    /// # Errors
    /// A message if a connection fails or a reply is wrong.
    pub fn run(self, port: u16) -> Result<Figures, String> {
        let threads = THREADS.min(self.connections);
        let turns = self.requests.div_ceil(self.connections * self.pipeline);
        let connect = |thread: u64| -> Result<Vec<BufReader<TcpStream>>, String> {
            let count = self.connections / threads + u64::from(thread < self.connections % threads);
            let connection = |_| {
                let socket = TcpStream::connect(("127.0.0.1", port))?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(REPLY_MAX))?;
                Ok(BufReader::with_capacity(64 << 10, socket))
            };
            let sockets: std::io::Result<_> = (0..count).map(connection).collect();
            sockets.map_err(|error| format!("cannot connect to port {port}: {error}"))
        };
        let sockets = (0..threads).map(connect).collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        let latencies: Result<Vec<Vec<Duration>>, String> = std::thread::scope(|scope| {
            let run = |(thread, sockets)| scope.spawn(move || self.turns(thread, sockets, turns));
            let running: Vec<_> = (0..).zip(sockets).map(run).collect();
            running
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                .collect()
        });
        let took = start.elapsed();
        let mut latencies: Vec<Duration> = latencies?.into_iter().flatten().collect();
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
        let requests = turns * self.connections * self.pipeline;
        Ok(Figures { per_second: requests as f64 / took.as_secs_f64(), p99_ms: p99.as_secs_f64() * 1000.0 })
    }

    /// The turns of a thread. Returns the latencies of its batches.
    fn turns(
        self,
        thread: u64,
        mut sockets: Vec<BufReader<TcpStream>>,
        turns: u64,
    ) -> Result<Vec<Duration>, String> {
        let value = vec![b'v'; self.value_bytes as usize];
        let (mut random, mut batch, mut line) = (Random(self.seed + thread), Vec::new(), String::new());
        let mut sent = Vec::with_capacity(sockets.len());
        let mut latencies = Vec::new();
        for _ in 0..turns {
            sent.clear();
            for socket in &mut sockets {
                batch.clear();
                for _ in 0..self.pipeline {
                    let key = format!("key:{:0digits$}", random.below(self.keys), digits = self.key_digits);
                    self.protocol.request(self.verb, &key, &value, &mut batch);
                }
                sent.push(Instant::now());
                socket.get_mut().write_all(&batch).map_err(|error| format!("cannot send: {error}"))?;
            }
            for (socket, sent) in sockets.iter_mut().zip(&sent) {
                for _ in 0..self.pipeline {
                    self.protocol.reply(self.verb, socket, &mut line)?;
                }
                latencies.push(sent.elapsed());
            }
        }
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_form_of_their_protocol() {
        let request = |protocol: Protocol, verb| {
            let mut batch = Vec::new();
            protocol.request(verb, "k", b"vv", &mut batch);
            String::from_utf8(batch).unwrap()
        };
        assert_eq!(request(Protocol::Redis, Verb::Set), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n");
        assert_eq!(request(Protocol::Redis, Verb::Get), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        assert_eq!(request(Protocol::Memcached, Verb::Set), "set k 0 0 2\r\nvv\r\n");
        assert_eq!(request(Protocol::Memcached, Verb::Get), "get k\r\n");
    }

    #[test]
    fn replies_are_read_to_their_end_and_errors_are_errors() {
        let read = |protocol: Protocol, verb, text: &str| {
            let (mut from, mut line) = (text.as_bytes(), String::new());
            protocol.reply(verb, &mut from, &mut line).map(|()| from.len())
        };
        use Protocol::{Memcached, Redis};
        use Verb::{Get, Set};
        for (protocol, verb, text) in [
            (Redis, Set, "+OK\r\n"),
            (Redis, Get, "$-1\r\n"),
            (Redis, Get, "$2\r\nvv\r\n"),
            (Memcached, Set, "STORED\r\n"),
            (Memcached, Get, "END\r\n"),
            (Memcached, Get, "VALUE k 0 2\r\nvv\r\nEND\r\n"),
        ] {
            assert_eq!(read(protocol, verb, &format!("{text}rest")), Ok(4), "{text}");
            assert!(read(protocol, verb, &text[..text.len() - 3]).is_err(), "{text}");
        }
        assert!(read(Redis, Set, "-ERR no\r\n").is_err());
        assert!(read(Memcached, Set, "SERVER_ERROR out of memory\r\n").is_err());
        assert!(read(Memcached, Get, "VALUE k 0 2\r\nvv\r\nVALUE").is_err());
    }
}
