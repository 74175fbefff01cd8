//! Hashes, lists, sets and sorted sets: what the comparison with `redis-server` ([`differential`](crate::differential)) does not cover.
//! Garbage, reads beside writers, clients that wait, permissions.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value, cmd};
use server::structures::{Head, Kind, TABLE};

use crate::common::{TestServer, eventually};
use crate::differential::Redis;

fn run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> T {
    try_run(client, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn try_run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command.query(client)
}

/// A command in the form in which clients send it.
fn array(line: &str) -> String {
    let words = line.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", line.split(' ').count(), words.collect::<String>())
}

/// Makes a hash of `count` fields.
fn fill(client: &mut Connection, key: &str, count: usize) {
    for from in (0..count).step_by(500) {
        let mut command = cmd("HSET");
        command.arg(key);
        for field in from..count.min(from + 500) {
            command.arg(format!("field{field:06}")).arg(field);
        }
        let () = command.query(client).unwrap();
    }
}

/// A server that looks for garbage without hints all the time.
fn tidy_server() -> TestServer {
    TestServer::with(server::Config { garbage_pass: Duration::ZERO, ..server::Config::default() })
}

fn elements(server: &TestServer) -> u64 {
    server.store.table(TABLE).unwrap().count().unwrap()
}

#[test]
fn elements_of_structures_that_have_gone_are_removed_and_no_others() {
    let server = tidy_server();
    let client = &mut server.client();
    fill(client, "kept", 1500);
    for (i, end) in
        ["DEL gone", "SET gone v", "RENAME other gone", "SUNIONSTORE gone few", "PEXPIREAT gone 1"]
            .into_iter()
            .enumerate()
    {
        fill(client, "gone", 3000);
        run::<()>(client, "HSET other f v");
        run::<()>(client, "SADD few a");
        assert!(elements(&server) >= 4500, "{i}");
        run::<()>(client, end);
        run::<()>(client, "DEL gone other few");
        // The elements of the hash that is kept, and its owner.
        eventually(end, || elements(&server) == 1501);
    }
    // Without hints: a database is flushed, a key expires by itself.
    run::<()>(client, "SELECT 1");
    fill(client, "gone", 1000);
    run::<()>(client, "FLUSHDB");
    eventually("FLUSHDB", || elements(&server) == 1501);
    fill(client, "gone", 1000);
    run::<()>(client, "PEXPIRE gone 50");
    eventually("expiry", || elements(&server) == 1501);
    run::<()>(client, "SELECT 0");
    assert_eq!(run::<usize>(client, "HLEN kept"), 1500);
    assert_eq!(run::<BTreeMap<String, usize>>(client, "HGETALL kept").len(), 1500);
    run::<()>(client, "FLUSHALL");
    assert_eq!(elements(&server), 0);
}

#[test]
fn a_structure_in_another_database_or_under_another_name_is_no_garbage() {
    let server = tidy_server();
    let client = &mut server.client();
    fill(client, "a", 300);
    run::<()>(client, "RENAME a b");
    run::<()>(client, "MOVE b 3");
    run::<()>(client, "SELECT 3");
    run::<()>(client, "SWAPDB 3 5");
    run::<()>(client, "SELECT 5");
    run::<()>(client, "COPY b c");
    run::<()>(client, "EXPIRE c 1000");
    run::<()>(client, "HSET c field000000 changed");
    // Several passes.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(elements(&server), 602);
    assert_eq!(run::<usize>(client, "HLEN b"), 300);
    assert_eq!(run::<BTreeMap<String, String>>(client, "HGETALL b").len(), 300);
    assert_eq!(run::<String>(client, "HGET b field000000"), "0");
    assert_eq!(run::<String>(client, "HGET c field000000"), "changed");
    run::<()>(client, "DEL b");
    eventually("the garbage of b", || elements(&server) == 301);
}

#[test]
fn a_read_of_all_elements_sees_one_moment_beside_writers() {
    let server = TestServer::start();
    fill(&mut server.client(), "h", 300);
    let until = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for writer in 0..2 {
            let mut client = server.client();
            scope.spawn(move || {
                let mut number = 0;
                while Instant::now() < until {
                    number += 1;
                    // The first and the last field change together, and the length does not.
                    let line = format!("HSET h a {writer}-{number} z {writer}-{number}");
                    run::<()>(&mut client, &line);
                }
            });
        }
        let mut client = server.client();
        let mut reads = 0;
        while Instant::now() < until {
            let all: BTreeMap<String, String> = run(&mut client, "HGETALL h");
            assert_eq!(all.get("a"), all.get("z"), "after {reads} reads");
            let two: Vec<Option<String>> = run(&mut client, "HMGET h a z");
            assert_eq!(two[0], two[1], "after {reads} reads");
            reads += 1;
        }
        assert!(reads > 10, "{reads} reads");
    });
}

#[test]
fn an_evicted_structure_frees_its_elements() {
    let limit = 16 << 20;
    let config = server::Config {
        memory_bytes_max: limit,
        memory_policy: server::eviction::Policy::AllkeysLru,
        ..server::Config::default()
    };
    let server = TestServer::with(config);
    let client = &mut server.client();
    for i in 0..2000 {
        // About 20 KB each.
        fill(client, &format!("hash{i}"), 300);
    }
    let left: u64 = run(client, "DBSIZE");
    // With their keys alone counted as freed, nearly all would be evicted.
    assert!((200..1900).contains(&left), "{left} of 2000 hashes are left");
    assert_eq!(run::<usize>(client, "HLEN hash1999"), 300);
    let used = server.store.space().live_bytes;
    assert!(used < limit + (limit >> 3), "{used} of {limit} bytes are used");
}

#[test]
fn without_replies_a_waiting_command_sends_nothing() {
    let server = TestServer::start();
    let client = &mut server.client();
    let mut socket = server.socket();
    std::io::Write::write_all(&mut socket, b"CLIENT REPLY SKIP\r\nBLPOP q 0\r\nPING\r\n").unwrap();
    await_waiting(client, 1);
    run::<()>(client, "RPUSH q a");
    let mut reply = [0; 7];
    std::io::Read::read_exact(&mut socket, &mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    std::io::Write::write_all(&mut socket, b"CLIENT REPLY SKIP\r\nBLPOP q 0.05\r\nECHO again\r\n").unwrap();
    let mut reply = [0; 11];
    std::io::Read::read_exact(&mut socket, &mut reply).unwrap();
    assert_eq!(&reply, b"$5\r\nagain\r\n");
}

#[test]
fn a_client_cannot_forge_a_structure() {
    let server = TestServer::start();
    let client = &mut server.client();
    run::<()>(client, "HSET secret f v");
    let head = Head { kind: Kind::Hash, id: 1, version: 1, count: 1, extra: 0 }.encode();
    for command in ["SET", "GETSET", "APPEND", "SETNX"] {
        let () = cmd("DEL").arg("forged").query(client).unwrap();
        let _: Value = cmd(command).arg("forged").arg(&head).query(client).unwrap();
        assert_eq!(cmd("GET").arg("forged").query::<Vec<u8>>(client).unwrap(), head, "{command}");
        assert_eq!(run::<String>(client, "TYPE forged"), "string", "{command}");
        assert_eq!(run::<usize>(client, "STRLEN forged"), head.len(), "{command}");
        assert!(try_run::<String>(client, "HGET forged f").is_err(), "{command}");
        run::<()>(client, "RENAME forged again");
        assert_eq!(cmd("GET").arg("again").query::<Vec<u8>>(client).unwrap(), head, "{command}");
        assert_eq!(
            cmd("MGET").arg("again").query::<Vec<Vec<u8>>>(client).unwrap(),
            std::slice::from_ref(&head)
        );
    }
}

#[test]
fn keys_behind_their_number_need_permissions() {
    let server = TestServer::start();
    let client = &mut server.client();
    run::<()>(client, "ZADD mine 1 a");
    run::<()>(client, "ZADD theirs 1 a");
    run::<()>(client, "ACL SETUSER part on nopass +@all ~mine* %R~readable");
    run::<()>(client, "AUTH part any");
    for allowed in
        ["ZUNION 1 mine", "ZUNIONSTORE mine2 2 mine readable", "ZMPOP 1 mine MAX", "LMPOP 2 mine3 mine4 LEFT"]
    {
        try_run::<Value>(client, allowed).unwrap_or_else(|error| panic!("{allowed}: {error}"));
    }
    for denied in [
        "ZUNION 2 mine theirs",
        "ZINTERCARD 2 mine theirs",
        "ZUNIONSTORE theirs 1 mine",
        "ZUNIONSTORE readable 1 mine",
        "ZMPOP 1 readable MIN",
        "LMPOP 2 mine theirs LEFT",
        "BLMPOP 0 1 theirs LEFT",
        "BLPOP mine theirs 1",
        "SINTERCARD 1 theirs",
        "RPOPLPUSH mine theirs",
        "SMOVE theirs mine a",
        "ZRANGESTORE mine theirs 0 1",
    ] {
        let error = try_run::<Value>(client, denied).unwrap_err();
        assert_eq!(error.code(), Some("NOPERM"), "{denied}: {error}");
    }
}

/// Sends `wait` on a connection of its own. Returns its reply as text.
fn waiting(server: &TestServer, wait: &str) -> thread::JoinHandle<String> {
    let mut client = server.client();
    let wait = wait.to_owned();
    thread::spawn(move || {
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        match try_run::<Value>(&mut client, &wait) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.to_string(),
        }
    })
}

/// Waits until this many clients wait.
fn await_waiting(client: &mut Connection, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    eventually(&line, || run::<String>(client, "INFO clients").contains(&line));
}

#[test]
fn clients_that_wait_are_served_in_their_order() {
    let server = TestServer::start();
    let client = &mut server.client();
    let mut waiters = Vec::new();
    for i in 0..5 {
        waiters.push(waiting(&server, "BLPOP queue other 0"));
        await_waiting(client, i + 1);
    }
    run::<()>(client, "RPUSH queue a b");
    run::<()>(client, "LPUSH other c");
    // In a transaction, and by a change of name.
    run::<()>(client, "RPUSH hidden d e");
    run::<()>(client, "RENAME hidden queue");
    let replies: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    for (reply, element) in replies.iter().zip(["'a'", "'b'", "'c'", "'d'", "'e'"]) {
        let element = element.trim_matches('\'');
        assert!(reply.contains(&format!("bulk-string('\"{element}\"')")), "{element}: {replies:?}");
    }
    await_waiting(client, 0);
    assert_eq!(run::<usize>(client, "EXISTS queue other"), 0);
}

#[test]
fn those_that_wait_have_their_elements_before_the_next_command_of_the_writer() {
    let server = TestServer::start();
    let client = &mut server.client();
    for i in 0..30 {
        let waits = ["BLPOP queue 0", "BLMOVE queue other LEFT LEFT 0", "BRPOP other 0"];
        let waiters = waits.map(|wait| waiting(&server, wait));
        await_waiting(client, waits.len());
        // The last one gets what the second one has moved.
        let left: (usize, usize) = match i % 2 {
            0 => redis::pipe().rpush("queue", &["a", "b"]).del(&["queue", "other"]).query(client).unwrap(),
            _ => (run(client, "RPUSH queue a b"), run(client, "DEL queue other")),
        };
        assert_eq!(left, (2, 0), "{i}");
        let replies = waiters.map(|waiter| waiter.join().unwrap());
        let from_queue = replies.iter().filter(|reply| reply.contains("bulk-string('\"queue\"')")).count();
        assert!(from_queue == 1 && replies[2].contains("other"), "{replies:?}");
    }
}

#[test]
fn each_blocking_command_waits_and_replies_as_redis_does() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, server) = (Redis::start(dir.path()), TestServer::start());
    let cases = [
        ("BLPOP a b 0", "RPUSH b 1 2"),
        ("BRPOP a b 0", "RPUSH b 1 2"),
        ("BLMOVE a b LEFT RIGHT 0", "RPUSH a 1 2"),
        ("BRPOPLPUSH a b 0", "RPUSH a 1 2"),
        ("BLMPOP 0 2 a b RIGHT COUNT 2", "RPUSH b 1 2 3"),
        ("BZPOPMIN a b 0", "ZADD b 1 x 2 y"),
        ("BZPOPMAX a b 0", "ZADD b 1 x 2 y"),
        ("BZMPOP 0 2 a b MAX COUNT 2", "ZADD b 1 x 2 y"),
        ("BLPOP a 0.05", "PING"),
        ("BLMOVE a b LEFT RIGHT 0.05", "PING"),
        ("BZPOPMIN a 0.05", "PING"),
        ("BLMPOP 0.05 1 a LEFT", "PING"),
        ("BLPOP a 0", "CLIENT UNBLOCK ID"),
        ("BLMOVE a b LEFT RIGHT 0", "CLIENT UNBLOCK ID TIMEOUT"),
        ("BZMPOP 0 2 a b MAX", "CLIENT UNBLOCK ID ERROR"),
        ("XREAD BLOCK 0 STREAMS a $", "CLIENT UNBLOCK ID ERROR"),
        ("XREAD BLOCK 0 STREAMS a $", "CLIENT UNBLOCK ID"),
        // Nothing waits any more, or there is no such client.
        ("BLPOP a 0.05", "CLIENT UNBLOCK 123456789"),
    ];
    for (wait, write) in cases {
        let [there, here] = [redis.address, server.address].map(|address| {
            let open = || redis::Client::open(format!("redis://{address}/?protocol=resp3")).unwrap();
            let (mut client, mut waiting) =
                (open().get_connection().unwrap(), open().get_connection().unwrap());
            run::<()>(&mut client, "FLUSHALL");
            let write = write.replace("ID", &run::<u64>(&mut waiting, "CLIENT ID").to_string());
            let waiter = thread::spawn(move || format!("{:?}", try_run::<Value>(&mut waiting, wait)));
            if wait.contains(" 0 ") || wait.ends_with(" 0") {
                await_waiting(&mut client, 1);
            }
            let written = run::<Value>(&mut client, &write);
            let reply = waiter.join().unwrap();
            let unblocked_again = write.starts_with("CLIENT").then(|| run::<Value>(&mut client, &write));
            let left: Value = run(&mut client, "EXISTS a b");
            format!("{reply}, {left:?}, {written:?}, {unblocked_again:?}")
        });
        assert_eq!(there, here, "{wait}");
    }
}

#[test]
fn a_waiting_client_that_goes_takes_no_element() {
    let server = TestServer::start();
    let client = &mut server.client();
    let mut gone = server.socket();
    std::io::Write::write_all(&mut gone, b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n").unwrap();
    await_waiting(client, 1);
    let second = waiting(&server, "BLPOP q 0");
    await_waiting(client, 2);
    drop(gone);
    await_waiting(client, 1);
    run::<()>(client, "RPUSH q a");
    assert!(second.join().unwrap().contains('a'));
    // A command behind one that waits runs after it.
    let mut socket = server.socket();
    std::io::Write::write_all(&mut socket, b"BLPOP q 0\r\nPING\r\n").unwrap();
    await_waiting(client, 1);
    run::<()>(client, "RPUSH q b");
    let mut reply = [0; 25];
    std::io::Read::read_exact(&mut socket, &mut reply).unwrap();
    assert_eq!(&reply, b"*2\r\n$1\r\nq\r\n$1\r\nb\r\n+PONG\r\n");
    // A command that arrives while another one waits runs after it, too.
    std::io::Write::write_all(&mut socket, b"BLPOP q 0\r\n").unwrap();
    await_waiting(client, 1);
    std::io::Write::write_all(&mut socket, b"PING\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    run::<()>(client, "RPUSH q b");
    std::io::Read::read_exact(&mut socket, &mut reply).unwrap();
    assert_eq!(&reply, b"*2\r\n$1\r\nq\r\n$1\r\nb\r\n+PONG\r\n");
    // A client that waits for another type, or whose target has a wrong one, holds up no other client.
    run::<()>(client, "SET text v");
    let scored = waiting(&server, "BZPOPMIN r 0");
    let moving = waiting(&server, "BLMOVE r text LEFT LEFT 0");
    await_waiting(client, 2);
    let popping = waiting(&server, "BLPOP r 0");
    await_waiting(client, 3);
    run::<()>(client, "RPUSH r a");
    assert!(moving.join().unwrap().contains("WRONGTYPE"));
    assert!(popping.join().unwrap().contains("bulk-string"));
    run::<()>(client, "ZADD r 1 m");
    assert!(scored.join().unwrap().contains('m'));
    // A server that stops does not wait for its waiting clients.
    let _waits = waiting(&server, "BLPOP q 0");
    await_waiting(client, 1);
}

#[test]
fn in_a_transaction_blocking_commands_do_not_wait_and_an_exec_wakes_waiting_clients() {
    let server = TestServer::start();
    let client = &mut server.client();
    run::<()>(client, "MULTI");
    run::<()>(client, "BLPOP q 0");
    run::<()>(client, "RPUSH q a b");
    run::<()>(client, "BLPOP q 0");
    let replies: Vec<Value> = run(client, "EXEC");
    assert_eq!(replies[0], Value::Nil);
    assert!(matches!(&replies[2], Value::Array(pair) if pair.len() == 2), "{replies:?}");
    run::<()>(client, "DEL q");
    let waiters = [waiting(&server, "BLPOP q 0"), waiting(&server, "BLPOP q 0")];
    await_waiting(client, 2);
    run::<()>(client, "MULTI");
    run::<()>(client, "RPUSH q a");
    run::<()>(client, "RPUSH q b");
    run::<()>(client, "EXEC");
    for waiter in waiters {
        assert!(waiter.join().unwrap().contains("bulk-string"));
    }
}

#[test]
fn an_error_in_a_transaction_leaves_nothing_of_its_command() {
    let server = TestServer::start();
    let client = &mut server.client();
    run::<()>(client, "RPUSH list a");
    run::<()>(client, "SET text v");
    run::<()>(client, "MULTI");
    run::<()>(client, "LMOVE list text LEFT LEFT");
    let _: Value =
        cmd("HSET").arg("h").arg("f").arg("v").arg(vec![b'x'; 70_000]).arg("v").query(client).unwrap();
    let _: Value =
        cmd("ZADD").arg("z").arg("1").arg("m").arg("1").arg(vec![b'x'; 70_000]).query(client).unwrap();
    // Keys of a wrong length are noticed before the first write of their command.
    for wrong in [["RENAME", "list", ""], ["COPY", "list", ""], ["MSET", "one", "1"]] {
        let mut command = cmd(wrong[0]);
        wrong[1..].iter().for_each(|word| _ = command.arg(word));
        let _: Value =
            if wrong[0] == "MSET" { command.arg("").arg("2").query(client) } else { command.query(client) }
                .unwrap();
    }
    run::<()>(client, "RPUSH done 1");
    // The errors are replies of their commands.
    let _ = try_run::<Value>(client, "EXEC");
    assert_eq!(run::<Vec<String>>(client, "LRANGE list 0 -1"), ["a"]);
    assert_eq!(run::<usize>(client, "EXISTS h z one"), 0);
    // The list and its owner, and the same of `done`.
    assert_eq!(elements(&server), 4);
    assert_eq!(run::<usize>(client, "LLEN done"), 1);
}

#[test]
fn a_pipeline_of_changes_has_the_replies_of_its_commands_one_by_one() {
    let server = TestServer::start();
    let long = "k".repeat(70_000);
    let lines = [
        ("LPUSH list a b", ":2"),
        ("SADD list a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HSET hash f 1", ":1"),
        ("HINCRBY hash f x", "-ERR value is not an integer or out of range"),
        ("HINCRBY hash f 2", ":3"),
        ("RPOP list", "$1\r\na"),
        ("RPOP list", "$1\r\nb"),
        ("RPOP list", "$-1"),
        ("ZADD set 1 a", ":1"),
        ("SADD list a", ":1"),
        ("GET hash", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SREM list a", ":1"),
        ("HDEL hash f", ":1"),
    ];
    let request: String = lines.iter().map(|(line, _)| array(line)).chain([array("QUIT")]).collect();
    let expected: String = lines.iter().map(|(_, reply)| format!("{reply}\r\n")).collect();
    let expected = expected + "+OK\r\n";
    assert_eq!(server.exchange(request.as_bytes()), expected);
    assert_eq!(run::<Vec<String>>(&mut server.client(), "KEYS *"), ["set"]);
    // A key that the store refuses stops neither the commands before it nor those behind it.
    let lines = ["SADD a 1", "SADD a 2", &format!("SADD {long} 1"), "SADD b 1", "SADD b 2", "QUIT"];
    let replies = server.exchange(lines.map(array).concat().as_bytes());
    let firsts: String = replies.lines().map(|line| line.chars().next().unwrap_or_default()).collect();
    assert_eq!(firsts, "::-::+", "{replies}");
}

#[test]
fn a_client_that_waits_gets_its_element_before_the_rest_of_the_pipeline_runs() {
    let server = TestServer::start();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| run::<Vec<String>>(&mut server.client(), "BLPOP list 20"));
        let client = &mut server.client();
        eventually("a client waits", || run::<String>(client, "INFO clients").contains("blocked_clients:1"));
        let lines = ["RPUSH list a", "LPOP list", "RPUSH list b", "LPOP list", "QUIT"];
        let replies = server.exchange(lines.map(array).concat().as_bytes());
        assert_eq!(replies, ":1\r\n$-1\r\n:1\r\n$1\r\nb\r\n+OK\r\n");
        assert_eq!(waiting.join().unwrap(), ["list", "a"]);
    });
}

/// Each client that gets the element gives it to the next one. When the push is over, it is in none of the lists.
#[test]
fn a_push_is_over_when_the_clients_behind_the_woken_ones_have_run() {
    const ROUNDS: usize = 100;
    let server = TestServer::start();
    let mut client = server.client();
    let lines = ["BLMOVE a b LEFT LEFT 0", "BLMOVE b c LEFT LEFT 0", "BLMOVE c d LEFT LEFT 0", "BLPOP d 0"];
    let waiting = lines.map(|line| {
        let mut client = server.client();
        thread::spawn(move || (0..ROUNDS).for_each(|_| _ = run::<Value>(&mut client, line)))
    });
    for round in 0..ROUNDS {
        let all_wait = || {
            run::<String>(&mut client, "INFO clients").contains(&format!("blocked_clients:{}\r", lines.len()))
        };
        eventually("all clients wait", all_wait);
        // Together, so that the second command is here when the first one is over.
        let mut pipe = redis::pipe();
        pipe.cmd("RPUSH").arg(&["a", "element"]).ignore().cmd("EXISTS").arg(&["a", "b", "c", "d"]);
        assert_eq!(pipe.query::<(i64,)>(&mut client).unwrap(), (0,), "round {round}");
    }
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}
