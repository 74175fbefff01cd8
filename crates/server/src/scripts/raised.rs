//! Errors that functions of the server raise in a script.
//!
//! Lua sees such an error as a value without a text. The prelude turns it into a text, or into a table like that of an error reply, before the
//! script gets it ([`told`]).

use std::fmt;

use mlua::{Function, Lua, MultiValue, Value};

/// The name of the prelude.
pub(super) const PRELUDE: &str = "@prelude";
/// Maximum number of callers that are looked through for the place of an error.
const CALLERS: usize = 32;

/// An error of a function of the server.
#[derive(Debug)]
pub(super) struct Raised {
    text: String,
    /// True if the script gets it as a table with the field `err`, like the error reply of a command.
    is_reply: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// An error like the error reply of a command. `text` starts with the error code.
pub(super) fn reply(text: impl Into<String>) -> mlua::Error {
    mlua::Error::external(Raised { text: text.into(), is_reply: true })
}

/// The results of a library's function, or the text of an error.
pub(super) type Answer = Result<Vec<Value>, String>;

/// A function of a library. Its errors begin with the place of the call.
pub(super) fn function(
    lua: &Lua,
    answer: impl Fn(&Lua, &[Value]) -> Answer + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, arguments: MultiValue| {
        let answer = answer(lua, &arguments.into_vec());
        answer.map(MultiValue::from_vec).map_err(|text| {
            let text = match place(lua) {
                (Some(source), Some(line)) => format!("{}:{line}: {text}", source.trim_start_matches('@')),
                _ => text,
            };
            mlua::Error::external(Raised { text, is_reply: false })
        })
    })
}

/// Source and line of the innermost function of a script that is running.
pub(super) fn place(lua: &Lua) -> (Option<String>, Option<usize>) {
    for level in 1..CALLERS {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.as_ref().map(|name| name.to_string());
            (source.what == "C" || name.as_deref() == Some(PRELUDE), name, debug.current_line())
        });
        match found {
            Some((true, ..)) => {}
            Some((false, name, line)) => return (name, line),
            None => break,
        }
    }
    (None, None)
}

/// The text of an error that Lua has as a value without one, and true if it is like an error reply.
pub(super) fn told(error: &Value) -> (Option<String>, bool) {
    let Value::Error(error) = error else { return (None, false) };
    let mut error = &**error;
    loop {
        match error {
            mlua::Error::CallbackError { cause, .. } => error = cause,
            mlua::Error::ExternalError(raised) => {
                return match raised.downcast_ref::<Raised>() {
                    Some(raised) => (Some(raised.text.clone()), raised.is_reply),
                    None => (Some(raised.to_string()), false),
                };
            }
            mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => {
                return (Some(text.clone()), false);
            }
            other => return (other.to_string().lines().next().map(str::to_owned), false),
        }
    }
}
