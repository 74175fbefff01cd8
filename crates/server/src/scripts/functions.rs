//! The libraries of a server. They are records of the table [`TABLE`]: the key is the name of a library, the value its text.
//!
//! Invariants:
//! * F1: a change writes the table in one transaction, before the server uses its result. A crash keeps all of a change or nothing.
//! * F2: changes run one after the other. Calls do not wait for them, and use the libraries of one moment.
//! * F3: a change in EXEC is a part of its transaction. The later commands of the transaction use the new libraries. Other clients use them
//!   from the commit on: no call of another client finds its function between the commit and the new registry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone::{Error, Transaction};
use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::libraries::Library;
use super::{Script, Scripts};
use crate::command::CommandError;
use crate::shared::{Shared, lock};

/// The table of the libraries.
pub const TABLE: &str = "functions";
/// The first byte of a value.
const VERSION: u8 = 1;

/// Libraries and their functions.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    libraries: BTreeMap<String, Arc<Library>>,
    /// The functions by their names in lower case.
    functions: FxHashMap<String, Arc<Script>>,
}

impl Registry {
    /// The libraries, in the order of their names.
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.libraries.values()
    }

    /// The library of this name.
    #[must_use]
    pub fn library(&self, name: &str) -> Option<&Arc<Library>> {
        self.libraries.get(name)
    }

    /// The function of this name, in upper or lower case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
        self.functions.get(&name).cloned()
    }

    /// Number of functions.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Adds a library. Another one of its name is replaced.
    ///
    /// # Errors
    /// Another library has a function of the same name.
    pub fn add(&mut self, library: Arc<Library>) -> Result<(), CommandError> {
        self.remove(&library.name);
        for declared in &library.functions {
            let name = &declared.script.name;
            if self.functions.insert(name.to_ascii_lowercase(), Arc::clone(&declared.script)).is_some() {
                return Err(CommandError::Text(format!("ERR Function {name} already exists")));
            }
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library. False if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.libraries.remove(name) else { return false };
        for declared in &library.functions {
            self.functions.remove(&declared.script.name.to_ascii_lowercase());
        }
        true
    }
}

/// The libraries of a server.
#[derive(Debug, Default)]
pub struct Functions {
    registry: Mutex<Arc<Registry>>,
    /// Held during a change (F2).
    changing: Mutex<()>,
}

impl Functions {
    /// The libraries of now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&lock(&self.registry))
    }

    /// The function of this name, in upper or lower case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        lock(&self.registry).find(name)
    }

    /// Reads the libraries that the store has. One that cannot be used stays in the store.
    ///
    /// # Errors
    /// Those of reading the store.
    pub fn open(&self, shared: &Shared) -> bristlecone::Result<()> {
        let table = if shared.store.has_tables() { shared.store.find_table(TABLE)? } else { None };
        let Some(table) = table else { return Ok(()) };
        let mut registry = Registry::default();
        for record in table.scan(..) {
            let (name, value) = record?;
            if let Err(error) = restored(&shared.scripts, &value).and_then(|library| registry.add(library)) {
                let name = String::from_utf8_lossy(&name);
                tracing::error!("the library of functions {name} cannot be used: {error}. Load it again");
            }
        }
        *lock(&self.registry) = Arc::new(registry);
        Ok(())
    }

    /// Changes the libraries (F1).
    ///
    /// # Errors
    /// Those of `change`, and of writing the store. Nothing has changed then.
    pub fn change<R>(
        &self,
        shared: &Shared,
        change: impl FnOnce(&mut Registry) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let _changing = self.begin_change();
        let old = self.registry();
        let mut new = Registry::clone(&old);
        let result = change(&mut new)?;
        let mut transaction = Transaction::new(&shared.store);
        if write(shared, &mut transaction, (&old, &new))? {
            if !transaction.commit()? {
                return Err(Error::Conflict { attempts: 1 }.into());
            }
            self.publish(Arc::new(new)).finish(shared);
        }
        Ok(result)
    }

    /// Begins a change. Other changes wait until the result is dropped (F2).
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Begins to give new libraries to all clients. Their calls wait until the result is dropped (F3).
    pub fn publish(&self, new: Arc<Registry>) -> Publishing<'_> {
        Publishing { registry: lock(&self.registry), new }
    }
}

/// New libraries whose transaction is about to commit.
#[derive(Debug)]
pub struct Publishing<'f> {
    registry: MutexGuard<'f, Arc<Registry>>,
    new: Arc<Registry>,
}

impl Publishing<'_> {
    /// Gives the new libraries to all clients: the transaction has committed.
    pub fn finish(mut self, shared: &Shared) {
        *self.registry = self.new;
        drop(self.registry);
        shared.scripts.forget_interpreters();
    }
}

/// Writes the difference between two registries in a transaction. False if there is none.
///
/// # Errors
/// Those of the store.
pub fn write(
    shared: &Shared,
    transaction: &mut Transaction<bristlecone::Bytes>,
    (old, new): (&Registry, &Registry),
) -> Result<bool, CommandError> {
    fn is_in(library: &Arc<Library>, other: &Registry) -> bool {
        other.library(&library.name).is_some_and(|other| Arc::ptr_eq(other, library))
    }
    let removed: Vec<_> = old.libraries().filter(|library| new.library(&library.name).is_none()).collect();
    let added: Vec<_> = new.libraries().filter(|library| !is_in(library, old)).collect();
    if removed.is_empty() && added.is_empty() {
        return Ok(false);
    }
    let store = shared.store.table(TABLE)?;
    let mut table = transaction.table(&store)?;
    for library in added {
        table.put(library.name.as_bytes(), &[&[VERSION], &library.code[..]].concat())?;
    }
    for library in removed {
        table.delete(library.name.as_bytes())?;
    }
    Ok(true)
}

/// The library in a stored value.
fn restored(scripts: &Scripts, value: &[u8]) -> Result<Arc<Library>, CommandError> {
    match value.split_first() {
        Some((&VERSION, code)) => Ok(Arc::new(scripts.load(&Bytes::copy_from_slice(code))?)),
        _ => Err(CommandError::Text("its format is not known".to_owned())),
    }
}
