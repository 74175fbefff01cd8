//! What `serve` does for clients on a network: limits of the process, log lines, Unix sockets, TLS options.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{self, Serve, program, run, stderr};
use redis::cmd;

/// The program after `ulimit`.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\"")).arg(program().get_program());
    command
}

/// The soft and the hard limit of open files of a process.
fn open_files(process: u32) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut words = line.split_whitespace().skip(3).map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

fn setting(serve: &Serve, name: &str) -> String {
    let pair: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query(&mut serve.client()).unwrap();
    pair[1].clone()
}

#[test]
fn the_limit_of_open_files_is_raised_and_bounds_the_clients() {
    let dir = tempfile::tempdir().unwrap();
    let raised = Serve::by(limited("-Sn 100"), &dir.path().join("a"), &[], Stdio::inherit());
    let (soft, hard) = open_files(raised.child.id());
    assert_eq!(soft, hard);
    let low = Serve::by(limited("-n 100"), &dir.path().join("b"), &[], Stdio::null());
    // This client stays: the server may notice later that a client has left.
    let mut first = low.client();
    let (_, clients): (String, usize) = cmd("CONFIG").arg("GET").arg("maxclients").query(&mut first).unwrap();
    assert!(clients < 100, "{clients} clients with 100 descriptors");
    // The others can connect, and one more gets an error.
    let sockets: Vec<_> = (1..clients).map(|_| TcpStream::connect(low.address).unwrap()).collect();
    for mut socket in &sockets {
        socket.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
    let mut answer = String::new();
    let _ = TcpStream::connect(low.address).unwrap().read_to_string(&mut answer);
    assert_eq!(answer, "-ERR max number of clients reached\r\n");
}

#[test]
fn refused_clients_are_logged_as_json_and_do_not_fill_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let options = ["--max-clients", "1", "--log-format", "json"];
    let file = std::fs::File::create(&log).unwrap();
    let serve = Serve::telling(&dir.path().join("store"), &options, file.into());
    let _first = serve.client();
    for _ in 0..200 {
        let mut answer = String::new();
        let _ = TcpStream::connect(serve.address).unwrap().read_to_string(&mut answer);
        assert_eq!(answer, "-ERR max number of clients reached\r\n");
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused: Vec<_> = lines.iter().filter(|line| line["fields"]["class"] == "too-many-clients").collect();
    assert!(!refused.is_empty() && refused.len() < 200, "{text}");
    assert_eq!(refused[0]["level"], "WARN");
    assert!(refused[0]["fields"]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{text}");
}

fn ping(path: &Path) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_unix_socket_has_its_mode_and_replaces_the_file_of_a_killed_server() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (dir.path().join("store"), dir.path().join("socket"));
    let shown = path.to_str().unwrap();
    let mut serve = Serve::with(&store, &["--unix-socket", shown, "--unix-socket-mode", "600"]);
    assert_eq!(serve.started["unix_socket"], shown);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ping(&path), "+PONG\r\n+OK\r\n");
    // Another server does not take a socket in use.
    let other = dir.path().join("other");
    let refused = run(&other, &["serve", "--listen", "none", "--unix-socket", shown]);
    assert!(stderr(&refused).contains("another process listens on it"), "{refused:?}");
    serve.signal("KILL");
    serve.wait();
    assert!(path.exists());
    let mut serve = Serve::with(&store, &["--unix-socket", shown]);
    assert_eq!(ping(&path), "+PONG\r\n+OK\r\n");
    serve.signal("TERM");
    assert!(serve.wait().success());
    assert!(!path.exists());
    // A file that is no socket stays.
    std::fs::write(&path, "text").unwrap();
    let refused = run(&store, &["serve", "--listen", "none", "--unix-socket", shown]);
    assert!(stderr(&refused).contains("cannot listen on"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
}

#[test]
fn tls_needs_its_files_and_prints_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let store = dir.path().join("store");
    let missing = run(&store, &["serve", "--tls-listen", "127.0.0.1:0"]);
    assert_eq!(common::code(&missing), 2);
    assert!(stderr(&missing).contains("--tls-cert"), "{missing:?}");
    let absent =
        ["serve", "--tls-listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", "no/such/key"];
    let absent = run(&store, &absent);
    assert!(stderr(&absent).contains("no/such/key"), "{absent:?}");
    assert!(!store.exists(), "a wrong option must not make a store");
    let nothing = run(&store, &["serve", "--listen", "none"]);
    assert_eq!(common::code(&nothing), 2);
    let serve =
        Serve::with(&store, &["--tls-listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]);
    let address = serve.started["tls_listen"].as_str().unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"PING\r\nPING\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // The answer to bytes that are no handshake is a TLS alert.
    assert_eq!(answer.first(), Some(&21), "{answer:?}");
}

#[test]
fn monitoring_has_an_address_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::with(&dir.path().join("store"), &["--metrics-listen", "127.0.0.1:0"]);
    let mut socket = TcpStream::connect(serve.started["metrics_listen"].as_str().unwrap()).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\nbristlecone_connected_clients 0\n"), "{answer}");
}

#[test]
fn the_service_manager_learns_when_the_server_is_ready_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let state = || {
        let mut bytes = [0; 100];
        let count = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path);
    let mut serve = Serve::by(command, &dir.path().join("store"), &[], Stdio::inherit());
    // After a takeover the service has another process.
    assert_eq!(state(), format!("READY=1\nMAINPID={}", serve.child.id()));
    serve.signal("TERM");
    assert_eq!(state(), "STOPPING=1");
    assert!(serve.wait().success());
    // Without its socket the server works, and logs that.
    let mut command = program();
    command.env("NOTIFY_SOCKET", dir.path().join("absent"));
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let serve = Serve::by(command, &dir.path().join("store"), &[], log.into());
    assert_eq!(setting(&serve, "timeout"), "0");
    let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(text.contains("cannot notify the service manager"), "{text}");
}
