//! The reply encoder: writes values in RESP2 or RESP3.
//!
//! Invariants:
//! * I1: a simple string or error is one line. Line ends inside it are replaced by spaces.
//! * I2: a type that RESP2 lacks is written as the most similar one: a map as a flat array, a null as a null bulk string, a double or a
//!   verbatim text as a bulk string.
//! * I3: a bulk string that would make the reply longer than the limit is an error of the command. The error is found before memory is
//!   allocated.

/// Version of the protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Version 2. A connection starts with it.
    #[default]
    Resp2,
    /// Version 3, after `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The number of the version.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// The version of this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        [Self::Resp2, Self::Resp3].into_iter().find(|version| version.number() == number)
    }
}

/// The reply would exceed the limit of one command.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a reply of more than {0} bytes: ask for less at a time (LIMIT, COUNT, fewer keys)")]
pub struct ReplyTooLong(pub usize);

/// Writes the reply of one command to the end of a connection's output.
#[derive(Debug)]
pub struct Reply<'a> {
    output: &'a mut Vec<u8>,
    start: usize,
    bytes_max: usize,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// A reply of at most `bytes_max` bytes that starts at the end of `output`.
    pub fn new(output: &'a mut Vec<u8>, protocol: Protocol, bytes_max: usize) -> Self {
        let start = output.len();
        Self { output, start, bytes_max, protocol }
    }

    /// The version of the protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the version of the protocol from this reply on.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.output.len() - self.start
    }

    /// Bytes that bulk strings may still take.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes())
    }

    /// The output, for a reply inside this one.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.output
    }

    /// Discards the reply written so far.
    pub fn restart(&mut self) {
        self.output.truncate(self.start);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// A simple string.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error. `text` starts with the error code.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// A number with a fraction. In RESP2, a bulk string.
    pub fn double(&mut self, number: f64) {
        self.double_text(&number.to_string());
    }

    /// A number with a fraction, given as its text.
    pub fn double_text(&mut self, number: &str) {
        match self.protocol {
            Protocol::Resp2 => self.text(number),
            Protocol::Resp3 => self.line(b',', number),
        }
    }

    /// A count as an integer.
    pub fn count(&mut self, count: u64) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// 1 or 0.
    pub fn flag(&mut self, flag: bool) {
        self.integer(i64::from(flag));
    }

    /// True or false. In RESP2, 1 or 0.
    pub fn boolean(&mut self, flag: bool) {
        match self.protocol {
            Protocol::Resp2 => self.flag(flag),
            Protocol::Resp3 => self.output.extend_from_slice(if flag { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Checks that a bulk string of this length fits. A command that removes what it returns checks this first.
    ///
    /// # Errors
    /// The reply is too long.
    pub fn check_space(&self, bytes: usize) -> Result<(), ReplyTooLong> {
        if bytes > self.free_bytes() { Err(ReplyTooLong(self.bytes_max)) } else { Ok(()) }
    }

    /// A bulk string.
    ///
    /// # Errors
    /// The reply is too long.
    pub fn bulk(&mut self, bytes: &[u8]) -> Result<(), ReplyTooLong> {
        self.check_space(bytes.len())?;
        self.any_bulk(bytes);
        Ok(())
    }

    /// A short bulk string of the server. It is written even beyond the limit.
    pub fn text(&mut self, text: &str) {
        self.any_bulk(text.as_bytes());
    }

    /// A bulk string that is written even beyond the limit.
    pub fn any_bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.output.extend_from_slice(bytes);
        self.output.extend_from_slice(b"\r\n");
    }

    /// A text for users.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.text(text),
            Protocol::Resp3 => {
                self.number(b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
                self.output.extend_from_slice(b"txt:");
                self.output.extend_from_slice(text.as_bytes());
                self.output.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Null.
    pub fn null(&mut self) {
        self.output.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Null in place of an array.
    pub fn null_array(&mut self) {
        self.output.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Head of an array. The caller writes its `count` values next.
    pub fn array(&mut self, count: usize) {
        self.number(b'*', i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Head of a set. In RESP2, an array. The caller writes its `count` values next.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(count),
            Protocol::Resp3 => self.number(b'~', i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }

    /// Head of a push: a message that is not the reply to a command. In RESP2, an array.
    pub fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(count),
            Protocol::Resp3 => self.number(b'>', i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }

    /// Head of a map. The caller writes its `count` pairs next, as key, value, key, value …
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(count * 2),
            Protocol::Resp3 => self.number(b'%', i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }

    /// Inserts the head of an array before everything written since `mark` (from [`Reply::bytes`]). For arrays whose length is known only
    /// at their end.
    pub fn array_since(&mut self, mark: usize, count: usize) {
        let body = self.start + mark;
        let end = self.output.len();
        self.array(count);
        let head = self.output.len() - end;
        self.output[body..].rotate_right(head);
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.output.push(kind);
        self.output.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.output.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.output.push(kind);
        if number < 0 {
            self.output.push(b'-');
        }
        self.output.extend_from_slice(&digits[at..]);
        self.output.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut output = b"before".to_vec();
        write(&mut Reply::new(&mut output, protocol, 100));
        String::from_utf8(output.split_off(6)).unwrap()
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(written(Protocol::Resp2, |reply| reply.integer(number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn a_line_end_inside_an_error_does_not_end_it() {
        assert_eq!(written(Protocol::Resp2, |reply| reply.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn what_resp2_lacks_is_written_as_its_relative() {
        let write = |reply: &mut Reply<'_>| {
            reply.map(1);
            reply.text("k");
            reply.null();
            reply.verbatim("hi");
        };
        assert_eq!(written(Protocol::Resp2, write), "*2\r\n$1\r\nk\r\n$-1\r\n$2\r\nhi\r\n");
        assert_eq!(written(Protocol::Resp3, write), "%1\r\n$1\r\nk\r\n_\r\n=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn an_array_of_unknown_length_gets_its_head_at_the_end() {
        let write = |reply: &mut Reply<'_>| {
            reply.simple("x");
            let mark = reply.bytes();
            for _ in 0..12 {
                reply.flag(true);
            }
            reply.array_since(mark, 12);
        };
        assert_eq!(written(Protocol::Resp2, write), format!("+x\r\n*12\r\n{}", ":1\r\n".repeat(12)));
    }

    #[test]
    fn a_reply_beyond_its_limit_is_refused_before_it_grows() {
        let mut output = Vec::new();
        let mut reply = Reply::new(&mut output, Protocol::Resp2, 100);
        assert_eq!(reply.bulk(&[0; 101]), Err(ReplyTooLong(100)));
        assert_eq!(reply.bytes(), 0);
    }
}
