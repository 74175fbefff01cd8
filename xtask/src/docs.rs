//! `cargo xtask docs`: rewrites the tables of documents that are made from records. `tidy` fails if a table differs from its record.
//!
//! A table follows a line with its mark, `<!-- from NAME -->`. It ends before the first line that does not begin with `|`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::record::Record;

/// A table: the document, the record (its name in the mark), and the function that makes the table's lines from the record. The function
/// returns `None` if the record has no figures for it.
type Table = (&'static str, &'static str, fn(&str) -> Result<Option<Vec<String>>, String>);

const STORES_PROCESS: &str = "docs/records/stores-process.json";
const STORES_POWER: &str = "docs/records/stores-power.json";

const TABLES: &[Table] = &[
    ("docs/testing.md", "docs/records/soak.json", |text| Ok(crash_table(&Record::parse(text)?))),
    ("README.md", STORES_PROCESS, first_table),
    ("docs/benchmarks.md", STORES_PROCESS, stores_table),
    ("docs/benchmarks.md", STORES_POWER, stores_table),
];

/// The rows of the README's table: the operation in the record and its name in the table.
const FIRST: [(&str, &str); 5] = [
    ("put", "put"),
    ("batch", "put in batches of 1,000"),
    ("get", "get"),
    ("scan", "scan of all, pairs"),
    ("range", "ranges of 100"),
];

/// The stores of a `bench store` record with their proper names. Those that the record lacks are omitted.
fn stores(figures: &Value) -> Vec<(&'static str, &Value)> {
    const NAMES: [(&str, &str); 6] = [
        ("bristlecone", "Bristlecone"),
        ("lmdb", "LMDB"),
        ("rocksdb", "RocksDB"),
        ("redb", "redb"),
        ("fjall", "fjall"),
        ("berkeley", "Berkeley DB"),
    ];
    let rows = figures["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |name: &str| rows.iter().find(|row| row["name"] == name);
    NAMES.iter().filter_map(|(name, proper)| Some((*proper, of(name)?))).collect()
}

fn figures(text: &str) -> Result<Value, String> {
    let mut record: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(record["figures"].take())
}

fn head(first: &str, stores: &[(&str, &Value)]) -> Vec<String> {
    let names: Vec<_> = stores.iter().map(|(name, _)| *name).collect();
    vec![format!("| {first} | {} |", names.join(" | ")), format!("|{}", "---|".repeat(names.len() + 1))]
}

fn per_second(row: &Value, column: usize) -> f64 {
    row["cells"][column]["per_second"].as_f64().unwrap_or_default()
}

/// The README's table: operations per second with one thread, the fastest store of a row in bold. Without Berkeley DB, for its width.
fn first_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut stores = stores(&figures);
    stores.retain(|(name, _)| *name != "Berkeley DB");
    let columns = figures["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let place = figures["backing"].as_str().unwrap_or_default();
    let mut lines = head(
        &format!("{} keys, `{place}`, one thread", grouped(figures["keys"].as_u64().unwrap_or(0))),
        &stores,
    );
    for (verb, name) in FIRST {
        let Some(column) = columns.iter().position(|column| column["verb"] == verb && column["threads"] == 1)
        else {
            continue;
        };
        let rates: Vec<f64> = stores.iter().map(|(_, row)| per_second(row, column)).collect();
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let cell = |rate: f64| {
            let text = grouped(rate.round() as u64);
            if rate == fastest { format!("**{text}**") } else { text }
        };
        lines.push(format!("| {name} | {} |", rates.into_iter().map(cell).collect::<Vec<_>>().join(" | ")));
    }
    Ok((lines.len() > 2).then_some(lines))
}

/// All columns of a `bench store` record: operations per second, with the ratio to Bristlecone, and counted syncs for each commit.
fn stores_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let stores = stores(&figures);
    let mut lines = head("", &stores);
    for (at, column) in figures["columns"].as_array().into_iter().flatten().enumerate() {
        let cell = |(name, row): &(&str, &Value)| {
            let rate = grouped(per_second(row, at).round() as u64);
            let ratio = row["cells"][at]["ratio"].as_f64().unwrap_or_default();
            if *name == "Bristlecone" { rate } else { format!("{rate} ({ratio:.2})") }
        };
        let cells: Vec<_> = stores.iter().map(cell).collect();
        lines.push(format!("| {} | {} |", column["label"].as_str().unwrap_or_default(), cells.join(" | ")));
    }
    let labels = stores.first().and_then(|(_, row)| row["syncs"].as_array()).into_iter().flatten();
    for (at, label) in labels.enumerate() {
        let cell = |(_, row): &(&str, &Value)| {
            row["syncs"][at]["per_commit"]
                .as_f64()
                .map_or("not counted".to_owned(), |count| format!("{count:.3}"))
        };
        let cells: Vec<_> = stores.iter().map(cell).collect();
        lines.push(format!(
            "| syncs per commit: {} | {} |",
            label["label"].as_str().unwrap_or_default(),
            cells.join(" | ")
        ));
    }
    Ok((lines.len() > 2).then_some(lines))
}

/// The table of crash exploration: one row for each campaign on record, sorted by name.
fn crash_table(record: &Record) -> Option<Vec<String>> {
    let row = |campaign: &str| {
        let (engine, figures) = (campaign.strip_prefix("crash ")?, record.figures(campaign)?);
        let number = |name: &str| grouped(figures[name].as_u64().unwrap_or_default());
        Some(format!(
            "| `{engine}` | {} | {} | {} | {} | {}, {} | {}, {}, {} |",
            number("runs"),
            number("crash_points"),
            number("states"),
            number("nested_states"),
            number("sampled_points"),
            number("nested_sampled_points"),
            number("mutants_killed"),
            number("mutants_argued"),
            number("mutants_survived"),
        ))
    };
    let rows: Vec<String> = record.names().filter_map(row).collect();
    let head = [
        "| engine | runs | crash points | states recovered and judged | of these, after a crash inside recovery | points only sampled, of \
         operations and inside recovery | mutants killed, equivalent, survived |",
        "|---|---|---|---|---|---|---|",
    ];
    (!rows.is_empty()).then(|| head.iter().map(|line| (*line).to_owned()).chain(rows).collect())
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The document with the table in its place.
///
/// # Errors
/// A message if the mark is missing.
fn with_table(text: &str, name: &str, table: &[String]) -> Result<String, String> {
    let mark = format!("<!-- from {name} -->");
    let mut lines = text.lines();
    let mut made: Vec<&str> = lines.by_ref().take_while(|line| *line != mark).collect();
    if made.len() == text.lines().count() {
        return Err(format!("the line {mark} is missing"));
    }
    made.push(&mark);
    made.extend(table.iter().map(String::as_str));
    made.extend(lines.skip_while(|line| line.starts_with('|')));
    Ok(made.join("\n") + "\n")
}

/// Each document with its current text and its correct text. A table without a record is left as it is.
fn documents(root: &Path) -> Result<Vec<(&'static str, String, String)>, String> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let mut all: Vec<(&'static str, String, String)> = Vec::new();
    for (path, name, table) in TABLES {
        if !root.join(name).exists() {
            continue;
        }
        let Some(table) = table(&read(name)?).map_err(|why| format!("{name}: {why}"))? else { continue };
        let at = match all.iter().position(|(known, ..)| known == path) {
            Some(at) => at,
            None => {
                let text = read(path)?;
                all.push((path, text.clone(), text));
                all.len() - 1
            }
        };
        all[at].2 = with_table(&all[at].2, name, &table).map_err(|why| format!("{path}: {why}"))?;
    }
    Ok(all)
}

/// Writes all tables.
pub fn run(root: &Path) -> Outcome {
    for (path, text, should_be) in documents(root)? {
        if text != should_be {
            fs::write(root.join(path), should_be).map_err(|error| format!("cannot write {path}: {error}"))?;
            println!("{path}: tables written");
        }
    }
    Ok(())
}

/// The documents whose tables differ from the records.
pub fn differing(root: &Path) -> Result<Vec<&'static str>, String> {
    let all = documents(root)?;
    Ok(all.into_iter().filter(|(_, text, should_be)| text != should_be).map(|(path, ..)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_one_behind_its_mark() {
        let text = "a\n<!-- from x -->\n| old |\n| older |\n\nb\n";
        let made = with_table(text, "x", &["| new |".to_owned()]).unwrap();
        assert_eq!(made, "a\n<!-- from x -->\n| new |\n\nb\n");
        assert!(with_table(text, "y", &[]).is_err());
        assert_eq!(
            with_table("<!-- from x -->\n", "x", &["| n |".to_owned()]).unwrap(),
            "<!-- from x -->\n| n |\n"
        );
    }

    /// A record of two stores and two columns.
    const STORES: &str = r#"{"figures": {"keys": 1000, "backing": "/dev/shm",
        "columns": [{"label": "put, 1 thread", "verb": "put", "threads": 1}, {"label": "put, 8 threads", "verb": "put", "threads": 8}],
        "rows": [
            {"name": "redb", "cells": [{"per_second": 1234.6, "ratio": 0.5}, {"per_second": 7, "ratio": 0.25}], "syncs": null},
            {"name": "bristlecone", "cells": [{"per_second": 2469, "ratio": 1.0}, {"per_second": 28, "ratio": 1.0}],
             "syncs": [{"label": "put, 1 thread", "per_commit": 1.0}]}]}}"#;

    #[test]
    fn tables_of_stores_have_the_figures_of_the_record() {
        let first = first_table(STORES).unwrap().unwrap();
        assert_eq!(first[0], "| 1,000 keys, `/dev/shm`, one thread | Bristlecone | redb |");
        assert_eq!(first[2..], ["| put | **2,469** | 1,235 |"]);
        let all = stores_table(STORES).unwrap().unwrap();
        let rows = [
            "| put, 1 thread | 2,469 | 1,235 (0.50) |",
            "| put, 8 threads | 28 | 7 (0.25) |",
            "| syncs per commit: put, 1 thread | 1.000 | not counted |",
        ];
        assert_eq!(all[2..], rows);
        assert!(first_table("{}").unwrap().is_none() && stores_table("{}").unwrap().is_none());
        assert!(stores_table("no JSON").is_err());
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 12, 123, 1234, 1_234_567].map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn a_crash_row_has_the_figures_of_its_campaign() {
        let text = r#"{"campaigns": {"crash a": {"figures": {"runs": 3, "states": 4000}}, "models": {"figures": null}}}"#;
        let table = crash_table(&Record::parse(text).unwrap()).unwrap();
        assert_eq!(table.len(), 3);
        assert_eq!(table[2], "| `a` | 3 | 0 | 4,000 | 0 | 0, 0 | 0, 0, 0 |");
        assert!(crash_table(&Record::default()).is_none());
    }
}
