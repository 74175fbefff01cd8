//! The servers of the benchmarks: Bristlecone, Redis and memcached, each with files of its own that are removed at the end.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::target;

/// A durability that both servers provide.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub name: &'static str,
    pub durability: &'static str,
    pub in_memory: bool,
    pub redis: &'static [&'static str],
}

pub const LEVELS: [Level; 2] = [
    Level {
        name: "process, /dev/shm",
        durability: "process",
        in_memory: true,
        redis: &["--save", "", "--appendonly", "no"],
    },
    Level {
        name: "power, disk",
        durability: "power",
        in_memory: false,
        redis: &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
    },
];

impl Level {
    /// The folder of the files of this run.
    pub fn dir(self) -> PathBuf {
        let base = if self.in_memory { PathBuf::from("/dev/shm") } else { target() };
        base.join(format!("bristlecone-serve-{}", std::process::id()))
    }
}

/// A running server. Dropping it stops the process and removes its files.
pub struct Server {
    process: Child,
    /// The port of its main protocol on the loopback interface.
    pub port: u16,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> Result<u16, String> {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(socket.map_err(|error| format!("no free port: {error}"))?.port())
}

impl Server {
    fn start(mut command: Command, port: u16, dir: PathBuf) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process =
            process.map_err(|error| format!("cannot start {name}: {error}: cargo xtask test installs it"))?;
        let mut server = Self { process, port, dir };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > end || server.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name} does not listen on port {port}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Bristlecone with these further options, on a free port of Redis's protocol.
    ///
    /// # Errors
    /// It does not start.
    pub fn bristlecone(program: &Path, dir: PathBuf, options: &[&str]) -> Result<Self, String> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--dir").arg(&dir).args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(options);
        Self::start(command, port, dir)
    }

    /// Bristlecone on a free port of memcached's protocol.
    ///
    /// # Errors
    /// It does not start.
    pub fn bristlecone_memcached(program: &Path, dir: PathBuf, options: &[&str]) -> Result<Self, String> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--dir").arg(&dir).args(["--listen", "none", "--memcached"]);
        command.arg(format!("127.0.0.1:{port}")).args(options);
        Self::start(command, port, dir)
    }

    /// Bristlecone with the durability of this level.
    ///
    /// # Errors
    /// It does not start.
    pub fn ours(level: Level, program: &Path) -> Result<Self, String> {
        Self::bristlecone(program, level.dir().join("ours"), &["--durability", level.durability])
    }

    /// Redis with the durability of this level.
    ///
    /// # Errors
    /// It does not start.
    pub fn redis(level: Level) -> Result<Self, String> {
        Self::redis_in(level.dir().join("redis"), level.redis)
    }

    /// Redis with these options.
    ///
    /// # Errors
    /// It does not start.
    pub fn redis_in(dir: PathBuf, options: &[&str]) -> Result<Self, String> {
        let port = free_port()?;
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(&dir).args(options);
        Self::start(command, port, dir)
    }

    /// A server without persistence and with memory for all keys.
    ///
    /// # Errors
    /// It does not start.
    pub fn memcached() -> Result<Self, String> {
        let port = free_port()?;
        let mut command = Command::new("memcached");
        let (threads, memory_mib, connections) = ("2", "4096", "1024");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"]);
        command.args(["-t", threads, "-m", memory_mib, "-c", connections]);
        // The folder does not exist: memcached has no files.
        Self::start(command, port, std::env::temp_dir().join(format!("bristlecone-memcached-{port}")))
    }

    /// Runs `redis-benchmark` with these arguments. Returns its lines of CSV.
    ///
    /// # Errors
    /// It cannot run, or the server replied with an error.
    pub fn benchmark(&self, arguments: &[String]) -> Result<String, String> {
        let mut command = Command::new("redis-benchmark");
        command.args(["--csv", "-p", &self.port.to_string()]).args(arguments);
        let output = command.output().map_err(|error| format!("cannot run redis-benchmark: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        match [&text, &errors].iter().find(|text| text.contains("Error")) {
            Some(text) => Err(format!("redis-benchmark {}: {text}", arguments.join(" "))),
            None => Ok(text),
        }
    }

    /// Syncs since the start.
    pub fn syncs(&self) -> Option<f64> {
        let info = Command::new("redis-cli").args(["-p", &self.port.to_string(), "INFO"]).output().ok()?;
        let text = String::from_utf8_lossy(&info.stdout).into_owned();
        text.lines().find_map(|line| line.strip_prefix("total_syncs:")?.trim().parse().ok())
    }
}
