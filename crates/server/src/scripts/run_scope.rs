//! The run of a script, for the functions of the server that the script calls.
//!
//! These functions are made once for each interpreter, because it takes long to make a function. So they cannot borrow from a run. They find
//! the run in a variable of their thread, which is set while the script runs.
#![allow(
    unsafe_code,
    reason = "the macro changes a lifetime, and sees to it that no reference outlives its run"
)]

use mlua::{Lua, Value};
use scoped_tls_hkt::scoped_thread_local;

use super::raised;

scoped_thread_local! {
    static CURRENT: for<'a> &'a (dyn RunFunctions + 'a)
}

/// The functions of the server that belong to a run.
pub(super) trait RunFunctions {
    /// Calls the function with this number.
    fn call(&self, lua: &Lua, number: usize, arguments: &[Value]) -> mlua::Result<Value>;
}

/// The error if there is no run, or if its function is running already.
pub(super) const NO_RUN: &str = "ERR redis.call/pcall can only be called inside a script invocation";

/// Calls `body`. Meanwhile the functions that it calls on this thread find `run`.
pub(super) fn during<R>(run: &dyn RunFunctions, body: impl FnOnce() -> R) -> R {
    CURRENT.set(run, body)
}

/// Calls a function of the run.
pub(super) fn call(lua: &Lua, number: usize, arguments: &[Value]) -> mlua::Result<Value> {
    if !CURRENT.is_set() {
        return Err(raised::reply(NO_RUN));
    }
    CURRENT.with(|run| run.call(lua, number, arguments))
}
