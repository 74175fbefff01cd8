//! `serve --take-over`: a new process takes over the sockets of the old one. Clients that reconnect often, clients that keep one
//! connection, and clients with pipelines see no error. No acknowledged write is lost.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::{Commands as _, Value, cmd};

use crate::common::{Serve, code, program, run, stderr};

const TIME_MAX: Duration = Duration::from_secs(60);

/// Starts a server that takes over, and waits for the end of the old one.
fn take_over(dir: &Path, old: &mut Serve, options: &[&str]) -> Serve {
    let options = [&["--take-over"], options].concat();
    let new = Serve::with(dir, &options);
    assert_eq!(new.address, old.address, "the socket is the same");
    assert!(old.wait().success());
    new
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let socket = TcpStream::connect(address).expect("no connection is refused");
    socket.set_read_timeout(Some(TIME_MAX)).unwrap();
    socket.set_nodelay(true).unwrap();
    BufReader::new(socket)
}

/// Sends lines as commands, and returns the lines of the replies.
fn exchange(socket: &mut BufReader<TcpStream>, commands: &[String], replies: usize) -> Vec<String> {
    let text = commands.iter().map(|command| format!("{command}\r\n")).collect::<String>();
    socket.get_mut().write_all(text.as_bytes()).expect("the connection stays open");
    let mut read = || {
        let mut line = String::new();
        assert!(socket.read_line(&mut line).expect("a reply") > 0, "the connection was closed");
        line.trim_end().to_owned()
    };
    (0..replies).map(|_| read()).collect()
}

#[test]
fn no_request_fails_while_servers_replace_each_other() {
    const CLIENTS: usize = 2;
    const TAKEOVERS: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut serve = Serve::start(dir);
    let (address, ends, done) = (serve.address, &AtomicBool::new(false), &AtomicUsize::new(0));
    let is_running = move || !ends.load(Ordering::SeqCst);
    let written: Vec<String> = std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            // A connection for each two commands.
            clients.push(scope.spawn(move || {
                let mut written = Vec::new();
                while is_running() {
                    let key = format!("short:{client}:{}", written.len());
                    let mut socket = connect(address);
                    assert_eq!(exchange(&mut socket, &[format!("SET {key} v")], 1), ["+OK"]);
                    assert_eq!(exchange(&mut socket, &[format!("GET {key}")], 2), ["$1", "v"]);
                    written.push(key);
                    done.fetch_add(1, Ordering::SeqCst);
                }
                written
            }));
            // One connection, one command at a time.
            clients.push(scope.spawn(move || {
                let mut socket = connect(address);
                let mut written = Vec::new();
                while is_running() {
                    let key = format!("long:{client}:{}", written.len());
                    assert_eq!(exchange(&mut socket, &[format!("SET {key} v")], 1), ["+OK"]);
                    let count = exchange(&mut socket, &[format!("INCR count:{client}")], 1);
                    assert_eq!(count, [format!(":{}", written.len() + 1)]);
                    written.push(key);
                    done.fetch_add(1, Ordering::SeqCst);
                }
                written
            }));
            // One connection with pipelines.
            clients.push(scope.spawn(move || {
                let mut socket = connect(address);
                let mut written = Vec::new();
                while is_running() {
                    let keys: Vec<_> =
                        (0..50).map(|number| format!("many:{client}:{}:{number}", written.len())).collect();
                    let commands: Vec<_> = keys.iter().map(|key| format!("SET {key} v")).collect();
                    assert_eq!(exchange(&mut socket, &commands, 50), ["+OK"; 50]);
                    written.extend(keys);
                    done.fetch_add(1, Ordering::SeqCst);
                }
                written
            }));
        }
        for _ in 0..TAKEOVERS {
            // Each server serves for a while.
            let (before, deadline) = (done.load(Ordering::SeqCst), Instant::now() + TIME_MAX);
            while done.load(Ordering::SeqCst) < before + 100
                && !clients.iter().any(|client| client.is_finished())
            {
                assert!(Instant::now() < deadline, "the clients wait");
                std::thread::sleep(Duration::from_millis(5));
            }
            serve = take_over(dir, &mut serve, &[]);
        }
        ends.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let mut client = serve.client();
    for keys in written.chunks(500) {
        assert_eq!(client.exists::<_, usize>(keys).unwrap(), keys.len());
    }
    assert!(client.get::<_, usize>("count:0").unwrap() > 0);
}

#[test]
fn a_connection_keeps_its_state_and_others_are_closed_after_their_reply() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, path) = (dir.path().join("store"), dir.path().join("socket"));
    let path = path.to_str().unwrap();
    let mut old = Serve::with(&dir, &["--unix-socket", path]);
    cmd("ACL").arg(&["SETUSER", "ann", "on", ">pw", "~*", "+@all"]).exec(&mut old.client()).unwrap();
    let mut idle = old.client();
    cmd("SELECT").arg(3).exec(&mut idle).unwrap();
    cmd("HELLO").arg(3).exec(&mut idle).unwrap();
    cmd("CLIENT").arg("SETNAME").arg("idle").exec(&mut idle).unwrap();
    idle.set::<_, _, ()>("k", "three").unwrap();
    let mut unix = UnixStream::connect(path).unwrap();
    unix.set_read_timeout(Some(TIME_MAX)).unwrap();
    // These cannot go on in another process. `half` never sends the rest.
    let mut closed = Vec::new();
    for (commands, replies) in [
        ("MULTI\r\nSET k v\r\n", 2),
        ("WATCH k\r\n", 1),
        ("AUTH ann pw\r\n", 1),
        ("PING\r\n*2\r\n$3\r\nGE", 1),
    ] {
        let mut socket = connect(old.address);
        socket.get_mut().write_all(commands.as_bytes()).unwrap();
        for _ in 0..replies {
            assert!(socket.read_line(&mut String::new()).unwrap() > 0);
        }
        closed.push(socket);
    }
    let mut new = take_over(&dir, &mut old, &["--unix-socket", path]);
    assert_eq!(idle.get::<_, String>("k").unwrap(), "three");
    let info: String = cmd("CLIENT").arg("INFO").query(&mut idle).unwrap();
    for part in ["name=idle", " db=3", "resp=3", "user=default"] {
        assert!(info.contains(part), "{part}: {info}");
    }
    for socket in &mut closed {
        // `ann` was a user of the old process only.
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    }
    unix.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    unix.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    // The file of the Unix socket is there until the last server ends.
    drop(UnixStream::connect(path).unwrap());
    new.signal("TERM");
    assert!(new.wait().success());
    assert!(!Path::new(path).exists() && !dir.join("takeover.sock").exists());
}

/// A backup uses the store, so the old server ends it first.
#[test]
fn a_takeover_waits_for_a_running_backup() {
    let root = tempfile::tempdir().unwrap();
    let (dir, backups) = (root.path().join("store"), root.path().join("backups"));
    std::fs::create_dir(&backups).unwrap();
    let mut old = Serve::with(&dir, &["--backup-dir", backups.to_str().unwrap()]);
    let mut client = old.client();
    for start in (0..20_000).step_by(1000) {
        let pairs: Vec<_> = (start..start + 1000).map(|number| (number, [b'v'; 500].as_slice())).collect();
        client.mset::<_, _, ()>(&pairs).unwrap();
    }
    cmd("BGSAVE").exec(&mut client).unwrap();
    let new = take_over(&dir, &mut old, &[]);
    assert_eq!(cmd("DBSIZE").query::<usize>(&mut client).unwrap(), 20_000);
    let made: Vec<_> = std::fs::read_dir(&backups).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(made.len(), 1);
    let copy = bristlecone::Store::open(&made[0], bristlecone::Options::default().create(false)).unwrap();
    assert_eq!(copy.count().unwrap(), 20_000);
    drop(new);
}

#[test]
fn if_the_new_server_fails_the_old_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let old = Serve::telling(dir, &[], Stdio::null());
    let address = old.address.to_string();
    let mut client = old.client();
    client.set::<_, _, ()>("k", "v").unwrap();
    cmd("CONFIG").arg("SET").arg(&["timeout", "77"]).exec(&mut client).unwrap();
    cmd("ACL").arg(&["SETUSER", "ann", "on", ">pw", "~*", "+@all"]).exec(&mut client).unwrap();
    // Wrong options, found before and after the old server has stopped.
    for (options, why) in [(["--tls-cert", "no/file"], "tls"), (["--engine", "vlab"], "engine")] {
        let output = run(dir, &[&["serve", "--take-over", "--listen", &address], &options[..]].concat());
        assert_ne!(code(&output), 0);
        assert!(stderr(&output).contains(why), "{output:?}");
        assert_eq!(client.get::<_, String>("k").unwrap(), "v");
        client.set::<_, _, ()>("more", why).unwrap();
        let timeout: Vec<String> = cmd("CONFIG").arg("GET").arg("timeout").query(&mut client).unwrap();
        assert_eq!(timeout, ["timeout", "77"]);
        cmd("AUTH").arg("ann").arg("pw").exec(&mut old.client()).unwrap();
    }
    // A server that is killed while it waits.
    let mut killed = program();
    let mut child = killed
        .args(["serve", "--take-over", "--listen", &address, "--dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(client.get::<_, String>("more").unwrap(), "engine");
    // Without a server, the option has no effect.
    drop(old);
    let started = Serve::with(dir, &["--take-over"]);
    let reply: Value = cmd("PING").query(&mut started.client()).unwrap();
    assert_eq!(reply, Value::SimpleString("PONG".to_owned()));
}
