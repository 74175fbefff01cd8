//! A server without a network, over an index on observed memory, as the explorer's subject.
//!
//! A command runs through the code that a session runs: alone, or with the commands of its pipeline in one group. The contents that the
//! explorer compares are the replies of reading commands ([`super::contents`]).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone::{Clock, Engine, Store, registry};
use bytes::Bytes;
use crash::{Contents, Subject, region};
use index::{About, Family, Form};
use pmem::{Durability, Error, Found, Geometry, Observed};
use server::clients::ClientEntry;
use server::command::{grouped, run};
use server::eviction::Policy;
use server::session::SessionState;
use server::shared::Shared;
use server::stream::Peer;
use server::structures::{garbage, head_of};

use super::contents;

/// Begins the name of a library among the contents.
pub const LIBRARY: &str = "library:";
/// No deadline of the workload has passed then.
const EARLY: u64 = 0;

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Commands that a client sends in one pipeline. The explorer requires that all take effect together.
    Run(Commands),
    /// A fault on purpose: commands that are declared as one operation, and that run one by one.
    Apart(Commands),
    /// A fault on purpose: counts one more field in the head of the hash `h` before the field `late` is stored.
    HeadFirst,
    /// A fault on purpose: removes the first element with this tag of a structure. `None` removes the owner.
    Lose(&'static str, Option<u8>),
    /// Removes all garbage.
    Collect,
    /// Removes the keys whose deadline has passed at this time.
    Expire(u64, Vec<Change>),
    /// Evicts all keys that have a deadline, under a limit of memory that they exceed.
    Evict(Vec<Change>),
    /// Completes the background work of the index.
    Maintain,
    /// A crash without a loss.
    Kill,
    /// A clean close and an open.
    Reopen,
}

/// Commands, and the keys that they change.
#[derive(Clone, Debug)]
pub struct Commands {
    /// The lines, with the words as a client sends them. A word in quotation marks has spaces.
    pub lines: Vec<String>,
    /// The changed keys, each with its new contents.
    pub changes: Vec<Change>,
}

/// A key and its new contents. Empty: the key is gone.
pub type Change = (String, String);

/// The engine and the size of its nodes.
#[derive(Clone, Copy)]
pub struct Sizes {
    about: &'static About,
    capabilities: bristlecone::Capabilities,
    geometry: Geometry,
}

impl std::fmt::Debug for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sizes").field(&self.about.name).finish()
    }
}

impl Sizes {
    /// The smallest usual nodes of an engine.
    pub fn of<F: Family>(engine: &str) -> Self {
        let about = registry::find(engine).expect("an engine of the registry").about;
        Self { about, capabilities: F::CAPABILITIES, geometry: Geometry::tiny() }
    }

    fn form(&self) -> Form {
        let usual = Form::new("crash", self.about.default_lines.min(8), Durability::Power);
        Form { geometry: Some(self.geometry), stripes: 4, tables: true, ..usual }
    }
}

/// The open store and its server.
pub struct Open {
    pub engine: Arc<Engine<bristlecone::Bytes>>,
    pub shared: Arc<Shared>,
    state: RefCell<SessionState>,
    _entry: ClientEntry,
}

impl Open {
    fn new(engine: Arc<Engine<bristlecone::Bytes>>) -> Self {
        let store = Store::from_engine(Arc::clone(&engine));
        let config = server::Config { garbage_pass: std::time::Duration::ZERO, ..server::Config::default() };
        let shared = Arc::new(Shared::new(store, config, None));
        shared.functions.open(&shared).expect("the libraries can be read");
        let entry = shared.register(Peer::Unix("crash".into()), String::new()).expect("the first client");
        let mut state = SessionState::new(Arc::clone(&entry.client), &shared);
        state.log_in(shared.users.initial());
        Self { engine, shared, state: RefCell::new(state), _entry: entry }
    }

    /// Runs commands as a session does, in one pipeline. Returns their replies when all that they did is durable.
    fn send(&self, commands: &[Vec<Bytes>]) -> Result<Vec<u8>, String> {
        let (shared, state) = (&*self.shared, &mut *self.state.borrow_mut());
        let (mut output, mut left) = (Vec::new(), commands);
        let ((), ticket) = shared.store.apply(|_| {
            while let Some(first) = left.first() {
                let mut done = grouped::run(shared, state, left, &mut output);
                if done == 0 {
                    run(shared, state, first, &mut output);
                    done = 1;
                }
                left = &left[done..];
            }
        });
        shared.store.wait(ticket).map_err(text)?;
        Ok(output)
    }

    /// The reply to a command in a database.
    pub fn ask<T: redis::FromRedisValue>(&self, db: usize, line: &str) -> Result<T, String> {
        self.state.borrow_mut().db = db;
        let reply = self.send(&[words(line)])?;
        let value = redis::parse_redis_value(&reply).map_err(|error| format!("{line}: {error}"))?;
        redis::from_redis_value(value).map_err(|error| format!("{line}: {error}"))
    }

    /// Runs commands, none of which may fail.
    fn run(&self, lines: &[String]) -> Result<(), String> {
        self.state.borrow_mut().db = 0;
        let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
        let replies = self.send(&commands)?;
        // An error begins with its code, and a negative number with a digit.
        let is_error = |line: &[u8]| matches!(line, [b'-', code, ..] if code.is_ascii_uppercase());
        let has_error = replies.split(|byte| *byte == b'\n').any(is_error);
        match has_error {
            true => Err(format!("{lines:?}: {}", replies.escape_ascii())),
            false => Ok(()),
        }
    }

    /// Removes all garbage, and checks that none is left.
    fn collect(&self) -> Result<(), String> {
        self.shared.structures.garbage.want_pass();
        garbage::collect(&self.shared).map_err(text)?;
        match contents::garbage(&self.shared)? {
            0 => Ok(()),
            left => Err(format!("{left} structures are garbage after it was collected")),
        }
    }

    fn maintain(&self) {
        // Deadlines that have not passed ask for another step for ever.
        for _ in 0..50 {
            if self.engine.maintain().is_none_or(|pause| !pause.is_zero()) {
                return;
            }
        }
    }

    fn lose(&self, key: &str, tag: Option<u8>) -> Result<(), String> {
        let elements = self.shared.structures.elements().map_err(text)?;
        let stored = self.shared.store.get(key.as_bytes()).map_err(text)?.ok_or("no such key")?;
        let head = head_of(&stored).ok_or("no structure")?;
        let lost = match tag {
            None => head.owner(),
            Some(tag) => {
                let first = elements.store.scan(head.element(tag, &[])..).next();
                first.ok_or("no element")?.map_err(text)?.0
            }
        };
        elements.store.delete(&lost).map(drop).map_err(text)
    }

    fn head_first(&self) -> Result<(), String> {
        let elements = self.shared.structures.elements().map_err(text)?;
        let stored = self.shared.store.get(b"h").map_err(text)?.ok_or("no hash h")?;
        let mut head = head_of(&stored).ok_or("h is no structure")?;
        (head.count, head.version) = (head.count + 1, head.version + 1);
        self.shared.store.put(b"h", &head.encode()).map_err(text)?;
        elements.store.put(&head.element(b'f', b"late"), b"1").map(drop).map_err(text)
    }
}

pub struct Served<F> {
    open: RefCell<Option<Open>>,
    medium: Observed,
    sizes: Sizes,
    now: Arc<AtomicU64>,
    family: PhantomData<fn() -> F>,
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Replaces each `#` by a long value.
pub fn expanded(text: &str) -> String {
    text.replace('#', &"x".repeat(250))
}

/// The words of a line.
fn words(line: &str) -> Vec<Bytes> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(|word| Bytes::from(expanded(word)))),
            _ => words.push(Bytes::from(part.to_owned())),
        }
    }
    words
}

impl<F: Family> Served<F> {
    fn made(medium: Observed, sizes: Sizes, is_new: bool) -> Result<Self, bristlecone::Error> {
        let this = Self {
            open: RefCell::new(None),
            medium,
            sizes,
            now: Arc::new(AtomicU64::new(EARLY)),
            family: PhantomData,
        };
        this.open(is_new)?;
        Ok(this)
    }

    fn open(&self, is_new: bool) -> Result<(), bristlecone::Error> {
        use index::Create as _;
        let (form, medium) = (self.sizes.form(), self.medium.clone());
        let (index, found) = match is_new {
            true => (F::Bytes::<Observed>::create(medium, &form)?, Found::New),
            false => F::Bytes::<Observed>::open(medium, Path::new("memory"), &form)?,
        };
        let now = Arc::clone(&self.now);
        let clock = Clock::new(move || now.load(Ordering::Relaxed));
        let Sizes { about, capabilities, .. } = self.sizes;
        let engine = Engine::over(about, capabilities, Arc::new(index), found, clock)?;
        *self.open.borrow_mut() = Some(Open::new(engine));
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        *self.open.borrow_mut() = None;
        self.open(false).map_err(text)
    }

    fn with<T>(&self, work: impl FnOnce(&Open) -> Result<T, String>) -> Result<T, String> {
        work(self.open.borrow().as_ref().ok_or("it is closed")?)
    }
}

impl<F: Family> Subject for Served<F> {
    type Op = Op;
    type Config = Sizes;

    fn size(sizes: &Sizes) -> (u64, u64) {
        (0, 256 * sizes.geometry.chunk_bytes)
    }

    fn create(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        Self::made(medium, *sizes, true).map_err(text)
    }

    fn recover(medium: Observed, sizes: &Sizes) -> Result<Self, String> {
        if let Err(problem) = region::verify_image(&medium, sizes.geometry) {
            panic!("{problem}");
        }
        match Self::made(medium, *sizes, false) {
            // Even inside `create`, everything that a valid superblock references is complete.
            Err(bristlecone::Error::Pmem(error @ (Error::Foreign { .. } | Error::Superblock { .. }))) => {
                Err(text(error))
            }
            Err(error) => panic!("a whole superblock, and yet: {error}"),
            Ok(opened) => Ok(opened),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Run(commands) => self.with(|open| open.run(&commands.lines)),
            Op::Apart(commands) => self
                .with(|open| commands.lines.iter().try_for_each(|line| open.run(std::slice::from_ref(line)))),
            Op::HeadFirst => self.with(Open::head_first),
            Op::Lose(key, tag) => self.with(|open| open.lose(key, *tag)),
            Op::Collect => self.with(Open::collect),
            Op::Expire(now, _) => {
                self.now.store(*now, Ordering::Relaxed);
                self.with(|open| {
                    open.maintain();
                    Ok(())
                })?;
                self.now.store(EARLY, Ordering::Relaxed);
                self.with(|open| open.engine.sync().map_err(text))
            }
            Op::Evict(_) => self.with(|open| {
                let eviction = &open.shared.eviction;
                eviction.set_policy(Policy::VolatileTtl);
                eviction.set_limit_bytes(1);
                // Each call evicts a bounded number of keys.
                let evicted = (0..8).try_for_each(|_| eviction.evict_some(&open.shared));
                eviction.set_limit_bytes(0);
                evicted.map_err(text)
            }),
            Op::Maintain => self.with(|open| {
                open.maintain();
                Ok(())
            }),
            Op::Kill => self.reopen(),
            Op::Reopen => {
                self.with(|open| open.engine.close().map_err(text))?;
                self.reopen()
            }
        }
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op, Op::Expire(..) | Op::Evict(_))
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        let changes: &[Change] = match op {
            Op::Run(commands) | Op::Apart(commands) => &commands.changes,
            Op::Expire(_, changes) | Op::Evict(changes) => changes,
            Op::HeadFirst => &[("h".to_owned(), "hash late=1 v=1".to_owned())],
            Op::Lose(..) | Op::Collect | Op::Maintain | Op::Kill | Op::Reopen => &[],
        };
        for (key, text) in changes {
            match text.is_empty() {
                true => _ = model.remove(key.as_bytes()),
                false => _ = model.insert(key.clone().into_bytes(), text.clone().into_bytes()),
            }
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        region::verify_open(&self.medium)?;
        self.with(|open| {
            if let Some(problem) = open.engine.check().problems.first() {
                return Err(problem.clone());
            }
            contents::garbage(&open.shared)?;
            contents::read(open)
        })
    }

    /// Removes the first changed key, makes a structure of the same type in its place, and collects garbage. Elements that the crash has
    /// left would be seen.
    fn continuation(op: &Op) -> Vec<Op> {
        let is_key = |(key, _): &&Change| !key.starts_with(LIBRARY);
        let (key, is) = match op {
            Op::Run(commands) | Op::Apart(commands) => commands
                .changes
                .iter()
                .find(is_key)
                .map_or(("k", "H"), |(key, _)| (key.as_str(), commands.lines[0].as_str())),
            _ => ("h", "H"),
        };
        let key = key.split('/').next_back().unwrap_or(key);
        let (line, contents) = match is.as_bytes()[0] {
            b'L' | b'R' => (format!("RPUSH {key} n"), "list n"),
            b'S' if key.starts_with(contents::ANY) => (format!("SADD {key} n"), "set any"),
            b'S' => (format!("SADD {key} n"), "set n"),
            b'Z' => (format!("ZADD {key} 7 n"), "zset n:7"),
            b'X' => (format!("XADD {key} 9-9 n 7"), "stream 9-9[n 7] last 9-9"),
            _ => (format!("HSET {key} n 7"), "hash n=7"),
        };
        let commands = |line: String, contents: &str| {
            Op::Run(Commands { lines: vec![line], changes: vec![(key.to_owned(), contents.to_owned())] })
        };
        vec![commands(format!("DEL {key}"), ""), commands(line, contents), Op::Collect]
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.with(|open| open.engine.close().map_err(text))
    }
}
