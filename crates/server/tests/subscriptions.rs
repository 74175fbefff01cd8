//! SUBSCRIBE, PUBLISH and related commands: compared with `redis-server`, with concurrent publishers, with slow readers, in transactions.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::cmd;

use crate::common::{TestServer, eventually};
use crate::differential::Redis;

/// Connections of one server, by name.
struct Talk {
    address: SocketAddr,
    sockets: Vec<(char, TcpStream)>,
    steps: usize,
}

fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<_> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

impl Talk {
    fn new(address: SocketAddr) -> Self {
        Self { address, sockets: Vec::new(), steps: 0 }
    }

    /// Sends commands, separated by `;`, on a connection. Returns everything that each connection receives up to its reply to a PING.
    fn step(&mut self, name: char, commands: &str) -> Vec<(char, String)> {
        if !self.sockets.iter().any(|(known, _)| *known == name) {
            let socket = TcpStream::connect(self.address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            self.sockets.push((name, socket));
        }
        self.steps += 1;
        let marker = format!("marker{:06}", self.steps);
        let mut received = Vec::new();
        // The connection of the commands comes first: when it has its replies, the messages for the others are on their way.
        self.sockets.sort_by_key(|(known, _)| (*known != name, *known));
        for (known, socket) in &mut self.sockets {
            let mut request = Vec::new();
            if *known == name {
                commands.split(';').for_each(|command| request.extend(encoded(command)));
            }
            request.extend(encoded(&format!("PING {marker}")));
            socket.write_all(&request).unwrap();
            let end = format!("{marker}\r\n");
            let (mut all, mut part) = (Vec::new(), [0; 4096]);
            while !all.ends_with(end.as_bytes()) {
                let count = socket.read(&mut part).unwrap_or_else(|error| {
                    panic!("{error}: {known} after {commands:?}: {:?}", String::from_utf8_lossy(&all))
                });
                assert!(count > 0, "the server closed {known} after {commands:?}");
                all.extend_from_slice(&part[..count]);
            }
            received.push((*known, String::from_utf8(all).unwrap()));
        }
        received
    }
}

/// Connection and commands. `a` uses RESP2, `c` RESP3, `b` publishes, `d` has few permissions.
const STEPS: &[(char, &str)] = &[
    ('a', "SUBSCRIBE x y x"),
    ('a', "PSUBSCRIBE n* q?"),
    ('b', "PUBLISH x hi;PUBLISH ne one;PUBLISH qe other;PUBLISH zz unread"),
    ('a', "GET k;SET k v;NOSUCH;GET;MULTI;EXEC;HELLO 3"),
    ('b', "PUBSUB CHANNELS x*;PUBSUB NUMSUB x q;PUBSUB NUMSUB;PUBSUB NUMPAT"),
    ('b', "PUBSUB NUMPAT q;PUBSUB FOO;PUBSUB CHANNELS a b;PUBSUB;PUBLISH x;SUBSCRIBE"),
    ('a', "SSUBSCRIBE s1"),
    ('b', "SPUBLISH s1 p;PUBLISH s1 p;SPUBLISH x p;PUBSUB SHARDCHANNELS;PUBSUB SHARDNUMSUB s1 s3"),
    ('a', "UNSUBSCRIBE x nope;SUNSUBSCRIBE;UNSUBSCRIBE;PUNSUBSCRIBE q?"),
    ('b', "PUBLISH x gone;PUBLISH n1 one;PUBLISH new one"),
    ('a', "PUNSUBSCRIBE;PUNSUBSCRIBE;UNSUBSCRIBE;SUNSUBSCRIBE w;GET none;PING"),
    ('c', "CLIENT SETNAME c"),
    ('a', "SUBSCRIBE x"),
    ('a', "RESET;GET none"),
    ('b', "PUBLISH x after"),
    ('b', "MULTI;PUBLISH x 1;SET k w;PUBLISH x 2;EXEC"),
    ('a', "SUBSCRIBE x y"),
    ('b', "MULTI;PUBLISH x 1;SET k w;PUBLISH y 2;EXEC"),
    ('b', "MULTI;PUBLISH x 1;DISCARD"),
    ('b', "MULTI;PUBLISH x 1;NOSUCH;EXEC"),
    ('b', "WATCH k;SET k z;MULTI;PUBLISH x broken;EXEC"),
    ('b', "ACL SETUSER bob on >p ~* +@all &ch* &other;ACL LIST;ACL GETUSER bob"),
    ('b', "ACL DRYRUN bob publish q x;ACL DRYRUN bob publish ch1 x;ACL SETUSER default &a"),
    ('d', "AUTH bob p;PUBLISH zz m;PUBLISH ch1 m;PSUBSCRIBE c*;SUBSCRIBE ch1 zz;SPUBLISH zz m"),
    ('d', "PSUBSCRIBE ch*;SSUBSCRIBE other"),
    ('b', "PUBLISH ch7 m;SPUBLISH other m"),
    ('d', "UNSUBSCRIBE;PUNSUBSCRIBE;SUNSUBSCRIBE"),
    (
        'b',
        "ACL SETUSER bob resetchannels;ACL LIST;ACL SETUSER bob allchannels;ACL GETUSER bob;ACL SETUSER bob &x",
    ),
];

/// Steps of a client of RESP3.
const STEPS_OF_RESP3: &[(char, &str)] = &[
    ('c', "SUBSCRIBE x y;GET none;PING"),
    ('c', "PUBLISH x own"),
    ('b', "PUBLISH y m"),
    ('c', "PSUBSCRIBE y*;MULTI;SET k 1;EXEC"),
    ('c', "UNSUBSCRIBE x;PUNSUBSCRIBE;UNSUBSCRIBE;UNSUBSCRIBE"),
];

#[test]
fn every_client_receives_what_redis_would_send() {
    let server = TestServer::start();
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    let (mut ours, mut theirs) = (Talk::new(server.address), Talk::new(redis.address));
    for (name, commands) in STEPS {
        assert_eq!(ours.step(*name, commands), theirs.step(*name, commands), "{name}: {commands}");
    }
    for talk in [&mut ours, &mut theirs] {
        talk.step('c', "HELLO 3"); // names the server
    }
    for (name, commands) in STEPS_OF_RESP3 {
        assert_eq!(ours.step(*name, commands), theirs.step(*name, commands), "{name}: {commands}");
    }
}

#[test]
fn all_subscribers_see_the_messages_of_concurrent_publishers_in_one_order() {
    const PUBLISHERS: usize = 4;
    const EACH: usize = 500;
    let server = TestServer::start();
    let subscriber = |patterns: bool| {
        let mut client = server.client();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        std::thread::spawn(move || {
            let mut subscription = client.as_pubsub();
            match patterns {
                true => subscription.psubscribe("c[0-9]").unwrap(),
                false => subscription.subscribe(&["c0", "c1", "c2", "c3"]).unwrap(),
            }
            let next = |_| subscription.get_message().unwrap().get_payload::<String>().unwrap();
            (0..PUBLISHERS * EACH).map(next).collect::<Vec<_>>()
        })
    };
    let subscribers: Vec<_> = [true, false, true, false].into_iter().map(subscriber).collect();
    let mut watcher = server.client();
    eventually("all have subscribed", || {
        let counts: Vec<redis::Value> = cmd("PUBSUB").arg("NUMSUB").arg("c3").query(&mut watcher).unwrap();
        let patterns: usize = cmd("PUBSUB").arg("NUMPAT").query(&mut watcher).unwrap();
        let of: usize = cmd("PUBLISH").arg("c3x").arg("").query(&mut watcher).unwrap();
        (counts[1].clone(), patterns, of) == (redis::Value::Int(2), 1, 0)
            && cmd("CLIENT")
                .arg("LIST")
                .arg("TYPE")
                .arg("pubsub")
                .query::<String>(&mut watcher)
                .unwrap()
                .lines()
                .count()
                == 4
    });
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for number in 0..EACH {
                    let text = format!("{publisher} {number}");
                    let receivers: usize =
                        cmd("PUBLISH").arg(format!("c{publisher}")).arg(text).query(&mut client).unwrap();
                    assert_eq!(receivers, 4);
                }
            });
        }
    });
    let seen: Vec<_> = subscribers.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(seen.iter().all(|messages| *messages == seen[0]), "the orders differ");
    for publisher in 0..PUBLISHERS {
        let of = seen[0].iter().filter(|text| text.starts_with(&format!("{publisher} ")));
        assert!(of.cloned().eq((0..EACH).map(|number| format!("{publisher} {number}"))), "{publisher}");
    }
    eventually("the registry is empty when the subscribers have left", || {
        let names: Vec<String> = cmd("PUBSUB").arg("CHANNELS").query(&mut watcher).unwrap();
        let patterns: usize = cmd("PUBSUB").arg("NUMPAT").query(&mut watcher).unwrap();
        names.is_empty() && patterns == 0
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected_and_the_others_miss_nothing() {
    let config = server::Config { held_bytes_max: 24 << 20, ..server::Config::default() };
    let server = TestServer::with(config);
    let mut slow = server.socket();
    slow.write_all(b"SUBSCRIBE c\r\n").unwrap();
    let mut publisher = server.client();
    eventually("it has subscribed", || {
        cmd("PUBSUB").arg("NUMSUB").arg("c").query::<(String, usize)>(&mut publisher).unwrap().1 == 1
    });
    let mut good = server.client();
    good.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut good = good.as_pubsub();
    good.subscribe("c").unwrap();
    let payload = vec![b'x'; 1 << 20];
    let mut published = 0;
    eventually("the slow client is disconnected", || {
        let receivers: usize = cmd("PUBLISH").arg("c").arg(&payload).query(&mut publisher).unwrap();
        published += 1;
        let message = good.get_message().unwrap();
        assert_eq!(message.get_payload_bytes().len(), payload.len());
        receivers == 1
    });
    assert!(published > 16, "disconnected after {published} messages");
    let mut rest = Vec::new();
    // A reset is possible, because the server has closed with messages unsent.
    let _ = slow.read_to_end(&mut rest);
    assert!(rest.len() < published << 20);
}

/// Once a message was lost, or came after the confirmation, because the mailbox was emptied before the subscription ended.
#[test]
fn the_messages_of_a_subscription_come_before_the_confirmation_of_its_end() {
    const NAMES: usize = 5000;
    let server = TestServer::start();
    for keeps_one in [false, true] {
        let mut client = server.socket();
        let names: String = (0..NAMES).map(|number| format!(" n{number:05}")).collect();
        let extra = if keeps_one { " kept" } else { "" };
        client.write_all(format!("SUBSCRIBE{names} zzz{extra}\r\n").as_bytes()).unwrap();
        let mut publisher = server.client();
        eventually("it has subscribed", || {
            cmd("PUBSUB").arg("NUMSUB").arg("zzz").query::<(String, usize)>(&mut publisher).unwrap().1 == 1
        });
        let counting = std::thread::spawn(move || {
            let mut sent = 0;
            while cmd("PUBLISH").arg("zzz").arg("m").query::<usize>(&mut publisher).unwrap() == 1 {
                sent += 1;
            }
            sent
        });
        let last = if keeps_one { " zzz" } else { "" };
        let request = match keeps_one {
            true => format!("UNSUBSCRIBE{names}{last}\r\nPING end\r\n"),
            false => "UNSUBSCRIBE\r\nPING end\r\n".to_owned(),
        };
        client.write_all(request.as_bytes()).unwrap();
        let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
        while !all.ends_with(b"$3\r\nend\r\n") {
            let count = client.read(&mut part).unwrap();
            assert!(count > 0);
            all.extend_from_slice(&part[..count]);
        }
        let sent: usize = counting.join().unwrap();
        let text = String::from_utf8(all).unwrap();
        let message = "*3\r\n$7\r\nmessage\r\n$3\r\nzzz\r\n$1\r\nm\r\n";
        let confirmed = text.find("$11\r\nunsubscribe\r\n$3\r\nzzz\r\n").unwrap();
        assert_eq!(text[..confirmed].matches(message).count(), sent, "keeps one: {keeps_one}");
        assert!(!text[confirmed..].contains(message), "keeps one: {keeps_one}");
    }
}

#[test]
fn client_reply_hides_replies_and_no_message() {
    let server = TestServer::start();
    let mut socket = server.socket();
    let commands = "HELLO 3\r\nSUBSCRIBE c\r\nCLIENT REPLY SKIP\r\nPUBLISH c first\r\nCLIENT REPLY OFF\r\nSUBSCRIBE d\r\n\
                    PUBLISH d second\r\nCLIENT REPLY ON\r\nPING end\r\n";
    socket.write_all(commands.as_bytes()).unwrap();
    let (mut all, mut part) = (String::new(), [0; 4096]);
    while !(all.contains("first") && all.contains("second") && all.contains("end")) {
        let count = socket.read(&mut part).unwrap();
        assert!(count > 0, "{all}");
        all += std::str::from_utf8(&part[..count]).unwrap();
    }
    assert_eq!(all.matches("subscribe\r\n").count(), 2, "{all}");
    // The one of SUBSCRIBE, and none of PUBLISH.
    let behind = all.find("subscribe").unwrap();
    assert_eq!(all[behind..].matches(":1\r\n").count(), 1, "{all}");
}

#[test]
fn a_client_that_may_no_longer_use_its_channel_is_disconnected() {
    let server = TestServer::start();
    let mut admin = server.client();
    let mut acl = |rules: &[&str]| {
        let () = cmd("ACL").arg("SETUSER").arg("eve").arg(rules).query(&mut admin).unwrap();
    };
    for (subscription, rules) in [
        ("SUBSCRIBE news", &["resetchannels", "&other"][..]),
        ("PSUBSCRIBE n*", &["resetchannels", "&news"]),
        ("SSUBSCRIBE news", &["reset"]),
    ] {
        acl(&["reset", "on", "nopass", "+@all", "&n*"]);
        let mut client = server.socket();
        client.write_all(format!("AUTH eve x\r\n{subscription}\r\n").as_bytes()).unwrap();
        let mut part = [0; 256];
        let mut all = String::new();
        while !all.contains(":1\r\n") {
            let count = client.read(&mut part).unwrap();
            assert!(count > 0, "{all}");
            all += std::str::from_utf8(&part[..count]).unwrap();
        }
        // More channels are no reason.
        acl(&["&more"]);
        client.write_all(b"PING\r\n").unwrap();
        assert!(client.read(&mut part).unwrap() > 0, "{subscription}");
        acl(rules);
        assert_eq!(client.read(&mut part).unwrap(), 0, "{subscription}");
    }
}

#[test]
fn a_large_message_leaves_no_memory_with_the_subscriber() {
    let server = TestServer::start();
    let mut talk = Talk::new(server.address);
    talk.step('a', "CLIENT SETNAME a;SUBSCRIBE c");
    let mut client = server.client();
    let receivers: usize = cmd("PUBLISH").arg("c").arg(vec![b'x'; 4 << 20]).query(&mut client).unwrap();
    assert_eq!(receivers, 1);
    let mut rest = 4 << 20;
    let mut part = vec![0; 1 << 16];
    while rest > 0 {
        rest -= talk.sockets[0].1.read(&mut part).unwrap().min(rest);
    }
    eventually("the buffer is freed", || {
        let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut client).unwrap();
        list.contains("name=a ") && list.contains(" tot-mem=0 ")
    });
    // Many names count as memory of the client.
    let names: String = (0..2000).map(|number| format!(" n{number}")).collect();
    talk.step('a', &format!("SUBSCRIBE{names}"));
    let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut client).unwrap();
    assert!(!list.contains(" tot-mem=0 "), "{list}");
}

#[test]
fn names_are_bounded_and_a_long_match_stops_no_other_client() {
    let server = TestServer::start();
    let mut client = server.client();
    for command in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let error = server.exchange(format!("{command} {}\r\nQUIT\r\n", "x".repeat(4097)).as_bytes());
        assert!(error.starts_with("-ERR the name of a channel"), "{error}");
    }
    let error = cmd("PUBLISH").arg("x".repeat(4097)).arg("m").query::<usize>(&mut client).unwrap_err();
    assert!(error.to_string().contains("4096 bytes"), "{error}");
    let mut talk = Talk::new(server.address);
    let patterns: String = (0..50).map(|number| format!(" *{}{number}b", "a".repeat(2000))).collect();
    talk.step('a', &format!("PSUBSCRIBE{patterns}"));
    let mut long = server.socket();
    long.write_all(format!("PUBLISH {} m\r\n", "a".repeat(4096)).as_bytes()).unwrap();
    // While it runs, these take their turns.
    for _ in 0..100 {
        let () = cmd("PING").query(&mut client).unwrap();
        let receivers: usize = cmd("PUBLISH").arg("x").arg("m").query(&mut client).unwrap();
        assert_eq!(receivers, 0);
    }
    let mut part = [0; 16];
    let count = long.read(&mut part).unwrap();
    assert_eq!(&part[..count], b":0\r\n");
}

#[test]
fn publish_waits_for_the_end_of_a_pause_of_writes() {
    let server = TestServer::start();
    let mut talk = Talk::new(server.address);
    talk.step('a', "SUBSCRIBE c");
    talk.step('b', "CLIENT PAUSE 600000 WRITE");
    let mut client = server.client();
    let publishing =
        std::thread::spawn(move || cmd("PUBLISH").arg("c").arg("m").query::<usize>(&mut client).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!publishing.is_finished());
    talk.step('b', "CLIENT UNPAUSE");
    assert_eq!(publishing.join().unwrap(), 1);
}

#[test]
fn clients_and_channels_are_counted() {
    let server = TestServer::start();
    let mut talk = Talk::new(server.address);
    talk.step('a', "CLIENT SETNAME a;SUBSCRIBE x y;PSUBSCRIBE p*;SSUBSCRIBE s");
    let mut client = server.client();
    let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut client).unwrap();
    assert!(list.contains("name=a ") && list.contains("flags=P ") && list.lines().count() == 1, "{list}");
    assert!(list.contains(" sub=2 psub=1 ssub=1 "), "{list}");
    let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query(&mut client).unwrap();
    assert!(!list.contains("name=a "), "{list}");
    let info: String = cmd("INFO").arg("stats").query(&mut client).unwrap();
    for line in ["pubsub_channels:2\r", "pubsub_patterns:1\r", "pubsubshard_channels:1\r"] {
        assert!(info.contains(line), "{line}: {info}");
    }
    let killed: usize = cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query(&mut client).unwrap();
    assert_eq!(killed, 1);
    eventually("its subscriptions have ended", || {
        let info: String = cmd("INFO").arg("stats").query(&mut client).unwrap();
        ["pubsub_channels:0\r", "pubsub_patterns:0\r", "pubsubshard_channels:0\r"]
            .iter()
            .all(|line| info.contains(line))
    });
}

#[test]
fn a_refused_channel_is_in_the_log_of_refusals() {
    let server = TestServer::start();
    let mut admin = server.client();
    let rules = ["on", "nopass", "+@all", "&mine"];
    let () = cmd("ACL").arg("SETUSER").arg("bob").arg(&rules).query(&mut admin).unwrap();
    let mut bob = server.client();
    let () = cmd("AUTH").arg("bob").arg("any").query(&mut bob).unwrap();
    let error = cmd("PUBLISH").arg("yours").arg("m").query::<usize>(&mut bob).unwrap_err();
    assert_eq!(error.code(), Some("NOPERM"));
    let log: Vec<std::collections::BTreeMap<String, redis::Value>> =
        cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    let text = |name: &str| redis::from_redis_value::<String>(log[0][name].clone()).unwrap();
    assert_eq!((text("reason"), text("object")), ("channel".to_owned(), "yours".to_owned()));
}
