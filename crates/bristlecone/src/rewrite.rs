//! Writes pairs into a file that is not a store yet, in key order if the engine is ordered.

use ::index::engine::{FILL, TableOps};
use ::index::{Kind, Report, schema};
use pmem::copy::{Progress, Target};
use pmem::{Durability, LINE, Native, system};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::registry::Open;
use crate::stats::Stats;
use crate::store_dir::io;

/// Number of pairs between two progress reports.
const REPORTED_AFTER: u64 = 64;

/// The result of writing.
pub(crate) struct Written {
    /// Number of pairs.
    pub pairs: u64,
    /// The check of the new index.
    pub check: Report,
}

/// Writes the next pair into its arguments. False at the end.
type Next<'n, K> = dyn FnMut(&mut <K as Kind>::KeyBuf, &mut <K as Kind>::ValueBuf) -> Result<bool> + 'n;

/// Makes an index with the settings of `like` in the file of `to`, and stores all pairs of `next` in it. `total` is the approximate number
/// of pairs, for `progress`. Checks the index, closes it cleanly, and syncs the file.
///
/// # Errors
/// The errors of `next`; `NoSpace` if the file system is full; `Io`; `Option` if the count of the new index is wrong.
pub(crate) fn write_pairs<K: Open>(
    like: &Stats,
    to: &Target<'_>,
    total: u64,
    progress: Progress<'_>,
    next: &mut Next<'_, K>,
) -> Result<Written> {
    let options = Options::default()
        .engine(&*like.engine)
        .node_lines(like.node_bytes / LINE)
        .value_bytes(::index::Fixed::value_bytes(&like.kind))
        .tables(like.kind.ends_with(schema::TABLES));
    let file = system::duplicate(to.file, to.path).map_err(|source| io("cannot open", to.path, source))?;
    let memory = Native::map_from(file, to.path, to.origin, options.max_bytes, Durability::Process)?;
    let new = K::create_unnamed(memory.into(), &options)?;
    let (mut given, mut unread) = (0, None);
    let mut counted = |key: &mut K::KeyBuf, value: &mut K::ValueBuf| {
        // A pair that cannot be read ends the copy. The error is returned below.
        let found = next(key, value).unwrap_or_else(|error| {
            unread = Some(error);
            false
        });
        given += u64::from(found);
        if given.is_multiple_of(REPORTED_AFTER) || !found {
            progress(given, total.max(given));
        }
        Ok(found)
    };
    let index = new.stored();
    let pairs = index.append(&mut counted, FILL)?;
    if let Some(error) = unread {
        return Err(error);
    }
    let check = index.check();
    if index.len().keys != check.keys {
        let (counted, found) = (index.len().keys, check.keys);
        return Err(Error::Option(format!(
            "the copy is not used: it counts {counted} keys and a check finds {found}; the store is unchanged: run \
             `bristlecone check` on it"
        )));
    }
    // The pairs that were written contain a catalog. A close writes the number of keys of each table.
    new.tables().map_or(Ok(()), TableOps::reload)?;
    new.close()?;
    drop(new);
    system::sync_all(to.file, to.path).map_err(|source| io("cannot sync", to.path, source))?;
    Ok(Written { pairs, check })
}
