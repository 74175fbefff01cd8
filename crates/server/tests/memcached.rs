//! The protocol of memcached: replies, errors, requests that are cut, restarts, expiry, eviction, logins. [`differential`] compares the
//! server with the program `memcached`.

mod differential;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bristlecone::{Clock, Durability, Options};
use redis::cmd;
use server::eviction::Policy;
use server::memcached::Settings;
use server::{Config, Listeners, Password};

use crate::common::{TestServer, eventually};

/// A server with a socket for memcached.
pub struct Server {
    pub server: TestServer,
    pub address: SocketAddr,
}

/// A listening socket on a free port. It is made inside the runtime.
fn listener(address: &mut Option<SocketAddr>) -> Listeners {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    *address = Some(socket.local_addr().unwrap());
    Listeners { memcached: Some(tokio::net::TcpListener::from_std(socket).unwrap()), ..Listeners::default() }
}

impl Server {
    pub fn start() -> Self {
        Self::with(Options::default(), Config::default())
    }

    pub fn with(options: Options, config: Config) -> Self {
        let mut address = None;
        let server = TestServer::beside(options, config, || listener(&mut address));
        Self { server, address: address.unwrap() }
    }

    fn again(self, options: Options, config: Config) -> Self {
        let mut address = None;
        let server = self.server.again(options, config, || listener(&mut address));
        Self { server, address: address.unwrap() }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

/// A client. A read fails after 20 seconds.
pub struct Client {
    pub socket: TcpStream,
    number: u64,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, number: 0 }
    }

    /// Sends requests and returns their replies. The request behind them has a reply that no other request has.
    pub fn ask(&mut self, requests: impl AsRef<[u8]>) -> String {
        self.number += 1;
        let end = format!("EN kend-of-replies-{}\r\n", self.number);
        let mut bytes = requests.as_ref().to_vec();
        bytes.extend_from_slice(format!("mg end-of-replies-{} k\r\n", self.number).as_bytes());
        self.socket.write_all(&bytes).unwrap();
        let (mut replies, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while !replies.ends_with(end.as_bytes()) {
            let shown = || requests.as_ref()[..requests.as_ref().len().min(2000)].escape_ascii().to_string();
            let count =
                self.socket.read(&mut buffer).unwrap_or_else(|error| panic!("{error} after {}", shown()));
            assert!(count > 0, "the server closed the connection after {}", shown());
            replies.extend_from_slice(&buffer[..count]);
        }
        replies.truncate(replies.len() - end.len());
        String::from_utf8_lossy(&replies).into_owned()
    }

    /// Sends bytes and returns everything until the server closes the connection.
    fn exchange(mut self, bytes: &[u8]) -> String {
        // The server may have closed already. Its reply still counts.
        let _ = self.socket.write_all(bytes);
        let mut replies = Vec::new();
        let _ = self.socket.read_to_end(&mut replies);
        String::from_utf8_lossy(&replies).into_owned()
    }

    /// The unique number of an item.
    fn cas(&mut self, key: &str) -> u64 {
        let reply = self.ask(format!("mg {key} c\r\n"));
        let number = reply.strip_prefix("HD c").and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{reply}"))
    }
}

/// Requests and their replies. Behind `~`: a marker for the line end within a request.
fn check(client: &mut Client, script: &[(&str, &str)]) {
    for (request, expected) in script {
        let reply = client.ask(format!("{}\r\n", request.replace('~', "\r\n")));
        assert_eq!(reply.replace("\r\n", "~"), *expected, "{request}");
    }
}

const BAD: &str = "CLIENT_ERROR bad command line format~";

#[test]
fn text_commands_store_read_and_remove() {
    let server = Server::start();
    check(
        &mut server.client(),
        &[
            ("set k 5 0 3~abc", "STORED~"),
            ("get k", "VALUE k 5 3~abc~END~"),
            ("get no k k", "VALUE k 5 3~abc~VALUE k 5 3~abc~END~"),
            ("add k 0 0 1~x", "NOT_STORED~"),
            ("add new 0 0 0~", "STORED~"),
            ("get new", "VALUE new 0 0~~END~"),
            ("replace k 7 0 2~xy", "STORED~"),
            ("replace no 0 0 1~x", "NOT_STORED~"),
            ("append k 1 1 1~z", "STORED~"),
            ("prepend k 1 1 1~w", "STORED~"),
            ("get k", "VALUE k 7 4~wxyz~END~"),
            ("append no 0 0 1~x", "NOT_STORED~"),
            ("cas no 0 0 1 5~x", "NOT_FOUND~"),
            ("cas k 0 0 1 5~x", "EXISTS~"),
            ("touch k 100", "TOUCHED~"),
            ("touch no 100", "NOT_FOUND~"),
            ("gat 100 k no", "VALUE k 7 4~wxyz~END~"),
            ("delete k", "DELETED~"),
            ("delete k 0", "NOT_FOUND~"),
            ("set k 0 0 1 noreply~x~add k 0 0 1 noreply~y~delete k noreply", ""),
            ("set n 0 0 2~10", "STORED~"),
            ("incr n 5~decr n 6~get n", "15~9~VALUE n 0 2~9 ~END~"),
            ("decr n 100", "0~"),
            ("set n 0 0 20~18446744073709551615~incr n 2", "STORED~1~"),
            ("incr no 1", "NOT_FOUND~"),
            (
                "set t 0 0 1~x~incr t 1",
                "STORED~CLIENT_ERROR cannot increment or decrement non-numeric value~",
            ),
            ("flush_all", "OK~"),
            ("get n t", "END~"),
            ("verbosity 1", "OK~"),
            ("version", "VERSION 1.6.18~"),
            ("mn", "MN~"),
        ],
    );
    assert_eq!(server.client().exchange(b"set k 0 0 1\r\nx\r\nquit\r\nget k\r\n"), "STORED\r\n");
}

#[test]
fn unique_numbers_change_with_each_write_and_decide_cas() {
    let server = Server::start();
    let client = &mut server.client();
    let mut seen = Vec::new();
    for write in ["set k 0 0 1~1", "append k 0 0 1~2", "incr k 1", "ms k 1~5", "md k I", "ma k"] {
        client.ask(format!("{}\r\n", write.replace('~', "\r\n")));
        seen.push(client.cas("k"));
    }
    assert!(seen.is_sorted_by(|one, other| one < other), "{seen:?}");
    let last = seen[seen.len() - 1];
    assert_eq!(
        client.ask(format!("cas k 0 0 1 {last}\r\nx\r\ncas k 0 0 1 {last}\r\ny\r\n")),
        "STORED\r\nEXISTS\r\n"
    );
    let before = client.cas("k");
    client.ask("touch k 100\r\ngat 50 k\r\n");
    assert_eq!(client.cas("k"), before, "another expiry is no other value");
    assert!(client.ask("gets k\r\n").starts_with(&format!("VALUE k 0 1 {before}\r\nx\r\n")));
}

#[test]
fn each_wrong_request_has_its_error() {
    let server = Server::start();
    let long = "k".repeat(251);
    let long = long.as_str();
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]~";
    let script = [
        ("", "ERROR~"),
        ("nonsense", "ERROR~"),
        ("GET k", "ERROR~"),
        ("get", "ERROR~"),
        ("gat", "ERROR~"),
        ("gat x k", "CLIENT_ERROR invalid exptime argument~"),
        ("set k 0 0", "ERROR~"),
        ("set k 0 0 3 a b~abc", "ERROR~ERROR~"),
        ("set k x 0 3~abc", &format!("{BAD}ERROR~")),
        ("set k -1 0 3~abc", &format!("{BAD}ERROR~")),
        ("set k 0 x 3~abc", &format!("{BAD}ERROR~")),
        ("set k 0 0 -1", BAD),
        ("set k 0 0 x noreply", ""),
        ("set k 0 0 99999999999999999999", BAD),
        ("set k 0 0 3~ab~", "CLIENT_ERROR bad data chunk~ERROR~"),
        ("set k 0 0 3~abcde", "CLIENT_ERROR bad data chunk~ERROR~"),
        ("cas k 0 0 3 x~abc", &format!("{BAD}ERROR~")),
        ("cas k 0 0 3", "ERROR~"),
        ("touch k", "ERROR~"),
        ("touch k x", "CLIENT_ERROR invalid exptime argument~"),
        ("incr k", "ERROR~"),
        ("incr k x", "CLIENT_ERROR invalid numeric delta argument~"),
        ("decr k -1", "CLIENT_ERROR invalid numeric delta argument~"),
        ("delete", "ERROR~"),
        ("delete k 1", usage),
        ("delete k 0 1", usage),
        ("flush_all x", "CLIENT_ERROR invalid exptime argument~"),
        ("flush_all 0 0 0", "ERROR~"),
        ("verbosity", "ERROR~"),
        ("verbosity x", BAD),
        ("stats nonsense", "ERROR~"),
        ("shutdown", "ERROR: shutdown not enabled~"),
        ("mg", "ERROR~"),
        ("mg k y", "CLIENT_ERROR invalid flag~"),
        ("mg k v v", "CLIENT_ERROR duplicate flag~"),
        ("mg Zm9 b", "CLIENT_ERROR error decoding key~"),
        ("mg k T", "CLIENT_ERROR bad token in command line format~"),
        ("mg k O0123456789012345678901234567890123", "CLIENT_ERROR opaque token too long~"),
        ("mg k 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8", "CLIENT_ERROR options flags are too long~"),
        ("ms k", BAD),
        ("ms k x", BAD),
        ("ms k 1 y~a", "CLIENT_ERROR invalid flag~"),
        ("ms k 1 Mx~a", "CLIENT_ERROR invalid mode for ms M token~"),
        ("ms k 1 MSS~a", "CLIENT_ERROR incorrect length for M token~"),
        ("ms k 2 q~abc", "CLIENT_ERROR bad data chunk~ERROR~"),
        ("md k y", "CLIENT_ERROR invalid or duplicate flag~"),
        ("ma k Mx", "CLIENT_ERROR invalid mode for ma M token~"),
        ("me", BAD),
        ("get a\u{1}b", BAD),
        ("set a\tb 0 0 1~x", &format!("{BAD}ERROR~")),
        ("get k", "END~"),
    ];
    check(&mut server.client(), &script);
    for command in ["get", "gat 0", "incr", "touch", "delete", "mg", "md", "ma", "me"] {
        let last = if matches!(command, "incr" | "touch") { " 1" } else { "" };
        let client = &mut server.client();
        check(client, &[(format!("{command} {long}{last}").as_str(), BAD)]);
        assert_ne!(
            client.ask(format!("{command} {}{last}\r\n", &long[1..])).replace("\r\n", "~"),
            BAD,
            "{command}"
        );
    }
}

#[test]
fn large_items_are_refused_and_their_data_is_skipped() {
    let server = Server::start();
    let client = &mut server.client();
    // memcached counts 59 bytes beside the key and the data, and 4 more if the flags are not 0.
    for (flags, largest) in [(0, (1 << 20) - 60), (1, (1 << 20) - 64)] {
        let store =
            |name: &str, bytes: usize| format!("{name} k {flags} 0 {bytes}\r\n{}\r\n", "x".repeat(bytes));
        assert_eq!(client.ask(store("set", largest)), "STORED\r\n");
        assert_eq!(client.ask("mg k s\r\n"), format!("HD s{largest}\r\n"));
        let too_large = "SERVER_ERROR object too large for cache\r\n";
        assert_eq!(client.ask(store("add", largest + 1)), too_large);
        assert_eq!(
            client.ask("append k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n"),
            "NOT_STORED\r\nNOT_STORED\r\n"
        );
        assert_eq!(client.ask("mg k s\r\n"), format!("HD s{largest}\r\n"), "the item stays");
        assert_eq!(client.ask(store("set", largest + 1)), too_large);
        assert_eq!(client.ask("get k\r\n"), "END\r\n", "the old item is gone with the lost value");
    }
    let small =
        Config { memcached: Settings { item_bytes_max: 2000, ..Settings::default() }, ..Config::default() };
    let server = Server::with(Options::default(), small);
    let reply =
        server.client().ask(format!("set k 0 0 1941\r\n{}\r\nversion\r\n", "set k 0 0 1\r\n".repeat(200)));
    assert!(reply.starts_with("SERVER_ERROR object too large for cache\r\n"), "{reply}");
}

#[test]
fn hostile_bytes_end_the_connection_with_one_error() {
    let server = Server::start();
    let too_long = "CLIENT_ERROR line too long\r\n";
    for line in ["a".repeat(3000), format!("set {}", "a".repeat(3000)), " ".repeat(3000)] {
        assert_eq!(server.client().exchange(line.as_bytes()), too_long);
    }
    assert_eq!(server.client().exchange(&b"get ".repeat(3 << 20)), too_long);
    let binary = server.client().exchange(&[0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert!(binary.starts_with("CLIENT_ERROR this server does not speak the binary protocol"), "{binary}");
    // A declared length takes no memory, and a client that leaves leaves nothing.
    let mut client = server.client();
    client.socket.write_all(b"set k 0 0 1000000\r\nx").unwrap();
    drop(client);
    let mut client = server.client();
    client.socket.write_all(b"set k 0 0 2147483645\r\nx").unwrap();
    drop(client);
    assert_eq!(server.client().ask("get k\r\n"), "END\r\n");
}

#[test]
fn a_get_of_very_many_keys_has_a_reply_of_any_length() {
    let server = Server::start();
    let client = &mut server.client();
    let value = "v".repeat(100_000);
    client.ask(format!("set large 0 0 100000\r\n{value}\r\n"));
    // 30 MB of replies, in a line of far more than 2048 bytes.
    for name in ["get", "gat 1000"] {
        let reply = client.ask(format!("{name} {}\r\nversion\r\n", "absent large ".repeat(300)));
        let item = format!("VALUE large 0 100000\r\n{value}\r\n");
        assert!(reply == format!("{}END\r\nVERSION 1.6.18\r\n", item.repeat(300)), "{} bytes", reply.len());
    }
}

#[test]
fn requests_that_are_cut_at_any_byte_have_the_same_replies() {
    let server = Server::start();
    let script = "set k 5 0 5\r\na\r\nbc\r\nget k no k\r\nset k 0 0 2 noreply\r\n17\r\nincr k 5\r\nms b 3 c k O7\r\nxyz\r\n\
                  set k 0 0 3\r\nabcde\r\nnonsense\r\nset k 0 0 x\r\nms k 1 y\r\nz\r\nmg k s v\r\ndelete k 0 noreply\r\n\
                  touch k 0\r\nset big 0 0 1048570\r\n";
    let expected = "STORED\r\nVALUE k 5 5\r\na\r\nbc\r\nVALUE k 5 5\r\na\r\nbc\r\nEND\r\n22\r\n";
    let whole = |cut: usize| {
        let mut client = server.client();
        client.socket.write_all(&script.as_bytes()[..cut]).unwrap();
        client.socket.write_all(&script.as_bytes()[cut..]).unwrap();
        // The data of the last request, and the end.
        let rest = "x".repeat(1_048_570) + "\r\nflush_all\r\n";
        let reply = client.ask(rest);
        let (before, behind) = reply.split_once("HD c").unwrap_or_else(|| panic!("{reply}"));
        assert_eq!(before, expected, "cut at {cut}");
        behind.trim_start_matches(|digit: char| digit.is_ascii_digit()).to_owned()
    };
    let reply = whole(0);
    assert!(reply.ends_with("SERVER_ERROR object too large for cache\r\nOK\r\n"), "{reply}");
    for cut in (1..script.len()).step_by(3) {
        assert_eq!(whole(cut), reply, "cut at {cut}");
    }
}

#[test]
fn a_restart_keeps_items_and_never_repeats_a_unique_number() {
    let now = Arc::new(AtomicU64::new(1_800_000_000_000));
    let options = || {
        let shown = Arc::clone(&now);
        Options::default().tables(true).clock(Clock::new(move || shown.load(Ordering::SeqCst)))
    };
    let mut server = Server::with(options(), Config::default());
    let mut last = 0;
    for round in 0..3 {
        let client = &mut server.client();
        client.ask(format!("ms k{round} 1 F{round} T1000\r\n{round}\r\nmd k{round} I\r\n"));
        let cas = client.cas(&format!("k{round}"));
        assert!(cas > last, "{cas} after {last}");
        last = cas;
        assert_eq!(client.ask("flush_all 5000\r\n"), "OK\r\n");
        server = server.again(options(), Config::default());
        let client = &mut server.client();
        for known in 0..=round {
            // The connection that read the number got `W`.
            let expected = format!("VA 1 f{known} t1000 Z X\r\n{known}\r\n");
            assert_eq!(client.ask(format!("mg k{known} v f t\r\n")), expected, "round {round}");
        }
    }
    // The delayed `flush_all` of the last server.
    now.fetch_add(999_000, Ordering::SeqCst);
    assert!(server.client().ask("mg k0 t\r\n").starts_with("HD t1 "));
    assert_eq!(server.client().ask("set forever 0 0 1\r\nx\r\n"), "STORED\r\n");
    now.fetch_add(4_001_000, Ordering::SeqCst);
    server = server.again(options(), Config::default());
    assert_eq!(server.client().ask("add forever 0 0 1\r\ny\r\n"), "STORED\r\n", "flush_all had its time");
    now.fetch_add(1, Ordering::SeqCst);
    server = server.again(options(), Config::default());
    assert_eq!(
        server.client().ask("get forever\r\n"),
        "VALUE forever 0 1\r\ny\r\nEND\r\n",
        "it flushes once"
    );
}

#[test]
fn items_expire_at_their_second_and_not_before() {
    let now = Arc::new(AtomicU64::new(1_800_000_000_000));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || shown.load(Ordering::SeqCst));
    let server = Server::with(Options::default().tables(true).clock(clock), Config::default());
    let client = &mut server.client();
    let later = |millis: u64| now.fetch_add(millis, Ordering::SeqCst);
    check(
        client,
        &[
            ("set gone 0 -1 1~x", "STORED~"),
            ("set past 0 1799999999 1~x", "STORED~"),
            ("get gone past", "END~"),
            ("set ten 0 10 1~x", "STORED~"),
            ("set month 0 2592000 1~x", "STORED~"),
            ("set at 0 1800000020 1~x", "STORED~"),
            ("set 2100 0 4102444800 1~x", "STORED~"),
            ("mg ten t", "HD t10~"),
            ("mg month t", "HD t2592000~"),
            ("mg at t", "HD t20~"),
            ("mg 2100 t", "HD t2302444800~"),
            ("append ten 0 99 1~y", "STORED~"),
        ],
    );
    later(9_999);
    check(
        client,
        &[
            ("mg ten t v", "VA 2 t1~xy~"),
            ("touch at 5", "TOUCHED~"),
            ("incr at 1", "CLIENT_ERROR cannot increment or decrement non-numeric value~"),
        ],
    );
    later(1);
    check(
        client,
        &[
            ("get ten", "END~"),
            ("add ten 0 0 1~z", "STORED~"),
            ("mg at t", "HD t5~"),
            ("gat 0 at", "VALUE at 0 1~x~END~"),
        ],
    );
    later(1_000_000);
    check(client, &[("mg at t", "HD t-1~"), ("flush_all 10", "OK~"), ("get at", "VALUE at 0 1~x~END~")]);
    later(10_000);
    check(client, &[("set new 0 0 1~x", "STORED~"), ("get at new month", "VALUE new 0 1~x~END~")]);
    later(10_000);
    check(
        client,
        &[
            ("get new", "VALUE new 0 1~x~END~"),
            ("flush_all 10", "OK~"),
            ("flush_all", "OK~"),
            ("set new 0 0 1~x", "STORED~"),
        ],
    );
    later(10_000);
    check(client, &[("get new", "VALUE new 0 1~x~END~")]);
}

#[test]
fn one_client_is_told_to_renew_a_stale_item() {
    let server = Server::start();
    let [mut one, mut other] = [server.client(), server.client()];
    check(
        &mut one,
        &[
            ("ms k 1 T100~a", "HD~"),
            ("mg k R50 v", "VA 1~a~"),
            ("mg k R500 v", "VA 1 W~a~"),
            ("mg k R500 v", "VA 1 Z~a~"),
            ("ms k 1 T100~b", "HD~"),
            ("md k I T30", "HD~"),
            ("mg k v t", "VA 1 t30 X W~b~"),
        ],
    );
    check(
        &mut other,
        &[("mg k v t", "VA 1 t30 Z X~b~"), ("ms k 1 T100~c", "HD~"), ("mg k v t", "VA 1 t100~c~")],
    );
    check(&mut one, &[("mg new N30 v t", "VA 0 t30 W~~")]);
    check(
        &mut other,
        &[("mg new N30 v t", "VA 0 t30 Z~~"), ("ms new 1~x", "HD~"), ("mg new N30 v", "VA 1~x~")],
    );
    check(
        &mut one,
        &[
            ("ma n N0 J13 v", "VA 2~13~"),
            ("ma n N0 J13 D2 v t k", "VA 2 t-1 kn~15~"),
            ("ma n MD D20 v", "VA 1~0~"),
        ],
    );
    check(
        &mut one,
        &[
            ("ms Zm9v 1 b k~x", "HD kZm9v b~"),
            ("mg foo k v", "VA 1 kZm9v b~x~"),
            ("get foo", "VALUE foo 0 1~x~END~"),
        ],
    );
}

#[test]
fn the_tables_of_both_protocols_are_apart_and_flushall_clears_both() {
    let server = Server::start();
    let (client, redis) = (&mut server.client(), &mut server.server.client());
    cmd("SET").arg(&["k", "redis"]).exec(redis).unwrap();
    check(
        client,
        &[
            ("get k", "END~"),
            ("set k 0 0 9~memcached", "STORED~"),
            ("flush_all", "OK~"),
            ("set k 0 0 1~m", "STORED~"),
        ],
    );
    assert_eq!(cmd("GET").arg("k").query::<String>(redis).unwrap(), "redis");
    assert_eq!(cmd("DBSIZE").query::<u64>(redis).unwrap(), 1);
    cmd("FLUSHALL").exec(redis).unwrap();
    check(client, &[("get k", "END~"), ("set k 0 0 1~m", "STORED~"), ("get k", "VALUE k 0 1~m~END~")]);
    let info: String = cmd("INFO").arg("stats").query(redis).unwrap();
    assert!(info.contains("keyspace_hits:2\r\n"), "{info}");
    let stats = client.ask("stats\r\n");
    for line in ["curr_items 1", "get_hits 1", "cmd_set 3", "cmd_flush 1", "version 1.6.18"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line} is not in {stats}");
    }
    assert_eq!(client.ask("stats reset\r\n"), "RESET\r\n");
    assert!(client.ask("stats\r\n").contains("STAT cmd_set 0\r\n"));
    for sub in ["items", "slabs", "sizes", "conns", "settings"] {
        let reply = client.ask(format!("stats {sub}\r\n"));
        let is_form = |line: &str| line == "END" || line.starts_with("STAT ") && line.split(' ').count() >= 3;
        assert!(reply.ends_with("END\r\n") && reply.lines().all(is_form), "{reply}");
    }
}

#[test]
fn at_the_limit_of_memory_the_coldest_items_go_or_writes_are_refused() {
    const LIMIT: u64 = 8 << 20;
    let config = |policy| Config { memory_bytes_max: LIMIT, memory_policy: policy, ..Config::default() };
    let options = || Options::default().durability(Durability::Process);
    let value = "v".repeat(1000);
    let server = Server::with(options(), config(Policy::AllkeysLru));
    let client = &mut server.client();
    let hot: String = (0..500).map(|number| format!(" hot{number}")).collect();
    for number in 0..500 {
        client.ask(format!("set hot{number} 0 0 1000 noreply\r\n{value}\r\n"));
    }
    for number in 0..24_000 {
        client.ask(format!("set cold{:05} 0 0 1000 noreply\r\n{value}\r\n", number * 7919 % 24_000));
        if number % 100 == 0 {
            client.ask(format!("get{hot}\r\n"));
            let live = server.server.store.space().live_bytes;
            assert!(live <= LIMIT, "{live} bytes are in use");
        }
    }
    let left = client.ask(format!("get{hot}\r\n")).matches("VALUE").count();
    assert!(left > 450, "only {left} of 500 hot items are left");
    let evicted = client.ask("stats\r\n");
    assert!(!evicted.contains("STAT evictions 0\r\n"), "{evicted}");

    let server = Server::with(options(), config(Policy::NoEviction));
    let client = &mut server.client();
    client.ask(format!("set old 0 0 1000\r\n{value}\r\nset n 0 0 1\r\n1\r\n"));
    let refused = (0..20_000).find(|number| {
        let reply = client.ask(format!("set k{number} 0 0 1000\r\n{value}\r\n"));
        reply == "SERVER_ERROR out of memory storing object\r\n"
    });
    assert!(refused.is_some_and(|number| number > 1000), "{refused:?}");
    assert_eq!(client.ask("get k0\r\n").matches("VALUE").count(), 1, "reads go on");
    let reply = client.ask(format!("set old 0 0 1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    assert_eq!(reply, "SERVER_ERROR out of memory storing object\r\n");
    assert_eq!(client.ask("get old\r\ndelete k0\r\n"), "END\r\nDELETED\r\n", "the lost value has no old one");
}

#[test]
fn a_password_of_the_server_holds_for_memcached_too() {
    let config = Config { password: Password::new(b"secret"), ..Config::default() };
    let server = Server::with(Options::default(), config);
    let redis = redis::Client::open(format!("redis://:secret@{}/", server.server.address)).unwrap();
    let redis = &mut redis.get_connection().unwrap();
    let say = |requests: &str| {
        server.client().exchange(format!("{}quit\r\n", requests.replace('~', "\r\n")).as_bytes())
    };
    let closed = "CLIENT_ERROR unauthenticated\r\n";
    for request in ["get k~", "version~", "mn~", "flush_all~", "add k 0 0 14~", "stats~"] {
        assert_eq!(say(request), closed, "{request}");
    }
    let login = |user: &str, password: &str| {
        format!("set x 0 0 {}~{user} {password}~", user.len() + password.len() + 1)
    };
    let failure = "CLIENT_ERROR authentication failure\r\n";
    assert_eq!(say(&(login("default", "wrong") + "get k~")), format!("{failure}{closed}"));
    assert_eq!(say(&(login("nosuch", "secret") + "get k~")), format!("{failure}{closed}"));
    assert_eq!(say("set x 0 0 5000~"), "CLIENT_ERROR authentication token too long\r\n");
    assert_eq!(
        say(&(login("default", "secret") + "set k 0 0 1~v~get k~")),
        "STORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n"
    );
    // A user with fewer permissions cannot use this protocol, because it knows no permissions.
    cmd("ACL").arg(&["SETUSER", "reader", "on", ">pass", "~*", "+@read"]).exec(redis).unwrap();
    cmd("ACL").arg(&["SETUSER", "admin", "on", ">pass", "~*", "+@all"]).exec(redis).unwrap();
    assert_eq!(say(&login("reader", "pass")), failure);
    let mut admin = server.client();
    admin.socket.write_all(login("admin", "pass").replace('~', "\r\n").as_bytes()).unwrap();
    assert_eq!(admin.ask("get k\r\n"), "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    cmd("ACL").arg(&["SETUSER", "admin", "resetkeys", "~app:*"]).exec(redis).unwrap();
    assert_eq!(admin.exchange(b"get k\r\nquit\r\n"), closed, "a change of the user holds at once");
}

#[test]
fn memcached_clients_count_as_clients_and_large_ones_are_ended() {
    let server = Server::with(Options::default(), Config { clients_max: 3, ..Config::default() });
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("mn\r\n"), "MN\r\n"));
    assert_eq!(server.client().exchange(b""), "ERROR Too many open connections\r\n");
    drop(clients);
    eventually("the clients do not leave", || server.client().exchange(b"mn\r\nquit\r\n") == "MN\r\n");

    let config = Config { held_bytes_max: 24 << 20, ..Config::default() };
    let server = Server::with(Options::default(), config);
    let client = &mut server.client();
    client.ask(format!("set large 0 0 1000000\r\n{}\r\n", "v".repeat(1_000_000)));
    let lazy: Vec<_> = (0..60)
        .map(|_| {
            let mut client = server.client();
            client.socket.write_all(format!("get{}\r\n", " large".repeat(200)).as_bytes()).unwrap();
            client
        })
        .collect();
    for _ in 0..50 {
        assert_eq!(
            client.ask("get large\r\n").len(),
            1_000_000 + "VALUE large 0 1000000\r\n\r\nEND\r\n".len()
        );
    }
    drop(lazy);
}

#[test]
fn a_wrong_table_or_a_store_without_tables_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, tables, expected) in
        [("3", true, "cannot have the name"), ("items", false, "cannot be opened")]
    {
        let store =
            bristlecone::Store::open(dir.path().join(name), Options::default().tables(tables)).unwrap();
        let memcached = Settings { table: name.to_owned(), ..Settings::default() };
        let config = Config { memcached, ..Config::default() };
        let served = runtime.block_on(async {
            let mut address = None;
            server::serve(store, listener(&mut address), config, std::future::pending()).await
        });
        let error = served.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
