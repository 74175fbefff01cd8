//! The ACL file: one line `user NAME RULE …` for each user. Empty lines and lines that begin with `#` are ignored.
//!
//! Invariant: a file with a wrong line changes nothing. A crash while the server writes the file leaves the old file or the new one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{User, Users};

/// The ACL file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{path}: {why}")]
    Io {
        /// The file.
        path: String,
        /// The reason.
        #[source]
        why: io::Error,
    },
    /// A line is wrong.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
}

/// Checks the name of a user: UTF-8 without spaces and control characters.
#[must_use]
pub fn name(bytes: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(bytes).ok()?;
    let is_usable = !name.is_empty()
        && !name.chars().any(|character| character.is_whitespace() || character.is_control());
    is_usable.then_some(name)
}

/// Reads the users of a file.
///
/// # Errors
/// The file cannot be read, or a line is wrong.
pub fn read(path: &Path) -> Result<Vec<User>, FileError> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|why| FileError::Io { path: shown.clone(), why })?;
    let mut users: Vec<User> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fail = |why: String| FileError::Line { path: shown.clone(), line: index + 1, why };
        let mut words = line.split_whitespace();
        match words.next() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some("user") => {}
            Some(_) => return Err(fail("a line must begin with the word user".to_owned())),
        }
        let name = words.next().and_then(|word| name(word.as_bytes()));
        let name = name.ok_or_else(|| fail("the name of the user is missing".to_owned()))?;
        if users.iter().any(|user| user.name == name) {
            return Err(fail(format!("the user {name} has a line already")));
        }
        let mut user = User::new(name);
        for rule in words {
            user.apply(rule.as_bytes()).map_err(|error| fail(format!("{rule}: {error}")))?;
        }
        users.push(user);
    }
    Ok(users)
}

/// Writes all users to a file that only its owner can read.
///
/// # Errors
/// The file cannot be written: the old one is unchanged. Its directory cannot be synced: the new file is in place, but may not be durable.
pub fn write(path: &Path, users: &Users) -> Result<(), FileError> {
    let text: String = users.all().iter().map(|user| user.line() + "\n").collect();
    replace(path, text.as_bytes()).map_err(|why| FileError::Io { path: path.display().to_string(), why })
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // The file of a write that did not finish may have other permissions.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_users_are_read_again_and_a_wrong_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.acl");
        let users = Users::new(None);
        users.change("bob", |user| user.apply(b">pw").and_then(|()| user.apply(b"~a*"))).unwrap();
        write(&path, &users).unwrap();
        write(&path, &users).unwrap();
        let again = read(&path).unwrap();
        let lines: Vec<_> = again.iter().map(User::line).collect();
        assert_eq!(lines, users.all().iter().map(|user| user.line()).collect::<Vec<_>>());
        for (text, message) in [
            ("\n# users\nuser a on\nuser b foo\n", "users.acl:4: foo: Syntax error"),
            ("user a on\nuser a off\n", "users.acl:2: the user a has a line already"),
            ("user\n", "users.acl:1: the name"),
            ("alice on\n", "users.acl:1: a line must begin"),
        ] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains(message), "{text}");
        }
    }
}
