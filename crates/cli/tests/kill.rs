//! The test kills a server (`kill -9`) while sixteen connections write in pipelines, and starts the server again.
//!
//! Each connection has its own keys (shared keys: `shared_keys.rs`), so its history is a list of commands. A prefix of
//! the list was acknowledged. A server runs the commands of a connection in order, each atomically. After the restart
//! the keys of the connection must be the result of *some* prefix of the list, at least as long as the acknowledged
//! one. All connections also increment one counter. After the restart its value must be between the number of
//! acknowledged increments and the number of sent increments.
//!
//! A store goes through several rounds. Between rounds the test kills the idle server once more and verifies the store
//! with `check`. If there is a memory file system, a third of the rounds run there, in turn with process durability and
//! with power durability. The other rounds run on ordinary files, half of them with power durability, so with a
//! journal, and half with process durability.
//!
//! Further rounds run on the files of `bwtree`.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds, `BRISTLECONE_SEED` changes the seeds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 16;
const KEYS_PER_CONNECTION: u64 = 150;
const COUNTER: &str = "counter";
/// Time limit of every step. A step that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number in the variable"))
}

/// A small random number generator (splitmix64). The choices of a test repeat; the moment of the kill does not.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A running server. It is killed and waited for in any case.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// `store` is a durability, and the engine if it is not the default one, with a space between them.
    pub fn start(dir: &Path, store: &str) -> Self {
        let (durability, engine) =
            store.split_once(' ').map_or((store, None), |(durability, engine)| (durability, Some(engine)));
        let mut child = Command::new(env!("CARGO_BIN_EXE_bristlecone"))
            .args(["serve", "--listen", "127.0.0.1:0", "--json", "--durability", durability, "--dir"])
            .arg(dir)
            .args(engine.into_iter().flat_map(|engine| ["--engine", engine]))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped above");
        // Constructed before reading, so that a server without output is killed too.
        let mut server = Self { child, address: String::new() };
        BufReader::new(output).read_line(&mut line).expect("a line of the server");
        let said: serde_json::Value = serde_json::from_str(&line).expect("the first line is JSON");
        server.address = said["listen"].as_str().expect("an address").to_owned();
        server
    }

    /// `kill -9`, and waits for the end of the process.
    pub fn kill(mut self) {
        self.child.kill().expect("still running until now");
        self.child.wait().expect("it was our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already, and may have been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of the protocol that sends commands and receives replies in pipelines.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Self(BufReader::with_capacity(1 << 16, stream))
    }

    pub fn send(&mut self, commands: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(commands)
    }

    /// First line of the next reply, without line end. An error once the server is gone.
    pub fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The reply to a GET.
    pub fn bulk(&mut self) -> Option<Vec<u8>> {
        let line = self.line().expect("the server answers");
        self.bulk_behind(&line).expect("the whole value")
    }

    /// Rest of a reply to a GET after its first line. An error once the server is gone.
    pub fn bulk_behind(&mut self, line: &str) -> std::io::Result<Option<Vec<u8>>> {
        let bytes: i64 = line.strip_prefix('$').and_then(|n| n.parse().ok()).expect("a bulk string");
        let Ok(bytes) = usize::try_from(bytes) else { return Ok(None) };
        let mut value = vec![0; bytes + 2];
        self.0.read_exact(&mut value)?;
        value.truncate(bytes);
        Ok(Some(value))
    }
}

pub fn encode(output: &mut Vec<u8>, words: &[&[u8]]) {
    output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}

/// One command of a connection.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// SET with the value of this number.
    Set {
        key: u64,
        number: u64,
    },
    Delete {
        key: u64,
    },
    Raise,
}

/// The keys of a connection, with the numbers of their values.
type State = BTreeMap<u64, u64>;

fn key_name(connection: u64, key: u64) -> Vec<u8> {
    format!("connection:{connection}:key:{key:04}").into_bytes()
}

/// The value with this number. All values differ; some are so long that the store splits them.
fn value(connection: u64, number: u64) -> Vec<u8> {
    let mut random = Random(number << 8 | connection);
    let bytes = if random.below(200) == 0 { 60_000 + random.below(100_000) } else { random.below(120) };
    let mut value = format!("{number}:{connection}:").into_bytes();
    value.extend((0..bytes).map(|i| (number + i) as u8));
    value
}

impl Op {
    fn random(random: &mut Random, number: u64) -> Self {
        let key = random.below(KEYS_PER_CONNECTION);
        match random.below(10) {
            0..=6 => Op::Set { key, number },
            7 | 8 => Op::Delete { key },
            _ => Op::Raise,
        }
    }

    fn encode(self, connection: u64, output: &mut Vec<u8>) {
        match self {
            Op::Set { key, number } => {
                encode(output, &[b"SET", &key_name(connection, key), &value(connection, number)]);
            }
            Op::Delete { key } => encode(output, &[b"DEL", &key_name(connection, key)]),
            Op::Raise => encode(output, &[b"INCR", COUNTER.as_bytes()]),
        }
    }

    fn apply(self, state: &mut State) {
        match self {
            Op::Set { key, number } => _ = state.insert(key, number),
            Op::Delete { key } => _ = state.remove(&key),
            Op::Raise => {}
        }
    }
}

/// The commands that a connection sent, and how many were acknowledged.
struct History {
    sent: Vec<Op>,
    acknowledged: usize,
}

/// Writes in pipelines until the server is gone.
fn write_until_killed(
    mut client: Client,
    connection: u64,
    seed: u64,
    first: u64,
    acknowledged: &AtomicU64,
) -> History {
    let mut random = Random(seed ^ connection << 32);
    let mut history = History { sent: Vec::new(), acknowledged: 0 };
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let depth = 1 + random.below(64);
        for _ in 0..depth {
            let op = Op::random(&mut random, first + history.sent.len() as u64);
            op.encode(connection, &mut batch);
            history.sent.push(op);
        }
        if client.send(&batch).is_err() {
            return history;
        }
        for _ in 0..depth {
            let Ok(line) = client.line() else { return history };
            assert!(line == "+OK" || line.starts_with(':'), "connection {connection}: {line}");
            history.acknowledged += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs `load` with the number and the client of each connection, in threads. Kills the server once `load` has counted `enough`
/// acknowledged commands or transactions. Returns the results of `load`.
pub fn load_and_kill<T: Send>(
    server: Server,
    connections: u64,
    enough: u64,
    load: impl Fn(u64, Client, &AtomicU64) -> T + Sync,
) -> Vec<T> {
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|connection| {
                let (client, load, acknowledged) = (Client::connect(&server), &load, &acknowledged);
                scope.spawn(move || load(connection, client, acknowledged))
            })
            .collect();
        let start = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < enough {
            let stuck = start.elapsed() > PATIENCE || threads.iter().any(|thread| thread.is_finished());
            assert!(!stuck, "the server stopped answering before it was killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        threads.into_iter().map(|thread| thread.join().expect("a connection's thread")).collect()
    })
}

/// Runs a campaign on a memory file system, if there is one, for half of the rounds, and on an ordinary one for the others.
pub fn on_both_media(rounds: u64, campaign: impl Fn(&Path, &str, u64, u64)) {
    let rounds = number_from("BRISTLECONE_ROUNDS", rounds);
    let seed = number_from("BRISTLECONE_SEED", 1);
    let in_memory = if is_tmpfs("/dev/shm") { rounds / 2 } else { 0 };
    campaign(Path::new("/dev/shm"), "process", in_memory, seed);
    let ordinary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    campaign(ordinary, "power", rounds - in_memory, seed);
    campaign(ordinary, "process bwtree", rounds.div_ceil(10), seed);
}

/// Reads the keys of a connection. Every value must be one that was written, and complete.
fn read_back(client: &mut Client, connection: u64) -> State {
    let mut commands = Vec::new();
    for key in 0..KEYS_PER_CONNECTION {
        encode(&mut commands, &[b"GET", &key_name(connection, key)]);
    }
    client.send(&commands).expect("the server reads");
    let mut state = State::new();
    for key in 0..KEYS_PER_CONNECTION {
        let Some(found) = client.bulk() else { continue };
        let digits = found.split(|byte| *byte == b':').next().unwrap_or_default();
        let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        let number = number.unwrap_or_else(|| panic!("connection {connection} key {key}: no value of ours"));
        assert!(
            found == value(connection, number),
            "connection {connection} key {key}: value {number} is damaged"
        );
        state.insert(key, number);
    }
    state
}

/// True if `found` is the result of a prefix of the history that is at least as long as the acknowledged one.
fn explains(history: &History, before: &State, found: &State) -> bool {
    let mut state = before.clone();
    history.sent[..history.acknowledged].iter().for_each(|op| op.apply(&mut state));
    let unknown = &history.sent[history.acknowledged..];
    state == *found
        || unknown.iter().any(|op| {
            op.apply(&mut state);
            state == *found
        })
}

/// For the message: the keys with a value that neither the acknowledged prefix nor a later command explains.
fn lost(history: &History, before: &State, found: &State) -> Vec<String> {
    let mut acknowledged = before.clone();
    history.sent[..history.acknowledged].iter().for_each(|op| op.apply(&mut acknowledged));
    let mut lost = Vec::new();
    for key in 0..KEYS_PER_CONNECTION {
        let mut allowed = vec![acknowledged.get(&key).copied()];
        for op in &history.sent[history.acknowledged..] {
            match *op {
                Op::Set { key: other, number } if other == key => allowed.push(Some(number)),
                Op::Delete { key: other } if other == key => allowed.push(None),
                _ => {}
            }
        }
        let found = found.get(&key).copied();
        if !allowed.contains(&found) {
            lost.push(format!("key {key}: found {found:?}, allowed {allowed:?}"));
        }
    }
    lost
}

fn read_counter(client: &mut Client) -> u64 {
    let mut command = Vec::new();
    encode(&mut command, &[b"GET", COUNTER.as_bytes()]);
    client.send(&command).expect("the server reads");
    let text = client.bulk().map_or("0".to_owned(), |value| String::from_utf8(value).expect("digits"));
    text.parse().expect("a number")
}

/// Number of keys of the store in `dir`, which `check` must find sound.
pub fn check(dir: &Path) -> u64 {
    let output = Command::new(env!("CARGO_BIN_EXE_bristlecone"))
        .args(["check", "--json", "--dir"])
        .arg(dir)
        .output()
        .expect("check runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).expect("check prints JSON");
    assert!(output.status.success() && report["problems"] == serde_json::json!([]), "check: {text}");
    report["keys"].as_u64().expect("a number of keys")
}

fn campaign(parent: &Path, durabilities: &[&str], rounds: u64, seed: u64) {
    if rounds == 0 {
        return;
    }
    let dir = tempfile::Builder::new().prefix("bristlecone-kill-").tempdir_in(parent).expect("a directory");
    let mut states = vec![State::new(); CONNECTIONS as usize];
    let (mut counter, mut first) = (0, 1);
    for round in 0..rounds {
        let durability = durabilities[round as usize % durabilities.len()];
        let mut random = Random(seed.wrapping_add(round));
        let server = Server::start(dir.path(), durability);
        let (load_seed, enough) = (random.next(), 500 + random.below(15_000));
        let histories = load_and_kill(server, CONNECTIONS, enough, |connection, client, acknowledged| {
            write_until_killed(client, connection, load_seed, first, acknowledged)
        });
        let place = format!("{}, {durability}, round {round}, seed {seed}", parent.display());

        let server = Server::start(dir.path(), durability);
        let mut client = Client::connect(&server);
        let mut maybe = 0;
        for (connection, (history, state)) in histories.iter().zip(&mut states).enumerate() {
            let found = read_back(&mut client, connection as u64);
            assert!(
                explains(history, state, &found),
                "{place}: connection {connection} was acknowledged {} of {} commands, and no beginning of them left \
                 what is there; {:#?}",
                history.acknowledged,
                history.sent.len(),
                lost(history, state, &found)
            );
            maybe += history.sent.len() - history.acknowledged;
            *state = found;
        }
        let raises = |ops: &[Op]| ops.iter().filter(|op| matches!(op, Op::Raise)).count() as u64;
        let least = counter + histories.iter().map(|h| raises(&h.sent[..h.acknowledged])).sum::<u64>();
        let most = counter + histories.iter().map(|h| raises(&h.sent)).sum::<u64>();
        counter = read_counter(&mut client);
        assert!((least..=most).contains(&counter), "{place}: counter {counter}, not in {least}..={most}");
        first += histories.iter().map(|h| h.sent.len() as u64).max().unwrap_or(0);

        // Kill the idle server. The store must then be sound and hold no other keys.
        server.kill();
        let keys = states.iter().map(|state| state.len() as u64).sum::<u64>() + u64::from(counter > 0);
        assert_eq!(check(dir.path()), keys, "{place}: keys in the store");
        let acknowledged: usize = histories.iter().map(|h| h.acknowledged).sum();
        println!("{place}: {acknowledged} commands acknowledged, {maybe} maybe, nothing lost");
    }
}

fn is_tmpfs(path: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(path) && fields.next() == Some("tmpfs")
    })
}

#[test]
fn every_acknowledged_write_survives_kill_9_round_after_round() {
    let rounds = number_from("BRISTLECONE_ROUNDS", 6);
    let seed = number_from("BRISTLECONE_SEED", 1);
    let ordinary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let in_memory = if is_tmpfs("/dev/shm") { rounds / 3 } else { 0 };
    let journaled = (rounds - in_memory) / 2;
    campaign(Path::new("/dev/shm"), &["process", "power"], in_memory, seed);
    campaign(ordinary, &["power"], journaled, seed);
    campaign(ordinary, &["process"], rounds - in_memory - journaled, seed);
    campaign(ordinary, &["power bwtree"], rounds.div_ceil(3), seed);
    campaign(ordinary, &["process bwtree"], rounds.div_ceil(3), seed);
}

#[test]
fn a_history_explains_what_its_acknowledged_beginning_or_a_longer_one_leaves_and_nothing_else() {
    let sent = vec![Op::Set { key: 1, number: 10 }, Op::Set { key: 2, number: 11 }, Op::Delete { key: 1 }];
    let history = History { sent, acknowledged: 1 };
    let before = State::from([(7, 3)]);
    let state = |pairs: &[(u64, u64)]| pairs.iter().copied().chain([(7, 3)]).collect::<State>();
    for good in [state(&[(1, 10)]), state(&[(1, 10), (2, 11)]), state(&[(2, 11)])] {
        assert!(explains(&history, &before, &good), "{good:?}");
    }
    // A later delete without the set before it; a value that the key never had; a lost key of an earlier round.
    for bad in [state(&[]), state(&[(1, 11)]), State::from([(1, 10)])] {
        assert!(!explains(&history, &before, &bad), "{bad:?}");
    }
    assert_eq!(lost(&history, &before, &state(&[(1, 10)])), Vec::<String>::new());
    assert_eq!(lost(&history, &before, &State::from([(1, 10)])).len(), 1);
}
