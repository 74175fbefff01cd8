//! The library `cjson`.

use mlua::{Lua, Table, Value};
use serde_json::Value as Json;

use super::raised::{Answer, function};
use super::values::{as_number, general, string};

/// Maximum depth of arrays and objects.
const DEPTH_MAX: usize = 1000;
/// Significant digits of a number.
const DIGITS: usize = 14;
/// An array with more elements is refused if fewer than half of them are there.
const SPARSE: i64 = 10;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("encode", function(lua, encode)?)?;
    table.raw_set("decode", function(lua, decode)?)?;
    // The settings are those of the default.
    for name in [
        "encode_sparse_array",
        "encode_max_depth",
        "decode_max_depth",
        "encode_number_precision",
        "encode_keep_buffer",
        "encode_invalid_numbers",
        "decode_invalid_numbers",
        "decode_array_with_array_mt",
    ] {
        let refuse = move |_: &Lua, arguments: &[Value]| match arguments {
            [] => Ok(Vec::new()),
            _ => Err(format!("cjson.{name} cannot be set here: scripts share the library")),
        };
        table.raw_set(name, function(lua, refuse)?)?;
    }
    Ok(table)
}

fn encode(lua: &Lua, arguments: &[Value]) -> Answer {
    let [value] = arguments else {
        return Err("bad argument #1 to 'encode' (expected 1 argument)".to_owned());
    };
    let mut text = Vec::new();
    append(value, &mut text, 0)?;
    Ok(vec![string(lua, &text)?])
}

fn append(value: &Value, to: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    match value {
        Value::Nil => to.extend_from_slice(b"null"),
        Value::LightUserData(data) if data.0.is_null() => to.extend_from_slice(b"null"),
        Value::Boolean(flag) => to.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Integer(number) => append_number(*number as f64, to)?,
        Value::Number(number) => append_number(*number, to)?,
        Value::String(text) => append_text(&text.as_bytes(), to),
        Value::Table(_) if depth >= DEPTH_MAX => {
            return Err(format!("Cannot serialise, excessive depth ({})", depth + 1));
        }
        Value::Table(table) => append_table(table, to, depth + 1)?,
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn append_number(number: f64, to: &mut Vec<u8>) -> Result<(), String> {
    if !number.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    to.extend_from_slice(general(number, DIGITS).as_bytes());
    Ok(())
}

/// Strings may have any bytes; those that are not ASCII stay as they are.
fn append_text(text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    for byte in text {
        match byte {
            b'"' => to.extend_from_slice(b"\\\""),
            b'\\' => to.extend_from_slice(b"\\\\"),
            b'/' => to.extend_from_slice(b"\\/"),
            b'\n' => to.extend_from_slice(b"\\n"),
            b'\r' => to.extend_from_slice(b"\\r"),
            b'\t' => to.extend_from_slice(b"\\t"),
            8 => to.extend_from_slice(b"\\b"),
            12 => to.extend_from_slice(b"\\f"),
            0..32 | 127 => to.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            other => to.push(*other),
        }
    }
    to.push(b'"');
}

fn append_table(table: &Table, to: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    let pairs: Vec<(Value, Value)> =
        table.pairs().collect::<mlua::Result<_>>().map_err(|error| error.to_string())?;
    // A table whose keys are all positive integers is an array. An empty one is an object.
    let position =
        |key: &Value| as_number(key).filter(|at| at.fract() == 0.0 && *at >= 1.0).map(|at| at as i64);
    let positions: Option<Vec<i64>> = pairs.iter().map(|(key, _)| position(key)).collect();
    if let Some(positions) = positions.filter(|positions| !positions.is_empty()) {
        let last = positions.iter().copied().max().unwrap_or(0);
        if last > SPARSE && last > 2 * positions.len() as i64 {
            return Err("Cannot serialise table: excessively sparse array".to_owned());
        }
        to.push(b'[');
        for at in 1..=last {
            if at > 1 {
                to.push(b',');
            }
            append(&table.raw_get(at).map_err(|error| error.to_string())?, to, depth)?;
        }
        to.push(b']');
        return Ok(());
    }
    to.push(b'{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            to.push(b',');
        }
        match key {
            Value::String(text) => append_text(&text.as_bytes(), to),
            Value::Integer(number) => to.extend_from_slice(format!("\"{number}\"").as_bytes()),
            Value::Number(number) => {
                to.extend_from_slice(format!("\"{}\"", general(*number, DIGITS)).as_bytes())
            }
            _ => return Err("Cannot serialise table: table key must be a number or string".to_owned()),
        }
        to.push(b':');
        append(value, to, depth)?;
    }
    to.push(b'}');
    Ok(())
}

fn decode(lua: &Lua, arguments: &[Value]) -> Answer {
    let text = match arguments {
        [one] => super::values::text(one).ok_or("bad argument #1 to 'decode' (string expected)")?,
        _ => return Err("bad argument #1 to 'decode' (expected 1 argument)".to_owned()),
    };
    let json: Json = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(vec![decoded(lua, &json).map_err(|error| error.to_string())?])
}

fn decoded(lua: &Lua, json: &Json) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(flag) => Value::Boolean(*flag),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(0.0)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(elements) => {
            let table = lua.create_table_with_capacity(elements.len(), 0)?;
            for (at, element) in elements.iter().enumerate() {
                table.raw_set(at + 1, decoded(lua, element)?)?;
            }
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(name.as_str(), decoded(lua, field)?)?;
            }
            Value::Table(table)
        }
    })
}
