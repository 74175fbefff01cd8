//! DUMP and RESTORE: values of all types go over unchanged, and answers are those of Redis.

use std::net::TcpStream;
use std::time::Duration;

use redis::{Connection, RedisResult, cmd};
use server::structures::dumps::sealed;

use crate::common::TestServer;
use crate::differential::{Redis, exchange};

/// Makes a key of each type.
const VALUES: [&str; 18] = [
    "SET t some-text",
    "SET empty ''",
    "HSET h b 1 a 2 c ''",
    "RPUSH l one two two",
    "LPUSH l zero",
    "SADD s x y z",
    "ZADD z 1.5 a -inf b 0 c 1e300 d",
    "XADD x 5-1 a 1 b 2",
    "XADD x 6-1 c 3",
    "XADD x 7-1 d 4",
    "XDEL x 6-1",
    "XGROUP CREATE x packers 0 ENTRIESREAD 0",
    "XREADGROUP GROUP packers ann COUNT 1 STREAMS x >",
    "XGROUP CREATECONSUMER x packers bob",
    "XGROUP CREATE x idle $",
    "XGROUP CREATE made g $ MKSTREAM",
    "GEOADD g 13.36 38.11 palermo",
    "PFADD p a b c",
];
const KEYS: [&str; 10] = ["t", "empty", "h", "l", "s", "z", "x", "made", "g", "p"];

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| if word == "''" { Vec::new() } else { word.as_bytes().to_vec() }).collect()
}

fn run<T: redis::FromRedisValue>(client: &mut Connection, line: &str) -> RedisResult<T> {
    let words = words(line);
    words[1..]
        .iter()
        .fold(cmd(std::str::from_utf8(&words[0]).unwrap()), |mut cmd, word| cmd.arg(word).clone())
        .query(client)
}

fn dump(client: &mut Connection, key: &str) -> Vec<u8> {
    cmd("DUMP").arg(key).query(client).unwrap()
}

fn restore(client: &mut Connection, key: &str, payload: &[u8], options: &[&str]) -> RedisResult<()> {
    cmd("RESTORE").arg(key).arg(0).arg(payload).arg(options).exec(client)
}

fn text(result: RedisResult<()>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_value_of_any_type_is_the_same_after_restore() {
    let (server, other) = (TestServer::start(), TestServer::start());
    let (client, target) = (&mut server.client(), &mut other.client());
    VALUES.iter().for_each(|line| run::<redis::Value>(client, line).map(|_| ()).unwrap());
    let mark = [&b"\x00\xB7\x5C\x1E\xD9\x42\xE6\x93"[..], b"h looks like a head"].concat();
    cmd("SET").arg("mark").arg(&mark).exec(client).unwrap();
    for key in KEYS.into_iter().chain(["mark"]) {
        let payload = dump(client, key);
        // In place of values of other types, too.
        for before in ["DEL k", "SET k v", "RPUSH k a b", "ZADD k 1 a"] {
            run::<redis::Value>(target, before).unwrap();
            restore(target, "k", &payload, &["REPLACE"]).unwrap();
            assert!(dump(target, "k") == payload, "{key} after {before}");
            assert_eq!(run::<String>(target, "TYPE k"), run(client, &format!("TYPE {key}")));
            run::<u64>(target, "DEL k").unwrap();
        }
    }
    assert_eq!(cmd("DUMP").arg("absent").query::<Option<Vec<u8>>>(client), Ok(None));
    // The commands of each type go on with what they find.
    for key in KEYS {
        restore(target, key, &dump(client, key), &[]).unwrap();
    }
    for line in [
        "LPUSH l first",
        "RPUSH l last",
        "LRANGE l 0 -1",
        "HGETALL h",
        "SMEMBERS s",
        "ZADD z 7 c",
        "ZRANGEBYSCORE z -inf +inf WITHSCORES",
        "ZRANK z d",
        "XADD x 8-1 e 5",
        "XRANGE x - +",
        "XINFO GROUPS x",
        "XREADGROUP GROUP packers bob STREAMS x >",
        "XPENDING x packers - + 10 ann",
        "XACK x packers 5-1",
        "XGROUP CREATE x third 0",
        "XGROUP DESTROY x packers",
        "GEODIST g palermo palermo",
        "PFCOUNT p",
        "XINFO STREAM made",
    ] {
        let mut found = [&mut *client, &mut *target].map(|client| run::<redis::Value>(client, line));
        if line.starts_with("XPENDING") {
            // Without the idle time, which differs.
            found.iter_mut().for_each(|found| *found = found.clone().map(|_| redis::Value::Nil));
        }
        assert_eq!(found[0], found[1], "{line}");
    }
}

/// `D:key` stands for the server's own payload of a key, `W:key` for one with a changed byte, `C:key` for one that is cut.
const LINES: [&str; 42] = [
    "DUMP absent",
    "DUMP",
    "DUMP t x",
    "RESTORE k 0 D:t",
    "GET k",
    "RESTORE k 0 D:h",
    "RESTORE k 0 D:h REPLACE",
    "HMGET k a b c",
    "RESTORE k 0 D:l replace",
    "LRANGE k 0 -1",
    "RESTORE k 100000 D:z REPLACE",
    "EXISTS k",
    "PERSIST k",
    "RESTORE k 4102444800000 D:z REPLACE ABSTTL",
    "PEXPIRETIME k",
    "RESTORE k 1 D:z REPLACE ABSTTL",
    "EXISTS k",
    "RESTORE k 1 D:z ABSTTL",
    "EXISTS k",
    "RESTORE k -1 D:z",
    "RESTORE k x D:z",
    "RESTORE k 0 W:z",
    "RESTORE k 0 C:z",
    "RESTORE k 0 ''",
    "RESTORE k 0 foreign",
    "RESTORE t 0 W:z",
    "RESTORE t -1 W:z",
    "RESTORE t 0 W:z REPLACE",
    "GET t",
    "RESTORE k 0 D:z IDLETIME 5 REPLACE",
    "RESTORE k 0 D:z FREQ 5 REPLACE",
    "RESTORE k 0 D:z FREQ 5 IDLETIME 5 REPLACE",
    "RESTORE k 0 D:z IDLETIME -1",
    "RESTORE k 0 D:z FREQ 256",
    "RESTORE k 0 D:z FREQ x",
    "RESTORE k 0 D:z IDLETIME",
    "RESTORE k 0 D:z WRONG",
    "RESTORE k 0",
    "RESTORE x2 0 D:x",
    "XRANGE x2 - +",
    "XINFO GROUPS x2",
    "XADD x2 9-1 a b",
];

#[test]
fn dump_and_restore_answer_as_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let mut sockets = [redis.address, ours.address].map(|address| {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let client =
            &mut redis::Client::open(format!("redis://{address}/")).unwrap().get_connection().unwrap();
        VALUES.iter().for_each(|line| run::<redis::Value>(client, line).map(|_| ()).unwrap());
        let payloads = KEYS.map(|key| (key, dump(client, key)));
        (socket, payloads)
    });
    for line in LINES {
        let replies = sockets.each_mut().map(|(socket, payloads)| {
            let word = |word: Vec<u8>| {
                let name = std::str::from_utf8(&word).unwrap_or_default();
                let payload = name.get(2..).and_then(|name| payloads.iter().find(|(key, _)| *key == name));
                let Some((_, payload)) = payload.filter(|_| name.as_bytes()[1] == b':') else { return word };
                let mut payload = payload.clone();
                match name.as_bytes()[0] {
                    b'W' => *payload.last_mut().unwrap() ^= 1,
                    b'C' => payload.truncate(payload.len() - 3),
                    _ => {}
                }
                payload
            };
            let command = words(line).into_iter().map(word).collect();
            exchange(socket, &[command], "end").escape_ascii().to_string()
        });
        assert_eq!(replies[0], replies[1], "{line}");
    }
}

#[test]
fn a_payload_that_is_no_value_changes_nothing() {
    let server = TestServer::start();
    let client = &mut server.client();
    run::<u64>(client, "RPUSH k a b").unwrap();
    let before = dump(client, "k");
    let mut head = b"BRSTDUMP\x01".to_vec();
    let wrong = |content: &[u8]| sealed(&[&head, content].concat());
    let payloads =
        [wrong(b"h"), wrong(b"q"), wrong(b"z\0\0\0\x02ma\0\0\0\x01x"), wrong(b"l\xFF\xFF\xFF\xFF")];
    for payload in payloads {
        assert!(text(restore(client, "k", &payload, &["REPLACE"])).contains("Bad data format"));
    }
    // Another version with a right checksum.
    head[8] = 2;
    let refused = text(restore(client, "k", &sealed(&[&head, &b"tx"[..]].concat()), &["REPLACE"]));
    assert!(refused.contains("DUMP payload version or checksum are wrong"), "{refused}");
    let many = sealed(&[b"BRSTDUMP\x01l", &vec![0; 9 << 20][..]].concat());
    let refused = text(restore(client, "k", &many, &["REPLACE"]));
    assert!(refused.contains("too many elements"), "{refused}");
    assert!(dump(client, "k") == before);
}

#[test]
fn restore_notifies_and_breaks_a_watch_once() {
    let server = TestServer::start();
    let (client, other) = (&mut server.client(), &mut server.client());
    run::<u64>(client, "SADD s a").unwrap();
    let payload = dump(client, "s");
    run::<()>(client, "WATCH k").unwrap();
    restore(other, "k", &payload, &[]).unwrap();
    let done = redis::pipe().atomic().cmd("PING").query::<Option<redis::Value>>(client).unwrap();
    assert_eq!(done, None);
    // In a transaction, RESTORE sees what the commands before have written.
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("DEL").arg("k").cmd("RESTORE").arg("k").arg(0).arg(&payload).cmd("SCARD").arg("k");
    assert_eq!(pipe.query::<(u64, String, u64)>(client), Ok((1, "OK".to_owned(), 1)));
}
