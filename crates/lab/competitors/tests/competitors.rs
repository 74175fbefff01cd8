//! Properties of every store that the benchmark relies on: right answers, right order, and durability. Process durability is tested by
//! killing the process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use competitors::{Competitor, KINDS, Kind, NAMES, Options, Promise, Session};

const COUNT: u32 = 2_000;
/// Set for the process that will be killed: name and directory of the store.
const VICTIM: &str = "BRISTLECONE_PEERS_VICTIM";

fn options(promise: Promise) -> Options {
    Options { promise, bytes_max: 1 << 20, memory_bytes: None }
}

fn open(kind: &Kind, dir: &Path, promise: Promise) -> Box<dyn Competitor> {
    (kind.open)(dir, &options(promise)).unwrap()
}

/// Keys are scattered, so that their order differs from the insertion order.
fn key(number: u32) -> [u8; 20] {
    let mut key = [b'k'; 20];
    key[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B1).to_be_bytes());
    key
}

fn value(number: u32) -> [u8; 100] {
    [number as u8; 100]
}

/// Stores the first half one by one, the second half in batches.
fn fill(session: &mut dyn Session) {
    for number in 0..COUNT / 2 {
        session.put(&key(number), &value(number)).unwrap();
    }
    for from in (COUNT / 2..COUNT).step_by(100) {
        let pairs: Vec<_> = (from..from + 100).map(|number| (key(number), value(number))).collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        session.batch(&pairs).unwrap();
    }
}

fn verify(session: &mut dyn Session, who: &str) {
    let mut found = vec![1, 2, 3];
    for number in 0..COUNT {
        assert!(session.get(&key(number), &mut found).unwrap(), "{who}: {number}");
        assert_eq!(found, value(number), "{who}: {number}");
    }
    assert!(!session.get(&key(COUNT), &mut found).unwrap(), "{who}: an absent key");
    assert!(found.is_empty(), "{who}: an absent key's value");
    let mut expected: Vec<_> =
        (0..COUNT).map(|number| (key(number).to_vec(), value(number).to_vec())).collect();
    expected.sort();
    let all = scan(session, &[], u64::MAX);
    assert!(all == expected, "{who}: {} pairs in a scan of all", all.len());
    let from = expected[7].0.clone();
    assert_eq!(scan(session, &from, 100), expected[7..107], "{who}: a scan of 100");
    assert_eq!(scan(session, &from, u64::from(COUNT)).len(), COUNT as usize - 7, "{who}: a scan to the end");
}

fn scan(session: &mut dyn Session, from: &[u8], limit: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let count =
        session.scan(from, limit, &mut |key, value| all.push((key.to_vec(), value.to_vec()))).unwrap();
    assert_eq!(count, all.len() as u64);
    all
}

#[test]
fn every_store_is_built_and_named() {
    let built: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(built, NAMES);
}

#[test]
fn every_store_returns_what_was_put_also_after_reopening() {
    for kind in KINDS {
        for promise in [Promise::Process, Promise::Power] {
            let dir = tempfile::tempdir().unwrap();
            let who = format!("{} {promise}", kind.name);
            let store = open(kind, dir.path(), promise);
            fill(store.session().unwrap().as_mut());
            verify(store.session().unwrap().as_mut(), &who);
            store.close().unwrap();
            let store = open(kind, dir.path(), promise);
            verify(store.session().unwrap().as_mut(), &format!("{who}, opened again"));
            store.close().unwrap();
        }
    }
}

#[test]
fn several_threads_write_and_read_one_store() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let store = open(kind, dir.path(), Promise::Process);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    let mut found = Vec::new();
                    for number in (thread..COUNT).step_by(4) {
                        session.put(&key(number), &value(number)).unwrap();
                        assert!(session.get(&key(number), &mut found).unwrap(), "{}", kind.name);
                    }
                });
            }
        });
        verify(store.session().unwrap().as_mut(), kind.name);
        store.close().unwrap();
    }
}

/// Not an independent test: the process that the next test kills.
#[test]
fn victim() {
    let Ok(wanted) = std::env::var(VICTIM) else { return };
    let (name, dir) = wanted.split_once(' ').unwrap();
    let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
    let store = open(kind, Path::new(dir), Promise::Process);
    let mut session = store.session().unwrap();
    fill(session.as_mut());
    println!("\nfilled");
    loop {
        std::thread::park();
    }
}

#[test]
fn acknowledged_writes_of_process_durability_survive_kill_9() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
            .env(VICTIM, format!("{} {}", kind.name, dir.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let filled = lines.any(|line| line.unwrap() == "filled");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(filled, "{} died before it was killed", kind.name);
        let store = open(kind, dir.path(), Promise::Process);
        verify(store.session().unwrap().as_mut(), &format!("{}, killed", kind.name));
        store.close().unwrap();
    }
}
