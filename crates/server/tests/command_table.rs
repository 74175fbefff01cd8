//! The page docs/redis-commands.md lists all commands of Redis 7 and says which of them this server has. The test compares the page with
//! Debian's `redis-server` and with the table of commands. `BRISTLECONE_BLESS=1` writes the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use redis::cmd;

use crate::differential::Redis;

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
