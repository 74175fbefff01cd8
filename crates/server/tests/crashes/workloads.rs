//! The workloads: for each type of structure the commands that change it, each with the new contents of the keys that it changes.
//!
//! The contents are written out here, so the expectation does not depend on the code of the server.

use crash::Step;

use super::subject::{Commands, Op, expanded};

/// One pipeline of commands, separated by ` | `, and the changed keys with their contents. `#` is a long value.
type Line = (&'static str, &'static [(&'static str, &'static str)]);

fn commands(&(line, changes): &Line) -> Commands {
    Commands {
        lines: line.split(" | ").map(str::to_owned).collect(),
        changes: changes.iter().map(|(key, text)| ((*key).to_owned(), expanded(text))).collect(),
    }
}

pub fn run(line: &'static str, changes: &'static [(&'static str, &'static str)]) -> Op {
    Op::Run(commands(&(line, changes)))
}

pub fn apart(line: &'static str, changes: &'static [(&'static str, &'static str)]) -> Op {
    Op::Apart(commands(&(line, changes)))
}

fn all(lines: &[Line]) -> Vec<Op> {
    lines.iter().map(|line| Op::Run(commands(line))).collect()
}

fn with_garbage(lines: &[Line]) -> Vec<Op> {
    [all(lines), vec![Op::Kill, Op::Collect, Op::Maintain]].concat()
}

/// Commands that have the same effect if they run again. They may be cut by a crash and repeated.
const REPEATABLE: [&str; 17] = [
    "HSET",
    "HDEL",
    "SADD",
    "SREM",
    "SMOVE",
    "ZADD",
    "ZREM",
    "GEOADD",
    "LSET",
    "XACK",
    "XDEL",
    "DEL",
    "UNLINK",
    "SET",
    "PEXPIREAT",
    "PERSIST",
    "PFADD",
];

/// The steps of a workload. If `cuts`, each operation that may be repeated first runs to a crash at a random event. So the later operations
/// run on lines that recovery left unflushed.
pub fn steps(ops: Vec<Op>, cuts: bool) -> Vec<Step<Op>> {
    let is_repeatable = |op: &Op| match op {
        Op::Run(Commands { lines, .. }) if lines.len() == 1 => {
            REPEATABLE.contains(&lines[0].split(' ').next().unwrap_or_default())
        }
        _ => false,
    };
    let cut = |op: &Op| (cuts && is_repeatable(op)).then(|| Step::Cut(op.clone()));
    ops.into_iter().flat_map(|op| cut(&op).into_iter().chain([Step::Run(op)])).collect()
}

/// Elements of a large structure.
const LARGE: usize = 260;

/// The name of each workload, and its operations.
pub fn workloads() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        ("hashes", hashes()),
        ("sets", sets()),
        ("sorted sets", sorted_sets()),
        ("lists", lists()),
        ("streams", streams()),
        ("keys", keys()),
        ("several types", several()),
        ("functions", functions()),
        ("dumps", dumps()),
        ("chance", chance()),
        ("eviction", eviction()),
    ]
}

pub fn hashes() -> Vec<Op> {
    with_garbage(&[
        ("HSET h a 1 b 2", &[("h", "hash a=1 b=2")]),
        ("HSET h b 3 c #", &[("h", "hash a=1 b=3 c=#")]),
        ("HINCRBY h a 5", &[("h", "hash a=6 b=3 c=#")]),
        ("HDEL h b c", &[("h", "hash a=6")]),
        ("PEXPIREAT h 4102444800000", &[("h", "hash a=6 until 4102444800000")]),
        ("HSET h d 4", &[("h", "hash a=6 d=4 until 4102444800000")]),
        ("PERSIST h", &[("h", "hash a=6 d=4")]),
        ("HDEL h a d", &[("h", "")]),
        ("HSET h z 26", &[("h", "hash z=26")]),
        ("HSETNX h y 25", &[("h", "hash y=25 z=26")]),
        ("DEL h", &[("h", "")]),
        ("HSET h z 1", &[("h", "hash z=1")]),
    ])
}

fn sets() -> Vec<Op> {
    with_garbage(&[
        ("SADD s a b c", &[("s", "set a b c")]),
        ("SREM s a", &[("s", "set b c")]),
        ("SMOVE s t b", &[("s", "set c"), ("t", "set b")]),
        ("SADD t c d", &[("t", "set b c d")]),
        ("SINTERSTORE u s t", &[("u", "set c")]),
        ("SUNIONSTORE s s t", &[("s", "set b c d")]),
        ("SPOP u", &[("u", "")]),
        ("SMOVE s t b", &[("s", "set c d")]),
        ("SDIFFSTORE s s t", &[("s", "")]),
        ("SADD s e", &[("s", "set e")]),
        ("SMOVE s u e", &[("s", ""), ("u", "set e")]),
        ("SPOP t 3", &[("t", "")]),
    ])
}

fn sorted_sets() -> Vec<Op> {
    with_garbage(&[
        ("ZADD z 1 a 2 b", &[("z", "zset a:1 b:2")]),
        ("ZADD z 3 a 4 c", &[("z", "zset b:2 a:3 c:4")]),
        ("ZINCRBY z -9 b", &[("z", "zset b:-7 a:3 c:4")]),
        ("ZREM z c", &[("z", "zset b:-7 a:3")]),
        ("ZADD y 5 a 6 d", &[("y", "zset a:5 d:6")]),
        ("ZUNIONSTORE z 2 z y", &[("z", "zset b:-7 d:6 a:8")]),
        ("ZINTERSTORE x 2 z y", &[("x", "zset d:12 a:13")]),
        ("ZPOPMIN z", &[("z", "zset d:6 a:8")]),
        ("ZRANGESTORE x z 0 0", &[("x", "zset d:6")]),
        ("ZREMRANGEBYSCORE z -inf +inf", &[("z", "")]),
        ("GEOADD z 13.361389 38.115556 p", &[("z", "zset p:3479099956230698")]),
        ("ZREM y a d", &[("y", "")]),
    ])
}

fn lists() -> Vec<Op> {
    with_garbage(&[
        ("RPUSH l a b c", &[("l", "list a b c")]),
        ("LPUSH l z", &[("l", "list z a b c")]),
        ("LINSERT l BEFORE b #", &[("l", "list z a # b c")]),
        ("LSET l 0 y", &[("l", "list y a # b c")]),
        ("LREM l 1 #", &[("l", "list y a b c")]),
        ("RPOP l", &[("l", "list y a b")]),
        ("LMOVE l m LEFT RIGHT", &[("l", "list a b"), ("m", "list y")]),
        ("LMOVE l l LEFT RIGHT", &[("l", "list b a")]),
        ("LPUSH l 1 2 3", &[("l", "list 3 2 1 b a")]),
        ("LTRIM l 1 2", &[("l", "list 2 1")]),
        ("RPOPLPUSH m n", &[("m", ""), ("n", "list y")]),
        ("BLMOVE n m LEFT LEFT 0", &[("n", ""), ("m", "list y")]),
        ("LPOP l 2", &[("l", "")]),
        ("LMPOP 2 l m RIGHT", &[("m", "")]),
        ("LPUSH l q r", &[("l", "list r q")]),
        ("BLPOP l 0", &[("l", "list q")]),
    ])
}

fn streams() -> Vec<Op> {
    with_garbage(&[
        ("XADD x 1-1 f v", &[("x", "stream 1-1[f v] last 1-1")]),
        ("XGROUP CREATE x g 0", &[("x", "stream 1-1[f v] last 1-1 group g at 0-0")]),
        ("XADD x 2-1 f w", &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 0-0")]),
        (
            "XREADGROUP GROUP g ann COUNT 1 STREAMS x >",
            &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 1-1 1-1:ann:1")],
        ),
        (
            "XREADGROUP GROUP g bob STREAMS x >",
            &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 2-1 1-1:ann:1 2-1:bob:1")],
        ),
        ("XACK x g 1-1", &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 2-1 2-1:bob:1")]),
        ("XAUTOCLAIM x g eve 0 0", &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 2-1 2-1:eve:2")]),
        ("XCLAIM x g ann 0 2-1", &[("x", "stream 1-1[f v] 2-1[f w] last 2-1 group g at 2-1 2-1:ann:3")]),
        ("XDEL x 1-1", &[("x", "stream 2-1[f w] last 2-1 group g at 2-1 2-1:ann:3")]),
        ("XADD x MAXLEN 1 3-1 f #", &[("x", "stream 3-1[f #] last 3-1 group g at 2-1 2-1:ann:3")]),
        ("XGROUP DELCONSUMER x g ann", &[("x", "stream 3-1[f #] last 3-1 group g at 2-1")]),
        ("XTRIM x MAXLEN 0", &[("x", "stream last 3-1 group g at 2-1")]),
        ("XGROUP SETID x g 3-1", &[("x", "stream last 3-1 group g at 3-1")]),
        ("XADD x 4-1 f v", &[("x", "stream 4-1[f v] last 4-1 group g at 3-1")]),
        ("XREADGROUP GROUP g eve STREAMS x >", &[("x", "stream 4-1[f v] last 4-1 group g at 4-1 4-1:eve:1")]),
        ("XGROUP DESTROY x g", &[("x", "stream 4-1[f v] last 4-1")]),
        ("DEL x", &[("x", "")]),
        // An ID that lies in the future: the server's next one is known.
        ("XADD x 99999999999999-1 f v", &[("x", "stream 99999999999999-1[f v] last 99999999999999-1")]),
        (
            "XADD x * f w",
            &[("x", "stream 99999999999999-1[f v] 99999999999999-2[f w] last 99999999999999-2")],
        ),
    ])
}

/// Libraries of functions, and calls of these.
fn functions() -> Vec<Op> {
    with_garbage(&[
        (
            "FUNCTION LOAD '#!lua name=one\nredis.register_function(\"f\", function(keys) redis.call(\"HSET\", keys[1], \"a\", 1) \
             redis.call(\"RPUSH\", keys[2], \"b\") return 1 end)'",
            &[("library:one", "1 functions")],
        ),
        ("FCALL f 2 h l", &[("h", "hash a=1"), ("l", "list b")]),
        ("FCALL f 2 i l", &[("i", "hash a=1"), ("l", "list b b")]),
        ("FCALL f 2 h m", &[("m", "list b")]),
        ("FCALL f 2 j m", &[("j", "hash a=1"), ("m", "list b b")]),
        (
            "FUNCTION LOAD '#!lua name=two\nredis.register_function(\"g\", function(keys) return redis.call(\"DEL\", keys[1]) end)'",
            &[("library:two", "1 functions")],
        ),
        (
            "FUNCTION LOAD REPLACE '#!lua name=one\nredis.register_function(\"f\", function(keys) return redis.call(\"SADD\", keys[1], \
             \"c\") end) redis.register_function(\"e\", function() return 0 end)'",
            &[("library:one", "2 functions")],
        ),
        ("FCALL g 1 h", &[("h", "")]),
        ("FCALL f 1 h", &[("h", "set c")]),
        ("FCALL g 1 m", &[("m", "")]),
        ("FCALL f 1 m", &[("m", "set c")]),
        (
            "MULTI | SADD n a | FUNCTION LOAD '#!lua name=three\nredis.register_function(\"d\", function(keys) return \
             redis.call(\"SADD\", keys[1], \"d\") end)' | FCALL d 1 n | FUNCTION DELETE two | EXEC",
            &[("n", "set a d"), ("library:three", "1 functions"), ("library:two", "")],
        ),
        ("FUNCTION DELETE one", &[("library:one", "")]),
        ("FUNCTION FLUSH", &[("library:three", "")]),
    ])
}

/// Values of each type that RESTORE stores in place of others. A script passes the payloads on.
fn dumps() -> Vec<Op> {
    with_garbage(&[
        ("HSET h a 1 b #", &[("h", "hash a=1 b=#")]),
        ("RPUSH l a b", &[("l", "list a b")]),
        ("XADD x 1-1 f v", &[("x", "stream 1-1[f v] last 1-1")]),
        ("XGROUP CREATE x g 0", &[("x", "stream 1-1[f v] last 1-1 group g at 0-0")]),
        (
            "EVAL 'return redis.call(\"RESTORE\", KEYS[2], 0, redis.call(\"DUMP\", KEYS[1]), \"REPLACE\")' 2 h k",
            &[("k", "hash a=1 b=#")],
        ),
        (
            "EVAL 'return redis.call(\"RESTORE\", KEYS[2], 0, redis.call(\"DUMP\", KEYS[1]), \"REPLACE\")' 2 l k",
            &[("k", "list a b")],
        ),
        (
            "EVAL 'return redis.call(\"RESTORE\", KEYS[2], 0, redis.call(\"DUMP\", KEYS[1]), \"REPLACE\")' 2 x k",
            &[("k", "stream 1-1[f v] last 1-1 group g at 0-0")],
        ),
        (
            "EVAL 'return redis.call(\"RESTORE\", KEYS[2], 0, redis.call(\"DUMP\", KEYS[1]), \"REPLACE\")' 2 k l",
            &[("l", "stream 1-1[f v] last 1-1 group g at 0-0")],
        ),
    ])
}

/// A set and a sorted set that are larger than one step of the removal of garbage, and the operations on them.
pub fn large() -> [Vec<Op>; 2] {
    let members: Vec<String> = (0..LARGE).map(|number| format!("m{number:03}")).collect();
    let made = |line: String, (key, text): (&str, String)| {
        Op::Run(Commands { lines: vec![line], changes: vec![(key.to_owned(), text)] })
    };
    let (all, rest) = (members.join(" "), members[1..].join(" "));
    let (scored, scores): (Vec<_>, Vec<_>) =
        members.iter().map(|member| (format!("1 {member}"), format!("{member}:1"))).unzip();
    let before = vec![
        made(format!("SADD s {all}"), ("s", format!("set {all}"))),
        made(format!("ZADD z {}", scored.join(" ")), ("z", format!("zset {}", scores.join(" ")))),
    ];
    let after = [
        vec![
            made("SREM s m000".to_owned(), ("s", format!("set {rest}"))),
            made("ZINCRBY z -1 m000".to_owned(), ("z", format!("zset m000:0 {}", scores[1..].join(" ")))),
        ],
        with_garbage(&[("DEL s", &[("s", "")]), ("SADD z2 a", &[("z2", "set a")])]),
        with_garbage(&[("RENAME z2 z", &[("z2", ""), ("z", "set a")])]),
    ];
    [before, after.concat()]
}

/// Commands on keys of any type: deletion, deadlines, other names, other databases.
fn keys() -> Vec<Op> {
    let before = all(&[
        ("HSET h a 1 b 2", &[("h", "hash a=1 b=2")]),
        ("RENAME h i", &[("h", ""), ("i", "hash a=1 b=2")]),
        ("COPY i h", &[("h", "hash a=1 b=2")]),
        ("SET i text", &[("i", "string text")]),
        ("RENAME h i", &[("h", ""), ("i", "hash a=1 b=2")]),
        ("RPUSH l a b", &[("l", "list a b")]),
        ("MOVE l 1", &[("l", ""), ("1/l", "list a b")]),
        ("RPUSH l c", &[("l", "list c")]),
        ("SADD s a b", &[("s", "set a b")]),
        ("DEL i s", &[("i", ""), ("s", "")]),
        ("SADD i a", &[("i", "set a")]),
        ("PEXPIREAT i 5000", &[("i", "set a until 5000")]),
        ("PEXPIREAT l 9000", &[("l", "list c until 9000")]),
    ]);
    let passed = Op::Expire(6000, vec![("i".to_owned(), String::new())]);
    let after = all(&[
        ("SADD i b", &[("i", "set b")]),
        ("UNLINK i", &[("i", "")]),
        ("SORT l ALPHA STORE m", &[("m", "list c")]),
        ("SWAPDB 0 1", &[("1/l", "list c until 9000"), ("1/m", "list c"), ("l", "list a b"), ("m", "")]),
        ("PFADD p a b", &[("p", "about 2")]),
        ("FLUSHDB", &[("l", ""), ("p", "")]),
    ]);
    let ends = vec![Op::Collect, Op::Reopen, Op::Maintain];
    [before, vec![passed, Op::Collect], after, ends].concat()
}

/// Members that are removed by chance, one and several.
fn chance() -> Vec<Op> {
    with_garbage(&[
        ("SADD any a b c d e f g h", &[("any", "set any any any any any any any any")]),
        ("SPOP any", &[("any", "set any any any any any any any")]),
        ("SPOP any 2", &[("any", "set any any any any any")]),
        // More than a half.
        ("SPOP any 4", &[("any", "set any")]),
        ("SADD any x y #", &[("any", "set any any any any")]),
        ("SPOP any 9", &[("any", "")]),
        ("SADD any2 # x y z", &[("any2", "set any any any any")]),
        ("SPOP any2 3", &[("any2", "set any")]),
        ("SADD any2 k l", &[("any2", "set any any any")]),
        ("EVAL 'return redis.call(\"SPOP\", KEYS[1], 2)' 1 any2", &[("any2", "set any")]),
        ("SPOP any2", &[("any2", "")]),
    ])
}

/// Structures of all types that are evicted, each as a whole, and new ones in their places.
fn eviction() -> Vec<Op> {
    const KEYS: [&str; 6] = ["h", "l", "n", "s", "x", "z"];
    let made = all(&[
        (
            "MULTI | SET n 1 | HSET h a 1 b # | SADD s a b | ZADD z 1 a 2 b | RPUSH l a b | XADD x 1-1 f v | SADD t a | EXEC",
            &[
                ("h", "hash a=1 b=#"),
                ("l", "list a b"),
                ("n", "string 1"),
                ("s", "set a b"),
                ("t", "set a"),
                ("x", "stream 1-1[f v] last 1-1"),
                ("z", "zset a:1 b:2"),
            ],
        ),
        (
            "MULTI | PEXPIREAT n 4102444800001 | PEXPIREAT h 4102444800002 | PEXPIREAT s 4102444800003 | PEXPIREAT z 4102444800004 | \
             PEXPIREAT l 4102444800005 | PEXPIREAT x 4102444800006 | EXEC",
            &[
                ("h", "hash a=1 b=# until 4102444800002"),
                ("l", "list a b until 4102444800005"),
                ("n", "string 1 until 4102444800001"),
                ("s", "set a b until 4102444800003"),
                ("x", "stream 1-1[f v] last 1-1 until 4102444800006"),
                ("z", "zset a:1 b:2 until 4102444800004"),
            ],
        ),
    ]);
    let evicted = Op::Evict(KEYS.map(|key| (key.to_owned(), String::new())).to_vec());
    let after = with_garbage(&[
        ("HSET h a 2", &[("h", "hash a=2")]),
        ("ZADD z 3 a", &[("z", "zset a:3")]),
        ("RPUSH l c", &[("l", "list c")]),
    ]);
    [made, vec![evicted], after].concat()
}

/// Transactions, scripts and pipelines on several types.
fn several() -> Vec<Op> {
    with_garbage(&[
        (
            "MULTI | SET n 1 | HSET h a 1 | SADD s a | ZADD z 1 a | RPUSH l a | XADD x 1-1 f v | EXEC",
            &[
                ("h", "hash a=1"),
                ("l", "list a"),
                ("n", "string 1"),
                ("s", "set a"),
                ("x", "stream 1-1[f v] last 1-1"),
                ("z", "zset a:1"),
            ],
        ),
        (
            "EVAL 'redis.call(\"HSET\", KEYS[1], \"b\", 2) redis.call(\"RPUSH\", KEYS[2], \"b\") return 1' 2 h l",
            &[("h", "hash a=1 b=2"), ("l", "list a b")],
        ),
        (
            "HSET h a 3 | RPUSH l c | ZADD z 2 b | SADD s b",
            &[("h", "hash a=3 b=2"), ("l", "list a b c"), ("s", "set a b"), ("z", "zset a:1 b:2")],
        ),
        (
            "MULTI | INCR n | LMOVE l m LEFT RIGHT | SREM s a b | HDEL h a | EXEC",
            &[("n", "string 2"), ("l", "list b c"), ("m", "list a"), ("s", ""), ("h", "hash b=2")],
        ),
        (
            "MULTI | DEL h | HSET h c 1 | RENAME z s | EXPIREAT m 4102444800 | EXEC",
            &[("h", "hash c=1"), ("s", "zset a:1 b:2"), ("z", ""), ("m", "list a until 4102444800000")],
        ),
        (
            "EVAL 'for _, key in ipairs(KEYS) do redis.call(\"DEL\", key) end return 1' 3 h s x",
            &[("h", ""), ("s", ""), ("x", "")],
        ),
    ])
}
