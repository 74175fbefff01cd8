//! Which commands change a key, for `WATCH` and for clients that track (both learn of changes from the same call): those that do in
//! `redis-server`. Not compared: commands of consumer groups, which change a stream only here; `LTRIM` that removes nothing and `PFCOUNT`,
//! which change a key only in Redis; `SETBIT` that stores an equal bit.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::TestServer;
use crate::differential::{Redis, exchange};

/// Make one key of each type.
const KEYS: &str = "FLUSHALL
SET str hello
SET n 10
RPUSH l a b a c
SADD s a b
HSET h f 1 g 2
ZADD z 1 a 2 b 3 c
XADD x 1-1 f v
XGROUP CREATE x g 0
GEOADD ge 1 1 a
PFADD pf a";

/// A key, and a command that may change it.
const COMMANDS: &str = "str APPEND str x
str SET str y
str SET str hello
str SET str v NX
str SET str v XX
str SETNX str v
str SETEX str 100 v
str GETDEL str
str GETSET str v
str GETEX str
str GETEX str EX 100
str GETEX str PERSIST
str EXPIRE str 100
str EXPIRE str -1
str EXPIRE str 100 XX
str PEXPIREAT str 1
str PERSIST str
str SETRANGE str 1 x
str SETBIT str 1 0
str BITFIELD str SET u8 0 1
str BITFIELD str GET u8 0
str BITOP NOT str n
str INCR str
str MSET n b str a
str MSETNX new b str a
str RENAME n str
str RENAME str n
str RENAMENX n str
n RENAME n str
str COPY n str
str COPY n str REPLACE
n COPY n str REPLACE
str MOVE str 1
str TOUCH str
str DEL l str
str UNLINK str
n INCR n
n DECRBY n 0
n INCRBYFLOAT n 1
l LPUSH l x
l LPUSHX l x
l LPOP l
l RPOP l 2
l LMPOP 1 l LEFT
l LMOVE l l2 LEFT LEFT
l2 LMOVE l l2 LEFT LEFT
l RPOPLPUSH l l
l BLPOP new l 1
l BLMOVE l l2 LEFT LEFT 1
l LSET l 0 q
l LSET l 9 q
l LREM l 1 a
l LREM l 1 nope
l LTRIM l 0 0
l LTRIM l 5 6
l LINSERT l BEFORE b q
l LINSERT l BEFORE nope q
l SORT l ALPHA STORE l
s SADD s a
s SADD s new
s SREM s a
s SREM s nope
s SPOP s
s SPOP s 9
s SMOVE s s2 a
s SMOVE s s2 nope
s2 SMOVE s s2 a
s SUNIONSTORE s s
s SINTERSTORE s s nope
s SDIFFSTORE s s s
h HSET h f 1
h HSET h new 1
h HSETNX h f 3
h HDEL h f
h HDEL h nope
h HINCRBY h f 1
h HINCRBYFLOAT h f 1
z ZADD z 1 a
z ZADD z 9 a
z ZADD z XX 9 nope
z ZREM z a
z ZREM z nope
z ZINCRBY z 1 a
z ZPOPMIN z
z ZMPOP 1 z MIN
z BZPOPMAX new z 1
z ZREMRANGEBYRANK z 0 0
z ZREMRANGEBYSCORE z 50 60
z ZREMRANGEBYLEX z [a [b
z ZUNIONSTORE z 1 z
z ZUNIONSTORE z 1 nope
z ZRANGESTORE z z 0 -1
z GEOSEARCHSTORE z ge FROMLONLAT 1 1 BYRADIUS 1 km
x XADD x * a b
x XDEL x 1-1
x XDEL x 9-9
x XTRIM x MAXLEN 0
x XACK x g 1-1
ge GEOADD ge 1 1 a
ge GEOADD ge 2 2 a
pf PFADD pf a
pf PFADD pf new
pf PFMERGE pf pf
str EVAL return(redis.call('SET',KEYS[1],'v')) 1 str
str EVAL return(redis.pcall('LPUSH',KEYS[1],'v')) 1 str
new SET new v
new DEL new
new LPUSH new v
new LPUSHX new v
new EXPIRE new 3
new COPY str new
new SUNIONSTORE new nope
new ZUNIONSTORE new 1 nope
str SWAPDB 0 1
str FLUSHDB
str FLUSHALL";

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Two clients of a server: one watches, the other one changes.
struct Pair([TcpStream; 2]);

impl Pair {
    fn new(address: SocketAddr) -> Self {
        Self([(); 2].map(|()| {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            socket
        }))
    }

    /// True if EXEC is aborted because `line` has changed `key`.
    fn changes(&mut self, key: &str, line: &str, is_queued: bool) -> bool {
        let [watching, changing] = &mut self.0;
        let keys: Vec<_> = KEYS.lines().map(words).collect();
        exchange(changing, &keys, "made");
        exchange(watching, &[words(&format!("WATCH {key}"))], "watched");
        let command = match is_queued {
            true => vec![words("MULTI"), words(line), words("EXEC")],
            false => vec![words(line)],
        };
        exchange(changing, &command, "done");
        let reply = exchange(watching, &["MULTI", "GET new", "EXEC"].map(words), "end");
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let end = reply.strip_prefix("+OK\r\n+QUEUED\r\n").unwrap_or_else(|| panic!("{line}: {reply:?}"));
        end.starts_with("*-1\r\n")
    }
}

#[test]
fn a_command_breaks_a_watch_if_it_does_in_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let (mut theirs, mut own) = (Pair::new(redis.address), Pair::new(ours.address));
    let mut broken = 0;
    for (key, line) in COMMANDS.lines().map(|line| line.split_once(' ').unwrap()) {
        for is_queued in [false, true] {
            // It cannot be queued here.
            if is_queued && ["SWAPDB", "FLUSH"].iter().any(|name| line.starts_with(name)) {
                continue;
            }
            let changed = theirs.changes(key, line, is_queued);
            assert_eq!(
                own.changes(key, line, is_queued),
                changed,
                "{line} changes {key}, queued: {is_queued}"
            );
            broken += u32::from(changed);
        }
    }
    assert!(broken > 100, "{broken}");
}
