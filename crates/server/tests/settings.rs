//! CONFIG: settings that change while the server runs, and renamed commands.

use crate::common::TestServer;
use redis::{Connection, RedisResult, Value, cmd};
use server::{Config, settings::Renames};

fn set(client: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    cmd("CONFIG").arg("SET").arg(words).query(client)
}

fn get(client: &mut Connection, name: &str) -> String {
    let pair: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query(client).unwrap();
    assert_eq!(pair.len(), 2, "{name}");
    pair[1].clone()
}

fn error(result: RedisResult<Value>) -> String {
    let error = result.unwrap_err();
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

#[test]
fn settings_change_together_or_not_at_all() {
    let server = TestServer::start();
    let mut client = server.client();
    set(&mut client, &["timeout", "100", "MAXCLIENTS", "50", "slowlog-log-slower-than", "-1"]).unwrap();
    assert_eq!([get(&mut client, "timeout"), get(&mut client, "maxclients")], ["100", "50"]);
    assert_eq!(
        get(&mut client, "max-clients"),
        "50",
        "the name of the option is another name of the setting"
    );
    let wrong = error(set(&mut client, &["timeout", "7", "maxclients", "x"]));
    assert_eq!(
        wrong,
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an integer"
    );
    assert_eq!(get(&mut client, "timeout"), "100");
    assert!(error(set(&mut client, &["timeout", "-1"])).contains("at least 0"));
    assert!(error(set(&mut client, &["port", "1"])).contains("can't set immutable config"));
    let twice = error(set(&mut client, &["timeout", "1", "TIMEOUT", "2"]));
    assert!(twice.ends_with("argument 'TIMEOUT') - duplicate parameter"), "{twice}");
    // What holds already can be set.
    set(&mut client, &["save", "", "appendonly", "no"]).unwrap();
    assert!(error(set(&mut client, &["appendonly", "yes"])).contains("can't set immutable config"));
    for command in ["CONFIG", "OBJECT"] {
        let lines: Vec<String> = cmd(command).arg("HELP").query(&mut client).unwrap();
        assert!(lines[0].starts_with(command) && lines.len() > 4, "{lines:?}");
    }
    assert_eq!(
        error(set(&mut client, &["nosuch", "1"])),
        "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"
    );
    assert_eq!(
        error(set(&mut client, &["timeout"])),
        "ERR wrong number of arguments for 'config|set' command"
    );
}

#[test]
fn a_password_can_be_set_and_removed_and_is_never_shown() {
    let server = TestServer::start();
    let mut admin = server.client();
    assert_eq!(get(&mut admin, "requirepass"), "");
    set(&mut admin, &["requirepass", "secret"]).unwrap();
    assert_eq!(get(&mut admin, "requirepass"), "(hidden)");
    let noauth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(server.exchange(b"PING\r\nQUIT\r\n"), format!("{noauth}+OK\r\n"));
    assert_eq!(server.exchange(b"AUTH secret\r\nPING\r\nQUIT\r\n"), "+OK\r\n+PONG\r\n+OK\r\n");
    set(&mut admin, &["requirepass", ""]).unwrap();
    assert_eq!(server.exchange(b"PING\r\nQUIT\r\n"), "+PONG\r\n+OK\r\n");
}

#[test]
fn a_lower_number_of_clients_refuses_new_ones_and_keeps_the_others() {
    let server = TestServer::with(Config { clients_limit: 100, ..Config::default() });
    let mut client = server.client();
    let mut other = server.client();
    set(&mut client, &["maxclients", "1"]).unwrap();
    assert_eq!(server.exchange(b"PING\r\n"), "-ERR max number of clients reached\r\n");
    assert_eq!(cmd("PING").query::<String>(&mut other).unwrap(), "PONG");
    assert!(error(set(&mut client, &["maxclients", "101"])).contains("at most 100 clients"));
}

#[test]
fn a_renamed_command_has_only_its_new_name() {
    let pairs = [("keys", ""), ("config", "hidden-config")];
    let renames = Renames::new(&pairs.map(|(old, new)| (old.to_owned(), new.to_owned()))).unwrap();
    let server = TestServer::with(Config { renames, ..Config::default() });
    let answer = server.exchange(b"KEYS *\r\nCONFIG GET port\r\nHidden-Config GET save\r\nQUIT\r\n");
    let unknown = |name: &str, rest: &str| {
        format!("-ERR unknown command '{name}', with args beginning with: {rest}\r\n")
    };
    let expected = unknown("KEYS", "'*' ")
        + &unknown("CONFIG", "'GET' 'port' ")
        + "*2\r\n$4\r\nsave\r\n$0\r\n\r\n+OK\r\n";
    assert_eq!(answer, expected);
}
