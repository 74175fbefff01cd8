//! Stores of engines that keep their contents in files of their own: `bwtree`.
//!
//! The store's file has one sector, with the identity of the store: a random number that is in all files, the engine, the kind of keys and
//! values, the node size and the durability. It is made, named and locked like the file of every other store ([`StoreDir`]). The other
//! files are beside it and have its name as their beginning.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use ::index::Kind;
use ::index::engine::{About, Files, Form, InFiles};
use ::index::schema::TABLES;
use pmem::Durability;
use pmem::copy::Progress;
use pmem::journal::{MEMORY_MIN, memory_default};

use crate::backup::{Backup, refuse_full};
use crate::durable_engine::{Described, Engine, node_lines};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::registry;
use crate::store_dir::{FILE_NAME, StoreDir};
use crate::tabled::Tabled;

/// The identity of a store in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    id: u64,
    /// Name of the engine.
    pub(crate) engine: String,
    /// Kind of keys and values.
    pub(crate) kind: String,
    node_lines: u64,
    durability: Durability,
}

/// Makes or opens the index of a kind.
pub(crate) type Opener<K> = fn(&Files<'_>) -> InFiles<K>;

/// Default length of the log at which a checkpoint is made.
const LOG_BYTES: u64 = 64 << 20;

impl Identity {
    #[cfg(feature = "bwtree")]
    fn write(&self, store_dir: &StoreDir) -> Result<()> {
        let Self { id, engine, kind, node_lines, durability } = self;
        let text = format!("{engine}\n{kind}\n{node_lines}\n{durability}");
        let path = store_dir.new_paths().0;
        Ok(logstore::identity::write(
            &store_dir.file,
            &path,
            &logstore::identity::Identity { id: *id, text },
        )?)
    }

    #[cfg(not(feature = "bwtree"))]
    fn write(&self, _store_dir: &StoreDir) -> Result<()> {
        Err(Error::Unsupported("no engine with files of its own is compiled".into()))
    }

    /// The identity of the store in `dir`. `None` if there is no store, or it is no store in files.
    ///
    /// # Errors
    /// `Pmem`: `Foreign` if it is damaged; `Version`; `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn of_store(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let Some(logstore::identity::Identity { id, text }) = logstore::identity::read(&path)? else {
            return Ok(None);
        };
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::to_owned);
        let identity = (|| {
            Some(Self {
                id,
                engine: next()?,
                kind: next()?,
                node_lines: next()?.parse().ok()?,
                durability: match next()?.as_str() {
                    "power" => Durability::Power,
                    "process" => Durability::Process,
                    _ => return None,
                },
            })
        })();
        let why = "its identity is damaged";
        identity.map(Some).ok_or_else(|| pmem::Error::Foreign { path, why }.into())
    }

    #[cfg(not(feature = "bwtree"))]
    pub(crate) fn of_store(_dir: &Path) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Copies the files of a store that no process writes to.
    ///
    /// # Errors
    /// `Pmem`: `NoSpace`, `Io`.
    #[cfg(feature = "bwtree")]
    pub(crate) fn copy(&self, dir: &Path, to: &Path, progress: Progress<'_>) -> Result<u64> {
        Ok(logstore::copy::copy(dir, FILE_NAME, to, None, progress)?)
    }

    #[cfg(not(feature = "bwtree"))]
    pub(crate) fn copy(&self, _dir: &Path, _to: &Path, _progress: Progress<'_>) -> Result<u64> {
        Err(Error::Unsupported("no engine with files of its own is compiled".into()))
    }

    /// The error of an operation that stores in files do not have.
    pub(crate) fn refuse(dir: &Path, what: &str, remedy: &str) -> Result<()> {
        match Self::of_store(dir)? {
            None => Ok(()),
            Some(Self { engine, .. }) => Err(Error::Unsupported(format!(
                "{} holds a store of {engine} in files, which {what}: {remedy}",
                dir.display()
            ))),
        }
    }
}

/// Makes or opens a store in files. `found` is the identity of an existing store.
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
    let mut store_dir = store_dir.map_err(crate::store_dir::with_lasting_name)?;
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
        let form = Form {
            max_bytes: options.max_bytes,
            tables: identity.kind.ends_with(TABLES),
            ..Form::new(about.name, identity.node_lines, identity.durability)
        };
        let files = Files {
            dir,
            stem: FILE_NAME,
            id: identity.id,
            is_found,
            form: &form,
            memory_bytes,
            log_bytes: options.journal_bytes.unwrap_or(LOG_BYTES),
            read_only: options.read_only,
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

/// Makes a store in `target` of the files that `copy` copies there. Returns its number of keys and bytes.
///
/// # Errors
/// `Option` if `target` is not empty; `NoRoom`; the errors of `copy` and of opening the copy.
pub(crate) fn backup(
    dir: &Path,
    identity: &Identity,
    target: &Path,
    copy: &dyn Fn(&Path) -> Result<u64>,
) -> Result<Backup> {
    refuse_full(target)?;
    let options = Options { in_files: true, ..Options::default().durability(identity.durability) };
    let store_dir = StoreDir::take(target, &options)?;
    let made = (|| {
        if !store_dir.fresh {
            return Err(Error::Option(format!(
                "{} holds a store by now: name another directory",
                target.display()
            )));
        }
        let bytes = copy(target)?;
        let keys = registry::close_files(identity, target)?;
        identity.write(&store_dir)?;
        store_dir.finish()?;
        Ok(Backup { keys, bytes })
    })();
    made.map_err(|error| {
        if !store_dir.fresh {
            return error;
        }
        remove_parts(target);
        let error = store_dir.give_up(error);
        match error {
            Error::NotMade { path, bytes } => Error::NoRoom { what: "the backup", path, bytes },
            Error::Pmem(pmem::Error::NoSpace { bytes, .. }) => {
                Error::NoRoom { what: "the backup", path: dir.to_owned(), bytes }
            }
            other => other,
        }
    })
}

/// Opens the index of a store's files, and closes it: it recovers, and its keys are counted.
pub(crate) fn close<K: Kind>(
    identity: &Identity,
    opener: Opener<K>,
    about: &About,
    dir: &Path,
) -> Result<u64> {
    let form = Form {
        tables: identity.kind.ends_with(TABLES),
        ..Form::new(about.name, identity.node_lines, identity.durability)
    };
    let files = Files {
        dir,
        stem: FILE_NAME,
        id: identity.id,
        is_found: true,
        form: &form,
        memory_bytes: memory_default(),
        log_bytes: LOG_BYTES,
        read_only: false,
    };
    let (index, _) = opener(&files)?;
    let keys = index.len().keys;
    index.close()?;
    Ok(keys)
}

/// Removes the files of a store other than its identity. The caller has locked the store, and has removed its name.
pub(crate) fn remove_parts(dir: &Path) {
    let is_part = |name: &str| {
        let rest = name.strip_prefix(FILE_NAME).unwrap_or_default();
        [".log-", ".pages-", ".checkpoint"].iter().any(|part| rest.starts_with(part))
    };
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_part) {
            let _ = pmem::system::remove_file(&entry.path());
        }
    }
}
