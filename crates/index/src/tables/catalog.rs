//! The catalog: names and numbers of the tables, and the numbers of dropped and cleared tables whose keys are to be
//! removed. The catalog is one value of the index. So every change of it is atomic: tables are created, dropped,
//! cleared or swapped by one write.
//!
//! Layout: version (1 byte); number of tables (4 bytes); for each table its number (4), the length of its name (2) and the name; count of
//! dropped numbers (4); the dropped numbers (4 each); CRC-32C of all bytes before it (4). All integers are little-endian.

use std::collections::BTreeMap;

use pmem::{Error, Result};

/// Maximum bytes of a table's name.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum number of tables, because each change writes the whole catalog.
pub const TABLES_MAX: usize = 10_000;
/// Name of the table that always exists.
pub(super) const DEFAULT: &str = "";
const VERSION: u8 = 1;

/// Names, numbers and dropped numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Catalog {
    /// The numbers of the tables.
    pub ids: BTreeMap<String, u32>,
    /// Numbers of dropped and cleared tables whose keys may still exist.
    pub dropped: Vec<u32>,
}

impl Default for Catalog {
    /// The catalog of a store that has not written one yet.
    fn default() -> Self {
        Self { ids: BTreeMap::from([(DEFAULT.to_owned(), 1)]), dropped: Vec::new() }
    }
}

impl Catalog {
    /// The smallest number that no table has, and that is neither dropped nor retired.
    pub fn free_id(&self, retired: &[u32]) -> u32 {
        let mut used: Vec<_> = self.ids.values().chain(&self.dropped).chain(retired).copied().collect();
        used.sort_unstable();
        let mut free = 1;
        for id in used {
            if id > free {
                break;
            }
            free = free.max(id + 1);
        }
        free
    }

    /// The bytes of the catalog.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend((self.ids.len() as u32).to_le_bytes());
        for (name, id) in &self.ids {
            bytes.extend(id.to_le_bytes());
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend((self.dropped.len() as u32).to_le_bytes());
        self.dropped.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
        seal(bytes)
    }

    /// The catalog of these bytes.
    ///
    /// # Errors
    /// `Corrupt` if no catalog has these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or(Error::Corrupt { what: "catalog of tables", at: 0 })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = open(bytes)?.strip_prefix(&[VERSION])?;
        let mut ids = BTreeMap::new();
        for _ in 0..number(&mut rest)? {
            let id = number(&mut rest)?;
            let (len, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u16::from_le_bytes(*len).into())?;
            rest = after;
            ids.insert(String::from_utf8(name.to_vec()).ok()?, id);
        }
        let dropped = (0..number(&mut rest)?).map(|_| number(&mut rest)).collect::<Option<Vec<_>>>()?;
        let mut all: Vec<_> = ids.values().chain(&dropped).copied().collect();
        all.sort_unstable();
        let is_sound = all.first() != Some(&0)
            && all.last() != Some(&u32::MAX)
            && all.windows(2).all(|pair| pair[0] != pair[1])
            && ids.contains_key(DEFAULT)
            && rest.is_empty();
        is_sound.then_some(Self { ids, dropped })
    }
}

/// Encodes counts: for each table its number (4 bytes) and its number of keys (8 bytes); then CRC-32C (4 bytes).
pub(super) fn encode_counts(counts: &[(u32, u64)]) -> Vec<u8> {
    let pairs = counts.iter().flat_map(|(id, keys)| id.to_le_bytes().into_iter().chain(keys.to_le_bytes()));
    seal(pairs.collect())
}

/// The counts of these bytes. `None` if these are no counts.
pub(super) fn decode_counts(bytes: &[u8]) -> Option<BTreeMap<u32, u64>> {
    let pairs = open(bytes)?.as_chunks::<12>();
    pairs.1.is_empty().then(|| {
        let pair = |bytes: &[u8; 12]| {
            let (mut id, mut keys) = ([0; 4], [0; 8]);
            id.copy_from_slice(&bytes[..4]);
            keys.copy_from_slice(&bytes[4..]);
            (u32::from_le_bytes(id), u64::from_le_bytes(keys))
        };
        pairs.0.iter().map(pair).collect()
    })
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn open(bytes: &[u8]) -> Option<&[u8]> {
    let (content, sum) = bytes.split_last_chunk()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*sum)).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_is_read_as_it_was_written_and_every_cut_or_flipped_bit_is_damage() {
        let mut catalog = Catalog::default();
        assert_eq!((catalog.free_id(&[]), catalog.free_id(&[3, 2])), (2, 4));
        catalog.ids.insert("ä table".to_owned(), 3);
        catalog.dropped = vec![2, 300];
        assert_eq!(catalog.free_id(&[]), 4);
        let bytes = catalog.encode();
        assert_eq!(Catalog::decode(&bytes).unwrap(), catalog);
        for cut in 0..bytes.len() {
            assert!(Catalog::decode(&bytes[..cut]).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Catalog::decode(&damaged).is_err(), "bit {bit}");
        }
        catalog.dropped = vec![3];
        assert!(Catalog::decode(&catalog.encode()).is_err(), "a number twice");
    }

    #[test]
    fn counts_are_read_as_they_were_written() {
        let counts = [(1, 0), (7, u64::MAX)];
        let bytes = encode_counts(&counts);
        assert_eq!(decode_counts(&bytes), Some(BTreeMap::from(counts)));
        assert_eq!(decode_counts(&bytes[1..]), None);
        assert_eq!(decode_counts(&seal(vec![0; 13])), None);
    }
}
