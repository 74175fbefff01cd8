//! The library `struct`: numbers and strings as bytes, in the order and with the sizes that a format names.
//!
//! | character | meaning |
//! |---|---|
//! | `>` `<` `=` | big endian, little endian, that of the processor |
//! | `!n` | aligns numbers to at most n bytes (8 without n; before the first `!`: not at all) |
//! | `x` | a byte of 0 |
//! | `b` `B`, `h` `H`, `l` `L`, `T` | signed and unsigned integers of 1, 2 and 8 bytes; 8 bytes |
//! | `in` `In` | integers of n bytes, 4 without n |
//! | `f` `d` | floating point numbers of 4 and 8 bytes |
//! | `s` | a string with a byte of 0 at its end |
//! | `cn` | n bytes of a string (1 without n). `c0`: the whole string; when unpacking, as many bytes as the number before it says |

use mlua::{Lua, Table, Value};

use super::raised::{Answer, function};
use super::values::{as_number, number_argument, string};

/// Maximum bytes of an integer.
const INTEGER_MAX: usize = 8;
/// Maximum bytes of a result.
const BYTES_MAX: usize = 512 << 20;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, pack)?)?;
    table.raw_set("unpack", function(lua, unpack)?)?;
    table.raw_set("size", function(lua, size)?)?;
    Ok(table)
}

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// A byte of 0.
    Padding,
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// Ends with a byte of 0.
    Text,
    /// Has this number of bytes.
    Bytes(usize),
}

/// Reads a format.
struct Format<'f> {
    rest: &'f [u8],
    is_big: bool,
    align: usize,
}

impl<'f> Format<'f> {
    fn new(format: &'f [u8]) -> Self {
        Self { rest: format, is_big: cfg!(target_endian = "big"), align: 1 }
    }

    /// The number at the front.
    fn number(&mut self, default: usize) -> Result<usize, String> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if number.is_empty() {
            return Ok(default);
        }
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        number.filter(|number| *number <= BYTES_MAX).ok_or_else(|| "integral size overflow".to_owned())
    }

    /// The next part. `None` at the end.
    fn next(&mut self) -> Result<Option<Part>, String> {
        while let Some((first, rest)) = self.rest.split_first() {
            self.rest = rest;
            let integer = |bytes, is_signed| Ok(Some(Part::Integer { bytes, is_signed }));
            match first {
                b' ' => {}
                b'>' => self.is_big = true,
                b'<' => self.is_big = false,
                b'=' => self.is_big = cfg!(target_endian = "big"),
                b'!' => {
                    self.align = self.number(8)?;
                    if !self.align.is_power_of_two() {
                        return Err("alignment is not a power of 2".to_owned());
                    }
                }
                b'x' => return Ok(Some(Part::Padding)),
                b'b' => return integer(1, true),
                b'B' => return integer(1, false),
                b'h' => return integer(2, true),
                b'H' => return integer(2, false),
                b'l' => return integer(8, true),
                b'L' | b'T' => return integer(8, false),
                b'i' | b'I' => {
                    let bytes = self.number(4)?;
                    if !(1..=INTEGER_MAX).contains(&bytes) {
                        return Err(format!("integral size {bytes} is larger than limit of {INTEGER_MAX}"));
                    }
                    return integer(bytes, *first == b'i');
                }
                b'f' => return Ok(Some(Part::Float)),
                b'd' => return Ok(Some(Part::Double)),
                b's' => return Ok(Some(Part::Text)),
                b'c' => return Ok(Some(Part::Bytes(self.number(1)?))),
                other => return Err(format!("invalid format option '{}'", char::from(*other))),
            }
        }
        Ok(None)
    }

    /// Bytes before a part that begins at `at`, so that it is aligned.
    fn padding(&self, part: Part, at: usize) -> Result<usize, String> {
        let bytes = match part {
            Part::Integer { bytes, .. } => bytes,
            Part::Float => 4,
            Part::Double => 8,
            Part::Padding | Part::Text | Part::Bytes(_) => 1,
        };
        let align = bytes.min(self.align);
        if !align.is_power_of_two() {
            return Err("alignment is not a power of 2".to_owned());
        }
        Ok(at.next_multiple_of(align) - at)
    }

    /// Bytes of a number in the order of the format, from those in little endian.
    fn ordered(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

fn text_at(arguments: &[Value], at: usize) -> Result<Vec<u8>, String> {
    let text = arguments.get(at).and_then(super::values::text);
    text.ok_or_else(|| format!("bad argument #{} (string expected)", at + 1))
}

fn pack(lua: &Lua, arguments: &[Value]) -> Answer {
    let format = text_at(arguments, 0)?;
    let mut format = Format::new(&format);
    let (mut packed, mut at) = (Vec::new(), 1);
    while let Some(part) = format.next()? {
        packed.resize(packed.len() + format.padding(part, packed.len())?, 0);
        match part {
            Part::Padding => packed.push(0),
            Part::Integer { bytes, .. } => {
                let number = number_argument(arguments, at, "pack")?;
                // A large number keeps its lower bits.
                let bits = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                packed.extend(format.ordered(bits.to_le_bytes()[..bytes].to_vec()));
            }
            Part::Float => {
                packed.extend(
                    format.ordered((number_argument(arguments, at, "pack")? as f32).to_le_bytes().to_vec()),
                );
            }
            Part::Double => {
                packed.extend(format.ordered(number_argument(arguments, at, "pack")?.to_le_bytes().to_vec()))
            }
            Part::Text => {
                packed.extend(text_at(arguments, at)?);
                packed.push(0);
            }
            Part::Bytes(bytes) => {
                let text = text_at(arguments, at)?;
                let bytes = if bytes == 0 { text.len() } else { bytes };
                packed.extend(text.get(..bytes).ok_or("string too short")?);
            }
        }
        at += usize::from(part != Part::Padding);
        if packed.len() > BYTES_MAX {
            return Err("the result is too long".to_owned());
        }
    }
    Ok(vec![string(lua, &packed)?])
}

fn unpack(lua: &Lua, arguments: &[Value]) -> Answer {
    let (format, bytes) = (text_at(arguments, 0)?, text_at(arguments, 1)?);
    let mut format = Format::new(&format);
    let first = if arguments.len() > 2 { number_argument(arguments, 2, "unpack")? } else { 1.0 };
    if first < 1.0 {
        return Err("offset must be 1 or greater".to_owned());
    }
    let (mut at, mut values) = (first as usize - 1, Vec::new());
    while let Some(part) = format.next()? {
        at = at.saturating_add(format.padding(part, at)?);
        let mut take = |count: usize| {
            let taken = bytes.get(at..at.saturating_add(count)).ok_or("data string too short")?;
            at += count;
            Ok::<_, String>(taken)
        };
        match part {
            Part::Padding => {
                take(1)?;
            }
            Part::Integer { bytes, is_signed } => {
                let mut word = [0; INTEGER_MAX];
                word[..bytes].copy_from_slice(&format.ordered(take(bytes)?.to_vec()));
                let unused = 8 * (INTEGER_MAX - bytes);
                let bits = u64::from_le_bytes(word) << unused;
                let number =
                    if is_signed { (bits.cast_signed() >> unused) as f64 } else { (bits >> unused) as f64 };
                values.push(Value::Number(number));
            }
            Part::Float => {
                let mut word = [0; 4];
                word.copy_from_slice(&format.ordered(take(4)?.to_vec()));
                values.push(Value::Number(f32::from_le_bytes(word).into()));
            }
            Part::Double => {
                let mut word = [0; 8];
                word.copy_from_slice(&format.ordered(take(8)?.to_vec()));
                values.push(Value::Number(f64::from_le_bytes(word)));
            }
            Part::Text => {
                let rest = bytes.get(at..).unwrap_or_default();
                let length = rest.iter().position(|byte| *byte == 0).ok_or("unfinished string in data")?;
                values.push(string(lua, &rest[..length])?);
                at += length + 1;
            }
            Part::Bytes(0) => {
                let length = values.pop().and_then(|length| as_number(&length));
                let length = length.ok_or("format 'c0' needs a previous size")?;
                values.push(string(lua, take(length as usize)?)?);
            }
            Part::Bytes(count) => values.push(string(lua, take(count)?)?),
        }
    }
    values.push(Value::Integer(at as i64 + 1));
    Ok(values)
}

fn size(_: &Lua, arguments: &[Value]) -> Answer {
    let format = text_at(arguments, 0)?;
    let mut format = Format::new(&format);
    let mut at = 0_usize;
    while let Some(part) = format.next()? {
        at += format.padding(part, at)?;
        at = at.saturating_add(match part {
            Part::Padding => 1,
            Part::Integer { bytes, .. } => bytes,
            Part::Float => 4,
            Part::Double => 8,
            Part::Text => return Err("variable-size format in sizeof".to_owned()),
            Part::Bytes(0) => return Err("variable-length format in sizeof".to_owned()),
            Part::Bytes(count) => count,
        });
    }
    Ok(vec![Value::Integer(at as i64)])
}
