//! `stats`: sizes and counts.

use std::process::ExitCode;

use bristlecone::{JournalStats, Stats};

use crate::common::{Output, Reading};
use crate::failure::Result;

/// Arguments of `stats`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  bristlecone stats --dir data --json")]
pub struct Arguments {
    #[command(flatten)]
    reading: Reading,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let store = arguments.reading.open()?;
    let stats = store.stats();
    store.close()?;
    let mut output = Output::new();
    if arguments.reading.common.json {
        output.json(&stats)?;
    } else {
        for (name, value) in rows(&stats) {
            output.line(&format!("{name:<12}{value}"))?;
        }
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}

/// A store's statistics as rows for a person.
pub fn rows(stats: &Stats) -> Vec<(&'static str, String)> {
    let counting = if stats.keys_pending { " so far (counting)" } else { "" };
    let mut rows = vec![
        ("engine", stats.engine.clone()),
        ("medium", stats.medium.clone()),
        ("durability", with_reason(&stats.durability, &stats.durability_reason)),
        ("keys", format!("{}{counting}", stats.keys)),
        ("found", format!("{}, ready in {} us", stats.opened, stats.recovery_us)),
        ("file", format!("{} bytes", stats.file_bytes)),
        ("in use", in_use(stats)),
        ("node", format!("{} bytes", stats.node_bytes)),
    ];
    rows.extend(stats.journal.map(|journal| ("journal", of_journal(&journal))));
    rows
}

fn of_journal(journal: &JournalStats) -> String {
    let JournalStats { bytes, groups, replayed_groups, replayed_bytes } = journal;
    let replayed = match replayed_groups {
        0 => String::new(),
        1 => format!("; 1 group of {replayed_bytes} bytes replayed"),
        _ => format!("; {replayed_groups} groups of {replayed_bytes} bytes replayed"),
    };
    format!("{bytes} bytes, {groups} groups since the store was made{replayed}")
}

/// The allocator looks at a chunk when it first needs it; until then nobody knows what is in use there.
fn in_use(stats: &Stats) -> String {
    let bytes = stats.live_bytes;
    match stats.chunks_unseen {
        0 => format!("{bytes} bytes"),
        1 => format!("at least {bytes} bytes (1 chunk of the file not looked at yet)"),
        unseen => format!("at least {bytes} bytes ({unseen} chunks of the file not looked at yet)"),
    }
}

fn with_reason(durability: &str, reason: &str) -> String {
    if reason.is_empty() { durability.to_owned() } else { format!("{durability} ({reason})") }
}
