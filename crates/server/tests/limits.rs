//! Limits: the number of clients, their memory, their idle time. One client must not block the others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{TestServer, eventually};
use bristlecone::Options;
use redis::{Commands, cmd};
use server::Config;

/// A field of INFO.
fn info(server: &TestServer, field: &str) -> u64 {
    let text: String = cmd("INFO").query(&mut server.client()).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).parse().unwrap()
}

#[test]
fn six_clients_that_do_not_read_do_not_take_the_memory_of_others() {
    const VALUE_BYTES: usize = 8 << 20;
    let server = TestServer::with(Config { held_bytes_max: 24 << 20, ..Config::default() });
    let mut client = server.client();
    let value = vec![b'v'; VALUE_BYTES];
    let _: () = client.set("large", &value).unwrap();
    let _: () = client.set("small", "s").unwrap();
    let mut lazy: Vec<TcpStream> = (0..6).map(|_| server.socket()).collect();
    for socket in &mut lazy {
        socket.write_all(&b"GET large\r\n".repeat(60)).unwrap();
    }
    // They together exceed the bound. So some are disconnected, and the others stay.
    eventually("no client that did not read was disconnected", || info(&server, "connected_clients") < 8);
    // Another client works meanwhile, with small and with large replies.
    for round in 0..50 {
        assert_eq!(client.get::<_, String>("small").unwrap(), "s");
        let _: () = client.set("small", "s").unwrap();
        if round % 10 == 0 {
            assert_eq!(client.get::<_, Vec<u8>>("large").unwrap().len(), VALUE_BYTES);
        }
    }
    assert!(info(&server, "held_by_clients") <= 24 << 20);
    assert!(
        lazy.iter_mut()
            .map(|socket| is_closed_early(socket, 60 * VALUE_BYTES))
            .filter(|closed| *closed)
            .count()
            >= 3
    );
    eventually("memory stays taken", || info(&server, "held_by_clients") == 0);
}

/// True if the connection closes before this many bytes were read.
fn is_closed_early(socket: &mut TcpStream, bytes: usize) -> bool {
    let mut scrap = vec![0; 1 << 20];
    let mut read = 0;
    while read < bytes {
        match socket.read(&mut scrap) {
            Ok(0) | Err(_) => return true,
            Ok(count) => read += count,
        }
    }
    false
}

#[test]
fn a_large_idle_holder_is_told_why_it_is_disconnected() {
    let server = TestServer::with(Config { held_bytes_max: 16 << 20, ..Config::default() });
    let set = |bytes: usize| {
        [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n").as_bytes(), &vec![b'v'; bytes], b"\r\n"]
            .concat()
    };
    let mut first = server.socket();
    first.write_all(b"MULTI\r\n").unwrap();
    for _ in 0..10 {
        first.write_all(&set(1 << 20)).unwrap();
    }
    eventually("queued commands do not count", || info(&server, "held_by_clients") >= 10 << 20);
    // Its buffer has up to twice its bytes. So it fits alone, but not beside the first. Its last byte comes later.
    let mut second = server.socket();
    let request = set(13 << 19);
    let (most, last) = request.split_at(request.len() - 1);
    second.write_all(most).unwrap();
    let mut answer = String::new();
    let _ = first.read_to_string(&mut answer);
    assert!(answer.contains("\r\n-ERR this connection holds too many bytes"), "{answer:?}");
    second.write_all(last).unwrap();
    let mut reply = [0; 5];
    second.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
}

#[test]
fn a_value_is_not_removed_if_its_reply_has_no_space() {
    let server = TestServer::with(Config { reply_bytes_max: 1 << 20, ..Config::default() });
    let value = vec![b'v'; 2 << 20];
    let mut client = server.client();
    let _: () = client.set("k", &value).unwrap();
    for command in [["GETDEL", "k", ""].as_slice(), &["GETSET", "k", "new"], &["SET", "k", "new", "GET"]] {
        let command = command.iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let mut request = cmd(command[0]);
        command[1..].iter().for_each(|word| _ = request.arg(**word));
        let error = request.query::<redis::Value>(&mut client).unwrap_err().to_string();
        assert!(error.contains("a reply of more than"), "{error}");
        assert_eq!(client.strlen::<_, usize>("k").unwrap(), value.len(), "{command:?}");
    }
    // The same in a transaction: the element is an error, and the value stays.
    let answer = server.exchange(b"MULTI\r\nGETDEL k\r\nSET other 1\r\nEXEC\r\nQUIT\r\n");
    assert!(answer.contains("*2\r\n-ERR a reply of more than"), "{answer}");
    assert_eq!(client.strlen::<_, usize>("k").unwrap(), value.len());
    assert_eq!(client.get::<_, String>("other").unwrap(), "1");
}

#[test]
fn idle_and_dripping_clients_are_closed_and_working_ones_stay() {
    let server = TestServer::with(Config { timeout_seconds: 2, ..Config::default() });
    let mut idle = server.socket();
    let mut dripping = server.socket();
    let mut unread = server.socket();
    let mut client = server.client();
    let _: () = client.set("large", vec![b'v'; 8 << 20]).unwrap();
    unread.write_all(b"GET large\r\nGET large\r\n").unwrap();
    dripping.write_all(b"*2\r\n$3\r\nGET\r\n$10000\r\n").unwrap();
    let mut dripped = 0;
    eventually("a client that drips bytes stays connected", || {
        assert_eq!(cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
        dripped += 1;
        dripping.write_all(b"x").is_err()
    });
    assert!(dripped < 10_000);
    eventually("idle connections stay", || info(&server, "connected_clients") == 2);
    assert!(is_closed_early(&mut idle, 1));
    assert!(is_closed_early(&mut unread, 16 << 20));
    assert_eq!(cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
}

#[test]
fn many_half_sent_commands_hold_little_and_delay_no_other_client() {
    let server = TestServer::start();
    let mut slow: Vec<_> = (0..300).map(|_| server.socket()).collect();
    for part in [&b"*3\r\n$3\r\nSET\r\n"[..], b"$3\r\nkey\r\n$200000000\r\n", b"xxxxxxxx"] {
        for socket in &mut slow {
            socket.write_all(part).unwrap();
        }
        assert_eq!(cmd("PING").query::<String>(&mut server.client()).unwrap(), "PONG");
    }
    // A declared length holds nothing.
    assert_eq!(info(&server, "held_by_clients"), 0);
}

#[test]
fn a_client_that_closed_its_sending_side_gets_all_replies() {
    let server = TestServer::start();
    let mut client = server.client();
    let _: () = client.set("large", vec![b'v'; 4 << 20]).unwrap();
    let mut socket = server.socket();
    socket.write_all(b"GET large\r\nPING\r\nGET large\r\nPI").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(b"v\r\n"));
    assert_eq!(answer.len(), 2 * (b"$4194304\r\n\r\n".len() + (4 << 20)) + b"+PONG\r\n".len());
    eventually("half-closed connections stay", || info(&server, "connected_clients") == 2);
}

#[test]
fn free_memory_is_released_after_clients_with_much_memory_have_left_and_on_demand() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    let release_memory = || _ = RELEASED.fetch_add(1, Ordering::Relaxed);
    let server = TestServer::over(Options::default(), Config { release_memory, ..Config::default() });
    let mut client = server.client();
    let request =
        [b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$3000000\r\n".as_slice(), &vec![b'v'; 2_000_000]].concat();
    let mut sockets: Vec<_> = (0..40).map(|_| server.socket()).collect();
    sockets.iter_mut().for_each(|socket| socket.write_all(&request).unwrap());
    eventually("their bytes do not arrive", || info(&server, "held_by_clients") >= 80_000_000);
    assert_eq!(RELEASED.load(Ordering::Relaxed), 0);
    drop(sockets);
    eventually("memory stays", || RELEASED.load(Ordering::Relaxed) > 0);
    let before = RELEASED.load(Ordering::Relaxed);
    assert_eq!(cmd("MEMORY").arg("PURGE").query::<String>(&mut client).unwrap(), "OK");
    assert!(RELEASED.load(Ordering::Relaxed) > before);
}

#[test]
fn many_short_queued_commands_count_with_their_lists() {
    let server = TestServer::with(Config { held_bytes_max: 4 << 20, ..Config::default() });
    let mut socket = server.socket();
    let queued = 100_000;
    let _ = socket.write_all(b"MULTI\r\n").and_then(|()| socket.write_all(&b"PING\r\n".repeat(queued)));
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    // Their text has less than 1 MiB.
    assert!(answer.ends_with("-ERR this connection holds too many bytes of unfinished commands or unread replies: try again later\r\n"));
    eventually("held bytes stay", || info(&server, "held_by_clients") == 0);
}

#[test]
fn a_client_that_has_not_logged_in_can_send_only_short_commands() {
    let server = TestServer::with(Config { password: server::Password::new(b"secret"), ..Config::default() });
    let many = b"*11\r\n$3\r\nDEL\r\n";
    assert_eq!(server.exchange(many), "-ERR Protocol error: unauthenticated multibulk length\r\n");
    let long = b"*2\r\n$4\r\nAUTH\r\n$16385\r\n";
    assert_eq!(server.exchange(long), "-ERR Protocol error: unauthenticated bulk length\r\n");
    // After AUTH the same bytes are no error, also in one pipeline with it.
    let value = "v".repeat(100_000);
    let request =
        format!("AUTH secret\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{value}\r\nSTRLEN k\r\nQUIT\r\n");
    assert_eq!(server.exchange(request.as_bytes()), "+OK\r\n+OK\r\n:100000\r\n+OK\r\n");
}
