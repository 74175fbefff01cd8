//! Structures: values that have elements, such as hashes. docs/format.md has their bytes.
//!
//! The value of a structure's key is its *head*: type, number, version and length. The elements are keys of the table [`TABLE`], which all
//! databases share. The key of an element begins with the number of its structure. So a command on one element reads and writes only this
//! element and the head. The *owner* of a structure is a record beside its elements. It holds the structure's key: if
//! that key has no head with this number, the elements are garbage.
//!
//! A string that begins with [`MAGIC`] is stored with a mark before it, so that no client can forge a head.
//!
//! Invariants:
//! * S1: while elements with a number exist, no other structure gets this number.
//! * S2: a command that changes a structure gives its head another version, in the same transaction. So a transaction that has read the head
//!   is refused if an element has changed since. A reader that finds the same head before and after its reads has seen one moment.
//! * S3: a structure has at least one element. Its head, its owner and its first element are written in one transaction.
//! * S4: the elements of a structure without a head are garbage. [`garbage`] removes them, the owner last.

pub mod access;
pub mod dumps;
pub mod garbage;
pub mod scan;
pub mod scores;
pub mod streams;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bristlecone::Store;

/// The table of the elements.
pub const TABLE: &str = "structures";

/// The first bytes of a head, and of the stored form of a string that begins with these bytes.
pub const MAGIC: [u8; 8] = [0x00, 0xB7, 0x5C, 0x1E, 0xD9, 0x42, 0xE6, 0x93];
/// The byte after the magic bytes, if a string follows.
const STRING: u8 = 0;
/// Bytes of a head.
const HEAD_BYTES: usize = MAGIC.len() + 1 + 4 * 8;

/// The type of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Fields with values.
    Hash = b'h',
    /// Elements with positions. The extra number of its head is the first position.
    List = b'l',
    /// Members.
    Set = b's',
    /// Members with scores.
    SortedSet = b'z',
    /// Entries with IDs, and groups of consumers.
    Stream = b'x',
}

impl Kind {
    const ALL: [Self; 5] = [Self::Hash, Self::List, Self::Set, Self::SortedSet, Self::Stream];

    /// The name, as TYPE returns it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }
}

/// The head of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its type.
    pub kind: Kind,
    /// Its number.
    pub id: u64,
    /// Increases with each change (S2).
    pub version: u64,
    /// Number of elements.
    pub count: u64,
    /// What the type needs.
    pub extra: u64,
}

impl Head {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.id, self.version, self.count, self.extra];
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.push(self.kind as u8);
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes
    }

    fn decode(kind: u8, numbers: &[u8]) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        let (numbers, []) = numbers.as_chunks::<8>() else { return None };
        let [id, version, count, extra] = <[[u8; 8]; 4]>::try_from(numbers).ok()?.map(u64::from_be_bytes);
        Some(Self { kind, id, version, count, extra })
    }

    /// The key of an element: the number, a byte that tells what the element is, and the rest.
    #[must_use]
    pub fn element(&self, tag: u8, rest: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(9 + rest.len());
        key.extend_from_slice(&self.id.to_be_bytes());
        key.push(tag);
        key.extend_from_slice(rest);
        key
    }

    /// The encoding that Redis would have for a structure of this length, if its elements are short.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.kind {
            Kind::List => "quicklist",
            Kind::Hash | Kind::SortedSet if self.count <= 128 => "listpack",
            Kind::Hash | Kind::Set => "hashtable",
            Kind::SortedSet => "skiplist",
            Kind::Stream => "stream",
        }
    }

    /// The key of the owner.
    #[must_use]
    pub fn owner(&self) -> Vec<u8> {
        self.id.to_be_bytes().to_vec()
    }
}

/// A stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string.
    String(&'a [u8]),
    /// A structure.
    Structure(Head),
}

/// The bytes begin as a head and are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the head of a structure is damaged: delete this key, or run `bristlecone check` on the store")]
pub struct Damaged;

/// The value of these stored bytes.
///
/// # Errors
/// The bytes are damaged.
pub fn decode(stored: &[u8]) -> Result<Value<'_>, Damaged> {
    match stored.strip_prefix(&MAGIC) {
        None => Ok(Value::String(stored)),
        Some([STRING, string @ ..]) => Ok(Value::String(string)),
        Some(rest) => {
            let head = rest.split_first().and_then(|(kind, numbers)| Head::decode(*kind, numbers));
            head.map(Value::Structure).ok_or(Damaged)
        }
    }
}

/// The head in these stored bytes, if they are one.
#[must_use]
pub fn head_of(stored: &[u8]) -> Option<Head> {
    match decode(stored) {
        Ok(Value::Structure(head)) => Some(head),
        _ => None,
    }
}

/// The name of the type of a stored value.
#[must_use]
pub fn type_name(stored: &[u8]) -> &'static str {
    head_of(stored).map_or("string", |head| head.kind.name())
}

/// The stored form of a string.
#[must_use]
pub fn encode(string: &[u8]) -> Cow<'_, [u8]> {
    match string.starts_with(&MAGIC) {
        false => Cow::Borrowed(string),
        true => Cow::Owned([&MAGIC, &[STRING][..], string].concat()),
    }
}

/// The table of the elements, and the numbers of structures.
#[derive(Debug)]
pub struct Elements {
    /// The table.
    pub store: Store,
    next: AtomicU64,
}

impl Elements {
    /// A number for a new structure.
    pub fn new_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// The structures of a store.
#[derive(Debug)]
pub struct Structures {
    store: Store,
    elements: OnceLock<Elements>,
    /// False if there is no structure, and was none since the start.
    is_used: AtomicBool,
    /// Structures that may have become garbage.
    pub garbage: garbage::Garbage,
}

impl Structures {
    /// The structures of a store. They may exist already. `pass_each` is the time between two searches for garbage.
    #[must_use]
    pub fn new(store: &Store, pass_each: Duration) -> Self {
        // If the table cannot be read, the first command on a structure tells why.
        let is_used = store.has_tables() && !matches!(store.find_table(TABLE), Ok(None));
        Self {
            store: store.clone(),
            elements: OnceLock::new(),
            is_used: is_used.into(),
            garbage: garbage::Garbage::new(is_used, pass_each),
        }
    }

    /// True if a value may be a structure. Before the first structure, a command need not look at the value that it replaces.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// The elements. Makes their table if there is none.
    ///
    /// # Errors
    /// `NoTables` if the store has no tables; those of making and reading a table.
    pub fn elements(&self) -> bristlecone::Result<&Elements> {
        if let Some(elements) = self.elements.get() {
            return Ok(elements);
        }
        let store = self.store.table(TABLE)?;
        self.is_used.store(true, Ordering::Release);
        // A structure has elements, so the last key shows the highest number in use (S1).
        let last = store.last()?;
        let highest = last.as_ref().and_then(|(key, _)| id_of(key)).unwrap_or(0);
        let next = AtomicU64::new(highest.saturating_add(1));
        Ok(self.elements.get_or_init(|| Elements { store, next }))
    }

    /// The elements, if any structure may exist.
    ///
    /// # Errors
    /// As [`Structures::elements`].
    pub fn known(&self) -> bristlecone::Result<Option<&Elements>> {
        if self.is_used() { self.elements().map(Some) } else { Ok(None) }
    }
}

/// The number of the structure of an element's key or of an owner's key.
fn id_of(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|id| u64::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_strings_decode_to_what_they_were_and_no_string_is_a_head() {
        let head = Head { kind: Kind::Hash, id: 1, version: u64::MAX, count: 3, extra: 4 };
        assert_eq!(decode(&head.encode()).unwrap(), Value::Structure(head));
        for string in [&b""[..], b"v", &MAGIC, &MAGIC[..7], &head.encode(), &encode(&head.encode())] {
            let stored = encode(string);
            assert_eq!(decode(&stored).unwrap(), Value::String(string), "{string:?}");
            assert_eq!(head_of(&stored), None);
        }
    }

    #[test]
    fn a_damaged_head_is_an_error() {
        let head = Head { kind: Kind::Hash, id: 1, version: 2, count: 3, extra: 4 }.encode();
        for length in MAGIC.len()..head.len() {
            assert!(decode(&head[..length]).is_err(), "{length} bytes");
        }
        let mut other = head;
        other[MAGIC.len()] = b'?';
        assert!(decode(&other).is_err());
    }
}
