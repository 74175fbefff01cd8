//! Terminal output that the programs `bristlecone` and `bristlecone-lab` share: standard output, JSON, progress bars, exit codes.
#![forbid(unsafe_code)]

use std::io::{self, BufWriter, Write};
use std::time::Duration;

pub use indicatif::ProgressBar;
use indicatif::ProgressStyle;

/// Exit code of wrong usage. The argument parser uses the same one.
pub const USAGE: u8 = 2;
/// Exit code of a key that was not found.
pub const NOT_FOUND: u8 = 3;
/// Exit code of damage that a check found.
pub const DAMAGED: u8 = 4;

/// A write to standard output failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output: {0}")]
pub struct WriteError(#[source] io::Error);

impl WriteError {
    /// True if the reader of the output closed its end, as `head` does. A program ends quietly then.
    pub fn is_closed_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Result of a write to standard output.
pub type Result<T> = std::result::Result<T, WriteError>;

/// Standard output, buffered. [`Output::end`] reports whether all of it was written.
#[derive(Debug)]
pub struct Output(BufWriter<io::StdoutLock<'static>>);

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Locks standard output.
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// `WriteError` with the error of the system.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(WriteError)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.write(text.as_bytes())?;
        self.write(b"\n")
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(value).map_err(|error| WriteError(error.into()))?;
        self.line(&line)
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn end(mut self) -> Result<()> {
        self.0.flush().map_err(WriteError)
    }
}

/// Prints a report as text, or as one line of JSON.
///
/// # Errors
/// As [`Output::write`].
pub fn show(report: impl serde::Serialize + std::fmt::Display, json: bool) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.json(&report)?;
    } else {
        output.line(&report.to_string())?;
    }
    output.end()
}

/// Returns a progress bar on standard error. It is invisible if standard error is no terminal. `total` is 0 while the total is unknown.
pub fn progress_bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Prints the error of a program to standard error. A failure to print is ignored: the exit code reports the error too.
pub fn report(program: &str, failure: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{program}: {failure}");
}

/// Formats a number with a separator for thousands; with decimals if it is small.
pub fn thousands(number: f64) -> String {
    if number < 100.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let lead = digits.len() % 3;
    let mut text = digits[..lead].to_owned();
    for (index, digit) in digits[lead..].chars().enumerate() {
        if index % 3 == 0 && !text.is_empty() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0.0, 7.0, 12.34, 999.6, 1_000.0, 123_456.0, 1_234_567.8].map(thousands);
        assert_eq!(shown, ["0", "7", "12.3", "1,000", "1,000", "123,456", "1,234,568"]);
    }
}
