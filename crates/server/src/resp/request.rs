//! The request parser: takes bytes as they arrive, and returns commands.
//!
//! Invariants:
//! * I1: the declared length of an argument alone allocates no memory. `held_bytes` counts the bytes of an argument only when the argument
//!   is complete. The limit `command_bytes_max` applies to the declared lengths. The declared number of arguments allocates space for at
//!   most `ARGUMENTS_RESERVED` list entries. The list grows as further arguments arrive.
//! * I2: every byte is read a bounded number of times, however the input is split. Parsed bytes are consumed. An unfinished header line has
//!   at most `HEADER_BYTES_MAX` bytes. The search in an unfinished inline line resumes at its last position.
//! * I3: the same bytes give the same commands, however they are split.
//! * I4: before the client has logged in, a command in array form has at most `STRANGER_ARGUMENTS_MAX` arguments, each of at most
//!   `STRANGER_BULK_BYTES_MAX` bytes, as in Redis. An inline command has only the limit `inline_bytes_max`.
//! * I5: the parser is not used after an error, because the connection closes.

use bytes::{Buf, Bytes, BytesMut};

/// Maximum length of a header line (`*3`, `$5`) in bytes, including its CRLF. A sign and the digits of an `i64` fit.
const HEADER_BYTES_MAX: usize = 32;
/// Overhead of an argument in bytes: its entry in the list and its header.
const ARGUMENT_OVERHEAD_BYTES: usize = 48;
/// Initial capacity of the list of arguments.
const ARGUMENTS_RESERVED: usize = 8;

/// Maximum number of arguments before the client has logged in.
const STRANGER_ARGUMENTS_MAX: usize = 10;
/// Maximum bytes of an argument before the client has logged in.
const STRANGER_BULK_BYTES_MAX: usize = 16 << 10;

/// Limits of one command. A command beyond them is a protocol error.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum length of a bulk string in bytes.
    pub bulk_bytes_max: usize,
    /// Maximum number of arguments, with the name.
    pub arguments_max: usize,
    /// Maximum length of an inline command in bytes.
    pub inline_bytes_max: usize,
    /// Maximum bytes of a command: all arguments with their overhead.
    pub command_bytes_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            bulk_bytes_max: 256 << 20,
            arguments_max: 1 << 20,
            inline_bytes_max: 64 << 10,
            command_bytes_max: 512 << 20,
        }
    }
}

/// A malformed request. The texts are those of Redis where it has one, because clients match on them.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// `*` without a number, with a negative number other than -1, or with a number beyond the limit; an inline command with too many
    /// arguments.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// `$` without a number, with a negative number, or with a number beyond the limit.
    #[error("invalid bulk length")]
    BulkLength,
    /// Too many arguments before AUTH.
    #[error("unauthenticated multibulk length")]
    StrangerArrayLength,
    /// A bulk string that is too long before AUTH.
    #[error("unauthenticated bulk length")]
    StrangerBulkLength,
    /// An element of an array is not a bulk string.
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    ExpectedBulk(u8),
    /// A bulk string does not end at its declared length.
    #[error("expected CRLF after a bulk string")]
    BulkEnd,
    /// A header line is too long.
    #[error("too big count string")]
    HeaderTooLong,
    /// A header line ends with a line feed without a carriage return.
    #[error("expected CRLF after a length")]
    HeaderEnd,
    /// An inline command is too long.
    #[error("too big inline request")]
    InlineTooLong,
    /// An inline command has unbalanced quotes.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A command has too many bytes.
    #[error("a command of more than {0} bytes")]
    CommandTooLong(usize),
}

/// The position of the parser.
#[derive(Debug, Default)]
enum State {
    /// Before the first byte of a command.
    #[default]
    Start,
    /// In an inline line. This many of its bytes were searched for the end.
    Inline { searched: usize },
    /// In an array. This many arguments are missing. The length of the next argument, if known.
    Array { missing: usize, bulk_bytes: Option<usize> },
}

/// An incremental parser of requests. Pass it the connection's buffer whenever bytes have arrived.
#[derive(Debug)]
pub struct RequestParser {
    limits: RequestLimits,
    is_admitted: bool,
    state: State,
    arguments: Vec<Bytes>,
    /// Bytes that the command has declared so far, with overhead.
    command_bytes: usize,
    /// Bytes of the complete arguments.
    arrived_bytes: usize,
}

impl RequestParser {
    /// A parser before the first byte.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            limits,
            is_admitted: true,
            state: State::Start,
            arguments: Vec::new(),
            command_bytes: 0,
            arrived_bytes: 0,
        }
    }

    /// Sets whether the client has logged in or does not need to.
    pub fn set_admitted(&mut self, is_admitted: bool) {
        self.is_admitted = is_admitted;
    }

    /// Bytes held for the unfinished command, without those in the buffer.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.arrived_bytes + self.arguments.capacity() * size_of::<Bytes>()
    }

    /// True before the first byte of a command.
    #[must_use]
    pub fn is_between_commands(&self) -> bool {
        matches!(self.state, State::Start)
    }

    /// Bytes that the current argument lacks beside the `buffered` ones: a hint for the size of the next read. 0 if its length is unknown.
    #[must_use]
    pub fn wanted_bytes(&self, buffered: usize) -> usize {
        match self.state {
            State::Array { bulk_bytes: Some(bytes), .. } => (bytes + 2).saturating_sub(buffered),
            _ => 0,
        }
    }

    /// Takes the next command from the front of `buffer`. `None` if more bytes are needed. Skips commands without arguments (an empty line,
    /// `*0`, `*-1`).
    ///
    /// # Errors
    /// The bytes are not a command, or exceed the limits.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            let done = match self.state {
                State::Start => match buffer.first() {
                    None => return Ok(None),
                    Some(b'*') => self.array_header(buffer)?,
                    Some(_) => {
                        self.state = State::Inline { searched: 0 };
                        continue;
                    }
                },
                State::Inline { searched } => self.inline(buffer, searched)?,
                State::Array { missing, bulk_bytes: None } => self.bulk_header(buffer, missing)?,
                State::Array { missing, bulk_bytes: Some(bytes) } => self.bulk(buffer, missing, bytes)?,
            };
            match done {
                Step::Wait => return Ok(None),
                Step::On => {}
                Step::Command => {
                    self.state = State::Start;
                    self.command_bytes = 0;
                    self.arrived_bytes = 0;
                    let arguments = std::mem::take(&mut self.arguments);
                    if !arguments.is_empty() {
                        return Ok(Some(arguments));
                    }
                }
            }
        }
    }

    fn array_header(&mut self, buffer: &mut BytesMut) -> Result<Step, ProtocolError> {
        let Some(line) = header_line(buffer)? else { return Ok(Step::Wait) };
        let count = decimal(&line[1..]).ok_or(ProtocolError::ArrayLength)?;
        buffer.advance(line.len() + 2);
        if count <= 0 {
            return if count < -1 { Err(ProtocolError::ArrayLength) } else { Ok(Step::Command) };
        }
        let missing = usize::try_from(count).map_err(|_| ProtocolError::ArrayLength)?;
        if missing > self.limits.arguments_max {
            return Err(ProtocolError::ArrayLength);
        }
        if !self.is_admitted && missing > STRANGER_ARGUMENTS_MAX {
            return Err(ProtocolError::StrangerArrayLength);
        }
        self.arguments.reserve(missing.min(ARGUMENTS_RESERVED));
        self.state = State::Array { missing, bulk_bytes: None };
        Ok(Step::On)
    }

    fn bulk_header(&mut self, buffer: &mut BytesMut, missing: usize) -> Result<Step, ProtocolError> {
        match buffer.first() {
            None => return Ok(Step::Wait),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
        }
        let Some(line) = header_line(buffer)? else { return Ok(Step::Wait) };
        let bytes = decimal(&line[1..]).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes =
            bytes.filter(|&bytes| bytes <= self.limits.bulk_bytes_max).ok_or(ProtocolError::BulkLength)?;
        if !self.is_admitted && bytes > STRANGER_BULK_BYTES_MAX {
            return Err(ProtocolError::StrangerBulkLength);
        }
        buffer.advance(line.len() + 2);
        self.command_bytes += bytes + ARGUMENT_OVERHEAD_BYTES;
        if self.command_bytes > self.limits.command_bytes_max {
            return Err(ProtocolError::CommandTooLong(self.limits.command_bytes_max));
        }
        self.state = State::Array { missing, bulk_bytes: Some(bytes) };
        Ok(Step::On)
    }

    fn bulk(&mut self, buffer: &mut BytesMut, missing: usize, bytes: usize) -> Result<Step, ProtocolError> {
        // Each byte of the end is checked when it arrives. So a wrong end is an error at once.
        if buffer.get(bytes).is_some_and(|&end| end != b'\r')
            || buffer.get(bytes + 1).is_some_and(|&end| end != b'\n')
        {
            return Err(ProtocolError::BulkEnd);
        }
        if buffer.len() < bytes + 2 {
            return Ok(Step::Wait);
        }
        self.arguments.push(buffer.split_to(bytes).freeze());
        self.arrived_bytes += bytes;
        buffer.advance(2);
        if missing == 1 {
            return Ok(Step::Command);
        }
        self.state = State::Array { missing: missing - 1, bulk_bytes: None };
        Ok(Step::On)
    }

    fn inline(&mut self, buffer: &mut BytesMut, searched: usize) -> Result<Step, ProtocolError> {
        let Some(end) = buffer[searched..].iter().position(|&byte| byte == b'\n') else {
            // The last byte may be the carriage return of a line that just fits.
            if buffer.len() > self.limits.inline_bytes_max + 1 {
                return Err(ProtocolError::InlineTooLong);
            }
            self.state = State::Inline { searched: buffer.len() };
            return Ok(Step::Wait);
        };
        let line = buffer.split_to(searched + end + 1).freeze();
        let line = &line[..line.len() - 1];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.limits.inline_bytes_max {
            return Err(ProtocolError::InlineTooLong);
        }
        self.arguments = split_line(line)?;
        if self.arguments.len() > self.limits.arguments_max {
            return Err(ProtocolError::ArrayLength);
        }
        Ok(Step::Command)
    }
}

enum Step {
    /// More bytes are needed.
    Wait,
    /// Bytes were consumed.
    On,
    /// A command is complete.
    Command,
}

/// The header line at the front of the buffer without its CRLF. `None` while it is incomplete.
fn header_line(buffer: &BytesMut) -> Result<Option<&[u8]>, ProtocolError> {
    let window = &buffer[..buffer.len().min(HEADER_BYTES_MAX)];
    match window.iter().position(|&byte| byte == b'\n') {
        Some(end) => window[..end].strip_suffix(b"\r").map(Some).ok_or(ProtocolError::HeaderEnd),
        None if window.len() == HEADER_BYTES_MAX => Err(ProtocolError::HeaderTooLong),
        None => Ok(None),
    }
}

/// Parses a decimal number: an optional minus sign and at most 18 digits.
fn decimal(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0_i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -number } else { number })
}

/// Splits an inline line into arguments, separated by spaces. Double quotes allow the escapes `\n \r \t \b \a \xHH`, single quotes `\'`.
/// After a closing quote there must be a space or the end.
fn split_line(line: &[u8]) -> Result<Vec<Bytes>, ProtocolError> {
    let mut arguments = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at == line.len() {
            return Ok(arguments);
        }
        let mut argument = Vec::new();
        while let Some(&byte) = line.get(at) {
            match byte {
                _ if byte.is_ascii_whitespace() => break,
                b'"' | b'\'' => at = quoted(line, at + 1, byte, &mut argument)?,
                _ => {
                    argument.push(byte);
                    at += 1;
                }
            }
        }
        arguments.push(Bytes::from(argument));
    }
}

/// Reads up to the closing quote. Returns the position after it.
fn quoted(line: &[u8], mut at: usize, quote: u8, argument: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match &line[at.min(line.len())..] {
            [] => return Err(ProtocolError::Quotes),
            [end, rest @ ..] if *end == quote => {
                return match rest.first() {
                    Some(next) if !next.is_ascii_whitespace() => Err(ProtocolError::Quotes),
                    _ => Ok(at + 1),
                };
            }
            [b'\\', b'\'', ..] if quote == b'\'' => {
                argument.push(b'\'');
                at += 2;
            }
            [b'\\', b'x', high, low, ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                argument.push(hex_digit(*high) << 4 | hex_digit(*low));
                at += 4;
            }
            [b'\\', escaped, ..] if quote == b'"' => {
                argument.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            [byte, ..] => {
                argument.push(*byte);
                at += 1;
            }
        }
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
