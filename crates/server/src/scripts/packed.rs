//! The library `cmsgpack`: MessagePack.

use mlua::{Lua, Table, Value};
use rmp::encode;
use rmpv::Value as Packed;

use super::raised::{Answer, function};
use super::values::{as_number, string};

/// Maximum depth of tables. Deeper ones are packed as nil, as in Redis.
const DEPTH_MAX: usize = 16;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, pack)?)?;
    table.raw_set(
        "unpack",
        function(lua, |lua, arguments| {
            let (values, _) = unpack(lua, arguments, usize::MAX, 0)?;
            Ok(values)
        })?,
    )?;
    table.raw_set(
        "unpack_one",
        function(lua, |lua, arguments| unpack_from(lua, arguments, 1, arguments.get(1)))?,
    )?;
    table.raw_set(
        "unpack_limit",
        function(lua, |lua, arguments| {
            let limit =
                arguments.get(1).and_then(Value::as_i64).and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.ok_or("the limit is not a positive number")?;
            unpack_from(lua, arguments, limit, arguments.get(2))
        })?,
    )?;
    Ok(table)
}

fn pack(lua: &Lua, arguments: &[Value]) -> Answer {
    if arguments.is_empty() {
        return Err("MessagePack pack needs input.".to_owned());
    }
    let mut bytes = Vec::new();
    for argument in arguments {
        append(argument, &mut bytes, 0)?;
    }
    Ok(vec![string(lua, &bytes)?])
}

/// A length as MessagePack has it.
fn length(length: usize) -> Result<u32, String> {
    u32::try_from(length).map_err(|_| "a value is too long for MessagePack".to_owned())
}

fn append(value: &Value, to: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    let wrong = |error: encode::ValueWriteError<std::io::Error>| error.to_string();
    match value {
        Value::Boolean(flag) => encode::write_bool(to, *flag).map_err(|error| error.to_string())?,
        Value::Integer(number) => {
            encode::write_sint(to, *number).map_err(wrong)?;
        }
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => {
            encode::write_sint(to, *number as i64).map_err(wrong)?;
        }
        Value::Number(number) if f64::from(*number as f32) == *number => {
            encode::write_f32(to, *number as f32).map_err(wrong)?;
        }
        Value::Number(number) => encode::write_f64(to, *number).map_err(wrong)?,
        Value::String(text) => {
            let text = text.as_bytes();
            encode::write_str_len(to, length(text.len())?).map_err(wrong)?;
            to.extend_from_slice(&text);
        }
        Value::Table(table) if depth < DEPTH_MAX => append_table(table, to, depth + 1)?,
        _ => encode::write_nil(to).map_err(|error| error.to_string())?,
    }
    Ok(())
}

fn append_table(table: &Table, to: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    let wrong = |error: encode::ValueWriteError<std::io::Error>| error.to_string();
    let pairs: Vec<(Value, Value)> =
        table.pairs().collect::<mlua::Result<_>>().map_err(|error| error.to_string())?;
    // An array has the keys from 1 to its length.
    let is_array = pairs.iter().all(|(key, _)| {
        let key = as_number(key).filter(|key| key.fract() == 0.0);
        key.is_some_and(|key| key >= 1.0 && key <= pairs.len() as f64)
    });
    if is_array {
        encode::write_array_len(to, length(pairs.len())?).map_err(wrong)?;
        for at in 1..=pairs.len() {
            append(&table.raw_get(at).map_err(|error| error.to_string())?, to, depth)?;
        }
        return Ok(());
    }
    encode::write_map_len(to, length(pairs.len())?).map_err(wrong)?;
    for (key, value) in &pairs {
        append(key, to, depth)?;
        append(value, to, depth)?;
    }
    Ok(())
}

/// At most `limit` values from an offset on, behind the offset of the next one (-1 at the end).
fn unpack_from(lua: &Lua, arguments: &[Value], limit: usize, offset: Option<&Value>) -> Answer {
    let offset = match offset {
        None | Some(Value::Nil) => 0,
        Some(offset) => {
            let offset = offset.as_i64().and_then(|offset| usize::try_from(offset).ok());
            offset.ok_or("Start offset is not a position of the input.")?
        }
    };
    let (values, next) = unpack(lua, arguments, limit, offset)?;
    Ok(std::iter::once(Value::Integer(next)).chain(values).collect())
}

fn unpack(lua: &Lua, arguments: &[Value], limit: usize, offset: usize) -> Result<(Vec<Value>, i64), String> {
    let bytes =
        arguments.first().and_then(super::values::text).ok_or("MessagePack unpack needs a string.")?;
    let mut rest = bytes.get(offset..).ok_or("Start offset is not a position of the input.")?;
    let mut values = Vec::new();
    while !rest.is_empty() && values.len() < limit {
        let value = rmpv::decode::read_value(&mut rest).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "Missing bytes in input.".to_owned(),
            _ => "Bad data format in input.".to_owned(),
        })?;
        values.push(unpacked(lua, value)?);
    }
    let next = if rest.is_empty() { -1 } else { (bytes.len() - rest.len()) as i64 };
    Ok((values, next))
}

fn unpacked(lua: &Lua, value: Packed) -> Result<Value, String> {
    let table = |pairs: Vec<(Value, Value)>| {
        let table = lua.create_table().map_err(|error| error.to_string())?;
        for (key, value) in pairs {
            table.raw_set(key, value).map_err(|error| error.to_string())?;
        }
        Ok(Value::Table(table))
    };
    match value {
        Packed::Nil => Ok(Value::Nil),
        Packed::Boolean(flag) => Ok(Value::Boolean(flag)),
        Packed::Integer(number) => Ok(Value::Number(number.as_f64().unwrap_or(0.0))),
        Packed::F32(number) => Ok(Value::Number(number.into())),
        Packed::F64(number) => Ok(Value::Number(number)),
        Packed::String(text) => string(lua, text.as_bytes()),
        Packed::Binary(bytes) => string(lua, &bytes),
        Packed::Array(elements) => {
            let elements = elements.into_iter().zip(1_i64..);
            table(
                elements
                    .map(|(element, at)| Ok((Value::Integer(at), unpacked(lua, element)?)))
                    .collect::<Result<_, String>>()?,
            )
        }
        Packed::Map(pairs) => {
            let pairs = pairs.into_iter();
            table(
                pairs.map(|(key, value)| Ok((unpacked(lua, key)?, unpacked(lua, value)?))).collect::<Result<
                    _,
                    String,
                >>(
                )?,
            )
        }
        Packed::Ext(..) => Err("Bad data format in input.".to_owned()),
    }
}
