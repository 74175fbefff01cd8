//! `cargo xtask docs`: rewrites the tables of documents that are made from records. `tidy` fails if a table differs from its record.
//!
//! A table follows a line with its mark, `<!-- from NAME -->`. It ends before the first line that does not begin with `|`.

use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::record::Record;

/// A table: the document, its name in the mark, and the function that makes its lines from the record (`None` without a record).
type Table = (&'static str, &'static str, fn(&Record) -> Option<Vec<String>>);

const TABLES: &[Table] = &[("docs/testing.md", "docs/records/soak.json", crash_table)];

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

/// Each document with its current text and its correct text.
fn documents(root: &Path) -> Result<Vec<(&'static str, String, String)>, String> {
    let record = Record::read()?;
    let mut all = Vec::new();
    for (path, name, table) in TABLES {
        let text =
            fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))?;
        if let Some(table) = table(&record) {
            let should_be = with_table(&text, name, &table).map_err(|why| format!("{path}: {why}"))?;
            all.push((*path, text, should_be));
        }
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
