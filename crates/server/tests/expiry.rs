//! Deadlines and databases, as clients see them.

use std::time::Duration;

use redis::{Commands as _, Connection, RedisResult, Value, cmd};

use crate::common::TestServer;
use bristlecone::{Clock, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server whose store has a clock that the test sets.
fn server() -> (TestServer, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || shown.load(Ordering::SeqCst));
    (TestServer::over(Options::default().tables(true).clock(clock), server::Config::default()), now)
}

fn number(client: &mut Connection, words: &[&str]) -> i64 {
    words[1..].iter().fold(&mut cmd(words[0]), |cmd, word| cmd.arg(*word)).query(client).unwrap()
}

fn error(result: RedisResult<Value>) -> String {
    let error = result.unwrap_err();
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

#[test]
fn keys_expire_at_their_deadline_and_not_before() {
    let (server, now) = server();
    let client = &mut server.client();
    let _: () = client.set_ex("a", "1", 10).unwrap();
    let _: () = client.set("b", "2").unwrap();
    assert_eq!(number(client, &["PTTL", "a"]), 10_000);
    assert_eq!(number(client, &["TTL", "a"]), 10);
    assert_eq!(number(client, &["EXPIRETIME", "a"]), 1010);
    assert_eq!(number(client, &["TTL", "b"]), -1);
    assert_eq!(number(client, &["TTL", "absent"]), -2);
    assert_eq!(number(client, &["EXPIRE", "absent", "5"]), 0);
    assert_eq!(number(client, &["EXPIRE", "b", "20", "XX"]), 0);
    assert_eq!(number(client, &["PEXPIRE", "b", "20000", "NX"]), 1);
    assert_eq!(number(client, &["EXPIRE", "b", "5", "GT"]), 0);
    assert_eq!(number(client, &["EXPIRE", "b", "5", "LT"]), 1);
    // Counters and appended values keep their deadline, new values do not.
    assert_eq!(number(client, &["INCR", "a"]), 2);
    assert_eq!(number(client, &["APPEND", "a", "0"]), 2);
    assert_eq!(number(client, &["TTL", "a"]), 10);
    now.store(1_004_999, Ordering::SeqCst);
    assert_eq!(client.get::<_, Option<String>>("b").unwrap().as_deref(), Some("2"));
    now.store(1_005_000, Ordering::SeqCst);
    assert_eq!(client.get::<_, Option<String>>("b").unwrap(), None);
    assert_eq!(number(client, &["EXISTS", "a", "b"]), 1);
    assert_eq!(client.keys::<_, Vec<String>>("*").unwrap(), ["a"]);
    let _: () = client.set("a", "new").unwrap();
    now.store(2_000_000, Ordering::SeqCst);
    assert_eq!(client.get::<_, Option<String>>("a").unwrap().as_deref(), Some("new"));
    assert_eq!(number(client, &["EXPIRE", "a", "-1"]), 1);
    assert_eq!(client.get::<_, Option<String>>("a").unwrap(), None);
}

#[test]
fn a_deadline_moves_with_its_key_and_survives_a_transaction() {
    let (server, now) = server();
    let client = &mut server.client();
    let _: () = client.set_ex("a", "1", 10).unwrap();
    let _: () = cmd("RENAME").arg("a").arg("b").query(client).unwrap();
    assert_eq!(number(client, &["TTL", "b"]), 10);
    assert_eq!(number(client, &["COPY", "b", "c", "DB", "3"]), 1);
    assert_eq!(number(client, &["MOVE", "b", "2"]), 1);
    assert_eq!(number(client, &["DBSIZE"]), 0);
    let replies: (Value, i64, i64, i64) = redis::pipe()
        .atomic()
        .cmd("SELECT")
        .arg(2)
        .cmd("TTL")
        .arg("b")
        .cmd("PEXPIRE")
        .arg("b")
        .arg(5_000)
        .cmd("INCR")
        .arg("b")
        .query(client)
        .unwrap();
    assert_eq!(replies, (Value::Okay, 10, 1, 2));
    // The transaction left the connection in database 2.
    assert_eq!(number(client, &["PTTL", "b"]), 5_000);
    now.fetch_add(5_000, Ordering::SeqCst);
    assert_eq!(number(client, &["EXISTS", "b"]), 0);
    let _: () = cmd("SELECT").arg(3).query(client).unwrap();
    assert_eq!(number(client, &["TTL", "c"]), 5);
    let info: String = cmd("INFO").arg("keyspace").query(client).unwrap();
    assert!(info.contains("db3:keys=1,expires=1"), "{info}");
    assert_eq!(
        error(cmd("SET").arg("x").arg(1).arg("EX").arg(0).query(client)),
        "ERR invalid expire time in 'set' command"
    );
}

#[test]
fn databases_are_apart_swap_in_one_step_and_are_flushed_alone() {
    let (server, _) = server();
    let client = &mut server.client();
    let _: () = client.set("k", "zero").unwrap();
    let _: () = cmd("SELECT").arg(1).query(client).unwrap();
    assert_eq!(client.get::<_, Option<String>>("k").unwrap(), None);
    let _: () = client.set("k", "one").unwrap();
    let _: () = cmd("SWAPDB").arg(0).arg(1).query(client).unwrap();
    assert_eq!(client.get::<_, String>("k").unwrap(), "zero");
    let _: () = cmd("FLUSHDB").query(client).unwrap();
    assert_eq!(number(client, &["DBSIZE"]), 0);
    let _: () = cmd("SELECT").arg(0).query(client).unwrap();
    assert_eq!(client.get::<_, String>("k").unwrap(), "one");
    let _: () = cmd("FLUSHALL").query(client).unwrap();
    assert_eq!(number(client, &["DBSIZE"]), 0);
}

#[test]
fn a_watched_key_of_one_database_is_not_that_of_another() {
    let (server, _) = server();
    let (client, other) = (&mut server.client(), &mut server.client());
    for (db, is_broken) in [(0, true), (1, false)] {
        let _: () = cmd("WATCH").arg("k").query(client).unwrap();
        let _: () = cmd("SELECT").arg(db).query(other).unwrap();
        let _: () = other.set("k", "v").unwrap();
        let _: () = cmd("MULTI").query(client).unwrap();
        let _: () = cmd("GET").arg("k").query(client).unwrap_or(());
        let result: Value = cmd("EXEC").query(client).unwrap();
        assert_eq!(result == Value::Nil, is_broken, "database {db}: {result:?}");
    }
}

#[test]
fn a_watched_key_that_expires_lets_exec_fail() {
    let (server, now) = server();
    let client = &mut server.client();
    let mut exec = |prepare: &[&str], watched: &str, ms: u64| {
        let _: () = cmd("FLUSHALL").query(client).unwrap();
        let _: () =
            prepare[1..].iter().fold(&mut cmd(prepare[0]), |cmd, word| cmd.arg(*word)).query(client).unwrap();
        if watched == "expired" {
            now.fetch_add(ms, Ordering::SeqCst);
        }
        let _: () = cmd("WATCH").arg("other").arg(watched).arg(watched).query(client).unwrap();
        now.fetch_add(ms, Ordering::SeqCst);
        let _: () = cmd("MULTI").query(client).unwrap();
        let _: Value = cmd("SET").arg("done").arg(1).query(client).unwrap();
        let replies: Value = cmd("EXEC").query(client).unwrap();
        let is_done: bool = client.exists("done").unwrap();
        assert_eq!(replies == Value::Nil, !is_done, "{replies:?}");
        is_done
    };
    assert!(exec(&["SET", "k", "v", "PX", "100"], "k", 99));
    assert!(!exec(&["SET", "k", "v", "PX", "100"], "k", 100));
    assert!(exec(&["SET", "k", "v"], "k", 100));
    assert!(exec(&["SET", "expired", "v", "PX", "100"], "expired", 100), "it had expired at WATCH");
    assert!(exec(&["SET", "k", "v", "PX", "100"], "absent", 100));
}

#[test]
fn a_store_without_tables_has_one_database_and_no_deadlines() {
    let server = TestServer::over(Options::default().tables(false), server::Config::default());
    let client = &mut server.client();
    let _: () = client.set("k", "v").unwrap();
    assert!(error(cmd("SELECT").arg(1).query(client)).contains("no tables and no deadlines"));
    assert!(error(cmd("EXPIRE").arg("k").arg(10).query(client)).contains("no tables and no deadlines"));
    assert!(error(cmd("SET").arg("k").arg(1).arg("EX").arg(10).query(client)).contains("no tables"));
    assert_eq!(number(client, &["TTL", "k"]), -1);
    assert_eq!(client.get::<_, String>("k").unwrap(), "v");
}

/// The background removes expired keys: nothing has to read them.
#[test]
fn expired_keys_leave_the_database_without_being_read() {
    let (server, now) = server();
    let client = &mut server.client();
    for number in 0..500 {
        let _: () = client.set_ex(format!("k{number}"), "v", 1).unwrap();
    }
    now.fetch_add(1_000, Ordering::SeqCst);
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while number(client, &["DBSIZE"]) > 0 {
        assert!(std::time::Instant::now() < end, "{} keys are left", number(client, &["DBSIZE"]));
        std::thread::sleep(Duration::from_millis(20));
    }
}
