//! Libraries of functions (FUNCTION LOAD): their headers, the functions that they register, and the form in which FUNCTION DUMP returns them.
//!
//! The first line of a library is `#!lua name=mylib`. The rest is a script that runs once in each interpreter that needs the library, and
//! calls `redis.register_function`.
//!
//! A dump, with all numbers big-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `BRSTFUNC` |
//! | 1 | version: 1 |
//! | 4 | number of libraries |
//! | 4, … | of each library, in the order of the names: the length of its text, and the text |
//! | 20 | SHA-1 of all bytes before |

use std::sync::Arc;

use bytes::Bytes;
use mlua::{Function, Lua, MultiValue, Table, Value};
use sha1::{Digest as _, Sha1};

use super::raised;
use super::{Script, values};
use crate::command::CommandError;

const MAGIC: &[u8; 8] = b"BRSTFUNC";
const VERSION: u8 = 1;
/// Bytes of the checksum.
const CHECKSUM: usize = 20;

/// Flags of a function or of a script, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    const NAMES: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
    /// It does not write.
    pub const NO_WRITES: Self = Self(1);
    /// Its commands run although no memory is left.
    pub const ALLOW_OOM: Self = Self(1 << 1);

    /// Adds the flag of this name. False if there is none.
    pub fn add(&mut self, name: &[u8]) -> bool {
        let at = Self::NAMES.iter().position(|known| known.as_bytes() == name);
        self.0 |= at.map_or(0, |at| 1 << at);
        at.is_some()
    }

    /// True if it has this flag.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of its flags.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let all = Self::NAMES.into_iter().enumerate();
        all.filter(|(at, _)| self.0 & 1 << at != 0).map(|(_, name)| name).collect()
    }
}

fn text(text: &str) -> CommandError {
    CommandError::Text(format!("ERR {text}"))
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

const WRONG_NAME: &str =
    "can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// The name of a library in its first line, and the rest of its text. The end of the line stays, so that the numbers of the other lines are
/// right.
///
/// # Errors
/// The line is wrong.
pub fn header(library: &Bytes) -> Result<(String, Bytes), CommandError> {
    if !library.starts_with(b"#!") {
        return Err(text("Missing library metadata"));
    }
    let end = library.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| text("Invalid library metadata"))?;
    let line = String::from_utf8_lossy(&library[2..end]).into_owned();
    let engine = line.split_whitespace().next().filter(|_| !line.starts_with(char::is_whitespace));
    let engine = engine.unwrap_or_default();
    let mut name = None;
    for word in line[engine.len()..].split_whitespace() {
        match word.split_at_checked(5) {
            Some((key, value)) if key.eq_ignore_ascii_case("name=") => {
                if name.replace(value).is_some() {
                    return Err(text("Invalid metadata value, name argument was given multiple times"));
                }
            }
            _ => return Err(text(&format!("Invalid metadata value given: {word}"))),
        }
    }
    let name = name.ok_or_else(|| text("Library name was not given"))?;
    if !is_name(name.as_bytes()) {
        return Err(text(&format!("Library names {WRONG_NAME}")));
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(text(&format!("Engine '{engine}' not found")));
    }
    Ok((name.to_owned(), library.slice(end..)))
}

/// A function that a library has registered in an interpreter.
#[derive(Debug)]
pub(super) struct Registered {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: ScriptFlags,
    pub callback: Function,
}

/// The arguments of `redis.register_function`.
fn registered(arguments: &[Value]) -> mlua::Result<Registered> {
    let wrong = |why: &str| raised::reply(format!("ERR {why}"));
    let (mut name, mut description, mut callback, mut flags) = (None, None, None, ScriptFlags::default());
    match arguments {
        [Value::Table(named)] => {
            for pair in named.pairs::<Value, Value>() {
                let (key, value) = pair?;
                let key = values::text(&key).ok_or_else(|| {
                    wrong("named argument key given to redis.register_function is not a string")
                })?;
                let text = || {
                    let key = String::from_utf8_lossy(&key);
                    values::text(&value).ok_or_else(|| {
                        wrong(&format!("{key} argument given to redis.register_function must be a string"))
                    })
                };
                match (&key[..], &value) {
                    (b"function_name", _) => name = Some(text()?),
                    (b"description", _) => description = Some(text()?),
                    (b"callback", Value::Function(function)) => callback = Some(function.clone()),
                    (b"callback", _) => {
                        return Err(wrong(
                            "callback argument given to redis.register_function must be a function",
                        ));
                    }
                    (b"flags", Value::Table(names)) => flags = read_flags(names)?,
                    (b"flags", _) => {
                        return Err(wrong(
                            "flags argument to redis.register_function must be a table representing function flags",
                        ));
                    }
                    _ => return Err(wrong("unknown argument given to redis.register_function")),
                }
            }
        }
        [_] => {
            return Err(wrong(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
            ));
        }
        [first, second] => {
            let given = values::text(first);
            name = Some(
                given.ok_or_else(|| wrong("first argument to redis.register_function must be a string"))?,
            );
            let Value::Function(function) = second else {
                return Err(wrong("second argument to redis.register_function must be a function"));
            };
            callback = Some(function.clone());
        }
        _ => return Err(wrong("wrong number of arguments to redis.register_function")),
    }
    let name = name.ok_or_else(|| wrong("redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| wrong("redis.register_function must get a callback argument"))?;
    if !is_name(&name) {
        // As in Redis, the text is that for a library.
        return Err(wrong(&format!("Library names {WRONG_NAME}")));
    }
    Ok(Registered { name: String::from_utf8_lossy(&name).into_owned(), description, flags, callback })
}

fn read_flags(names: &Table) -> mlua::Result<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for name in names.sequence_values::<Value>() {
        let is_known = values::text(&name?).is_some_and(|name| flags.add(&name));
        if !is_known {
            return Err(raised::reply("ERR unknown flag given"));
        }
    }
    Ok(flags)
}

/// A function of a library.
#[derive(Debug)]
pub struct Declared {
    /// How to run it.
    pub script: Arc<Script>,
    /// Its description.
    pub description: Option<Vec<u8>>,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its text, with the first line.
    pub code: Bytes,
    /// Its functions, by name.
    pub functions: Vec<Declared>,
}

impl Library {
    /// A library with this text, which has registered these functions.
    pub(super) fn new(
        name: String,
        code: Bytes,
        (digest, body): (&str, &Bytes),
        registered: Vec<Registered>,
    ) -> Self {
        let declare = |one: Registered| Declared {
            script: Arc::new(Script::function(one.name, body.clone(), digest.to_owned(), one.flags)),
            description: one.description,
        };
        let mut functions: Vec<_> = registered.into_iter().map(declare).collect();
        functions.sort_by(|one, other| one.script.name.cmp(&other.script.name));
        Self { name, code, functions }
    }
}

/// The payload of FUNCTION DUMP.
#[must_use]
pub fn dump<'l>(libraries: impl ExactSizeIterator<Item = &'l Bytes>) -> Vec<u8> {
    let mut payload = [&MAGIC[..], &[VERSION]].concat();
    // Lengths are less than 2^32, because a value has at most 256 MiB and there are at most as many libraries as keys fit in memory.
    payload.extend_from_slice(&(libraries.len() as u32).to_be_bytes());
    for code in libraries {
        payload.extend_from_slice(&(code.len() as u32).to_be_bytes());
        payload.extend_from_slice(code);
    }
    let checksum = Sha1::digest(&payload);
    payload.extend_from_slice(&checksum);
    payload
}

/// The texts of the libraries in a payload. `None` if it is none of this version, or damaged.
#[must_use]
pub fn restore(payload: &[u8]) -> Option<Vec<Bytes>> {
    let (payload, checksum) = payload.split_at_checked(payload.len().checked_sub(CHECKSUM)?)?;
    if Sha1::digest(payload)[..] != *checksum {
        return None;
    }
    let rest = payload.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut libraries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (code, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        libraries.push(Bytes::copy_from_slice(code));
        rest = after;
    }
    rest.is_empty().then_some(libraries)
}

/// `redis.register_function` for an interpreter. `add` gets each function.
pub(super) fn register_function(
    lua: &Lua,
    add: impl Fn(Registered) -> Result<(), &'static str> + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |_, arguments: MultiValue| {
        let one = registered(&arguments.into_vec())?;
        add(one).map_err(|why| raised::reply(format!("ERR {why}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_restored_and_a_changed_one_is_refused() {
        let libraries = [Bytes::from_static(b"#!lua name=a\n"), Bytes::new(), Bytes::from_static(b"c")];
        let payload = dump(libraries.iter());
        assert_eq!(restore(&payload).unwrap(), libraries);
        assert_eq!(restore(&dump([].iter())).unwrap(), Vec::<Bytes>::new());
        for at in 0..payload.len() {
            let mut other = payload.clone();
            other[at] ^= 1;
            assert!(restore(&other).is_none(), "byte {at}");
            assert!(restore(&payload[..at]).is_none(), "{at} bytes");
        }
        // A right checksum over wrong lengths.
        let changes: [fn(&mut Vec<u8>); 3] =
            [|body| body[12] += 1, |body| body.push(0), |body| body[16] = 200];
        for change in changes {
            let mut body = payload[..payload.len() - CHECKSUM].to_vec();
            change(&mut body);
            let checksum = Sha1::digest(&body);
            body.extend_from_slice(&checksum);
            assert!(restore(&body).is_none());
        }
    }

    #[test]
    fn headers_are_read_as_by_redis() {
        let read = |text: &'static str| {
            header(&Bytes::from_static(text.as_bytes()))
                .map(|(name, body)| (name, String::from_utf8(body.to_vec()).unwrap()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(read("#!LUA NAME=lib_1\nreturn"), Ok(("lib_1".to_owned(), "\nreturn".to_owned())));
        for (text, error) in [
            ("return 1", "ERR Missing library metadata"),
            ("#!lua name=a", "ERR Invalid library metadata"),
            ("#!lua\n", "ERR Library name was not given"),
            ("#!\n", "ERR Library name was not given"),
            ("#!js name=a\n", "ERR Engine 'js' not found"),
            ("#!lua name=a é\n", "ERR Invalid metadata value given: é"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
    }
}
