//! The parser of memcached's protocols: takes bytes as they arrive, and returns requests.
//!
//! Invariants:
//! * P1: the declared length of data alone allocates no memory. Data beyond the limit of items is discarded as it arrives.
//! * P2: every byte is read a bounded number of times, however the input is split. The search for the end of a line resumes at its last
//!   position. An unfinished line has at most [`LINE_BYTES_MAX`] bytes, or [`KEYS_BYTES_MAX`] if it begins with the name of a command
//!   with many keys.
//! * P3: the same bytes give the same requests, however they are split.
//! * P4: before the client has logged in, only the login itself has data, of at most [`LOGIN_BYTES_MAX`] bytes, and a line has at most
//!   [`LINE_BYTES_MAX`] bytes.
//! * P5: the parser is not used after an error, because the connection closes.

use bytes::{Buf as _, Bytes, BytesMut};

use super::item;
use super::options::Options;
use super::words::{KEY_BYTES_MAX, behind, decode_base64, is_key, length, share, signed, split, unsigned};

/// Maximum bytes of a line, without its end.
pub const LINE_BYTES_MAX: usize = 2048;
/// Maximum bytes of a line with many keys.
pub const KEYS_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of a user and a password.
pub const LOGIN_BYTES_MAX: usize = 2048;
/// Maximum number of words of a meta command.
const META_WORDS_MAX: usize = 19;
/// The first byte of a request of the binary protocol.
const BINARY: u8 = 0x80;

const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_FLAGS: &str = "CLIENT_ERROR invalid or duplicate flag";

/// What a storage command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores.
    Set,
    /// Stores if there is no item.
    Add,
    /// Stores if there is an item.
    Replace,
    /// Adds data after that of the item.
    Append,
    /// Adds data before that of the item.
    Prepend,
}

/// A storage command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The key.
    pub key: Bytes,
    /// What it does.
    pub mode: Mode,
    /// The flags of the client.
    pub flags: u32,
    /// The expiry.
    pub exptime: i64,
    /// The unique number that the item must have.
    pub compare: Option<u64>,
    /// True if the client wants no reply.
    pub is_quiet: bool,
    /// The flags, if this is `ms`.
    pub options: Option<Options>,
}

/// The name of a meta command that has no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meta {
    /// `mg`.
    Get,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `get`, `gets`, `gat` or `gats`.
    Get {
        /// The keys, separated by spaces.
        keys: Bytes,
        /// True to reply with unique numbers.
        with_cas: bool,
        /// The new expiry.
        exptime: Option<i64>,
    },
    /// A storage command with its data.
    Store(Storage, Bytes),
    /// A storage command whose data is too large. Its data is discarded. `removes`: the key whose item is removed.
    TooLarge {
        /// The key whose item is removed, because its new value is lost.
        removes: Option<Bytes>,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: Bytes,
        /// The new expiry.
        exptime: i64,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: Bytes,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
    /// `incr` or `decr`.
    Arithmetic {
        /// The key.
        key: Bytes,
        /// True for `incr`.
        adds: bool,
        /// The number.
        delta: u64,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
    /// `flush_all` after this time.
    Flush {
        /// The time, as an expiry. 0 or less: now.
        exptime: i64,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
    /// A meta command without data, its key and its flags.
    Meta(Meta, Bytes, Options),
    /// `me`: the key as it is written, and decoded.
    Debug {
        /// The key as the client wrote it.
        written: Bytes,
        /// The key.
        key: Bytes,
    },
    /// `stats`: its arguments.
    Stats(Bytes),
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// A user and a password.
    Login(Bytes),
    /// A request that has only a reply. `is_quiet`: not even that.
    Reply {
        /// The reply.
        text: &'static str,
        /// True if the client wants no reply.
        is_quiet: bool,
    },
}

/// Bytes that are not a request. The connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line is longer than the limit.
    #[error("CLIENT_ERROR line too long")]
    LineTooLong,
    /// The binary protocol.
    #[error(
        "CLIENT_ERROR this server does not speak the binary protocol of memcached: set the client to the text protocol"
    )]
    Binary,
}

/// The parser of a connection.
#[derive(Debug)]
pub struct Parser {
    item_bytes_max: usize,
    is_admitted: bool,
    /// Bytes at the front of the input that contain no end of a line.
    searched: usize,
    /// Bytes to discard.
    discarded: usize,
    /// A storage command that waits for its data, and the bytes of it with their line end.
    waiting: Option<(Box<Storage>, usize)>,
    /// Bytes of a login that has not arrived completely.
    login: Option<usize>,
}

fn reply(text: &'static str) -> Request {
    Request::Reply { text, is_quiet: false }
}

impl Parser {
    /// A parser for items of at most this size ([`item::size`]).
    #[must_use]
    pub fn new(item_bytes_max: usize) -> Self {
        Self { item_bytes_max, is_admitted: true, searched: 0, discarded: 0, waiting: None, login: None }
    }

    /// Sets whether the client has logged in (P4).
    pub fn set_admitted(&mut self, is_admitted: bool) {
        self.is_admitted = is_admitted;
    }

    /// True if all bytes of the requests that were begun have arrived.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        self.discarded == 0 && self.waiting.is_none() && self.login.is_none()
    }

    /// Number of bytes that the next read should have space for, if `present` bytes are there.
    #[must_use]
    pub fn wanted_bytes(&self, present: usize) -> usize {
        let wanted = self.waiting.as_ref().map_or(0, |(_, bytes)| *bytes).max(self.discarded);
        wanted.saturating_sub(present)
    }

    /// The next request. `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        let discarded = self.discarded.min(input.len());
        input.advance(discarded);
        self.discarded -= discarded;
        if self.discarded > 0 {
            return Ok(None);
        }
        if let Some(bytes) = self.login {
            let Some(data) = take_data(input, bytes) else { return Ok(None) };
            self.login = None;
            return Ok(Some(
                data.map_or(reply("CLIENT_ERROR bad authentication token format"), Request::Login),
            ));
        }
        if let Some((storage, bytes)) = self.waiting.take() {
            let Some(data) = take_data(input, bytes) else {
                self.waiting = Some((storage, bytes));
                return Ok(None);
            };
            let is_quiet = storage.is_quiet && storage.options.is_none();
            let wrong = Request::Reply { text: "CLIENT_ERROR bad data chunk", is_quiet };
            return Ok(Some(data.map_or(wrong, |data| Request::Store(*storage, data))));
        }
        let Some(line) = self.take_line(input)? else { return Ok(None) };
        let request = if self.is_admitted { self.request(&line) } else { self.login(&line) };
        match request {
            Some(request) => Ok(Some(request)),
            None => self.next(input),
        }
    }

    fn take_line(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, ProtocolError> {
        if input.first() == Some(&BINARY) {
            return Err(ProtocolError::Binary);
        }
        let found = input[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = found.map(|index| self.searched + index);
        let length = end.unwrap_or(input.len());
        if length > LINE_BYTES_MAX && (length > KEYS_BYTES_MAX || !self.is_admitted || !has_many_keys(input))
        {
            return Err(ProtocolError::LineTooLong);
        }
        let Some(end) = end else {
            self.searched = input.len();
            return Ok(None);
        };
        self.searched = 0;
        let mut line = input.split_to(end + 1).freeze();
        line.truncate(end);
        if line.ends_with(b"\r") {
            line.truncate(end - 1);
        }
        Ok(Some(line))
    }

    /// Reads the line of a client that has not logged in. `None` if it is the beginning of a login.
    fn login(&mut self, line: &[u8]) -> Option<Request> {
        let words: Vec<&[u8]> = split(line).take(7).collect();
        match words[..] {
            [b"quit"] => Some(Request::Quit),
            [b"set", _, _, _, bytes] | [b"set", _, _, _, bytes, _] => {
                match length(bytes).filter(|bytes| *bytes <= LOGIN_BYTES_MAX) {
                    Some(bytes) => {
                        self.login = Some(bytes + 2);
                        None
                    }
                    None => Some(reply("CLIENT_ERROR authentication token too long")),
                }
            }
            _ => Some(reply("CLIENT_ERROR unauthenticated")),
        }
    }

    /// Reads a line. `None` if data follows it.
    fn request(&mut self, line: &Bytes) -> Option<Request> {
        let mut words = split(line);
        let Some(name) = words.next() else { return Some(reply(ERROR)) };
        let mode = |mode| (mode, false);
        let (mode, compares) = match name {
            b"get" | b"bget" | b"gets" | b"gat" | b"gats" => return Some(many(line, name)),
            b"set" => mode(Mode::Set),
            b"add" => mode(Mode::Add),
            b"replace" => mode(Mode::Replace),
            b"append" => mode(Mode::Append),
            b"prepend" => mode(Mode::Prepend),
            b"cas" => (Mode::Set, true),
            b"ms" => return self.meta_set(line),
            b"mg" => return Some(meta(Meta::Get, line)),
            b"md" => return Some(meta(Meta::Delete, line)),
            b"ma" => return Some(meta(Meta::Arithmetic, line)),
            b"me" => return Some(debug(line)),
            b"mn" => return Some(reply("MN")),
            b"version" => return Some(Request::Version),
            b"quit" => return Some(Request::Quit),
            b"stats" => return Some(Request::Stats(behind(line, 1))),
            b"shutdown" => return Some(reply("ERROR: shutdown not enabled")),
            _ => return Some(short(line, name)),
        };
        self.storage(line, mode, compares)
    }

    fn storage(&mut self, line: &Bytes, mode: Mode, compares: bool) -> Option<Request> {
        let words: Vec<&[u8]> = split(line).take(8).collect();
        let plain = if compares { 6 } else { 5 };
        if words.len() != plain && words.len() != plain + 1 {
            return Some(reply(ERROR));
        }
        let is_quiet = words[words.len() - 1] == b"noreply";
        let bad = Some(Request::Reply { text: BAD_FORMAT, is_quiet });
        let compare = if compares { unsigned(words[5]).map(Some) } else { Some(None) };
        let numbers = (unsigned(words[2]), signed(words[3]), length(words[4]), compare);
        let (Some(flags), Some(exptime), Some(bytes), Some(compare)) = numbers else { return bad };
        if !is_key(words[1]) {
            return bad;
        }
        let key = share(line, words[1]);
        let storage = Storage { key, mode, flags: flags as u32, exptime, compare, is_quiet, options: None };
        self.begin(storage, bytes)
    }

    fn meta_set(&mut self, line: &Bytes) -> Option<Request> {
        let mut words = split(line).skip(1);
        let Some(key) = words.next() else { return Some(reply(ERROR)) };
        let bytes = words.next();
        if key.len() > KEY_BYTES_MAX || bytes.is_none() {
            return Some(reply(BAD_FORMAT));
        }
        if split(line).count() > META_WORDS_MAX {
            return Some(reply("CLIENT_ERROR options flags too long"));
        }
        let Some(bytes) = bytes.and_then(length) else { return Some(reply(BAD_FORMAT)) };
        let (key, options) = match Options::parse(line, key, words) {
            Ok((key, options)) if options.has(b'b') || is_key(&key) => (key, options),
            Ok(_) => return self.skip(bytes, BAD_FORMAT),
            Err(error) => return self.skip(bytes, error.text()),
        };
        let mode = match options.mode {
            None | Some(b'S') => Mode::Set,
            Some(b'E') => Mode::Add,
            Some(b'R') => Mode::Replace,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(_) => return self.skip(bytes, "CLIENT_ERROR invalid mode for ms M token"),
        };
        if let Err(error) = options.check_opaque() {
            return self.skip(bytes, error.text());
        }
        let (flags, exptime, compare) = (options.flags, options.exptime.unwrap_or(0), options.compare);
        let is_quiet = options.is_quiet();
        self.begin(Storage { key, mode, flags, exptime, compare, is_quiet, options: Some(options) }, bytes)
    }

    /// Refuses a command and discards its data.
    fn skip(&mut self, bytes: usize, text: &'static str) -> Option<Request> {
        self.discarded = bytes + 2;
        Some(reply(text))
    }

    /// Waits for the data of a command, or discards it if it is too large.
    fn begin(&mut self, storage: Storage, bytes: usize) -> Option<Request> {
        if item::size(storage.key.len(), storage.flags, bytes) > self.item_bytes_max {
            self.discarded = bytes + 2;
            let is_meta = storage.options.is_some();
            // A reader must not find the old value in place of the one that is lost.
            let removes = is_meta || storage.mode == Mode::Set && storage.compare.is_none();
            let is_quiet = storage.is_quiet && !is_meta;
            return Some(Request::TooLarge { removes: removes.then_some(storage.key), is_quiet });
        }
        self.waiting = Some((Box::new(storage), bytes + 2));
        None
    }
}

/// Takes data with its line end, if it has arrived. The inner `None`: there is another text in place of the line end.
fn take_data(input: &mut BytesMut, bytes: usize) -> Option<Option<Bytes>> {
    if input.len() < bytes {
        return None;
    }
    let mut data = input.split_to(bytes).freeze();
    let is_ended = data.ends_with(b"\r\n");
    data.truncate(bytes - 2);
    Some(is_ended.then_some(data))
}

/// True if the bytes begin with the name of a command that may have many keys.
fn has_many_keys(input: &[u8]) -> bool {
    let name = split(&input[..input.len().min(LINE_BYTES_MAX)]).next();
    matches!(name, Some(b"get" | b"gets" | b"gat" | b"gats"))
}

/// `get`, `gets`, `gat` or `gats`.
fn many(line: &Bytes, name: &[u8]) -> Request {
    let mut words = split(line).skip(1);
    let mut keys = behind(line, 1);
    let mut exptime = None;
    let Some(first) = words.next() else { return reply(ERROR) };
    if name.starts_with(b"gat") {
        exptime = signed(first);
        if exptime.is_none() {
            return reply(BAD_EXPTIME);
        }
        keys = behind(line, 2);
    }
    // One wrong key refuses the command, before any item is in the reply.
    if !split(&keys).all(is_key) {
        return reply(BAD_FORMAT);
    }
    Request::Get { keys, with_cas: name.ends_with(b"s"), exptime }
}

/// A command of a few words without data.
fn short(line: &Bytes, name: &[u8]) -> Request {
    let words: Vec<&[u8]> = split(line).take(6).collect();
    let is_quiet = words[words.len() - 1] == b"noreply";
    let refused = |text| Request::Reply { text, is_quiet };
    let key = |word: &[u8]| is_key(word).then(|| share(line, word));
    match (name, &words[1..]) {
        (b"touch", [word, time] | [word, time, _]) => match (key(word), signed(time)) {
            (None, _) => refused(BAD_FORMAT),
            (_, None) => refused(BAD_EXPTIME),
            (Some(key), Some(exptime)) => Request::Touch { key, exptime, is_quiet },
        },
        (b"incr" | b"decr", [word, delta] | [word, delta, _]) => match (key(word), unsigned(delta)) {
            (None, _) => refused(BAD_FORMAT),
            (_, None) => refused("CLIENT_ERROR invalid numeric delta argument"),
            (Some(key), Some(delta)) => Request::Arithmetic { key, adds: name == b"incr", delta, is_quiet },
        },
        (b"delete", [word, rest @ ..]) if rest.len() <= 2 => match rest {
            [] | [b"0" | b"noreply"] | [b"0", b"noreply"] => match key(word) {
                Some(key) => Request::Delete { key, is_quiet },
                None => refused(BAD_FORMAT),
            },
            _ => refused("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        },
        (b"flush_all", []) | (b"flush_all", [b"noreply"]) => Request::Flush { exptime: 0, is_quiet },
        (b"flush_all", [time] | [time, _]) => match signed(time) {
            Some(exptime) => Request::Flush { exptime, is_quiet },
            None => refused(BAD_EXPTIME),
        },
        (b"verbosity", [b"noreply"]) => refused(ERROR),
        (b"verbosity", [level] | [level, _]) if unsigned(level).is_none() => refused(BAD_FORMAT),
        (b"verbosity", [_] | [_, _]) => refused("OK"),
        _ => reply(ERROR),
    }
}

/// A meta command without data.
fn meta(name: Meta, line: &Bytes) -> Request {
    let mut words = split(line).skip(1);
    let Some(key) = words.next() else { return reply(ERROR) };
    if key.len() > KEY_BYTES_MAX {
        return reply(BAD_FORMAT);
    }
    if split(line).count() > META_WORDS_MAX {
        return reply(match name {
            Meta::Get => "CLIENT_ERROR options flags are too long",
            Meta::Delete | Meta::Arithmetic => "CLIENT_ERROR options flags too long",
        });
    }
    match Options::parse(line, key, words) {
        Ok((_, options)) if let Err(error) = options.check_opaque() => reply(error.text()),
        Ok((key, options)) if options.has(b'b') || is_key(&key) => Request::Meta(name, key, options),
        Ok(_) => reply(BAD_FORMAT),
        Err(error) if name == Meta::Get => reply(error.text()),
        Err(_) => reply(BAD_FLAGS),
    }
}

/// `me KEY [b]`.
fn debug(line: &Bytes) -> Request {
    let mut words = split(line).skip(1);
    let key = words.next().filter(|key| key.len() <= KEY_BYTES_MAX);
    let Some(word) = key else { return reply(BAD_FORMAT) };
    let key = match words.next() {
        Some(b"b") => decode_base64(word).map(Bytes::from),
        _ => Some(share(line, word)),
    };
    key.map_or(reply(BAD_FORMAT), |key| Request::Debug { written: share(line, word), key })
}
