//! Fuzz target for the request parser.

use bytes::{Bytes, BytesMut};
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
