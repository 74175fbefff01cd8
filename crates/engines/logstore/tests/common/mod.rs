//! Directories, settings and comparisons of the tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bwtree::{Bytes, Change};
use logstore::{BatchWrite, Settings, Store};

pub mod life;

pub const STEM: &str = "store";
pub const ID: u64 = 0x1234_5678_9abc_def0;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A directory that is removed at the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Self {
        let unique = format!("bristlecone-logstore-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        // A directory in memory, if there is one: the tests sync often.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self::at(parent.join(unique))
    }

    /// A directory beside the programs that were built, so on a disk.
    pub fn on_disk(name: &str) -> Self {
        let unique = format!("logstore-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        Self::at(Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique))
    }

    fn at(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// True if its file system has direct I/O. A disk's has; memory's has it in newer systems.
    pub fn has_direct_io(&self) -> bool {
        let (path, mut how) = (self.0.join("direct"), std::fs::OpenOptions::new());
        how.write(true).create(true).truncate(true);
        pmem::direct::set(&mut how);
        how.open(&path).and_then(|_| std::fs::remove_file(&path)).is_ok()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Small files and pages, and a budget that keeps only some of the leaves in memory.
pub fn small(survives_power: bool) -> Settings {
    Settings {
        survives_power,
        memory_bytes: 24 << 10,
        log_bytes: 4 << 10,
        is_small: true,
        ..Settings::default()
    }
}

pub fn create(dir: &Path, settings: Settings) -> Store<Bytes> {
    Store::create(dir, STEM, ID, settings).unwrap()
}

pub fn open(dir: &Path, settings: Settings) -> pmem::Result<Store<Bytes>> {
    Store::open(dir, STEM, ID, settings).map(|(store, _)| store)
}

pub fn put(store: &Store<Bytes>, key: &[u8], value: &[u8]) -> pmem::Result<bool> {
    store.update(key, |_| Change::Put(value), true)
}

pub fn delete(store: &Store<Bytes>, key: &[u8]) -> pmem::Result<bool> {
    store.update(key, |_| Change::<&[u8]>::Delete, true)
}

pub fn get(store: &Store<Bytes>, key: &[u8]) -> pmem::Result<Option<Vec<u8>>> {
    let mut found = Vec::new();
    Ok(store.get(key, |value| found = value.to_vec())?.then_some(found))
}

pub fn contents(store: &Store<Bytes>) -> pmem::Result<Model> {
    let mut cursor = store.range(Bound::Unbounded, Bound::Unbounded, false);
    let mut all = Model::new();
    while let Some((key, value)) = cursor.next_pair()? {
        assert!(all.last_key_value().is_none_or(|(last, _)| **last < *key));
        all.insert(key.into_vec(), value);
    }
    Ok(all)
}

/// Compares all reads with a map, and checks the structure.
pub fn compare(store: &Store<Bytes>, model: &Model) {
    assert_eq!(&contents(store).unwrap(), model);
    store.count_all().unwrap();
    assert_eq!((store.len(), store.is_counted()), (model.len() as u64, true));
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(get(store, key).unwrap().as_ref(), Some(value));
    }
    let (problems, _) = store.check();
    assert_eq!(problems, Vec::<String>::new());
}

/// A random change of a store and of its model. True if it was a batch.
pub fn step(store: &Store<Bytes>, model: &mut Model, keys: u32, random: &mut fastrand::Rng) {
    let key = |random: &mut fastrand::Rng| format!("key {:05}", random.u32(..keys)).into_bytes();
    let value = |random: &mut fastrand::Rng| {
        let length = if random.u32(..50) == 0 { random.usize(..3000) } else { random.usize(..60) };
        vec![random.u8(..); length]
    };
    match random.u32(..14) {
        10..=12 => {
            let (key, value) = (key(random), random.bool().then(|| value(random)));
            let found = store.set(&key, value.as_deref(), true).unwrap();
            let was_there = match value {
                Some(value) => model.insert(key, value).is_some(),
                None => model.remove(&key).is_some(),
            };
            assert!(found.is_none_or(|found| found == was_there));
        }
        13 => {
            let writes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = (0..random.usize(1..9))
                .map(|_| (key(random), random.bool().then(|| value(random))))
                .collect();
            let batch = writes.iter().map(|(key, value)| (key.clone().into(), value.clone())).collect();
            let found = store.set_batch(batch, true).unwrap();
            assert_eq!(found.len(), writes.len());
            for ((key, value), found) in writes.into_iter().zip(found) {
                let was_there = match value {
                    Some(value) => model.insert(key, value).is_some(),
                    None => model.remove(&key).is_some(),
                };
                assert!(found.is_none_or(|found| found == was_there));
            }
        }
        0..=4 => {
            let (key, value) = (key(random), value(random));
            assert_eq!(put(store, &key, &value).unwrap(), model.insert(key, value).is_some());
        }
        5..=6 => {
            let key = key(random);
            assert_eq!(delete(store, &key).unwrap(), model.remove(&key).is_some());
        }
        7 => {
            let key = key(random);
            assert_eq!(get(store, &key).unwrap(), model.get(&key).cloned());
        }
        _ => {
            let writes: Vec<BatchWrite<Bytes>> = (0..random.usize(1..6))
                .map(|_| (key(random).into(), random.bool().then(|| value(random))))
                .collect();
            let expected_key = key(random);
            let holds = random.bool();
            let now = model.get(&expected_key).cloned();
            let expected = if holds { now } else { Some(b"never".to_vec()) };
            let done = store.batch(writes.clone(), &[(expected_key.into(), expected)], true).unwrap();
            assert_eq!(done.is_done, holds);
            if holds {
                let changed: BTreeMap<_, _> = writes.into_iter().collect();
                let found: Vec<bool> = changed.keys().map(|key| model.contains_key(&**key)).collect();
                assert_eq!(done.found, found);
                for (key, value) in changed {
                    match value {
                        Some(value) => _ = model.insert(key.into_vec(), value),
                        None => _ = model.remove(&*key),
                    }
                }
            }
        }
    }
}
