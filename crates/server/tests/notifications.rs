//! Keyspace notifications: the same commands to this server and to `redis-server`, with a subscriber to all events in both. The events must
//! be the same, in the same order.
//!
//! `BRISTLECONE_SEED` changes the seeds.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::TestServer;
use crate::differential::{Maker, Redis, exchange, text};

/// A client that sends commands, and one that receives events.
struct Pair {
    commands: TcpStream,
    events: BufReader<TcpStream>,
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl Pair {
    fn new(address: SocketAddr, classes: &str) -> Self {
        let socket = || {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket
        };
        let mut commands = socket();
        let set = words(&format!("CONFIG SET notify-keyspace-events {classes}"));
        let reply = exchange(&mut commands, &[words("FLUSHALL"), set], "begin");
        assert!(reply.starts_with(b"+OK\r\n+OK"), "{}", reply.escape_ascii());
        let mut events = socket();
        events.write_all(b"PSUBSCRIBE __key*__:* end\r\n").unwrap();
        let mut pair = Self { commands, events: BufReader::new(events) };
        // The confirmations of the two patterns.
        assert_eq!((pair.array().len(), pair.array().len()), (3, 3));
        pair
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The elements of an array; numbers as texts.
    fn array(&mut self) -> Vec<Vec<u8>> {
        let count = self.line().strip_prefix('*').unwrap().parse().unwrap();
        let element = |pair: &mut Self| {
            let line = pair.line();
            let Some(bytes) = line.strip_prefix('$') else { return line.into_bytes() };
            let mut element = vec![0; bytes.parse::<usize>().unwrap() + 2];
            pair.events.read_exact(&mut element).unwrap();
            element.truncate(element.len() - 2);
            element
        };
        (0..count).map(|_| element(self)).collect()
    }

    /// Runs commands. Returns their events as lines of channel and message. After an error, those of keys that are absent are left out:
    /// Redis looks for a key before or after it checks the other arguments.
    fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<String> {
        let all = [commands, &[words("PUBLISH end now")]].concat();
        let replies = exchange(&mut self.commands, &all, "marker");
        let mut events = self.events_before_end();
        if replies.starts_with(b"-") || replies.windows(2).any(|pair| pair == b"\n-") {
            events.retain(|event| !event.contains("keymiss"));
        }
        // This server has no key without a name.
        events.retain(|event| !event.ends_with("__: keymiss") && !event.ends_with("keymiss "));
        // Sets have no order in Redis, so SORT reads the keys of weights in any order.
        if commands.iter().any(|command| command[0].starts_with(b"SORT")) {
            events.sort_unstable();
        }
        events
    }

    fn events_before_end(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let message = self.array();
            if message[2] == b"end" {
                return found;
            }
            found.push(format!("{} {}", message[2].escape_ascii(), message[3].escape_ascii()));
        }
    }
}

fn both(classes: &str, dir: &tempfile::TempDir) -> (Redis, TestServer, Pair, Pair) {
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let (there, here) = (Pair::new(redis.address, classes), Pair::new(ours.address, classes));
    (redis, ours, there, here)
}

#[test]
fn random_commands_have_the_events_of_redis() {
    let seed = std::env::var("BRISTLECONE_SEED").map_or(0, |text| text.parse::<u64>().unwrap());
    for (classes, rounds) in [("KEAmn", 12_000), ("EA", 2000), ("Ktxlnz", 2000)] {
        let dir = tempfile::tempdir().unwrap();
        let (_redis, _ours, mut there, mut here) = both(classes, &dir);
        let mut maker = Maker::new(fastrand::Rng::with_seed(seed));
        let mut total = 0;
        for round in 0..rounds {
            let commands = maker.chunk(1);
            let (expected, found) = (there.run(&commands), here.run(&commands));
            total += found.len();
            if expected != found {
                let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
                let near = |events: &[String]| {
                    events[same.saturating_sub(3)..events.len().min(same + 5)].join("\n  ")
                };
                let [there, here] = [near(&expected), near(&found)];
                panic!(
                    "seed {seed}, classes {classes}, round {round}, event {same} of the commands\n{}Redis:\n  {there}\nhere:\n  {here}",
                    text(&commands)
                );
            }
        }
        println!("{classes}: {total} events");
        assert!(total > rounds / 20, "{classes}: {total} events");
    }
}

/// Commands that the random ones do not have, one after the other.
#[test]
fn rare_commands_have_the_events_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (_redis, _ours, mut there, mut here) = both("KEAmn", &dir);
    let lines = [
        "SELECT 3",
        "SET a 1",
        "SELECT 0",
        "SET a 1",
        "MOVE a 4",
        "MOVE a 4",
        "COPY s t DB 2",
        "RPUSH l 1 2 3",
        "COPY l m DB 2",
        "COPY l l2",
        "COPY l l2",
        "COPY l l2 REPLACE",
        "RENAME l2 l2",
        "RENAME l2 l3",
        "RENAMENX l3 l",
        "RENAME l3 l",
        "GETEX l",
        "SET x 1",
        "GETEX x PXAT 1",
        "GETEX x EX 100",
        "SET x 1",
        "GETEX x EX 100",
        "GETEX x PERSIST",
        "GETEX x PERSIST",
        "BLPOP l 1",
        "BLMOVE l other LEFT RIGHT 1",
        "BLMOVE l other LEFT RIGHT 1",
        "RPOPLPUSH other other",
        "RPOPLPUSH other other",
        "LMOVE other third LEFT LEFT",
        "LMPOP 2 other third LEFT COUNT 5",
        "BLMPOP 1 2 other third LEFT COUNT 5",
        "LTRIM third 0 -1",
        "LTRIM third 5 6",
        "ZADD z 1 a 2 b 3 c",
        "BZPOPMIN z 1",
        "BZMPOP 1 1 z MAX COUNT 9",
        "SADD s a b c d",
        "SPOP s 0",
        "SPOP s 9",
        "SADD s a",
        "SMOVE s s a",
        "SMOVE s t a",
        "SMOVE t s b",
        "SINTERSTORE t s absent",
        "SUNIONSTORE u t s",
        "SUNIONSTORE t s absent",
        "SETBIT b 7 0",
        "SETBIT b 7 0",
        "SETBIT b 7 1",
        "BITFIELD b SET u8 0 1",
        "BITFIELD b SET u8 0 2 GET u8 0",
        "BITFIELD b GET u8 0",
        "BITFIELD c GET u8 0",
        "BITFIELD c SET u8 0 0",
        "BITFIELD c OVERFLOW FAIL INCRBY u8 0 300",
        "BITOP AND new absent",
        "BITOP NOT new b",
        "BITOP AND new absent",
        "APPEND empty x",
        "SETRANGE nothing 5 x",
        "XADD st 1-1 f v",
        "XADD st MAXLEN 1 2-1 f v",
        "XGROUP CREATE st g 0",
        "XGROUP CREATE none g 0",
        "XGROUP CREATE made g 0 MKSTREAM",
        "XGROUP DELCONSUMER st g absent",
        "XREADGROUP GROUP g c STREAMS st >",
        "XREADGROUP GROUP g d NOACK STREAMS st >",
        "XCLAIM st g e 0 2-1",
        "XAUTOCLAIM st g f 0 0",
        "XGROUP CREATECONSUMER st g c",
        "XGROUP CREATECONSUMER st g h",
        "XGROUP DELCONSUMER st g c",
        "XGROUP DESTROY st g",
        "XGROUP DESTROY st g",
        "XSETID st 9-1",
        "XDEL st 2-1 3-1",
        "XDEL st 2-1",
        "XTRIM st MAXLEN 0",
        "PFADD hll a",
        "PFADD hll a",
        "PFMERGE hll2 hll absent",
        "PFCOUNT hll absent hll2",
        "GEOADD geo 1 1 a 2 2 b",
        "GEOSEARCHSTORE near geo FROMMEMBER a BYRADIUS 500 km",
        "GEORADIUS geo 1 1 500 km STORE near",
        "GEOSEARCHSTORE near absent FROMLONLAT 1 1 BYRADIUS 1 km",
        "OBJECT ENCODING absent",
        "TYPE absent",
        "TTL absent",
        "TOUCH absent x",
        "MGET x absent geo",
        "LCS absent x",
        "SORT absent BY w_* GET v_*",
        "RPUSH ids 1 2",
        "SORT ids BY w_* GET v_*",
        "SORT ids BY w_* GET v_* STORE ids",
        "DEL absent ids x",
        "UNLINK geo",
        "GETSET x 1",
        "SET y 1 GET",
        "GETDEL nothing2",
        "HINCRBY h f 1",
        "HINCRBYFLOAT h f 1.5",
        "HSETNX h f 1",
        "HSETNX h g 1",
        "HDEL h f g absent",
        "MSETNX q 1 w 2",
        "MSETNX q 1 w 2",
        "EXPIRE q 100",
        "EXPIRE q 100 NX",
        "PERSIST q",
        "EXPIRE q -1",
        "SETEX q 100 v",
        "PSETEX q 100000 v",
        "SWAPDB 0 5",
        "SWAPDB 0 5",
        "FLUSHDB",
        "EVAL return{redis.call('set','s1','1'),redis.call('incr','s1'),redis.call('publish','end2','x')} 0",
        "MULTI",
        "SET m 1",
        "EVAL redis.call('rpush','ml','x')redis.call('lpop','ml') 0",
        "GET absent",
        "EXEC",
        "MULTI",
        "SET m 2",
        "DISCARD",
        "FLUSHALL",
    ];
    let (mut at, mut total) = (0, 0);
    while at < lines.len() {
        // Within MULTI the end of the events would be queued, so the commands of a transaction are sent together.
        let mut chunk = vec![lines[at]];
        while chunk[0] == "MULTI" && !matches!(*chunk.last().unwrap(), "EXEC" | "DISCARD") {
            at += 1;
            chunk.push(lines[at]);
        }
        at += 1;
        let commands: Vec<_> = chunk.iter().map(|line| words(line)).collect();
        let (expected, found) = (there.run(&commands), here.run(&commands));
        assert_eq!(expected, found, "events of Redis (left) and here of {chunk:?}");
        total += found.len();
    }
    assert!(total > 200, "{total} events");
}

#[test]
fn keys_that_expire_have_the_events_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (_redis, _ours, mut there, mut here) = both("KEA", &dir);
    let run = |pair: &mut Pair| {
        let mut events = pair.run(&[words("SET brief v PX 20"), words("RPUSH l 1"), words("PEXPIRE l 20")]);
        // Redis removes keys ten times a second.
        std::thread::sleep(Duration::from_millis(500));
        events.extend(pair.run(&[]));
        // Which key expires first, and whether one does before the other has its deadline, is a matter of time.
        events.sort_by_key(|event| event.contains("brief"));
        // A write may find an expired key before the background thread does.
        for write in ["SET brief w", "INCR brief", "MSET brief 1 other 2", "HSET brief f v"] {
            // Long enough for the events of the write to be published before the key expires.
            events.extend(pair.run(&[words("SET brief 1 PX 20")]));
            std::thread::sleep(Duration::from_millis(23));
            events.extend(pair.run(&[words(write), words("DEL brief other")]));
        }
        events
    };
    let (expected, found) = (run(&mut there), run(&mut here));
    assert_eq!(expected, found);
    assert_eq!(found.iter().filter(|event| event.contains("expired")).count(), 2 * 6, "{found:#?}");
}

/// The clock of the store jumps, and the thread that removes keys sleeps until the deadline of its own clock. So the write comes first.
#[test]
fn a_write_that_replaces_an_expired_key_has_its_event_first() {
    let now = Arc::new(AtomicU64::new(1000));
    let shown = Arc::clone(&now);
    let clock = bristlecone::Clock::new(move || shown.load(Ordering::SeqCst));
    let server = TestServer::over(bristlecone::Options::default().clock(clock), server::Config::default());
    let mut pair = Pair::new(server.address, "Ex$sg");
    for (write, event) in
        [("SET k w", "set"), ("INCR k", "incrby"), ("MSET k 1 other 2", "set"), ("SADD k m", "sadd")]
    {
        assert_eq!(pair.run(&[words("SET k 1 PX 60000")]).len(), 2);
        now.fetch_add(60_000, Ordering::SeqCst);
        let events = pair.run(&[words(write), words("DEL other")]);
        let expected = ["__keyevent@0__:expired k".to_owned(), format!("__keyevent@0__:{event} k")];
        assert_eq!(events[..2], expected, "{write}: {events:?}");
        assert_eq!(pair.run(&[words("DEL k")]).len(), 1);
    }
}

#[test]
fn each_evicted_key_has_an_event() {
    let server = TestServer::start();
    let mut pair = Pair::new(server.address, "Ee");
    let mut client = server.client();
    let config = |client: &mut redis::Connection, name: &str, value: &str| {
        redis::cmd("CONFIG").arg(&["SET", name, value]).exec(client).unwrap();
    };
    for number in 0..2000 {
        redis::cmd("SET").arg(format!("k{number}")).arg(vec![b'v'; 512]).exec(&mut client).unwrap();
    }
    config(&mut client, "maxmemory-policy", "allkeys-random");
    config(&mut client, "maxmemory", "500kb");
    redis::cmd("SET").arg("more").arg(vec![b'v'; 100_000]).exec(&mut client).unwrap();
    config(&mut client, "maxmemory", "0");
    let evicted = || server.store.len().keys;
    let left = evicted();
    let events = pair.run(&[]);
    assert!(events.iter().all(|event| event.starts_with("__keyevent@0__:evicted k")), "{events:?}");
    assert_eq!(events.len() as u64, 2001 - left);
    assert!(!events.is_empty());
}

#[test]
fn the_setting_is_read_and_shown_as_by_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let letters = "AKEg$lshzxetdmn";
    let mut rng = fastrand::Rng::with_seed(1);
    let mut commands = Vec::new();
    for wanted in ["KEA", "KEAmn", "", "q", "KEa", "g$lshzxetdK"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..500).map(|_| letters.chars().filter(|_| rng.bool()).collect::<String>()))
    {
        let mut set = words("CONFIG SET notify-keyspace-events");
        set.push(wanted.into_bytes());
        commands.extend([set, words("CONFIG GET notify-keyspace-events")]);
    }
    let [there, here] = [redis.address, ours.address].map(|address| {
        let replies = exchange(&mut TcpStream::connect(address).unwrap(), &commands, "end");
        String::from_utf8(replies).unwrap()
    });
    let different: Vec<_> = there.lines().zip(here.lines()).filter(|(there, here)| there != here).collect();
    assert!(different.is_empty(), "{different:?}");
}

#[test]
fn nothing_is_published_without_the_setting_or_without_a_kind_of_channels() {
    let server = TestServer::start();
    for classes in ["", "A", "Kz"] {
        let mut pair = Pair::new(server.address, "K");
        let mut set = words("CONFIG SET notify-keyspace-events");
        set.push(classes.as_bytes().to_vec());
        assert_eq!(
            pair.run(&[set, words("SET k v"), words("GET absent"), words("DEL k")]),
            [""; 0],
            "{classes}"
        );
    }
}
