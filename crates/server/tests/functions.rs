//! Functions: the same libraries and calls to this server and to `redis-server`, and what that comparison does not cover: limits, restarts,
//! dumps, and that each call takes effect as a whole. `crates/cli/tests/functions.rs` kills a server.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult, Value, cmd};

use crate::common::{TestServer, eventually};
use crate::differential::{Redis, exchange, text};
use crate::scripts::words;

/// Libraries without their first line, `#!lua name=lib`. Redis and this server refuse or load each of them with the same reply.
const LIBRARIES: &[&str] = &[
    "redis.call('set', 'a', 1)",
    "redis.pcall('set', 'a', 1)",
    "local x = nosuch",
    "redis.register_function('f')",
    "redis.register_function()",
    "redis.register_function(1, 2, 3)",
    "redis.register_function(1, 2)",
    "redis.register_function({}, function() end)",
    "redis.register_function('f', 2)",
    "redis.register_function('f-f', function() end)",
    "redis.register_function('', function() end)",
    "redis.register_function('f', function() end) redis.register_function('f', function() end)",
    "redis.register_function{function_name = 1}",
    "redis.register_function{function_name = {}}",
    "redis.register_function{description = {}}",
    "redis.register_function{callback = 1}",
    "redis.register_function{x = 1}",
    "redis.register_function{[true] = 1}",
    "redis.register_function{1}",
    "redis.register_function{function_name = 'f', flags = 1}",
    "redis.register_function{function_name = 'f', flags = {'x'}}",
    "redis.register_function{function_name = 'f', flags = {1}}",
    "redis.register_function{function_name = 'f', flags = {{}}}",
    "redis.register_function{function_name = 'f'}",
    "redis.register_function{callback = function() end}",
    "x = 1",
    "redis.x = 1",
    "redis.register_function = 1",
    "local x = = 1",
    "return 1",
    "local t = nil t.x = 1",
    "redis.log(redis.LOG_DEBUG, 'a line')",
    "redis.register_function(12, function() end)",
    "redis.register_function{function_name = 'f', description = 'what it is', callback = function() end, \
     flags = {'no-writes', 'allow-oom', 'allow-stale', 'no-cluster', 'allow-cross-slot-keys'}}",
];

/// First lines and bodies that are refused.
const TEXTS: &[&str] = &[
    "return 1",
    "",
    "#!lua name=lib",
    "#!lua\nreturn 1",
    "#!\nreturn 1",
    "#!js name=lib\nreturn 1",
    "#!lua name=\nreturn 1",
    "#!lua name=l-b\nreturn 1",
    "#!lua name=a name=b\nreturn 1",
    "#!lua name=a foo=1\nreturn 1",
    "#!LUA NAME=a\nreturn 1",
];

/// The functions that [`CALLS`] calls.
const FUNCTIONS: &str = "#!lua name=calls
local own = 'own'
local register = redis.register_function
local function f(name, callback, flags)
  redis.register_function{function_name = name, callback = callback, flags = flags or {}}
end
f('get', function(keys) return redis.call('get', keys[1]) end, {'no-writes'})
f('set', function(keys, args) return redis.call('set', keys[1], args[1]) end)
f('own', function() return own end, {'no-writes'})
f('wrong', function(keys) return redis.call('set', keys[1], 1) end, {'no-writes'})
f('caught', function(keys) return redis.pcall('set', keys[1], 1) end, {'no-writes'})
f('count', function(keys, args) return {#keys, #args, keys[1] or 'none', args[1] or 'none'} end, {'no-writes'})
f('register', function() return redis.register_function end)
f('late', function() register('x', function() end) end)
f('globals', function() return KEYS end)
f('boom', function() error('boom') end)
f('table', function() error({err = 'MY error'}) end)
f('reply', function() return redis.error_reply('MY error') end)
f('unknown', function() return redis.call('nosuch') end)
f('nested', function() return redis.call('fcall', 'own', 0) end)
f('assign', function() x = 1 end)
f('field', function() return redis.nosuch end)
f('index', function() local t = nil return t.x end)
f('version', function() return redis.sha1hex('a') .. redis.LOG_DEBUG end)
f('resp3', function(keys)
  redis.setresp(3)
  redis.call('hset', keys[1], 'f', 'v')
  return redis.call('hgetall', keys[1])
end)
f('resp2', function(keys) return redis.call('hgetall', keys[1]) end)
f('partly', function(keys) redis.call('set', keys[1], 'kept') error('after a write') end)
f('MixedCase', function() return 'mixed' end)
";

/// Commands, after the library is loaded. Each reply is that of Redis, byte by byte.
const CALLS: &[&str] = &[
    "FCALL set 1 k v",
    "FCALL get 1 k",
    "FCALL_RO get 1 k",
    "FCALL get 0",
    "FCALL_RO set 1 k w",
    "FCALL own 0",
    "FCALL OWN 0",
    "FCALL mixedcase 0",
    "FCALL wrong 1 k",
    "FCALL_RO wrong 1 k",
    "FCALL caught 1 k",
    "FCALL count 2 a b c",
    "FCALL count 0",
    "FCALL register 0",
    "FCALL late 0",
    "FCALL globals 0",
    "FCALL boom 0",
    "FCALL table 0",
    "FCALL reply 0",
    "FCALL unknown 0",
    "FCALL nested 0",
    "FCALL assign 0",
    "FCALL field 0",
    "FCALL index 0",
    "FCALL version 0",
    "FCALL resp3 1 h",
    "FCALL resp2 1 h",
    "FCALL partly 1 p",
    "GET p",
    "FCALL nosuch 0",
    "FCALL own x",
    "FCALL own -1",
    "FCALL own 2 a",
    "FCALL own",
    "FCALL",
    "EVAL \"return redis.call('fcall','own',0)\" 0",
    "MULTI",
    "FCALL set 1 m 1",
    "FCALL get 1 m",
    "FCALL boom 0",
    "FCALL nosuch 0",
    "EXEC",
    "GET m",
    "COMMAND GETKEYS FCALL own 2 a b c",
    "FUNCTION",
    "FUNCTION NOSUCH",
    "FUNCTION LOAD",
    "FUNCTION LOAD foo bar",
    "FUNCTION LOAD REPLACE",
    "FUNCTION DELETE",
    "FUNCTION DELETE nosuch",
    "FUNCTION FLUSH foo",
    "FUNCTION FLUSH SYNC foo",
    "FUNCTION LIST LIBRARYNAME",
    "FUNCTION LIST LIBRARYNAME nosuch*",
    "FUNCTION LIST foo",
    "FUNCTION LIST WITHCODE WITHCODE",
    "FUNCTION STATS",
    "FUNCTION KILL",
    "FUNCTION KILL x",
    "FUNCTION DUMP x",
    "FUNCTION RESTORE",
    "FUNCTION RESTORE wrong",
    "FUNCTION RESTORE wrong APPEND",
    "FUNCTION RESTORE wrong nosuch",
    "FUNCTION LOAD '#!lua name=other\nredis.register_function(\"OWN\", function() end)'",
    "FUNCTION LOAD '#!lua name=other\nredis.register_function(\"one\", function() return 1 end)'",
    "FUNCTION LOAD '#!lua name=other\nredis.register_function(\"one\", function() return 2 end)'",
    "FCALL one 0",
    "FUNCTION LOAD REPLACE '#!lua name=other\nredis.register_function(\"two\", function() return 2 end)'",
    "FCALL one 0",
    "FCALL two 0",
    "FUNCTION LOAD REPLACE '#!lua name=other\nredis.register_function(\"own\", function() end)'",
    "FUNCTION LOAD REPLACE '#!lua name=other\nreturn ('",
    "FCALL two 0",
    "FUNCTION LIST LIBRARYNAME o* WITHCODE",
    "FUNCTION STATS",
    "FLUSHALL",
    "SCRIPT FLUSH",
    "FCALL two 0",
    "FUNCTION DELETE other",
    "FUNCTION DELETE other",
    "FCALL two 0",
    "MULTI",
    "FUNCTION LOAD '#!lua name=queued\nredis.register_function(\"queued\", function() return 5 end)'",
    "FCALL queued 0",
    "FUNCTION LOAD '#!lua name=queued\nredis.register_function(\"queued\", function() return 6 end)'",
    "FUNCTION LIST LIBRARYNAME queued",
    "FUNCTION LOAD REPLACE '#!lua name=queued\nredis.register_function(\"queued\", function() return 6 end)'",
    "FCALL queued 0",
    "FUNCTION STATS",
    "FUNCTION RESTORE wrong",
    "FUNCTION KILL",
    "EXEC",
    "FUNCTION LIST LIBRARYNAME queued",
    "MULTI",
    "FUNCTION DELETE queued",
    "FCALL queued 0",
    "FUNCTION DELETE queued",
    "EXEC",
    "FCALL queued 0",
    "MULTI",
    "FUNCTION LOAD '#!lua name=queued\nredis.register_function(\"queued\", function() return 7 end)'",
    "DISCARD",
    "FCALL queued 0",
    "MULTI",
    "FUNCTION FLUSH",
    "FCALL own 0",
    "FUNCTION LOAD '#!lua name=last\nredis.register_function(\"own\", function() return 8 end)'",
    "FCALL own 0",
    "EXEC",
    "FCALL own 0",
    "FUNCTION FLUSH ASYNC",
    "FCALL own 0",
    "FUNCTION LIST",
    "FUNCTION STATS",
];

#[test]
fn functions_answer_as_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, server) = (Redis::start(dir.path()), TestServer::start());
    let word = |text: &str| text.as_bytes().to_vec();
    let load = |code: &str| vec![word("FUNCTION"), word("LOAD"), word("REPLACE"), word(code)];
    let mut wrong = Vec::new();
    for hello in ["2", "3"] {
        let mut sockets = [redis.address, server.address].map(|address| TcpStream::connect(address).unwrap());
        for socket in &mut sockets {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            exchange(socket, &[vec![word("HELLO"), word(hello)], vec![word("FLUSHALL")]], "ready");
        }
        let libraries = LIBRARIES.iter().map(|code| load(&format!("#!lua name=lib\n{code}")));
        let list = || std::iter::once(vec![word("FUNCTION"), word("LIST")]);
        let texts = TEXTS.iter().map(|code| load(code));
        let flush = std::iter::once(vec![word("FUNCTION"), word("FLUSH")]);
        let calls = CALLS.iter().map(|line| words(line));
        let all = libraries.chain(list()).chain(texts).chain(flush).chain([load(FUNCTIONS)]).chain(calls);
        let mut chunk = Vec::new();
        for command in all {
            // A transaction is sent at once.
            let is_end = chunk.is_empty() && command[0] != b"MULTI"
                || [&b"EXEC"[..], b"DISCARD"].contains(&&command[0][..]);
            chunk.push(command);
            if is_end {
                let replies = sockets.each_mut().map(|socket| exchange(socket, &chunk, "end of reply"));
                if replies[0] != replies[1] {
                    let [theirs, ours] = replies.map(|reply| reply.escape_ascii().to_string());
                    wrong.push(format!("RESP{hello}\n{}  Redis: {theirs}\n  here:  {ours}", text(&chunk)));
                }
                chunk.clear();
            }
        }
    }
    assert!(wrong.is_empty(), "{} replies differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn function<T: redis::FromRedisValue>(client: &mut Connection, arguments: &[&[u8]]) -> RedisResult<T> {
    cmd("FUNCTION").arg(arguments).query(client)
}

fn load(client: &mut Connection, name: &str, body: &str) -> RedisResult<String> {
    function(client, &[b"LOAD", b"REPLACE", format!("#!lua name={name}\n{body}").as_bytes()])
}

fn call<T: redis::FromRedisValue>(client: &mut Connection, name: &str, arguments: &[&str]) -> RedisResult<T> {
    cmd("FCALL").arg(name).arg(arguments).query(client)
}

const ADD: &str = "redis.register_function('add', function(keys, args)
  local sum = tonumber(redis.call('get', keys[1]) or '0') + args[1]
  redis.call('set', keys[1], sum)
  redis.call('set', keys[2], -sum)
  return sum
end)";

#[test]
fn a_call_takes_effect_as_a_whole_beside_other_calls() {
    const THREADS: i64 = 4;
    const RUNS: i64 = 100;
    let server = TestServer::start();
    load(&mut server.client(), "sums", ADD).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = &mut server.client();
                for _ in 0..RUNS {
                    let _: i64 = call(client, "add", &["2", "a", "b", "1"]).unwrap();
                    let pair: (i64, i64) = cmd("MGET").arg("a").arg("b").query(client).unwrap();
                    assert_eq!(pair.0, -pair.1);
                }
            });
        }
    });
    let sum: i64 = cmd("GET").arg("a").query(&mut server.client()).unwrap();
    assert_eq!(sum, THREADS * RUNS);
}

#[test]
fn libraries_survive_a_restart_and_flushall() {
    let server = TestServer::start();
    let client = &mut server.client();
    load(client, "sums", ADD).unwrap();
    load(client, "gone", "redis.register_function('gone', function() end)").unwrap();
    load(client, "other", "redis.register_function('one', function() return 1 end)").unwrap();
    load(client, "other", "redis.register_function('two', function() return 2 end)").unwrap();
    let _: () = function(client, &[b"DELETE", b"gone"]).unwrap();
    cmd("SET").arg("k").arg("v").exec(client).unwrap();
    cmd("FLUSHALL").exec(client).unwrap();
    let before: Value = function(client, &[b"LIST", b"WITHCODE"]).unwrap();
    let server = server.again(bristlecone::Options::default(), server::Config::default(), Default::default);
    let client = &mut server.client();
    assert_eq!(function::<Value>(client, &[b"LIST", b"WITHCODE"]).unwrap(), before);
    assert_eq!(call::<u64>(client, "two", &["0"]), Ok(2));
    assert_eq!(call::<u64>(client, "add", &["2", "a", "b", "3"]), Ok(3));
    assert!(call::<u64>(client, "one", &["0"]).is_err() && call::<u64>(client, "gone", &["0"]).is_err());
    assert_eq!(cmd("EXISTS").arg("k").query::<u64>(client), Ok(0));
    let _: () = function(client, &[b"FLUSH"]).unwrap();
    let server = server.again(bristlecone::Options::default(), server::Config::default(), Default::default);
    assert_eq!(function::<Vec<Value>>(&mut server.client(), &[b"LIST"]).unwrap(), []);
}

#[test]
fn a_library_that_is_damaged_in_the_store_does_not_hide_the_others() {
    let server = TestServer::start();
    let client = &mut server.client();
    load(client, "good", "redis.register_function('one', function() return 1 end)").unwrap();
    load(client, "bad", "redis.register_function('bad', function() return 1 end)").unwrap();
    let table = server.store.find_table("functions").unwrap().unwrap();
    table.put(b"bad", b"\x01#!lua name=bad\nreturn (").unwrap();
    table.put(b"newer", b"\x02#!lua name=newer\nreturn 1").unwrap();
    table.put(b"empty", b"").unwrap();
    drop(table);
    let server = server.again(bristlecone::Options::default(), server::Config::default(), Default::default);
    let client = &mut server.client();
    assert_eq!(call::<u64>(client, "one", &["0"]), Ok(1));
    assert!(call::<u64>(client, "bad", &["0"]).is_err());
    load(client, "bad", "redis.register_function('bad', function() return 2 end)").unwrap();
    assert_eq!(call::<u64>(client, "bad", &["0"]), Ok(2));
}

#[test]
fn a_dump_is_restored_by_its_policy() {
    let server = TestServer::start();
    let client = &mut server.client();
    let one = |number: u8| format!("redis.register_function('one', function() return {number} end)");
    load(client, "a", &one(1)).unwrap();
    load(client, "b", "redis.register_function('two', function() return 2 end)").unwrap();
    let dump: Vec<u8> = function(client, &[b"DUMP"]).unwrap();
    load(client, "a", &one(7)).unwrap();
    load(client, "c", "redis.register_function('three', function() return 3 end)").unwrap();
    let refused = function::<()>(client, &[b"RESTORE", &dump]).unwrap_err();
    assert!(refused.to_string().contains("Library a already exists"), "{refused}");
    assert_eq!(call::<u64>(client, "one", &["0"]), Ok(7));
    let _: () = function(client, &[b"RESTORE", &dump, b"REPLACE"]).unwrap();
    assert_eq!(call::<u64>(client, "one", &["0"]), Ok(1));
    assert_eq!(call::<u64>(client, "three", &["0"]), Ok(3));
    let _: () = function(client, &[b"RESTORE", &dump, b"FLUSH"]).unwrap();
    assert!(call::<u64>(client, "three", &["0"]).is_err());
    let _: () = function(client, &[b"FLUSH"]).unwrap();
    // A function of another library has a name of the dump: nothing changes.
    load(client, "d", &one(9)).unwrap();
    let refused = function::<()>(client, &[b"RESTORE", &dump, b"REPLACE"]).unwrap_err();
    assert!(refused.to_string().contains("Function one already exists"), "{refused}");
    assert_eq!(function::<Vec<Value>>(client, &[b"LIST"]).unwrap().len(), 1);
    let mut damaged = dump;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let refused = function::<()>(client, &[b"RESTORE", &damaged, b"FLUSH"]).unwrap_err();
    assert!(refused.to_string().contains("payload version or checksum are wrong"), "{refused}");
    assert_eq!(call::<u64>(client, "one", &["0"]), Ok(9));
}

#[test]
fn libraries_that_exec_changes_come_with_its_keys_or_not_at_all() {
    let server = TestServer::start();
    let (client, other) = (&mut server.client(), &mut server.client());
    let one = |value: u64| format!("redis.register_function('one', function() return {value} end)");
    let code = |value: u64| format!("#!lua name=lib\n{}", one(value));
    let queue = |value: u64| {
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("SET").arg("k").arg(value);
        pipe.cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(code(value)).cmd("FCALL").arg("one").arg(0);
        pipe
    };
    assert_eq!(queue(1).query::<(String, String, u64)>(client).unwrap().2, 1);
    let dump: Vec<u8> = function(client, &[b"DUMP"]).unwrap();
    cmd("WATCH").arg("k").exec(client).unwrap();
    cmd("SET").arg("k").arg("other").exec(other).unwrap();
    assert_eq!(queue(2).query::<Option<Value>>(client), Ok(None));
    assert_eq!((call::<u64>(client, "one", &["0"]), call::<u64>(other, "one", &["0"])), (Ok(1), Ok(1)));
    // A script that is stopped ends the transaction.
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "50"]).exec(client).unwrap();
    let code = code(3);
    let loads: [&[&str]; 3] = [
        &["FUNCTION", "LOAD", "REPLACE", &code],
        &["FCALL", "one", "0"],
        &["EVAL", "redis.call('set', 'k', 1) while true do end", "0"],
    ];
    cmd("MULTI").exec(client).unwrap();
    loads.iter().for_each(|line| cmd(line[0]).arg(&line[1..]).exec(client).unwrap());
    assert_eq!(cmd("EXEC").exec(client).unwrap_err().code(), Some("EXECABORT"));
    assert_eq!(call::<u64>(client, "one", &["0"]), Ok(1));
    // The connection is in no transaction with libraries of its own.
    assert_eq!(function::<Vec<u8>>(client, &[b"DUMP"]), Ok(dump.clone()));
    let mut restored = redis::pipe();
    restored.atomic().cmd("FUNCTION").arg("FLUSH").cmd("FUNCTION").arg("RESTORE").arg(&dump);
    restored.cmd("FUNCTION").arg("DUMP");
    assert_eq!(restored.query::<(String, String, Vec<u8>)>(client).unwrap().2, dump);
    let server =
        server.again(bristlecone::Options::default(), server::Config::default(), server::Listeners::default);
    assert_eq!(call::<u64>(&mut server.client(), "one", &["0"]), Ok(1));
}

#[test]
fn a_reader_of_a_key_from_exec_calls_the_libraries_from_exec() {
    const CHANGES: u64 = 60;
    let server = TestServer::start();
    let mut writer = server.client();
    let change = |client: &mut Connection, value: u64| {
        let code = format!("#!lua name=lib\nredis.register_function('one', function() return {value} end)");
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("SET").arg("k").arg(value).cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(code);
        pipe.query::<Value>(client).unwrap();
    };
    change(&mut writer, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let client = &mut server.client();
            let mut key = 0;
            while key < CHANGES {
                key = cmd("GET").arg("k").query(client).unwrap();
                let called: u64 = call(client, "one", &["0"]).unwrap();
                assert!(called >= key, "key {key}, function {called}");
            }
        });
        (1..=CHANGES).for_each(|value| change(&mut writer, value));
        reader.join().unwrap();
    });
}

#[test]
fn a_function_that_is_stopped_has_changed_nothing() {
    let server = TestServer::start();
    let client = &mut server.client();
    let body = "redis.register_function('busy', function(keys)
        redis.call('set', keys[1], 1) while true do end end)
        redis.register_function('memory', function() local t = {} while true do t[#t + 1] = ('x'):rep(1000000) .. #t end end)";
    load(client, "busy", body).unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| call::<()>(&mut server.client(), "busy", &["1", "k", "an argument"]));
        let mut stats = Vec::new();
        eventually("the function runs", || {
            stats = function::<Vec<Value>>(client, &[b"STATS"]).unwrap();
            stats[1] != Value::Nil
        });
        let shown = format!("{stats:?}");
        assert!(shown.contains("busy") && shown.contains("an argument"), "{shown}");
        // SCRIPT KILL stops scripts only.
        let none = cmd("SCRIPT").arg("KILL").query::<()>(client).unwrap_err();
        assert_eq!(none.code(), Some("NOTBUSY"));
        let _: () = function(client, &[b"KILL"]).unwrap();
        let stopped = running.join().unwrap().unwrap_err();
        assert!(stopped.to_string().contains("stopped by FUNCTION KILL"), "{stopped}");
    });
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "50"]).exec(client).unwrap();
    let stopped = call::<()>(client, "busy", &["1", "k"]).unwrap_err();
    assert!(stopped.to_string().contains("lua-time-limit"), "{stopped}");
    assert_eq!(cmd("EXISTS").arg("k").query::<u64>(client), Ok(0));
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "0"]).exec(client).unwrap();
    let stopped = call::<()>(client, "memory", &["0"]).unwrap_err();
    assert!(stopped.to_string().contains("not enough memory"), "{stopped}");
    let slow = load(client, "slow", "while true do end").unwrap_err();
    assert!(slow.to_string().contains("FUNCTION LOAD timeout"), "{slow}");
    assert_eq!(function::<Vec<Value>>(client, &[b"LIST"]).unwrap().len(), 1);
}

#[test]
fn functions_need_the_permissions_of_their_commands() {
    let server = TestServer::start();
    let client = &mut server.client();
    load(client, "sums", ADD).unwrap();
    let rules =
        ["SETUSER", "some", "on", "nopass", "+fcall", "+get", "+@transaction", "~a*", "+function|list"];
    cmd("ACL").arg(&rules).exec(client).unwrap();
    let mut other = server.client();
    cmd("AUTH").arg("some").arg("x").exec(&mut other).unwrap();
    for (keys, expected) in
        [(["a", "b"], "no permissions to access one of the keys"), (["a", "a2"], "NOPERM")]
    {
        let refused = call::<()>(&mut other, "add", &["2", keys[0], keys[1], "1"]).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains(&expected.to_lowercase()), "{refused}");
    }
    assert_eq!(function::<Vec<Value>>(&mut other, &[b"LIST"]).unwrap().len(), 1);
    assert_eq!(function::<()>(&mut other, &[b"FLUSH"]).unwrap_err().code(), Some("NOPERM"));
    cmd("MULTI").exec(&mut other).unwrap();
    assert_eq!(function::<()>(&mut other, &[b"FLUSH"]).unwrap_err().code(), Some("NOPERM"));
    assert_eq!(cmd("EXEC").exec(&mut other).unwrap_err().code(), Some("EXECABORT"));
}

#[test]
fn allow_oom_runs_writes_without_memory() {
    let server = TestServer::start();
    let client = &mut server.client();
    let setter = |name: &str, flags: &str| {
        format!(
            "redis.register_function{{function_name = '{name}', flags = {{{flags}}}, callback = function(keys) \
             return redis.call('set', keys[1], 'v') end}}"
        )
    };
    load(client, "plain", &setter("plain", "")).unwrap();
    load(client, "oom", &setter("oom", "'allow-oom'")).unwrap();
    cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(client).unwrap();
    assert!(call::<Value>(client, "plain", &["1", "k"]).unwrap_err().to_string().contains("OOM"));
    assert_eq!(call::<String>(client, "oom", &["1", "k"]).unwrap(), "OK");
    let full = load(client, "more", "redis.register_function('more', function() end)").unwrap_err();
    assert!(full.to_string().contains("OOM"), "{full}");
}
