//! Output and exit code of a program.

use std::process::Output;

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output of a command that must succeed.
pub fn succeed(output: &Output) -> String {
    assert_eq!(code(output), 0, "{output:?}");
    stdout(output)
}
