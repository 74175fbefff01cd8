//! Runs this program again under Callgrind, a tool of Valgrind, which counts what a function executes.
//!
//! The counted function needs a name that Callgrind finds, so it must not be inlined. No closure inside it may be the work that is counted:
//! the name of a closure contains the name of its function, and Callgrind would stop counting there.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// Runs this program with `arguments` and counts inside the function whose name contains `function`. Callgrind writes its
/// report to `out`.
///
/// # Errors
/// `Valgrind` if it is missing or fails.
pub(crate) fn run(arguments: &[String], function: &str, options: &[String], out: &Path) -> Result<(), Error> {
    let own = std::env::current_exe().map_err(failed)?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(options)
        .arg(own)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = said.lines().rev().take(5).collect();
        return Err(failed(last.into_iter().rev().collect::<Vec<_>>().join("\n")));
    }
    Ok(())
}

/// The sums of a report by the names of their events.
///
/// # Errors
/// `Valgrind` if the report cannot be read or has no sums.
pub(crate) fn sums(report: &Path) -> Result<HashMap<String, u64>, Error> {
    let text = std::fs::read_to_string(report).map_err(failed)?;
    parse(&text).ok_or_else(|| failed(format!("Callgrind's report {} has no sums", report.display())))
}

fn failed(why: impl ToString) -> Error {
    Error::Valgrind(why.to_string())
}

/// Callgrind omits zeros at the end of a line.
fn parse(report: &str) -> Option<HashMap<String, u64>> {
    let words =
        |title| report.lines().find_map(|line: &str| line.strip_prefix(title)).map(str::split_whitespace);
    let sums = words("totals:")?.chain(std::iter::repeat("0"));
    words("events:")?.zip(sums).map(|(event, sum)| Some((event.to_owned(), sum.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_found_by_their_names() {
        let report = "version: 1\nevents: Ir Dr Dw D1mr\nfn=(1) x\n1 2 3\ntotals: 900 400 10\n";
        let sums = parse(report).unwrap();
        assert_eq!(["Ir", "Dr", "Dw", "D1mr"].map(|event| sums[event]), [900, 400, 10, 0]);
        assert_eq!(parse("events: Ir\n"), None);
        assert_eq!(parse("events: Ir\ntotals: many\n"), None);
    }
}
