//! The documents are correct: the commands of README and docs/getting-started.md run as written, and the table of docs/engines.md equals
//! the registry.
//!
//! Each test runs the commands as one `bash` script in its own directory, with the program of this build in `PATH` and
//! a free port in `PORT`. The script leads a process group. At the end, also after a failure, the test kills this
//! group, so no process of the script stays.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const README: &str = include_str!("../../../README.md");
const GETTING_STARTED: &str = include_str!("../../../docs/getting-started.md");
const ENGINES: &str = include_str!("../../../docs/engines.md");
/// Time limit of the tour, which takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The fenced block of a document after `<!-- name -->`.
fn block(document: &'static str, name: &str) -> &'static str {
    let (_, behind) =
        document.split_once(&format!("<!-- {name} -->\n```sh\n")).expect("the block's beginning");
    behind.split_once("\n```").expect("the block's end").0
}

/// A script and all processes that it started.
struct Script(Child);

impl Script {
    fn run(script: &str, dir: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_bristlecone"));
        let folder = program.parent().expect("a program lies in a folder");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let output = File::create(dir.join("output")).expect("a file");
        let child = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(dir)
            .env("PATH", path)
            .env("PORT", port.to_string())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .process_group(0)
            .spawn()
            .expect("bash runs");
        Self(child)
    }

    /// True if the script ended with success before the time limit.
    fn ends_well(&mut self) -> bool {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return status.success();
            }
            if start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Kill the whole group by the number of its leader. An empty group is no error.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).stderr(std::process::Stdio::null()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn the_readmes_session_runs_as_it_stands() {
    let session = block(README, "session").replace("-p 7379", "-p \"$PORT\"");
    let script = format!(
        "bristlecone serve --listen \"127.0.0.1:$PORT\" > serve.log & server=$!\n\
         until redis-cli -p \"$PORT\" PING > pong.txt 2>&1 && grep -q PONG pong.txt; do sleep 0.1; done\n\
         {session}\nkill \"$server\"\nwait \"$server\" || true\n"
    );
    let dir = tempfile::tempdir().expect("a directory");
    let mut script = Script::run(&script, dir.path());
    let well = script.ends_well();
    let said = std::fs::read_to_string(dir.path().join("output")).expect("its output");
    assert!(well, "the session failed (it needs redis-cli); it said:\n{said}");
    assert_eq!(said, "OK\nalice\nuser:1\nalice\n1\n2\n");
    assert!(dir.path().join("bristlecone-data").is_dir(), "the README names the directory of a new store");
}

#[test]
fn the_tour_runs_as_it_stands() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut script = Script::run(block(GETTING_STARTED, "tour"), dir.path());
    let well = script.ends_well();
    let said = std::fs::read_to_string(dir.path().join("output")).expect("its output");
    assert!(well, "the tour failed (it needs redis-cli and redis-benchmark); it said:\n{said}");
    let mut rest = said.as_str();
    for expected in [
        "loaded 900 pairs",
        "t:00000001:000001\t\nt:00000001:000011\t\nt:00000001:000031\t\n",
        "counts agree\n",
        "loaded 500 pairs",
        "user:0500\tname of user 500\nuser:0499\tname of user 499\n",
        "OK\nhello\n",
        "user:0007\nname of user 7\nuser:0008\nname of user 8\nuser:0009\nname of user 9\n",
        "i:000000\ni:000001\ni:000002\ni:000003\ni:000004\ni:000005\ni:000006\n",
        "1432\n",
        "recovered, ready in",
        "hello\n",
        "sound; ",
        "engine      line\n",
        "durability  ",
        "found       clean",
    ] {
        let Some((_, behind)) = rest.split_once(expected) else {
            panic!("the tour did not say {expected:?} where it should; it said:\n{said}")
        };
        rest = behind;
    }
    let keys: u64 = said
        .lines()
        .find_map(|line| line.strip_prefix("keys "))
        .and_then(|number| number.trim().parse().ok())
        .expect("stats tells the keys");
    assert!(keys > 1432, "the benchmark's acknowledged writes are there too: {keys} keys");
}

#[test]
fn the_documents_engines_are_the_registrys() {
    let (_, behind) = ENGINES.split_once("<!-- engines -->\n").expect("the table");
    let table: Vec<&str> = behind.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    // One engine is registered in tests only.
    let expected: Vec<String> = bristlecone::registry::engines()
        .filter(|e| !e.about.starts_with("for tests"))
        .map(|e| {
            let feature = bristlecone::registry::feature_of(e.name).expect("every engine has a feature");
            let durable = if e.durable { "yes" } else { "no" };
            format!("| `{}` | {} | {durable} | `{feature}` |", e.name, e.about)
        })
        .collect();
    assert_eq!(table, expected);
}
