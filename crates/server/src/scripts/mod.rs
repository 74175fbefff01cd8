//! Lua scripts: their texts, and the interpreters that run them.
//!
//! A script runs in a transaction. It sees its own writes. After a crash all of its writes are present or none is. If another client
//! changes a key that the script read, the script runs again ([`crate::command::transactions`]).
//!
//! * `interpreter`: an interpreter with the functions that scripts may call. `prelude.lua`: its global names.
//! * [`libraries`]: libraries of functions. [`functions`]: those of the server.
//! * `run_scope`: the run of a script, for the functions that the script calls.
//! * `raised`: errors. `values`: replies of commands as values of Lua, and results of scripts as replies.
//! * `bits`, `json`, `packed`, `structs`: the libraries `bit`, `cjson`, `cmsgpack` and `struct`.
//!
//! Invariants:
//! * S1: an interpreter runs one script at a time. A script cannot change a global name or a library, so it leaves nothing for the next one.
//!   The local variables of a library of functions are an exception.
//! * S2: a script loads no compiled chunk, because Lua does not verify those.
//! * S3: a script that is stopped (its time is over, SCRIPT KILL) or that needs too much memory changes nothing.

mod bits;
pub mod functions;
mod interpreter;
mod json;
pub mod libraries;
mod packed;
mod raised;
mod run_scope;
mod structs;
mod values;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use sha1::{Digest, Sha1};

use crate::command::CommandError;
use crate::shared::lock;
pub use interpreter::Host;
use interpreter::Interpreter;
use libraries::{Library, ScriptFlags, header};

/// Maximum bytes of memory of an interpreter.
const MEMORY_MAX: usize = 256 << 20;
/// An interpreter with more bytes is not kept for the next script.
const MEMORY_KEPT: usize = 16 << 20;
/// Maximum time of a library's own run, in FUNCTION LOAD.
const LOAD_LIMIT: Duration = Duration::from_millis(500);
/// Maximum number of interpreters that wait for their next script.
const IDLE_MAX: usize = 16;
/// A script whose last run took longer, or that has not run yet, does not hold up the other connections of its thread.
const SHORT: Duration = Duration::from_millis(1);
/// Maximum number of scripts that are known at once. If there are more, the oldest of those that only EVAL has named are forgotten.
const EVALUATED_MAX: usize = 500;

/// The digest of a script's text in lower-case hexadecimal digits, by which EVALSHA names it.
#[must_use]
pub fn sha1_hex(text: &[u8]) -> String {
    // EVAL computes it for each command. A table of digits is many times faster than the formatting of each byte.
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    Sha1::digest(text).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A script, or a function of a library.
#[derive(Debug)]
pub struct Script {
    /// The digest of a script ([`sha1_hex`]), the name of a function.
    pub name: String,
    /// The text of the script or of the library, without the line of flags.
    code: Bytes,
    /// Its flags.
    pub flags: ScriptFlags,
    /// The digest of the library. `None` for a script.
    library: Option<String>,
    /// False if the last run was short ([`SHORT`]).
    is_long: AtomicBool,
}

impl Script {
    /// A script with this text. The first line may name flags: `#!lua flags=no-writes`.
    fn new(sha: String, text: &Bytes) -> Result<Self, CommandError> {
        let plain =
            |code, flags| Self { name: sha, code, flags, library: None, is_long: AtomicBool::new(true) };
        let mut all = ScriptFlags::default();
        if !text.starts_with(b"#!") {
            return Ok(plain(text.clone(), all));
        }
        let wrong = |text: String| Err(CommandError::Text(text));
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return wrong("ERR Invalid script shebang".to_owned());
        };
        let line = String::from_utf8_lossy(&text[2..end]).into_owned();
        let mut words = line.split_whitespace();
        let engine = words.next().unwrap_or_default();
        if engine != "lua" {
            return wrong(format!("ERR Unexpected engine in script shebang: #!{engine}"));
        }
        for word in words {
            let Some(flags) = word.strip_prefix("flags=") else {
                return wrong(format!("ERR Unknown lua shebang option: {word}"));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                if !all.add(flag.as_bytes()) {
                    return wrong(format!("ERR Unexpected flag in script shebang: {flag}"));
                }
            }
        }
        // The end of the line stays, so that the numbers of the other lines are right.
        Ok(plain(text.slice(end..), all))
    }

    /// A function of a library with this text.
    fn function(name: String, code: Bytes, library: String, flags: ScriptFlags) -> Self {
        Self { name, code, flags, library: Some(library), is_long: AtomicBool::new(true) }
    }

    /// True if the script may take long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }
}

/// Tells a running script to stop.
#[derive(Debug)]
struct Control {
    /// Microseconds of a run after which it stops; 0 for no limit.
    limit: AtomicU64,
    started: Mutex<Instant>,
    is_killed: AtomicBool,
}

/// The reason why a script was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// SCRIPT KILL.
    Killed,
    /// Its time is over.
    Time,
}

impl Control {
    fn new() -> Self {
        let (limit, is_killed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { limit, started: Mutex::new(Instant::now()), is_killed }
    }

    fn begin(&self, limit: Duration) {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.limit.store(micros, Ordering::Relaxed);
        *lock(&self.started) = Instant::now();
        self.is_killed.store(false, Ordering::Relaxed);
    }

    fn elapsed(&self) -> Duration {
        lock(&self.started).elapsed()
    }

    /// The reason to stop, if there is one.
    fn stop(&self) -> Option<Stop> {
        if self.is_killed.load(Ordering::Relaxed) {
            return Some(Stop::Killed);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        (limit > 0 && self.elapsed().as_micros() > u128::from(limit)).then_some(Stop::Time)
    }
}

/// A known script, and whether SCRIPT LOAD has named it.
#[derive(Debug)]
struct Known {
    script: Arc<Script>,
    is_loaded: bool,
    /// The number of scripts that were added before.
    number: u64,
}

/// The scripts of a server.
#[derive(Debug, Default)]
pub struct Scripts {
    known: Mutex<FxHashMap<String, Known>>,
    added: AtomicU64,
    /// Changes whenever all scripts are forgotten. An interpreter of an older version is dropped.
    version: AtomicU64,
    idle: Mutex<Vec<Interpreter>>,
    running: Mutex<Vec<Running>>,
}

/// A script or a function that is running.
#[derive(Clone, Debug)]
pub struct Running {
    control: Arc<Control>,
    /// The name of a function. `None` for a script.
    pub function: Option<String>,
    /// The command that runs the function.
    pub command: Vec<Bytes>,
}

impl Running {
    /// The time since its start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.control.elapsed()
    }
}

impl Scripts {
    /// The script with this text. It is known from now on.
    ///
    /// # Errors
    /// The first line is wrong, or the script does not compile.
    pub fn add(&self, text: &Bytes, is_load: bool) -> Result<Arc<Script>, CommandError> {
        let sha = sha1_hex(text);
        if let Some(known) = lock(&self.known).get_mut(&sha) {
            known.is_loaded |= is_load;
            return Ok(Arc::clone(&known.script));
        }
        let script = Arc::new(Script::new(sha.clone(), text)?);
        let mut interpreter = self.take()?;
        interpreter.compile(&script)?;
        self.give_back(interpreter);
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        let mut known = lock(&self.known);
        let evaluated = known.iter().filter(|(_, known)| !known.is_loaded);
        if !is_load && known.len() >= EVALUATED_MAX {
            let oldest = evaluated.min_by_key(|(_, known)| known.number).map(|(sha, _)| sha.clone());
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        known.insert(sha, Known { script: Arc::clone(&script), is_loaded: is_load, number });
        Ok(script)
    }

    /// The script with this digest, in upper or lower case.
    #[must_use]
    pub fn find(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = String::from_utf8(sha.to_ascii_lowercase()).ok()?;
        lock(&self.known).get(&sha).map(|known| Arc::clone(&known.script))
    }

    /// Forgets all scripts.
    pub fn clear(&self) {
        lock(&self.known).clear();
        self.forget_interpreters();
    }

    /// Drops the interpreters, with the libraries that they have loaded.
    pub(crate) fn forget_interpreters(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        lock(&self.idle).clear();
    }

    /// The library with this text. Its code runs once.
    ///
    /// # Errors
    /// Its first line is wrong, it does not compile, it fails, or it registers no function.
    pub fn load(&self, code: &Bytes) -> Result<Library, CommandError> {
        let (name, body) = header(code)?;
        let digest = sha1_hex(code);
        let mut interpreter = self.take()?;
        interpreter.control.begin(LOAD_LIMIT);
        let registered = interpreter.load(&digest, &body);
        let library = registered.map(|all| Library::new(name, code.clone(), (&digest, &body), all));
        if interpreter.is_usable() {
            self.give_back(interpreter);
        }
        let library = library?;
        if library.functions.is_empty() {
            return Err(CommandError::Text("ERR No functions registered".to_owned()));
        }
        Ok(library)
    }

    /// Number of known scripts, and bytes of their texts and of the interpreters that wait.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let texts = {
            let known = lock(&self.known);
            (known.len(), known.values().map(|known| known.script.code.len()).sum::<usize>())
        };
        let idle: usize = lock(&self.idle).iter().map(Interpreter::memory).sum();
        (texts.0, texts.1 + idle)
    }

    /// Stops all running scripts, or all running functions. False if none is running.
    #[must_use]
    pub fn kill(&self, functions: bool) -> bool {
        let running = lock(&self.running);
        let meant: Vec<_> = running.iter().filter(|one| one.function.is_some() == functions).collect();
        meant.iter().for_each(|one| one.control.is_killed.store(true, Ordering::Relaxed));
        !meant.is_empty()
    }

    /// The function that has run for the longest time.
    #[must_use]
    pub fn running_function(&self) -> Option<Running> {
        lock(&self.running).iter().find(|one| one.function.is_some()).cloned()
    }

    /// Runs a script once and writes its reply, which may be an error of the script. The caller commits what the script wrote.
    ///
    /// # Errors
    /// The script was stopped. Then the caller discards what it wrote (S3).
    pub fn run(
        &self,
        script: &Script,
        (keys, arguments): (&[Bytes], &[Bytes]),
        limit: Duration,
        host: &mut Host<'_, '_>,
    ) -> Result<(), CommandError> {
        let mut interpreter = self.take()?;
        let control = Arc::clone(&interpreter.control);
        control.begin(limit);
        let function = script.library.as_ref().map(|_| script.name.clone());
        let command = if function.is_some() { host.command.to_vec() } else { Vec::new() };
        lock(&self.running).push(Running { control: Arc::clone(&control), function, command });
        let result = interpreter.run(script, keys, arguments, host);
        lock(&self.running).retain(|other| !Arc::ptr_eq(&other.control, &control));
        script.is_long.store(control.elapsed() > SHORT, Ordering::Relaxed);
        // An interpreter that has reached a limit may be in any state.
        if interpreter.is_usable() {
            self.give_back(interpreter);
        }
        result
    }

    fn take(&self) -> Result<Interpreter, CommandError> {
        let version = self.version.load(Ordering::Relaxed);
        let idle = lock(&self.idle).pop();
        match idle.filter(|interpreter| interpreter.version == version) {
            Some(interpreter) => Ok(interpreter),
            None => Interpreter::new(version),
        }
    }

    fn give_back(&self, interpreter: Interpreter) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(interpreter);
        }
    }
}
