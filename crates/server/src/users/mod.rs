//! Users, their passwords and permissions: a subset of the access control lists (ACL) of Redis.
//!
//! * [`User`]: one user, changed by rules such as `on`, `>password`, `~pattern`, `+command`.
//! * [`permissions`]: the commands that a user may run. [`mod@file`]: the ACL file.
//!
//! Invariants:
//! * U1: a [`User`] in the table is immutable. A change of a user makes a new [`User`] and a new version of the table. A session compares
//!   the version before each command, so a change holds from the next command on.
//! * U2: the table always has the user `default`.
//! * U3: the server keeps SHA-256 hashes of passwords, not passwords.
//! * U4: if the server does not understand one rule of a change, the whole change has no effect.

pub mod denials;
pub mod file;
pub mod permissions;
pub mod uses;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::Password;
use crate::command::{Command, is};
use crate::glob;
use crate::shared::lock;
use denials::Denials;
use permissions::Commands;
use uses::Uses;

/// Name of the user of a connection that has not named one.
pub const DEFAULT: &str = "default";

/// The pattern of all channels.
const ALL: &[u8] = b"*";

/// SHA-256 of a password.
pub type Hash = [u8; 32];

/// The hash of a password.
#[must_use]
pub fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

/// Keys that a user may read or write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    reads: bool,
    writes: bool,
}

impl KeyPattern {
    fn is_all(&self) -> bool {
        self.pattern == b"*" && self.reads && self.writes
    }
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// True if the user can log in.
    pub is_enabled: bool,
    /// True if every password is accepted.
    pub needs_no_password: bool,
    passwords: Vec<Hash>,
    keys: Vec<KeyPattern>,
    /// Patterns of the channels that the user may use.
    channels: Vec<Vec<u8>>,
    /// The commands that the user may run.
    pub commands: Commands,
}

/// The effect of a rule that is one word.
type Word = fn(&mut User);

/// A rule that cannot be applied. The texts are those of Redis.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RuleError {
    /// The rule is not known.
    #[error("Syntax error")]
    Syntax,
    /// The command or category is not known.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// A first argument behind a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgument,
    /// The password to remove is absent.
    #[error("The password you are trying to remove from the user does not exist")]
    NoPassword,
    /// A hash has the wrong form.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    Hash,
    /// A pattern after one for all keys.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start \
         with an empty list of patterns"
    )]
    AfterAll,
    /// A pattern after one for all channels.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to \
         start with an empty list of channels"
    )]
    AfterAllChannels,
}

/// The reason why a user may not run a command. The texts are those of Redis.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Denied {
    /// The command is not allowed.
    #[error("NOPERM this user has no permissions to run the '{0}' command")]
    Command(String),
    /// A key is not allowed.
    #[error("NOPERM this user has no permissions to access one of the keys used as arguments")]
    Key,
    /// A channel is not allowed.
    #[error("NOPERM this user has no permissions to access one of the channels used as arguments")]
    Channel,
}

impl User {
    /// A user that can do nothing.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_enabled: false,
            needs_no_password: false,
            passwords: Vec::new(),
            keys: Vec::new(),
            channels: Vec::new(),
            commands: Commands::none(),
        }
    }

    /// The user `default`, with all permissions.
    #[must_use]
    pub fn default_user(password: Option<&Password>) -> Self {
        Self {
            is_enabled: true,
            needs_no_password: password.is_none(),
            passwords: password.map(|password| hash(password.bytes())).into_iter().collect(),
            keys: vec![KeyPattern { pattern: b"*".to_vec(), reads: true, writes: true }],
            channels: vec![ALL.to_vec()],
            commands: Commands::all(),
            ..Self::new(DEFAULT)
        }
    }

    /// True if this password lets the client log in. The time does not depend on the number of equal bytes.
    #[must_use]
    pub fn admits(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let same =
            |own: &Hash| own.iter().zip(&given).fold(0, |bits, (own, given)| bits | (own ^ given)) == 0;
        // Compare all of them, so that the time does not tell which one is right.
        let matching = self.passwords.iter().filter(|own| std::hint::black_box(same(own))).count();
        self.is_enabled && (self.needs_no_password || matching > 0)
    }

    /// True if the user may read and write every key.
    #[must_use]
    pub fn has_all_keys(&self) -> bool {
        self.keys.iter().any(KeyPattern::is_all)
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The rule is not understood or cannot be applied. The user is unchanged.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let words: [(&str, Word); 11] = [
            ("on", |user| user.is_enabled = true),
            ("off", |user| user.is_enabled = false),
            ("nopass", |user| {
                user.passwords.clear();
                user.needs_no_password = true;
            }),
            ("resetpass", |user| {
                user.passwords.clear();
                user.needs_no_password = false;
            }),
            ("resetkeys", |user| user.keys.clear()),
            ("allchannels", |user| user.channels = vec![ALL.to_vec()]),
            ("resetchannels", |user| user.channels.clear()),
            ("allcommands", |user| user.commands = Commands::all()),
            ("nocommands", |user| user.commands = Commands::none()),
            ("reset", |user| *user = Self::new(&user.name)),
            ("allkeys", |user| {
                user.keys = vec![KeyPattern { pattern: b"*".to_vec(), reads: true, writes: true }];
            }),
        ];
        if let Some((_, apply)) = words.iter().find(|(word, _)| is(rule, word)) {
            apply(self);
            return Ok(());
        }
        // There are no types with a payload. These rules of Redis have no effect.
        let without_effect = ["sanitize-payload", "skip-sanitize-payload", "clearselectors"];
        if without_effect.iter().any(|word| is(rule, word)) {
            return Ok(());
        }
        match rule {
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', digits @ ..] => self.add_password(parse_hash(digits)?),
            [b'<', password @ ..] => self.remove_password(&hash(password))?,
            [b'!', digits @ ..] => self.remove_password(&parse_hash(digits)?)?,
            [b'~', pattern @ ..] => self.add_keys(pattern, true, true)?,
            [b'&', pattern @ ..] => self.add_channels(pattern)?,
            [b'%', rest @ ..] => {
                let split = rest.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
                let (reads, writes) = match rest[..split].to_ascii_uppercase().as_slice() {
                    b"R" => (true, false),
                    b"W" => (false, true),
                    b"RW" | b"WR" => (true, true),
                    _ => return Err(RuleError::Syntax),
                };
                self.add_keys(&rest[split + 1..], reads, writes)?;
            }
            [sign @ (b'+' | b'-'), what @ ..] => self.commands.change(what, *sign == b'+')?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    /// Makes this hash the only password. `None`: the user needs no password.
    pub fn set_password(&mut self, hash: Option<Hash>) {
        self.needs_no_password = hash.is_none();
        self.passwords = hash.into_iter().collect();
    }

    fn add_password(&mut self, hash: Hash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &Hash) -> Result<(), RuleError> {
        let index = self.passwords.iter().position(|own| own == hash).ok_or(RuleError::NoPassword)?;
        self.passwords.remove(index);
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        check_pattern(pattern)?;
        if self.has_all_channels() {
            return if pattern == ALL { Ok(()) } else { Err(RuleError::AfterAllChannels) };
        }
        if pattern == ALL {
            self.channels.clear();
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        check_pattern(pattern)?;
        if self.has_all_keys() {
            return if pattern == b"*" { Ok(()) } else { Err(RuleError::AfterAll) };
        }
        let added = KeyPattern { pattern: pattern.to_vec(), reads, writes };
        if added.is_all() {
            self.keys.clear();
        }
        match self.keys.iter_mut().find(|known| known.pattern == added.pattern) {
            Some(known) => (known.reads, known.writes) = (known.reads || reads, known.writes || writes),
            None => self.keys.push(added),
        }
        Ok(())
    }

    /// Checks that the user may run a command with these arguments. A user that may do everything costs three comparisons.
    ///
    /// # Errors
    /// The command, a key or a channel is not allowed.
    pub fn check(&self, command: &Command, arguments: &[Bytes]) -> Result<(), Denied> {
        if !self.commands.allow(command, arguments) {
            return Err(Denied::Command(permissions::full_name(command, arguments)));
        }
        if !self.has_all_channels() && self.denied_channel(command, arguments).is_some() {
            return Err(Denied::Channel);
        }
        if self.keys.first().is_some_and(KeyPattern::is_all) {
            return Ok(());
        }
        let is_allowed = self.denied_key(command, arguments).is_none();
        if is_allowed && (command.name != "range" || self.may_read_all_keys()) {
            Ok(())
        } else {
            Err(Denied::Key)
        }
    }

    /// True if the user may read every key.
    #[must_use]
    pub fn may_read_all_keys(&self) -> bool {
        self.keys.iter().any(|keys| keys.reads && keys.pattern == ALL)
    }

    /// The first key that the command reads or writes without the user's permission to do so.
    #[must_use]
    pub fn denied_key<'a>(&self, command: &Command, arguments: &'a [Bytes]) -> Option<&'a [u8]> {
        let may = |(position, key): &(usize, &[u8])| {
            let uses = Uses::of(command, arguments, *position);
            self.keys.iter().any(|keys| {
                (!uses.reads() || keys.reads)
                    && (!uses.writes() || keys.writes)
                    && glob::matches(&keys.pattern, key)
            })
        };
        permissions::keys(command, arguments).find(|key| !may(key)).map(|(_, key)| key)
    }

    /// True if the user may use every channel.
    fn has_all_channels(&self) -> bool {
        self.channels.iter().any(|pattern| pattern == ALL)
    }

    /// True if the user may use a channel. A pattern to subscribe to must be one of the user's patterns.
    #[must_use]
    pub fn may_use_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels()
            || self.channels.iter().any(|known| match is_pattern {
                true => known == channel,
                false => glob::matches(known, channel),
            })
    }

    /// The first channel that the command uses without the user's permission to do so.
    #[must_use]
    pub fn denied_channel<'a>(&self, command: &Command, arguments: &'a [Bytes]) -> Option<&'a [u8]> {
        let mut channels = permissions::channels(command, arguments);
        let denied = channels.find(|(channel, is_pattern)| !self.may_use_channel(channel, *is_pattern));
        denied.map(|(channel, _)| channel)
    }

    /// `on` or `off`, and `nopass` if the user needs no password.
    #[must_use]
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags
    }

    /// The hashes in hexadecimal.
    #[must_use]
    pub fn password_hashes(&self) -> Vec<String> {
        self.passwords
            .iter()
            .map(|hash| hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
            .collect()
    }

    /// The patterns as rules, separated by spaces.
    #[must_use]
    pub fn key_rules(&self) -> String {
        let rule = |keys: &KeyPattern| {
            let prefix = match (keys.reads, keys.writes) {
                (true, false) => "%R~",
                (false, true) => "%W~",
                _ => "~",
            };
            format!("{prefix}{}", String::from_utf8_lossy(&keys.pattern))
        };
        self.keys.iter().map(rule).collect::<Vec<_>>().join(" ")
    }

    /// The patterns of channels as rules, separated by spaces.
    #[must_use]
    pub fn channel_rules(&self) -> String {
        let rules = self.channels.iter().map(|pattern| format!("&{}", String::from_utf8_lossy(pattern)));
        rules.collect::<Vec<_>>().join(" ")
    }

    /// The user as a line of an ACL file. The rules make the same user again.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("user {} {}", self.name, self.flags().join(" "));
        for hash in self.password_hashes() {
            let _ = write!(line, " #{hash}");
        }
        let reset = if self.has_all_channels() { "" } else { "resetchannels" };
        let rules = [&self.key_rules(), reset, &self.channel_rules(), &self.commands.rules()];
        rules.iter().filter(|rules| !rules.is_empty()).for_each(|rules| line += &format!(" {rules}"));
        line
    }
}

/// Users are written to a text file, where spaces separate rules.
fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    let is_word =
        |text: &str| !text.chars().any(|character| character.is_whitespace() || character.is_control());
    if std::str::from_utf8(pattern).is_ok_and(is_word) { Ok(()) } else { Err(RuleError::Syntax) }
}

fn parse_hash(digits: &[u8]) -> Result<Hash, RuleError> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(RuleError::Hash),
    };
    let mut hash = [0; 32];
    if digits.len() != 2 * hash.len() {
        return Err(RuleError::Hash);
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(hash)
}

type Table = BTreeMap<String, Arc<User>>;

/// All users.
#[derive(Debug)]
pub struct Users {
    table: Mutex<Table>,
    /// Increases with every change of the table.
    version: AtomicU64,
    /// The refused requests.
    pub denials: Denials,
}

impl Users {
    /// Only the user `default`, with this password.
    #[must_use]
    pub fn new(password: Option<&Password>) -> Self {
        let table = BTreeMap::from([(DEFAULT.to_owned(), Arc::new(User::default_user(password)))]);
        Self { table: Mutex::new(table), version: AtomicU64::new(1), denials: Denials::default() }
    }

    /// The version of the table (U1).
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The user of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<User>> {
        lock(&self.table).get(name).cloned()
    }

    /// All users, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<User>> {
        lock(&self.table).values().cloned().collect()
    }

    /// The user of a connection that has not logged in: `default`, if it needs no password.
    #[must_use]
    pub fn initial(&self) -> Option<Arc<User>> {
        self.find(DEFAULT).filter(|user| user.is_enabled && user.needs_no_password)
    }

    /// Changes a user in one step, or makes one. `change` gets a copy.
    ///
    /// # Errors
    /// Those of `change`. Nothing has changed then.
    pub fn change<E>(&self, name: &str, change: impl FnOnce(&mut User) -> Result<(), E>) -> Result<(), E> {
        let mut table = lock(&self.table);
        let mut user = table.get(name).map_or_else(|| User::new(name), |user| User::clone(user));
        change(&mut user)?;
        table.insert(name.to_owned(), Arc::new(user));
        self.version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Removes a user. False if there is none, or if it is `default` (U2).
    pub fn remove(&self, name: &str) -> bool {
        let is_removed = name != DEFAULT && lock(&self.table).remove(name).is_some();
        self.version.fetch_add(u64::from(is_removed), Ordering::AcqRel);
        is_removed
    }

    /// Replaces all users. A missing `default` stays as it is.
    pub fn replace(&self, users: Vec<User>) {
        let mut table = lock(&self.table);
        let kept = table.remove(DEFAULT);
        *table = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        if let Some(kept) = kept {
            table.entry(DEFAULT.to_owned()).or_insert(kept);
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(rules: &str) -> User {
        let mut user = User::new("bob");
        rules.split_whitespace().for_each(|rule| user.apply(rule.as_bytes()).unwrap());
        user
    }

    fn check(user: &User, words: &str) -> Result<(), Denied> {
        let arguments: Vec<Bytes> = words.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
        user.check(crate::command::find(&arguments[0]).unwrap(), &arguments)
    }

    #[test]
    fn a_new_user_can_do_nothing() {
        let user = user("");
        assert!(!user.admits(b"") && !user.admits(b"x"));
        assert_eq!(check(&user, "get k"), Err(Denied::Command("get".to_owned())));
        assert_eq!(user.line(), "user bob off resetchannels -@all");
    }

    #[test]
    fn passwords_are_kept_as_hashes_and_compared_as_a_whole() {
        let mut user = user("on >secret");
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret", b"\0ecret"] {
            assert!(!user.admits(wrong));
        }
        assert!(user.admits(b"secret"));
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(user.line(), format!("user bob on #{digest} resetchannels -@all"));
        assert!(!format!("{user:?}").contains("secret"));
        user.apply(b"off").unwrap();
        assert!(!user.admits(b"secret"), "a user that is off cannot log in");
        user.apply(format!("!{digest}").as_bytes()).unwrap();
        assert_eq!(user.apply(b"<secret"), Err(RuleError::NoPassword));
        assert_eq!(user.apply(b"#12"), Err(RuleError::Hash));
        user.apply(b"on").and_then(|()| user.apply(b"nopass")).unwrap();
        assert!(user.admits(b"anything"));
        user.apply(b">x").unwrap();
        assert!(!user.admits(b"anything"), "a password ends nopass");
    }

    #[test]
    fn keys_are_checked_for_what_a_command_does_with_them() {
        let user = user("on +@all ~a* %R~r* %W~w*");
        for allowed in [
            "get a1",
            "set a1 v",
            "get r1",
            "set w1 v",
            "del w1 a1",
            "copy r1 w1",
            "mget a1 r2",
            "rename a1 w1",
            "ping",
        ] {
            assert_eq!(check(&user, allowed), Ok(()), "{allowed}");
        }
        let denied = [
            "get b",
            "set r1 v",
            "get w1",
            "getdel w1",
            "set w1 v GET",
            "mget a1 b",
            "del a1 r1",
            "copy w1 a1",
            "copy r1 r2",
            "rename r1 a1",
            "incr w1",
            "mset w1 v r1 v",
            "watch b",
            "object encoding b",
            "range - +",
        ];
        for denied in denied {
            assert_eq!(check(&user, denied), Err(Denied::Key), "{denied}");
        }
    }

    #[test]
    fn wrong_rules_change_nothing() {
        let mut user = user("on ~a* +get");
        let line = user.line();
        for (rule, error) in [
            ("foo", RuleError::Syntax),
            ("", RuleError::Syntax),
            ("%X~a", RuleError::Syntax),
            ("%R", RuleError::Syntax),
            ("~a b", RuleError::Syntax),
            ("(~a)", RuleError::Syntax),
            ("+nosuch", RuleError::Unknown),
            ("+@nosuch", RuleError::Unknown),
            ("-get|x", RuleError::Unknown),
        ] {
            assert_eq!(user.apply(rule.as_bytes()), Err(error), "{rule}");
        }
        assert_eq!(user.line(), line);
        user.apply(b"allkeys").unwrap();
        assert_eq!(user.apply(b"~x"), Err(RuleError::AfterAll));
    }

    #[test]
    fn the_line_of_a_user_makes_the_same_user() {
        for rules in [
            "on nopass allkeys +@all",
            "off",
            "on >a >b ~x %R~y %W~z -@all +@read -get +client|id",
            "+@all -@dangerous -config|get",
        ] {
            let first = user(rules);
            let again = user(first.line().strip_prefix("user bob ").unwrap());
            assert_eq!(again.line(), first.line());
            for words in [
                "get x",
                "set z 1",
                "keys *",
                "client id",
                "client kill",
                "config get",
                "config set",
                "flushall",
            ] {
                assert_eq!(check(&again, words), check(&first, words), "{words} of {rules}");
            }
        }
    }
}
