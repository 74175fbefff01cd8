//! Import cycles: source files of a crate that import each other, directly or through others. `tidy` refuses them in the crates of
//! [`FREE`].
//!
//! Only `use` declarations outside of test modules count. Either a file imports items of its children, or the children
//! import items of the file, but not both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The text of each file, by the path of its module.
type Files = BTreeMap<Vec<String>, String>;

/// Source folders of the crates without cycles.
pub const FREE: &[&str] = &["crates/bristlecone/src", "crates/pmem/src", "crates/engines/cdds/src"];

/// One line for each cycle below `folder`, the source folder of a crate.
///
/// # Errors
/// A message if a file cannot be read.
pub fn find(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let mut files = Files::new();
    collect(&root.join(folder), &mut Vec::new(), &mut files)?;
    Ok(circles(&files)
        .into_iter()
        .map(|circle| format!("{folder}: Y7: {} import each other", circle.join(", ")))
        .collect())
}

fn collect(folder: &Path, path: &mut Vec<String>, files: &mut Files) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() {
            path.push(name);
            collect(&entry, path, files)?;
            path.pop();
        } else if entry.extension().is_some_and(|end| end == "rs") {
            let mut module = path.clone();
            if !["mod", "lib", "main"].contains(&name.as_str()) {
                module.push(name);
            }
            files.insert(module, fs::read_to_string(&entry).map_err(fail)?);
        }
    }
    Ok(())
}

/// Groups of files in which each file reaches every other one.
fn circles(files: &Files) -> Vec<Vec<String>> {
    let imports: Imports<'_> =
        files.iter().map(|(module, text)| (module, imported(files, module, text))).collect();
    let reach: BTreeMap<_, _> = files.keys().map(|module| (module, reached(&imports, module))).collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for module in files.keys() {
        let both = |other: &&Vec<String>| reach[module].contains(*other) && reach[*other].contains(module);
        let circle: Vec<_> = files.keys().filter(both).collect();
        if circle.len() > 1 && seen.insert(circle[0]) {
            let name =
                |module: &&Vec<String>| if module.is_empty() { "lib".into() } else { module.join("::") };
            found.push(circle.iter().map(name).collect());
        }
    }
    found
}

type Imports<'f> = BTreeMap<&'f Vec<String>, BTreeSet<&'f Vec<String>>>;

/// The files that a file imports, directly or through others.
fn reached<'f>(imports: &Imports<'f>, from: &'f Vec<String>) -> BTreeSet<&'f Vec<String>> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        left.extend(imports[module].iter().filter(|next| reached.insert(**next)).copied());
    }
    reached
}

/// The files that a file imports directly.
fn imported<'f>(files: &'f Files, module: &[String], text: &str) -> BTreeSet<&'f Vec<String>> {
    let code: String = text
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = BTreeSet::new();
    for declaration in code.split("use ").skip(1) {
        let declaration = declaration.split(';').next().unwrap_or_default();
        for path in paths(declaration) {
            let mut steps = path.split("::").map(|step| step.split_whitespace().next().unwrap_or_default());
            let mut target = match steps.next() {
                Some("crate") => Vec::new(),
                Some("self") => module.to_vec(),
                Some("super") => module[..module.len().saturating_sub(1)].to_vec(),
                _ => continue,
            };
            for step in steps {
                match step {
                    "super" => _ = target.pop(),
                    step => target.push(step.to_owned()),
                }
            }
            // The path may name an item. The file is the longest prefix that is a module.
            let file = (1..=target.len()).rev().find_map(|len| files.get_key_value(&target[..len]));
            found.extend(file.map(|(file, _)| file).filter(|file| file.as_slice() != module));
        }
    }
    found
}

/// The single paths of a `use` declaration with braces.
fn paths(declaration: &str) -> Vec<String> {
    let declaration = declaration.trim();
    let Some((prefix, rest)) = declaration.split_once('{') else { return vec![declaration.to_owned()] };
    let rest = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for character in rest.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one from the beginning").push(character);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| paths(part).into_iter().map(|path| format!("{prefix}{path}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let module =
            |path: &str| path.split("::").filter(|step| !step.is_empty()).map(str::to_owned).collect();
        circles(&files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect())
    }

    #[test]
    fn files_that_import_each_other_are_told_and_others_are_not() {
        let one_way =
            [("a", "use crate::b::{B, c::C};\n"), ("b", "//! Of a.\n"), ("b::c", "use super::B;\n")];
        assert_eq!(of(&one_way), Vec::<Vec<String>>::new());
        let over_three = [
            ("a", "use crate::b::B;\n"),
            ("b", "pub use self::c::C;\n"),
            ("b::c", "use crate::{x, a::A};\n"),
        ];
        assert_eq!(of(&over_three), [["a", "b", "b::c"]]);
        let in_tests_alone =
            [("a", "use crate::b::B;\n"), ("b", "#[cfg(test)]\nmod tests {\n use crate::a::A;\n}\n")];
        assert_eq!(of(&in_tests_alone), Vec::<Vec<String>>::new());
    }
}
