//! The test kills a server (`kill -9`) while clients of memcached write, and starts it again: no acknowledged write is lost, and no unique
//! number is given twice.
//!
//! Each connection has its own keys. It sends `ms KEY` commands in pipelines with rising numbers as data, and `incr` of a counter. After
//! the restart each key has at least its last acknowledged number, and the counter of the connection is between the acknowledged and the
//! sent increments. Rounds alternate between process durability on a memory file system and power durability on ordinary files.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds, 6 by default.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 8;
const KEYS: u64 = 40;
/// Acknowledged commands before the kill.
const ENOUGH: u64 = 4000;
const DEPTH: u64 = 24;
/// Time limit of every step.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It is killed and waited for in any case.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dir: &Path, durability: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bristlecone"))
            .args(["serve", "--listen", "none", "--memcached", "127.0.0.1:0", "--json"])
            .args(["--durability", durability, "--dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = child.stdout.take().expect("piped above");
        let mut server = Self { child, address: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line of the server");
        let said: serde_json::Value = serde_json::from_str(&line).expect("the first line is JSON");
        server.address = said["memcached"].as_str().expect("an address").to_owned();
        server
    }

    fn client(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        BufReader::new(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line. `None` once the server is gone.
fn line(client: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    client.read_line(&mut line).ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}

/// The commands that a connection sent, and the acknowledged ones.
#[derive(Default)]
struct History {
    /// The last acknowledged number of each key. 0: none.
    acknowledged: Vec<u64>,
    increments_sent: u64,
    increments_acknowledged: u64,
    /// The largest unique number.
    cas_max: u64,
}

fn write_until_killed(
    mut client: BufReader<TcpStream>,
    connection: u64,
    acknowledged: &AtomicU64,
) -> History {
    let mut history = History { acknowledged: vec![0; KEYS as usize], ..History::default() };
    let mut number = 0;
    loop {
        let mut requests = String::new();
        let mut sent = Vec::new();
        for _ in 0..DEPTH {
            number += 1;
            let key = number * 7 % KEYS;
            let data = format!("{number}:{}", "x".repeat((number % 90) as usize));
            requests += &format!("ms c{connection}k{key} {} c\r\n{data}\r\n", data.len());
            sent.push((key, number));
        }
        requests += &format!("incr counter{connection} 1\r\n");
        history.increments_sent += 1;
        if client.get_mut().write_all(requests.as_bytes()).is_err() {
            return history;
        }
        for (key, number) in sent {
            let Some(reply) = line(&mut client) else { return history };
            let cas = reply.strip_prefix("HD c").and_then(|cas| cas.parse().ok());
            let cas: u64 = cas.unwrap_or_else(|| panic!("{reply}"));
            history.cas_max = history.cas_max.max(cas);
            history.acknowledged[key as usize] = number;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let Some(reply) = line(&mut client) else { return history };
        history.increments_acknowledged = reply.parse().unwrap_or_else(|_| panic!("{reply}"));
    }
}

fn round(dir: &Path, durability: &str) {
    let mut server = Server::start(dir, durability);
    let mut setup = server.client();
    for connection in 0..CONNECTIONS {
        setup
            .get_mut()
            .write_all(format!("set counter{connection} 0 0 1\r\n0\r\n").as_bytes())
            .expect("the server reads");
        assert_eq!(line(&mut setup).as_deref(), Some("STORED"));
    }
    let acknowledged = AtomicU64::new(0);
    let histories: Vec<History> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                let (client, acknowledged) = (server.client(), &acknowledged);
                scope.spawn(move || write_until_killed(client, connection, acknowledged))
            })
            .collect();
        let start = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < ENOUGH {
            let stuck = start.elapsed() > PATIENCE || threads.iter().any(|thread| thread.is_finished());
            assert!(!stuck, "the server stopped answering before it was killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.child.kill().expect("still running until now");
        threads.into_iter().map(|thread| thread.join().expect("no reply is wrong")).collect()
    });
    drop(server);
    let server = Server::start(dir, durability);
    let mut client = server.client();
    let cas_max = histories.iter().map(|history| history.cas_max).max().expect("a connection");
    let mut ask = |request: String| {
        client.get_mut().write_all(request.as_bytes()).expect("the server reads");
        line(&mut client).expect("the server answers")
    };
    for (connection, history) in histories.iter().enumerate() {
        for (key, number) in history.acknowledged.iter().enumerate().filter(|(_, number)| **number > 0) {
            let head = ask(format!("mg c{connection}k{key} v\r\n"));
            assert!(head.starts_with("VA "), "{durability}: an acknowledged item is lost: {head}");
            let data = ask(String::new());
            let found: u64 =
                data.split(':').next().and_then(|found| found.parse().ok()).expect("a number of ours");
            assert!(found >= *number, "{durability}: {found} after {number} was acknowledged");
        }
        let counter: u64 = ask(format!("ma counter{connection} D0 v\r\n"))
            .strip_prefix("VA ")
            .map(|_| ask(String::new()).parse().expect("a number"))
            .expect("the counter is there");
        let possible = history.increments_acknowledged..=history.increments_sent;
        assert!(possible.contains(&counter), "{durability}: {counter} is not in {possible:?}");
    }
    let reply = ask("ms new 1 c\r\nx\r\n".to_owned());
    let cas: u64 = reply.strip_prefix("HD c").and_then(|cas| cas.parse().ok()).expect("a unique number");
    assert!(cas > cas_max, "{durability}: {cas} after {cas_max}");
}

#[test]
fn acknowledged_items_survive_a_kill_and_unique_numbers_do_not_repeat() {
    let rounds = std::env::var("BRISTLECONE_ROUNDS").map_or(6, |text| text.parse().expect("a number"));
    let shared_memory = Path::new("/dev/shm");
    for number in 0..rounds {
        let (durability, dir) = match number % 2 {
            0 if shared_memory.is_dir() => ("process", tempfile::tempdir_in(shared_memory)),
            0 => ("process", tempfile::tempdir()),
            _ => ("power", tempfile::tempdir()),
        };
        round(&dir.expect("a directory").path().join("store"), durability);
    }
}
