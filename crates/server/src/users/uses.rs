//! What commands do with their keys, as Redis tells it: for the permissions of users and for `COMMAND GETKEYSANDFLAGS`.
//!
//! A use that *accesses* a key returns or copies its value, and needs the permission to read it. One that *inserts*, *updates* or *deletes*
//! needs the permission to write. Some need neither (`EXISTS`, `TYPE`, `STRLEN`): then any permission for the key is enough.

use bytes::Bytes;

use crate::command::{Command, Flags, is};

/// The use of a key: its opening, and the work on its value, in the words of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses(pub &'static [&'static str]);

const LOOKS_AT: Uses = Uses(&["RO"]);
const READS: Uses = Uses(&["RO", "access"]);
const COUNTS: Uses = Uses(&["RW", "access"]);
const CHANGES: Uses = Uses(&["RW", "access", "update"]);
const TAKES: Uses = Uses(&["RW", "access", "delete"]);
const MERGES: Uses = Uses(&["RW", "access", "insert"]);
const UPDATES: Uses = Uses(&["RW", "update"]);
const INSERTS: Uses = Uses(&["RW", "insert"]);
const REDUCES: Uses = Uses(&["RW", "delete"]);
const REPLACES: Uses = Uses(&["OW", "update"]);
const ADDS: Uses = Uses(&["OW", "insert"]);
const REMOVES: Uses = Uses(&["RM", "delete"]);

impl Uses {
    /// True if the value is returned or copied.
    #[must_use]
    pub fn reads(self) -> bool {
        self.0.contains(&"access")
    }

    /// True if the key is changed.
    #[must_use]
    pub fn writes(self) -> bool {
        ["insert", "update", "delete"].iter().any(|word| self.0.contains(word))
    }

    /// The use of the key at this position of the arguments.
    #[must_use]
    pub fn of(command: &Command, arguments: &[Bytes], position: usize) -> Self {
        let has = |word: &str, from: usize| arguments.iter().skip(from).any(|argument| is(argument, word));
        match (command.name, position) {
            ("exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "memory" | "object" | "scard", _)
            | ("sismember" | "strlen" | "touch" | "type" | "watch" | "xlen" | "zcard", _) => LOOKS_AT,
            ("bitop", 3..) | ("copy", 1) | ("georadius" | "georadiusbymember" | "sort", 1) => READS,
            ("pfmerge", 2..) | ("xreadgroup", _) => READS,
            ("bitfield", _) if only_gets(arguments) => READS,
            ("pfcount", _) => COUNTS,
            ("eval" | "evalsha" | "fcall", _) => CHANGES,
            ("set", _) if has("GET", 3) => CHANGES,
            ("blmove" | "brpoplpush" | "lmove" | "rename" | "renamenx" | "rpoplpush" | "smove", 1)
            | ("blmpop" | "blpop" | "brpop" | "bzmpop" | "bzpopmax" | "bzpopmin" | "getdel" | "lmpop", _)
            | ("lpop" | "rpop" | "spop" | "zmpop" | "zpopmax" | "zpopmin", _) => TAKES,
            ("pfmerge", _) => MERGES,
            ("expire" | "expireat" | "geoadd" | "hmset" | "hset" | "lset" | "persist" | "pexpire", _)
            | ("pexpireat" | "setrange" | "xack" | "xadd" | "xclaim" | "xsetid" | "zadd", _)
            | ("sinterstore", 1) => UPDATES,
            (
                "append" | "hsetnx" | "linsert" | "lpush" | "lpushx" | "pfadd" | "rpush" | "rpushx" | "sadd",
                _,
            )
            | ("blmove" | "brpoplpush" | "lmove" | "rpoplpush" | "smove", _) => INSERTS,
            ("hdel" | "lrem" | "ltrim" | "srem" | "xautoclaim" | "xdel" | "xtrim" | "zrem", _)
            | ("zremrangebylex" | "zremrangebyrank" | "zremrangebyscore", _) => REDUCES,
            ("xgroup", _) => match &arguments[1] {
                word if is(word, "SETID") => UPDATES,
                word if is(word, "DESTROY") || is(word, "DELCONSUMER") => REDUCES,
                _ => INSERTS,
            },
            ("bitop" | "copy" | "georadius" | "georadiusbymember" | "mset" | "psetex" | "rename", _)
            | ("restore" | "set" | "setex" | "sort", _) => REPLACES,
            ("msetnx" | "renamenx" | "setnx", _) => ADDS,
            ("del" | "unlink", _) => REMOVES,
            (name, 1) if name.ends_with("store") => REPLACES,
            (name, _) if name.ends_with("store") => READS,
            _ if command.flags.has(Flags::WRITE) => CHANGES,
            _ => READS,
        }
    }
}

/// True if `BITFIELD` changes nothing.
fn only_gets(arguments: &[Bytes]) -> bool {
    let mut at = 2;
    while let Some(word) = arguments.get(at) {
        at += match word {
            word if is(word, "GET") => 3,
            word if is(word, "OVERFLOW") => 2,
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    fn uses(line: &str, position: usize) -> Uses {
        let arguments: Vec<Bytes> = line.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
        Uses::of(find(&arguments[0]).unwrap(), &arguments, position)
    }

    #[test]
    fn a_use_depends_on_options_and_positions() {
        assert_eq!(uses("SET a b", 1), REPLACES);
        assert_eq!(uses("SET get get", 1), REPLACES);
        assert_eq!(uses("SET a b EX 5 get", 1), CHANGES);
        assert_eq!(uses("BITFIELD a GET u8 0 OVERFLOW SAT GET u8 8", 1), READS);
        assert_eq!(uses("BITFIELD a GET SET 0", 1), READS);
        assert_eq!(uses("BITFIELD a GET u8 0 SET u8 0 1", 1), CHANGES);
        assert_eq!((uses("LMOVE a b LEFT LEFT", 1), uses("LMOVE a b LEFT LEFT", 2)), (TAKES, INSERTS));
        assert_eq!((uses("SORT a STORE b", 1), uses("SORT a STORE b", 3)), (READS, REPLACES));
        assert!(!LOOKS_AT.reads() && !LOOKS_AT.writes() && COUNTS.reads() && !COUNTS.writes());
        assert!([ADDS, INSERTS, REDUCES, UPDATES].into_iter().all(|uses| uses.writes() && !uses.reads()));
    }
}
