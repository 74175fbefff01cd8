//! Digests of changes. An evicted leaf with saved changes has two images: the changes, and their base. A digest says which of the two has a
//! key, so most lookups read only one. With changes that the leaf keeps in memory, the digest says whether the base's record counts.
//!
//! ```text
//! digest   number of hashes: u16, 1 << 15 added if all records of the base count | hash: u16 … | bitmap, unless all count
//! ```
//!
//! There is a hash for each key that the image of changes has, in a record or in a late change. The bitmap has a bit for each record of the
//! base: 1 if the leaf still has it. Records behind the end of the bitmap have the bit 0. No bytes: there is no digest.
//!
//! Invariant:
//! * D1: the digest of an evicted leaf is that of its image of changes, saved or kept. So a key without a hash has the record of the base with
//!   this key, if that record's bit is 1. If the base has no such record, the key is absent. If the bit is 0, the record may be behind the
//!   bitmap.

use crate::bytes::hint_of;
use crate::image::{self, Decoded, Part};
use crate::omission::{Omission, is_omitted};

/// Marks a digest without a bitmap: all records of the base count.
const ALL: u16 = 1 << 15;
/// Bytes of a number, and of a hash.
const NUMBER: usize = size_of::<u16>();

/// The digest of an image of changes. Empty if the image is no such image, or has too many changes.
pub(crate) fn of(changes: &[u8]) -> Vec<u8> {
    let Some(Decoded { base: Some(_), is_all, parts, late, .. }) = image::decode(changes) else {
        return Vec::new();
    };
    let (mut count, mut end) = (late.len(), 0);
    for part in &parts {
        match *part {
            Part::Record(_) => count += 1,
            Part::Run { first, count } => end = end.max(first + count),
        }
    }
    if count >= usize::from(ALL) || end > usize::from(u16::MAX) {
        return Vec::new();
    }
    let bitmap = if is_all { 0 } else { end.div_ceil(8) };
    let mut digest = vec![0; NUMBER * (1 + count) + bitmap];
    let (hashes, live) = digest.split_at_mut(NUMBER * (1 + count));
    let (number, hashes) = hashes.split_at_mut(NUMBER);
    number.copy_from_slice(&(count as u16 | if is_all { ALL } else { 0 }).to_le_bytes());
    let records = parts.iter().filter_map(|part| match part {
        Part::Record((key, _)) => Some(*key),
        Part::Run { .. } => None,
    });
    let keys = records.chain(late.iter().map(|(key, _)| *key));
    for (hash, key) in hashes.chunks_exact_mut(NUMBER).zip(keys) {
        hash.copy_from_slice(&hint_of(key).to_le_bytes());
    }
    for part in &parts {
        if let (Part::Run { first, count }, false) = (part, is_all) {
            (*first..first + count).for_each(|index| live[index / 8] |= 1 << (index % 8));
        }
    }
    digest
}

/// The hashes, and the bitmap; `None`: all records count. `None` if there is no digest.
fn parts(digest: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (number, rest) = digest.split_first_chunk()?;
    let number = u16::from_le_bytes(*number);
    let (hashes, live) = rest.split_at_checked(usize::from(number & !ALL) * NUMBER)?;
    Some((hashes, (number & ALL == 0).then_some(live)))
}

/// True if the image of changes may have this key. `None` if there is no digest.
pub(crate) fn has_key(digest: &[u8], key: &[u8]) -> Option<bool> {
    let (hashes, _) = parts(digest)?;
    if is_omitted(Omission::Digest) {
        return Some(false);
    }
    let hash = hint_of(key).to_le_bytes();
    Some(hashes.chunks_exact(NUMBER).any(|own| own == hash))
}

/// True if the leaf has the record of the base with this index, if its key has no hash.
pub(crate) fn is_live(digest: &[u8], index: usize) -> bool {
    match parts(digest) {
        None => false,
        Some((_, None)) => true,
        Some((_, Some(live))) => live.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU64;

    use super::*;
    use crate::image::Address;
    use crate::pairs::Pairs;
    use crate::words::Words;

    #[test]
    fn the_image_that_a_digest_names_has_the_answer() {
        let mut random = fastrand::Rng::with_seed(1);
        let bytes = image::key_bytes::<Words>;
        let address = Address(NonZeroU64::MIN);
        let mut decided = [0; 3];
        for _ in 0..400 {
            let base: BTreeMap<u64, u64> = (0..random.u64(1..60)).map(|_| (random.u64(..90), 0)).collect();
            let mut leaf = base.clone();
            let change = |leaf: &mut BTreeMap<u64, u64>, random: &mut fastrand::Rng| {
                let key = random.u64(..90);
                let value = random.bool().then(|| random.u64(1..));
                match value {
                    Some(value) => leaf.insert(key, value),
                    None => leaf.remove(&key),
                };
                (key, value)
            };
            let parts = random.bool().then(|| {
                (0..random.usize(..9)).for_each(|_| _ = change(&mut leaf, &mut random));
                let old: Vec<u64> = base.keys().copied().collect();
                let fresh = leaf.iter().map(|(key, value)| Words::fresh(key, Some(value), None));
                let fresh: Vec<_> = fresh.collect();
                let records: Vec<_> = fresh.iter().map(Words::record).collect();
                let origin = |(key, value): (&u64, &u64)| match value {
                    0 => old.partition_point(|own| own < key) as u16 + 1,
                    _ => 0,
                };
                let origins: Vec<_> = leaf.iter().map(origin).collect();
                image::changes::<Words>(&records, &origins, address, usize::MAX).unwrap()
            });
            let mut late = Vec::new();
            for _ in 0..random.usize(usize::from(parts.is_none())..9) {
                let (key, value) = change(&mut leaf, &mut random);
                late = image::late_with::<Words>(&late, &key, value.as_ref()).unwrap();
            }
            let changes = match late.is_empty() {
                true => parts.unwrap(),
                false => image::with_late::<Words>(parts.as_deref(), address, &late).unwrap(),
            };
            let digest = of(&changes);
            for key in 0..90 {
                let wanted = leaf.get(&key).map(&bytes);
                let own = bytes(&key);
                if has_key(&digest, &own).unwrap() {
                    if let Some(found) = image::find_changed::<Words>(&changes, &own) {
                        assert_eq!(found, wanted.as_deref(), "key {key}");
                        decided[0] += 1;
                    }
                } else if let Some(index) = base.keys().position(|own| *own == key) {
                    if is_live(&digest, index) {
                        assert_eq!(wanted, Some(bytes(&0)), "key {key}");
                        decided[1] += 1;
                    }
                } else {
                    assert_eq!(wanted, None, "key {key}");
                    decided[2] += 1;
                }
            }
        }
        assert!(decided.iter().all(|count| *count > 1000), "{decided:?}");
        assert_eq!((of(b"no image"), has_key(&[], b"key")), (Vec::new(), None));
        assert!(!is_live(&[], 0));
    }
}
