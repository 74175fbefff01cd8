//! Words of a command line: numbers as the C library reads them, keys, base64.
//!
//! memcached reads numbers with `strtol` and its relatives. So a number may have a sign, leading zeros, and white space around it. Clients
//! depend on few of these forms, but the server accepts the same ones.

use base64::engine::general_purpose::{self, GeneralPurpose};
use base64::{Engine as _, alphabet};
use bytes::Bytes;

/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 250;

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r')
}

/// Reads the number at the start of a text: whether it has a minus, and its digits. White space must follow it, or the end.
fn digits(text: &[u8]) -> Option<(bool, &[u8])> {
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let (is_negative, rest) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_ended = rest.get(count).is_none_or(|byte| is_space(*byte));
    (count > 0 && is_ended).then(|| (is_negative, &rest[..count]))
}

/// A number without a sign. A minus wraps around, but is refused if the result has the highest bit, as memcached does.
#[must_use]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = digits(text)?;
    let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    let number = if is_negative { number.wrapping_neg() } else { number };
    let is_refused = number >> 63 == 1 && text.contains(&b'-');
    (!is_refused).then_some(number)
}

/// A number with a sign.
#[must_use]
pub fn signed(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = digits(text)?;
    let number = std::str::from_utf8(digits).ok()?.parse::<i128>().ok()?;
    i64::try_from(if is_negative { -number } else { number }).ok()
}

/// A number of bytes of data: not negative, and with its two line-end bytes at most the largest 32-bit number.
#[must_use]
pub fn length(text: &[u8]) -> Option<usize> {
    let bytes = signed(text)?;
    usize::try_from(bytes).ok().filter(|bytes| *bytes <= i32::MAX as usize - 2)
}

/// The words of a line. Only spaces separate them.
pub fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// The line behind its first `count` words.
#[must_use]
pub fn behind(line: &Bytes, count: usize) -> Bytes {
    let mut rest = line.clone();
    for _ in 0..count {
        let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
        rest = rest.slice(start..);
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        rest = rest.slice(end..);
    }
    rest
}

/// The part of `line` that is this word of it, without a copy.
#[must_use]
pub fn share(line: &Bytes, word: &[u8]) -> Bytes {
    line.slice_ref(word)
}

/// True if this can be a key of a text command: 1 to 250 bytes, none of them a control character.
#[must_use]
pub fn is_key(word: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&word.len()) && !word.iter().any(u8::is_ascii_control)
}

/// The usual alphabet with padding. As in memcached, the unused bits of the last digit may have any value.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, general_purpose::PAD.with_decode_allow_trailing_bits(true));

/// Appends the base64 form.
pub fn encode_base64(bytes: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(BASE64.encode(bytes).as_bytes());
}

/// The bytes of a base64 text with padding. `None` if it is not one.
#[must_use]
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_by_the_c_library() {
        let cases: [(&str, Option<u64>, Option<i64>); 12] = [
            ("0", Some(0), Some(0)),
            ("007", Some(7), Some(7)),
            ("+5", Some(5), Some(5)),
            ("-0", Some(0), Some(0)),
            ("-5", None, Some(-5)),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("-18446744073709551615", Some(1), None),
            ("5x", None, None),
            ("5 x", Some(5), Some(5)),
            (" \t5", Some(5), Some(5)),
            ("", None, None),
        ];
        for (text, expected, with_sign) in cases {
            assert_eq!(
                (unsigned(text.as_bytes()), signed(text.as_bytes())),
                (expected, with_sign),
                "{text:?}"
            );
        }
        assert_eq!(
            [length(b"2147483645"), length(b"2147483646"), length(b"-1")],
            [Some(2_147_483_645), None, None]
        );
    }

    #[test]
    fn base64_has_one_form_for_each_text() {
        for length in 0..20 {
            let bytes: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(37).wrapping_add(200)).collect();
            let mut text = Vec::new();
            encode_base64(&bytes, &mut text);
            assert_eq!(decode_base64(&text), Some(bytes));
        }
        for wrong in ["Zm9", "Zm9v=", "Z!9v", "Zg==Zg==", "====", "Z===", "Zg=v"] {
            assert_eq!(decode_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
