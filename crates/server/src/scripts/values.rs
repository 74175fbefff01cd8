//! Replies of commands as values of Lua, and results of scripts as replies.

use bytes::Bytes;
use mlua::{Lua, Table, Value};

use crate::resp::reply::ReplyTooLong;
use crate::resp::{Protocol, Reply};

/// Maximum depth of a result's tables.
const DEPTH_MAX: usize = 100;

/// A string as a value.
pub(super) fn string(lua: &Lua, bytes: &[u8]) -> Result<Value, String> {
    lua.create_string(bytes).map(Value::String).map_err(|error| error.to_string())
}

/// The bytes of a string or a number. `None` for other values.
pub(super) fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(string) => Some(string.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number_text(*number).into_bytes()),
        _ => None,
    }
}

/// A number as the text of an argument: an integer if it is one, otherwise with 17 digits.
fn number_text(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 9.2e18 {
        return (number as i64).to_string();
    }
    general(number, 17)
}

/// A number with at most `digits` significant digits, without zeros at its end, as the format `%g` of C.
pub(super) fn general(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        return match (number.is_nan(), number > 0.0) {
            (true, _) => "nan".to_owned(),
            (_, true) => "inf".to_owned(),
            (_, false) => "-inf".to_owned(),
        };
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", short(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    short(&format!("{number:.decimals$}"))
}

/// A table with one field.
fn table_with(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// The reply of a command as a value.
pub(super) fn read(lua: &Lua, mut reply: &[u8]) -> mlua::Result<Value> {
    value(lua, &mut reply)
}

/// The text of an error reply. `None` for another reply.
pub(super) fn error_text(reply: &[u8]) -> Option<String> {
    let mut rest = reply.strip_prefix(b"-")?;
    Some(String::from_utf8_lossy(line(&mut rest)).into_owned())
}

/// A number, also one that Lua shows as an integer.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// As [`as_number`], also for the text of a number. The error names the argument and the function.
pub(super) fn number_argument(arguments: &[Value], at: usize, function: &str) -> Result<f64, String> {
    let number = match arguments.get(at) {
        Some(Value::String(text)) => text.to_str().ok().and_then(|text| text.trim().parse().ok()),
        Some(other) => as_number(other),
        None => None,
    };
    let name = arguments.get(at).map_or("nil", Value::type_name);
    number.ok_or_else(|| format!("bad argument #{} to '{function}' (number expected, got {name})", at + 1))
}

/// Takes a line off the front, without its end.
fn line<'a>(reply: &mut &'a [u8]) -> &'a [u8] {
    let end = reply.windows(2).position(|two| two == b"\r\n").unwrap_or(reply.len());
    let line = &reply[..end];
    *reply = reply.get(end + 2..).unwrap_or_default();
    line
}

/// Takes a number of bytes and the line's end off the front.
fn bulk<'a>(reply: &mut &'a [u8], length: usize) -> &'a [u8] {
    let length = length.min(reply.len());
    let bytes = &reply[..length];
    *reply = reply.get(length + 2..).unwrap_or_default();
    bytes
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Takes one value off the front of a reply of the server.
fn value(lua: &Lua, reply: &mut &[u8]) -> mlua::Result<Value> {
    let head = line(reply);
    let Some((kind, text)) = head.split_first() else { return Ok(Value::Nil) };
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    Ok(match kind {
        b'+' => table_with(lua, "ok", string(text)?)?,
        b'-' => table_with(lua, "err", string(text)?)?,
        b':' => Value::Integer(number(text)),
        // A null is false, so that it does not end a table.
        b'$' | b'*' if text == b"-1" => Value::Boolean(false),
        b'$' => string(bulk(reply, number(text) as usize))?,
        b'*' => {
            let count = number(text) as usize;
            let table = lua.create_table_with_capacity(count, 0)?;
            for at in 1..=count {
                table.raw_set(at, value(lua, reply)?)?;
            }
            Value::Table(table)
        }
        b'#' => Value::Boolean(text == b"t"),
        b',' => {
            let double = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            table_with(lua, "double", double.unwrap_or(0.0))?
        }
        b'(' => table_with(lua, "big_number", string(text)?)?,
        b'=' => {
            let bytes = bulk(reply, number(text) as usize);
            let table = lua.create_table()?;
            table.raw_set("format", string(bytes.get(..3).unwrap_or_default())?)?;
            table.raw_set("string", string(bytes.get(4..).unwrap_or_default())?)?;
            table_with(lua, "verbatim_string", table)?
        }
        b'%' => {
            let table = lua.create_table()?;
            for _ in 0..number(text) {
                let key = value(lua, reply)?;
                table.raw_set(key, value(lua, reply)?)?;
            }
            table_with(lua, "map", table)?
        }
        b'~' => {
            let table = lua.create_table()?;
            for _ in 0..number(text) {
                table.raw_set(value(lua, reply)?, true)?;
            }
            table_with(lua, "set", table)?
        }
        _ => Value::Nil,
    })
}

/// The reason why a result is no reply.
#[derive(Debug)]
pub(super) enum Unwritable {
    /// It is too long.
    Reply(ReplyTooLong),
    /// Its tables are too deep.
    Deep,
}

impl From<ReplyTooLong> for Unwritable {
    fn from(error: ReplyTooLong) -> Self {
        Self::Reply(error)
    }
}

/// Writes the result of a script. `protocol` is that of the script: with version 2 the types of version 3 are written as similar ones.
pub(super) fn write(result: &Value, reply: &mut Reply<'_>, protocol: Protocol) -> Result<(), Unwritable> {
    write_at(result, reply, protocol, 0)
}

fn write_at(
    result: &Value,
    reply: &mut Reply<'_>,
    protocol: Protocol,
    depth: usize,
) -> Result<(), Unwritable> {
    match result {
        Value::String(string) => reply.bulk(&string.as_bytes())?,
        Value::Integer(number) => reply.integer(*number),
        // The fraction is dropped, as in Redis.
        Value::Number(number) => reply.integer(*number as i64),
        Value::Boolean(flag) if protocol == Protocol::Resp3 => reply.boolean(*flag),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(_) if depth == DEPTH_MAX => return Err(Unwritable::Deep),
        Value::Table(table) => write_table(table, reply, protocol, depth + 1)?,
        _ => reply.null(),
    }
    Ok(())
}

fn write_table(
    table: &Table,
    reply: &mut Reply<'_>,
    protocol: Protocol,
    depth: usize,
) -> Result<(), Unwritable> {
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    if let Value::String(text) = field("err") {
        reply.error(&text.to_string_lossy());
    } else if let Value::String(text) = field("ok") {
        reply.simple(&text.to_string_lossy());
    } else if let Some(double) = as_number(&field("double")) {
        reply.double(double);
    } else if let Value::Table(map) = field("map") {
        let pairs: Vec<_> = map.pairs::<Value, Value>().filter_map(Result::ok).collect();
        reply.map(pairs.len());
        for (key, value) in &pairs {
            write_at(key, reply, protocol, depth)?;
            write_at(value, reply, protocol, depth)?;
        }
    } else if let Value::Table(set) = field("set") {
        let members: Vec<_> = set.pairs::<Value, Value>().filter_map(Result::ok).collect();
        reply.set(members.len());
        for (member, _) in &members {
            write_at(member, reply, protocol, depth)?;
        }
    } else if let Value::String(number) = field("big_number") {
        reply.bulk(&number.as_bytes())?;
    } else if let Value::Table(verbatim) = field("verbatim_string")
        && let Ok(text) = verbatim.raw_get::<mlua::LuaString>("string")
    {
        reply.verbatim(&text.to_string_lossy());
    } else {
        // An array ends before its first nil.
        let mark = reply.bytes();
        let mut count = 0;
        loop {
            let value = table.raw_get::<Value>(count + 1).unwrap_or(Value::Nil);
            if value.is_nil() {
                break;
            }
            write_at(&value, reply, protocol, depth)?;
            count += 1;
        }
        reply.array_since(mark, count);
    }
    Ok(())
}

/// The arguments of a command: strings and numbers. `None` if there is another value.
pub(super) fn texts(values: &[Value]) -> Option<Vec<Bytes>> {
    values.iter().map(|value| text(value).map(Bytes::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let numbers: &[(f64, usize, &str)] = &[
            (0.0, 14, "0"),
            (0.1, 17, "0.10000000000000001"),
            (3.5, 14, "3.5"),
            (1e20, 14, "1e+20"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (12_345_678_901_234.0, 14, "12345678901234"),
            (-2.25, 14, "-2.25"),
            (f64::INFINITY, 14, "inf"),
        ];
        for (number, digits, text) in numbers {
            assert_eq!(general(*number, *digits), *text);
        }
        assert_eq!(number_text(3.0), "3");
        assert_eq!(number_text(-1e15), "-1000000000000000");
    }

    #[test]
    fn every_type_of_reply_becomes_a_value_and_a_reply_again() {
        let lua = Lua::new();
        let replies: &[(&str, &str, &str)] = &[
            ("+OK\r\n", "+OK\r\n", "+OK\r\n"),
            ("-ERR no\r\n", "-ERR no\r\n", "-ERR no\r\n"),
            (":-7\r\n", ":-7\r\n", ":-7\r\n"),
            ("$5\r\na\r\nbc\r\n", "$5\r\na\r\nbc\r\n", "$5\r\na\r\nbc\r\n"),
            ("$-1\r\n", "$-1\r\n", "#f\r\n"),
            (
                "*3\r\n:1\r\n$-1\r\n*1\r\n+x\r\n",
                "*3\r\n:1\r\n$-1\r\n*1\r\n+x\r\n",
                "*3\r\n:1\r\n#f\r\n*1\r\n+x\r\n",
            ),
            ("#t\r\n", ":1\r\n", "#t\r\n"),
            (",1.5\r\n", "$3\r\n1.5\r\n", ",1.5\r\n"),
            ("%1\r\n$1\r\nk\r\n:2\r\n", "*2\r\n$1\r\nk\r\n:2\r\n", "%1\r\n$1\r\nk\r\n:2\r\n"),
            ("~1\r\n$1\r\nm\r\n", "*1\r\n$1\r\nm\r\n", "~1\r\n$1\r\nm\r\n"),
            ("=6\r\ntxt:hi\r\n", "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ];
        for (from, second, third) in replies {
            let value = read(&lua, from.as_bytes()).unwrap();
            assert_eq!(error_text(from.as_bytes()).is_some(), from.starts_with('-'));
            for (protocol, expected) in [(Protocol::Resp2, second), (Protocol::Resp3, third)] {
                let mut output = Vec::new();
                write(&value, &mut Reply::new(&mut output, protocol, 1000), protocol).unwrap();
                assert_eq!(String::from_utf8(output).unwrap(), **expected);
            }
        }
    }

    #[test]
    fn a_table_in_itself_is_refused() {
        let lua = Lua::new();
        let table = lua.create_table().unwrap();
        table.raw_set(1, &table).unwrap();
        let mut output = Vec::new();
        let mut reply = Reply::new(&mut output, Protocol::Resp2, 1000);
        let refused = write(&Value::Table(table), &mut reply, Protocol::Resp2);
        assert!(matches!(refused, Err(Unwritable::Deep)));
    }
}
