//! The page docs/redis-commands.md lists all commands of Redis 7 and says which of them this server has. The test compares the page with
//! Debian's `redis-server` and with the table of commands. `BRISTLECONE_BLESS=1` writes the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use redis::cmd;

use crate::common::TestServer;
use crate::differential::{Redis, exchange};

/// The reason why commands of a group of Redis are missing.
const MISSING: &[(&str, &str)] = &[
    ("cluster", "no: the server is a single node"),
    ("connection", "no: a connection has no such state here"),
    ("generic", "not yet: `MIGRATE` connects to another server"),
    ("hyperloglog", "no: tests of Redis itself"),
    ("sentinel", "no: there is no sentinel"),
    ("server", "no: replication, modules, or Redis's own persistence"),
    ("string", "not yet"),
    ("transactions", "not yet"),
];

/// All commands of Redis by group.
fn commands_of_redis(redis: &Redis) -> BTreeMap<String, Vec<String>> {
    let client = redis::Client::open(format!("redis://{}/", redis.address)).unwrap();
    let mut connection = client.get_connection().unwrap();
    let docs: BTreeMap<String, redis::Value> = cmd("COMMAND").arg("DOCS").query(&mut connection).unwrap();
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in docs {
        let fields: BTreeMap<String, redis::Value> = redis::from_redis_value(value).unwrap();
        let group: String = redis::from_redis_value(fields["group"].clone()).unwrap();
        groups.entry(group).or_default().push(name);
    }
    groups
}

fn page(groups: &BTreeMap<String, Vec<String>>) -> String {
    let mut page = String::from(
        "# Commands of Redis 7.0\n\nWhich commands of Redis 7.0 the server has. A test compares this page with `redis-server` and with the server. \
         [server.md](server.md)\ndescribes the commands, and the one that Redis does not have: `RANGE`.\n\n| group | has | has not | why not |\n|---|---|---|---|\n",
    );
    for (group, names) in groups {
        let (has, missing): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| server::command::find(name.as_bytes()).is_some());
        let list = |names: &[&String]| {
            names.iter().map(|name| format!("`{}`", name.to_ascii_uppercase())).collect::<Vec<_>>().join(" ")
        };
        let why = MISSING.iter().find(|(of, _)| of == group).map(|(_, why)| *why);
        let why = why.unwrap_or_else(|| {
            assert!(
                missing.is_empty(),
                "no reason why commands of the group {group} are missing: {missing:?}"
            );
            ""
        });
        let why = if missing.is_empty() { "" } else { why };
        let _ = writeln!(page, "| {group} | {} | {} | {why} |", list(&has), list(&missing));
    }
    let count = |is_there: bool| {
        groups
            .values()
            .flatten()
            .filter(|name| server::command::find(name.as_bytes()).is_some() == is_there)
            .count()
    };
    let _ = writeln!(page, "\n{} of {} commands.", count(true), count(true) + count(false));
    page
}

#[test]
fn the_page_of_redis_commands_is_that_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let groups = commands_of_redis(&Redis::start(dir.path()));
    assert!(groups.values().map(Vec::len).sum::<usize>() > 200, "{groups:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/redis-commands.md");
    let page = page(&groups);
    if std::env::var_os("BRISTLECONE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/redis-commands.md differs from the server: run this test with BRISTLECONE_BLESS=1"
    );
}

/// The names of the commands with a flag, without those that this server does not have.
fn flagged(address: SocketAddr, flag: &str) -> Vec<String> {
    let client = redis::Client::open(format!("redis://{address}/")).unwrap();
    let mut connection = client.get_connection().unwrap();
    let entries: Vec<Vec<redis::Value>> = cmd("COMMAND").query(&mut connection).unwrap();
    let has_flag = |entry: &Vec<redis::Value>| {
        let flags: Vec<String> = redis::from_redis_value(entry[2].clone()).unwrap();
        flags.iter().any(|name| name == flag)
    };
    let names = entries.iter().filter(|entry| has_flag(entry));
    let names = names.map(|entry| redis::from_redis_value::<String>(entry[0].clone()).unwrap());
    let mut names: Vec<_> = names.filter(|name| server::command::find(name.as_bytes()).is_some()).collect();
    names.sort_unstable();
    names
}

#[test]
fn flags_that_tell_clients_where_keys_are_are_those_of_redis() {
    let (server, dir) = (TestServer::start(), tempfile::tempdir().unwrap());
    let redis = Redis::start(dir.path());
    for (flag, count) in [("pubsub", 8), ("no_mandatory_keys", 6), ("movablekeys", 20)] {
        let names = flagged(server.address, flag);
        assert!(names.len() >= count, "{names:?}");
        assert_eq!(names, flagged(redis.address, flag), "{flag}");
    }
}

#[test]
fn scripts_without_keys_have_an_empty_list_of_keys_as_in_redis() {
    let (server, dir) = (TestServer::start(), tempfile::tempdir().unwrap());
    let redis = Redis::start(dir.path());
    let commands = [
        "EVAL s 0",
        "EVAL s 0 a b",
        "EVAL s 1 a b",
        "EVAL_RO s 0",
        "EVALSHA s 0",
        "EVALSHA_RO s 0 a",
        "FCALL f 0 a",
        "FCALL_RO f 0",
        "FCALL f 2 a b c",
        "PUBLISH a b",
        "GET k",
        "PING",
        "LMPOP 1 a LEFT",
        "ZUNION 2 a b",
    ];
    for command in commands {
        let line = [words(&format!("COMMAND GETKEYS {command}"))];
        let ask = |address: SocketAddr| exchange(&mut TcpStream::connect(address).unwrap(), &line, "end");
        let (ours, theirs) = (ask(server.address), ask(redis.address));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs), "{command}");
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Commands for each way in which commands of Redis use keys.
const USES: [&str; 65] = [
    "BITFIELD a GET u8 0",
    "BITFIELD a SET u8 0 1",
    "BITOP AND d a b",
    "BLMOVE a b LEFT LEFT 0",
    "BLMPOP 0 2 a b LEFT",
    "BRPOPLPUSH a b 0",
    "BZMPOP 0 1 a MIN",
    "COPY a b",
    "DEL a b",
    "EVAL s 2 a b c",
    "EVALSHA s 1 a",
    "EVALSHA_RO s 1 a",
    "EVAL_RO s 1 a",
    "EVAL s 0",
    "FCALL f 2 a b c",
    "FCALL_RO f 1 a",
    "GEORADIUS a 1 1 1 m STORE b",
    "GEORADIUSBYMEMBER a m 1 m STOREDIST b",
    "GEOSEARCHSTORE d a FROMMEMBER m BYRADIUS 1 m",
    "LCS a b",
    "LMOVE a b LEFT LEFT",
    "LMPOP 1 a LEFT",
    "MEMORY USAGE a",
    "MSET a v b v",
    "MSETNX a v b v",
    "OBJECT ENCODING a",
    "PFMERGE d a b",
    "RENAME a b",
    "RENAMENX a b",
    "RPOPLPUSH a b",
    "SDIFFSTORE d a b",
    "SET a v",
    "SET a v EX 5 GET",
    "SINTERCARD 2 a b",
    "SINTERSTORE d a b",
    "SMOVE a b m",
    "SORT a",
    "SORT a STORE b",
    "SUNIONSTORE d a b",
    "XACK a g 1",
    "XGROUP CREATE a g 0",
    "XGROUP CREATECONSUMER a g c",
    "XGROUP DELCONSUMER a g c",
    "XGROUP DESTROY a g",
    "XGROUP SETID a g 0",
    "XINFO CONSUMERS a g",
    "XINFO STREAM a",
    "XREAD STREAMS a b 0 0",
    "XREADGROUP GROUP g c STREAMS a b > >",
    "ZDIFF 2 a b",
    "ZDIFFSTORE d 2 a b",
    "ZINTER 2 a b",
    "ZINTERCARD 2 a b",
    "ZINTERSTORE d 2 a b",
    "ZMPOP 1 a MIN",
    "ZRANGESTORE d a 0 1",
    "ZUNION 2 a b",
    "ZUNIONSTORE d 2 a b",
    "WATCH a b",
    "UNLINK a",
    "XREADGROUP GROUP g streams STREAMS s a > >",
    "XREADGROUP GROUP streams c COUNT 1 STREAMS a >",
    "GEORADIUS a 1 1 1 m STORE store",
    "GEORADIUS a 1 1 1 m COUNT 1 STOREDIST storedist ASC",
    "GEORADIUSBYMEMBER STORE store 1 m STORE b",
];

/// Commands without keys, or with subcommands, whose permissions are compared.
const OTHERS: [&str; 15] = [
    "ACL LOG",
    "ACL WHOAMI",
    "CLIENT UNBLOCK 1",
    "CLIENT KILL a:1",
    "CLIENT ID",
    "CONFIG GET a",
    "FUNCTION LOAD a",
    "FUNCTION LIST",
    "FUNCTION FLUSH",
    "LATENCY DOCTOR",
    "SCRIPT FLUSH",
    "SLOWLOG GET",
    "KEYS a",
    "XGROUP DESTROY a g",
    "XINFO GROUPS a",
];

/// The flags for uses of keys, and the permissions of users with few rights, are those of Redis. A command that is not in [`USES`] has
/// one key in front, and as many other arguments as it needs.
#[test]
fn uses_of_keys_are_those_of_redis() {
    let (server, dir) = (TestServer::start(), tempfile::tempdir().unwrap());
    let redis = Redis::start(dir.path());
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_ascii_lowercase();
    let listed: Vec<String> = USES.iter().map(|line| name(line)).collect();
    let known = |name: &str| {
        exchange_once(redis.address, &format!("COMMAND GETKEYS {name}")).contains("number of arg")
    };
    let simple = |command: &&server::command::Command| {
        let arity = usize::try_from(command.arity.abs()).unwrap();
        format!("{} a{}", command.name, " 1".repeat(arity - 2))
    };
    let others = server::command::all().iter().filter(|command| {
        command.keys.0 == 1 && !listed.contains(&command.name.to_owned()) && known(command.name)
    });
    let lines: Vec<String> = USES.iter().map(|line| (*line).to_owned()).chain(others.map(simple)).collect();
    let listed = USES.len();
    assert!(lines.len() > listed + 80, "{} commands", lines.len());
    let users = [
        "reader on nopass +@all %R~*",
        "writer on nopass +@all %W~*",
        "both on nopass +@all %R~a %W~a ~s*",
        "plain on nopass ~* +@all -@admin -@dangerous",
        "unwriting on nopass ~* +@all -@write",
        "part on nopass ~* +@all -xgroup|destroy -xinfo|groups",
    ];
    for user in users {
        let line = format!("ACL SETUSER {user}");
        [server.address, redis.address]
            .into_iter()
            .for_each(|at| assert_eq!(exchange_once(at, &line), "+OK\r\n$3\r\nend\r\n"));
    }
    let dry_runs = users.map(|user| format!("ACL DRYRUN {}", user.split(' ').next().unwrap()));
    let compared = lines.iter().map(|line| format!("COMMAND GETKEYSANDFLAGS {line}"));
    let tried = lines.iter().map(String::as_str).chain(OTHERS);
    let tried = tried.flat_map(|line| dry_runs.each_ref().map(|run| format!("{run} {line}")));
    for line in compared.chain(tried) {
        let (ours, theirs) = (exchange_once(server.address, &line), exchange_once(redis.address, &line));
        assert_eq!(ours, theirs, "{line}");
    }
}

/// The reply to one command.
fn exchange_once(address: SocketAddr, line: &str) -> String {
    let reply = exchange(&mut TcpStream::connect(address).unwrap(), &[words(line)], "end");
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn every_command_is_found_by_its_name_in_any_case() {
    for known in server::command::all() {
        let found = |name: &str| server::command::find(name.as_bytes()).map(|found| found.name);
        assert_eq!(found(known.name), Some(known.name));
        assert_eq!(found(&known.name.to_ascii_uppercase()), Some(known.name));
        assert_eq!(found(&format!("{}\0", known.name)), None);
    }
    for unknown in ["", "gett", &"get".repeat(1000)] {
        assert!(server::command::find(unknown.as_bytes()).is_none());
    }
}
