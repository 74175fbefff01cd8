//! Lines of `scan --json`, read back into the bytes that the store held.
//!
//! Each line is one JSON object. A field with the name `key` or `value` is text. A field with the name `key_base64` or `value_base64` is
//! base64 of bytes that are not text ([`text`](crate::text)). Every other field is an error, so that a misspelt name loses no value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A line as JSON.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

/// Key and value of a line.
///
/// # Errors
/// The reason why the line is not one of `scan --json`.
pub fn pair(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let Line { key, key_base64, value, value_base64 } =
        serde_json::from_slice(line).map_err(|error| reason(&error))?;
    if value.is_none() && value_base64.is_none() {
        return Err("has no field `value` or `value_base64` (scan --keys-only writes no values)".to_owned());
    }
    Ok((bytes("key", key, key_base64)?, bytes("value", value, value_base64)?))
}

fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map_err(|error| format!("field `{name}_base64` is not base64: {error}"))
        }
        (None, None) => Err(format!("has no field `{name}` or `{name}_base64`")),
        (Some(_), Some(_)) => Err(format!("has both fields `{name}` and `{name}_base64`")),
    }
}

/// The parser counts lines in its own input, which is one line. Only its column is of use.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
    format!("not an object as `scan --json` writes it: {why} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn every_byte_of_a_written_line_is_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let plain: Vec<u8> = (0..128).collect();
        for (key, value) in [(&all, &plain), (&plain, &all), (&plain, &Vec::new())] {
            let mut object = serde_json::Map::new();
            text::json_field(&mut object, "key", key);
            text::json_field(&mut object, "value", value);
            let line = serde_json::Value::Object(object).to_string();
            assert_eq!(pair(line.as_bytes()), Ok((key.clone(), value.clone())));
        }
        // Another writer may order and escape in other ways.
        let other = br#" {"value": "\u00e4\/", "key_base64": "/wA="} "#;
        assert_eq!(pair(other), Ok((vec![0xff, 0], "ä/".as_bytes().to_vec())));
    }

    #[test]
    fn other_lines_are_refused_with_the_reason() {
        for (line, why) in [
            ("", "EOF while parsing a value"),
            ("a\t1", "expected value"),
            ("7", "invalid type: integer `7`"),
            (r#"{"key":"a","value":"b"} x"#, "trailing characters"),
            (r#"{"key":"a","value":7}"#, "invalid type: integer `7`"),
            (r#"{"key":"a","vlaue":"b"}"#, "unknown field `vlaue`"),
            (r#"{"key":"a","key":"b","value":"c"}"#, "duplicate field `key`"),
            (r#"{"key":"a"}"#, "has no field `value` or `value_base64`"),
            (r#"{"value":"a"}"#, "has no field `key` or `key_base64`"),
            (r#"{"key":"a","key_base64":"YQ==","value":""}"#, "has both fields `key` and `key_base64`"),
            (r#"{"key":"a","value_base64":"?"}"#, "field `value_base64` is not base64: "),
        ] {
            let said = pair(line.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{why} in {said}");
        }
    }
}
