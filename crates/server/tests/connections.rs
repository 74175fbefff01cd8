//! Connections: refused input, limits, slow readers, shutdown.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::TestServer;
use redis::{Commands, cmd};
use server::Config;

#[test]
fn hostile_bytes_get_an_error_and_the_connection_closes() {
    let server = TestServer::start();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"*-5\r\n".to_vec(), "invalid multibulk length"),
        (b"*2000000\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\n$-7\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$999999999999\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n".to_vec(), "expected '$', got '*'"),
        (b"*1\r\n$4\r\nPINGPING".to_vec(), "expected CRLF"),
        (b"GET \"a\r\n".to_vec(), "unbalanced quotes"),
        (vec![b'x'; 10 << 20], "too big inline request"),
        (vec![b'*'; 1000], "too big count string"),
    ];
    for (request, reason) in cases {
        let answer = server.exchange(&request);
        assert!(
            answer.starts_with("-ERR Protocol error: ") && answer.contains(reason),
            "{answer:?} for {reason}"
        );
        assert!(answer.ends_with("\r\n") && answer.matches("\r\n").count() == 1, "{answer:?}");
    }
    let answer = server.exchange(b"SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n*x\r\nGET a\r\n");
    assert_eq!(answer, "+OK\r\n$1\r\n1\r\n-ERR Protocol error: invalid multibulk length\r\n");
    // The server still works.
    assert_eq!(cmd("PING").query::<String>(&mut server.client()).unwrap(), "PONG");
}

#[test]
fn a_browser_is_hung_up_on() {
    let server = TestServer::start();
    let answer = server.exchange(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET stolen 1\r\n");
    assert_eq!(answer, "");
    let answer = server.exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nSET stolen 1\r\n");
    assert_eq!(answer, "-ERR wrong number of arguments for 'get' command\r\n");
    assert_eq!(server.client().get::<_, Option<String>>("stolen").unwrap(), None);
}

#[test]
fn a_command_that_drips_in_byte_by_byte_is_answered() {
    let server = TestServer::start();
    let mut socket = server.socket();
    socket.set_nodelay(true).unwrap();
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\nGET k\r\nQUIT\r\n" {
        socket.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "+OK\r\n$5\r\nhello\r\n+OK\r\n");
}

#[test]
fn junk_on_many_connections_does_no_harm() {
    let server = TestServer::start();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let junk: Vec<u8> = (0..200)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        let mut socket = server.socket();
        socket.write_all(&junk).unwrap();
        drop(socket);
    }
    assert_eq!(cmd("PING").query::<String>(&mut server.client()).unwrap(), "PONG");
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = TestServer::with(Config { clients_max: 3, ..Config::default() });
    let clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    let mut refused = String::new();
    server.socket().read_to_string(&mut refused).unwrap();
    assert_eq!(refused, "-ERR max number of clients reached\r\n");
    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.exchange(b"PING\r\nQUIT\r\n") != "+PONG\r\n+OK\r\n" {
        assert!(Instant::now() < deadline, "no place became free");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_holds_nobody_up() {
    let server = TestServer::start();
    let _: () = server.client().set("large", vec![b'v'; 1 << 20]).unwrap();
    let mut lazy = server.socket();
    lazy.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // 2 GiB of replies, if the server wrote them all.
    for _ in 0..2000 {
        if lazy.write_all(b"GET large\r\n").is_err() {
            break;
        }
    }
    let mut client = server.client();
    for key in 0..100 {
        let _: () = client.set(key, key).unwrap();
    }
    let info: String = cmd("INFO").arg("memory").query(&mut client).unwrap();
    let held = info.lines().find_map(|line| line.strip_prefix("held_by_clients:")).unwrap();
    assert!(held.parse::<u64>().unwrap() < 32 << 20, "{held} bytes held");
    // The client gets its replies once it reads.
    let mut answer = vec![0; 100 << 20];
    lazy.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"$1048576\r\nvvv"));
}

#[test]
fn all_connections_together_hold_a_bounded_number_of_bytes() {
    let server = TestServer::with(Config { held_bytes_max: 8 << 20, ..Config::default() });
    let mut sockets: Vec<TcpStream> = (0..4).map(|_| server.socket()).collect();
    let part = vec![b'v'; 4 << 20];
    for socket in &mut sockets {
        socket.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000000\r\n").unwrap();
        // Some of the connections are refused meanwhile.
        let _ = socket.write_all(&part);
    }
    let refused = sockets
        .iter_mut()
        .map(|socket| {
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            answer.contains("holds too many bytes")
        })
        .filter(|refused| *refused)
        .count();
    assert!(refused >= 2, "{refused} of 4 refused");
    drop(sockets);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let info: String = cmd("INFO").arg("memory").query(&mut server.client()).unwrap();
        if info.contains("held_by_clients:0\r\n") {
            break;
        }
        assert!(Instant::now() < deadline, "{info}");
    }
}

#[test]
fn a_stopping_server_ends_what_runs_and_closes_every_connection() {
    let mut server = TestServer::start();
    let address = server.address;
    let mut idle = server.socket();
    let mut half = server.socket();
    half.write_all(b"*2\r\n$3\r\nGET\r\n$100\r\nabc").unwrap();
    let mut client = server.client();
    let _: () = client.set("k", "v").unwrap();
    server.stop(); // waits for the end, so it would hang here if the server waited for idle connections
    for socket in [&mut idle, &mut half] {
        assert_eq!(socket.read(&mut [0; 10]).unwrap_or(0), 0);
    }
    assert!(client.get::<_, String>("k").is_err());
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(server.store.get(b"k").unwrap(), Some(b"v".to_vec()));
}

#[test]
fn acknowledged_increments_are_there_after_a_stop_under_load() {
    let mut server = TestServer::start();
    let acknowledged: i64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| server.client()).collect();
        let workers: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    let mut count = 0;
                    while client.incr::<_, _, i64>("n", 1).is_ok() {
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        server.stop();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let stored = server.store.get(b"n").unwrap().unwrap();
    let stored: i64 = String::from_utf8(stored).unwrap().parse().unwrap();
    assert!(acknowledged > 0);
    // One command of each connection may have run without its reply being read.
    assert!(
        (acknowledged..=acknowledged + 4).contains(&stored),
        "{acknowledged} acknowledged, {stored} stored"
    );
}

#[test]
fn shutdown_ends_the_server() {
    let mut server = TestServer::start();
    assert_eq!(server.exchange(b"SHUTDOWN FOO\r\nQUIT\r\n"), "-ERR syntax error\r\n+OK\r\n");
    assert_eq!(server.exchange(b"SET k v\r\nSHUTDOWN NOSAVE\r\nSET k w\r\n"), "+OK\r\n");
    server.join();
    assert_eq!(server.store.get(b"k").unwrap(), Some(b"v".to_vec()));
}
