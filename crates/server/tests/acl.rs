//! Users: logging in, permissions, and changes while clients are connected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::common::TestServer;
use redis::{Commands, RedisResult, Value, cmd};
use server::{Config, Password};

fn acl(client: &mut redis::Connection, words: &str) -> RedisResult<Value> {
    let mut command = cmd("ACL");
    words.split(' ').for_each(|word| _ = command.arg(word));
    command.query(client)
}

/// Sends lines on a connection and returns the reply lines, one for each.
fn talk(socket: &mut TcpStream, lines: &[&str]) -> Vec<String> {
    let one = |line: &&str| {
        socket.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            let mut byte = [0];
            if socket.read(&mut byte).unwrap_or(0) == 0 {
                return "closed".to_owned();
            }
            reply.push(byte[0]);
        }
        String::from_utf8(reply).unwrap().trim_end().to_owned()
    };
    lines.iter().map(one).collect()
}

const DENIED_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";

#[test]
fn a_user_runs_only_its_commands_on_its_keys() {
    let server = TestServer::start();
    let mut admin = server.client();
    acl(&mut admin, "SETUSER bob on >pw ~a* %R~r* +@read +set +acl|whoami +multi +exec").unwrap();
    let mut bob = server.socket();
    bob.write_all(b"AUTH bob wrong\r\nACL WHOAMI\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    bob.read_to_string(&mut answer).unwrap();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(answer, format!("{wrong}\r\n$7\r\ndefault\r\n+OK\r\n"));
    let mut bob = server.socket();
    let replies = talk(
        &mut bob,
        &["AUTH bob pw", "SET a 1", "SET b 1", "SET r1 1", "STRLEN r1", "DEL a", "ACL LIST", "FLUSHALL"],
    );
    let denied = |name: &str| format!("-NOPERM this user has no permissions to run the '{name}' command");
    assert_eq!(replies[..5], ["+OK", "+OK", DENIED_KEY, DENIED_KEY, ":0"]);
    assert_eq!(replies[5..], [denied("del"), denied("acl|list"), denied("flushall")]);
    assert_eq!(server.store.get(b"b").unwrap(), None);
}

#[test]
fn permissions_hold_when_a_command_is_queued_and_when_it_runs() {
    let server = TestServer::start();
    let mut admin = server.client();
    acl(&mut admin, "SETUSER bob on nopass ~a* +set +get +multi +exec").unwrap();
    let mut bob = server.socket();
    let replies = talk(&mut bob, &["AUTH bob x", "MULTI", "SET a 1", "SET b 1", "EXEC"]);
    assert_eq!(replies[3], DENIED_KEY);
    assert!(replies[4].starts_with("-EXECABORT"), "{replies:?}");
    assert_eq!(talk(&mut bob, &["MULTI", "SET a 1", "SET a2 2"]), ["+OK", "+QUEUED", "+QUEUED"]);
    acl(&mut admin, "SETUSER bob resetkeys ~a2").unwrap();
    bob.write_all(b"EXEC\r\nGET a2\r\n").unwrap();
    let expected = format!("*2\r\n{DENIED_KEY}\r\n+OK\r\n$1\r\n2\r\n");
    let mut answer = vec![0; expected.len()];
    bob.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
    assert_eq!(server.store.get(b"a").unwrap(), None);
}

#[test]
fn changes_hold_for_connected_clients_and_removed_users_are_disconnected() {
    let server = TestServer::start();
    let mut admin = server.client();
    acl(&mut admin, "SETUSER bob on nopass ~* +get +ping").unwrap();
    let mut bob = server.socket();
    assert_eq!(talk(&mut bob, &["AUTH bob x", "GET k"]), ["+OK", "$-1"]);
    acl(&mut admin, "SETUSER bob -get").unwrap();
    assert!(talk(&mut bob, &["GET k"])[0].starts_with("-NOPERM"));
    let error = acl(&mut admin, "SETUSER bob +get foo").unwrap_err().to_string();
    assert!(error.contains("Error in ACL SETUSER modifier 'foo': Syntax error"), "{error}");
    assert!(talk(&mut bob, &["GET k"])[0].starts_with("-NOPERM"), "rules before a wrong one have no effect");
    let info: String = cmd("CLIENT").arg("LIST").query(&mut admin).unwrap();
    assert!(info.contains("user=bob") && info.contains("user=default"), "{info}");
    assert_eq!(acl(&mut admin, "DELUSER bob carol"), Ok(Value::Int(1)));
    assert_eq!(bob.read(&mut [0; 10]).unwrap(), 0);
    assert!(acl(&mut admin, "DELUSER default").is_err());
    assert_eq!(acl(&mut admin, "GETUSER bob"), Ok(Value::Nil));
}

#[test]
fn without_the_default_user_a_client_must_log_in() {
    let server = TestServer::with(Config { password: Password::new(b"secret"), ..Config::default() });
    let mut socket = server.socket();
    let noauth = "-NOAUTH Authentication required.";
    assert_eq!(talk(&mut socket, &["PING", "ACL WHOAMI", "GET k"]), [noauth; 3]);
    assert_eq!(talk(&mut socket, &["AUTH secret", "ACL SETUSER bob on >pw +@all ~*"]), ["+OK"; 2]);
    assert_eq!(talk(&mut socket, &["ACL SETUSER default off"]), ["+OK"]);
    let mut other = server.socket();
    assert!(talk(&mut other, &["AUTH secret"])[0].starts_with("-WRONGPASS"));
    assert!(talk(&mut other, &["HELLO 2 AUTH bob pw"])[0].starts_with('*'));
    let client = redis::Client::open(format!("redis://bob:pw@{}/?protocol=resp3", server.address)).unwrap();
    let mut bob = client.get_connection().unwrap();
    let _: () = bob.set("k", "v").unwrap();
    assert_eq!(acl(&mut bob, "WHOAMI"), Ok(Value::BulkString(b"bob".to_vec())));
    // RESET makes the connection as it was when new.
    let mut socket = server.socket();
    assert_eq!(talk(&mut socket, &["AUTH bob pw", "RESET", "GET k"]), ["+OK", "+RESET", noauth]);
}

#[test]
fn users_are_saved_and_loaded_and_a_wrong_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let config = || Config { acl_file: Some(path.clone()), ..Config::default() };
    let server = TestServer::with(config());
    let mut admin = server.client();
    acl(&mut admin, "SETUSER bob on >pw ~a* -@all +@string -set").unwrap();
    acl(&mut admin, "SAVE").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("user bob on #") && text.contains("\nuser default on nopass ~* &* +@all\n"),
        "{text}"
    );
    acl(&mut admin, "DELUSER bob").unwrap();
    acl(&mut admin, "SETUSER carol on").unwrap();
    acl(&mut admin, "LOAD").unwrap();
    let users: Vec<String> = cmd("ACL").arg("USERS").query(&mut admin).unwrap();
    assert_eq!(users, ["bob", "default"]);
    std::fs::write(&path, "user dave on\nuser eve foo\n").unwrap();
    let error = acl(&mut admin, "LOAD").unwrap_err().to_string();
    assert!(error.contains("users.acl:2: foo: Syntax error"), "{error}");
    let users: Vec<String> = cmd("ACL").arg("USERS").query(&mut admin).unwrap();
    assert_eq!(users, ["bob", "default"]);
    let bare = TestServer::start();
    assert!(acl(&mut bare.client(), "SAVE").is_err());
}

#[test]
fn categories_list_their_commands() {
    let server = TestServer::start();
    let mut client = server.client();
    let list = |client: &mut redis::Connection, words: &[&str]| -> Vec<String> {
        cmd("ACL").arg("CAT").arg(words).query(client).unwrap()
    };
    let mut found = std::collections::BTreeSet::new();
    let categories = list(&mut client, &[]);
    for category in &categories {
        found.extend(list(&mut client, &[category]));
    }
    let count: usize = cmd("COMMAND").arg("COUNT").query(&mut client).unwrap();
    assert_eq!(found.len(), count, "a command without a category");
    let error = cmd("ACL").arg("CAT").arg("nosuch").query::<Value>(&mut client).unwrap_err();
    assert!(error.to_string().contains("Unknown category 'nosuch'"));
    // Redis has 21 categories. Users of Redis have rules for those without commands here, too.
    assert_eq!(categories.len(), 21);
    acl(&mut client, "SETUSER bob -@all +@hash -@geo").unwrap();
    let users: Vec<String> = cmd("ACL").arg("LIST").query(&mut client).unwrap();
    assert!(
        users.iter().any(|line| line.contains("bob") && line.ends_with("-@all +@hash -@geo")),
        "{users:?}"
    );
}

#[test]
fn a_rule_of_a_subcommand_or_a_first_argument_is_taken_or_refused_as_by_redis_7() {
    let server = TestServer::start();
    let (mut admin, mut bob) = (server.client(), server.socket());
    let unknown = "Unknown command or category name in ACL";
    for (rule, why) in [
        ("+config|foo", unknown),
        ("-config|foo", unknown),
        ("+XGROUP|nosuch", unknown),
        ("-select|0", unknown),
        ("+select|0|1", unknown),
        ("+foo|bar", unknown),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("+config|", "Syntax error"),
    ] {
        let error = acl(&mut admin, &format!("SETUSER bob {rule}")).unwrap_err().to_string();
        assert!(error.contains(&format!("modifier '{rule}'")) && error.contains(why), "{rule}: {error}");
    }
    acl(&mut admin, "SETUSER bob on >pw ~* -@all +config|get +client|help +select|0 +get|a -config|set")
        .unwrap();
    let users: Vec<String> = cmd("ACL").arg("LIST").query(&mut admin).unwrap();
    let rules = "-@all +config|get +client|help +select|0 +get|a -config|set";
    assert!(users.iter().any(|line| line.contains("user bob") && line.ends_with(rules)), "{users:?}");
    let replies = talk(&mut bob, &["AUTH bob pw", "SELECT 0", "SELECT 1", "GET a", "GET b"]);
    assert_eq!((&*replies[0], &*replies[1], &*replies[3]), ("+OK", "+OK", "$-1"));
    assert!(replies[2].starts_with("-NOPERM") && replies[4].starts_with("-NOPERM"), "{replies:?}");
}

#[test]
fn a_dry_run_answers_as_redis_does_and_runs_nothing() {
    let server = TestServer::start();
    let mut client = server.client();
    acl(&mut client, "SETUSER bob on +get +copy ~a*").unwrap();
    let dry = |client: &mut redis::Connection, words: &str| -> RedisResult<String> {
        redis::from_redis_value(acl(client, &format!("DRYRUN {words}"))?).map_err(Into::into)
    };
    assert_eq!(dry(&mut client, "bob get abc").unwrap(), "OK");
    for (words, what) in [
        ("bob set abc 1", "run the 'set' command"),
        ("bob config get x", "run the 'config|get' command"),
        ("bob get xyz", "access the 'xyz' key"),
        ("bob copy abc xyz", "access the 'xyz' key"),
    ] {
        assert_eq!(dry(&mut client, words).unwrap(), format!("This user has no permissions to {what}"));
    }
    for (words, why) in [
        ("nosuch get a", "User 'nosuch' not found"),
        ("bob nosuch", "Command 'nosuch' not found"),
        ("bob get", "wrong number of arguments for 'get' command"),
        ("bob", "wrong number of arguments for 'acl|dryrun' command"),
    ] {
        assert!(dry(&mut client, words).unwrap_err().to_string().contains(why), "{words}");
    }
}

#[test]
fn generated_passwords_have_the_number_of_bits_and_differ() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut made = std::collections::BTreeSet::new();
    for (words, digits) in [("GENPASS", 64), ("GENPASS 555", 139), ("GENPASS 4096", 1024), ("GENPASS 1", 1)] {
        let password: String = redis::from_redis_value(acl(&mut client, words).unwrap()).unwrap();
        assert!(
            password.len() == digits && password.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{password}"
        );
        made.insert(password[..digits.min(64)].to_owned());
    }
    assert_eq!(made.len(), 4);
    for wrong in ["GENPASS 0", "GENPASS 4097", "GENPASS x", "GENPASS 5 6"] {
        assert!(acl(&mut client, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_log_of_refusals_has_the_newest_first_and_counts_repetitions() {
    let server = TestServer::start();
    let mut admin = server.client();
    acl(&mut admin, "SETUSER bob on >pw ~a* +get +multi +exec").unwrap();
    let mut bob = server.socket();
    talk(&mut bob, &["AUTH bob wrong", "AUTH bob pw", "GET b", "SET a 1", "SET a 2", "MULTI", "GET b"]);
    let entries = |admin: &mut redis::Connection, words: &str| -> Vec<Vec<(String, String)>> {
        let Value::Array(entries) = acl(admin, words).unwrap() else { panic!("no list") };
        entries.into_iter().map(|entry| redis::from_redis_value(entry).unwrap()).collect()
    };
    let shown = |entry: &[(String, String)]| {
        let words: Vec<_> = entry[..5].iter().map(|(_, value)| value.as_str()).collect();
        words.join(" ")
    };
    let all = entries(&mut admin, "LOG");
    assert_eq!(
        all.iter().map(|entry| shown(entry)).collect::<Vec<_>>(),
        [
            "1 key multi b bob",
            "2 command toplevel set bob",
            "1 key toplevel b bob",
            "1 auth toplevel AUTH bob"
        ]
    );
    let names: Vec<_> = all[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["count", "reason", "context", "object", "username", "age-seconds", "client-info"]);
    assert!(all[0][5].1.parse::<f64>().unwrap() >= 0.0 && all[0][6].1.contains("user=bob"), "{all:?}");
    assert_eq!(entries(&mut admin, "LOG 1").len(), 1);
    assert_eq!(entries(&mut admin, "LOG -1").len(), 0);
    // The number of entries and their lengths are bounded. Nothing shows a password.
    let (long, mut stranger) = ("n".repeat(1000), server.socket());
    for i in 0..200 {
        talk(&mut stranger, &[&format!("AUTH {i}{long} secret-{i}")]);
    }
    let all = entries(&mut admin, "LOG 1000");
    assert_eq!(all.len(), 128);
    assert_eq!(all[0][4].1, format!("199{}", "n".repeat(125)));
    assert!(!format!("{all:?}").contains("secret"));
    acl(&mut admin, "LOG RESET").unwrap();
    assert!(entries(&mut admin, "LOG").is_empty());
}
