//! `cargo xtask docs`: rewrites the tables of documents that are made from records. `tidy` fails if a table differs from its record.
//!
//! A table follows a line with its mark, `<!-- from NAME -->`, or `<!-- from NAME: PART -->` if the record NAME has several tables. It ends
//! before the first line that does not begin with `|`.

mod benchmarks;
mod papers;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::record::Record;

/// The function that makes a table's lines from its record. It returns `None` if the record has no figures for it.
type Make = fn(&str) -> Result<Option<Vec<String>>, String>;

/// A table: the document, the text of its mark, and its function.
type Table = (&'static str, &'static str, Make);

const STORES_PROCESS: &str = "docs/records/stores-process.json";
/// As [`STORES_PROCESS`], of a commit whose default engine was `wbtree`.
const STORES_WBTREE: &str = "docs/records/stores-wbtree.json";
const STORES_POWER: &str = "docs/records/stores-power.json";

const TABLES: &[Table] = &[
    ("docs/testing.md", "docs/records/soak.json", |text| Ok(crash_table(&Record::parse(text)?))),
    ("docs/testing.md", "docs/records/clients.json", clients_table),
    ("docs/testing.md", "docs/records/jobs.json", jobs_table),
    ("README.md", STORES_POWER, benchmarks::first_table),
    ("docs/benchmarks.md", STORES_PROCESS, benchmarks::stores_table),
    ("docs/benchmarks.md", STORES_WBTREE, benchmarks::stores_table),
    ("docs/benchmarks.md", STORES_POWER, benchmarks::stores_table),
    ("docs/benchmarks.md", "docs/records/flash.json", benchmarks::flash_table),
    ("docs/benchmarks.md", "docs/records/memory.json", benchmarks::memory_table),
    ("docs/benchmarks.md", "docs/records/trees.json", benchmarks::trees_table),
    ("docs/benchmarks.md", "docs/records/readers.json", benchmarks::readers_table),
    ("docs/benchmarks.md", "docs/records/reopen.json", benchmarks::reopen_table),
    ("docs/benchmarks.md", "docs/records/serve.json", benchmarks::serve_table),
    ("docs/benchmarks.md", "docs/records/serve.json: own load", benchmarks::own_load_table),
    ("docs/benchmarks.md", "docs/records/ycsb.json", benchmarks::ycsb_table),
    ("docs/benchmarks.md", "docs/records/serve-types.json", benchmarks::types_table),
    ("docs/costs.md", "docs/records/costs.json: operations", papers::costs_table),
    ("docs/costs.md", "docs/records/costs.json: categories", papers::categories_table),
    ("docs/pcm.md", "docs/records/pcm.json: writes", papers::writes_table),
    ("docs/pcm.md", "docs/records/pcm.json: inserts", papers::inserts_table),
    ("docs/pcm.md", "docs/records/pcm.json: claims", papers::simulated_claims_table),
    ("docs/pcm.md", "docs/records/pcm.json: heat", papers::heat_table),
    ("docs/experiments.md", "docs/records/wb.json", papers::measured_claims_table),
    ("docs/experiments.md", "docs/records/vlab.json: workloads", papers::workloads_table),
    ("docs/experiments.md", "docs/records/vlab.json: keys", papers::keys_table),
    ("docs/experiments.md", "docs/records/vlab.json: combine", papers::combine_table),
    ("docs/experiments.md", "docs/records/cdds.json: stores", papers::cdds_table),
    ("docs/experiments.md", "docs/records/cdds.json: claims", papers::verdicts_table),
    ("docs/experiments.md", "docs/records/serve-papers.json: clusters", papers::clusters_table),
    ("docs/experiments.md", "docs/records/serve-papers.json: items", papers::items_table),
    ("docs/experiments.md", "docs/records/serve-papers.json: cluster claims", papers::cluster_verdicts_table),
    ("docs/experiments.md", "docs/records/serve-papers.json: trees", papers::memcached_trees_table),
    ("docs/experiments.md", "docs/records/serve-papers.json: tree claims", papers::memcached_verdicts_table),
    ("docs/experiments.md", "docs/records/bwtree.json: rates", papers::rates_table),
    ("docs/experiments.md", "docs/records/bwtree.json: threads", papers::threads_table),
    ("docs/experiments.md", "docs/records/bwtree.json: claims", papers::paper_verdicts_table),
    ("docs/experiments.md", "docs/records/bwtree.json: loads", papers::loads_table),
];

fn figures(text: &str) -> Result<Value, String> {
    let mut record: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(record["figures"].take())
}

fn line(first: &str, cells: &[String]) -> String {
    format!("| {first} | {} |", cells.join(" | "))
}

fn rows(figures: &Value) -> &[Value] {
    figures["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// A number of a row.
fn number(row: &Value, name: &str) -> Result<f64, String> {
    row[name].as_f64().ok_or_else(|| format!("no number {name} in {row}"))
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

/// The table of the suites of Redis clients: one row for each suite.
fn clients_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut table = vec![
        "| framework | tests | run | passed | failed | not claimed | skipped by the suite | why tests fail |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let word = |name: &str| row[name].as_str().unwrap_or_default();
        let mut cells = vec![word("suite").to_owned()];
        for name in ["run", "passed", "failed", "not_claimed", "skipped"] {
            cells.push(grouped(number(row, name)? as u64));
        }
        let reasons = row["reasons"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let reason =
            |entry: &Value| format!("{}: {}", entry["tests"], entry["reason"].as_str().unwrap_or_default());
        cells.push(reasons.map(reason).collect::<Vec<_>>().join("; "));
        table.push(line(&format!("{} {}", word("framework"), word("version")), &cells));
    }
    Ok((table.len() > 2).then_some(table))
}

/// The table of job systems: one row for each system.
fn jobs_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut table = vec![
        "| job system | rounds | kills | jobs | never ran | of these, could be on the way to a worker | never ran with Redis | ran twice | workers that hung |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let count = |name: &str| number(row, name).map(|count| grouped(count as u64));
        let mut cells = Vec::new();
        for name in ["rounds", "kills", "acknowledged", "lost"] {
            cells.push(count(name)?);
        }
        // A system that never loses a job is not compared.
        let is_compared = !row["lost_by_redis"].is_null();
        cells.push(if is_compared { format!("at most {}", count("may_be_lost")?) } else { "0".to_owned() });
        cells.push(if is_compared { count("lost_by_redis")? } else { String::new() });
        cells.push(count("twice")?);
        cells.push(count("hung")?);
        let word = |name: &str| row[name].as_str().unwrap_or_default();
        table.push(line(&format!("{} {}", word("system"), word("version")), &cells));
    }
    Ok((table.len() > 2).then_some(table))
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

/// The file of the record that a mark names.
fn record_of(mark: &str) -> &str {
    mark.split_once(": ").map_or(mark, |(record, _)| record)
}

/// Each document with its current text and its correct text.
fn documents(root: &Path) -> Result<Vec<(&'static str, String, String)>, String> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let mut all: Vec<(&'static str, String, String)> = Vec::new();
    for (path, name, make) in TABLES {
        let Some(table) = make(&read(record_of(name))?).map_err(|why| format!("{name}: {why}"))? else {
            return Err(format!("{name}: it has no figures for the table in {path}"));
        };
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

/// The marks of a document that no table belongs to: their tables would be written by hand.
fn unknown_marks(path: &str, text: &str) -> Vec<String> {
    let mark = |line: &str| Some(line.strip_prefix("<!-- from ")?.strip_suffix(" -->")?.to_owned());
    let known = |mark: &String| TABLES.iter().any(|(of, name, _)| *of == path && name == mark);
    text.lines().filter_map(mark).filter(|mark| !known(mark)).collect()
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
///
/// # Errors
/// A record is missing, or lacks figures; a document lacks a mark, or has one without a table.
pub fn differing(root: &Path) -> Result<Vec<&'static str>, String> {
    let all = documents(root)?;
    for (path, text, _) in &all {
        if let Some(mark) = unknown_marks(path, text).first() {
            return Err(format!("{path}: no function makes the table of {mark}"));
        }
    }
    Ok(all.into_iter().filter(|(_, text, should_be)| text != should_be).map(|(path, ..)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_client_has_counts_and_reasons() {
        let text = r#"{"figures": {"rows": [{"framework": "F", "version": "1", "suite": "its own tests", "run": 1200, "passed": 1198,
            "failed": 2, "not_claimed": 3, "skipped": 4, "reasons": [{"tests": 2, "reason": "why"}]}]}}"#;
        let table = clients_table(text).unwrap().unwrap();
        assert_eq!(table[2], "| F 1 | its own tests | 1,200 | 1,198 | 2 | 3 | 4 | 2: why |");
        assert!(clients_table(r#"{"figures": {"rows": []}}"#).unwrap().is_none());
        assert!(clients_table(r#"{"figures": {"rows": [{}]}}"#).is_err());
    }

    #[test]
    fn a_row_of_a_job_system_shows_the_comparison_if_there_is_one() {
        let text = r#"{"figures": {"rows": [
            {"system": "a", "version": "1", "rounds": 2, "kills": 6, "acknowledged": 1800, "lost": 0, "may_be_lost": 0, "twice": 3, "hung": 0},
            {"system": "b", "version": "2", "rounds": 2, "kills": 6, "acknowledged": 800, "lost": 1, "may_be_lost": 24, "twice": 0, "hung": 1,
             "lost_by_redis": 2}]}}"#;
        let table = jobs_table(text).unwrap().unwrap();
        assert_eq!(
            table[2..],
            [
                "| a 1 | 2 | 6 | 1,800 | 0 | 0 |  | 3 | 0 |",
                "| b 2 | 2 | 6 | 800 | 1 | at most 24 | 2 | 0 | 1 |",
            ]
        );
    }

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

    #[test]
    fn a_mark_without_a_table_is_found() {
        let text = "<!-- from docs/records/soak.json -->\n<!-- from docs/records/no.json: part -->\n<!-- session -->\n";
        assert_eq!(unknown_marks("docs/testing.md", text), ["docs/records/no.json: part"]);
        assert_eq!(record_of("a.json: part"), "a.json");
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
