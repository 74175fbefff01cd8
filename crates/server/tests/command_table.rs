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
    ("generic", "not yet: a format of Redis's own"),
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
        "# Commands of Redis 7\n\nWhich commands of Redis 7 the server has. A test compares this page with `redis-server` and with the server. \
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
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    for subcommand in ["GETKEYS", "GETKEYSANDFLAGS"] {
        // Redis has no flags for the use of keys by scripts.
        let chosen = if subcommand == "GETKEYS" { &commands[..] } else { &commands[..2] };
        for command in chosen {
            let line = [words(&format!("COMMAND {subcommand} {command}"))];
            let ask = |address: SocketAddr| exchange(&mut TcpStream::connect(address).unwrap(), &line, "end");
            let (ours, theirs) = (ask(server.address), ask(redis.address));
            assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs), "{command}");
        }
    }
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
