//! Compares tables of `docs/format.md` with the constants that they show.

const PAGE: &str = include_str!("../../../docs/format.md");

/// Asserts that a table of the page has this row. Cells are separated by ` | `; `…` stands for any text inside a row.
///
/// # Panics
/// If no line of the page matches.
pub fn assert_row(row: &str) {
    let row = format!("| {row} |");
    let (begin, end) = row.split_once('…').unwrap_or((&row, ""));
    let fits =
        |line: &str| line.len() >= begin.len() + end.len() && line.starts_with(begin) && line.ends_with(end);
    assert!(PAGE.lines().any(fits), "docs/format.md has no row {row}");
}
