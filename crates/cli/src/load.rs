//! `load`: fills a store from a file.
//!
//! The pairs become durable in groups. If the store fails, the command ends, and the durable pairs stay. An input line
//! that is wrong or whose pair is too large also ends the command. Then the command removes the store if it made the
//! store itself. In a store that existed before, the pairs of the earlier lines stay.

mod csv;
mod jsonl;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bristlecone::store_dir::StoreDir;
use bristlecone::{Change, ErrorKind, KEY_BYTES_MAX, Options, Store, VALUE_BYTES_MAX, WriteOptions};
use serde_json::json;
use terminal::ProgressBar;

use terminal::{Output, progress_bar};

use crate::common::{Common, Table, Writing};
use crate::failure::{Failure, Result};
use crate::input::Lines;
use crate::new_store::NewStore;

const EXAMPLES: &str = "\
Formats (gzip is recognised in each):
  tsv   key, tab, value: the rest of the line; a line without a tab is a key with an empty value
  csv   the first column is the key, the other columns as they are written are the value; with --header the first line
        names the columns, and --key-column and --value-column choose among them
  fimi  a transaction of item numbers on each line: key t:<line, 8 digits>:<item, 6 digits> for each item, and the number
        of transactions with an item under i:<item, 6 digits>
  jsonl the lines of `bristlecone scan --json`: an object with `key` or `key_base64`, and `value` or `value_base64`. This
        format keeps every byte. The lines of `scan` without --json are not loaded back: they are escaped for reading

Examples:
  bristlecone load pairs.tsv.gz --format tsv --dir data
  bristlecone load pairs.tsv --format tsv --dir large --engine bwtree --durability power
  bristlecone load people.csv --format csv --header --key-column id --value-column name
  zcat retail.dat.gz | bristlecone load - --format fimi
  bristlecone scan --dir data --json | bristlecone load - --format jsonl --dir copy";

/// Arguments of `load`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Input file; `-` for standard input.
    file: PathBuf,
    /// Format of the file.
    #[arg(long, value_enum)]
    format: Format,
    /// The first line of a CSV file names its columns.
    #[arg(long)]
    header: bool,
    /// Column of the keys [default: the first].
    #[arg(long, value_name = "NAME", requires = "header")]
    key_column: Option<String>,
    /// Column of the values [default: all other columns].
    #[arg(long, value_name = "NAME", requires = "header")]
    value_column: Option<String>,
    #[command(flatten)]
    new: NewStore,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    table: Table,
    #[command(flatten)]
    common: Common,
}

/// Format of an input file.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Key, tab, value.
    Tsv,
    /// Comma-separated columns.
    Csv,
    /// Transactions of item numbers.
    Fimi,
    /// Lines of `scan --json`.
    Jsonl,
}

impl Format {
    /// Maximum bytes of a line. A key and a value of maximum size fit.
    fn line_bytes_max(self) -> u64 {
        let pair = (KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64;
        match self {
            // JSON writes some bytes with six characters.
            Format::Jsonl => 6 * pair + 1024,
            // The quotes of CSV are not counted.
            Format::Tsv | Format::Csv | Format::Fimi => 300 << 20,
        }
    }
}

/// The reason why a line cannot be loaded.
pub enum Bad {
    /// The line is wrong.
    Line(String),
    /// The store failed.
    Store(bristlecone::Error),
}

impl From<String> for Bad {
    fn from(why: String) -> Self {
        Bad::Line(why)
    }
}

impl From<bristlecone::Error> for Bad {
    fn from(error: bristlecone::Error) -> Self {
        match error.kind() {
            ErrorKind::TooLarge | ErrorKind::Invalid => Bad::Line(error.to_string()),
            _ => Bad::Store(error),
        }
    }
}

type Step<T> = std::result::Result<T, Bad>;

/// Loaded pairs become durable at the latest when the store is closed at the end.
const UNSYNCED: WriteOptions = WriteOptions { sync: false };

/// Stores pairs and counts them.
pub struct Loader {
    store: Store,
    /// Number of pairs stored. A key that occurs several times in the input counts each time.
    pairs: u64,
    bytes: u64,
}

impl Loader {
    /// Stores a pair; true if the key was new.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Step<bool> {
        let replaced = self.store.put(key, value)?;
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(!replaced)
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.header && arguments.format != Format::Csv {
        return Err(Failure::Usage("--header is for --format csv".to_owned()));
    }
    // Open the file before the store: a wrong file name must not make a store.
    let mut lines = Lines::open(&arguments.file, arguments.format.line_bytes_max())?;
    let missing = missing_dirs(&arguments.common.dir);
    let store =
        arguments.common.open_or_create_with(arguments.writing.set(arguments.new.set(Options::default())))?;
    if store.stats().durability == "none" {
        return Err(Failure::Usage(format!(
            "{} would keep nothing of the file: give --durability power or process with bwtree, or another engine",
            store.stats().engine
        )));
    }
    let table = arguments.table.make(&store)?.with(UNSYNCED);
    // The store is closed when its last handle is dropped.
    drop(store);
    let mut loader = Loader { store: table, pairs: 0, bytes: 0 };
    let is_new = loader.store.stats().opened == "new";
    let start = Instant::now();
    // The length of standard input is unknown.
    let template = match lines.file_bytes {
        0 => "{spinner} {bytes} {msg}",
        _ => "{wide_bar} {bytes}/{total_bytes} {eta} {msg}",
    };
    let progress = progress_bar(lines.file_bytes, template);
    let loaded = load(arguments, &mut lines, &mut loader, &progress);
    progress.finish_and_clear();
    // Close the store also if loading failed. The error of loading is reported first.
    let closed = loader.store.close();
    match loaded {
        Err((line, Bad::Line(why))) if is_new => {
            // The store locks its files until it is dropped.
            drop(loader);
            closed?;
            StoreDir::remove(&arguments.common.dir)?;
            // A directory with other files stays.
            missing.iter().for_each(|dir| _ = std::fs::remove_dir(dir));
            return Err(Failure::FirstLoad { input: lines.name.clone(), line, why });
        }
        Err((line, Bad::Line(why))) => {
            return Err(Failure::Line { input: lines.name.clone(), line, why, loaded: loader.pairs });
        }
        Err((_, Bad::Store(error))) => {
            return Err(Failure::Load { why: error.to_string(), loaded: loader.pairs });
        }
        Ok(()) => closed?,
    }
    report(arguments, &loader, start.elapsed())
}

/// The directory of a store and its parents, without those that exist. Opening a new store makes them.
fn missing_dirs(dir: &Path) -> Vec<PathBuf> {
    let parts = dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    parts.take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Loads all lines. An error carries its line number.
fn load(
    arguments: &Arguments,
    lines: &mut Lines,
    loader: &mut Loader,
    progress: &ProgressBar,
) -> std::result::Result<(), (u64, Bad)> {
    let mut columns = csv::Columns::default();
    let mut line = Vec::new();
    let mut count = 0_u64;
    loop {
        line.clear();
        let first = lines.number + 1;
        let at = |bad: Bad| (first, bad);
        if !lines.append(&mut line).map_err(|why| at(why.into()))? {
            return Ok(());
        }
        if arguments.format == Format::Csv {
            csv::complete(lines, &mut line).map_err(|why| at(why.into()))?;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let step = match arguments.format {
            Format::Tsv => tsv(loader, &line),
            Format::Fimi => fimi(loader, first, &line),
            Format::Jsonl => jsonl::pair(&line)
                .map_err(Bad::Line)
                .and_then(|(key, value)| loader.put(&key, &value).map(drop)),
            Format::Csv if first == 1 && arguments.header => {
                let (key, value) = (arguments.key_column.as_deref(), arguments.value_column.as_deref());
                csv::Columns::named(&line, key, value).map(|named| columns = named).map_err(Bad::Line)
            }
            Format::Csv => columns
                .split(&line)
                .map_err(Bad::Line)
                .and_then(|(key, value)| loader.put(&key, &value).map(drop)),
        };
        step.map_err(at)?;
        count += 1;
        if count.is_multiple_of(1024) {
            progress.set_position(lines.read_bytes());
            progress.set_message(format!(
                "{} pairs, {:.0} pairs/s",
                loader.pairs,
                rate(loader, progress.elapsed())
            ));
        }
    }
}

fn tsv(loader: &mut Loader, line: &[u8]) -> Step<()> {
    let (key, value) = match line.iter().position(|&byte| byte == b'\t') {
        Some(tab) => (&line[..tab], &line[tab + 1..]),
        None => (line, &[][..]),
    };
    loader.put(key, value).map(drop)
}

/// Stores a transaction. Items that the transaction already has are not counted again, so that a file can be loaded twice.
fn fimi(loader: &mut Loader, transaction: u64, line: &[u8]) -> Step<()> {
    if transaction > 99_999_999 {
        return Err(Bad::Line("more than 99,999,999 transactions".to_owned()));
    }
    for item in line.split(u8::is_ascii_whitespace).filter(|item| !item.is_empty()) {
        let number =
            std::str::from_utf8(item).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|text| text.parse::<u32>().ok()).filter(|&number| number <= 999_999);
        let Some(number) = number else {
            let item: String = String::from_utf8_lossy(item).chars().take(40).collect();
            return Err(Bad::Line(format!("{item:?} is not an item number from 0 to 999,999")));
        };
        if loader.put(format!("t:{transaction:08}:{number:06}").as_bytes(), &[])? {
            count_item(&loader.store, format!("i:{number:06}").as_bytes())?;
        }
    }
    Ok(())
}

fn count_item(store: &Store, key: &[u8]) -> Step<()> {
    let mut wrong = false;
    store.update(key, |old| {
        let count = old.map_or(Some(0), |old| std::str::from_utf8(old).ok()?.parse::<u64>().ok());
        wrong = count.is_none();
        match count {
            Some(count) => Change::Put(Cow::Owned(count.saturating_add(1).to_string().into_bytes())),
            None => Change::Keep,
        }
    })?;
    let key = String::from_utf8_lossy(key);
    if wrong {
        Err(Bad::Line(format!("the store holds something under {key} that is not a count")))
    } else {
        Ok(())
    }
}

fn rate(loader: &Loader, elapsed: Duration) -> f64 {
    loader.pairs as f64 / elapsed.as_secs_f64().max(1e-9)
}

fn report(arguments: &Arguments, loader: &Loader, elapsed: Duration) -> Result<ExitCode> {
    let (pairs, bytes, seconds, rate) =
        (loader.pairs, loader.bytes, elapsed.as_secs_f64(), rate(loader, elapsed));
    // The same number as in `stats`. It can differ from `pairs`: a key may repeat in the input, and the store may have held keys before.
    let keys = loader.store.count()?;
    let mut output = Output::new();
    if arguments.common.json {
        let report = json!({
            "pairs": pairs, "keys": keys, "bytes": bytes, "seconds": seconds, "pairs_per_second": rate,
        });
        output.json(&report)?;
    } else {
        output.line(&format!(
            "loaded {pairs} pairs, {bytes} bytes in {seconds:.3} s ({rate:.0} pairs/s); the store holds {keys} keys"
        ))?;
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}
