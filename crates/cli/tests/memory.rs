//! The memory that the process takes in three cases: a load with `--memory`, which bounds the memory for pairs that are not checkpointed yet,
//! a server with many idle connections, and a server whose clients leave in the middle of a command.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use redis::{Commands as _, cmd};

use crate::common::{Serve, code, program, run, run_with_input, stderr, stdout};

const MIB: u64 = 1 << 20;
const BOUND: u64 = 16 * MIB;
/// Memory outside the bound: the program, the dirty marks of its index, the reads of a checkpoint.
const BESIDES: u64 = 32 * MIB;

/// Private resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn a_load_of_four_times_the_bound_takes_no_more_memory_than_that() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let mut child = program()
        .args(["load", "-", "--format", "tsv", "--memory", "16M", "--json", "--dir"])
        .arg(store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (mut most, mut pairs) = (0, 0_u64);
    while pairs * 220 < 4 * BOUND {
        let mut lines = Vec::new();
        for _ in 0..1000 {
            let key = pairs.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            lines.extend(format!("{key:020}\t{pairs:0200}\n").into_bytes());
            pairs += 1;
        }
        input.write_all(&lines).unwrap();
        most = most.max(resident(child.id()));
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    println!(
        "{pairs} pairs, {} MiB, bound {} MiB, {} MiB resident",
        pairs * 220 / MIB,
        BOUND / MIB,
        most / MIB
    );
    assert!(most <= BOUND + BESIDES, "{most}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["pairs"].as_u64(), report["keys"].as_u64()), (Some(pairs), Some(pairs)));
    let stats = run(store, &["stats", "--json"]);
    assert!(stdout(&stats).contains("\"journal\":{"), "it had a journal: {}", stdout(&stats));
}

#[test]
fn a_bound_that_is_too_small_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        run_with_input(&dir.path().join("store"), &["load", "-", "--format", "tsv", "--memory", "1M"], b"");
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("16777216"), "{}", stderr(&output));
    assert!(!dir.path().join("store/store.bristlecone").exists(), "a wrong option makes no store");
}

/// Sends PING and reads its reply.
fn ping(socket: &mut TcpStream) {
    socket.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

/// A number that INFO shows.
fn info(client: &mut redis::Connection, section: &str, name: &str) -> u64 {
    let info: String = cmd("INFO").arg(section).query(client).unwrap();
    let number = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number.unwrap().parse().unwrap()
}

/// Number of connections of a server.
fn connected(client: &mut redis::Connection) -> u64 {
    info(client, "clients", "connected_clients")
}

/// Waits until something holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn memory_is_given_back_after_many_clients_leave_in_the_middle_of_a_command() {
    const CONNECTIONS: usize = 4000;
    const SENT: usize = 60_000;
    let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let connections = CONNECTIONS.min(limit as usize / 4);
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::with(&dir.path().join("store"), &["--max-clients", "4100"]);
    let mut client = server.client();
    let request = [b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100000\r\n".as_slice(), &vec![b'v'; SENT]].concat();
    let mut sockets: Vec<_> = (0..connections).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    eventually("clients do not arrive", || connected(&mut client) == connections as u64 + 1);
    let now = || resident(server.child.id());
    let without = now();
    sockets.iter_mut().for_each(|socket| socket.write_all(&request).unwrap());
    let all = (connections * SENT) as u64;
    eventually("the bytes of the clients do not arrive", || {
        info(&mut client, "stats", "total_net_input_bytes") >= all
    });
    let with = now();
    assert!(with >= without + all, "the server holds what it has read");
    drop(sockets);
    eventually("memory stays", || connected(&mut client) == 1 && now() < without + (with - without) / 4);
    println!("{connections} clients, half a command each: {} MiB, then {} MiB", with / MIB, now() / MIB);
}

#[test]
fn ten_thousand_idle_connections_take_little_memory_and_the_server_returns_it() {
    const STEP: usize = 1000;
    // A system may allow fewer descriptors. The program itself needs some, too.
    let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let count = 10_000.min(limit as usize - 500) / STEP * STEP;
    assert!(count > 0, "too few descriptors: {limit}");
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::with(&dir.path().join("store"), &["--max-clients", "10100"]);
    let mut client = server.client();
    let now = || resident(server.child.id());
    let empty = now();
    let mut sockets = Vec::new();
    while sockets.len() < count {
        for _ in 0..STEP {
            let mut socket = TcpStream::connect(server.address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            ping(&mut socket);
            sockets.push(socket);
        }
        println!("{:6} idle connections: {:6} KiB more", sockets.len(), (now().saturating_sub(empty)) >> 10);
    }
    let full = now();
    assert_eq!(connected(&mut client), count as u64 + 1);
    // They do not slow down others to a halt, and they still work.
    let _: () = client.set("key", "value").unwrap();
    assert_eq!(client.get::<_, String>("key").unwrap(), "value");
    sockets.iter_mut().step_by(97).for_each(ping);
    let each = (full - empty) / count as u64;
    assert!(each <= 8 << 10, "{each} bytes for a connection");
    drop(sockets);
    eventually("memory stays", || connected(&mut client) == 1 && now() <= empty + (full - empty) / 4);
    println!("{:6} idle connections: {:6} KiB more", 0, (now().saturating_sub(empty)) >> 10);
}
