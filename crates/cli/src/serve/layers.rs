//! Options of `serve` from the environment and from a configuration file. The command line overrides the environment, and the environment
//! overrides the file.
//!
//! Each value becomes an argument `--name=value` of the command line. A flag that is on becomes `--name`; a flag that
//! is off adds nothing. If a layer has an option, also a flag that is off, the layers below it do not add the option. The
//! parser of the command line checks the values of all three layers. Every option can be given in all three ways, except
//! `config`, which cannot be in the file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory};
use toml::de::{DeTable, DeValue};

use crate::Program;
use crate::failure::{Failure, Result, io};

/// The prefix of the environment variables that set options of `serve`.
pub const PREFIX: &str = "BRISTLECONE_SERVE_";
/// The environment variable that contains the password itself, not the path of a file.
pub const PASSWORD: &str = "BRISTLECONE_PASSWORD";
/// The password in the environment variable [`PASSWORD`]. `None` if the variable is not set or is empty.
pub fn password() -> Option<server::Password> {
    server::Password::new(std::env::var_os(PASSWORD)?.as_bytes())
}

/// Name of the table in the configuration file that gives commands other names.
const RENAMES: &str = "rename-command";

/// An option of `serve`.
struct Known {
    name: String,
    is_flag: bool,
}

/// All options. `config` cannot be in the file.
fn known() -> Vec<Known> {
    let mut program = Program::command();
    let serve = program.find_subcommand_mut("serve").map(|serve| &*serve);
    let arguments = serve.into_iter().flat_map(clap::Command::get_arguments);
    let known = |argument: &clap::Arg| {
        let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
        Some(Known { name: argument.get_long()?.to_owned(), is_flag })
    };
    arguments.filter_map(known).filter(|known| known.name != "help").collect()
}

/// The environment variable of an option.
fn variable(option: &str) -> String {
    PREFIX.to_owned() + &option.replace('-', "_").to_ascii_uppercase()
}

/// Environment variables that begin with the prefix but belong to no option.
pub fn unknown_variables() -> Vec<String> {
    let known: Vec<_> = known().iter().map(|known| variable(&known.name)).collect();
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    variables.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect()
}

/// Adds the options of the environment and of the configuration file to a command line of `serve`. Leaves the command lines of other
/// commands, and those that ask for help, unchanged.
pub fn expand(
    mut line: Vec<OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>> {
    if line.get(1).is_none_or(|command| command != "serve")
        || line.iter().any(|word| word == "--help" || word == "-h")
    {
        return Ok(line);
    }
    let known = known();
    let given = |line: &[OsString], name: &str| {
        let is_this = |word: &OsString| {
            let word = word.as_encoded_bytes();
            word.strip_prefix(b"--")
                .is_some_and(|word| word.split(|byte| *byte == b'=').next() == Some(name.as_bytes()))
        };
        line.iter().any(is_this)
            || name == "max-clients" && line.iter().any(|word| word == "--max-connections")
    };
    let (mut added, mut in_environment) = (Vec::new(), Vec::new());
    for option in &known {
        let variable = variable(&option.name);
        if let Some(value) = environment(&variable).filter(|_| !given(&line, &option.name)) {
            in_environment.push(option.name.clone());
            added.extend(
                argument(option, &value).map_err(|why| Failure::Usage(format!("{variable}: {why}")))?,
            );
        }
    }
    line.append(&mut added);
    if let Some(path) = path(&line) {
        for (name, argument) in file(&path, &known)? {
            if !given(&line, &name) && !in_environment.contains(&name) {
                added.push(argument);
            }
        }
        line.append(&mut added);
    }
    Ok(line)
}

/// The argument for a value. `None` for a flag that is off.
fn argument(option: &Known, value: &OsStr) -> std::result::Result<Option<OsString>, String> {
    let mut argument = OsString::from(format!("--{}", option.name));
    if option.is_flag {
        return match value.to_str() {
            Some("true" | "1") => Ok(Some(argument)),
            Some("false" | "0") => Ok(None),
            _ => Err("give true or false".to_owned()),
        };
    }
    argument.push("=");
    argument.push(value);
    // The parser checks the value here, so that the error can name the variable or line. Options that belong together may be elsewhere.
    match Program::command().try_get_matches_from([OsStr::new("bristlecone"), OsStr::new("serve"), &argument])
    {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
        _ => Ok(Some(argument)),
    }
}

/// The path of the configuration file.
fn path(line: &[OsString]) -> Option<OsString> {
    let mut words = line.iter();
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().cloned();
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    None
}

/// The options of a file: names and arguments.
fn file(path: &OsStr, known: &[Known]) -> Result<Vec<(String, OsString)>> {
    let shown = path.to_string_lossy();
    let text = fs::read_to_string(path).map_err(io(format!("cannot read the configuration {shown}")))?;
    let fail = |at: usize, why: String| {
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        Failure::Usage(format!("{shown}:{line}: {why}"))
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        fail(at, error.message().to_owned())
    })?;
    let mut arguments = Vec::new();
    for (name, value) in table.get_ref() {
        let (name, at) = (name.get_ref().as_ref(), name.span().start);
        if name == RENAMES {
            let renames = value.get_ref().as_table();
            let renames = renames.ok_or_else(|| fail(at, format!("{RENAMES} must be a table")))?;
            for (old, new) in renames {
                let text = new.get_ref().as_str();
                let text =
                    text.ok_or_else(|| fail(old.span().start, "give the new name as a string".to_owned()))?;
                let argument = format!("--{RENAMES}={}={text}", old.get_ref());
                arguments.push((RENAMES.to_owned(), argument.into()));
            }
            continue;
        }
        let option = known.iter().find(|known| known.name == name && name != "config");
        let option = option.ok_or_else(|| fail(at, format!("there is no option {name}")))?;
        let value = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Boolean(flag) => flag.to_string(),
            _ => return Err(fail(at, format!("{name} must be a string, an integer, true or false"))),
        };
        let argument = argument(option, value.as_ref()).map_err(|why| fail(at, why))?;
        arguments.extend(argument.map(|argument| (name.to_owned(), argument)));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(words: &[&str], variables: &[(&str, &str)]) -> std::result::Result<Vec<String>, String> {
        let line = ["bristlecone"].iter().chain(words).map(OsString::from).collect();
        let environment = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let line = expand(line, environment).map_err(|error| error.to_string())?;
        Ok(line.into_iter().skip(words.len() + 1).map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn the_line_wins_over_the_environment_and_the_environment_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.toml");
        fs::write(
            &path,
            "timeout = 1\nmax-clients = 11\nlisten = \"none\"\njson = true\nunprotected = false\n",
        )
        .unwrap();
        let config = format!("--config={}", path.display());
        let variables = [
            ("BRISTLECONE_SERVE_TIMEOUT", "2"),
            ("BRISTLECONE_SERVE_MAX_CLIENTS", "12"),
            ("BRISTLECONE_SERVE_JSON", "0"),
        ];
        let found = expanded(&["serve", &config, "--timeout", "3"], &variables).unwrap();
        assert_eq!(found, ["--max-clients=12", "--listen=none"]);
        let found = expanded(
            &["serve", "--max-connections", "3"],
            &[("BRISTLECONE_SERVE_CONFIG", path.to_str().unwrap())],
        );
        assert_eq!(found.unwrap()[1..], ["--json", "--listen=none", "--timeout=1"]);
        assert_eq!(expanded(&["get", "key"], &variables).unwrap(), [""; 0]);
    }

    #[test]
    fn renamed_commands_are_a_table_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.toml");
        fs::write(&path, "[rename-command]\nKEYS = \"\"\nconfig = \"secret\"\n").unwrap();
        let mut found = expanded(&["serve", &format!("--config={}", path.display())], &[]).unwrap();
        found.sort();
        assert_eq!(found, ["--rename-command=KEYS=", "--rename-command=config=secret"]);
    }

    #[test]
    fn the_packaged_file_is_right() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/bristlecone.toml");
        let found = expanded(&["serve", &format!("--config={path}")], &[]).unwrap();
        assert!(found.contains(&"--listen=127.0.0.1:7379".to_owned()), "{found:?}");
        // So are the lines that an administrator may uncomment.
        let text = fs::read_to_string(path).unwrap();
        let uncommented: String = text
            .lines()
            .map(|line| {
                line.strip_prefix("# ")
                    .filter(|rest| rest.contains(" = ") || rest.starts_with('['))
                    .unwrap_or(line)
            })
            .filter(|line| *line != "listen = \"127.0.0.1:7379\"")
            .fold(String::new(), |text, line| text + line + "\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.toml");
        fs::write(&path, uncommented).unwrap();
        let found = expanded(&["serve", &format!("--config={}", path.display())], &[]).unwrap();
        assert!(found.contains(&"--rename-command=FLUSHALL=".to_owned()), "{found:?}");
    }

    #[test]
    fn a_wrong_file_is_an_error_that_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.toml");
        let config = format!("--config={}", path.display());
        for (text, message) in [
            ("timeout = 1\n\ntimout = 2\n", ":3: there is no option timout"),
            ("\ntimeout = \"soon\"\n", ":2: invalid value 'soon' for '--timeout"),
            ("timeout = [1]\n", ":1: timeout must be a string"),
            ("config = \"other\"\n", ":1: there is no option config"),
            ("timeout = 1\njson = 7\n", ":2: give true or false"),
            ("timeout = 1\ntimeout = 2\n", ":2: "),
            ("timeout\n", ":1: "),
            ("rename-command = 1\n", ":1: rename-command must be a table"),
            ("[rename-command]\nkeys = 1\n", ":2: give the new name"),
        ] {
            fs::write(&path, text).unwrap();
            let error = expanded(&["serve", &config], &[]).unwrap_err();
            assert!(error.contains(message), "{error} for {text:?}");
        }
        let error = expanded(&["serve"], &[("BRISTLECONE_SERVE_TIMEOUT", "soon")]).unwrap_err();
        assert!(error.starts_with("BRISTLECONE_SERVE_TIMEOUT: invalid value 'soon'"), "{error}");
    }
}
