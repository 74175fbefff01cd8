//! The test kills a server (`kill -9`) while all connections change values of every type.
//!
//! Each connection adds the numbers from 1 on to a list, a set, a stream, a HyperLogLog and places of its own, and its count to a hash and a
//! sorted set that all share. All writes of a number are one transaction. Two of its keys have deadlines: one passes soon, the other does
//! not. A consumer group reads each stream and acknowledges most entries. A script counts in two keys. Beside that all connections move
//! tokens between shared lists. After the restart every acknowledged change is present, all types agree, and each token is in exactly one
//! list.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (20), `BRISTLECONE_SEED` changes the seeds.

use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// Counts in a string and in a hash. Without spaces, because [`send`] splits lines.
const SCRIPT: &str = r#"redis.call("INCR",KEYS[1]);return(redis.call("HINCRBY",KEYS[2],ARGV[1],1))"#;
/// Milliseconds until the list `brief` of a connection is gone.
const BRIEF_MS: u64 = 30;
/// The consumer acknowledges no entry whose number is a multiple of this one.
const PENDING_EACH: u64 = 10;

/// The changes of a connection that the server has acknowledged.
#[derive(Clone, Copy, Default)]
struct Told {
    /// The last number added.
    number: u64,
    /// The last number that the consumer got from the stream.
    read: u64,
    /// The last number that the consumer acknowledged.
    done: u64,
    /// Runs of the script.
    scripted: u64,
}

/// The numbers in the IDs of entries, such as `7-1`.
fn numbers(texts: &[String]) -> Vec<u64> {
    texts.iter().filter_map(|text| text.strip_suffix("-1")?.parse().ok()).collect()
}

/// Adds the next number of a connection, lets the consumer read it, and runs the script, in one pipeline. Returns the numbers read.
fn add(client: &mut Client, connection: u64, told: &mut Told) -> Result<Vec<u64>> {
    let number = told.number + 1;
    let writes = [
        format!("RPUSH list:{connection} {number}"),
        format!("HINCRBY counts {connection} 1"),
        format!("ZINCRBY scores 1 {connection}"),
        format!("SADD set:{connection} {number}"),
        format!("XADD stream:{connection} {number}-1 n {number}"),
        format!("PFADD seen:{connection} {number}"),
        format!("GEOADD places:{connection} {} 10 {number}", number % 180),
        format!("HSET kept:{connection} n {number}"),
        format!("PEXPIRE kept:{connection} 86400000"),
        format!("RPUSH brief:{connection} {number}"),
        format!("PEXPIRE brief:{connection} {BRIEF_MS}"),
    ];
    let mut lines = vec!["MULTI".to_owned()];
    lines.extend(writes.iter().cloned());
    lines.extend([
        "EXEC".to_owned(),
        format!("XREADGROUP GROUP readers ann STREAMS stream:{connection} >"),
        format!("EVAL {SCRIPT} 2 scripts:{connection} scripts {connection}"),
    ]);
    send(client, &lines)?;
    for _ in 0..=writes.len() {
        reply(client)?;
    }
    let replies = reply(client)?;
    let text = number.to_string();
    let first = [text.clone(), text.clone(), text, "1".to_owned(), format!("{number}-1")];
    assert_eq!(replies[..5], first);
    told.number = number;
    let read = numbers(&reply(client)?);
    told.read = read.last().copied().unwrap_or(told.read);
    told.scripted = reply(client)?[0].parse().expect("a count");
    Ok(read)
}

/// Moves a token, and acknowledges entries of the stream.
fn acknowledge(
    client: &mut Client,
    connection: u64,
    moves: String,
    read: &[u64],
    told: &mut Told,
) -> Result<()> {
    let done: Vec<u64> = read.iter().copied().filter(|number| number % PENDING_EACH != 0).collect();
    let ids: String = done.iter().map(|number| format!(" {number}-1")).collect();
    let acknowledges = (!done.is_empty()).then(|| format!("XACK stream:{connection} readers{ids}"));
    send(client, &[Some(moves), acknowledges].into_iter().flatten().collect::<Vec<_>>())?;
    reply(client)?;
    if let Some(last) = done.last() {
        assert_eq!(reply(client)?, [done.len().to_string()]);
        told.done = *last;
    }
    Ok(())
}

/// Changes values until the server is gone.
fn change(
    client: &mut Client,
    mut random: Random,
    connection: u64,
    acknowledged: &AtomicU64,
    told: &mut Told,
) -> Result<()> {
    let counted = ask(client, &format!("HGET counts {connection}"))?;
    told.number = counted[0].parse().unwrap_or(0);
    // Entries that a consumer got before the kill.
    let again = format!("XREADGROUP GROUP readers ann STREAMS stream:{connection} 0");
    let mut read = numbers(&ask(client, &again)?);
    loop {
        let [from, to] = [random.below(LISTS), random.below(LISTS)];
        let ends = ["LEFT LEFT", "LEFT RIGHT", "RIGHT LEFT"][random.below(3) as usize];
        let moves = format!("LMOVE tokens:{from} tokens:{to} {ends}");
        acknowledge(client, connection, moves, &read, told)?;
        read = add(client, connection, told)?;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks the values of a connection after the restart.
fn check_connection(mut ask: impl FnMut(String) -> Vec<String>, connection: usize, told: Told, place: &str) {
    let one = |texts: Vec<String>| texts[0].parse::<u64>().unwrap_or(0);
    let count = one(ask(format!("HGET counts {connection}")));
    assert!(count >= told.number, "{place}: {} numbers were acknowledged, {count} are present", told.number);
    let all: Vec<u64> = (1..=count).collect();
    let texts: Vec<String> = all.iter().map(u64::to_string).collect();
    assert_eq!(ask(format!("LRANGE list:{connection} 0 -1")), texts, "{place}");
    let mut members = ask(format!("SMEMBERS set:{connection}"));
    members.sort_by_key(|member| member.parse::<u64>().ok());
    assert_eq!(members, texts, "{place}");
    assert_eq!(numbers(&ask(format!("XRANGE stream:{connection} - +"))), all, "{place}");
    assert_eq!(one(ask(format!("XLEN stream:{connection}"))), count, "{place}");
    for line in ["ZSCORE scores ", "ZCARD places:", "HGET kept:"] {
        let end = if line.starts_with("HGET") { " n" } else { "" };
        assert_eq!(one(ask(format!("{line}{connection}{end}"))), count, "{place}: {line}");
    }
    let seen = one(ask(format!("PFCOUNT seen:{connection}")));
    assert!(seen.abs_diff(count) <= 2 + count / 20, "{place}: about {seen} numbers for {count}");
    assert!(count == 0 || one(ask(format!("PTTL kept:{connection}"))) > 0, "{place}: no deadline");
    assert!(ask(format!("LRANGE brief:{connection} 0 -1")).is_empty(), "{place}: its deadline has passed");

    let group = ask(format!("XINFO GROUPS stream:{connection}"));
    let at = group.iter().position(|text| text == "last-delivered-id").expect("the group exists");
    let read = numbers(&group[at + 1..=at + 1]).first().copied().unwrap_or(0);
    assert!((told.read..=count).contains(&read), "{place}: read {read} of {count}, told {}", told.read);
    let pending = numbers(&ask(format!("XPENDING stream:{connection} readers - + {}", count + 1)));
    for number in 1..=read {
        let is_pending = pending.contains(&number);
        let may_be = number % PENDING_EACH == 0 || number > told.done;
        let must_be = number % PENDING_EACH == 0;
        assert!(is_pending || !must_be, "{place}: the entry {number} is not pending");
        assert!(!is_pending || may_be, "{place}: the entry {number} was acknowledged and is pending");
    }
    let scripted = one(ask(format!("GET scripts:{connection}")));
    assert_eq!(one(ask(format!("HGET scripts {connection}"))), scripted, "{place}");
    assert!(scripted >= told.scripted, "{place}: {scripted} runs of the script for {}", told.scripted);
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
            for connection in 0..CONNECTIONS {
                let line = format!("XGROUP CREATE stream:{connection} readers 0 MKSTREAM");
                ask(&mut client, &line).expect("the server answers");
            }
        }
        let told = load_and_kill(server, CONNECTIONS, ENOUGH, |connection, mut client, acknowledged| {
            let random = Random(seed ^ round << 16 ^ connection << 32);
            let mut told = Told::default();
            // The kill ends it with an error.
            let _ = change(&mut client, random, connection, acknowledged, &mut told);
            told
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
        std::thread::sleep(Duration::from_millis(BRIEF_MS));
        for (connection, told) in told.iter().enumerate() {
            check_connection(&mut ask, connection, *told, &place);
        }
        println!("{place}: {} numbers", told.iter().map(|told| told.number).sum::<u64>());
        server.kill();
        check(dir.path());
    }
}

#[test]
fn values_of_every_type_are_whole_across_kill_9() {
    on_both_media(20, campaign);
}
