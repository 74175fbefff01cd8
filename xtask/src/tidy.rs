//! `cargo xtask tidy`: the rules of the repository that no compiler checks, as a text search.
//!
//! * Y1: the crates of [`TREES`] have no intrinsics, raw pointers or assembly; `bptree` has no file access and no system calls.
//! * Y2: `unsafe` is only in the files of [`UNSAFE_FILES`].
//! * Y3: every source module begins with its contract (`//!`); no file is longer than [`LINES_MAX`].
//! * Y4: no unfinished code, and no ignored test.
//! * Y5: no path of one user's folders.
//! * Y6: no test asserts a time or a speed, because machines differ.
//! * Y7: the files of each crate of [`circles::FREE`] have no import cycle.
//! * Y8: the generated tables in documents agree with the records of measurements (`docs/records`).
//! * Y9: documents use the field's terms; sentences of documents and comments name their subjects ([`prose`]).
//!
//! This file writes the forbidden words in two halves, so that it obeys the rules, too.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, circles, docs, prose};

/// Maximum number of lines of a source file.
const LINES_MAX: usize = 700;

/// The files that may contain `unsafe`. Each block there has a safety reason (checked by clippy).
const UNSAFE_FILES: [&str; 27] = [
    "crates/pmem/src/bus.rs",
    "crates/pmem/src/file.rs",
    "crates/pmem/src/medium/native.rs",
    "crates/pmem/src/medium/native/holes.rs",
    "crates/pmem/src/medium/view.rs",
    "crates/pmem/src/medium/page_remap.rs",
    "crates/pmem/src/ring.rs",
    "crates/pmem/src/simd/narrow.rs",
    "crates/pmem/src/simd/wide.rs",
    "crates/engines/bptree/src/search.rs",
    "crates/engines/bptree/src/insert.rs",
    "crates/engines/bptree/src/delete.rs",
    "crates/engines/bptree/src/scan.rs",
    "crates/engines/bwtree/src/epoch.rs",
    "crates/engines/bwtree/src/limbo.rs",
    "crates/engines/bwtree/src/node.rs",
    "crates/engines/bwtree/src/node/graves.rs",
    "crates/engines/bwtree/src/pool.rs",
    "crates/engines/bwtree/src/pool/spaces.rs",
    "crates/engines/bwtree/src/record.rs",
    "crates/engines/bwtree/src/slab.rs",
    "crates/engines/bwtree/src/table.rs",
    "crates/cli/src/allocator.rs",
    "crates/lab/competitors/src/syncs.rs",
    "crates/lab/competitors/src/lmdb.rs",
    "crates/lab/competitors/src/berkeley.rs",
    "crates/lab/competitors/src/rocksdb.rs",
];

/// Folders with foreign or generated files.
const SKIPPED: [&str; 3] = ["target", ".git", "bristlecone-data"];

/// A text that must not occur in code below certain folders.
struct Ban {
    text: &'static str,
    under: &'static [&'static str],
    why: &'static str,
}

const TREES: &[&str] = &[
    "crates/engines/bptree/",
    "crates/engines/line/",
    "crates/engines/vlab/",
    "crates/engines/nvtree/",
    "crates/engines/cdds/",
    "crates/index/",
    "crates/bristlecone/",
];
const TREE: &[&str] = &["crates/engines/bptree/src/"];
const ALL: &[&str] = &[""];

const BANS: &[Ban] = &[
    Ban { text: concat!("core::", "arch"), under: TREES, why: "Y1: intrinsics belong to pmem" },
    Ban { text: concat!("std::", "arch"), under: TREES, why: "Y1: intrinsics belong to pmem" },
    Ban { text: concat!("asm", "!"), under: TREES, why: "Y1: assembly belongs to pmem" },
    Ban { text: concat!("*", "const "), under: TREES, why: "Y1: raw pointers belong to pmem" },
    Ban { text: concat!("*", "mut "), under: TREES, why: "Y1: raw pointers belong to pmem" },
    Ban { text: concat!("std::", "fs"), under: TREE, why: "Y1: a tree knows no files" },
    Ban { text: concat!("lib", "c::"), under: TREE, why: "Y1: a tree makes no system calls" },
    Ban { text: concat!("TO", "DO"), under: ALL, why: "Y4: finish it, or say in words what is left" },
    Ban { text: concat!("FIX", "ME"), under: ALL, why: "Y4: fix it" },
    Ban { text: concat!("unimplemented", "!"), under: ALL, why: "Y4: implement it" },
    Ban { text: concat!("todo", "!"), under: ALL, why: "Y4: implement it" },
    Ban { text: concat!("#[ig", "nore"), under: ALL, why: "Y4: a test that does not run tests nothing" },
];

/// Prefixes of paths that exist on one machine only. Forbidden in code and documents.
const FOLDERS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Checks every file below `root`.
///
/// # Errors
/// One line for each broken rule.
pub fn run(root: &Path) -> Outcome {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    let mut problems = Vec::new();
    let mut count = 0;
    for name in &files {
        // Binary files are skipped.
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        count += 1;
        problems.extend(judge(name, &text));
        if name.ends_with(".md") || name.ends_with(".rs") {
            problems.extend(prose::problems(name, &text));
        }
    }
    for folder in circles::FREE {
        problems.extend(circles::find(root, folder)?);
    }
    let stale = docs::differing(root)?;
    problems.extend(
        stale.iter().map(|path| format!("{path}: Y8: a table is not its record's: run cargo xtask docs")),
    );
    if problems.is_empty() {
        println!("tidy: {count} files in order");
        return Ok(());
    }
    Err(format!("tidy: {} problems\n  {}", problems.len(), problems.join("\n  ")))
}

/// The names of source files and documents relative to the root, sorted.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> Outcome {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        entries.push(entry.map_err(fail)?.path());
    }
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(root, &path, files)?;
            }
        } else if ["rs", "md", "toml", "sh", "py", "yml"].iter().any(|end| name.ends_with(&format!(".{end}")))
        {
            let inside = path.strip_prefix(root).unwrap_or(&path);
            files.push(inside.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The problems of one file.
fn judge(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut tell = |why: String| problems.push(format!("{name}:{}: {why}", index + 1));
        if let Some(folder) = FOLDERS.iter().find(|folder| names_folder(line, folder)) {
            tell(format!("Y5: {folder} is a folder of one machine"));
        }
        if !name.ends_with(".rs") {
            continue;
        }
        for ban in BANS {
            let here = ban.under.iter().any(|folder| name.starts_with(folder));
            if here && has_word(line, ban.text) {
                tell(format!("{:?}: {}", ban.text, ban.why));
            }
        }
        let code = &code_of(line);
        if has_unsafe(code) && !UNSAFE_FILES.contains(&name) {
            tell("Y2: unsafe code outside the files that may have it".to_owned());
        }
        if asserts_time(code) {
            tell("Y6: asserts a time".to_owned());
        }
    }
    if name.ends_with(".rs") {
        if !text.starts_with("//!") {
            problems.push(format!("{name}: Y3: begins without //!"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            problems.push(format!("{name}: Y3: {lines} lines, more than {LINES_MAX}"));
        }
    }
    problems
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// True if `text` occurs in `line` and is not the end of a longer word.
fn has_word(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| !text.starts_with(is_word) || !line[..at].ends_with(is_word))
}

/// True if the keyword occurs in `code` as a word. Attributes and lints that contain it do not count.
fn has_unsafe(code: &str) -> bool {
    let word = concat!("un", "safe");
    code.match_indices(word).any(|(at, _)| {
        let behind = &code[at + word.len()..];
        !code[..at].ends_with(is_word) && (behind.starts_with([' ', '{']) || behind.is_empty())
    })
}

/// A line without its string literals and its comment. A literal of several lines counts as code.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    for (index, part) in line.replace("\\\"", "").split('"').enumerate() {
        if index % 2 == 1 {
            continue;
        }
        let Some((before, _)) = part.split_once("//") else {
            code.push_str(part);
            continue;
        };
        code.push_str(before);
        break;
    }
    code
}

/// True if a path in the line begins with `folder`: the character before it is not part of a path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder)
        .any(|(at, _)| !line[..at].ends_with(|before: char| is_word(before) || "./-{}".contains(before)))
}

/// True if an assertion compares a time.
fn asserts_time(code: &str) -> bool {
    code.contains("assert") && (code.contains("elapsed(") || code.contains("Duration::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a file with this line in it.
    fn with(name: &str, line: &str) -> Vec<String> {
        judge(name, &format!("//! Head.\n{line}\n"))
    }

    #[test]
    fn the_repository_is_tidy() {
        run(&crate::run::root()).unwrap();
    }

    #[test]
    fn every_ban_is_found_where_it_holds_and_only_there() {
        for ban in BANS {
            let inside =
                format!("{}x.rs", if ban.under == ALL { "crates/server/src/" } else { ban.under[0] });
            assert_eq!(with(&inside, &format!("    {} x", ban.text)).len(), 1, "{}", ban.text);
            if ban.under != ALL {
                assert!(with("crates/pmem/src/x.rs", ban.text).is_empty(), "{}", ban.text);
            }
        }
    }

    #[test]
    fn unsafe_is_found_outside_its_files_but_not_in_comments_and_lints() {
        let block = concat!("let x = un", "safe { y() };");
        assert_eq!(with("crates/lab/src/x.rs", block).len(), 1);
        assert!(with("crates/pmem/src/medium/native.rs", block).is_empty());
        assert!(with("crates/lab/src/x.rs", concat!("#![forbid(un", "safe_code)]")).is_empty());
        assert!(with("crates/lab/src/x.rs", concat!("// un", "safe { }")).is_empty());
        assert_eq!(with("crates/lab/src/x.rs", concat!("pub un", "safe fn f() {")).len(), 1);
    }

    #[test]
    fn a_module_needs_a_head_and_an_end() {
        assert_eq!(judge("crates/lab/src/x.rs", "use a;\n").len(), 1);
        assert_eq!(with("crates/lab/src/x.rs", &"\n".repeat(LINES_MAX)).len(), 1);
    }

    #[test]
    fn folders_of_one_machine_and_clocks_in_assertions_are_found() {
        for folder in FOLDERS {
            assert_eq!(with("README.md", &format!("see {folder}x")).len(), 1, "{folder}");
            assert!(with("README.md", &format!("see net{folder}x")).is_empty(), "{folder}");
        }
        assert_eq!(with("crates/lab/src/x.rs", concat!("ass", "ert!(start.elapsed() < limit);")).len(), 1);
    }
}
