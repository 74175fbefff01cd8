//! Streams: what the comparison with `redis-server` ([`differential`](crate::differential)) does not cover. Readers that wait, times, IDs of
//! the server's own, permissions, large streams.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult, Value, cmd};

use crate::common::{TestServer, eventually};

fn run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> T {
    try_run(client, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn try_run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command.query(client)
}

/// Number of clients that wait.
fn waiting(server: &TestServer) -> usize {
    let info: String = run(&mut server.client(), "INFO clients");
    let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap();
    count.parse().unwrap()
}

/// The IDs in the reply of XREAD, XREADGROUP, XRANGE …
fn ids(value: &Value) -> Vec<String> {
    match value {
        Value::Array(parts) => match &parts[..] {
            [Value::BulkString(id), Value::Array(_)] if id.contains(&b'-') => {
                vec![String::from_utf8(id.clone()).unwrap()]
            }
            parts => parts.iter().flat_map(ids).collect(),
        },
        _ => Vec::new(),
    }
}

#[test]
fn ids_of_the_server_ascend_also_beside_other_writers() {
    const EACH: usize = 300;
    let server = TestServer::start();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = &mut server.client();
                for i in 0..EACH {
                    run::<String>(client, &format!("XADD s * field {i}"));
                }
            });
        }
    });
    let client = &mut server.client();
    let all = ids(&run(client, "XRANGE s - +"));
    let parsed: Vec<(u64, u64)> = all
        .iter()
        .map(|id| id.split_once('-').map(|(ms, seq)| (ms.parse().unwrap(), seq.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(parsed.len(), 4 * EACH);
    assert!(parsed.is_sorted_by(|a, b| a < b), "{all:?}");
    assert_eq!(run::<usize>(client, "XLEN s"), 4 * EACH);
    // An ID of the far future: the next ones follow it.
    run::<String>(client, "XADD s 99999999999999-5 f v");
    assert_eq!(run::<String>(client, "XADD s * f v"), "99999999999999-6");
    assert_eq!(run::<String>(client, "XADD s 99999999999999-* f v"), "99999999999999-7");
}

#[test]
fn all_readers_that_wait_get_a_new_entry() {
    let server = TestServer::start();
    run::<String>(&mut server.client(), "XADD s 1-1 old entry");
    thread::scope(|scope| {
        // The first one waits for an ID that does not come. It does not keep the others from theirs.
        let patient = scope.spawn(|| ids(&run(&mut server.client(), "XREAD BLOCK 0 STREAMS s 900-0")));
        eventually("the first reader", || waiting(&server) == 1);
        let readers: Vec<_> = (0..3)
            .map(|i| {
                let line =
                    if i == 2 { "XREAD BLOCK 0 STREAMS other s 0 1-1" } else { "XREAD BLOCK 0 STREAMS s $" };
                scope.spawn(|| ids(&run(&mut server.client(), line)))
            })
            .collect();
        eventually("four readers", || waiting(&server) == 4);
        run::<String>(&mut server.client(), "XADD s 2-0 new entry");
        for reader in readers {
            assert_eq!(reader.join().unwrap(), ["2-0"]);
        }
        run::<String>(&mut server.client(), "XADD s 901-0 last entry");
        assert_eq!(patient.join().unwrap(), ["901-0"]);
    });
}

#[test]
fn each_entry_goes_to_one_consumer_of_a_group_and_pending_ones_can_be_claimed() {
    const ENTRIES: usize = 200;
    let server = TestServer::start();
    let client = &mut server.client();
    run::<()>(client, "XGROUP CREATE s g 0 MKSTREAM");
    let read = thread::scope(|scope| {
        let consumers: Vec<_> = (0..4)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let client = &mut server.client();
                    let mut read = Vec::new();
                    loop {
                        let line = format!("XREADGROUP GROUP g c{number} COUNT 3 BLOCK 0 STREAMS s >");
                        let found = ids(&run(client, &line));
                        let is_last = found.iter().any(|id| id.starts_with("999999"));
                        // Half of the consumers acknowledge nothing.
                        if number % 2 == 0 {
                            run::<usize>(client, &format!("XACK s g {}", found.join(" ")));
                        }
                        read.extend(found);
                        if is_last {
                            return read;
                        }
                    }
                })
            })
            .collect();
        for i in 1..=ENTRIES {
            run::<String>(client, &format!("XADD s {i}-0 n {i}"));
        }
        for end in 0..consumers.len() {
            // One for each consumer: it ends when it has read one.
            eventually("an entry that is read", || ids(&run(client, "XRANGE s - +")).len() == ENTRIES + end);
            run::<String>(client, &format!("XADD s 999999-{} end x", end + 1));
            eventually("the end of a consumer", || waiting(&server) < consumers.len() - end);
        }
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect::<Vec<_>>()
    });
    let mut counts = BTreeMap::<&str, usize>::new();
    read.iter().for_each(|id| *counts.entry(id).or_default() += 1);
    assert!(counts.len() == ENTRIES + 4 && counts.values().all(|count| *count == 1), "{counts:?}");
    let (pending, ..): (usize, Value, Value, Value) = run(client, "XPENDING s g");
    assert!(pending > 0 && pending <= ENTRIES + 4);
    // After a restart of the consumers another one takes over what they have not acknowledged.
    let (next, claimed, gone): (String, Value, Vec<Value>) =
        run(client, "XAUTOCLAIM s g rescuer 0 0-0 COUNT 1000");
    assert_eq!((next.as_str(), ids(&claimed).len(), gone.len()), ("0-0", pending, 0));
    let rows: Vec<(String, String, u64, u64)> = run(client, "XPENDING s g - + 1000 rescuer");
    assert!(rows.len() == pending && rows.iter().all(|(_, _, idle, count)| *count == 2 && *idle < 60_000));
    assert_eq!(ids(&run(client, "XREADGROUP GROUP g rescuer STREAMS s 0")).len(), pending);
    thread::sleep(Duration::from_millis(30));
    let rows: Vec<(String, String, u64, u64)> = run(client, "XPENDING s g IDLE 20 - + 1000");
    assert!(rows.len() == pending && rows.iter().all(|(_, _, idle, count)| *count == 3 && *idle >= 20));
    let consumers: Vec<BTreeMap<String, Value>> = run(client, "XINFO CONSUMERS s g");
    assert_eq!(consumers.len(), 5);
    assert_eq!(run::<usize>(client, "XGROUP DELCONSUMER s g rescuer"), pending);
    assert_eq!(run::<usize>(client, "XGROUP DESTROY s g"), 1);
    let full: BTreeMap<String, Value> = run(client, "XINFO STREAM s FULL COUNT 2");
    assert_eq!(full["length"], Value::Int(ENTRIES as i64 + 4));
    assert_eq!(full["groups"], Value::Array(Vec::new()));
}

#[test]
fn a_reply_that_is_too_long_delivers_and_claims_nothing() {
    let config = server::Config { reply_bytes_max: 100_000, ..server::Config::default() };
    let server = TestServer::with(config);
    let client = &mut server.client();
    run::<()>(client, "XGROUP CREATE s g 0 MKSTREAM");
    for i in 1..=5 {
        run::<String>(client, &format!("XADD s {i} f {}", "v".repeat(30_000)));
    }
    let refused = |client: &mut Connection, line: &str| {
        let error = try_run::<Value>(client, line).unwrap_err().to_string();
        assert!(error.contains("ask for less"), "{line}: {error}");
    };
    refused(client, "XREADGROUP GROUP g c STREAMS s >");
    assert_eq!(run::<(usize, Value, Value, Value)>(client, "XPENDING s g").0, 0);
    // Named twice, a stream delivers an entry once.
    assert_eq!(ids(&run(client, "XREADGROUP GROUP g c COUNT 2 STREAMS s s > >")), ["1-0", "2-0"]);
    assert_eq!(ids(&run(client, "XREADGROUP GROUP g c COUNT 3 STREAMS s >")), ["3-0", "4-0", "5-0"]);
    refused(client, "XREADGROUP GROUP g c STREAMS s 0");
    refused(client, "XCLAIM s g other 0 1 2 3 4 5");
    refused(client, "XAUTOCLAIM s g other 0 0");
    let rows: Vec<(String, String, u64, u64)> = run(client, "XPENDING s g - + 10");
    assert!(
        rows.len() == 5 && rows.iter().all(|(_, consumer, _, count)| consumer == "c" && *count == 1),
        "{rows:?}"
    );
    assert_eq!(ids(&run(client, "XCLAIM s g other 0 1 2")), ["1-0", "2-0"]);
    assert_eq!(run::<Vec<String>>(client, "XCLAIM s g other 0 1 2 3 4 5 JUSTID").len(), 5);
}

#[test]
fn a_stream_that_is_removed_leaves_nothing() {
    let server =
        TestServer::with(server::Config { garbage_pass: Duration::ZERO, ..server::Config::default() });
    let client = &mut server.client();
    run::<()>(client, "XGROUP CREATE s g 0 MKSTREAM");
    for i in 1..=500 {
        run::<String>(client, &format!("XADD s {i} f v"));
    }
    run::<Value>(client, "XREADGROUP GROUP g c STREAMS s >");
    let elements = || server.store.table(server::structures::TABLE).unwrap().count().unwrap();
    assert!(elements() > 1000);
    assert_eq!(run::<usize>(client, "XTRIM s MAXLEN 0"), 500);
    assert_eq!(
        (run::<usize>(client, "XLEN s"), run::<usize>(client, "EXISTS s")),
        (0, 1),
        "an empty stream exists"
    );
    run::<()>(client, "DEL s");
    eventually("no elements", || elements() == 0);
}

#[test]
fn a_user_reads_only_streams_of_its_keys() {
    let server = TestServer::start();
    let admin = &mut server.client();
    run::<String>(admin, "XADD app:s 1 f v");
    run::<String>(admin, "XADD other 1 f v");
    let () = cmd("ACL")
        .arg("SETUSER")
        .arg("u")
        .arg("on")
        .arg(">p")
        .arg("~app:*")
        .arg("+@stream")
        .query(admin)
        .unwrap();
    let client = &mut server.client();
    run::<()>(client, "AUTH u p");
    assert_eq!(ids(&run(client, "XREAD STREAMS app:s 0")), ["1-0"]);
    for line in [
        "XREAD STREAMS other 0",
        "XREAD COUNT 1 STREAMS app:s other 0 0",
        "XRANGE other - +",
        "XGROUP CREATE other g 0",
    ] {
        let error = try_run::<Value>(client, line).unwrap_err().to_string();
        assert!(error.contains("NOPERM") || error.contains("permission"), "{line}: {error}");
    }
}

#[test]
fn a_consumer_that_waits_gets_an_error_when_its_stream_goes() {
    for (gone, code) in [
        ("DEL s", "NOGROUP"),
        ("UNLINK s", "NOGROUP"),
        ("SET s x", "WRONGTYPE"),
        ("RENAME s t", "NOGROUP"),
        ("XGROUP DESTROY s g", "NOGROUP"),
        ("FLUSHDB", "NOGROUP"),
        ("FLUSHALL", "NOGROUP"),
        ("PEXPIRE s 50", "NOGROUP"),
        ("EVAL redis.call('del',KEYS[1]) 1 s", "NOGROUP"),
    ] {
        let server = TestServer::start();
        let client = &mut server.client();
        run::<()>(client, "XGROUP CREATE s g 0 MKSTREAM");
        let mut consumer = server.client();
        let consumer = thread::spawn(move || {
            consumer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            try_run::<Value>(&mut consumer, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >").unwrap_err()
        });
        eventually("a consumer that waits", || waiting(&server) == 1);
        try_run::<Value>(client, gone).unwrap();
        assert_eq!(consumer.join().unwrap().code(), Some(code), "{gone}");
    }
}
