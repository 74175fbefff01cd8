//! The test kills a server (`kill -9`) while all connections write and read the same keys. All replies, before the kill and after the
//! restart, must be linearizable: for each key there is an order of the operations that explains the replies.
//!
//! Operations without a reply may have happened or not. The test reads all keys after the restart; these reads come
//! after all other operations of the order. If a write that was acknowledged, or that another connection had read, is
//! lost, no order explains the replies.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (100), `BRISTLECONE_SEED` changes the seeds.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crash::{Found, History};

use crate::kill::{Client, Random, Server, check, encode, load_and_kill, on_both_media};

const CONNECTIONS: u64 = 16;
/// Few, so that connections conflict on them.
const KEYS: u64 = 24;
/// Maximum number of commands in a pipeline. The check treats the commands of a connection as concurrent until the first reply; a long
/// pipeline would explain any outcome.
const DEPTH: u64 = 4;
/// Acknowledged commands before the kill.
const ENOUGH: u64 = 1500;

#[derive(Clone, Copy)]
enum Op {
    Set(u64),
    Get,
    Delete,
}

fn key_name(key: u64) -> Vec<u8> {
    format!("shared:{key:04}").into_bytes()
}

fn number_of(value: Option<Vec<u8>>) -> Option<u64> {
    value.map(|text| String::from_utf8(text).expect("digits").parse().expect("a number of ours"))
}

/// Reads the reply to a command. An error once the server is gone.
fn reply(client: &mut Client, op: Op) -> std::io::Result<(Found, Option<Option<u64>>)> {
    let line = client.line()?;
    Ok(match op {
        Op::Set(number) => {
            assert_eq!(line, "+OK");
            (Found::Untold, Some(Some(number)))
        }
        Op::Get => (Found::Value(number_of(client.bulk_behind(&line)?)), None),
        Op::Delete => (Found::There(line == ":1"), Some(None)),
    })
}

/// Writes, reads and deletes in short pipelines until the server is gone. This connection stores the numbers from `first` on.
fn use_until_killed(mut client: Client, seed: u64, first: u64, history: &History, acknowledged: &AtomicU64) {
    let mut random = Random(seed);
    let mut number = first;
    loop {
        let ops: Vec<(u64, Op)> = (0..1 + random.below(DEPTH))
            .map(|_| {
                number += 1;
                let op = match random.below(8) {
                    0..=3 => Op::Set(number),
                    4..=6 => Op::Get,
                    _ => Op::Delete,
                };
                (random.below(KEYS), op)
            })
            .collect();
        let mut commands = Vec::new();
        for (key, op) in &ops {
            let name = key_name(*key);
            match op {
                Op::Set(number) => encode(&mut commands, &[b"SET", &name, number.to_string().as_bytes()]),
                Op::Get => encode(&mut commands, &[b"GET", &name]),
                Op::Delete => encode(&mut commands, &[b"DEL", &name]),
            }
        }
        let called = history.now();
        let mut is_gone = client.send(&commands).is_err();
        for (key, op) in ops {
            match if is_gone { Err(std::io::ErrorKind::BrokenPipe.into()) } else { reply(&mut client, op) } {
                Ok((found, writes)) => {
                    history.note(key, called, Some(found), writes);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    is_gone = true;
                    match op {
                        Op::Set(number) => history.note(key, called, None, Some(Some(number))),
                        Op::Delete => history.note(key, called, None, Some(None)),
                        Op::Get => {}
                    }
                }
            }
        }
        if is_gone {
            return;
        }
    }
}

/// The values of all keys.
fn read_back(client: &mut Client) -> Vec<Option<u64>> {
    let mut commands = Vec::new();
    (0..KEYS).for_each(|key| encode(&mut commands, &[b"GET", &key_name(key)]));
    client.send(&commands).expect("the server reads");
    (0..KEYS).map(|_| number_of(client.bulk())).collect()
}

fn campaign(parent: &Path, durability: &str, rounds: u64, seed: u64) {
    let dir = tempfile::Builder::new().prefix("bristlecone-shared-").tempdir_in(parent).expect("a directory");
    let mut start = vec![None; KEYS as usize];
    for round in 0..rounds {
        let server = Server::start(dir.path(), durability);
        let history = History::default();
        load_and_kill(server, CONNECTIONS, ENOUGH, |connection, client, acknowledged| {
            let seed = seed ^ round << 16 ^ connection << 32;
            let first = (round * CONNECTIONS + connection) << 32;
            use_until_killed(client, seed, first, &history, acknowledged);
        });

        let server = Server::start(dir.path(), durability);
        let found = read_back(&mut Client::connect(&server));
        (0..KEYS).zip(&found).for_each(|(key, value)| history.found_after(key, *value));
        let place = format!("{}, {durability}, round {round}, seed {seed}", parent.display());
        let weight = history.judge(|key| start[key as usize]).unwrap_or_else(|why| panic!("{place}: {why}"));
        assert!(weight.overlapping > 0, "{place}: connections did not meet: {weight:?}");
        println!("{place}: {weight:?}, explained");
        server.kill();
        assert_eq!(check(dir.path()), found.iter().flatten().count() as u64, "{place}: keys in the store");
        start = found;
    }
}

#[test]
fn what_connections_are_told_of_shared_keys_is_explained_across_kill_9() {
    on_both_media(100, campaign);
}

/// The check detects the failures that the campaign above looks for.
#[test]
fn an_acknowledged_or_read_write_that_a_restart_lost_is_not_explained() {
    let acknowledged = History::default();
    let called = acknowledged.now();
    acknowledged.note(1, called, Some(Found::Untold), Some(Some(7)));
    acknowledged.found_after(1, None);
    assert!(acknowledged.judge(|_| None).is_err());
    let read = History::default();
    let called = read.now();
    read.note(1, called, None, Some(Some(7)));
    let called = read.now();
    read.note(1, called, Some(Found::Value(Some(7))), None);
    read.found_after(1, None);
    assert!(read.judge(|_| None).is_err(), "another connection had read it");
    let lost = History::default();
    let called = lost.now();
    lost.note(1, called, None, Some(Some(7)));
    lost.found_after(1, None);
    assert!(lost.judge(|_| None).is_ok(), "nobody was told of it");
}
