//! The libraries of a server. They are records of the table [`TABLE`]: the key is the name of a library, the value its text.
//!
//! Invariants:
//! * F1: a change writes the table in one transaction, before the server uses its result. A crash keeps all of a change or nothing.
//! * F2: changes run one after the other. Calls do not wait for them, and use the libraries of one moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bristlecone::{Error, Transaction};
use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::libraries::Library;
use super::{Script, Scripts};
use crate::command::CommandError;
use crate::eviction::write_cost;
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
        let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
        lock(&self.registry).functions.get(&name).cloned()
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
        let _changing = lock(&self.changing);
        let old = self.registry();
        let mut new = Registry::clone(&old);
        let result = change(&mut new)?;
        let is_kept = |library: &&Arc<Library>| {
            let other = new.library(&library.name);
            other.is_some_and(|other| Arc::ptr_eq(other, library))
        };
        let removed: Vec<_> = old.libraries().filter(|library| !is_kept(library)).collect();
        let is_old = |library: &&Arc<Library>| {
            let other = old.library(&library.name);
            other.is_some_and(|other| Arc::ptr_eq(other, library))
        };
        let added: Vec<_> = new.libraries().filter(|library| !is_old(library)).collect();
        if removed.is_empty() && added.is_empty() {
            return Ok(result);
        }
        let bytes = added.iter().map(|library| library.code.len() as u64).sum();
        let _admission = match added.is_empty() {
            true => None,
            false => {
                let admitted = shared.eviction.admit(shared, write_cost(added.len() as u64, bytes));
                Some(admitted.map_err(|refused| CommandError::Text(refused.to_string()))?)
            }
        };
        let store = shared.store.table(TABLE)?;
        let mut transaction = Transaction::new(&shared.store);
        let mut table = transaction.table(&store)?;
        for library in removed {
            table.delete(library.name.as_bytes())?;
        }
        for library in added {
            table.put(library.name.as_bytes(), &[&[VERSION], &library.code[..]].concat())?;
        }
        if !transaction.commit()? {
            return Err(Error::Conflict { attempts: 1 }.into());
        }
        *lock(&self.registry) = Arc::new(new);
        shared.scripts.forget_interpreters();
        Ok(result)
    }
}

/// The library in a stored value.
fn restored(scripts: &Scripts, value: &[u8]) -> Result<Arc<Library>, CommandError> {
    match value.split_first() {
        Some((&VERSION, code)) => Ok(Arc::new(scripts.load(&Bytes::copy_from_slice(code))?)),
        _ => Err(CommandError::Text("its format is not known".to_owned())),
    }
}
