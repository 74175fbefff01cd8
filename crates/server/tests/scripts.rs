//! Scripts: the same ones to this server and to Debian's `redis-server`, and what that comparison does not cover: their limits, what one
//! leaves behind for the next, and that each takes effect as a whole.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult, Value, cmd};

use crate::common::{TestServer, eventually};
use crate::differential::{Redis, exchange, text};

/// Scripts, and after `|` the number of keys, keys and arguments. Each reply is that of Redis, byte by byte, with both versions of the
/// protocol. The scripts run in this order, so that one sees what those before it wrote.
const SCRIPTS: &[&str] = &[
    // Results.
    "return 1|0",
    "return 3.99|0",
    "return -3.99|0",
    "return 'text'|0",
    "return|0",
    "return nil|0",
    "return true|0",
    "return false|0",
    "return {1, 2, {3, 'four'}, nil, 5}|0",
    "return {}|0",
    "return {ok = 'FINE'}|0",
    "return {err = 'MY error'}|0",
    "return {err = 'word'}|0",
    "return {double = 3.5}|0",
    "return {1, true, false, {ok = 'x'}}|0",
    "return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}|2 a b c d",
    "return KEYS[3]|2 a b c",
    "return redis.status_reply('GOOD')|0",
    "return redis.error_reply('BAD thing')|0",
    "return redis.error_reply('-BAD thing')|0",
    "return redis.sha1hex('')|0",
    "return redis.sha1hex(12)|0",
    "redis.setresp(3) return true|0",
    "redis.setresp(3) return {false, true, {double = 1.25}, {map = {a = 1}}, {set = {b = true}}}|0",
    "return {map = {a = 1}}|0",
    // Commands.
    "return redis.call('set', KEYS[1], ARGV[1])|1 k1 v1",
    "return redis.call('get', KEYS[1])|1 k1",
    "return redis.call('get', KEYS[1]) == false|1 absent",
    "return type(redis.call('get', 'absent'))|0",
    "return redis.call('incrby', 'n', 5)|0",
    "return redis.call('incrby', 'n', 2.0)|0",
    "return redis.call('append', 'f', 1.5)|0",
    "return redis.call('append', 'f', 0.1)|0",
    "return redis.call('get', 'f')|0",
    "return redis.call('rpush', 'l', 'a', 'b', 'c')|0",
    "return redis.call('lrange', 'l', 0, -1)|0",
    "return #redis.call('lrange', 'l', 0, -1)|0",
    "return redis.call('mget', 'k1', 'absent', 'k1')|0",
    "return redis.call('hset', 'h', 'f', 1, 'g', 2)|0",
    "return redis.call('hget', 'h', 'f')|0",
    "return redis.call('hmget', 'h', 'f', 'x', 'g')|0",
    "redis.setresp(3) return redis.call('hgetall', 'h')['map']['g']|0",
    "redis.setresp(3) return type(redis.call('get', 'absent'))|0",
    "return redis.call('zadd', 'z', 1, 'a', 2.5, 'b')|0",
    "return redis.call('zrange', 'z', 0, -1, 'withscores')|0",
    "return redis.call('zscore', 'z', 'b')|0",
    "redis.setresp(3) return redis.call('zscore', 'z', 'b').double|0",
    "return redis.call('ping')|0",
    "return redis.call('echo', 'hello')|0",
    "redis.call('select', 3) redis.call('set', 'there', 1) return redis.call('get', 'k1')|0",
    "return redis.call('get', 'there')|0",
    "return redis.call('expire', 'k1', 1000)|0",
    "return redis.call('ttl', 'k1') > 990|0",
    "return redis.call('del', 'k1', 'absent')|0",
    "return redis.call('type', 'z')|0",
    "return redis.call('type', 'z').ok|0",
    "return redis.call('object', 'encoding', 'n')|0",
    "for i = 1, 10 do redis.call('rpush', 'many', i) end return redis.call('llen', 'many')|0",
    "return redis.call('lpop', 'many', 3)|0",
    "return redis.call('spop', 'absent')|0",
    // Errors.
    "return redis.call('incr', 'l')|0",
    "return redis.pcall('incr', 'l')|0",
    "return redis.pcall('incr', 'l').err|0",
    "return redis.pcall('incr', 'l')['err'] .. '!'|0",
    "local good, what = pcall(redis.call, 'incr', 'l') return {good, what.err}|0",
    "return redis.call('nosuch')|0",
    "return redis.pcall('nosuch')|0",
    "return redis.call('get')|0",
    "return redis.call()|0",
    "return redis.call('set', 'k', {})|0",
    "return redis.call('set', 'k', true)|0",
    "return redis.call('multi')|0",
    "return redis.call('subscribe', 'c')|0",
    "return redis.call('blpop', 'l', 1)|0",
    "return redis.call('eval', 'return 1', 0)|0",
    "return redis.call('auth', 'x')|0",
    "return redis.call('config', 'get', 'x')|0",
    "return redis.call('script', 'flush')|0",
    "error('my own')|0",
    "error({err = 'MINE as a table'})|0",
    "\n\nerror('on line 3')|0",
    "local function f() error('inside') end\nf()|0",
    "return nosuch|0",
    "x = 1|0",
    "return undefined.field|0",
    "local t = nil return t.x|0",
    "return 1 + {}|0",
    "return (|0",
    "this is no Lua|0",
    "redis.call('set', 'kept', 1) error('after a write')|0",
    "return redis.call('get', 'kept')|0",
    "redis.call('set', 'kept', 2) return redis.call('incr', 'l')|0",
    "return redis.call('get', 'kept')|0",
    "return redis.error_reply()|0",
    "return redis.status_reply({})|0",
    "return redis.setresp(4)|0",
    "return redis.setresp()|0",
    "return redis.sha1hex()|0",
    "redis.log(1)|0",
    "redis.log('x', 'y')|0",
    "redis.log(redis.LOG_DEBUG, 'a line', 2)|0",
    // What scripts may not change or use.
    "string.format = nil|0",
    "redis.call = nil|0",
    "KEYS = {}|0",
    "local k = KEYS k[1] = 'x' return k|0",
    "return print|0",
    "return dofile|0",
    "return loadfile|0",
    "return require|0",
    "return io|0",
    "return debug|0",
    "return package|0",
    "return os.time|0",
    "return type(os.clock())|0",
    "return setfenv|0",
    "return type(_G)|0",
    "_G.x = 1|0",
    "return _VERSION|0",
    // The language and its libraries.
    "local t = {} for w in string.gmatch('a b c', '%a') do t[#t + 1] = w end return t|0",
    "return string.format('%05.1f|%s|%q', 3.14159, 'x', 'y')",
    "return ('abc'):upper() .. string.rep('x', 3) .. ('hello'):sub(2, 3)|0",
    "return {tostring(1), tostring(1.5), tostring(nil), tostring(true), tonumber('0x10'), tonumber('z', 36)}|0",
    "local t = {3, 1, 2} table.sort(t) return t|0",
    "return table.concat({1, 2, 3}, ',')|0",
    "return {unpack({1, 2, 3})}|0",
    "return select('#', 1, nil, 3)|0",
    "return {math.floor(3.7), math.max(1, 5, 2), math.abs(-3), math.pi > 3}|0",
    "local c = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end) return {c(), c()}|0",
    "return loadstring('return 5')()|0",
    "local parts = {'return ', '6'} return load(function() return table.remove(parts, 1) end)()|0",
    "return {loadstring('return (')}|0",
    "local t = setmetatable({}, {__index = function(_, k) return k .. '!' end}) return t.x|0",
    "return {pcall(error, 'x')}|0",
    "return select('#', pcall(function() end))|0",
    "return select('#', pcall(function() return nil, nil end))|0",
    "return {xpcall(function() error('y', 0) end, function(e) return e .. '?' end)}|0",
    "return #{1, 2, 3} + (7 % 3) + 2 ^ 3|0",
    "goto = 1|0",
    // bit
    "return {bit.band(0xff, 0x0f), bit.bor(1, 2, 4), bit.bxor(5, 1), bit.bnot(0)}|0",
    "return {bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-256, 4), bit.rol(0x12345678, 8), bit.ror(1, 1)}|0",
    "return {bit.tobit(0xffffffff), bit.tohex(255), bit.tohex(255, 4), bit.tohex(255, -4), bit.bswap(1)}|0",
    "return bit.band('7', 3)|0",
    // cjson
    "return cjson.encode({1, 2, 'three', true, cjson.null})|0",
    "return cjson.encode({a = 'x'})|0",
    "return cjson.encode({})|0",
    "return cjson.encode('with \"quotes\" \\\\ / \\n \\t \\1')|0",
    "return cjson.encode(1.5) .. cjson.encode(10) .. cjson.encode(1e20) .. cjson.encode(0.1)|0",
    "return cjson.encode({[1] = 'a', [3] = 'c'})|0",
    "return cjson.encode({[1000] = 'far'})|0",
    "return cjson.encode({[1.5] = 'x'})|0",
    "local t = cjson.decode('{\"a\": [1, 2.5, \"x\", null, true], \"b\": {}}') return {t.a[1], tostring(t.a[2]), t.a[3], t.a[4] == cjson.null, t.a[5], type(t.b)}|0",
    "return cjson.decode('\"\\\\u00e9\\\\n\"')|0",
    "return cjson.decode('[1, 2, [3]]')|0",
    "return pcall(cjson.decode, '{broken')|0",
    "return pcall(cjson.encode, function() end)|0",
    // cmsgpack
    "return cmsgpack.pack(1, -1, 300, 70000, -40000, 'text', true, nil)|0",
    "return cmsgpack.pack({1, 2, 3}) .. cmsgpack.pack({a = 1}) .. cmsgpack.pack({})|0",
    "return cmsgpack.pack(1.5) .. cmsgpack.pack(0.1)|0",
    "return cmsgpack.pack(string.rep('x', 300))|0",
    "return {cmsgpack.unpack(cmsgpack.pack('a', 2, {3, {4}}))}|0",
    "local t = cmsgpack.unpack(cmsgpack.pack({k = 'v', n = 9})) return {t.k, t.n}|0",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}|0",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 1)}|0",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}|0",
    "return pcall(cmsgpack.unpack, '\\200')|0",
    // struct
    "return struct.pack('>I2', 258) .. struct.pack('<I4', 1) .. struct.pack('>i8', -2)|0",
    "return struct.pack('bBhHlLs', -1, 255, -2, 65535, 7, 8, 'end')|0",
    "return struct.pack('>d', 1.5) .. struct.pack('<f', -0.25)|0",
    "return struct.pack('c3c0', 'abcdef', 'whole')|0",
    "return {struct.unpack('>I2I2', '\\0\\1\\0\\2')}|0",
    "return {struct.unpack('>Bc0', '\\3abcdef')}|0",
    "return {struct.unpack('s', 'zero\\0rest')}|0",
    "return {struct.unpack('>i2', '\\255\\254')}|0",
    "return struct.size('!8 bi8')|0",
    "return struct.size('i4hb')|0",
    "return pcall(struct.unpack, '>I4', 'ab')|0",
];

/// Other commands about scripts.
const COMMANDS: &[&str] = &[
    "EVAL",
    "EVAL 'return 1'",
    "EVAL 'return 1' x",
    "EVAL 'return 1' -1",
    "EVAL 'return 1' 2 a",
    "EVALSHA 0000000000000000000000000000000000000000 0",
    "EVALSHA short 0",
    "SCRIPT LOAD 'return 7'",
    "EVALSHA b29c5e9d8a7a5a5d3f3f6b7e1b3e2f6b5a1c0d9e 0",
    "EVALSHA 3BE7B11D2D4FE5ADD8E8F5CA0B1E32FF2B2C0BB2 0",
    "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0000000000000000000000000000000000000000",
    "EVAL 'return 1' 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "EVALSHA_RO E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0",
    "EVAL_RO \"return redis.call('set','ro',1)\" 0",
    "EVAL_RO \"return redis.pcall('set','ro',1)\" 0",
    "EVAL_RO \"return redis.call('get','ro')\" 0",
    "EVAL '#!lua\nreturn 2' 0",
    "EVAL '#!lua flags=no-writes\nreturn redis.call(\"set\",\"ro\",1)' 0",
    "EVAL '#!lua flags=nosuch\nreturn 2' 0",
    "EVAL '#!python\nreturn 2' 0",
    "SCRIPT LOAD 'return ('",
    "SCRIPT EXISTS 728acb63e2aaef0ee859ece5db586bff5d800d1e",
    "SCRIPT KILL",
    "SCRIPT FLUSH x",
    "SCRIPT FLUSH",
    "SCRIPT FLUSH ASYNC",
    "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
    "SCRIPT EXISTS",
    "SCRIPT NOSUCH",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "MULTI",
    "EVAL \"redis.call('set','in',1) return redis.call('get','in')\" 0",
    "EVAL \"return redis.call('incr','in')\" 0",
    "EVAL \"error('x')\" 0",
    "EVAL 'return (' 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "EXEC",
    "GET in",
];

/// Words of a line; a word may be in quotes.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line);
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '\'' | '"' => rest[1..].split_once(first).unwrap(),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.as_bytes().to_vec());
        rest = behind.trim_start_matches(' ');
    }
    words
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn scripts_answer_as_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    let server = TestServer::start();
    let mut wrong = Vec::new();
    for hello in ["2", "3"] {
        let mut sockets = [redis.address, server.address].map(|address| TcpStream::connect(address).unwrap());
        let greeting = vec![b"HELLO".to_vec(), hello.as_bytes().to_vec()];
        let clear = vec![b"FLUSHALL".to_vec()];
        for socket in &mut sockets {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            exchange(socket, &[greeting.clone(), clear.clone()], "ready");
        }
        let scripts = SCRIPTS.iter().map(|line| {
            let (script, arguments) = line
                .rsplit_once('|')
                .filter(|(_, rest)| rest.starts_with(char::is_numeric))
                .unwrap_or((line, "0"));
            let mut command = vec![b"EVAL".to_vec(), script.as_bytes().to_vec()];
            command.extend(words(arguments));
            command
        });
        let commands = COMMANDS.iter().map(|line| words(line));
        let mut chunk = Vec::new();
        for command in scripts.chain(commands) {
            // A transaction is sent at once.
            let is_end = chunk.is_empty() && command[0] != b"MULTI" || command[0] == b"EXEC";
            chunk.push(command);
            if !is_end {
                continue;
            }
            let replies = sockets.each_mut().map(|socket| exchange(socket, &chunk, "end of reply"));
            if replies[0] != replies[1] {
                let [theirs, ours] = replies.map(|reply| shown(&reply));
                wrong.push(format!("RESP{hello}\n{}  Redis: {theirs}\n  here:  {ours}", text(&chunk)));
            }
            chunk.clear();
        }
    }
    assert!(wrong.is_empty(), "{} replies differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn eval<T: redis::FromRedisValue>(client: &mut Connection, script: &str) -> RedisResult<T> {
    cmd("EVAL").arg(script).arg(0).query(client)
}

#[test]
fn a_script_takes_effect_as_a_whole_beside_other_scripts() {
    const THREADS: i64 = 4;
    const RUNS: i64 = 150;
    let server = TestServer::start();
    let () = cmd("MSET").arg("a").arg(0).arg("b").arg(0).query(&mut server.client()).unwrap();
    let script = "local a, b = tonumber(redis.call('get', 'a')), tonumber(redis.call('get', 'b')) \
                  redis.call('set', 'a', a + 1) redis.call('set', 'b', b - 1) return a + b";
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = &mut server.client();
                for _ in 0..RUNS {
                    let sum: i64 = eval(client, script).unwrap();
                    assert_eq!(sum, 0, "a script saw a part of another one");
                }
            });
        }
    });
    let pair: (i64, i64) = cmd("MGET").arg("a").arg("b").query(&mut server.client()).unwrap();
    assert_eq!(pair, (THREADS * RUNS, -THREADS * RUNS));
}

#[test]
fn a_script_that_takes_too_long_is_stopped_and_changes_nothing() {
    let server = TestServer::start();
    let client = &mut server.client();
    let () = cmd("CONFIG").arg("SET").arg("lua-time-limit").arg(100).query(client).unwrap();
    let endless = [
        // Few instructions, whose commands take long.
        "for i = 1, 900 do redis.call('append', 'k', string.rep('x', 100000)) end",
        "redis.call('set', 'k', 1) while true do end",
        "redis.call('set', 'k', 1) while true do pcall(function() while true do end end) end",
        "redis.call('set', 'k', 1) local c = coroutine.wrap(function() while true do end end) c()",
        "redis.call('set', 'k', 1) while true do xpcall(function() while true do end end, function() end) end",
        "redis.call('set', 'k', 1) while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    ];
    for script in endless {
        let error = eval::<()>(client, script).unwrap_err().to_string();
        assert!(error.contains("lua-time-limit"), "{script}: {error}");
        let value: Option<i64> = cmd("GET").arg("k").query(client).unwrap();
        assert_eq!(value, None, "{script}");
    }
    let () = cmd("CONFIG").arg("SET").arg("lua-time-limit").arg(0).query(client).unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| eval::<()>(&mut server.client(), endless[2]).unwrap_err().to_string());
        // Other clients go on meanwhile.
        eventually("a script to kill", || cmd("SCRIPT").arg("KILL").query::<()>(client).is_ok());
        assert!(running.join().unwrap().contains("SCRIPT KILL"));
    });
    let value: Option<i64> = cmd("GET").arg("k").query(client).unwrap();
    assert_eq!(value, None);
}

#[test]
fn a_script_that_needs_too_much_memory_ends_and_the_server_goes_on() {
    let server = TestServer::start();
    let client = &mut server.client();
    // On a busy machine, a script may take long to fill the memory.
    let () = cmd("CONFIG").arg("SET").arg("lua-time-limit").arg(0).query(client).unwrap();
    let scripts = [
        (
            "memory",
            "redis.call('set', 'k', 1) local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 100000) .. i end",
        ),
        ("memory", "redis.call('set', 'k', 1) local s = 'x' while true do s = s .. s end"),
        // Replies of commands count, too.
        (
            "memory",
            "redis.call('set', 'k', string.rep('x', 65536)) local t = {} for i = 1, 8192 do t[i] = false end \
             for i = 1, 8192 do t[i] = redis.call('getrange', 'k', 0, -1 - i) end",
        ),
        ("stack", "local t = {} t[1] = t return t"),
        ("stack", "local function f() return f() + 1 end return f()"),
    ];
    for (limit, script) in scripts {
        let error = eval::<Value>(client, script).unwrap_err().to_string();
        assert!(error.contains(limit) && error.len() < 1000, "{script}: {error}");
        assert_eq!(eval::<i64>(client, "return 5").unwrap(), 5, "{script}");
    }
}

#[test]
fn a_script_leaves_nothing_for_the_next_one() {
    let server = TestServer::start();
    let client = &mut server.client();
    let attempts = [
        "rawset(_G, 'left', 1)",
        "rawset(string, 'left', 1)",
        "setmetatable(_G, nil)",
        "setmetatable(string, {})",
        "getmetatable('').__index.left = 1",
        "getmetatable(_G).__index.left = 1",
        "table.insert(string, 'left')",
        "table.insert(_G, 'left')",
        "local e = getfenv(0) e.left = 1",
        "loadstring('left = 1')()",
        "load(function() return nil end)",
        "assert(loadstring('\\27Lua'))",
        "local sent = false assert(load(function() if not sent then sent = true return '\\27Lua' end end))",
        "string.dump(function() end)",
        "math.randomseed(99)",
        "collectgarbage('stop')",
        "local t = redis t.left = 1",
    ];
    let seen = "return {type(rawget(_G, 'left')), type(rawget(string, 'left')), #string, #_G, ('x').left == nil, \
                tostring(math.random(1e6)), string.format('%d', 3)}";
    let clean: Vec<Value> = eval(client, seen).unwrap();
    for attempt in attempts {
        let _: RedisResult<Value> = eval(client, attempt);
        assert_eq!(eval::<Vec<Value>>(client, seen).unwrap(), clean, "{attempt}");
    }
}
