//! Operations on one key: lookups at the newest durable version, puts, deletes.

use index::{Schema, Write, WriteOptions};
use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};

use crate::structure::Versioned;
use crate::structure::{KeyOf, Structure, ValueBufOf, ValueOf};
use crate::version::View;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Looks up `key` at the newest durable version. True if the key is present; then `value` gets its value.
    ///
    /// # Errors
    /// `Corrupt` if a node or record is damaged; `Failed` if the writer panicked while it changed a node that is read.
    pub fn get(&self, key: &KeyOf<X>, mut value: Option<&mut ValueBufOf<X>>) -> Result<bool> {
        loop {
            let told = self.told.load(Ordering::SeqCst);
            let pin = self.pins.enter(&self.visible);
            let durable = self.view_at(pin.version());
            if told <= pin.version() {
                return self.get_in(&durable, key, value);
            }
            // If the newest entry began at the durable version or before, it is durable. If the key is absent at both versions, its absence
            // is durable.
            let newest = self.view_at(self.applied.load(Ordering::SeqCst));
            let settled = match X::find_in(self, &newest, key)? {
                Some(entry) => entry.start <= pin.version(),
                None => X::find_in(self, &durable, key)?.is_none(),
            };
            if settled {
                return self.get_in(&durable, key, value.as_deref_mut());
            }
            drop(pin);
            self.settle_told();
        }
    }

    /// Looks up `key` in a view of a pinned version.
    #[inline]
    pub(crate) fn get_in(
        &self,
        view: &View,
        key: &KeyOf<X>,
        value: Option<&mut ValueBufOf<X>>,
    ) -> Result<bool> {
        let Some(entry) = X::find_in(self, view, key)? else { return Ok(false) };
        // The pin keeps the record allocated.
        if let Some(value) = value
            && !X::Schema::read_value(self.region.medium(), &X::of_schema(&entry), value)
        {
            return Err(Error::Corrupt { what: "record", at: entry.payload });
        }
        Ok(true)
    }

    /// Stores a value under a key. True if it replaced one. Durable on return.
    ///
    /// # Errors
    /// `NoSpace` or `Full` if the region cannot grow, `TooLarge` if the change needs more space than a group, the intent ring or the list
    /// of dead versions has, `Corrupt`, `Closed`, `ReadOnly`, `Failed`: nothing has changed. Over a journal also the errors of a commit.
    /// Then the next open shows whether the write is durable.
    pub fn put(&self, key: &KeyOf<X>, value: &ValueOf<X>) -> Result<bool> {
        self.put_as(key, value, WriteOptions::default())
    }

    /// As [`Versioned::put`]. `how` says whether the call waits until the write is durable.
    ///
    /// # Errors
    /// As there.
    pub fn put_as(&self, key: &KeyOf<X>, value: &ValueOf<X>, how: WriteOptions) -> Result<bool> {
        let writes = [Write::Put(key, value)];
        let mut writer = self.enter_to_write(&writes)?;
        X::make_space(self, &mut writer, &writes)?;
        let found = X::change(self, &mut writer, |change| X::put_in(self, change, key, value))?;
        self.acknowledge(writer, how)?;
        Ok(found)
    }

    /// Removes a key. True if it was present. Durable on return.
    ///
    /// # Errors
    /// As [`Versioned::put`].
    pub fn delete(&self, key: &KeyOf<X>) -> Result<bool> {
        self.delete_as(key, WriteOptions::default())
    }

    /// As [`Versioned::delete`]. `how` says whether the call waits until the write is durable.
    ///
    /// # Errors
    /// As there.
    pub fn delete_as(&self, key: &KeyOf<X>, how: WriteOptions) -> Result<bool> {
        let writes = [Write::Delete(key)];
        let mut writer = self.enter_to_write(&writes)?;
        X::make_space(self, &mut writer, &writes)?;
        let found = X::change(self, &mut writer, |change| X::delete_in(self, change, key))?;
        self.acknowledge(writer, how)?;
        Ok(found)
    }
}
