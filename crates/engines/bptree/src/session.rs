//! A session: the writer's lock held over several changes.
//!
//! Locking and unlocking drain the processor's store buffer. So the last fence of one change cannot overlap with the search of the next. A
//! caller with many changes holds the lock over all of them. Each change is durable by itself when its call returns. On a medium with a
//! journal a session releases the lock between changes, because a commit of the journal needs the lock.

use index::{Batching, Guard, Life, Schema};
use pmem::{Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::tree::Tree;

/// The writer's lock. Other writers wait until it is dropped; readers do not.
pub struct Session<'a, M: Medium, S: Schema, L: Layouts, D: CommitProtocol> {
    tree: &'a Tree<M, S, L, D>,
    writer: Option<Guard<'a, Tree<M, S, L, D>>>,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Takes the writer's lock.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    pub fn session(&self) -> Result<Session<'_, M, S, L, D>> {
        let writer = self.lock_writer()?;
        Ok(Session { tree: self, writer: self.pending.is_none().then_some(writer) })
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Session<'_, M, S, L, D> {
    /// As [`Tree::put`].
    ///
    /// # Errors
    /// As [`Tree::put`].
    #[inline]
    pub fn put(&mut self, key: &S::Key, value: &S::Value) -> Result<bool> {
        let Some(writer) = &mut self.writer else { return self.tree.put(key, value) };
        self.tree.writable()?;
        self.tree.save_image(key)?;
        self.tree.put_locked(writer, key, value)
    }

    /// As [`Tree::delete`].
    ///
    /// # Errors
    /// As [`Tree::delete`].
    #[inline]
    pub fn delete(&mut self, key: &S::Key) -> Result<bool> {
        let Some(writer) = &mut self.writer else { return self.tree.delete(key) };
        self.tree.writable()?;
        self.tree.save_image(key)?;
        self.tree.delete_locked(writer, key)
    }
}
