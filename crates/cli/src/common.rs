//! What the commands share: the directory, the output, keys as bytes.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use bristlecone::{Options, Store};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, Result};

/// Options of every command.
#[derive(clap::Args)]
pub struct Common {
    /// Directory of the store.
    #[arg(long, value_name = "DIR", default_value = "./bristlecone-data")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Opens the store, and makes it if there is none.
    pub fn open_or_create(&self) -> Result<Store> {
        Ok(Store::open(&self.dir, Options::default())?)
    }

    /// Opens the store; an error if there is none.
    pub fn open(&self) -> Result<Store> {
        Ok(Store::open(&self.dir, Options { create: false, ..Options::default() })?)
    }
}

/// Options of the commands that only look.
#[derive(clap::Args)]
pub struct Reading {
    #[command(flatten)]
    pub common: Common,
    /// Change nothing of the store's files, not even to recover them. Several may read so at once; a store with a journal can be
    /// read beside the server that has it open, as of one moment (from a copy in memory).
    #[arg(long)]
    pub read_only: bool,
}

impl Reading {
    /// Opens the store; an error if there is none.
    pub fn open(&self) -> Result<Store> {
        let options = Options { create: false, read_only: self.read_only, ..Options::default() };
        Ok(Store::open(&self.common.dir, options)?)
    }
}

/// A progress bar on the error output, if that is a terminal. `total` is 0 as long as it is not known.
pub fn progress_bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Runs an experiment beside a spinner that says what is going on.
pub fn with_spinner<T>(run: impl FnOnce(&dyn Fn(&str)) -> std::result::Result<T, ::lab::Error>) -> Result<T> {
    let spinner = progress_bar(0, "{spinner} {msg}");
    let report = run(&|what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    Ok(report?)
}

/// Prints a report.
pub fn show(report: impl serde::Serialize + std::fmt::Display, json: bool) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.json(&report)?;
    } else {
        output.line(&report.to_string())?;
    }
    output.end()
}

/// A key or value from the command line, whatever its bytes.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// The standard output; [`Output::end`] tells whether all of it arrived.
pub struct Output(BufWriter<io::StdoutLock<'static>>);

impl Output {
    /// The output.
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(Failure::Output)
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.write(text.as_bytes())?;
        self.write(b"\n")
    }

    /// Writes a value as one line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let line = serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?;
        self.line(&line)
    }

    /// Sends what is left.
    pub fn end(mut self) -> Result<()> {
        self.0.flush().map_err(Failure::Output)
    }
}
