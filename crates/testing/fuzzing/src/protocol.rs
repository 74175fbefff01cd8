//! Fuzz targets for the request parsers, and for the payloads of RESTORE.

use bytes::{Bytes, BytesMut};
use server::memcached::parse::{self, Parser, Request};
use server::resp::{ProtocolError, RequestLimits, RequestParser};

/// Small limits, so that short inputs reach them.
const LIMITS: RequestLimits =
    RequestLimits { bulk_bytes_max: 512, arguments_max: 16, inline_bytes_max: 64, command_bytes_max: 2048 };

type Parsed = (Vec<Vec<Bytes>>, Option<ProtocolError>);

/// Returns the commands in these pieces, and the error that ended parsing.
fn parsed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Parsed {
    let mut parser = RequestParser::new(LIMITS);
    let (mut buffer, mut commands) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(command)) => commands.push(command),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(parser.held_bytes() <= LIMITS.command_bytes_max, "{} bytes held", parser.held_bytes());
    }
    (commands, None)
}

/// Parses the input whole, in pieces, and byte by byte. The first byte is the size of the pieces.
///
/// # Panics
/// If the resulting commands differ, or if a command or the memory of the parser exceeds a limit.
pub fn requests(input: &[u8]) {
    let Some((size, input)) = input.split_first() else { return };
    let whole = parsed(std::iter::once(input));
    assert_eq!(whole, parsed(input.chunks(usize::from(*size).max(1))), "in pieces of {size}");
    assert_eq!(whole, parsed(input.chunks(1)), "byte by byte");
    for command in &whole.0 {
        assert!(!command.is_empty() && command.len() <= LIMITS.arguments_max);
        assert!(command.iter().all(|argument| argument.len() <= LIMITS.bulk_bytes_max));
    }
}

/// Limit of an item, so small that short inputs reach it.
const ITEM_BYTES_MAX: usize = 300;

type Memcached = (Vec<Request>, Option<parse::ProtocolError>);

/// Returns the requests in these pieces, and the error that ended parsing. The bit 7 of `mode`: the client has not logged in.
fn memcached_parsed<'a>(mode: u8, pieces: impl Iterator<Item = &'a [u8]>) -> Memcached {
    let mut parser = Parser::new(ITEM_BYTES_MAX);
    parser.set_admitted(mode < 128);
    let (mut buffer, mut requests) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        // Only a line with many keys may be longer.
        let is_short = buffer.len() <= parse::LINE_BYTES_MAX + 2;
        assert!(is_short || buffer.trim_ascii_start().starts_with(b"g"), "{} bytes held", buffer.len());
    }
    (requests, None)
}

/// Parses the input as requests of memcached: whole, in pieces, and byte by byte. The first byte is the size of the pieces.
///
/// # Panics
/// If the resulting requests differ, or if a request or the memory of the parser exceeds a limit.
pub fn memcached(input: &[u8]) {
    let Some((size, input)) = input.split_first() else { return };
    let whole = memcached_parsed(*size, std::iter::once(input));
    let pieces = usize::from(size % 128).max(1);
    assert_eq!(whole, memcached_parsed(*size, input.chunks(pieces)), "in pieces of {pieces}");
    assert_eq!(whole, memcached_parsed(*size, input.chunks(1)), "byte by byte");
    for request in &whole.0 {
        match request {
            Request::Store(storage, data) => assert!(storage.key.len() + data.len() < ITEM_BYTES_MAX),
            Request::Login(login) => assert!(login.len() <= parse::LOGIN_BYTES_MAX),
            _ => {}
        }
    }
}

/// Checks the input as a payload of RESTORE. Half of the inputs get a right checksum, so that the check of the content runs.
///
/// # Panics
/// If an accepted payload is not the only one of its value.
pub fn dumps(input: &[u8]) {
    let Some((mode, input)) = input.split_first() else { return };
    let payload = if mode % 2 == 0 { server::structures::dumps::sealed(input) } else { input.to_vec() };
    if let Ok(found) = server::structures::dumps::parse(&payload) {
        assert_eq!(
            server::structures::dumps::again(&found),
            payload,
            "the payload is written in another way"
        );
    }
}
