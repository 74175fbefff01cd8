//! Monitoring by HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::{TestServer, eventually};
use bristlecone::{Durability, Options};
use redis::Commands;
use server::{Config, Listeners};

fn start() -> (TestServer, SocketAddr) {
    start_with(Options::default())
}

fn start_with(options: Options) -> (TestServer, SocketAddr) {
    let mut address = None;
    let server = TestServer::beside(options, Config::default(), || {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        address = Some(socket.local_addr().unwrap());
        Listeners {
            metrics: Some(tokio::net::TcpListener::from_std(socket).unwrap()),
            ..Listeners::default()
        }
    });
    (server, address.unwrap())
}

fn exchange(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn metrics_count_what_clients_do_and_every_line_is_well_formed() {
    let (server, address) = start();
    let mut client = server.client();
    let _: () = client.set("k", "v").unwrap();
    assert_eq!(client.get::<_, String>("k").unwrap(), "v");
    assert_eq!(client.get::<_, Option<String>>("absent").unwrap(), None);
    server.exchange(b"*x\r\n");
    // The server may notice a little later that this client has left.
    let connected = || value(&get(address, "/metrics"), "bristlecone_connected_clients");
    eventually("the second client is gone", || connected() == 1);
    let text = get(address, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert_eq!(value(&text, "bristlecone_keyspace_hits_total"), 1);
    assert_eq!(value(&text, "bristlecone_keyspace_misses_total"), 1);
    assert_eq!(value(&text, "bristlecone_keys"), 1);
    assert_eq!(value(&text, "bristlecone_connected_clients"), 1);
    assert_eq!(value(&text, "bristlecone_refusals_total{class=\"protocol\"}"), 1);
    check_form(&text);
}

/// Every line has its form, and every value has one type.
fn check_form(text: &str) {
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let mut types = std::collections::HashSet::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(types.insert(rest.split(' ').next().unwrap()), "two types: {line}");
        } else if !line.starts_with("# HELP ") {
            let (name, number) = line.rsplit_once(' ').unwrap();
            number.parse::<f64>().unwrap();
            assert!(types.contains(name.split('{').next().unwrap()), "no type: {line}");
        }
    }
}

#[test]
fn metrics_of_an_engine_with_pages_count_its_log_and_its_pages() {
    let (server, address) = start_with(Options::default().engine("bwtree").durability(Durability::Process));
    let mut client = server.client();
    let _: () = client.set("k", "v").unwrap();
    let told: String = redis::cmd("INFO").query(&mut client).unwrap();
    assert!(told.contains("\r\npage_waits:0\r\n") && told.contains("\r\npage_wait_usec:0\r\n"), "{told}");
    let text = get(address, "/metrics");
    assert!(value(&text, "bristlecone_log_bytes_written_total") > 0, "{text}");
    assert!(value(&text, "bristlecone_page_bytes") > 0 && value(&text, "bristlecone_pages_used_total") > 0);
    assert!(value(&text, "bristlecone_page_memory_bytes") > 1 << 20, "{text}");
    assert_eq!(value(&text, "bristlecone_page_waits_total"), 0);
    assert_eq!(value(&text, "bristlecone_page_bytes_saved_total"), 0);
    assert!(text.contains("\nbristlecone_page_wait_seconds_total 0.000000\n"), "{text}");
    check_form(&text);
}

#[test]
fn health_is_answered_and_other_requests_are_refused() {
    let (_server, address) = start();
    let ok = get(address, "/health");
    assert!(ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("\r\n\r\nok\n"), "{ok}");
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    let post = exchange(address, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    assert!(exchange(address, "SET k v\r\nSET k v\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn slow_requests_do_not_stop_clients_of_the_store() {
    let (server, address) = start();
    let _slow: Vec<_> = (0..40)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"GET /metr").unwrap();
            socket
        })
        .collect();
    let _: () = server.client().set("k", "v").unwrap();
    assert_eq!(server.store.get(b"k").unwrap(), Some(b"v".to_vec()));
}
