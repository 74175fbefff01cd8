//! CLIENT, SLOWLOG, MONITOR and the other commands of administrators.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::TestServer;
use crate::differential::Redis;
use redis::{Commands, Connection, RedisResult, Value, cmd};

fn run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command.query(client)
}

fn error(client: &mut Connection, line: &str) -> String {
    let error = run::<Value>(client, line).unwrap_err();
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

/// A field of the line of a client in CLIENT LIST.
fn field(list: &str, id: u64, name: &str) -> String {
    let line = list.lines().find(|line| line.starts_with(&format!("id={id} "))).unwrap();
    let value = line.split(' ').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("no {name} in {line}")).to_owned()
}

#[test]
fn clients_are_listed_and_killed_by_each_filter() {
    let server = TestServer::start();
    let mut admin = server.client();
    let make = || {
        let mut client = server.client();
        let id: u64 = run(&mut client, "CLIENT ID").unwrap();
        (client, id)
    };
    let [(mut by_id, first), (mut by_address, second), (mut by_user, third)] = [make(), make(), make()];
    run::<()>(&mut admin, "ACL SETUSER bob on nopass +@all ~*").unwrap();
    run::<()>(&mut by_user, "AUTH bob x").unwrap();
    run::<()>(&mut by_id, "CLIENT SETNAME one").unwrap();
    let list: String = run(&mut admin, "CLIENT LIST").unwrap();
    assert_eq!([field(&list, first, "name"), field(&list, third, "user")], ["one", "bob"]);
    assert_eq!(field(&list, second, "laddr"), server.address.to_string());
    let one: String = run(&mut admin, &format!("CLIENT LIST ID {second}")).unwrap();
    assert_eq!(one.lines().count(), 1);
    assert_eq!(run::<String>(&mut admin, "CLIENT LIST TYPE replica").unwrap(), "");
    assert_eq!(run::<u64>(&mut admin, &format!("CLIENT KILL ID {first}")).unwrap(), 1);
    let address = field(&list, second, "addr");
    assert_eq!(run::<String>(&mut admin, &format!("CLIENT KILL {address}")).unwrap(), "OK");
    assert_eq!(run::<u64>(&mut admin, "CLIENT KILL USER bob TYPE normal").unwrap(), 1);
    for client in [&mut by_id, &mut by_address, &mut by_user] {
        assert!(run::<()>(client, "PING").is_err());
    }
    assert_eq!(run::<u64>(&mut admin, "CLIENT KILL TYPE normal").unwrap(), 0, "not this connection");
    assert_eq!(run::<u64>(&mut admin, "CLIENT KILL ID 999999").unwrap(), 0);
    for (line, text) in [
        ("CLIENT KILL 1.2.3.4:5", "ERR No such client"),
        ("CLIENT KILL ID x", "ERR client-id should be greater than 0"),
        ("CLIENT KILL USER nosuch", "ERR No such user 'nosuch'"),
        ("CLIENT KILL TYPE foo", "ERR Unknown client type 'foo'"),
        ("CLIENT KILL FOO x", "ERR syntax error"),
        ("CLIENT LIST ID x", "ERR Invalid client ID"),
        ("CLIENT PAUSE x", "ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT PAUSE 1 FOO", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT NO-EVICT foo", "ERR syntax error"),
    ] {
        assert_eq!(error(&mut admin, line), text, "{line}");
    }
    // The connection that kills itself gets its reply.
    assert_eq!(run::<u64>(&mut admin, "CLIENT KILL TYPE normal SKIPME no").unwrap(), 1);
    assert!(run::<()>(&mut admin, "PING").is_err());
}

/// The session of a killed connection finishes later, and its client once read it from the list.
#[test]
fn a_killed_connection_is_not_in_the_next_list() {
    let server = TestServer::start();
    let mut admin = server.client();
    for _ in 0..200 {
        let mut client = server.client();
        let id: u64 = run(&mut client, "CLIENT ID").unwrap();
        assert_eq!(run::<u64>(&mut admin, &format!("CLIENT KILL ID {id}")).unwrap(), 1);
        let list: String = run(&mut admin, "CLIENT LIST").unwrap();
        assert_eq!(list.lines().count(), 1, "{list}");
    }
}

#[test]
fn a_pause_of_writes_lets_reads_pass_and_ends_when_it_is_told() {
    let server = TestServer::start();
    let mut admin = server.client();
    let _: () = admin.set("k", "old").unwrap();
    run::<()>(&mut admin, "CLIENT PAUSE 600000 WRITE").unwrap();
    let mut writer = server.socket();
    writer.write_all(b"GET k\r\nSET k new\r\nGET k\r\n").unwrap();
    let mut reader = BufReader::new(writer.try_clone().unwrap());
    let mut lines = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!([lines(), lines()], ["$3", "old"]);
    // The write and what follows it wait. Another client reads.
    assert_eq!(admin.get::<_, String>("k").unwrap(), "old");
    writer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(writer.peek(&mut [0]).is_err(), "a reply came during the pause");
    assert_eq!(server.store.get(b"k").unwrap(), Some(b"old".to_vec()));
    writer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    run::<()>(&mut admin, "CLIENT UNPAUSE").unwrap();
    assert_eq!([lines(), lines(), lines()], ["+OK", "$3", "new"]);
    // A pause also ends by its time.
    run::<()>(&mut admin, "CLIENT PAUSE 100 ALL").unwrap();
    let _: () = admin.set("k", "newer").unwrap();
    assert_eq!(admin.get::<_, String>("k").unwrap(), "newer");
}

#[test]
fn replies_can_be_turned_off_and_skipped() {
    let server = TestServer::start();
    let answer = server.exchange(
        b"CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\nCLIENT REPLY OFF\r\nSET a 2\r\nGET a\r\nCLIENT REPLY SKIP\r\nNOSUCH\r\n\
          CLIENT REPLY ON\r\nGET a\r\nQUIT\r\n",
    );
    assert_eq!(answer, "$1\r\n1\r\n+OK\r\n$1\r\n2\r\n+OK\r\n");
}

#[test]
fn clients_that_do_not_wait_are_not_unblocked_and_flags_are_shown() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(run::<String>(&mut client, "CLIENT TRACKING OFF").unwrap(), "OK");
    assert_eq!(run::<i64>(&mut client, "CLIENT GETREDIR").unwrap(), -1);
    for line in ["CLIENT UNBLOCK 7", "CLIENT UNBLOCK 7 timeout", "CLIENT UNBLOCK 7 ERROR"] {
        assert_eq!(run::<i64>(&mut client, line).unwrap(), 0, "{line}");
    }
    let why = error(&mut client, "CLIENT UNBLOCK 7 foo");
    assert_eq!(why, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    assert!(error(&mut client, "CLIENT CACHING yes").contains("can be called only when"));
    run::<()>(&mut client, "CLIENT NO-EVICT on").unwrap();
    let info: String = run(&mut client, "CLIENT INFO").unwrap();
    assert!(info.contains(" flags=e "), "{info}");
}

#[test]
fn the_slow_log_has_the_newest_commands_without_passwords() {
    let server = TestServer::start();
    let mut client = server.client();
    run::<()>(&mut client, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3").unwrap();
    run::<()>(&mut client, "CLIENT SETNAME me").unwrap();
    run::<()>(&mut client, "ACL SETUSER bob >secret").unwrap();
    run::<()>(&mut client, "SET k v").unwrap();
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let entries: Vec<Entry> = run(&mut client, "SLOWLOG GET -1").unwrap();
    let commands: Vec<_> = entries.iter().map(|entry| entry.3.join(" ")).collect();
    assert_eq!(commands, ["SET k v", "ACL SETUSER (redacted) (redacted)", "CLIENT SETNAME me"]);
    assert!(entries[0].0 > entries[1].0 && entries[0].1 > 0);
    assert!(entries[0].4.starts_with("127.0.0.1:"));
    assert_eq!(entries[0].5, "me");
    assert_eq!(run::<u64>(&mut client, "SLOWLOG LEN").unwrap(), 3);
    run::<()>(&mut client, "CONFIG SET slowlog-log-slower-than -1").unwrap();
    run::<()>(&mut client, "SLOWLOG RESET").unwrap();
    assert_eq!(run::<u64>(&mut client, "SLOWLOG LEN").unwrap(), 0);
    assert_eq!(error(&mut client, "SLOWLOG GET -2"), "ERR count should be greater than or equal to -1");
}

fn read_line(socket: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    socket.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_monitor_sees_commands_until_reset() {
    let server = TestServer::start();
    let mut socket = server.socket();
    let mut monitor = BufReader::new(socket.try_clone().unwrap());
    socket.write_all(b"MONITOR\r\n").unwrap();
    assert_eq!(read_line(&mut monitor), "+OK\r\n");
    let answer = server.exchange(b"SET k \"a\\nb\"\r\nAUTH secret\r\nQUIT\r\n");
    assert!(answer.starts_with("+OK\r\n"));
    let lines = [read_line(&mut monitor), read_line(&mut monitor), read_line(&mut monitor)];
    assert!(lines[0].starts_with('+') && lines[0].contains(" [0 127.0.0.1:"), "{lines:?}");
    assert!(lines[0].ends_with("] \"SET\" \"k\" \"a\\nb\"\r\n"), "{lines:?}");
    assert!(lines[1].ends_with("] \"AUTH\" \"(redacted)\"\r\n"), "{lines:?}");
    socket.write_all(b"RESET\r\n").unwrap();
    let last = read_line(&mut monitor);
    assert!(last == "+RESET\r\n", "{last}");
    server.exchange(b"SET k v\r\nQUIT\r\n");
    socket.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut rest = String::new();
    monitor.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "+PONG\r\n+OK\r\n");
}

/// The lines of a MONITOR while a client runs scripts, without times and ports.
fn lines_of_scripts(address: SocketAddr) -> Vec<String> {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"SELECT 3\r\n").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    let mut monitor = BufReader::new(TcpStream::connect(address).unwrap());
    monitor.get_mut().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    monitor.get_mut().write_all(b"MONITOR\r\n").unwrap();
    assert_eq!(read_line(&mut monitor), "+OK\r\n");
    let script =
        "redis.call('set', KEYS[1], 'a b') redis.pcall('incr', KEYS[1]) return redis.call('GET', 'x')";
    let bytes: String = (0..=255).map(|byte| format!("\\x{byte:02x}")).collect();
    let request = format!(
        "EVAL \"{script}\" 1 k\r\nMULTI\r\nEVAL \"{script}\" 1 q\r\nEXEC\r\nSET b \"{}\"\r\nSET b \"{}\"\r\nECHO end\r\nQUIT\r\n",
        &bytes[..4 * 128],
        &bytes[4 * 128..]
    );
    client.write_all(request.as_bytes()).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("ECHO")) {
        let line = read_line(&mut monitor);
        let (_, rest) = line.trim_end().split_once(' ').unwrap();
        let (place, command) = rest.split_once("] ").unwrap();
        let place = place.split_once(" 127.0.0.1:").map_or(place, |(database, _)| database);
        lines.push(format!("{place}] {command}"));
    }
    lines
}

#[test]
fn a_monitor_shows_scripts_and_all_bytes_as_redis_does() {
    let (server, dir) = (TestServer::start(), tempfile::tempdir().unwrap());
    let redis = Redis::start(dir.path());
    let lines = lines_of_scripts(server.address);
    assert_eq!(lines.iter().filter(|line| line.starts_with("[3 lua] ")).count(), 6, "{lines:?}");
    // Redis shows queued commands when EXEC runs them, this server when they arrive.
    let sorted = |mut lines: Vec<String>| {
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(lines), sorted(lines_of_scripts(redis.address)));
}

#[test]
fn a_monitor_that_does_not_read_holds_little() {
    let server = TestServer::start();
    let mut socket = server.socket();
    socket.write_all(b"MONITOR\r\n").unwrap();
    let mut reply = [0; 5];
    socket.read_exact(&mut reply).unwrap();
    let mut client = server.client();
    let value = "v".repeat(100);
    let mut pipe = redis::pipe();
    for _ in 0..1000 {
        pipe.set("k", &value).ignore();
    }
    for _ in 0..100 {
        pipe.exec(&mut client).unwrap();
    }
    let info: String = run(&mut client, "INFO memory").unwrap();
    let held = info.lines().find_map(|line| line.strip_prefix("held_by_clients:")).unwrap();
    assert!(held.parse::<u64>().unwrap() < 4 << 20, "{held}");
    // It has lost lines, so the server ends it.
    let mut received = Vec::new();
    let _ = socket.read_to_end(&mut received);
    assert!(received.len() < 100_000 * value.len());
}

#[test]
fn a_server_without_replicas_and_cluster_says_so() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(run::<i64>(&mut client, "WAIT 1 100000").unwrap(), 0);
    assert_eq!(run::<(String, i64, Vec<String>)>(&mut client, "ROLE").unwrap(), ("master".into(), 0, vec![]));
    assert_eq!(error(&mut client, "WAIT 1 -1"), "ERR timeout is negative");
    for line in ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER MYID", "CLUSTER KEYSLOT k"] {
        assert_eq!(error(&mut client, line), "ERR This instance has cluster support disabled");
    }
    assert_eq!(run::<Vec<String>>(&mut client, "LATENCY LATEST").unwrap(), [""; 0]);
    assert_eq!(run::<i64>(&mut client, "LATENCY RESET").unwrap(), 0);
    assert_eq!(error(&mut client, "LATENCY GRAPH x"), "ERR No samples available for event 'x'");
    assert!(run::<String>(&mut client, "LATENCY DOCTOR").unwrap().contains("no latency events"));
}

#[test]
fn memory_is_shown_for_keys_and_the_server() {
    let server = TestServer::start();
    let mut client = server.client();
    let _: () = client.set("key", "value").unwrap();
    assert_eq!(run::<Option<u64>>(&mut client, "MEMORY USAGE key SAMPLES 5").unwrap(), Some(8));
    assert_eq!(run::<Option<u64>>(&mut client, "MEMORY USAGE absent").unwrap(), None);
    let stats: std::collections::HashMap<String, u64> = run(&mut client, "MEMORY STATS").unwrap();
    assert_eq!(stats["keys.count"], 1);
    assert!(stats["total.allocated"] > 0);
    assert_eq!(run::<String>(&mut client, "MEMORY PURGE").unwrap(), "OK");
    assert!(run::<String>(&mut client, "MEMORY MALLOC-STATS").unwrap().contains("not supported"));
    assert!(run::<String>(&mut client, "MEMORY DOCTOR").unwrap().contains("Resident memory"));
}

#[test]
fn keys_of_commands_are_found_with_their_uses() {
    let server = TestServer::start();
    let mut client = server.client();
    let keys: Vec<String> = run(&mut client, "COMMAND GETKEYS MSET a 1 b 2").unwrap();
    assert_eq!(keys, ["a", "b"]);
    for (line, expected) in [
        ("get a", "a RO access"),
        ("set a v", "a OW update"),
        ("del a", "a RM delete"),
        ("incr a", "a RW access update"),
        ("copy a b", "a RO access,b OW update"),
    ] {
        let found: Vec<(String, Vec<String>)> =
            run(&mut client, &format!("COMMAND GETKEYSANDFLAGS {line}")).unwrap();
        let found: Vec<_> =
            found.into_iter().map(|(key, flags)| format!("{key} {}", flags.join(" "))).collect();
        assert_eq!(found.join(","), expected);
    }
    assert_eq!(error(&mut client, "COMMAND GETKEYS ping x"), "ERR The command has no key arguments");
    let names: Vec<String> = run(&mut client, "COMMAND LIST FILTERBY PATTERN getd*").unwrap();
    assert_eq!(names, ["getdel"]);
    let docs: Value = run(&mut client, "COMMAND DOCS slowlog").unwrap();
    assert!(format!("{docs:?}").contains("summary"));
}
