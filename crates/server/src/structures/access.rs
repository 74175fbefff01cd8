//! Structures in a transaction, and reads of them.

use std::ops::Bound;

use bristlecone::{
    Bytes, Deadline, Error, Snapshot, Store, TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX, TransactionTable,
};

use super::{Head, Kind, TABLE, Value, decode};
use crate::access::{Access, AccessError, Result, Together};
use crate::notifications::{Event, Events};
use crate::shared::Shared;

/// Number of times that a read of several elements starts again before it reads from a snapshot.
const READS: usize = 4;

/// A structure that a transaction changes.
pub struct Structure<'k> {
    db: usize,
    key: &'k [u8],
    deadline: Deadline,
    /// The head as it will be.
    pub head: Head,
    /// True if the transaction makes the structure.
    is_new: bool,
    /// True if the structure takes the place of another value of its key.
    replaces: bool,
    is_changed: bool,
}

impl<'k> Structure<'k> {
    /// The structure of a key. `None` if the key is absent.
    ///
    /// # Errors
    /// `WrongType`; those of the store.
    pub fn find(all: &mut Together<'_>, db: usize, key: &'k [u8], kind: Kind) -> Result<Option<Self>> {
        let mut keys = all.db(db)?;
        let Some((stored, deadline)) = keys.look_up(key)? else { return Ok(None) };
        let head = of_kind(stored, kind)?;
        Ok(Some(Self { db, key, deadline, head, is_new: false, replaces: false, is_changed: false }))
    }

    /// The structure of a key. Makes it if the key is absent; it exists only when it has an element.
    ///
    /// # Errors
    /// As [`Structure::find`].
    pub fn find_or_new(all: &mut Together<'_>, db: usize, key: &'k [u8], kind: Kind) -> Result<Self> {
        if let Some(found) = Self::find(all, db, key, kind)? {
            return Ok(found);
        }
        let id = all.shared.structures.elements()?.new_id();
        let head = Head { kind, id, version: 0, count: 0, extra: 0 };
        Ok(Self { db, key, deadline: None, head, is_new: true, replaces: false, is_changed: false })
    }

    /// A new structure in place of the key's value of any type. Without elements, the key is absent.
    ///
    /// # Errors
    /// Those of the store.
    pub fn replacing(all: &mut Together<'_>, db: usize, key: &'k [u8], kind: Kind) -> Result<Self> {
        let replaces = all.db(db)?.contains(key)?;
        if replaces {
            all.db(db)?.delete(key)?;
        }
        Ok(Self { replaces, ..Self::find_or_new(all, db, key, kind)? })
    }

    fn table<'t>(all: &'t mut Together<'_>) -> Result<TransactionTable<'t, Bytes>> {
        Ok(all.transaction.table(&all.shared.structures.elements()?.store)?)
    }

    /// The value of an element.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&self, all: &mut Together<'_>, tag: u8, rest: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.is_new && !self.is_changed {
            return Ok(None);
        }
        Ok(Self::table(all)?.get(&self.head.element(tag, rest))?)
    }

    /// True if there is such an element.
    ///
    /// # Errors
    /// Those of the store.
    pub fn has(&self, all: &mut Together<'_>, tag: u8, rest: &[u8]) -> Result<bool> {
        if self.is_new && !self.is_changed {
            return Ok(false);
        }
        Ok(Self::table(all)?.contains(&self.head.element(tag, rest))?)
    }

    /// Stores an element. The caller counts it in the head if it is new.
    ///
    /// # Errors
    /// Those of the store.
    pub fn put(&mut self, all: &mut Together<'_>, tag: u8, rest: &[u8], value: &[u8]) -> Result<()> {
        self.is_changed = true;
        Ok(Self::table(all)?.put(&self.head.element(tag, rest), value)?)
    }

    /// Removes an element. The caller counts it in the head if it was there.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delete(&mut self, all: &mut Together<'_>, tag: u8, rest: &[u8]) -> Result<()> {
        self.is_changed = true;
        Ok(Self::table(all)?.delete(&self.head.element(tag, rest))?)
    }

    /// Passes the elements of a range to `visit`, each as its key after the tag and its value, until it returns false.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan(
        &self,
        all: &mut Together<'_>,
        range: Range,
        descending: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let visit = |key: &[u8], value: &[u8]| visit(key.get(9..).unwrap_or_default(), value);
        // The head is the guard: this transaction has read it (S2).
        Ok(Self::table(all)?.scan_guarded(range, descending, visit)?)
    }

    /// Gives the key a deadline, or none. [`Structure::finish`] writes it if an element changes.
    pub fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Notes an event of the key.
    pub fn note(&self, all: &mut Together<'_>, event: Event) {
        all.events.note(event, self.db, self.key);
    }

    /// Removes the structure, and notes `event`. Its elements become garbage.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove(self, all: &mut Together<'_>, event: Event) -> Result<()> {
        let mut keys = all.db(self.db)?;
        keys.delete(self.key)?;
        keys.note(event, self.key);
        keys.note(Event::DEL, self.key);
        Ok(())
    }

    /// Writes the head, or removes a structure without elements (S2, S3). Notes `event` if the structure has changed, with the events of a
    /// key that is made or removed. `None`: the caller notes the events.
    ///
    /// # Errors
    /// Those of the store.
    pub fn finish(mut self, all: &mut Together<'_>, event: impl Into<Option<Event>>) -> Result<()> {
        let event = event.into();
        let was_there = !self.is_new || self.replaces;
        if !self.is_changed {
            if self.replaces {
                all.events.note(Event::DEL, self.db, self.key);
            }
            return Ok(());
        }
        if self.head.count == 0 {
            Self::table(all)?.delete(&self.head.owner())?;
            all.db(self.db)?.delete_head(self.key)?;
        } else {
            self.head.version += 1;
            if self.is_new {
                Self::table(all)?.put(&self.head.owner(), self.key)?;
            }
            all.db(self.db)?.put_head(self.key, &self.head, self.deadline)?;
        }
        let Some(event) = event else { return Ok(()) };
        if self.head.count > 0 && !was_there {
            all.events.note(Event::NEW, self.db, self.key);
        }
        all.events.note(event, self.db, self.key);
        if self.head.count == 0 && was_there {
            all.events.note(Event::DEL, self.db, self.key);
        }
        Ok(())
    }
}

/// Checks the length of an element: of its key after the tag, and of its value. A command checks its arguments before its first write.
///
/// # Errors
/// It is too long.
pub fn check_element(rest: &[u8], value: &[u8]) -> Result<()> {
    // A sorted set stores a score before the member.
    let lengths = [(rest.len(), TABLE_KEY_BYTES_MAX - 9 - 8), (value.len(), TABLE_VALUE_BYTES_MAX)];
    match lengths.into_iter().find(|(bytes, limit)| bytes > limit) {
        Some((bytes, limit)) => Err(AccessError::Element { bytes, limit }),
        None => Ok(()),
    }
}

/// The head in a stored value.
fn of_kind(stored: &[u8], kind: Kind) -> Result<Head> {
    match decode(stored)? {
        Value::Structure(head) if head.kind == kind => Ok(head),
        _ => Err(AccessError::WrongType),
    }
}

/// Tells the owner of a structure that its key has another name. Has no effect on a string.
///
/// # Errors
/// Those of the store.
pub fn rename(all: &mut Together<'_>, stored: &[u8], to: &[u8]) -> Result<()> {
    if let Value::Structure(head) = decode(stored)? {
        Structure::table(all)?.put(&head.owner(), to)?;
    }
    Ok(())
}

/// Copies the elements of a structure for another key. Returns the stored value of that key and the bytes that were copied. A string is its
/// own copy.
///
/// # Errors
/// Those of the store.
pub fn copy(all: &mut Together<'_>, stored: Vec<u8>, to: &[u8]) -> Result<(Vec<u8>, usize)> {
    let Value::Structure(from) = decode(&stored)? else {
        let bytes = stored.len();
        return Ok((stored, bytes));
    };
    let head = Head { id: all.shared.structures.elements()?.new_id(), ..from };
    let mut table = Structure::table(all)?;
    let mut elements = Vec::new();
    table.scan_guarded(all_of(&from), false, |key, value| {
        elements.push((key.to_vec(), value.to_vec()));
        true
    })?;
    let mut bytes = 0;
    for (key, value) in elements {
        bytes += key.len() + value.len();
        table.put(&[&head.id.to_be_bytes(), &key[8..]].concat(), &value)?;
    }
    table.put(&head.owner(), to)?;
    Ok((head.encode(), bytes))
}

/// A range of element keys.
pub type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All elements of a structure, without the owner.
#[must_use]
pub fn all_of(head: &Head) -> Range {
    (Bound::Excluded(head.owner()), end(head.owner()))
}

/// The elements with this tag, from `from` on if it is given (without it if `is_behind`).
#[must_use]
pub fn tagged(head: &Head, tag: u8, from: &[u8], is_behind: bool) -> Range {
    let low = head.element(tag, from);
    (if is_behind { Bound::Excluded(low) } else { Bound::Included(low) }, end(head.element(tag, b"")))
}

/// The bound above all keys with this prefix.
fn end(prefix: Vec<u8>) -> Bound<Vec<u8>> {
    crate::glob::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

/// The places that a [`View`] reads from.
enum Place<'v> {
    /// The store as it is. The heads that were read are compared at the end.
    Now { db: &'v Store, shared: &'v Shared, heads: Vec<(Vec<u8>, Option<Vec<u8>>)> },
    /// The store as it was.
    Past { db: Snapshot<'v, Bytes>, elements: Option<Snapshot<'v, Bytes>> },
    /// A transaction.
    Own { all: Together<'v>, db: usize },
}

/// Structures of a database at one moment.
pub struct View<'v> {
    place: Place<'v>,
    /// The keys that were read and are absent. `None`: they are not noted.
    missing: Option<Vec<Vec<u8>>>,
}

impl View<'_> {
    /// The head of a key's structure. `None` if the key is absent.
    ///
    /// # Errors
    /// `WrongType`; those of the store.
    pub fn find(&mut self, key: &[u8], kind: Kind) -> Result<Option<Head>> {
        self.stored(key)?.map(|stored| of_kind(&stored, kind)).transpose()
    }

    /// The stored form of a key's value of any type. `None` if the key is absent.
    ///
    /// # Errors
    /// Those of the store.
    pub fn stored(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let stored = match &mut self.place {
            Place::Now { db, heads, .. } => {
                let stored = db.get(key)?;
                heads.push((key.to_vec(), stored.clone()));
                stored
            }
            Place::Past { db, .. } => db.get(key)?,
            Place::Own { all, db } => {
                let mut keys = all.db(*db)?;
                let stored = keys.stored(key)?.map(|(stored, _)| stored);
                keys.note_read(key, stored.is_some());
                stored
            }
        };
        if let Some(missing) = self.missing.as_mut().filter(|_| stored.is_none()) {
            missing.push(key.to_vec());
        }
        Ok(stored)
    }

    /// The value of an element.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&mut self, head: &Head, tag: u8, rest: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = head.element(tag, rest);
        Ok(match &mut self.place {
            Place::Now { shared, .. } => shared.structures.elements()?.store.get(&key)?,
            Place::Past { elements, .. } => match elements {
                Some(elements) => elements.get(&key)?,
                None => None,
            },
            Place::Own { all, .. } => Structure::table(all)?.get(&key)?,
        })
    }

    /// Passes the elements of a range to `visit`, each as its key after the tag and its value, until it returns false.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan(
        &mut self,
        range: Range,
        descending: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.scan_keys(range, descending, |key, value| visit(key.get(9..).unwrap_or_default(), value))
    }

    /// Passes the elements of a range to `visit` in ascending order, each as its key from the tag on and its value, until it returns false.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan_tagged(&mut self, range: Range, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.scan_keys(range, false, |key, value| visit(key.get(8..).unwrap_or_default(), value))
    }

    fn scan_keys(
        &mut self,
        range: Range,
        descending: bool,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let scan = match &mut self.place {
            Place::Now { shared, .. } => shared.structures.elements()?.store.scan(range),
            Place::Past { elements: Some(elements), .. } => elements.scan(range),
            Place::Past { elements: None, .. } => return Ok(()),
            Place::Own { all, .. } => {
                return Ok(Structure::table(all)?.scan_guarded(range, descending, visit)?);
            }
        };
        let mut scan = if descending { scan.descending() } else { scan };
        Ok(scan.visit(visit)?)
    }

    /// True if no head has changed since it was read.
    fn is_current(&self) -> Result<bool> {
        let Place::Now { db, heads, .. } = &self.place else { return Ok(true) };
        for (key, stored) in heads {
            if db.get(key)? != *stored {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A source of elements: a [`View`], or a structure in a transaction.
pub trait Source {
    /// Passes the elements of a range to `visit`, each as its key after the tag and its value, until it returns false.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &mut self,
        range: Range,
        descending: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;
}

impl Source for View<'_> {
    fn scan(
        &mut self,
        range: Range,
        descending: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        View::scan(self, range, descending, visit)
    }
}

/// A structure in a transaction.
pub struct InTransaction<'a, 'k, 't>(pub &'a Structure<'k>, pub &'a mut Together<'t>);

impl Source for InTransaction<'_, '_, '_> {
    fn scan(
        &mut self,
        range: Range,
        descending: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.0.scan(self.1, range, descending, visit)
    }
}

/// Bytes of the elements of a structure: keys and values. Reads all of them.
///
/// # Errors
/// `WrongType`, if the key has another type by now; those of the store.
pub fn bytes_of(view: &mut View<'_>, key: &[u8], kind: Kind) -> Result<u64> {
    let Some(head) = view.find(key, kind)? else { return Ok(0) };
    let mut bytes = 0;
    view.scan(all_of(&head), false, |key, value| {
        bytes += (key.len() + value.len()) as u64;
        true
    })?;
    Ok(bytes)
}

impl Together<'_> {
    /// The structures of a database in the transaction.
    #[must_use]
    pub fn view(&mut self, db: usize) -> View<'_> {
        let all = Together { transaction: self.transaction, shared: self.shared, events: self.events };
        // The transaction itself notes the keys that are absent.
        View { place: Place::Own { all, db }, missing: None }
    }
}

/// Notes the absent keys that a view has read.
fn note_missing(events: &mut Events, db: usize, view: View<'_>) {
    view.missing.into_iter().flatten().for_each(|key| events.note(Event::MISS, db, &key));
}

impl Access<'_> {
    /// Calls `read` with the structures of the database at one moment; perhaps again, if others change them meanwhile.
    ///
    /// # Errors
    /// Those of `read` and of the store.
    pub fn view<R>(&mut self, mut read: impl FnMut(&mut View<'_>) -> Result<R>) -> Result<R> {
        let (shared, number, db, events) = match self {
            Self::Store { shared, db, store, events, .. } => (*shared, *db, *store, events),
            Self::Transaction { transaction, shared, db, events } => {
                return read(&mut Together { transaction, shared, events }.view(*db));
            }
        };
        let missing = || events.has_misses().then(Vec::new);
        for _ in 0..READS {
            let place = Place::Now { db, shared, heads: Vec::new() };
            let mut view = View { place, missing: missing() };
            let result = read(&mut view);
            if view.is_current()? {
                note_missing(events, number, view);
                return result;
            }
        }
        let snapshot = shared.store.snapshot()?;
        let heads = match number {
            0 => snapshot.table("")?,
            _ => snapshot.table(db.table_name())?,
        };
        // The table of a selected database exists.
        let db = heads.ok_or(Error::NoTables)?;
        let elements = snapshot.table(TABLE)?;
        let mut view = View { place: Place::Past { db, elements }, missing: missing() };
        let result = read(&mut view);
        note_missing(events, number, view);
        result
    }

    /// The value of one element of a key's structure. The outer `None`: the key is absent.
    ///
    /// # Errors
    /// `WrongType`; those of the store.
    pub fn element(
        &mut self,
        key: &[u8],
        kind: Kind,
        tag: u8,
        rest: &[u8],
    ) -> Result<Option<(Head, Option<Vec<u8>>)>> {
        let mut stored = Vec::new();
        loop {
            if !self.stored_into(key, &mut stored)? {
                self.note_read(key, false);
                return Ok(None);
            }
            let head = of_kind(&stored, kind)?;
            let element = head.element(tag, rest);
            let elements = self.shared().structures.elements()?;
            let found = match self {
                Self::Store { .. } => elements.store.get(&element)?,
                Self::Transaction { transaction, .. } => transaction.table(&elements.store)?.get(&element)?,
            };
            // A structure that was replaced meanwhile may have lost this element as garbage.
            if found.is_some() || self.is_head(key, &head)? {
                return Ok(Some((head, found)));
            }
        }
    }

    /// The head of a key's structure. `None` if the key is absent.
    ///
    /// # Errors
    /// `WrongType`; those of the store.
    pub fn head(&mut self, key: &[u8], kind: Kind) -> Result<Option<Head>> {
        let mut stored = Vec::new();
        if self.stored_into(key, &mut stored)? {
            return of_kind(&stored, kind).map(Some);
        }
        self.note_read(key, false);
        Ok(None)
    }

    /// True if the key still has the structure of this head, whatever changed in it.
    fn is_head(&mut self, key: &[u8], head: &Head) -> Result<bool> {
        let mut stored = Vec::new();
        let found = self.stored_into(key, &mut stored)?;
        Ok(found && super::head_of(&stored).is_some_and(|now| now.id == head.id))
    }
}
