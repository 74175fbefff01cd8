//! The test kills a server (`kill -9`) while all connections load libraries of functions and call them.
//!
//! Each connection replaces its own library by the next version, whose functions return its number, and calls it. A call writes the number
//! to two keys. After the restart the library is the last acknowledged version or the next one, both functions are of the same version, and
//! both keys have the same number, which is at least the one of the last acknowledged call.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (12).

use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kill::{Client, Server, check, encode, load_and_kill, on_both_media};

const CONNECTIONS: u64 = 4;
/// Acknowledged versions before the kill.
const ENOUGH: u64 = 60;

/// Sends a command. Returns its reply: an integer or a text.
fn ask(client: &mut Client, words: &[&str]) -> Result<String> {
    let mut command = Vec::new();
    encode(&mut command, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    client.send(&command)?;
    let line = client.line()?;
    match line.split_at(1) {
        ("$", _) => {
            let text = client.bulk_behind(&line)?.unwrap_or_default();
            Ok(String::from_utf8(text).expect("text"))
        }
        ("-", error) => panic!("{error}"),
        (_, text) => Ok(text.to_owned()),
    }
}

fn library(connection: u64, version: u64) -> String {
    format!(
        "#!lua name=lib{connection}\n\
         redis.register_function('version{connection}', function() return {version} end)\n\
         redis.register_function('write{connection}', function(keys)\n\
           redis.call('set', keys[1], {version})\n\
           redis.call('set', keys[2], {version})\n\
           return {version}\n\
         end)"
    )
}

fn names(connection: u64) -> [String; 4] {
    [
        format!("version{connection}"),
        format!("write{connection}"),
        format!("a{connection}"),
        format!("b{connection}"),
    ]
}

/// Loads and calls the next versions until the server is gone. Returns the last acknowledged version, and that of the last call.
fn load_until_killed(
    mut client: Client,
    connection: u64,
    first: u64,
    acknowledged: &AtomicU64,
) -> (u64, u64) {
    let [_, write, a, b] = names(connection);
    let (mut loaded, mut called) = (first, first);
    loop {
        let next = loaded + 1;
        if ask(&mut client, &["FUNCTION", "LOAD", "REPLACE", &library(connection, next)]).is_err() {
            return (loaded, called);
        }
        loaded = next;
        acknowledged.fetch_add(1, Ordering::Relaxed);
        match ask(&mut client, &["FCALL", &write, "2", &a, &b]) {
            Ok(version) => assert_eq!(version, next.to_string()),
            Err(_) => return (loaded, called),
        }
        called = next;
    }
}

fn campaign(parent: &Path, durability: &str, rounds: u64, _seed: u64) {
    let dir =
        tempfile::Builder::new().prefix("bristlecone-functions-").tempdir_in(parent).expect("a directory");
    let mut present = [0; CONNECTIONS as usize];
    for round in 0..rounds {
        let server = Server::start(dir.path(), durability);
        let told = load_and_kill(server, CONNECTIONS, ENOUGH, |connection, client, acknowledged| {
            load_until_killed(client, connection, present[connection as usize], acknowledged)
        });

        let place = format!("{}, {durability}, round {round}", parent.display());
        let server = Server::start(dir.path(), durability);
        let mut client = Client::connect(&server);
        for (connection, (loaded, called)) in told.iter().enumerate() {
            let [version, write, a, b] = names(connection as u64);
            let number = |text: String| text.parse::<u64>().unwrap_or(0);
            let mut ask = |words: &[&str]| number(ask(&mut client, words).expect("the server answers"));
            let written = [ask(&["GET", &a]), ask(&["GET", &b])];
            assert!(written[0] == written[1] && written[0] >= *called, "{place}: {written:?}, {called}");
            // Without an acknowledged version, there may be no library.
            if *loaded == 0 {
                continue;
            }
            let found = ask(&["FCALL", &version, "0"]);
            assert!(
                (*loaded..=loaded + 1).contains(&found),
                "{place}: version {found}, {loaded} acknowledged"
            );
            assert_eq!(ask(&["FCALL", &write, "2", &a, &b]), found, "{place}");
            present[connection] = found;
        }
        println!("{place}: versions {present:?}");
        server.kill();
        check(dir.path());
    }
}

#[test]
fn libraries_are_whole_across_kill_9() {
    on_both_media(12, campaign);
}
