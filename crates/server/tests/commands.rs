//! Each family of commands through a real client, in both versions of the protocol.

use std::collections::{BTreeMap, HashMap};

use crate::common::TestServer;
use redis::{Commands, Connection, RedisResult, Value, cmd, pipe};

/// The whole text of an error reply.
fn error<T: std::fmt::Debug>(result: RedisResult<T>) -> String {
    let error = result.unwrap_err();
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

fn both(server: &TestServer, test: impl Fn(&mut Connection)) {
    for mut client in [server.client(), server.client3()] {
        cmd("FLUSHALL").exec(&mut client).unwrap();
        test(&mut client);
    }
}

#[test]
fn strings_are_set_read_and_removed() {
    let server = TestServer::start();
    both(&server, |client| {
        assert_eq!(client.get::<_, Option<String>>("k").unwrap(), None);
        let _: () = client.set("k", "v").unwrap();
        assert_eq!(client.get::<_, String>("k").unwrap(), "v");
        let binary = [0_u8, 13, 10, 255, 36];
        let _: () = client.set(&binary, &binary).unwrap();
        assert_eq!(client.get::<_, Vec<u8>>(&binary).unwrap(), binary);
        assert_eq!(client.strlen::<_, usize>("k").unwrap(), 1);
        assert_eq!(client.strlen::<_, usize>("absent").unwrap(), 0);
        assert_eq!(client.append::<_, _, usize>("k", "w").unwrap(), 2);
        assert_eq!(client.getset::<_, _, String>("k", "new").unwrap(), "vw");
        assert_eq!(client.get_del::<_, Option<String>>("k").unwrap().as_deref(), Some("new"));
        assert_eq!(client.get_del::<_, Option<String>>("k").unwrap(), None);
        let _: () = client.mset(&[("a", "1"), ("b", "2")]).unwrap();
        let values: Vec<Option<String>> = client.mget(&["a", "absent", "b"]).unwrap();
        assert_eq!(values, [Some("1".to_owned()), None, Some("2".to_owned())]);
        // MSETNX sets all keys or none.
        assert!(!client.mset_nx::<_, _, bool>(&[("c", "3"), ("b", "4")]).unwrap());
        let values: Vec<Option<String>> = client.mget(&["b", "c"]).unwrap();
        assert_eq!(values, [Some("2".to_owned()), None]);
        assert!(client.mset_nx::<_, _, bool>(&[("c", "3"), ("d", "4")]).unwrap());
        assert_eq!(client.del::<_, usize>(&["c", "d"]).unwrap(), 2);
        assert_eq!(client.exists::<_, usize>(&["a", "a", "absent"]).unwrap(), 2);
        assert_eq!(client.del::<_, usize>(&["a", "b", "absent"]).unwrap(), 2);
        assert_eq!(client.unlink::<_, usize>("a").unwrap(), 0);
        assert!(client.set_nx::<_, _, bool>("n", 1).unwrap());
        assert!(!client.set_nx::<_, _, bool>("n", 2).unwrap());
        assert_eq!(client.get::<_, String>("n").unwrap(), "1");
    });
}

#[test]
fn set_keeps_its_conditions() {
    let server = TestServer::start();
    both(&server, |client| {
        let mut set =
            |options: &[&str]| -> RedisResult<Value> { cmd("SET").arg("k").arg(options).query(client) };
        assert_eq!(set(&["1", "XX"]), Ok(Value::Nil));
        assert_eq!(set(&["1", "nx"]), Ok(Value::Okay));
        assert_eq!(set(&["2", "NX"]), Ok(Value::Nil));
        assert_eq!(set(&["3", "xx"]), Ok(Value::Okay));
        assert_eq!(set(&["4", "GET"]), Ok(Value::BulkString(b"3".to_vec())));
        assert_eq!(set(&["5", "NX", "GET"]), Ok(Value::BulkString(b"4".to_vec())));
        assert_eq!(set(&["6", "GET", "XX"]), Ok(Value::BulkString(b"4".to_vec())));
        for wrong in [["7", "NX", "XX"].as_slice(), &["7", "FOO"], &["7", "NX", "XX", "GET"]] {
            assert_eq!(error(set(wrong)), "ERR syntax error");
        }
        assert_eq!(client.get::<_, String>("k").unwrap(), "6");
    });
}

#[test]
fn numbers_are_changed_in_one_step() {
    let server = TestServer::start();
    both(&server, |client| {
        assert_eq!(client.incr::<_, _, i64>("n", 1).unwrap(), 1);
        assert_eq!(cmd("INCR").arg("n").query::<i64>(client).unwrap(), 2);
        assert_eq!(cmd("INCRBY").arg("n").arg(-10).query::<i64>(client).unwrap(), -8);
        assert_eq!(cmd("DECR").arg("n").query::<i64>(client).unwrap(), -9);
        assert_eq!(cmd("DECRBY").arg("n").arg(-9).query::<i64>(client).unwrap(), 0);
        assert_eq!(cmd("INCRBYFLOAT").arg("n").arg("1.5").query::<String>(client).unwrap(), "1.5");
        let not_integer = "ERR value is not an integer or out of range";
        assert_eq!(error(cmd("INCR").arg("n").query::<i64>(client)), not_integer);
        for wrong in ["", "1.0", "+1", " 1", "01", "9223372036854775808", "x"] {
            assert_eq!(error(cmd("INCRBY").arg("m").arg(wrong).query::<i64>(client)), not_integer, "{wrong}");
        }
        let _: () = client.set("n", i64::MAX).unwrap();
        let overflow = "ERR increment or decrement would overflow";
        assert_eq!(error(cmd("INCR").arg("n").query::<i64>(client)), overflow);
        let minimum = i64::MIN.to_string();
        assert_eq!(
            error(cmd("DECRBY").arg("n").arg(minimum).query::<i64>(client)),
            "ERR decrement would overflow"
        );
        assert_eq!(
            error(cmd("INCRBYFLOAT").arg("n").arg("nan").query::<String>(client)),
            "ERR value is not a valid float"
        );
        assert_eq!(client.get::<_, i64>("n").unwrap(), i64::MAX);
    });
}

#[test]
fn increments_from_eight_connections_add_up() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.client();
                for _ in 0..500 {
                    let _: i64 = client.incr("n", 1).unwrap();
                }
            });
        }
    });
    assert_eq!(server.client().get::<_, i64>("n").unwrap(), 4000);
}

#[test]
fn keys_have_no_type_but_string() {
    let server = TestServer::start();
    both(&server, |client| {
        let _: () = client.set("k", "v").unwrap();
        assert_eq!(cmd("TYPE").arg("k").query::<String>(client).unwrap(), "string");
        assert_eq!(cmd("TYPE").arg("absent").query::<String>(client).unwrap(), "none");
        assert_eq!(cmd("TTL").arg("k").query::<i64>(client).unwrap(), -1);
        assert_eq!(cmd("PTTL").arg("absent").query::<i64>(client).unwrap(), -2);
        assert_eq!(cmd("PERSIST").arg("k").query::<i64>(client).unwrap(), 0);
        assert_eq!(cmd("DBSIZE").query::<i64>(client).unwrap(), 1);
        cmd("FLUSHDB").arg("ASYNC").exec(client).unwrap();
        assert_eq!(cmd("DBSIZE").query::<i64>(client).unwrap(), 0);
    });
}

#[test]
fn errors_read_as_redis_writes_them() {
    let server = TestServer::start();
    both(&server, |client| {
        assert_eq!(
            error(cmd("foo").arg("a").arg("b c").exec(client)),
            "ERR unknown command 'foo', with args beginning with: 'a' 'b c' "
        );
        assert_eq!(error(cmd("GET").exec(client)), "ERR wrong number of arguments for 'get' command");
        assert_eq!(
            error(cmd("get").arg(1).arg(2).exec(client)),
            "ERR wrong number of arguments for 'get' command"
        );
        assert_eq!(
            error(cmd("MSET").arg("a").arg("1").arg("b").exec(client)),
            "ERR wrong number of arguments for 'mset' command"
        );
        assert_eq!(error(cmd("SELECT").arg(16).exec(client)), "ERR DB index is out of range");
        assert_eq!(error(cmd("HELLO").arg(4).exec(client)), "NOPROTO unsupported protocol version");
        assert_eq!(
            error(cmd("CLIENT").arg("FOO").exec(client)),
            "ERR unknown subcommand 'FOO'. Try CLIENT HELP."
        );
        let _: () = cmd("SELECT").arg(0).query(client).unwrap();
        assert!(error(client.set::<_, _, ()>("", "v")).contains("a key of 0 bytes"));
        assert!(error(client.get::<_, Option<String>>(vec![b'k'; 65_536])).contains("a key of 65536 bytes"));
        // The connection still works after all errors.
        assert_eq!(cmd("PING").query::<String>(client).unwrap(), "PONG");
        assert_eq!(cmd("PING").arg("hi").query::<String>(client).unwrap(), "hi");
        assert_eq!(cmd("ECHO").arg("hi").query::<String>(client).unwrap(), "hi");
    });
}

fn scan_all(client: &mut Connection, options: &[&str]) -> Vec<String> {
    let (mut cursor, mut keys) = (0_u64, Vec::new());
    loop {
        let (next, found): (u64, Vec<String>) = cmd("SCAN").arg(cursor).arg(options).query(client).unwrap();
        keys.extend(found);
        if next == 0 {
            return keys;
        }
        cursor = next;
    }
}

#[test]
fn scan_returns_each_of_ten_thousand_keys_once_and_in_order() {
    let server = TestServer::start();
    both(&server, |client| {
        let mut fill = pipe();
        for key in 0..10_000 {
            fill.set(format!("key:{key:05}"), key).ignore();
        }
        fill.exec(client).unwrap();
        let expected: Vec<_> = (0..10_000).map(|key| format!("key:{key:05}")).collect();
        assert_eq!(scan_all(client, &[]), expected);
        assert_eq!(scan_all(client, &["COUNT", "777"]), expected);
        assert_eq!(scan_all(client, &["COUNT", "100000"]), expected);
        assert_eq!(scan_all(client, &["MATCH", "key:00*", "COUNT", "7"]), expected[..1000]);
        assert_eq!(scan_all(client, &["match", "*99", "type", "string"]).len(), 100);
        assert_eq!(scan_all(client, &["TYPE", "hash"]), Vec::<String>::new());
        let keys: Vec<String> = client.keys("key:0012?").unwrap();
        assert_eq!(keys, expected[120..130]);
        let all: Vec<String> = client.scan().unwrap().map(Result::unwrap).collect();
        assert_eq!(all, expected);
    });
}

/// Without key order, commands over all keys return them in any order. Commands that need the order are refused, with the engines that have
/// one.
#[test]
fn without_an_order_of_keys_scans_find_each_key_once_and_ranges_are_refused() {
    let options = bristlecone::Options::default().engine("cdds-hash");
    let server = TestServer::over(options, server::Config::default());
    both(&server, |client| {
        let mut fill = pipe();
        for key in 0..3000 {
            fill.set(format!("key:{key:05}"), key).ignore();
        }
        fill.exec(client).unwrap();
        let expected: Vec<_> = (0..3000).map(|key| format!("key:{key:05}")).collect();
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys
        };
        for options in [&[][..], &["COUNT", "777"], &["COUNT", "1"]] {
            assert_eq!(sorted(scan_all(client, options)), expected);
        }
        assert_eq!(sorted(scan_all(client, &["MATCH", "key:00*", "COUNT", "7"])), expected[..1000]);
        assert_eq!(sorted(client.keys("key:0012?").unwrap()), expected[120..130]);
        assert_eq!(cmd("DBSIZE").query::<u64>(client).unwrap(), 3000);
        let refused = error(cmd("RANGE").arg("-").arg("+").exec(client));
        assert!(refused.contains("unordered engine") && refused.contains("wbtree, "), "{refused}");
        cmd("FLUSHALL").exec(client).unwrap();
        assert_eq!(scan_all(client, &[]), Vec::<String>::new());
        assert_eq!(cmd("DBSIZE").query::<u64>(client).unwrap(), 0);
    });
}

#[test]
fn without_batches_several_keys_are_refused_together_and_taken_one_by_one() {
    let options = bristlecone::Options::default().engine("bwtree");
    let server = TestServer::over(options, server::Config::default());
    both(&server, |client| {
        let refused = error(cmd("MSET").arg("a").arg("1").arg("b").arg("2").exec(client));
        assert!(refused.contains("has no batches") && refused.contains("wbtree, "), "{refused}");
        assert_eq!(cmd("DBSIZE").query::<u64>(client).unwrap(), 0, "nothing of it was done");
        cmd("MSET").arg("a").arg("1").exec(client).unwrap();
        pipe().set("b", 2).set("c", 3).exec(client).unwrap();
        assert_eq!(cmd("MGET").arg("a").arg("b").arg("c").query::<Vec<u8>>(client).unwrap(), [1, 2, 3]);
        assert_eq!(scan_all(client, &[]), ["a", "b", "c"]);
        let told: String = cmd("INFO").query(client).unwrap();
        assert!(told.contains("engine:bwtree") && told.contains("limbo_bytes:"), "{told}");
        cmd("FLUSHALL").exec(client).unwrap();
    });
}

#[test]
fn scans_side_by_side_and_repeated_cursors_lose_nothing() {
    let server = TestServer::start();
    let mut client = server.client();
    for key in 0..100 {
        let _: () = client.set(format!("{key:02}"), "").unwrap();
    }
    let step = |cursor: u64, client: &mut Connection| -> (u64, Vec<String>) {
        cmd("SCAN").arg(cursor).arg("COUNT").arg(7).query(client).unwrap()
    };
    let mut scans = vec![(0_u64, Vec::new()); 5];
    let mut open = scans.len();
    while open > 0 {
        for (cursor, keys) in &mut scans {
            if *cursor == 0 && !keys.is_empty() {
                continue;
            }
            let lost = step(*cursor, &mut client).1;
            let (next, found) = step(*cursor, &mut client);
            assert_eq!(found, lost);
            // A write to an existing key meanwhile.
            let _: () = client.set("50", "again").unwrap();
            keys.extend(found);
            *cursor = next;
            open -= usize::from(next == 0);
        }
    }
    for (_, keys) in scans {
        assert_eq!(keys, (0..100).map(|key| format!("{key:02}")).collect::<Vec<_>>());
    }
    assert!(error(cmd("SCAN").arg(12_345).exec(&mut client)).contains("start the SCAN again with cursor 0"));
    assert_eq!(error(cmd("SCAN").arg("x").exec(&mut client)), "ERR invalid cursor");
    assert_eq!(error(cmd("SCAN").arg("0").arg("COUNT").arg(0).exec(&mut client)), "ERR syntax error");
}

#[test]
fn an_evicted_cursor_is_an_error_and_not_a_wrong_place() {
    let server = TestServer::with(server::Config { cursors_max: 4, ..server::Config::default() });
    let mut client = server.client();
    for key in 0..100 {
        let _: () = client.set(key, "").unwrap();
    }
    let (old, _): (u64, Vec<String>) = cmd("SCAN").arg(0).query(&mut client).unwrap();
    for _ in 0..4 {
        cmd("SCAN").arg(0).exec(&mut client).unwrap();
    }
    assert!(error(cmd("SCAN").arg(old).exec(&mut client)).contains("not known any more"));
}

#[test]
fn range_takes_every_form_of_bound() {
    let server = TestServer::start();
    both(&server, |client| {
        for key in ["a", "b", "c", "d", "[x", "-", "+"] {
            let _: () = client.set(key, format!("={key}")).unwrap();
        }
        let mut range = |arguments: &[&str]| -> String {
            let pairs: Vec<(String, String)> = cmd("RANGE").arg(arguments).query(client).unwrap();
            assert!(pairs.iter().all(|(key, value)| *value == format!("={key}")));
            pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(range(&["-", "+"]), "+ - [x a b c d");
        assert_eq!(range(&["+", "-", "REV"]), "d c b a [x - +");
        assert_eq!(range(&["b", "d"]), "b c d");
        assert_eq!(range(&["[b", "(d"]), "b c");
        assert_eq!(range(&["(b", "+"]), "c d");
        assert_eq!(range(&["d", "(b", "rev"]), "d c");
        assert_eq!(range(&["-", "+", "LIMIT", "2"]), "+ -");
        assert_eq!(range(&["+", "-", "LIMIT", "2", "REV"]), "d c");
        assert_eq!(range(&["-", "+", "LIMIT", "0"]), "");
        assert_eq!(range(&["[[x", "[[x"]), "[x");
        assert_eq!(range(&["[-", "[-"]), "-");
        assert_eq!(range(&["d", "b"]), "");
        assert_eq!(range(&["+", "-"]), "");
        assert_eq!(range(&["b", "d", "REV"]), "d c b");
        assert_eq!(range(&["-", "+", "REV", "LIMIT", "1"]), "d");
        assert_eq!(range(&["(b", "d", "REV"]), "d c");
        assert_eq!(error(cmd("RANGE").arg(&["-", "+", "LIMIT"]).exec(client)), "ERR syntax error");
        assert!(error(cmd("RANGE").arg(&["-", "+", "LIMIT", "-1"]).exec(client)).contains("not an integer"));
    });
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = TestServer::start();
    both(&server, |client| {
        let mut commands = pipe();
        for key in 0..5000 {
            commands.set(key, key * 2).ignore().get(key);
        }
        let values: Vec<i64> = commands.query(client).unwrap();
        assert_eq!(values, (0..5000).map(|key| key * 2).collect::<Vec<i64>>());
    });
}

#[test]
fn large_values_come_back_whole() {
    let server = TestServer::start();
    both(&server, |client| {
        let value: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        let _: () = client.set("large", &value).unwrap();
        assert!(client.get::<_, Vec<u8>>("large").unwrap() == value);
        assert_eq!(client.strlen::<_, usize>("large").unwrap(), value.len());
    });
}

#[test]
fn an_answer_beyond_its_limit_is_an_error_and_the_connection_goes_on() {
    let server = TestServer::with(server::Config { reply_bytes_max: 10_000, ..server::Config::default() });
    let mut client = server.client();
    let _: () = client.set("k", vec![b'v'; 6000]).unwrap();
    let _: () = client.set("l", vec![b'v'; 6000]).unwrap();
    for command in [["MGET", "k", "l"], ["RANGE", "-", "+"]] {
        let text = error(cmd(command[0]).arg(&command[1..]).query::<Value>(&mut client));
        assert!(text.contains("a reply of more than 10000 bytes"), "{text}");
    }
    assert_eq!(client.get::<_, Vec<u8>>("k").unwrap().len(), 6000);
}

#[test]
fn how_long_operations_took_is_told_in_rediss_form_and_syncs_where_there_are_any() {
    let server = TestServer::start();
    let mut client = server.client();
    let info = |client: &mut redis::Connection, section: &str| -> String {
        cmd("INFO").arg(section).query(client).unwrap()
    };
    assert_eq!(info(&mut client, "latencystats"), "# Latencystats\r\n", "nothing was done");
    let _: () = client.set("k", "v").unwrap();
    assert_eq!(client.get::<_, String>("k").unwrap(), "v");
    let journaled = server.store.stats().journal.is_some();
    let told = info(&mut client, "latencystats");
    for (kind, expected) in [("get", true), ("write", true), ("commit", journaled)] {
        let name = format!("latency_percentiles_usec_{kind}:");
        let line = told.lines().find_map(|line| line.strip_prefix(&name));
        assert_eq!(line.is_some(), expected, "{kind} in {told}");
        let Some(line) = line else { continue };
        let fields: Vec<(&str, f64)> = line
            .split(',')
            .map(|field| field.split_once('=').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["p50", "p99", "p99.9", "max"]);
        assert!(fields[0].1 > 0.0 && fields.is_sorted_by(|a, b| a.1 <= b.1), "{line}");
    }
    let counts = info(&mut client, "stats");
    let sizes = info(&mut client, "persistence");
    for field in ["total_groups_committed:", "total_syncs:", "total_checkpoints:"] {
        assert_eq!(counts.contains(field), journaled, "{field} in {counts}");
    }
    for field in ["journal_file_bytes:", "journal_capacity_bytes:", "journal_waiting_bytes:"] {
        assert_eq!(sizes.contains(field), journaled, "{field} in {sizes}");
    }
}

#[test]
fn the_server_tells_about_itself() {
    let server = TestServer::start();
    both(&server, |client| {
        let hello: HashMap<String, Value> = cmd("HELLO").query(client).unwrap();
        assert_eq!(hello["server"], Value::BulkString(b"bristlecone".to_vec()));
        let settings: BTreeMap<String, String> =
            cmd("CONFIG").arg("GET").arg("save").arg("APPEND*").query(client).unwrap();
        assert_eq!(
            settings.into_iter().collect::<Vec<_>>(),
            [("appendonly".into(), "no".into()), ("save".into(), "".into())]
        );
        let nothing: BTreeMap<String, String> = cmd("CONFIG").arg("GET").arg("foo").query(client).unwrap();
        assert!(nothing.is_empty());
        assert!(
            error(cmd("CONFIG").arg(&["SET", "save", "60 1"]).exec(client)).contains("set immutable config")
        );
        let _: () = client.set("k", "v").unwrap();
        let info: String = cmd("INFO").query(client).unwrap();
        for field in ["redis_version:", "role:master", "db0:keys=1,", "engine:", "# Bristlecone"] {
            assert!(info.contains(field), "{field} in {info}");
        }
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_else(|| panic!("{name} in {info}")).parse::<u64>().unwrap()
        };
        let parts = ["store_live_bytes", "store_free_bytes", "store_overhead_bytes"].map(field);
        assert!(parts[0] > 0 && parts.iter().sum::<u64>() == field("store_region_bytes"), "{info}");
        assert!(field("store_file_bytes") >= field("store_region_bytes"), "{info}");
        let times: String = cmd("INFO").arg("cpu").query(client).unwrap();
        for name in ["used_cpu_sys:", "used_cpu_user:"] {
            let value = times.lines().find_map(|line| line.strip_prefix(name));
            assert!(value.unwrap().parse::<f64>().unwrap() >= 0.0, "{times}");
        }
        let section: String = cmd("INFO").arg("keyspace").query(client).unwrap();
        assert!(section.starts_with("# Keyspace\r\n") && !section.contains("redis_version"));
        let count: usize = cmd("COMMAND").arg("COUNT").query(client).unwrap();
        let names: Vec<String> = cmd("COMMAND").arg("LIST").query(client).unwrap();
        let all: Vec<Value> = cmd("COMMAND").query(client).unwrap();
        assert_eq!((names.len(), all.len()), (count, count));
        let entries: Vec<Vec<Value>> = cmd("COMMAND").arg(&["INFO", "get"]).query(client).unwrap();
        assert_eq!(entries[0][1..=1], [Value::Int(2)]);
        let docs: HashMap<String, HashMap<String, String>> =
            cmd("COMMAND").arg(&["DOCS", "get", "foo"]).query(client).unwrap();
        assert_eq!(docs.len(), 1);
        assert_eq!(docs["get"]["group"], "string");
        let keys: Vec<String> =
            cmd("COMMAND").arg(&["GETKEYS", "mset", "a", "1", "b", "2"]).query(client).unwrap();
        assert_eq!(keys, ["a", "b"]);
        let (seconds, micros): (u64, u64) = cmd("TIME").query(client).unwrap();
        assert!(seconds > 1_600_000_000 && micros < 1_000_000);
    });
}

#[test]
fn clients_have_names_and_numbers() {
    let server = TestServer::start();
    both(&server, |client| {
        assert_eq!(cmd("CLIENT").arg("GETNAME").query::<Option<String>>(client).unwrap(), None);
        cmd("CLIENT").arg(&["SETNAME", "tester"]).exec(client).unwrap();
        assert_eq!(cmd("CLIENT").arg("GETNAME").query::<String>(client).unwrap(), "tester");
        cmd("CLIENT").arg(&["SETINFO", "LIB-NAME", "lib"]).exec(client).unwrap();
        let id: u64 = cmd("CLIENT").arg("ID").query(client).unwrap();
        let list: String = cmd("CLIENT").arg("LIST").query(client).unwrap();
        let line = list.lines().find(|line| line.starts_with(&format!("id={id} "))).unwrap();
        assert!(line.contains(" name=tester ") && line.contains(" lib-name=lib "), "{line}");
        assert!(error(cmd("CLIENT").arg(&["SETNAME", "a b"]).exec(client)).contains("cannot contain spaces"));
        assert!(error(cmd("AUTH").arg("secret").exec(client)).contains("without any password configured"));
        assert_eq!(cmd("RESET").query::<String>(client).unwrap(), "RESET");
    });
}

#[test]
fn a_transaction_takes_effect_as_a_whole_or_not_at_all() {
    let server = TestServer::start();
    both(&server, |client| {
        let mut other = server.client();
        let _: () = client.set("a", "1").unwrap();
        let one = |client: &mut Connection, words: &str| -> RedisResult<Value> {
            let mut words = words.split(' ');
            cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).query(client)
        };
        // Other clients see nothing before EXEC.
        one(client, "MULTI").unwrap();
        assert_eq!(one(client, "INCR a").unwrap(), Value::SimpleString("QUEUED".into()));
        one(client, "SET b 5").unwrap();
        one(client, "GET b").unwrap();
        assert_eq!(other.get::<_, String>("a").unwrap(), "1");
        let replies: (i64, String, String) = cmd("EXEC").query(client).unwrap();
        assert_eq!(replies, (2, "OK".to_owned(), "5".to_owned()));
        assert_eq!(other.mget::<_, Vec<String>>(&["a", "b"]).unwrap(), ["2", "5"]);
        // An error of a queued command is its reply, and the others take effect.
        one(client, "MULTI").unwrap();
        one(client, "SET word x").unwrap();
        one(client, "INCR word").unwrap();
        one(client, "INCR a").unwrap();
        assert!(error(cmd("EXEC").query::<Value>(client)).contains("not an integer"));
        assert_eq!(other.get::<_, i64>("a").unwrap(), 3);
        // A command that cannot be queued discards everything.
        for wrong in ["NOSUCH", "GET", "KEYS *", "FLUSHALL"] {
            one(client, "MULTI").unwrap();
            one(client, "SET a 100").unwrap();
            one(client, wrong).unwrap_err();
            let text = error(cmd("EXEC").query::<Value>(client));
            assert!(text.starts_with("EXECABORT"), "{wrong}: {text}");
            assert_eq!(other.get::<_, i64>("a").unwrap(), 3);
        }
        // DISCARD and a closed connection leave nothing.
        one(client, "MULTI").unwrap();
        one(client, "SET a 100").unwrap();
        one(client, "DISCARD").unwrap();
        let mut gone = server.client();
        one(&mut gone, "MULTI").unwrap();
        one(&mut gone, "SET a 100").unwrap();
        drop(gone);
        assert_eq!(other.get::<_, i64>("a").unwrap(), 3);
    });
}

#[test]
fn a_watched_key_that_changed_lets_exec_fail() {
    let server = TestServer::start();
    both(&server, |client| {
        let mut other = server.client();
        let _: () = client.set("balance", "10").unwrap();
        for (changes, expected) in [(true, None), (false, Some(vec!["OK".to_owned()]))] {
            cmd("WATCH").arg("balance").arg("absent").exec(client).unwrap();
            if changes {
                let _: () = other.set("absent", "1").unwrap();
            }
            cmd("MULTI").exec(client).unwrap();
            let _: Value = cmd("SET").arg("balance").arg("7").query(client).unwrap();
            let replies: Option<Vec<String>> = cmd("EXEC").query(client).unwrap();
            assert_eq!(replies, expected);
        }
        // A command on several keys changes only those that it writes.
        cmd("WATCH").arg("none").arg("balance").exec(client).unwrap();
        let _: () = other.set("present", "1").unwrap();
        assert_eq!(cmd("DEL").arg("none").arg("present").query::<i64>(&mut other).unwrap(), 1);
        cmd("MULTI").exec(client).unwrap();
        assert_eq!(cmd("EXEC").query::<Option<Vec<String>>>(client).unwrap(), Some(Vec::new()));
        // EXEC and UNWATCH forget the keys.
        cmd("WATCH").arg("balance").exec(client).unwrap();
        cmd("UNWATCH").exec(client).unwrap();
        let _: () = other.set("balance", "1").unwrap();
        cmd("MULTI").exec(client).unwrap();
        assert_eq!(cmd("EXEC").query::<Option<Vec<String>>>(client).unwrap(), Some(Vec::new()));
    });
}

/// Clients that move amounts with WATCH, MULTI and EXEC, and clients that add with INCR inside MULTI: the sum stays the same, and no
/// addition is lost.
#[test]
fn transactions_of_many_clients_lose_nothing() {
    const CLIENTS: i64 = 4;
    const ROUNDS: i64 = 50;
    let server = TestServer::start();
    let mut client = server.client();
    let _: () = client.mset(&[("x", 500), ("y", 500)]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                for _ in 0..ROUNDS {
                    loop {
                        cmd("WATCH").arg("x").arg("y").exec(&mut client).unwrap();
                        let (x, y): (i64, i64) = client.mget(&["x", "y"]).unwrap();
                        assert_eq!(x + y, 1000);
                        let moved: Option<(i64, i64, i64)> = pipe()
                            .atomic()
                            .cmd("DECRBY")
                            .arg("x")
                            .arg(3)
                            .cmd("INCRBY")
                            .arg("y")
                            .arg(3)
                            .cmd("INCR")
                            .arg("count")
                            .query(&mut client)
                            .unwrap();
                        if moved.is_some_and(|(x, y, _)| x + y == 1000) {
                            break;
                        }
                        assert!(moved.is_none(), "{moved:?}");
                    }
                }
            });
        }
    });
    let moved = CLIENTS * ROUNDS;
    let (x, y, count): (i64, i64, i64) = client.mget(&["x", "y", "count"]).unwrap();
    assert_eq!((x, y, count), (500 - 3 * moved, 500 + 3 * moved, moved));
}

#[test]
fn without_the_password_no_command_runs() {
    let config = server::Config { password: server::Password::new(b"secret"), ..server::Config::default() };
    let server = TestServer::with(config);
    for (request, expected) in [
        ("GET k", "-NOAUTH"),
        ("SET k v", "-NOAUTH"),
        ("PING", "-NOAUTH"),
        ("SHUTDOWN", "-NOAUTH"),
        ("HELLO 3", "-NOAUTH"),
        ("AUTH wrong", "-WRONGPASS"),
        ("AUTH root secret", "-WRONGPASS"),
        ("HELLO 3 AUTH default wrong", "-WRONGPASS"),
        ("AUTH a b c", "-ERR syntax"),
        ("MULTI", "-NOAUTH"),
    ] {
        let answer = server.exchange(format!("{request}\r\nQUIT\r\n").as_bytes());
        assert!(answer.starts_with(expected) && answer.ends_with("+OK\r\n"), "{request}: {answer}");
    }
    assert_eq!(server.store.count().unwrap(), 0);
    for admitted in ["AUTH secret", "AUTH default secret", "HELLO 2 AUTH default secret SETNAME me"] {
        let answer =
            server.exchange(format!("{admitted}\r\nSET k v\r\nRESET\r\nGET k\r\nQUIT\r\n").as_bytes());
        assert!(
            answer.ends_with("+OK\r\n+RESET\r\n-NOAUTH Authentication required.\r\n+OK\r\n"),
            "{admitted}: {answer}"
        );
    }
    let client = redis::Client::open(format!("redis://:secret@{}/", server.address)).unwrap();
    assert_eq!(client.get_connection().unwrap().get::<_, String>("k").unwrap(), "v");
    // An inner EXEC, or a queued command, is refused in the same way after RESET.
    let answer = server.exchange(b"AUTH secret\r\nMULTI\r\nSET k w\r\nRESET\r\nEXEC\r\nQUIT\r\n");
    assert!(answer.ends_with("+QUEUED\r\n+RESET\r\n-NOAUTH Authentication required.\r\n+OK\r\n"), "{answer}");
}

/// A command that removes what it returns changes nothing if its reply is too long.
#[test]
fn a_value_that_cannot_be_returned_is_not_removed() {
    let server = TestServer::with(server::Config { reply_bytes_max: 1000, ..server::Config::default() });
    let mut client = server.client();
    let value = vec![7_u8; 2000];
    server.store.put(b"k", &value).unwrap();
    for command in [["GETDEL", "k"].as_slice(), &["GETSET", "k", "new"], &["SET", "k", "new", "GET"]] {
        let text = error(cmd(command[0]).arg(&command[1..]).query::<Value>(&mut client));
        assert!(text.contains("more than 1000 bytes"), "{command:?}: {text}");
        assert_eq!(server.store.get(b"k").unwrap().as_ref(), Some(&value), "{command:?}");
    }
}

/// A command returns exactly the number of elements in its argument, or an error before it chooses one.
#[test]
fn a_great_number_of_random_elements_is_refused() {
    let server = TestServer::with(server::Config { reply_bytes_max: 100_000, ..server::Config::default() });
    let mut client = server.client();
    for line in ["SADD s a b c", "HSET h a 1 b 2 c 3", "ZADD z 1 a 2 b 3 c"] {
        let _: u64 = cmd_of(line).query(&mut client).unwrap();
    }
    for line in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z"] {
        let found: Vec<String> = cmd_of(line).arg(-1000).query(&mut client).unwrap();
        let count = |name: &str| found.iter().filter(|found| *found == name).count();
        assert!(found.len() == 1000 && ["a", "b", "c"].into_iter().all(|name| count(name) > 200), "{line}");
        for count in [-3000_i64, -2_147_483_648_000] {
            let text = error(cmd_of(line).arg(count).query::<Value>(&mut client));
            assert!(text.contains("more than 100000 bytes"), "{line} {count}: {text}");
        }
        let absent = line.replace(" s", " absent").replace(" h", " absent").replace(" z", " absent");
        let none: Vec<String> = cmd_of(&absent).arg(-2_147_483_648_000_i64).query(&mut client).unwrap();
        assert_eq!(none, [""; 0]);
    }
}

fn cmd_of(line: &str) -> redis::Cmd {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = command.arg(word));
    command
}

#[test]
fn cursors_of_scan_are_exact_in_doubles() {
    let server = TestServer::start();
    let mut client = server.client();
    for number in 0..20 {
        let _: () = client.set(number, number).unwrap();
    }
    let (cursor, _): (u64, Vec<String>) = cmd("SCAN").arg(0).arg("COUNT").arg(3).query(&mut client).unwrap();
    assert!(cursor > 0 && cursor < 1 << 53, "{cursor}");
}
