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
    ("docs/benchmarks.md", "docs/records/trees.json", trees_table),
    ("docs/benchmarks.md", "docs/records/readers.json", readers_table),
    ("docs/benchmarks.md", "docs/records/reopen.json", reopen_table),
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

/// A figure of a store in a column.
fn figure(row: &Value, column: usize, name: &str) -> Result<f64, String> {
    let missing = || format!("{}: no {name} in column {column}", row["name"]);
    row["cells"][column][name].as_f64().ok_or_else(missing)
}

fn per_second(row: &Value, column: usize) -> Result<f64, String> {
    figure(row, column, "per_second")
}

fn line(first: &str, cells: &[String]) -> String {
    format!("| {first} | {} |", cells.join(" | "))
}

/// The README's table: operations per second with one thread, the fastest store of a row in bold. Without Berkeley DB, for its width.
fn first_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut stores = stores(&figures);
    stores.retain(|(name, _)| *name != "Berkeley DB");
    if stores.is_empty() {
        return Ok(None);
    }
    let columns = figures["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let backing = figures["backing"].as_str().unwrap_or_default();
    let keys = grouped(figures["keys"].as_u64().unwrap_or(0));
    let mut lines = head(&format!("{keys} keys, `{backing}`, one thread"), &stores);
    for (verb, name) in FIRST {
        let column = columns.iter().position(|column| column["verb"] == verb && column["threads"] == 1);
        let column = column.ok_or_else(|| format!("no column of {verb} with one thread"))?;
        let rates = stores.iter().map(|(_, row)| per_second(row, column)).collect::<Result<Vec<_>, _>>()?;
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let cell = |rate: f64| {
            let text = grouped(rate.round() as u64);
            if rate == fastest { format!("**{text}**") } else { text }
        };
        lines.push(line(name, &rates.into_iter().map(cell).collect::<Vec<_>>()));
    }
    Ok(Some(lines))
}

/// All columns of a `bench store` record: operations per second, with the ratio to Bristlecone, and counted syncs for each commit.
fn stores_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let stores = stores(&figures);
    if stores.is_empty() {
        return Ok(None);
    }
    let mut lines = head("operations per second", &stores);
    for (at, column) in figures["columns"].as_array().into_iter().flatten().enumerate() {
        let cell = |(name, row): &(&str, &Value)| {
            let rate = grouped(per_second(row, at)?.round() as u64);
            let ratio = figure(row, at, "ratio")?;
            Ok(if *name == "Bristlecone" { rate } else { format!("{rate} ({ratio:.2})") })
        };
        let cells = stores.iter().map(cell).collect::<Result<Vec<_>, String>>()?;
        lines.push(line(column["label"].as_str().unwrap_or_default(), &cells));
    }
    let labels = stores.first().and_then(|(_, row)| row["syncs"].as_array()).into_iter().flatten();
    for (at, label) in labels.enumerate() {
        let counts: Vec<_> = stores.iter().map(|(_, row)| row["syncs"][at]["per_commit"].as_f64()).collect();
        if counts.iter().all(|count| count.is_some_and(|count| count < 0.0005)) {
            continue; // would be a row of zeros
        }
        let cell = |count: Option<f64>| count.map_or("not counted".to_owned(), |count| format!("{count:.3}"));
        let cells: Vec<_> = counts.into_iter().map(cell).collect();
        lines.push(line(
            &format!("syncs per commit: {}", label["label"].as_str().unwrap_or_default()),
            &cells,
        ));
    }
    Ok(Some(lines))
}

fn rows(figures: &Value) -> &[Value] {
    figures["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// A number of a row.
fn number(row: &Value, name: &str) -> Result<f64, String> {
    row[name].as_f64().ok_or_else(|| format!("no number {name} in {row}"))
}

/// A `bench trees` record: nanoseconds for each operation of each tree. The first column's head has the memory's own times.
fn trees_table(text: &str) -> Result<Option<Vec<String>>, String> {
    const OPERATIONS: [&str; 9] = [
        "load",
        "search hit",
        "search miss",
        "insert",
        "update",
        "delete",
        "scan 100",
        "get 64",
        "insert 64",
    ];
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let memory = ["read_ns", "flush_ns", "inner_ns"].map(|name| number(&figures, name));
    let [read, flush, inner] = memory;
    let head = format!("ns (R = {:.0}, F = {:.0}, I = {:.0})", read?, flush?, inner?);
    let mut lines = vec![
        format!("| {head} | {} |", OPERATIONS.join(" | ")),
        format!("|{}", "---|".repeat(OPERATIONS.len() + 1)),
    ];
    for row in rows(&figures) {
        let cells = OPERATIONS.map(|name| Ok(format!("{:.0}", number(&row["ns"], name)?)));
        let cells = cells.into_iter().collect::<Result<Vec<_>, String>>()?;
        lines.push(line(row["name"].as_str().unwrap_or_default(), &cells));
    }
    Ok(Some(lines))
}

/// A `bench readers` record: lookups per second of elapsed time and of processor time.
fn readers_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines = vec![
        "| readers | gets per second | gets per second of processor time | writes per second |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let beside = if row["beside_writer"] == true { " and a writer" } else { "" };
        let rate = |name: &str| Ok::<_, String>(grouped(number(row, name)?.round() as u64));
        let writes = if beside.is_empty() { String::new() } else { rate("writes_per_second")? };
        let cells = [rate("gets_per_second")?, rate("gets_per_cpu_second")?, writes];
        lines.push(line(&format!("{}{beside}", row["readers"]), &cells));
    }
    Ok(Some(lines))
}

/// A `bench reopen` record: microseconds until a store is open that was not closed.
fn reopen_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines =
        vec!["| engine | keys | microseconds, median | most |".to_owned(), "|---|---|---|---|".to_owned()];
    for row in rows(&figures) {
        let keys = grouped(row["keys"].as_u64().unwrap_or_default());
        let time = |name: &str| Ok::<_, String>(format!("{:.0}", number(row, name)?));
        let cells = [keys, time("open_us")?, time("open_us_max")?];
        lines.push(line(row["tree"].as_str().unwrap_or_default(), &cells));
    }
    Ok(Some(lines))
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
    use serde_json::json;

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

    /// A record of two stores and a column for each operation, and a second one for puts.
    fn stores_record() -> Value {
        let column = |verb: &str, threads: u64| json!({ "label": format!("{verb}, {threads}"), "verb": verb, "threads": threads });
        let cells = |rate: f64, ratio: f64| vec![json!({ "per_second": rate, "ratio": ratio }); 6];
        json!({ "figures": {
            "keys": 1000,
            "backing": "/dev/shm",
            "columns": [column("put", 1), column("put", 8), column("batch", 1), column("get", 1), column("scan", 1), column("range", 1)],
            "rows": [
                { "name": "redb", "cells": cells(1234.6, 0.5), "syncs": null },
                { "name": "bristlecone", "cells": cells(2469.0, 1.0), "syncs": [{ "label": "put, 1", "per_commit": 1.0 }] },
            ],
        } })
    }

    #[test]
    fn tables_of_stores_have_the_figures_of_the_record() {
        let record = stores_record().to_string();
        let first = first_table(&record).unwrap().unwrap();
        assert_eq!(first[0], "| 1,000 keys, `/dev/shm`, one thread | Bristlecone | redb |");
        assert_eq!((first.len(), first[2].as_str()), (7, "| put | **2,469** | 1,235 |"));
        let all = stores_table(&record).unwrap().unwrap();
        assert_eq!((all.len(), all[3].as_str()), (9, "| put, 8 | 2,469 | 1,235 (0.50) |"));
        assert_eq!(all[8], "| syncs per commit: put, 1 | 1.000 | not counted |");
        assert!(first_table("{}").unwrap().is_none() && stores_table("{}").unwrap().is_none());
        assert!(stores_table("no JSON").is_err());
    }

    #[test]
    fn a_record_that_lacks_a_figure_makes_no_table() {
        let mut record = stores_record();
        record["figures"]["rows"][0]["cells"][4] = Value::Null;
        assert!(first_table(&record.to_string()).unwrap_err().contains("redb"));
        assert!(stores_table(&record.to_string()).is_err());
        let mut record = stores_record();
        record["figures"]["columns"][3]["verb"] = json!("look");
        assert!(first_table(&record.to_string()).unwrap_err().contains("get"));
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
