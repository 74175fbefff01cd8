//! The test kills a server (`kill -9`) while sixteen connections set keys with and without deadlines, change and remove
//! deadlines, and delete keys, in three databases. Each connection has keys of its own.
//!
//! After the restart each key has the value and the deadline of its last acknowledged command, or of the command that
//! had no reply yet. A key whose deadline has passed is absent, and a background thread removes it.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (20), `BRISTLECONE_SEED` changes the seeds.

use std::collections::BTreeMap;
use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::kill::{Client, Random, Server, check, encode, load_and_kill, on_both_media};

const CONNECTIONS: u64 = 16;
const DATABASES: u64 = 3;
const KEYS: u64 = 12;
/// Acknowledged commands before the kill.
const ENOUGH: u64 = 3000;
/// A deadline in the year 2100, in milliseconds.
const FAR: u64 = 4_102_444_800_000;
/// A deadline that passes before the restart is checked.
const SHORT: Duration = Duration::from_millis(20);

/// Value and deadline. A deadline of 0: it passes soon.
type State = Option<(Vec<u8>, Option<u64>)>;
type Keys = BTreeMap<Vec<u8>, State>;

/// The acknowledged states of the keys, and the key of the command under way with its state if it took effect.
struct Told {
    keys: Keys,
    under_way: Option<(Vec<u8>, State)>,
}

fn key(connection: u64, number: u64) -> Vec<u8> {
    format!("{connection}:{number}").into_bytes()
}

fn select(client: &mut Client, connection: u64) -> Result<()> {
    let mut command = Vec::new();
    encode(&mut command, &[b"SELECT", (connection % DATABASES).to_string().as_bytes()]);
    client.send(&command)?;
    assert_eq!(client.line()?, "+OK");
    Ok(())
}

/// A random command for a key, and the state that it leaves.
fn command(random: &mut Random, key: &[u8], old: &State, serial: u64) -> (Vec<Vec<u8>>, State) {
    let value = format!("value {serial}").into_bytes();
    let (deadline, short) =
        ((FAR + serial).to_string().into_bytes(), SHORT.as_millis().to_string().into_bytes());
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    match random.below(8) {
        0..3 => (words(&[b"SET", key, &value, b"PXAT", &deadline]), Some((value, Some(FAR + serial)))),
        3 => (words(&[b"SET", key, &value]), Some((value, None))),
        4 => (words(&[b"SET", key, &value, b"PX", &short]), Some((value, Some(0)))),
        5 => {
            let new = old
                .clone()
                .map(|(value, deadline)| (value, if deadline == Some(0) { deadline } else { None }));
            (words(&[b"PERSIST", key]), new)
        }
        6 => {
            let new = old
                .clone()
                .map(|(value, old)| (value, if old == Some(0) { old } else { Some(FAR + serial) }));
            (words(&[b"PEXPIREAT", key, &deadline]), new)
        }
        _ => (words(&[b"DEL", key]), None),
    }
}

fn write_until_killed(
    mut client: Client,
    seed: u64,
    connection: u64,
    keys: Keys,
    acknowledged: &AtomicU64,
) -> Told {
    let mut told = Told { keys, under_way: None };
    let mut random = Random(seed);
    if select(&mut client, connection).is_err() {
        return told;
    }
    for serial in 0.. {
        let key = key(connection, random.below(KEYS));
        let old = told.keys.get(&key).cloned().flatten();
        // Whether a deadline that is about to pass has passed is known to the server only.
        if old.as_ref().is_some_and(|(_, deadline)| *deadline == Some(0)) {
            std::thread::sleep(SHORT);
            told.keys.insert(key.clone(), None);
        }
        let old = told.keys.get(&key).cloned().flatten();
        let (words, new) = command(&mut random, &key, &old, (seed << 20) % 1_000_000 + serial);
        let mut bytes = Vec::new();
        encode(&mut bytes, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        told.under_way = Some((key.clone(), new.clone()));
        let Ok(reply) = client.send(&bytes).and_then(|()| client.line()) else { return told };
        assert!(!reply.starts_with('-'), "{reply}");
        told.keys.insert(key, new);
        told.under_way = None;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    told
}

/// The value and the deadline of a key.
fn state(client: &mut Client, key: &[u8]) -> Result<State> {
    let mut commands = Vec::new();
    encode(&mut commands, &[b"GET", key]);
    encode(&mut commands, &[b"PEXPIRETIME", key]);
    client.send(&commands)?;
    let line = client.line()?;
    let value = client.bulk_behind(&line)?;
    let deadline: i64 =
        client.line()?.strip_prefix(':').and_then(|text| text.parse().ok()).expect("a number");
    Ok(value.map(|value| (value, u64::try_from(deadline).ok())))
}

fn campaign(parent: &Path, durability: &str, rounds: u64, seed: u64) {
    let dir = tempfile::Builder::new().prefix("bristlecone-expiry-").tempdir_in(parent).expect("a directory");
    let mut all = vec![Keys::new(); CONNECTIONS as usize];
    let (mut kept, mut gone) = (0, 0);
    for round in 0..rounds {
        let server = Server::start(dir.path(), durability);
        let told = load_and_kill(server, CONNECTIONS, ENOUGH, |connection, client, acknowledged| {
            let keys = all[connection as usize].clone();
            write_until_killed(client, seed ^ round << 16 ^ connection << 32, connection, keys, acknowledged)
        });
        std::thread::sleep(SHORT);
        let place = format!("{}, {durability}, round {round}, seed {seed}", parent.display());
        let server = Server::start(dir.path(), durability);
        let mut client = Client::connect(&server);
        for (connection, told) in told.into_iter().enumerate() {
            select(&mut client, connection as u64).expect("the server answers");
            for number in 0..KEYS {
                let key = key(connection as u64, number);
                let found = state(&mut client, &key).expect("the server answers");
                let passed = |state: State| state.filter(|(_, deadline)| *deadline != Some(0));
                let last = passed(told.keys.get(&key).cloned().flatten());
                let other =
                    told.under_way.iter().find(|(of, _)| *of == key).map(|(_, state)| passed(state.clone()));
                assert!(
                    found == last || other.as_ref() == Some(&found),
                    "{place}: {found:?} is neither {last:?} nor {other:?}"
                );
                *(if found.is_some() { &mut kept } else { &mut gone }) += 1;
                all[connection].insert(key, found);
            }
        }
        server.kill();
        check(dir.path());
    }
    assert!(
        rounds == 0 || kept > 0 && gone > 0,
        "{kept} keys were present after restarts, {gone} were absent"
    );
}

#[test]
fn deadlines_survive_kill_9_with_their_values() {
    on_both_media(20, campaign);
}
