//! SORT: permissions of BY and GET, the limit on its memory, and its entry in the table of commands. The comparison of replies is in
//! [`differential`](crate::differential).

use redis::cmd;

use crate::common::TestServer;
use crate::differential::{Redis, exchange};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn by_and_get_need_permission_to_read_all_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let script = [
        "RPUSH l 2 1 3",
        "SET w1 9",
        "ACL SETUSER some on nopass +@all ~l ~w*",
        "ACL SETUSER store on nopass +@all ~l %W~t",
        "ACL SETUSER reader on nopass +@all %R~*",
        "ACL SETUSER sorter on nopass +@list ~*",
        "AUTH some x",
        "SORT l",
        "SORT l BY nosort",
        "SORT l BY w*",
        "SORT l GET #",
        "SORT l STORE other",
        "AUTH store x",
        "SORT l STORE t",
        "SORT t",
        "AUTH reader x",
        "SORT l BY w* GET w*",
        "SORT l STORE t",
        "SORT l BY STORE GET STORE",
        "AUTH sorter x",
        "SORT_RO l BY w* DESC",
        "AUTH default x",
        "ACL SETUSER sorter -@dangerous",
        "AUTH sorter x",
        "SORT_RO l",
    ]
    .map(words);
    let [there, here] = [redis.address, ours.address].map(|address| {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let end = [&script[..], &[words("AUTH default x")]].concat();
        let replies = String::from_utf8(exchange(&mut socket, &end, "end")).unwrap();
        // The texts for keys and commands that are not allowed are longer in Redis.
        let line = |line: &str| match line.starts_with("-NOPERM") {
            true => "-NOPERM".to_owned(),
            false => line.to_owned(),
        };
        replies.lines().map(line).collect::<Vec<_>>()
    });
    assert_eq!(there, here);
    assert_eq!(
        here.iter().filter(|line| line.contains("insufficient ACL permissions")).count(),
        2,
        "{here:?}"
    );
}

#[test]
fn a_sort_that_would_hold_more_than_a_reply_is_refused_and_stores_nothing() {
    let config = server::Config { reply_bytes_max: 64 << 10, ..server::Config::default() };
    let server = TestServer::with(config);
    let mut client = server.client();
    for element in 0..40 {
        let _: u64 = cmd("RPUSH").arg("l").arg(element).query(&mut client).unwrap();
        let long = vec![b'w'; 4 << 10];
        let _: () = cmd("SET").arg(format!("w{element}")).arg(long).query(&mut client).unwrap();
    }
    let sorted: Vec<u64> = cmd("SORT").arg(&["l", "DESC"]).query(&mut client).unwrap();
    assert_eq!(sorted, (0..40).rev().collect::<Vec<_>>());
    for options in [&["l", "BY", "w*", "ALPHA"][..], &["l", "GET", "w*"], &["l", "GET", "w*", "STORE", "t"]] {
        let error = cmd("SORT").arg(options).query::<redis::Value>(&mut client).unwrap_err();
        assert!(error.to_string().contains("65536"), "{error}");
    }
    assert_eq!(cmd("EXISTS").arg("t").query::<u64>(&mut client), Ok(0));
    // Results that fit are not refused for the elements that are not among them.
    let options = ["l", "LIMIT", "0", "3", "GET", "w*", "STORE", "t"];
    assert_eq!(cmd("SORT").arg(&options).query::<u64>(&mut client), Ok(3));
}

#[test]
fn the_entries_of_sort_are_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let (redis, ours) = (Redis::start(dir.path()), TestServer::start());
    let [there, here] = [redis.address, ours.address].map(|address| {
        let client = redis::Client::open(format!("redis://{address}/")).unwrap();
        let mut client = client.get_connection().unwrap();
        let entries: Vec<Vec<redis::Value>> =
            cmd("COMMAND").arg(&["INFO", "sort", "sort_ro", "georadius"]).query(&mut client).unwrap();
        // Name, arity, flags, first and last key, step, categories.
        entries.into_iter().map(|entry| entry[..7].to_vec()).collect::<Vec<_>>()
    });
    assert_eq!(there, here);
}
