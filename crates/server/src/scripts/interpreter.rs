//! An interpreter of Lua 5.1 with the functions that scripts may call.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use bristlecone::Transaction;
use bytes::Bytes;
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use rustc_hash::FxHashMap;

use super::libraries::{Registered, register_function};
use super::raised::{self, PRELUDE, place, told};
use super::run_scope::{self, NO_RUN, RunFunctions};
use super::values;
use super::{Control, MEMORY_KEPT, MEMORY_MAX, Script, Stop, bits, json, packed, sha1_hex, structs};
use crate::command::connection::REDIS_VERSION;
use crate::command::transactions::run_inside;
use crate::command::{CommandError, Flags, arity_fits};
use crate::eviction::cost;
use crate::resp::{Protocol, Reply};
use crate::session::SessionState;
use crate::shared::{Shared, lock};

/// The name of a script in messages.
const NAME: &str = "@user_script";
/// The name of a library in messages.
const LIBRARY_NAME: &str = "@user_function";
/// Number of instructions between two checks whether the script has to stop.
const INSTRUCTIONS: u32 = 10_000;
/// Maximum bytes of memory that a key or an argument takes besides its own.
const ARGUMENT_BYTES: usize = 64;
/// Maximum bytes of memory for each byte of a reply. A status of five bytes becomes a table with a string.
const BYTES_OF_REPLY: usize = 64;
/// Maximum number of compiled scripts of an interpreter.
const COMPILED_MAX: usize = 1000;

/// The functions of `redis` that use the [`Host`] of a run.
const OF_RUN: [&str; 4] = ["call", "pcall", "setresp", "acl_check_cmd"];

/// A run of a script: the server, and the protocol of the replies that the script gets. The connection keeps its own protocol.
struct Run<'h, 'a, 'r>(RefCell<(&'h mut Host<'a, 'r>, Protocol)>);

impl RunFunctions for Run<'_, '_, '_> {
    fn call(&self, lua: &Lua, number: usize, arguments: &[Value]) -> mlua::Result<Value> {
        let mut own = self.0.try_borrow_mut().map_err(|_| raised::reply(NO_RUN))?;
        let (host, protocol) = &mut *own;
        match OF_RUN.get(number) {
            Some(&"call") => {
                let reply = host.call(arguments, *protocol);
                match values::error_text(&reply) {
                    Some(text) => Err(raised::reply(text)),
                    None => value_of(lua, &reply),
                }
            }
            Some(&"pcall") => value_of(lua, &host.call(arguments, *protocol)),
            Some(&"setresp") => {
                *protocol = chosen_protocol(arguments)?;
                Ok(Value::Nil)
            }
            _ => host.is_allowed(arguments).map(Value::Boolean),
        }
    }
}

/// What a script may use of the server during a run.
pub struct Host<'a, 'r> {
    /// The server.
    pub shared: &'a Shared,
    /// The connection.
    pub session: &'a mut SessionState,
    /// The transaction of the run.
    pub transaction: &'a mut Transaction<bristlecone::Bytes>,
    /// The reply of the script.
    pub reply: &'a mut Reply<'r>,
    /// True if the script may not write.
    pub is_read_only: bool,
    /// True if its commands run although no memory is left.
    pub allows_oom: bool,
    /// The command that runs the script.
    pub command: &'a [Bytes],
}

/// An interpreter.
#[derive(Debug)]
pub(super) struct Interpreter {
    lua: Lua,
    /// The results of the prelude: a function that runs a script, one that runs a function of a library, and one that loads a library.
    run: Function,
    call: Function,
    load: Function,
    compiled: FxHashMap<String, Function>,
    /// The functions of the libraries that were loaded, by the digest of the library and by name.
    libraries: FxHashMap<String, FxHashMap<String, Function>>,
    /// The functions of the library that is being loaded.
    registered: Arc<Mutex<Option<Vec<Registered>>>>,
    pub(super) control: Arc<Control>,
    pub(super) version: u64,
    is_broken: bool,
}

/// Makes values of at most `bytes` bytes. While there is space for them, it lifts the limit of the interpreter's memory: with a limit, each
/// new value costs a protected call.
fn within_limit<R>(lua: &Lua, bytes: usize, make: impl FnOnce() -> mlua::Result<R>) -> mlua::Result<R> {
    if lua.used_memory().saturating_add(bytes) > MEMORY_MAX {
        return make();
    }
    lua.set_memory_limit(0)?;
    let made = make();
    lua.set_memory_limit(MEMORY_MAX)?;
    made
}

/// The reply of a command as a value.
fn value_of(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    within_limit(lua, reply.len() * BYTES_OF_REPLY, || values::read(lua, reply))
}

/// An error that the interpreter itself has no name for.
fn broken(error: &mlua::Error) -> CommandError {
    CommandError::Text(format!("ERR the script cannot run: {}", one_line(&error.to_string())))
}

/// The first line of a message: traces of the stack follow.
fn one_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

impl Interpreter {
    pub(super) fn new(version: u64) -> Result<Self, CommandError> {
        Self::made(version).map_err(|error| broken(&error))
    }

    fn made(version: u64) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let control = Arc::new(Control::new());
        let host = lua.create_table()?;
        let number =
            REDIS_VERSION.split('.').fold(0, |all, part| all << 8 | part.parse::<u32>().unwrap_or(0));
        host.set("of_run", of_run(&lua, &control)?)?;
        host.set("version", REDIS_VERSION)?;
        host.set("version_number", number)?;
        host.set("bit", bits::library(&lua)?)?;
        host.set("cjson", json::library(&lua)?)?;
        host.set("cmsgpack", packed::library(&lua)?)?;
        host.set("struct", structs::library(&lua)?)?;
        host.set(
            "sha1hex",
            lua.create_function(|lua, arguments: MultiValue| sha1hex(lua, &arguments.into_vec()))?,
        )?;
        host.set("log", lua.create_function(|_, arguments: MultiValue| log(&arguments.into_vec()))?)?;
        host.set("told", lua.create_function(|_, error: Value| Ok(told(&error)))?)?;
        host.set("place", lua.create_function(|lua, ()| Ok(place(lua)))?)?;
        let stops = Arc::clone(&control);
        host.set("is_stopped", lua.create_function(move |_, ()| Ok(stops.stop().is_some()))?)?;
        let registered = Arc::new(Mutex::new(None::<Vec<Registered>>));
        let registers = Arc::clone(&registered);
        host.set("register_function", register_function(&lua, move |one| add(&registers, one))?)?;
        let (run, call, load) = lua.load(include_str!("prelude.lua")).set_name(PRELUDE).call(&host)?;
        let stops = Arc::clone(&control);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            stopped(&stops).map(|()| VmState::Continue)
        })?;
        let (compiled, libraries) = Default::default();
        Ok(Self { lua, run, call, load, compiled, libraries, registered, control, version, is_broken: false })
    }

    /// Bytes of its memory.
    pub(super) fn memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// False if it may be in any state, or if the last script has left much memory.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken && self.memory() < MEMORY_KEPT
    }

    /// Compiles a text.
    fn chunk(&self, code: &[u8], name: &str, what: &str) -> Result<Function, CommandError> {
        let chunk = self.lua.load(code).set_name(name).set_mode(ChunkMode::Text);
        chunk.into_function().map_err(|error| {
            let text = match &error {
                mlua::Error::SyntaxError { message, .. } => message.clone(),
                other => other.to_string(),
            };
            CommandError::Text(format!("ERR Error compiling {what}: {}", one_line(&text)))
        })
    }

    /// Runs the code of a library. Returns the functions that it has registered.
    ///
    /// # Errors
    /// It does not compile, fails, or takes too long.
    pub(super) fn load(&mut self, digest: &str, code: &[u8]) -> Result<Vec<Registered>, CommandError> {
        let library = self.chunk(code, LIBRARY_NAME, "function")?;
        let wrong = |why: &str| CommandError::Text(format!("ERR Error registering functions: {why}"));
        *lock(&self.registered) = Some(Vec::new());
        let result = self.load.call::<(bool, Value)>(library);
        let registered = lock(&self.registered).take().unwrap_or_default();
        if self.control.stop().is_some() {
            self.is_broken = true;
            return Err(wrong("ERR FUNCTION LOAD timeout"));
        }
        match result {
            Ok((true, _)) => {
                let functions = registered.iter().map(|one| (one.name.clone(), one.callback.clone()));
                self.libraries.insert(digest.to_owned(), functions.collect());
                Ok(registered)
            }
            Ok((false, Value::Table(error))) => Err(wrong(&error_field(&error))),
            Ok((false, error)) => {
                self.is_broken = true;
                Err(wrong(one_line(&error.to_string().unwrap_or_default())))
            }
            Err(error) => {
                self.is_broken = true;
                Err(broken(&error))
            }
        }
    }

    /// The function of a script, or of a library, which is loaded if necessary.
    fn function_of(&mut self, script: &Script) -> Result<Function, CommandError> {
        let Some(digest) = &script.library else { return self.compile(script) };
        if !self.libraries.contains_key(digest) {
            self.load(digest, &script.code)?;
        }
        let found = self.libraries.get(digest).and_then(|functions| functions.get(&script.name));
        // A library may register other functions in another run.
        found.cloned().ok_or_else(|| CommandError::Text("ERR Function not found".to_owned()))
    }

    /// The function of a script.
    pub(super) fn compile(&mut self, script: &Script) -> Result<Function, CommandError> {
        if let Some(function) = self.compiled.get(&script.name) {
            return Ok(function.clone());
        }
        let function = self.chunk(&script.code, NAME, "script (new function)")?;
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.name.clone(), function.clone());
        Ok(function)
    }

    /// Runs a script and writes its reply, which may be an error of the script.
    ///
    /// # Errors
    /// The script was stopped, or the interpreter fails. Then nothing that the script wrote may take effect.
    pub(super) fn run(
        &mut self,
        script: &Script,
        keys: &[Bytes],
        arguments: &[Bytes],
        host: &mut Host<'_, '_>,
    ) -> Result<(), CommandError> {
        let function = self.function_of(script)?;
        let run = if script.library.is_some() { &self.call } else { &self.run };
        let own = Run(RefCell::new((host, Protocol::Resp2)));
        let table = |all: &[Bytes]| {
            let bytes = all.iter().map(|one| one.len() + ARGUMENT_BYTES).sum();
            within_limit(&self.lua, bytes, || {
                let strings = all.iter().map(|one| self.lua.create_string(one));
                self.lua.create_sequence_from(strings.collect::<mlua::Result<Vec<_>>>()?)
            })
        };
        let result = run_scope::during(&own, || {
            run.call::<(bool, Value)>((function, table(keys)?, table(arguments)?))
        });
        let (host, protocol) = own.0.into_inner();
        if let Some(stop) = self.control.stop() {
            // The error was caught, or has any text.
            self.is_broken = true;
            return Err(CommandError::Text(match stop {
                Stop::Killed => {
                    let by = if script.library.is_some() { "FUNCTION" } else { "SCRIPT" };
                    format!("ERR Error running script: it was stopped by {by} KILL and has changed nothing")
                }
                Stop::Time => "ERR Error running script: it took longer than lua-time-limit and was \
                               stopped; it has changed nothing. Shorten it, or raise the limit with CONFIG SET"
                    .to_owned(),
            }));
        }
        let text = match result {
            Ok((true, result)) => match values::write(&result, host.reply, protocol) {
                Ok(()) => return Ok(()),
                Err(values::Unwritable::Reply(error)) => CommandError::from(error).to_string(),
                Err(values::Unwritable::Deep) => "ERR reached lua stack limit".to_owned(),
            },
            Ok((false, Value::Table(error))) => explained(&error, &script.name),
            // Lua itself ran out of memory or of stack, so no table was made.
            Ok((false, error)) => {
                self.is_broken = true;
                let text = error.to_string().unwrap_or_default();
                let text = format!("ERR Error running script: {}; it has changed nothing", one_line(&text));
                return Err(CommandError::Text(text));
            }
            Err(error) => {
                self.is_broken = true;
                return Err(broken(&error));
            }
        };
        // As in Redis, what the script wrote before the error takes effect.
        host.session.errors += 1;
        host.reply.restart();
        host.reply.error(&text);
        Ok(())
    }
}

/// A text of an error.
fn text_field(error: &Table, name: &str) -> Option<String> {
    let text = error.raw_get::<Option<mlua::LuaString>>(name).ok().flatten();
    text.map(|text| text.to_string_lossy())
}

/// The first line of an error's message.
fn error_field(error: &Table) -> String {
    one_line(&text_field(error, "err").unwrap_or_default()).to_owned()
}

/// The message of an error of a script or function with this name.
fn explained(error: &Table, name: &str) -> String {
    let (text, source) = (error_field(error), text_field(error, "source"));
    let line = error.raw_get::<Option<i64>>("line").ok().flatten();
    match (source, line) {
        (Some(source), Some(line)) => format!("{text} script: {name}, on {source}:{line}."),
        _ => format!("{text} script: {name}."),
    }
}

/// An error if the script has to stop.
fn stopped(control: &Control) -> mlua::Result<()> {
    match control.stop() {
        Some(_) => Err(mlua::Error::runtime("the script was stopped")),
        None => Ok(()),
    }
}

/// The functions of [`OF_RUN`].
fn of_run(lua: &Lua, control: &Arc<Control>) -> mlua::Result<Table> {
    let all = lua.create_table()?;
    for (number, name) in OF_RUN.into_iter().enumerate() {
        let stops = Arc::clone(control);
        // A function of Lua in its place would hide a caller that returns its result: such a call is a tail call.
        let function = lua.create_function(move |lua, arguments: MultiValue| {
            // A command may take as long as very many instructions.
            stopped(&stops)?;
            run_scope::call(lua, number, &arguments.into_vec())
        })?;
        all.set(name, function)?;
    }
    Ok(all)
}

/// Adds a function to those of the library that is being loaded.
fn add(registered: &Mutex<Option<Vec<Registered>>>, one: Registered) -> Result<(), &'static str> {
    let mut registered = lock(registered);
    let all =
        registered.as_mut().ok_or("redis.register_function can only be called on FUNCTION LOAD command")?;
    if all.iter().any(|other| other.name.eq_ignore_ascii_case(&one.name)) {
        return Err("Function already exists in the library");
    }
    all.push(one);
    Ok(())
}

/// `redis.sha1hex`.
fn sha1hex(lua: &Lua, arguments: &[Value]) -> mlua::Result<Value> {
    let [text] = arguments else { return Err(raised::reply("ERR wrong number of arguments")) };
    let text = values::text(text).unwrap_or_default();
    lua.create_string(sha1_hex(&text)).map(Value::String)
}

/// `redis.log`.
fn log(arguments: &[Value]) -> mlua::Result<()> {
    let (level, parts) = match arguments {
        [level, parts @ ..] if !parts.is_empty() => (level, parts),
        _ => return Err(raised::reply("ERR redis.log() requires two arguments or more.")),
    };
    let Some(level) = level.as_i64() else {
        return Err(raised::reply("ERR First argument must be a number (log level)."));
    };
    let parts = parts.iter().filter_map(values::text);
    let parts: Vec<_> = parts.map(|part| String::from_utf8_lossy(&part).into_owned()).collect();
    let text = parts.join(" ");
    match level {
        0 | 1 => tracing::debug!(script = text),
        2 => tracing::info!(script = text),
        3 => tracing::warn!(script = text),
        _ => return Err(raised::reply("ERR Invalid log level.")),
    }
    Ok(())
}

/// The argument of `redis.setresp`.
fn chosen_protocol(arguments: &[Value]) -> mlua::Result<Protocol> {
    let [number] = arguments else {
        return Err(raised::reply("ERR redis.setresp() requires one argument."));
    };
    let number = number.as_i64().and_then(|number| u8::try_from(number).ok());
    number.and_then(Protocol::numbered).ok_or_else(|| raised::reply("ERR RESP version must be 2 or 3."))
}

const NO_ARGUMENT: &str = "ERR Please specify at least one argument for this redis lib call";

impl Host<'_, '_> {
    /// Runs a command of a script. Returns its reply, which may be an error.
    fn call(&mut self, arguments: &[Value], protocol: Protocol) -> Vec<u8> {
        let mut output = Vec::new();
        let room = self.shared.reply_bytes_max(&self.session.client);
        let mut reply = Reply::new(&mut output, protocol, room);
        let refused = match values::texts(arguments) {
            Some(arguments) if arguments.is_empty() => NO_ARGUMENT.to_owned(),
            Some(arguments) => match self.refusal(&arguments) {
                None => {
                    self.shared.show_command_of_script(self.session.db, &arguments);
                    run_inside(self.session, self.shared, self.transaction, &arguments, reply);
                    return output;
                }
                Some(refused) => refused,
            },
            None => "ERR Lua redis lib command arguments must be strings or integers".to_owned(),
        };
        self.session.errors += 1;
        reply.error(&refused);
        output
    }

    /// `redis.acl_check_cmd`: true if the user of the connection may run this command.
    fn is_allowed(&self, arguments: &[Value]) -> mlua::Result<bool> {
        let arguments = values::texts(arguments).filter(|arguments| !arguments.is_empty());
        let arguments = arguments.ok_or_else(|| raised::reply(NO_ARGUMENT))?;
        let command = self.shared.find(&arguments[0]);
        let command =
            command.ok_or_else(|| raised::reply("ERR Invalid command passed to redis.acl_check_cmd()"))?;
        let user = self.session.user.as_ref();
        Ok(user.is_none_or(|user| user.check(command, &arguments).is_ok()))
    }

    /// The reason why a script may not run this command.
    fn refusal(&self, arguments: &[Bytes]) -> Option<String> {
        let Some(command) = self.shared.find(&arguments[0]) else {
            return Some("ERR Unknown Redis command called from script".to_owned());
        };
        if !arity_fits(command.arity, arguments.len()) {
            return Some("ERR Wrong number of args calling Redis command from script".to_owned());
        }
        let barred = [Flags::ALONE, Flags::AT_ONCE, Flags::BLOCKS, Flags::ADMIN, Flags::NOSCRIPT];
        if barred.iter().any(|flag| command.flags.has(*flag)) {
            return Some("ERR This Redis command is not allowed from script".to_owned());
        }
        if self.is_read_only && command.flags.has(Flags::WRITE) {
            return Some("ERR Write commands are not allowed from read-only scripts.".to_owned());
        }
        // The command itself has no space made for it, because it is in a transaction.
        let is_limited = !self.allows_oom && self.shared.eviction.limit_bytes() > 0;
        let cost = cost(command, arguments).filter(|_| is_limited)?;
        self.shared.eviction.admit(self.shared, cost).err().map(|refused| refused.to_string())
    }
}
