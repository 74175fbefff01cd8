//! A session: the writer's lock held over several changes.
//!
//! Taking and giving back a lock drains the processor's store buffer, so the last fence of one change cannot hide under the
//! search of the next. Whoever has many changes to make holds the lock over them; each change is still durable by itself
//! when its call returns.

use std::sync::MutexGuard;

use pmem::{Medium, Result};

use crate::discipline::Discipline;
use crate::layout::Layouts;
use crate::schema::Schema;
use crate::tree::{Tree, Writer};

/// The writer's lock. Other writers wait until it is dropped; readers do not.
pub struct Session<'a, M: Medium, S: Schema, L, D: Discipline> {
    tree: &'a Tree<M, S, L, D>,
    writer: MutexGuard<'a, Writer<S>>,
}

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> Tree<M, S, L, D> {
    /// Takes the writer's lock.
    ///
    /// # Errors
    /// `Closed`.
    pub fn session(&self) -> Result<Session<'_, M, S, L, D>> {
        Ok(Session { tree: self, writer: self.lock_writer()? })
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> Session<'_, M, S, L, D> {
    /// As [`Tree::put`].
    ///
    /// # Errors
    /// As [`Tree::put`].
    #[inline]
    pub fn put(&mut self, key: &S::Key, value: &S::Value) -> Result<bool> {
        self.tree.writable()?;
        self.tree.put_locked(&mut self.writer, key, value)
    }

    /// As [`Tree::delete`].
    ///
    /// # Errors
    /// As [`Tree::delete`].
    #[inline]
    pub fn delete(&mut self, key: &S::Key) -> Result<bool> {
        self.tree.writable()?;
        self.tree.delete_locked(&mut self.writer, key)
    }
}
