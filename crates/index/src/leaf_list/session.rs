//! A session: the writer's lock held over several changes.
//!
//! To lock and unlock takes a tenth of a change's instructions. Without them, more of a change's search overlaps with the last fence of the
//! change before. Each change is durable by itself when its call returns. On a medium with a journal there is no session, because a
//! commit of the journal needs the lock.

use pmem::Result;

use super::core::{KeyOf, Writer};
use super::prelude::*;
use crate::engine;
use crate::garbage::lacks_space;
use crate::kernel::Guard;
use crate::kind::{Kind, SchemaOf};

/// The writer's lock. Other writers wait until it is dropped; readers do not.
pub(super) struct Session<'a, T: LeafList> {
    index: &'a T,
    writer: Guard<'a, T>,
}

impl<'a, T: LeafList> Session<'a, T> {
    /// Takes the writer's lock. `None` if the index has a journal, gains nothing by a session ([`LeafList::SESSIONS`]), or is loading: the
    /// rest of the loading needs the lock.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    pub(super) fn new(index: &'a T) -> Result<Option<Self>> {
        if !T::SESSIONS || index.pending.is_some() || index.is_loading() {
            return Ok(None);
        }
        let mut writer = index.lock_writer()?;
        // Between two changes a panic of the caller leaves nothing incomplete.
        writer.arm(false);
        Ok(Some(Self { index, writer }))
    }

    /// Makes a change of a key, and again after some garbage was freed, if there is no space for it.
    #[inline(always)]
    fn change(
        &mut self,
        key: &KeyOf<T>,
        change: impl Fn(&T, &mut Writer<T::Own>) -> Result<bool>,
    ) -> Result<bool> {
        let Self { index, writer } = self;
        index.writable()?;
        writer.arm(true);
        let was_there = match change_with_space(*index, writer, key, change) {
            Ok(was_there) => was_there,
            Err(error) => {
                writer.arm(false);
                return Err(error);
            }
        };
        index.tidy_behind(writer);
        writer.arm(false);
        Ok(was_there)
    }
}

#[inline(always)]
fn change_with_space<T: LeafList>(
    index: &T,
    writer: &mut Writer<T::Own>,
    key: &KeyOf<T>,
    change: impl Fn(&T, &mut Writer<T::Own>) -> Result<bool>,
) -> Result<bool> {
    index.save_image(key)?;
    loop {
        match change(index, writer) {
            Ok(was_there) => return Ok(was_there),
            Err(error) if lacks_space(&error) && index.has_garbage() => {
                let outcome = index.free_some(writer);
                index.set_garbage(matches!(outcome, Ok(true)));
                outcome?;
            }
            Err(error) => return Err(error),
        }
    }
}

impl<K: Kind, T: LeafList<Schema: SchemaOf<K>>> engine::Session<K> for Session<'_, T> {
    fn put(&mut self, key: &K::Key, value: &K::Value) -> Result<bool> {
        self.change(key, |index, writer| index.put_locked(writer, key, value))
    }

    fn delete(&mut self, key: &K::Key) -> Result<bool> {
        self.change(key, |index, writer| index.delete_locked(writer, key))
    }
}
