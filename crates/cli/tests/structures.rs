//! The test kills a server (`kill -9`) while all connections change hashes, lists, sets and sorted sets.
//!
//! Each connection adds the numbers from 1 on to a list and a set of its own, and its count to a hash and a sorted set that all share. The
//! four writes of a number are one transaction. Beside that all connections move tokens between shared lists. After the restart every
//! acknowledged number is present, the four structures agree, and each token is in exactly one list.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (20), `BRISTLECONE_SEED` changes the seeds.

use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kill::{Client, Random, Server, check, encode, load_and_kill, on_both_media};

const CONNECTIONS: u64 = 8;
const LISTS: u64 = 3;
const TOKENS: u64 = 20;
/// Acknowledged numbers before the kill.
const ENOUGH: u64 = 200;

fn send(client: &mut Client, lines: &[String]) -> Result<()> {
    let mut commands = Vec::new();
    for line in lines {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        encode(&mut commands, &words);
    }
    client.send(&commands)
}

/// The next reply: the texts of all its values.
fn reply(client: &mut Client) -> Result<Vec<String>> {
    let (mut texts, mut left) = (Vec::new(), 1_u64);
    while left > 0 {
        left -= 1;
        let line = client.line()?;
        match line.split_at(1) {
            ("*", "-1") => texts.push(String::new()),
            ("*", count) => left += count.parse::<u64>().expect("a length"),
            ("$", _) => {
                let text = client.bulk_behind(&line)?.unwrap_or_default();
                texts.push(String::from_utf8(text).expect("text"));
            }
            ("-", error) => panic!("{error}"),
            (_, text) => texts.push(text.to_owned()),
        }
    }
    Ok(texts)
}

fn ask(client: &mut Client, line: &str) -> Result<Vec<String>> {
    send(client, &[line.to_owned()])?;
    reply(client)
}

/// Adds the next number of a connection. Returns it.
fn add(client: &mut Client, connection: u64, number: u64) -> Result<u64> {
    let lines = [
        "MULTI".to_owned(),
        format!("RPUSH list:{connection} {number}"),
        format!("HINCRBY counts {connection} 1"),
        format!("ZINCRBY scores 1 {connection}"),
        format!("SADD set:{connection} {number}"),
        "EXEC".to_owned(),
    ];
    send(client, &lines)?;
    for _ in 0..5 {
        reply(client)?;
    }
    let replies = reply(client)?;
    assert_eq!(replies, [number.to_string(), number.to_string(), number.to_string(), "1".to_owned()]);
    Ok(number)
}

/// Changes structures until the server is gone. Returns the last acknowledged number.
fn change_until_killed(mut client: Client, seed: u64, connection: u64, acknowledged: &AtomicU64) -> u64 {
    let mut random = Random(seed);
    let Ok(counted) = ask(&mut client, &format!("HGET counts {connection}")) else { return 0 };
    let mut number: u64 = counted[0].parse().unwrap_or(0);
    loop {
        let [from, to] = [random.below(LISTS), random.below(LISTS)];
        let ends = ["LEFT LEFT", "LEFT RIGHT", "RIGHT LEFT"][random.below(3) as usize];
        if ask(&mut client, &format!("LMOVE tokens:{from} tokens:{to} {ends}")).is_err() {
            return number;
        }
        match add(&mut client, connection, number + 1) {
            Ok(added) => number = added,
            Err(_) => return number,
        }
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

fn campaign(parent: &Path, durability: &str, rounds: u64, seed: u64) {
    let dir = tempfile::Builder::new().prefix("bristlecone-types-").tempdir_in(parent).expect("a directory");
    for round in 0..rounds {
        let server = Server::start(dir.path(), durability);
        if round == 0 {
            let mut client = Client::connect(&server);
            for token in 0..TOKENS {
                ask(&mut client, &format!("RPUSH tokens:0 {token}")).expect("the server answers");
            }
        }
        let told = load_and_kill(server, CONNECTIONS, ENOUGH, |connection, client, acknowledged| {
            change_until_killed(client, seed ^ round << 16 ^ connection << 32, connection, acknowledged)
        });

        let place = format!("{}, {durability}, round {round}, seed {seed}", parent.display());
        let server = Server::start(dir.path(), durability);
        let mut client = Client::connect(&server);
        let mut ask = |line: String| ask(&mut client, &line).expect("the server answers");
        let mut tokens: Vec<u64> = (0..LISTS)
            .flat_map(|list| ask(format!("LRANGE tokens:{list} 0 -1")))
            .map(|token| token.parse().expect("a number"))
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..TOKENS).collect::<Vec<_>>(), "{place}");
        for (connection, told) in told.iter().enumerate() {
            let count: u64 = ask(format!("HGET counts {connection}"))[0].parse().unwrap_or(0);
            assert!(count >= *told, "{place}: {told} numbers were acknowledged, {count} are present");
            let numbers: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            assert_eq!(ask(format!("LRANGE list:{connection} 0 -1")), numbers, "{place}");
            let mut members = ask(format!("SMEMBERS set:{connection}"));
            members.sort_by_key(|member| member.parse::<u64>().ok());
            assert_eq!(members, numbers, "{place}");
            let score = ask(format!("ZSCORE scores {connection}"));
            assert_eq!(score[0].parse::<u64>().unwrap_or(0), count, "{place}");
        }
        println!("{place}: {} numbers", told.iter().sum::<u64>());
        server.kill();
        check(dir.path());
    }
}

#[test]
fn structures_are_whole_across_kill_9() {
    on_both_media(20, campaign);
}
