//! Bytes as text: escaped text for people, JSON for programs.
//!
//! Invariant: both forms are reversible. Escaped text has `\xNN` for bytes that do not print and `\\` for a backslash. JSON has bytes that
//! are not UTF-8 as base64, in a field of another name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Appends bytes; escapes bytes that do not print.
pub fn escape_into(output: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            if character == '\\' {
                output.extend_from_slice(b"\\\\");
            } else if character.is_control() {
                encoded.iter().for_each(|&byte| escape_byte(output, byte));
            } else {
                output.extend_from_slice(encoded);
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape_byte(output, byte));
    }
}

/// Bytes as escaped text.
pub fn escaped(bytes: &[u8]) -> String {
    let mut output = Vec::new();
    escape_into(&mut output, bytes);
    String::from_utf8_lossy(&output).into_owned()
}

fn escape_byte(output: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    output.extend_from_slice(b"\\x");
    output.push(DIGITS[usize::from(byte >> 4)]);
    output.push(DIGITS[usize::from(byte & 15)]);
}

/// Adds bytes to a JSON object: as text under `name`, or as base64 under `name_base64`.
pub fn json_field(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_print_is_escaped_and_the_rest_is_not() {
        assert_eq!(escaped("häß 木".as_bytes()), "häß 木");
        assert_eq!(escaped(b"a\tb\nc\\d\x7f\xff\x00"), "a\\x09b\\x0Ac\\\\d\\x7F\\xFF\\x00");
        assert_eq!(escaped("\u{85}".as_bytes()), "\\xC2\\x85");
    }

    #[test]
    fn bytes_that_are_no_text_are_base64_under_another_name() {
        let mut object = Map::new();
        json_field(&mut object, "key", b"plain");
        json_field(&mut object, "value", &[0xff, 0]);
        assert_eq!(Value::Object(object).to_string(), r#"{"key":"plain","value_base64":"/wA="}"#);
    }
}
