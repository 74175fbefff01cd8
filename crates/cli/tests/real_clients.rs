//! Common clients against a running `serve`: redis-cli, redis-benchmark, Python's redis package.
//!
//! A client that is not installed fails its test, because a skipped test would go unnoticed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::Serve;

pub const INSTALL: &str = "install with `cargo xtask test`";

/// A client with a time limit: a client that hangs fails the test.
fn client(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(127), "a client program is missing: {INSTALL}: {output:?}");
    assert_ne!(output.status.code(), Some(124), "the client hangs: {output:?}");
    output
}

fn redis_cli(serve: &Serve, arguments: &[&str]) -> String {
    let mut command = client("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &serve.address.port().to_string()]).args(arguments);
    let output = output(command);
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn redis_cli_talks_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(&dir.path().join("store"));
    let cli = |arguments: &[&str]| redis_cli(&serve, arguments).trim_end().to_owned();
    assert_eq!(cli(&["PING"]), "PONG");
    assert_eq!(cli(&["SET", "k", "v w"]), "OK");
    assert_eq!(cli(&["GET", "k"]), "v w");
    assert_eq!(cli(&["-3", "GET", "absent"]), "");
    assert_eq!(cli(&["-3", "HELLO", "3"]).lines().next(), Some("server bristlecone"));
    assert_eq!(cli(&["INCR", "n"]), "1");
    assert_eq!(cli(&["--scan"]), "k\nn");
    assert_eq!(cli(&["--scan", "--pattern", "n*"]), "n");
    assert_eq!(cli(&["RANGE", "-", "+", "LIMIT", "1"]), "k\nv w");
    assert_eq!(cli(&["FOO"]), "ERR unknown command 'FOO', with args beginning with:");
    assert!(cli(&["INFO"]).contains("redis_version:"));
    assert_eq!(cli(&["--json", "CONFIG", "GET", "save"]), "{\"save\":\"\"}");
}

#[test]
fn redis_cli_pipes_a_mass_of_commands() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(&dir.path().join("store"));
    let commands: String = (0..20_000).map(|key| format!("SET key:{key} {key}\r\n")).collect();
    let file = dir.path().join("commands");
    std::fs::write(&file, commands).unwrap();
    let mut command = client("redis-cli");
    command.args(["-p", &serve.address.port().to_string(), "--pipe"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("errors: 0, replies: 20000"), "{text}");
}

#[test]
fn redis_benchmark_runs_through() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(&dir.path().join("store"));
    let mut command = client("redis-benchmark");
    command.args([
        "-p",
        &serve.address.port().to_string(),
        "-t",
        "set,get",
        "-P",
        "16",
        "-n",
        "20000",
        "-r",
        "1000",
        "-q",
    ]);
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("SET: ") && text.contains("GET: ") && text.contains("requests per second"),
        "{text}"
    );
    assert!(!text.contains("Error") && !text.contains("WARNING"), "{text}");
}

const SCRIPT: &str = r#"
import sys, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    r = redis.Redis(port=port, protocol=protocol, client_name="tester")
    r.flushall()
    assert r.ping()
    assert r.set("k", b"\x00\xff") is True and r.get("k") == b"\x00\xff"
    assert r.set("k", "x", nx=True) is None and r.set("k", "x", xx=True, get=True) == b"\x00\xff"
    assert r.get("absent") is None and r.exists("k", "absent") == 1 and r.type("k") == b"string" and r.ttl("k") == -1
    assert r.incrby("n", 5) == 5 and r.decr("n") == 4 and r.incrbyfloat("n", 0.5) == 4.5
    assert r.mset({"a": 1, "b": 2}) and r.mget("a", "absent", "b") == [b"1", None, b"2"]
    assert r.append("a", "2") == 2 and r.strlen("a") == 2 and r.getdel("a") == b"12" and r.delete("b", "absent") == 1
    with r.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set(f"p:{i:04}", i)
        assert all(pipe.execute())
    assert list(r.scan_iter(match="p:*", count=77)) == [f"p:{i:04}".encode() for i in range(1000)]
    assert r.keys("p:000?") == [f"p:000{i}".encode() for i in range(10)]
    assert r.execute_command("RANGE", "p:0998", "+") == [b"p:0998", b"998", b"p:0999", b"999"]
    assert r.dbsize() == 1002 and r.info("keyspace")["db0"]["keys"] == 1002
    assert r.config_get("save") == {"save": ""} and r.client_getname() in ("tester", b"tester")
    assert r.client_id() > 0 and any(c["name"] == "tester" for c in r.client_list())
    assert r.command_count() > 40 and "get" in r.command() and r.time()[0] > 1_600_000_000
    assert r.set("t", "v", ex=100) and 99 <= r.ttl("t") <= 100 and r.persist("t") and r.ttl("t") == -1
    assert r.expire("t", 0) and r.get("t") is None
    with r.pipeline() as pipe:
        assert pipe.set("t", 1).incr("t").pexpire("t", 100_000).get("t").execute() == [True, 2, True, b"2"]
    for wrong, text in ((lambda: r.set("k", "v", ex=0), "invalid expire time"),
                        (lambda: r.execute_command("NOPE"), "unknown command 'NOPE'"),
                        (lambda: r.incr("k"), "value is not an integer or out of range")):
        try:
            wrong()
        except redis.ResponseError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
print("all right")
"#;

/// The Python interpreter with the packages of the tests.
pub fn python() -> PathBuf {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/py");
    std::env::var_os("BRISTLECONE_PY").map_or_else(default, PathBuf::from).join("bin/python3")
}

#[test]
fn the_python_client_talks_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(&dir.path().join("store"));
    let mut command = client(python());
    command.args(["-c", SCRIPT, &serve.address.port().to_string()]);
    let output = output(command);
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!error.contains("No module named 'redis'"), "the redis package is missing: {INSTALL}");
    assert!(output.status.success() && text.trim() == "all right", "{text}{error}");
}
