//! `top`: on a pseudo-terminal, and as text and JSON for scripts.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use redis::{Commands as _, cmd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::common::{Serve, code, program, stderr, succeed};

/// A program on a terminal of its own.
struct OnTerminal {
    child: Child,
    master: File,
}

impl OnTerminal {
    fn start(arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || {
            let file = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
            Stdio::from(file)
        };
        let child = program().args(arguments).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self { child, master: master.into() }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Reads until this text has arrived. Returns everything that was read.
    fn wait_for(&mut self, text: &str) -> String {
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        while !String::from_utf8_lossy(&all).contains(text) {
            let count = self.master.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "{text:?} is not in {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_shows_the_server_until_q_and_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(dir.path());
    serve.client().set::<_, _, ()>("k", "v").unwrap();
    for key in [b"q", b"\x03"] {
        let mut top = OnTerminal::start(&["top", &serve.address.to_string()]);
        let shown = top.wait_for("bristlecone-top");
        for part in ["\x1b[?1049h", "commands    ", "engine line", "keys        db0 1"] {
            assert!(shown.contains(part), "{part:?} is not in {shown:?}");
        }
        assert!(top.is_raw());
        // The next frame replaces this one.
        top.wait_for("\x1b[H");
        top.master.write_all(b"x").unwrap();
        top.master.write_all(key).unwrap();
        top.wait_for("\x1b[?1049l");
        assert!(top.child.wait().unwrap().success());
        assert!(!top.is_raw(), "the terminal is as before");
    }
}

#[test]
fn the_terminal_survives_a_server_that_ends_and_shows_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(dir.path());
    let address = serve.address.to_string();
    let mut top = OnTerminal::start(&["top", &address]);
    top.wait_for("engine line");
    drop(serve);
    top.wait_for("Trying again; q quits.");
    let mut again = program()
        .args(["serve", "--listen", &address, "--dir"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    top.wait_for("engine line");
    again.kill().unwrap();
    again.wait().unwrap();
}

#[test]
fn once_prints_a_frame_and_json_prints_a_line_for_each_interval() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(dir.path());
    let address = serve.address.to_string();
    let mut client = serve.client();
    cmd("CONFIG").arg("SET").arg(&["maxmemory", "100mb"]).exec(&mut client).unwrap();
    let text = succeed(&program().args(["top", &address, "--once"]).output().unwrap());
    assert!(text.starts_with("bristlecone ") && text.contains(" of 100.0 MiB (noeviction)"), "{text}");
    assert!(!text.contains('\x1b'), "no codes of a terminal");
    let mut child = program().args(["top", &address, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut last = 0;
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(object["rates"]["commands"].as_f64().unwrap() > 0.0, "{object}");
        let names: Vec<_> =
            object["clients"].as_array().unwrap().iter().map(|client| client["name"].clone()).collect();
        assert!(names.contains(&"bristlecone-top".into()), "{object}");
        let time = object["time"].as_u64().unwrap();
        assert!(time > last);
        last = time;
    }
    // The reader closes the pipe.
    drop(lines);
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
}

#[test]
fn errors_name_the_server_and_passwords_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let top = |arguments: &[&str], password: &str| {
        program().arg("top").args(arguments).env("BRISTLECONE_PASSWORD", password).output().unwrap()
    };
    let output = top(&[], "");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("there is no terminal: use --once or --json"), "{output:?}");
    let output = top(&["127.0.0.1:1", "--once"], "");
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("cannot ask the server 127.0.0.1:1"), "{output:?}");
    let file = dir.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let (file, socket) = (file.to_str().unwrap(), dir.path().join("socket"));
    let options = ["--password-file", file, "--unix-socket", socket.to_str().unwrap()];
    let serve = Serve::with(&dir.path().join("store"), &options);
    let address = serve.address.to_string();
    let output = top(&[&address, "--once"], "");
    assert!(stderr(&output).contains("NOAUTH"), "{output:?}");
    let output = top(&[&address, "--once"], "wrong");
    assert!(stderr(&output).contains("WRONGPASS"), "{output:?}");
    assert_eq!(code(&top(&[&address, "--once", "--password-file", file], "")), 0);
    assert_eq!(code(&top(&["--unix-socket", socket.to_str().unwrap(), "--once"], "secret")), 0);
}
