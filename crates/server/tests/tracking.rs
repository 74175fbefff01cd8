//! CLIENT TRACKING: a client that keeps values gets a message for every change of them, by whatever way the key changes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{TestServer, eventually};
use crate::differential::{Redis, exchange};

/// A connection with a reader of replies.
struct Client {
    socket: TcpStream,
    input: Vec<u8>,
    /// Pushes that arrived while a reply was read.
    pushes: Vec<String>,
}

impl Client {
    /// A connection with this version of the protocol.
    fn new(server: &TestServer, protocol: u8) -> Self {
        let mut client = Self { socket: server.socket(), input: Vec::new(), pushes: Vec::new() };
        client.ask(&format!("HELLO {protocol}"));
        client
    }

    /// A connection with RESP3 that tracks.
    fn tracking(server: &TestServer, options: &str) -> Self {
        let mut client = Self::new(server, 3);
        assert_eq!(client.ask(format!("CLIENT TRACKING ON {options}").trim_end()), "OK");
        client
    }

    fn send(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        self.socket.write_all(request.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                return line;
            }
            self.fill();
        }
    }

    fn fill(&mut self) {
        let mut buffer = [0; 4096];
        let count = self.socket.read(&mut buffer).unwrap();
        assert!(count > 0, "the server closed the connection");
        self.input.extend_from_slice(&buffer[..count]);
    }

    /// The next value in a short form, and true if it is a push.
    fn value(&mut self) -> (String, bool) {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let mut many = |count: usize| {
            let parts: Vec<String> = (0..count).map(|_| self.value().0).collect();
            format!("[{}]", parts.join(" "))
        };
        let text = match (kind, rest.parse::<i64>()) {
            ("$" | "*", Ok(-1)) | ("_", _) => "nil".to_owned(),
            ("*" | "~" | ">", Ok(count)) => many(usize::try_from(count).unwrap()),
            ("%", Ok(count)) => many(2 * usize::try_from(count).unwrap()),
            ("$", Ok(length)) => {
                let length = usize::try_from(length).unwrap();
                while self.input.len() < length + 2 {
                    self.fill();
                }
                let text = String::from_utf8_lossy(&self.input[..length]).into_owned();
                self.input.drain(..length + 2);
                text
            }
            _ => rest.to_owned(),
        };
        (text, kind == ">")
    }

    fn reply(&mut self) -> String {
        loop {
            match self.value() {
                (push, true) => self.pushes.push(push),
                (reply, false) => return reply,
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    fn ask_all(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| _ = self.ask(line));
    }

    fn push(&mut self) -> String {
        if self.pushes.is_empty() {
            let (push, is_push) = self.value();
            assert!(is_push, "{push}");
            self.pushes.push(push);
        }
        self.pushes.remove(0)
    }

    /// Fails if a push has arrived or arrives soon.
    fn is_silent(&mut self, why: &str) {
        self.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = [0; 4096];
        assert!(self.input.is_empty() && self.pushes.is_empty(), "{why}: {:?}", self.pushes);
        let read = self.socket.read(&mut buffer);
        assert!(read.is_err(), "{why}: {:?}", read.map(|count| buffer[..count].escape_ascii().to_string()));
        self.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
}

/// A state of the key `k`, a command that reads it, and the commands of another client that change it.
const CHANGES: [(&str, &str, &str); 40] = [
    ("SET k 1", "GET k", "SET k 2"),
    ("SET k 1", "GET k", "SET k 1"),
    ("SET k 1", "MGET j k", "INCR k"),
    ("SET k 1", "STRLEN k", "APPEND k x"),
    ("SET k 1", "GET k", "DEL k"),
    ("SET k 1", "EXISTS k", "UNLINK j k"),
    ("DEL k", "GET k", "SETNX k 1"),
    ("DEL k", "EXISTS k", "MSET j 1 k 1"),
    ("SET k 1", "TTL k", "EXPIRE k 100"),
    ("SET k 1 EX 100", "TTL k", "PERSIST k"),
    ("SET k 1", "GET k", "PEXPIRE k 20"),
    ("SET k 1", "GET k", "EXPIRE k -1"),
    ("SET k 1", "GET k", "GETDEL k"),
    ("SET k 1", "GET k", "RENAME k j"),
    ("SET k 1", "GET k", "COPY j k REPLACE"),
    ("SET k 1", "GET k", "MOVE k 3"),
    ("SET k 1", "GETBIT k 0", "SETBIT k 0 1"),
    ("SET k 1", "BITCOUNT k", "BITOP NOT k j"),
    ("SET k 1", "GET k", "FLUSHDB"),
    ("SET k 1", "GET k", "FLUSHALL"),
    ("SET k 1", "GET k", "SWAPDB 0 4"),
    ("HSET k f 1", "HGET k f", "HSET k f 2"),
    ("HSET k f 1", "HGETALL k", "HDEL k f"),
    ("RPUSH k a", "LRANGE k 0 -1", "RPUSH k b"),
    ("RPUSH k a", "LLEN k", "BLPOP k 0"),
    ("RPUSH k a", "LINDEX k 0", "LMOVE j k LEFT LEFT"),
    ("SADD k a", "SMEMBERS k", "SADD k b"),
    ("SADD k a", "SISMEMBER k a", "SUNIONSTORE k j2"),
    ("ZADD k 1 a", "ZSCORE k a", "ZINCRBY k 1 a"),
    ("ZADD k 1 a", "ZRANGE k 0 -1", "ZPOPMIN k"),
    ("XADD k 1-1 f v", "XRANGE k - +", "XADD k 2-1 f v"),
    ("XADD k 1-1 f v", "XREAD STREAMS k 0", "XDEL k 1-1"),
    ("XADD k 1-1 f v", "XINFO GROUPS k", "XGROUP CREATE k g 0"),
    ("PFADD k a", "DUMP k", "PFADD k b"),
    ("GEOADD k 1 1 a", "GEOPOS k a", "GEOADD k 2 2 a"),
    ("SET k 1", "GET k", "SORT j3 STORE k"),
    ("SET k 1", "GET k", "EVAL redis.call('incr',KEYS[1]) 1 k"),
    ("SET k 1", "EVAL return(redis.call('get',KEYS[1])) 1 k", "INCR k"),
    ("SET k 1", "GET k", "MULTI|INCR k|EXEC"),
    ("SET k 1", "MULTI|GET k|EXEC", "INCR k"),
];

#[test]
fn every_way_to_change_a_key_invalidates_it() {
    let server = TestServer::start();
    let mut other = Client::new(&server, 2);
    for (state, read, change) in CHANGES {
        for options in ["", "BCAST PREFIX k"] {
            other.ask("FLUSHALL");
            for line in ["SET j x", "SADD j2 a", "RPUSH j3 2 1", state] {
                other.ask(if change.starts_with("LMOVE") && line == "SET j x" { "RPUSH j x" } else { line });
            }
            let mut client = Client::tracking(&server, options);
            read.split('|').for_each(|line| _ = client.ask(line));
            change.split('|').for_each(|line| {
                let reply = other.ask(line);
                assert!(!reply.contains("ERR"), "{line}: {reply}");
            });
            let all = ["FLUSHDB", "FLUSHALL", "SWAPDB 0 4"].contains(&change);
            let expected = if all { "[invalidate nil]" } else { "[invalidate [k]]" };
            assert_eq!(client.push(), expected, "{state} | {read} | {change} with {options:?}");
            if options.is_empty() && !change.starts_with("PEXPIRE") {
                other.ask("SET k again");
                client.is_silent("a key that was not read again");
            }
        }
    }
}

#[test]
fn keys_that_expire_or_are_evicted_are_invalidated() {
    let server = TestServer::start();
    let (mut client, mut other) = (Client::tracking(&server, ""), Client::new(&server, 2));
    other.ask("SET k v PX 300");
    client.ask("GET k");
    assert_eq!(client.push(), "[invalidate [k]]");
    assert_eq!(client.ask("GET k"), "nil");
    other.ask("SET e v");
    client.ask("GET e");
    other.ask("CONFIG SET maxmemory-policy allkeys-random");
    other.ask("CONFIG SET maxmemory 1");
    assert_eq!(client.push(), "[invalidate [e]]");
}

#[test]
fn the_served_command_of_a_client_that_waits_invalidates() {
    let server = TestServer::start();
    let (mut client, mut waiting) =
        (Client::tracking(&server, ""), Client::tracking(&server, "BCAST PREFIX other"));
    let mut other = Client::new(&server, 2);
    other.ask("RPUSH to x");
    client.ask("LRANGE to 0 -1");
    waiting.send("BLMOVE from to LEFT LEFT 0");
    while !other.ask("INFO clients").contains("blocked_clients:1") {}
    // A client that waits gets its invalidations.
    other.ask("SET other 1");
    assert_eq!(waiting.push(), "[invalidate [other]]");
    other.ask("RPUSH from a");
    assert_eq!(client.push(), "[invalidate [to]]");
    assert_eq!(waiting.reply(), "a");
}

#[test]
fn modes_choose_what_is_tracked() {
    let server = TestServer::start();
    let mut other = Client::new(&server, 2);
    let mut set = |key: &str| _ = other.ask(&format!("SET {key} v"));
    let mut opts_in = Client::tracking(&server, "OPTIN");
    opts_in.ask("GET a");
    opts_in.ask("CLIENT CACHING YES");
    assert_eq!(opts_in.ask("CLIENT TRACKINGINFO"), "[flags [on optin caching-yes] redirect 0 prefixes []]");
    opts_in.ask("GET b");
    opts_in.ask("GET c");
    ["a", "c", "b"].into_iter().for_each(&mut set);
    assert_eq!(opts_in.push(), "[invalidate [b]]");
    // All commands of a transaction.
    opts_in.ask_all(&["CLIENT CACHING YES", "MULTI", "GET d", "GET e", "EXEC", "GET f"]);
    ["f", "d", "e"].into_iter().for_each(&mut set);
    assert_eq!(opts_in.push(), "[invalidate [d]]");
    assert_eq!(opts_in.push(), "[invalidate [e]]");
    opts_in.is_silent("f was not chosen");
    let mut opts_out = Client::tracking(&server, "OPTOUT");
    opts_out.ask_all(&["CLIENT CACHING NO", "GET a", "GET b"]);
    ["a", "b"].into_iter().for_each(&mut set);
    assert_eq!(opts_out.push(), "[invalidate [b]]");
    let mut quiet = Client::tracking(&server, "NOLOOP");
    quiet.ask_all(&["GET a", "SET a own", "GET b", "MULTI", "SET b own", "EXEC", "GET c"]);
    set("c");
    assert_eq!(quiet.push(), "[invalidate [c]]");
    let mut own = Client::tracking(&server, "");
    own.ask("GET a");
    own.ask("SET a own");
    assert_eq!(own.push(), "[invalidate [a]]");
    let mut broadcast = Client::tracking(&server, "BCAST PREFIX x: PREFIX y: NOLOOP");
    ["x:1", "z:1", "y:1"].into_iter().for_each(&mut set);
    broadcast.ask("SET x:own v");
    assert_eq!(broadcast.push(), "[invalidate [x:1]]");
    assert_eq!(broadcast.push(), "[invalidate [y:1]]");
    assert_eq!(broadcast.ask("CLIENT TRACKING OFF"), "OK");
    set("x:2");
    broadcast.is_silent("tracking is off");
    // Keys that were read before the options changed.
    let mut changed = Client::tracking(&server, "");
    changed.ask_all(&["GET a", "CLIENT TRACKING ON NOLOOP"]);
    set("a");
    assert_eq!(changed.push(), "[invalidate [a]]");
    changed.ask("GET a");
    changed.ask("RESET");
    set("a");
    changed.is_silent("RESET ends the tracking");
}

#[test]
fn invalidations_are_redirected_to_a_client_of_resp2() {
    let server = TestServer::start();
    let (mut target, mut client) = (Client::new(&server, 2), Client::new(&server, 2));
    let mut other = Client::new(&server, 2);
    let id = target.ask("CLIENT ID");
    target.ask("SUBSCRIBE __redis__:invalidate");
    assert_eq!(client.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    assert_eq!(client.ask("CLIENT GETREDIR"), id);
    assert!(client.ask("CLIENT INFO").contains(&format!("redir={id} ")));
    client.ask("GET k");
    other.ask("SET k v");
    assert_eq!(target.reply(), "[message __redis__:invalidate [k]]");
    other.ask("FLUSHALL");
    assert_eq!(target.reply(), "[message __redis__:invalidate nil]");
    drop(target);
    // RESP3 can tell that the target has gone.
    client.ask("HELLO 3");
    eventually("the target has gone", || {
        client.ask("GET k");
        other.ask("SET k v");
        !client.pushes.is_empty()
    });
    assert_eq!(client.push(), format!("[tracking-redir-broken {id}]"));
    assert!(client.ask("CLIENT TRACKINGINFO").contains("broken_redirect"));
}

#[test]
fn memory_is_bounded_and_forgotten_keys_are_invalidated() {
    let server = TestServer::start();
    let (mut client, mut other) = (Client::tracking(&server, ""), Client::new(&server, 2));
    other.ask("CONFIG SET tracking-table-max-keys 100");
    (0..1000).for_each(|number| _ = client.ask(&format!("GET key{number}")));
    let info = other.ask("INFO");
    let keys = info.lines().find_map(|line| line.strip_prefix("tracking_total_keys:")).unwrap();
    assert!((80..=116).contains(&keys.trim().parse::<u64>().unwrap()), "{keys}");
    client.ask("PING");
    let told: usize = client.pushes.iter().map(|push| push.matches("key").count()).sum();
    assert!(told >= 880, "{told}");
    // A client that does not read gets one message for all keys.
    let mut slow = Client::tracking(&server, "BCAST PREFIX big");
    slow.send("BLPOP none 0");
    let name = "x".repeat(60_000);
    let mut broadcasts = 0;
    for number in 0..400 {
        other.ask(&format!("SET big{number}{name} v"));
    }
    // The session writes until the socket is full; then the rest is one message for all keys.
    while slow.push() != "[invalidate nil]" {
        broadcasts += 1;
        assert!(broadcasts < 400, "no message for all keys");
    }
}

#[test]
fn a_cache_never_keeps_a_value_that_has_changed() {
    const ROUNDS: u64 = 3000;
    let server = TestServer::start();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client::new(&server, 2);
            for number in 1..=ROUNDS {
                client.ask(&format!("SET k {number}"));
            }
        });
        let mut client = Client::new(&server, 3);
        client.ask("CLIENT TRACKING ON");
        let mut cached = String::new();
        while cached != ROUNDS.to_string() {
            // From time to time the server has no client that tracks.
            if fastrand::u8(..8) == 0 {
                client.ask("CLIENT TRACKING OFF");
                client.pushes.clear();
                client.ask("CLIENT TRACKING ON");
            }
            cached = client.ask("GET k");
            if cached != ROUNDS.to_string() && client.pushes.is_empty() {
                // The value changes once more, so an invalidation must come.
                assert_eq!(client.push(), "[invalidate [k]]");
            }
            client.pushes.clear();
        }
        writer.join().unwrap();
    });
}

/// Replies without the numbers of clients.
const LINES: [&str; 47] = [
    "CLIENT GETREDIR",
    "CLIENT TRACKINGINFO",
    "CLIENT CACHING YES",
    "CLIENT CACHING",
    "CLIENT CACHING x",
    "CLIENT TRACKING",
    "CLIENT TRACKING x",
    "CLIENT TRACKING x BAD",
    "CLIENT TRACKING ON BAD",
    "CLIENT TRACKING ON REDIRECT",
    "CLIENT TRACKING ON REDIRECT x",
    "CLIENT TRACKING ON REDIRECT 0",
    "CLIENT TRACKING ON REDIRECT 123456",
    "CLIENT TRACKING ON PREFIX",
    "CLIENT TRACKING ON PREFIX a",
    "CLIENT TRACKING ON BCAST OPTIN",
    "CLIENT TRACKING ON OPTIN OPTOUT",
    "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
    "CLIENT TRACKING ON BCAST PREFIX b PREFIX a noloop",
    "CLIENT TRACKINGINFO",
    "CLIENT GETREDIR",
    "CLIENT TRACKING ON BCAST PREFIX bc",
    "CLIENT TRACKING ON BCAST PREFIX c",
    "CLIENT TRACKINGINFO",
    "CLIENT TRACKING ON BCAST",
    "CLIENT TRACKINGINFO",
    "CLIENT TRACKING ON",
    "CLIENT CACHING YES",
    "CLIENT CACHING NO",
    "CLIENT TRACKING off BAD",
    "CLIENT TRACKING off OPTIN OPTOUT",
    "CLIENT TRACKINGINFO",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT CACHING NO",
    "CLIENT CACHING x",
    "CLIENT CACHING YES",
    "CLIENT TRACKINGINFO",
    "PING",
    "CLIENT TRACKINGINFO",
    "CLIENT TRACKING ON OPTOUT",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON OPTOUT",
    "CLIENT CACHING YES",
    "CLIENT CACHING NO",
    "CLIENT TRACKINGINFO",
    "CLIENT CACHING NO x",
    "RESET",
];

#[test]
fn tracking_answers_as_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut sockets = [redis.address, ours.address].map(|address| TcpStream::connect(address).unwrap());
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        for socket in &mut sockets {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            exchange(socket, &[words(hello)], "ready");
        }
        for line in LINES {
            // PING behind the line shows that the marker is no part of its reply.
            let replies = sockets.each_mut().map(|socket| exchange(socket, &[words(line)], "end"));
            let [theirs, ours] = replies.map(|reply| reply.escape_ascii().to_string());
            assert_eq!(theirs, ours, "{line}");
        }
    }
}
