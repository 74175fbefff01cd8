//! The test kills a server (`kill -9`) while all connections run transactions on the same keys. A transaction moves an amount between two
//! accounts with WATCH, MULTI and EXEC.
//!
//! After the restart the sum of the accounts is the same, and every acknowledged transaction is present: each connection counts its
//! transactions in a key that changes in the same transactions. While the server runs, every MGET finds the same sum.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (100), `BRISTLECONE_SEED` changes the seeds.

use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kill::{Client, Random, Server, check, encode, load_and_kill, on_both_media};

const CONNECTIONS: u64 = 16;
const ACCOUNTS: u64 = 6;
const SUM: i64 = 1000 * ACCOUNTS as i64;
/// Acknowledged transactions before the kill.
const ENOUGH: u64 = 400;

fn account(number: u64) -> Vec<u8> {
    format!("account:{number}").into_bytes()
}

fn counter(connection: u64) -> Vec<u8> {
    format!("moves:{connection}").into_bytes()
}

fn expect(client: &mut Client, line: &str) -> Result<()> {
    let found = client.line()?;
    assert_eq!(found, line);
    Ok(())
}

/// The numbers of an array of bulk strings; 0 for an absent one.
fn numbers(client: &mut Client) -> Result<Vec<i64>> {
    let line = client.line()?;
    let count: usize = line.strip_prefix('*').and_then(|count| count.parse().ok()).expect("an array");
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let line = client.line()?;
        let text = client.bulk_behind(&line)?.unwrap_or_else(|| b"0".to_vec());
        all.push(String::from_utf8(text).expect("digits").parse().expect("a number"));
    }
    Ok(all)
}

fn mget(client: &mut Client, keys: &[Vec<u8>]) -> Result<Vec<i64>> {
    let mut command = Vec::new();
    let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
    encode(&mut command, &words);
    client.send(&command)?;
    numbers(client)
}

/// Moves an amount between two accounts. `None` after a conflict, otherwise the number of this connection's moves.
fn move_once(client: &mut Client, random: &mut Random, connection: u64) -> Result<Option<u64>> {
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    let amount = 1 + random.below(9) as i64;
    let (from, to) = (account(from), account(to));
    let mut commands = Vec::new();
    encode(&mut commands, &[b"WATCH", &from, &to]);
    client.send(&commands)?;
    expect(client, "+OK")?;
    let balances = mget(client, &[from.clone(), to.clone()])?;
    let mut commands = Vec::new();
    encode(&mut commands, &[b"MULTI"]);
    encode(&mut commands, &[b"SET", &from, (balances[0] - amount).to_string().as_bytes()]);
    encode(&mut commands, &[b"INCR", &counter(connection)]);
    encode(&mut commands, &[b"SET", &to, (balances[1] + amount).to_string().as_bytes()]);
    encode(&mut commands, &[b"EXEC"]);
    client.send(&commands)?;
    expect(client, "+OK")?;
    (0..3).try_for_each(|_| expect(client, "+QUEUED"))?;
    match client.line()?.as_str() {
        "*-1" => Ok(None),
        "*3" => {
            expect(client, "+OK")?;
            let moves = client.line()?;
            expect(client, "+OK")?;
            Ok(Some(moves.strip_prefix(':').and_then(|count| count.parse().ok()).expect("a number")))
        }
        other => panic!("EXEC answered {other}"),
    }
}

/// Moves amounts until the server is gone. Returns the number of this connection's acknowledged moves, and of conflicts.
fn move_until_killed(mut client: Client, seed: u64, connection: u64, acknowledged: &AtomicU64) -> (u64, u64) {
    let (mut random, mut moves, mut conflicts) = (Random(seed), 0, 0);
    let accounts: Vec<_> = (0..ACCOUNTS).map(account).collect();
    loop {
        match move_once(&mut client, &mut random, connection) {
            Ok(Some(count)) => {
                moves = count;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(None) => conflicts += 1,
            Err(_) => return (moves, conflicts),
        }
        if random.below(4) == 0 {
            match mget(&mut client, &accounts) {
                Ok(balances) => assert_eq!(balances.iter().sum::<i64>(), SUM, "{balances:?}"),
                Err(_) => return (moves, conflicts),
            }
        }
    }
}

fn campaign(parent: &Path, durability: &str, rounds: u64, seed: u64) {
    let dir = tempfile::Builder::new().prefix("bristlecone-moves-").tempdir_in(parent).expect("a directory");
    let accounts: Vec<_> = (0..ACCOUNTS).map(account).collect();
    for round in 0..rounds {
        let server = Server::start(dir.path(), durability);
        if round == 0 {
            let mut commands = Vec::new();
            accounts.iter().for_each(|account| encode(&mut commands, &[b"SET", account, b"1000"]));
            let mut client = Client::connect(&server);
            client.send(&commands).expect("the server reads");
            accounts.iter().for_each(|_| expect(&mut client, "+OK").expect("the server answers"));
        }
        let told = load_and_kill(server, CONNECTIONS, ENOUGH, |connection, client, acknowledged| {
            move_until_killed(client, seed ^ round << 16 ^ connection << 32, connection, acknowledged)
        });

        let place = format!("{}, {durability}, round {round}, seed {seed}", parent.display());
        let server = Server::start(dir.path(), durability);
        let mut client = Client::connect(&server);
        let balances = mget(&mut client, &accounts).expect("the server answers");
        assert_eq!(balances.iter().sum::<i64>(), SUM, "{place}: {balances:?}");
        let counters: Vec<_> = (0..CONNECTIONS).map(counter).collect();
        let counts = mget(&mut client, &counters).expect("the server answers");
        for (count, (moves, _)) in counts.iter().zip(&told) {
            assert!(*count as u64 >= *moves, "{place}: {moves} moves were acknowledged, {count} are present");
        }
        let conflicts: u64 = told.iter().map(|(_, conflicts)| conflicts).sum();
        assert!(conflicts > 0, "{place}: connections did not meet");
        println!("{place}: {conflicts} conflicts");
        server.kill();
        check(dir.path());
    }
}

#[test]
fn transactions_are_whole_across_kill_9() {
    on_both_media(100, campaign);
}
