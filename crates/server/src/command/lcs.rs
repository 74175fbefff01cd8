//! LCS: the longest common subsequence of two values.
//!
//! The command fills a table with the length for each pair of prefixes, and then walks back through this table. This takes O(n m) time and
//! memory for values of n and m bytes. If two ways back give the same length, the command takes the one that Redis takes. So the reply
//! equals that of Redis.

use super::{Call, Command, CommandError, Flags, integer, is};
use crate::access::AccessError;

/// Maximum bytes of the table of lengths, as in Redis.
const TABLE_BYTES_MAX: usize = 512 << 20;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command {
    name: "lcs",
    arity: -3,
    flags: Flags::READ.and(Flags::SLOW),
    keys: (1, 2, 1),
    group: "string",
    summary: "Returns the longest common subsequence of two values. Options: LEN, IDX, MINMATCHLEN, WITHMATCHLEN.",
    handler: lcs,
}];

#[derive(Default)]
struct Options {
    len: bool,
    ranges: bool,
    match_len_min: i64,
    with_match_len: bool,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, CommandError> {
        let mut all = Self::default();
        let mut options = call.rest(3).iter();
        while let Some(option) = options.next() {
            if is(option, "LEN") {
                all.len = true;
            } else if is(option, "IDX") {
                all.ranges = true;
            } else if is(option, "WITHMATCHLEN") {
                all.with_match_len = true;
            } else if is(option, "MINMATCHLEN")
                && let Some(number) = options.next()
            {
                all.match_len_min = integer(number)?.max(0);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if all.len && all.ranges {
            let text = "ERR If you want both the length and indexes, please just use IDX.";
            return Err(CommandError::Text(text.to_owned()));
        }
        Ok(all)
    }
}

/// Lengths of the longest common subsequences of all pairs of prefixes.
struct Table {
    columns: usize,
    lengths: Vec<u32>,
}

impl Table {
    fn of(one: &[u8], other: &[u8]) -> Result<Self, CommandError> {
        let columns = other.len() + 1;
        let cells = (one.len() + 1).checked_mul(columns).filter(|cells| *cells <= TABLE_BYTES_MAX / 4);
        let cells = cells.ok_or_else(|| {
            let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
            CommandError::Text(text.to_owned())
        })?;
        let mut table = Self { columns, lengths: vec![0; cells] };
        for (row, a) in one.iter().enumerate() {
            let (above, current) = table.lengths[row * columns..(row + 2) * columns].split_at_mut(columns);
            for (column, b) in other.iter().enumerate() {
                current[column + 1] = match a == b {
                    true => above[column] + 1,
                    false => above[column + 1].max(current[column]),
                };
            }
        }
        Ok(table)
    }

    fn length(&self, one: usize, other: usize) -> u32 {
        self.lengths[one * self.columns + other]
    }
}

/// An equal part of both values: its first position in each, and its number of bytes.
type Match = (usize, usize, usize);

/// The matches of the subsequence, last one first.
fn matches(one: &[u8], other: &[u8], table: &Table) -> Vec<Match> {
    let (mut i, mut j) = (one.len(), other.len());
    let mut found: Vec<Match> = Vec::new();
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            (i, j) = (i - 1, j - 1);
            match found.last_mut() {
                Some((a, b, bytes)) if (*a, *b) == (i + 1, j + 1) => (*a, *b, *bytes) = (i, j, *bytes + 1),
                _ => found.push((i, j, 1)),
            }
        } else if table.length(i - 1, j) > table.length(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    found
}

fn lcs(call: &mut Call<'_>) -> Result<(), CommandError> {
    let options = Options::parse(call)?;
    let mut values = [Vec::new(), Vec::new()];
    for (value, key) in values.iter_mut().zip(call.rest(1)) {
        match call.keys.get_into(key, value) {
            Ok(true) => {}
            Ok(false) => value.clear(),
            Err(AccessError::WrongType) => {
                return Err(CommandError::Text(
                    "ERR The specified keys must contain string values".to_owned(),
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let [one, other] = &values;
    let table = Table::of(one, other)?;
    let length = table.length(one.len(), other.len());
    if options.len {
        call.reply.count(length.into());
        return Ok(());
    }
    let found = matches(one, other, &table);
    if !options.ranges {
        let parts: Vec<_> = found.iter().rev().map(|(at, _, bytes)| &one[*at..at + bytes]).collect();
        return Ok(call.reply.bulk(&parts.concat())?);
    }
    let is_long =
        |(_, _, bytes): &&Match| i64::try_from(*bytes).is_ok_and(|bytes| bytes >= options.match_len_min);
    let found: Vec<_> = found.iter().filter(is_long).collect();
    let reply = &mut call.reply;
    // A match takes at most this many bytes in the reply.
    reply.check_space(found.len() * 64)?;
    reply.map(2);
    reply.text("matches");
    reply.array(found.len());
    for (a, b, bytes) in found {
        reply.array(2 + usize::from(options.with_match_len));
        for start in [a, b] {
            reply.array(2);
            reply.count(*start as u64);
            reply.count((start + bytes - 1) as u64);
        }
        if options.with_match_len {
            reply.count(*bytes as u64);
        }
    }
    reply.text("len");
    reply.count(length.into());
    Ok(())
}
