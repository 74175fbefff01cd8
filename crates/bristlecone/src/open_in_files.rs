//! Opening stores in files of their engine's own ([`crate::in_files`]).

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use ::index::engine::{About, Count, Files, Form};
use ::index::schema::TABLES;
use ::index::tables::Clock;
use pmem::Durability;
use pmem::journal::{MEMORY_MIN, memory_default};

use crate::durable_engine::{Described, Engine, node_lines};
use crate::error::{Error, Result};
use crate::in_files::{Identity, Opener};
use crate::options::{Compression, Options};
use crate::store_dir::{FILE_NAME, StoreDir, remove_parts, with_lasting_name};
use crate::tabled::{Tabled, count};

/// Default length of the log at which a checkpoint is made.
const LOG_BYTES: u64 = 64 << 20;

/// The form of the index of a store with this identity.
fn form(about: &'static About, identity: &Identity) -> Form {
    Form {
        tables: identity.kind.ends_with(TABLES),
        ..Form::new(about.name, identity.node_lines, identity.durability)
    }
}

/// The files of an existing store, with the usual settings.
fn files<'f>(dir: &'f Path, identity: &Identity, form: &'f Form) -> Files<'f> {
    Files {
        dir,
        stem: FILE_NAME,
        id: identity.id,
        is_found: true,
        form,
        memory_bytes: memory_default(),
        log_bytes: LOG_BYTES,
        compresses: None,
        direct_io: false,
        read_only: false,
    }
}

/// Makes or opens a store in files.
///
/// # Errors
/// As [`Store::open`](crate::Store::open).
pub(crate) fn open<K: Tabled>(
    described: Described,
    opener: Opener<K>,
    dir: &Path,
    options: &Options,
) -> Result<Arc<Engine<K>>> {
    let about = described.about;
    let memory_bytes = options.memory_bytes.unwrap_or_else(memory_default);
    if memory_bytes < MEMORY_MIN {
        return Err(Error::Option(format!(
            "a bound of {memory_bytes} bytes on the memory for pages: it is at least {MEMORY_MIN}"
        )));
    }
    if options.durability == Some(Durability::Eadr) {
        return Err(Error::Option("eADR for a store in files: use power or process durability".into()));
    }
    let options = &Options { in_files: true, ..options.clone() };
    let store_dir = if options.read_only { StoreDir::look(dir) } else { StoreDir::take(dir, options) };
    let mut store_dir = store_dir.map_err(with_lasting_name)?;
    let is_found = !store_dir.fresh;
    let identity = match is_found {
        true => Identity::of_store(dir)?.ok_or_else(|| {
            let why = "it is a store of another engine by now";
            pmem::Error::Foreign { path: store_dir.path.clone(), why }
        })?,
        false => Identity {
            // Not 0, which stands for any store.
            id: RandomState::new().hash_one(std::process::id()) | 1,
            engine: about.name.to_owned(),
            kind: format!("{}{}", K::NAME, if options.tables && K::HAS_TABLES { TABLES } else { "" }),
            node_lines: node_lines(about, options)?,
            durability: store_dir.promise.durability,
        },
    };
    if options.durability.is_some_and(|asked| asked != identity.durability) {
        return Err(Error::Option(format!(
            "this store was made with {} durability: leave the durability out, or copy its pairs into a new store of another \
             durability (`scan`, `load`)",
            identity.durability
        )));
    }
    store_dir.set_promise_in_files(identity.durability);
    let unfinished = store_dir.again()?;
    let opened = (|| {
        let form = Form { max_bytes: options.max_bytes, ..form(about, &identity) };
        let files = Files {
            is_found,
            memory_bytes,
            log_bytes: options.journal_bytes.unwrap_or(LOG_BYTES),
            direct_io: options.direct_io,
            compresses: options.compression.map(|compression| compression == Compression::Lz4),
            read_only: options.read_only,
            ..files(dir, &identity, &form)
        };
        let (index, found) = opener(&files)?;
        if !is_found {
            identity.write(&store_dir)?;
            store_dir.finish()?;
        }
        let engine = Engine::in_files(described, index, found, store_dir, form.node_lines, options)?;
        Ok(Arc::new(engine))
    })();
    opened.map_err(|error| {
        if is_found {
            return error;
        }
        remove_parts(dir);
        unfinished.give_up(error)
    })
}

/// Opens the index of a store's files, and closes it: it recovers. Returns the number of keys of all tables. Reads no page for that, so it
/// is an estimate if the counts are not stored.
///
/// # Errors
/// `Pmem`: those of the files.
pub(crate) fn close<K: Tabled>(
    identity: &Identity,
    opener: Opener<K>,
    about: &'static About,
    dir: &Path,
) -> Result<Count> {
    let form = form(about, identity);
    let (index, found) = opener(&files(dir, identity, &form))?;
    let index = if form.tables { K::with_tables(index, found, Clock::default())? } else { index };
    let mut found = count(&*index);
    if let Some(tables) = index.tables().filter(|_| found.pending) {
        // Each table has a record of its own, and so has each deadline.
        found.keys = tables.stored().len().keys.saturating_sub(tables.list().len() as u64);
        tables.give_up_counts();
    }
    index.close()?;
    Ok(found)
}
