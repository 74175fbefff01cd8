//! Splits records of CSV into key and value. By default the value consists of all columns but the key, with the bytes
//! of the file, including quotes. (A CSV library would remove the quotes.)
//!
//! A record continues over line ends while a quote is open. A key, or a value from one named column, loses its quotes.

use std::borrow::Cow;

use crate::input::Lines;

/// A field as written in the record.
type Field<'a> = &'a [u8];

/// Maximum number of columns of a record.
const COLUMNS_MAX: usize = 1 << 16;

/// State of the parser at a byte. A quote opens only at the start of a field; inside plain text it is text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote that closes the field or is the first of two.
    Quote,
}

impl Place {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Place::FieldStart | Place::Quote, b'"') => Place::Quoted,
            (Place::Quoted, b'"') => Place::Quote,
            (Place::Quoted, _) => Place::Quoted,
            (_, b',') => Place::FieldStart,
            _ => Place::Plain,
        }
    }
}

/// Appends lines until no quote is open.
pub fn complete(lines: &mut Lines, record: &mut Vec<u8>) -> Result<(), String> {
    let (mut seen, mut place) = (0, Place::FieldStart);
    loop {
        place = record[seen..].iter().fold(place, |place, &byte| place.after(byte));
        if place != Place::Quoted {
            return Ok(());
        }
        seen = record.len();
        if !lines.append(record)? {
            return Err("a quote is not closed".to_owned());
        }
    }
}

/// The columns of key and value.
#[derive(Debug, Default)]
pub struct Columns {
    key: usize,
    /// Column of the value. `None` for all columns but the key.
    value: Option<usize>,
}

/// A key and a value. They are borrowed from the record unless quotes had to be removed.
pub type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

impl Columns {
    /// Finds the columns in a header.
    pub fn named(header: &[u8], key: Option<&str>, value: Option<&str>) -> Result<Self, String> {
        let fields = fields(trimmed(header))?;
        let names: Vec<_> = fields.into_iter().map(unquoted).collect();
        let position = |name: &str| {
            let found = names.iter().position(|field| **field == *name.as_bytes());
            found.ok_or_else(|| {
                let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
                format!("the header has no column {name:?}, only {}", names.join(", "))
            })
        };
        Ok(Self { key: key.map_or(Ok(0), position)?, value: value.map(position).transpose()? })
    }

    /// Key and value of a record.
    pub fn split<'a>(&self, record: &'a [u8]) -> Result<Pair<'a>, String> {
        let fields = fields(trimmed(record))?;
        let column = |index: usize| {
            let field = fields.get(index).copied();
            field.ok_or_else(|| format!("{} columns, but column {} is needed", fields.len(), index + 1))
        };
        let key = unquoted(column(self.key)?);
        let value = match self.value {
            Some(index) => unquoted(column(index)?),
            None => {
                let others = fields.iter().enumerate().filter(|(index, _)| *index != self.key);
                Cow::Owned(others.map(|(_, field)| *field).collect::<Vec<_>>().join(&b','))
            }
        };
        Ok((key, value))
    }
}

fn trimmed(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Splits a record at the commas that are not inside quotes.
fn fields(record: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let end = if rest.first() == Some(&b'"') { quoted_end(rest)? } else { plain_end(rest) };
        if fields.len() == COLUMNS_MAX {
            return Err(format!("more than {COLUMNS_MAX} columns"));
        }
        fields.push(&rest[..end]);
        match rest.get(end) {
            None => return Ok(fields),
            Some(b',') => rest = &rest[end + 1..],
            Some(_) => return Err("text after a closing quote".to_owned()),
        }
    }
}

fn plain_end(field: &[u8]) -> usize {
    field.iter().position(|&byte| byte == b',').unwrap_or(field.len())
}

/// Position after the closing quote of a field that starts with a quote.
fn quoted_end(field: &[u8]) -> Result<usize, String> {
    let mut at = 1;
    loop {
        match (field.get(at), field.get(at + 1)) {
            (Some(b'"'), Some(b'"')) => at += 2,
            (Some(b'"'), _) => return Ok(at + 1),
            (Some(_), _) => at += 1,
            (None, _) => return Err("a quote is not closed".to_owned()),
        }
    }
}

fn unquoted(field: Field<'_>) -> Cow<'_, [u8]> {
    let Some(inner) = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")) else {
        return Cow::Borrowed(field);
    };
    if !inner.contains(&b'"') {
        return Cow::Borrowed(inner);
    }
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(columns: &Columns, record: &str) -> Result<(String, String), String> {
        let (key, value) = columns.split(record.as_bytes())?;
        Ok((String::from_utf8_lossy(&key).into_owned(), String::from_utf8_lossy(&value).into_owned()))
    }

    #[test]
    fn the_value_is_kept_as_it_is_written() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        let columns = Columns::default();
        assert_eq!(split(&columns, "a,b,c\r"), pair("a", "b,c"));
        assert_eq!(split(&columns, r#""a ""x"", y","b, c","d""#), pair(r#"a "x", y"#, r#""b, c","d""#));
        assert_eq!(split(&columns, "a"), pair("a", ""));
        assert_eq!(split(&columns, "a,,"), pair("a", ","));
        assert!(split(&columns, r#""a"b,c"#).is_err());
        assert!(split(&columns, r#""a"#).is_err());
    }

    #[test]
    fn columns_are_found_by_name() {
        let columns = Columns::named(b"id,\"the name\",age\r", Some("age"), Some("the name")).unwrap();
        assert_eq!(split(&columns, r#"7,"Ada ""L""",36"#), Ok(("36".to_owned(), r#"Ada "L""#.to_owned())));
        assert!(split(&columns, "7,Ada").unwrap_err().contains("2 columns"));
        let others = Columns::named(b"id,name,age", Some("name"), None).unwrap();
        assert_eq!(split(&others, "7,\"Ada\",36"), Ok(("Ada".to_owned(), "7,36".to_owned())));
        assert!(Columns::named(b"id,name", Some("nobody"), None).unwrap_err().contains("id, name"));
    }
}
