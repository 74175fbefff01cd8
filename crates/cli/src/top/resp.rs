//! A small client of the protocol RESP2: sends commands and reads their replies.
//!
//! The size of a reply is bounded, so that a peer that is not a RESP server cannot exhaust the memory.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Maximum time of a read, of a write, and of connecting to one address.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum bytes of a bulk string, and of all replies to one call.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Maximum depth of arrays in arrays.
const DEPTH_MAX: usize = 8;
/// Maximum bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A line.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
    /// Nothing.
    Null,
}

/// A connection to a server.
pub struct Client {
    reader: BufReader<Box<dyn Read>>,
    writer: Box<dyn Write>,
}

impl Client {
    /// Connects over TCP, to the first address of the name that answers.
    pub fn over_tcp(address: &str) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIME_MAX) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIME_MAX))?;
                    stream.set_write_timeout(Some(TIME_MAX))?;
                    return Ok(Self::over(stream.try_clone()?, stream));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connects over a Unix socket.
    pub fn over_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIME_MAX))?;
        stream.set_write_timeout(Some(TIME_MAX))?;
        Ok(Self::over(stream.try_clone()?, stream))
    }

    fn over(reader: impl Read + 'static, writer: impl Write + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(reader)), writer: Box::new(writer) }
    }

    /// Sends commands together and returns their replies.
    pub fn call(&mut self, commands: &[&[&[u8]]]) -> io::Result<Vec<Reply>> {
        let mut request = Vec::new();
        for words in commands {
            write!(request, "*{}\r\n", words.len())?;
            for word in *words {
                write!(request, "${}\r\n", word.len())?;
                request.extend_from_slice(word);
                request.extend_from_slice(b"\r\n");
            }
        }
        self.writer.write_all(&request)?;
        let mut left = REPLY_BYTES_MAX;
        commands.iter().map(|_| read(&mut self.reader, &mut left, DEPTH_MAX)).collect()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server does not speak RESP: {what}"))
}

/// Reads a reply of at most `left` bytes.
fn read(reader: &mut impl BufRead, left: &mut usize, depth: usize) -> io::Result<Reply> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    *left = left.checked_sub(line.len()).ok_or_else(|| wrong("the replies are too long"))?;
    let text = line.strip_suffix(b"\r\n").ok_or_else(|| wrong("a line without an end"))?;
    let (kind, text) = text.split_first().ok_or_else(|| wrong("an empty line"))?;
    let text = String::from_utf8_lossy(text).into_owned();
    let number = || text.parse::<i64>().map_err(|_| wrong("a number was expected"));
    match kind {
        b'+' => Ok(Reply::Simple(text)),
        b'-' => Ok(Reply::Error(text)),
        b':' => Ok(Reply::Integer(number()?)),
        b'$' | b'*' if number()? == -1 => Ok(Reply::Null),
        b'$' => {
            let length = usize::try_from(number()?).map_err(|_| wrong("a negative length"))?;
            *left = left.checked_sub(length).ok_or_else(|| wrong("the replies are too long"))?;
            let mut bytes = vec![0; length];
            reader.read_exact(&mut bytes)?;
            let mut end = [0; 2];
            reader.read_exact(&mut end)?;
            if &end == b"\r\n" { Ok(Reply::Bulk(bytes)) } else { Err(wrong("a string without an end")) }
        }
        b'*' => {
            let depth = depth.checked_sub(1).ok_or_else(|| wrong("arrays are too deep"))?;
            let length = u64::try_from(number()?).map_err(|_| wrong("a negative length"))?;
            // Each element takes bytes of `left`, so a wrong length ends with an error.
            let parts = (0..length).map(|_| read(reader, left, depth));
            Ok(Reply::Array(parts.collect::<io::Result<_>>()?))
        }
        _ => Err(wrong("an unknown kind of reply")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> io::Result<Reply> {
        read(&mut text.as_bytes(), &mut { REPLY_BYTES_MAX }, DEPTH_MAX)
    }

    #[test]
    fn replies_are_read() {
        let array = Reply::Array(vec![Reply::Integer(-7), Reply::Bulk(b"a\r\nb".to_vec()), Reply::Null]);
        assert_eq!(parse("*3\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n").unwrap(), array);
        assert_eq!(parse("+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(parse("-ERR no\r\n").unwrap(), Reply::Error("ERR no".into()));
        assert_eq!(parse("*0\r\n").unwrap(), Reply::Array(Vec::new()));
        assert_eq!(parse("*-1\r\n").unwrap(), Reply::Null);
    }

    #[test]
    fn other_bytes_are_errors_and_take_no_memory() {
        let deep = "*1\r\n".repeat(1000);
        for text in [
            "",
            "HTTP/1.1 400 Bad Request\r\n",
            "$999999999999\r\n",
            "$-2\r\n",
            "*9999999999999999\r\n",
            ":x\r\n",
            "$3\r\nabcde",
            "$3\r\nab",
            "\r\n",
            "+no end",
            &deep,
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let long = "+".to_owned() + &"x".repeat(1 << 20);
        assert!(parse(&long).is_err());
    }
}
