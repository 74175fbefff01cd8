//! Cursors: reads of an index in key order.

use std::ops::Bound;

use pmem::Result;

use crate::kind::Kind;

/// A position in key order, or in the engine's own order. It holds no lock. The index may change between two calls.
pub trait Cursor<K: Kind> {
    /// Places the cursor at the bound `from`. Then [`Cursor::next`] returns the keys above the bound in ascending order, or the keys below
    /// it in descending order. It also returns the key of an included bound. `Unbounded` is the start of the index, or its end if
    /// `descending`.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` if the engine has no key order.
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()>;

    /// Starts a walk through all keys, or continues it after the key `behind`, which may have been removed. The order is the engine's own.
    /// It is the same in each walk.
    ///
    /// # Errors
    /// `Corrupt`.
    fn walk(&mut self, behind: Option<&K::Key>) -> Result<()> {
        self.seek(behind.map_or(Bound::Unbounded, Bound::Excluded), false)
    }

    /// Moves to the next key in the direction of the last `seek` or `walk`, and copies key and value. False at the end.
    ///
    /// # Errors
    /// `Corrupt`.
    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool>;

    /// Calls `with` with the next pairs, as long as it returns true. False at the end. The index may read several pairs together, and may
    /// lend its own bytes instead of copies. Then it frees no memory while `with` runs.
    ///
    /// # Errors
    /// `Corrupt`. `with` may have been called.
    fn visit(&mut self, with: &mut dyn FnMut(&K::Key, &K::Value) -> bool) -> Result<bool> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        while self.next(&mut key, &mut value)? {
            if !with(K::key(&key), K::value(&value)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
