//! `stats`: prints the engine, sizes and counts of a store.

use std::process::ExitCode;

use bristlecone::{JournalActivity, JournalStats, PagingStats, Space, Stats};

use terminal::Output;

use crate::common::Reading;
use crate::failure::Result;

const HELP: &str = "\
This command opens the store itself. So counts \"since it was opened\" are of this command, and there are no latencies. The
counts and latencies of a server are in `redis-cli INFO`.

Example:
  bristlecone stats --dir data --json";

/// Arguments of `stats`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(flatten)]
    reading: Reading,
}

/// The report, as one JSON object.
#[derive(serde::Serialize)]
struct Told {
    #[serde(flatten)]
    stats: Stats,
    #[serde(flatten)]
    space: Space,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let store = arguments.reading.open()?;
    // After a crash the keys must be counted. If damage stops the count, `keys_pending` stays set and `check` reports the damage.
    let _ = store.count();
    let told = Told { stats: store.stats(), space: store.space() };
    store.close()?;
    let mut output = Output::new();
    if arguments.reading.common.json {
        output.json(&told)?;
    } else {
        let mut rows = rows(&told.stats);
        rows.extend(
            told.stats.journal.as_ref().and_then(|journal| journal.activity).iter().flat_map(of_activity),
        );
        rows.extend(told.stats.paging.iter().flat_map(of_paging));
        rows.extend(of_space(&told.space));
        for (name, value) in rows {
            output.line(&format!("{name:<12}{value}"))?;
        }
    }
    output.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Without a use or a write since the open, as in this command itself, there is no rate.
fn of_paging(paging: &PagingStats) -> Vec<Row> {
    let mut rows = vec![(
        "pages",
        format!(
            "{} bytes in memory, with {} bytes of unsaved changes; the budget is {} bytes",
            paging.page_bytes, paging.unsaved_bytes, paging.memory_bytes
        ),
    )];
    rows.extend(paging.hit_rate().map(|rate| ("hit rate", format!("{:.1} %", rate * 100.0))));
    rows.extend(
        paging.compression().map(|ratio| ("compressed", format!("to {:.0} % of the bytes", 100.0 / ratio))),
    );
    rows.extend(
        paging.write_amplification().map(|ratio| ("written", format!("{ratio:.1} times the bytes put"))),
    );
    rows
}

type Row = (&'static str, String);

/// The statistics of a store that `serve` also prints, as rows of text.
pub fn rows(stats: &Stats) -> Vec<Row> {
    let keys = match stats.keys_pending {
        true => format!("at least {} (they are counted again after a crash)", stats.keys),
        false => stats.keys.to_string(),
    };
    let mut rows = vec![
        ("engine", stats.engine.clone()),
        ("medium", stats.medium.clone()),
        ("durability", with_reason(&stats.durability, &stats.durability_reason)),
        ("keys", keys),
        ("found", format!("{}, ready in {}", found(stats), in_time(stats.recovery_us))),
        ("node", in_bytes(stats.node_bytes)),
    ];
    rows.extend(stats.file_bytes.map(|bytes| ("file", in_bytes(bytes))));
    rows.extend(stats.journal.iter().flat_map(of_journal));
    rows.push(("region", in_bytes(stats.region_bytes)));
    rows
}

/// State in which the store was found.
fn found(stats: &Stats) -> &str {
    match stats.opened.as_str() {
        _ if stats.beside_writer => "open in another process: this is a copy in memory of one moment",
        "recovered" if stats.read_only => "not closed: recovered in memory, the files are unchanged",
        opened => opened,
    }
}

fn of_journal(journal: &JournalStats) -> Vec<Row> {
    let JournalStats { bytes, file_bytes, activity } = journal;
    let mut rows = vec![("journal", format!("{file_bytes} bytes, for {bytes} bytes of groups"))];
    let Some(activity) = activity else { return rows };
    let bytes = activity.replayed_bytes;
    match activity.replayed_groups {
        0 => {}
        1 => rows.push(("replayed", format!("1 group of {bytes} bytes"))),
        groups => rows.push(("replayed", format!("{groups} groups of {bytes} bytes"))),
    }
    rows
}

fn of_activity(activity: &JournalActivity) -> [Row; 4] {
    let JournalActivity { groups, groups_since_open, syncs_since_open, checkpoints_since_open, .. } =
        activity;
    [
        ("groups", format!("{groups} since the store was made, {groups_since_open} since it was opened")),
        ("syncs", format!("{syncs_since_open} since it was opened")),
        ("checkpoints", format!("{checkpoints_since_open} since it was opened")),
        ("waiting", format!("{} bytes of groups that are not checkpointed", activity.waiting_bytes)),
    ]
}

fn of_space(space: &Space) -> [Row; 3] {
    let Space { live_bytes, free_bytes, overhead_bytes } = *space;
    [
        ("live", in_bytes(live_bytes)),
        ("free", format!("{free_bytes} bytes, used again before the file grows")),
        ("overhead", in_bytes(overhead_bytes)),
    ]
}

/// A time for a reader. JSON has the microseconds.
fn in_time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000_000 => format!("{} ms", (us + 500) / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

fn in_bytes(bytes: u64) -> String {
    format!("{bytes} bytes")
}

fn with_reason(durability: &str, reason: &str) -> String {
    if reason.is_empty() { durability.to_owned() } else { format!("{durability} ({reason})") }
}

#[cfg(test)]
mod tests {
    use super::in_time;

    #[test]
    fn times_have_the_unit_of_their_size() {
        assert_eq!([72, 999, 159_929, 12_345_678].map(in_time), ["72 us", "999 us", "160 ms", "12 s"]);
    }
}
