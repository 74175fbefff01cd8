//! Runs the program: single commands, and `serve` on a free port.

// Each test program uses only a part of this module.
#![allow(dead_code)]

mod output;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

pub use output::{code, stderr, stdout, succeed};

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bristlecone"))
}

/// Runs a command with the store in `dir` and returns its output.
pub fn run(dir: &Path, arguments: &[impl AsRef<OsStr>]) -> Output {
    program().args(arguments).arg("--dir").arg(dir).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command with bytes on its standard input.
pub fn run_with_input(dir: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = program()
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Ignore a write error: a command that does not read its input is judged by its output.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A running `serve`, killed when dropped.
pub struct Serve {
    pub child: Child,
    pub address: SocketAddr,
    /// The line that `serve` printed at its start.
    pub started: serde_json::Value,
}

impl Serve {
    pub fn start(dir: &Path) -> Self {
        Self::with(dir, &[])
    }

    pub fn with(dir: &Path, options: &[&str]) -> Self {
        Self::telling(dir, options, Stdio::inherit())
    }

    /// Like `with`, with standard error redirected to `stderr`.
    pub fn telling(dir: &Path, options: &[&str], stderr: Stdio) -> Self {
        Self::by(program(), dir, options, stderr)
    }

    /// Like `telling`, with a command that gets the arguments of the program.
    pub fn by(mut command: Command, dir: &Path, options: &[&str], stderr: Stdio) -> Self {
        let mut child = command
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let address = started["listen"].as_str().unwrap().parse().unwrap();
        Self { child, address, started }
    }

    pub fn client(&self) -> redis::Connection {
        let client = redis::Client::open(format!("redis://{}/", self.address)).unwrap();
        let connect = || client.get_connection_with_timeout(Duration::from_secs(5));
        // A signal of the end of another child may interrupt the call. Then try once more.
        connect().or_else(|error| if error.is_io_error() { connect() } else { Err(error) }).unwrap()
    }

    /// Sends a signal, given by its name.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
