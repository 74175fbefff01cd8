//! The client's side of a cluster: connections to all servers, a ring that tells the server of each key, and YCSB's workloads A and D.
//!
//! A record of YCSB has ten fields of 100 bytes. With Redis's protocol it is a hash, as in YCSB's binding for Redis. With memcached's protocol
//! it is one item of 1,000 bytes, and a change of a field replaces the item.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ketama::Ring;
use crate::load::{Protocol, Random};

/// Fields of a record, and bytes of a field.
const FIELDS: u64 = 10;
const FIELD_BYTES: usize = 100;
/// YCSB's exponent of its Zipfian distribution.
const EXPONENT: f64 = 0.99;
/// A reply that takes longer is an error.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Reads and changes of one field, half each, of records drawn from a Zipfian distribution.
    A,
    /// 95 % reads, mostly of the newest records, and 5 % new records.
    D,
}

/// The servers of a cluster, by their ports on the loopback interface.
#[derive(Clone, Debug)]
pub struct Cluster {
    protocol: Protocol,
    ports: Vec<u16>,
    ring: Ring,
}

/// The connections of one client.
struct Client<'c> {
    cluster: &'c Cluster,
    sockets: Vec<BufReader<TcpStream>>,
    request: Vec<u8>,
    line: Vec<u8>,
}

/// Appends a command in Redis's protocol.
fn command(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// Reads a line without its end.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<(), String> {
    line.clear();
    let count = from.read_until(b'\n', line).map_err(|error| format!("no reply: {error}"))?;
    if count < 2 || !line.ends_with(b"\r\n") {
        return Err("the server closed a connection".to_owned());
    }
    line.truncate(count - 2);
    Ok(())
}

/// Reads a reply of Redis's protocol. Returns the number of values in it. An error reply is an error.
fn redis_reply(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<u64, String> {
    read_line(from, line)?;
    let text = String::from_utf8_lossy(line).into_owned();
    let number = || text[1..].parse::<i64>().map_err(|_| format!("not a length: {text}"));
    match text.as_bytes().first() {
        Some(b'+' | b':') => Ok(1),
        Some(b'$') => match u64::try_from(number()?) {
            Ok(bytes) => {
                let skipped = std::io::copy(&mut from.take(bytes + 2), &mut std::io::sink());
                if skipped.is_ok_and(|skipped| skipped == bytes + 2) {
                    Ok(1)
                } else {
                    Err("a value is incomplete".to_owned())
                }
            }
            Err(_) => Ok(0),
        },
        Some(b'*') => {
            let mut values = 0;
            for _ in 0..number()?.max(0) {
                values += redis_reply(from, line)?;
            }
            Ok(values)
        }
        _ => Err(format!("an error reply: {text}")),
    }
}

/// Reads a reply of memcached's protocol to `get` or `set`. Returns the number of values in it.
fn memcached_reply(from: &mut impl BufRead, line: &mut Vec<u8>) -> Result<u64, String> {
    let mut values = 0;
    loop {
        read_line(from, line)?;
        let text = String::from_utf8_lossy(line).into_owned();
        match text.as_str() {
            "STORED" => return Ok(1),
            "END" => return Ok(values),
            _ => {}
        }
        let bytes = text.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok());
        let bytes = bytes.ok_or_else(|| format!("an error reply: {text}"))? + 2;
        let skipped = std::io::copy(&mut from.take(bytes), &mut std::io::sink());
        if !skipped.is_ok_and(|skipped| skipped == bytes) {
            return Err("a value is incomplete".to_owned());
        }
        values += 1;
    }
}

impl Client<'_> {
    fn server(&self, key: &str) -> usize {
        self.cluster.ring.server_of(key.as_bytes())
    }

    /// Sends the request to the key's server and reads the reply. Returns the number of values in it.
    fn send(&mut self, key: &str) -> Result<u64, String> {
        let server = self.server(key);
        let socket = &mut self.sockets[server];
        socket.get_mut().write_all(&self.request).map_err(|error| format!("cannot send: {error}"))?;
        self.reply(server)
    }

    fn reply(&mut self, server: usize) -> Result<u64, String> {
        let socket = &mut self.sockets[server];
        match self.cluster.protocol {
            Protocol::Redis => redis_reply(socket, &mut self.line),
            Protocol::Memcached => memcached_reply(socket, &mut self.line),
        }
    }

    /// Stores fields of a record: one, or all.
    fn write(&mut self, key: &str, fields: std::ops::Range<u64>) -> Result<(), String> {
        self.request.clear();
        match self.cluster.protocol {
            Protocol::Redis => {
                let value = [b'v'; FIELD_BYTES];
                let names: Vec<_> = fields.map(|field| format!("field{field}")).collect();
                let mut words: Vec<&[u8]> = vec![b"HSET", key.as_bytes()];
                words.extend(names.iter().flat_map(|name| [name.as_bytes(), &value]));
                command(&mut self.request, &words);
            }
            Protocol::Memcached => {
                let value = vec![b'v'; FIELD_BYTES * FIELDS as usize];
                self.request.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
                self.request.extend_from_slice(&value);
                self.request.extend_from_slice(b"\r\n");
            }
        }
        self.send(key).map(|_| ())
    }

    /// Reads all fields of a record, which must exist.
    fn read(&mut self, key: &str) -> Result<(), String> {
        self.request.clear();
        match self.cluster.protocol {
            Protocol::Redis => command(&mut self.request, &[b"HGETALL", key.as_bytes()]),
            Protocol::Memcached => self.request.extend_from_slice(format!("get {key}\r\n").as_bytes()),
        }
        match self.send(key)? {
            0 => Err(format!("{key} is missing")),
            _ => Ok(()),
        }
    }
}

/// Ranks from a Zipfian distribution, as YCSB draws them (Gray and others, SIGMOD 1994).
struct Zipfian {
    items: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    fn new(items: u64) -> Self {
        let term = |rank: u64| 1.0 / (rank as f64).powf(EXPONENT);
        let (zeta, two) = ((1..=items).map(term).sum::<f64>(), 1.0 + term(2));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - EXPONENT)) / (1.0 - two / zeta);
        Self { items: items as f64, zeta, alpha: 1.0 / (1.0 - EXPONENT), eta }
    }

    /// A rank below the number of items. 0 is the most frequent one.
    fn rank(&self, random: &mut Random) -> u64 {
        let uniform = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(EXPONENT) {
            return 1;
        }
        (self.items * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

/// Spreads the frequent ranks over all records.
fn scrambled(rank: u64, records: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in rank.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash % records
}

fn key_of(record: u64) -> String {
    format!("user{record:016}")
}

impl Cluster {
    /// A cluster of these servers.
    pub fn new(protocol: Protocol, ports: Vec<u16>) -> Self {
        // The names, and so the share of each server, must not depend on ports that happen to be free.
        let names: Vec<_> = (0..ports.len()).map(|server| format!("server-{server}:7379")).collect();
        Self { protocol, ring: Ring::new(&names), ports }
    }

    fn client(&self) -> Result<Client<'_>, String> {
        let connect = |port: &u16| {
            let socket = TcpStream::connect(("127.0.0.1", *port))?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(REPLY_MAX))?;
            Ok(BufReader::with_capacity(16 << 10, socket))
        };
        let sockets: std::io::Result<_> = self.ports.iter().map(connect).collect();
        let sockets = sockets.map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Client { cluster: self, sockets, request: Vec::new(), line: Vec::new() })
    }

    /// Runs `run` in `clients` threads, each with its number and its connections. Returns the seconds that all of them took.
    fn with_clients(
        &self,
        clients: u64,
        run: impl Fn(u64, &mut Client<'_>) -> Result<(), String> + Sync,
    ) -> Result<f64, String> {
        let connected = (0..clients).map(|_| self.client()).collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let run = &run;
            let all = (0..)
                .zip(connected)
                .map(|(number, mut client)| scope.spawn(move || run(number, &mut client)));
            let all: Vec<_> = all.collect();
            all.into_iter().try_for_each(|one| one.join().map_err(|_| "a client panicked".to_owned())?)
        })?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Stores the first records.
    ///
    /// # Errors
    /// A connection fails, or a reply is wrong.
    pub fn load(&self, records: u64) -> Result<(), String> {
        let clients = 8;
        let run = |number: u64, client: &mut Client<'_>| {
            (number..records)
                .step_by(clients as usize)
                .try_for_each(|record| client.write(&key_of(record), 0..FIELDS))
        };
        self.with_clients(clients, run).map(|_| ())
    }

    /// Runs a workload over `records` records that are stored. Returns operations per second.
    ///
    /// # Errors
    /// A connection fails, a reply is wrong, or a record is missing.
    pub fn run(
        &self,
        workload: Workload,
        records: u64,
        clients: u64,
        operations: u64,
    ) -> Result<f64, String> {
        let zipfian = Zipfian::new(records);
        // All records below `stored` are stored, and those of the set. As in YCSB, a client reads no record that another client still stores.
        let (next, stored) = (AtomicU64::new(records), AtomicU64::new(records));
        let beyond = Mutex::new(BTreeSet::new());
        let each = operations.div_ceil(clients);
        let run = |number: u64, client: &mut Client<'_>| {
            let mut random = Random::new(number);
            for _ in 0..each {
                match workload {
                    Workload::A => {
                        let key = key_of(scrambled(zipfian.rank(&mut random), records));
                        if random.below(2) == 0 {
                            client.read(&key)?;
                        } else {
                            let field = random.below(FIELDS);
                            client.write(&key, field..field + 1)?;
                        }
                    }
                    Workload::D if random.below(100) < 5 => {
                        let record = next.fetch_add(1, Ordering::Relaxed);
                        client.write(&key_of(record), 0..FIELDS)?;
                        let mut beyond = beyond.lock().unwrap_or_else(PoisonError::into_inner);
                        beyond.insert(record);
                        while beyond.remove(&stored.load(Ordering::Relaxed)) {
                            stored.fetch_add(1, Ordering::Release);
                        }
                    }
                    Workload::D => {
                        let newest = stored.load(Ordering::Acquire) - 1;
                        client.read(&key_of(newest - zipfian.rank(&mut random).min(newest)))?;
                    }
                }
            }
            Ok(())
        };
        let seconds = self.with_clients(clients, run)?;
        Ok((each * clients) as f64 / seconds)
    }

    /// Inserts new values of this size, in random key order: each client sends `pipeline` requests, each to its key's server, and then reads
    /// all replies. Returns inserts per second. Needs Redis's protocol.
    ///
    /// # Errors
    /// A connection fails, or a reply is wrong.
    pub fn insert(
        &self,
        value_bytes: usize,
        clients: u64,
        inserts: u64,
        pipeline: u64,
    ) -> Result<f64, String> {
        let value = vec![b'v'; value_bytes];
        let turns = inserts.div_ceil(clients * pipeline);
        let run = |number: u64, client: &mut Client<'_>| {
            let mut random = Random::new(number);
            let mut batches = vec![(Vec::new(), 0_u64); client.sockets.len()];
            for _ in 0..turns {
                for _ in 0..pipeline {
                    let key = key_of(random.below(1 << 50));
                    let (batch, count) = &mut batches[client.server(&key)];
                    command(batch, &[b"SET", key.as_bytes(), &value]);
                    *count += 1;
                }
                for (socket, (batch, _)) in client.sockets.iter_mut().zip(&mut batches) {
                    socket.get_mut().write_all(batch).map_err(|error| format!("cannot send: {error}"))?;
                    batch.clear();
                }
                for (server, (_, count)) in batches.iter_mut().enumerate() {
                    for _ in 0..std::mem::take(count) {
                        client.reply(server)?;
                    }
                }
            }
            Ok(())
        };
        let seconds = self.with_clients(clients, run)?;
        Ok((turns * pipeline * clients) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_and_errors_are_errors() {
        let redis = |text: &str| redis_reply(&mut text.as_bytes(), &mut Vec::new());
        assert_eq!(redis("*4\r\n$1\r\na\r\n$2\r\nbb\r\n$1\r\nc\r\n$0\r\n\r\n"), Ok(4));
        assert_eq!(
            (redis("*0\r\n"), redis("$-1\r\n"), redis(":1\r\n"), redis("+OK\r\n")),
            (Ok(0), Ok(0), Ok(1), Ok(1))
        );
        assert!(redis("-ERR no\r\n").is_err() && redis("$5\r\nab").is_err() && redis("").is_err());
        let memcached = |text: &str| memcached_reply(&mut text.as_bytes(), &mut Vec::new());
        assert_eq!((memcached("STORED\r\n"), memcached("END\r\n")), (Ok(1), Ok(0)));
        assert_eq!(memcached("VALUE k 0 2\r\nvv\r\nEND\r\n"), Ok(1));
        assert!(memcached("SERVER_ERROR full\r\n").is_err() && memcached("VALUE k 0 2\r\nv").is_err());
    }

    #[test]
    fn the_first_ranks_are_the_most_frequent_ones() {
        let (zipfian, mut random) = (Zipfian::new(1000), Random::new(7));
        let mut counts = [0_u64; 1000];
        for _ in 0..100_000 {
            counts[zipfian.rank(&mut random) as usize] += 1;
        }
        // The share of rank 0 is 1 / zeta(1000), about 0.13.
        assert!((12_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[10] && counts[10] > counts[500]);
        assert!((0..1000).all(|rank| scrambled(rank, 1000) < 1000));
    }
}
