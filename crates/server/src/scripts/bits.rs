//! The library `bit`: operations on 32-bit integers, as in LuaJIT.

use mlua::{Lua, Table, Value};

use super::raised::{Answer, function};
use super::values::{number_argument, string};

/// An operation on one number.
type One = fn(u32) -> u32;
/// An operation on two numbers.
type Two = fn(u32, u32) -> u32;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let folds: [(&str, Two); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        let all = move |_: &Lua, arguments: &[Value]| {
            let first = bits(arguments, 0, name)?;
            let rest = (1..arguments.len()).map(|at| bits(arguments, at, name));
            Ok(vec![signed(rest.into_iter().try_fold(first, |all, next| Ok::<_, String>(fold(all, next?)))?)])
        };
        table.raw_set(name, function(lua, all)?)?;
    }
    let shifts: [(&str, Two); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, shift) in shifts {
        let shift = move |_: &Lua, arguments: &[Value]| {
            Ok(vec![signed(shift(bits(arguments, 0, name)?, bits(arguments, 1, name)? & 31))])
        };
        table.raw_set(name, function(lua, shift)?)?;
    }
    let others: [(&str, One); 3] =
        [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", u32::swap_bytes)];
    for (name, change) in others {
        let change = move |_: &Lua, arguments: &[Value]| Ok(vec![signed(change(bits(arguments, 0, name)?))]);
        table.raw_set(name, function(lua, change)?)?;
    }
    table.raw_set("tohex", function(lua, to_hex)?)?;
    Ok(table)
}

/// An argument as 32 bits: rounded, and without its upper bits.
fn bits(arguments: &[Value], at: usize, function: &str) -> Result<u32, String> {
    let number = number_argument(arguments, at, function)?;
    // Exact for all numbers up to 2^53.
    Ok(number.round_ties_even().rem_euclid(4_294_967_296.0) as u32)
}

fn signed(bits: u32) -> Value {
    Value::Integer(bits.cast_signed().into())
}

/// Hexadecimal digits: as many as the second argument says, in upper case if it is negative.
fn to_hex(lua: &Lua, arguments: &[Value]) -> Answer {
    let name = "tohex";
    let digits = match arguments.get(1) {
        None => 8,
        Some(_) => bits(arguments, 1, name)?.cast_signed(),
    };
    let count = digits.unsigned_abs().min(8) as usize;
    let bits = bits(arguments, 0, name)?;
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    Ok(vec![string(lua, &text.as_bytes()[8 - count..])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_32_bits() {
        let one = |number: f64| bits(&[Value::Number(number)], 0, "tobit").unwrap();
        assert_eq!(one(-1.0), u32::MAX);
        assert_eq!(one(4_294_967_296.0 + 5.0), 5);
        assert_eq!(one(2.6), 3);
        assert!(bits(&[Value::Nil], 0, "tobit").is_err());
    }
}
