//! `cargo xtask lines`: lines of code by crate, without blank lines, comments and test modules. A test module is the last part of its file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// Prints the lines of every crate's `src`, and their sum.
pub fn run(root: &Path) -> Outcome {
    let mut crates = vec![root.join("xtask")];
    crates_below(&root.join("crates"), &mut crates)?;
    crates.sort();
    let mut sum = 0;
    for path in crates {
        let lines = lines_below(&path.join("src"))?;
        sum += lines;
        println!("{:24}{lines:>8}", path.file_name().unwrap_or_default().to_string_lossy());
    }
    println!("{:24}{sum:>8}", "all");
    Ok(())
}

/// Adds the directories below `folder` that have a manifest.
fn crates_below(folder: &Path, crates: &mut Vec<PathBuf>) -> Result<(), String> {
    for path in read(folder)?.into_iter().filter(|path| path.is_dir()) {
        if path.join("Cargo.toml").exists() {
            crates.push(path.clone());
        }
        crates_below(&path, crates)?;
    }
    Ok(())
}

fn lines_below(folder: &Path) -> Result<usize, String> {
    let mut lines = 0;
    for path in read(folder)? {
        if path.is_dir() {
            lines += lines_below(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            lines += lines_of_code(&source);
        }
    }
    Ok(lines)
}

fn read(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(told)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(told)).collect()
}

fn lines_of_code(source: &str) -> usize {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_are_no_code() {
        let source = "//! Head.\n\nuse a;\n\n/// Doc.\nfn f() {\n    // why\n    g(); // here\n}\n\nmod tests {\n    x\n}\n";
        assert_eq!(lines_of_code(source), 4);
        assert_eq!(lines_of_code(""), 0);
    }
}
