//! Random deletes, then records of another size: the file takes little more than one that was written with what is left. Once every
//! chunk stayed as it was, a tenth of it used, for records of the size that it was opened for.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pmem::{Durability, Native};

/// An index over a mapped file, byte strings to byte strings.
pub trait Subject: Sized {
    fn create(medium: Native) -> Self;
    fn open(medium: Native, path: &Path) -> Self;
    fn put(&self, key: &[u8], value: &[u8]);
    /// Each by itself, as one call.
    fn put_many(&self, pairs: &[(Vec<u8>, Vec<u8>)]);
    fn delete(&self, key: &[u8]);
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn problems(&self) -> Vec<String>;
    fn close(self);
}

fn mapped(path: &Path) -> Native {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    Native::map(file, path, 1 << 32, Durability::Process).unwrap()
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn pair(number: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("key {number:08}").into_bytes(), vec![number as u8; bytes])
}

fn assert_holds<T: Subject>(index: &T, model: &BTreeMap<Vec<u8>, Vec<u8>>, gone: &[Vec<u8>]) {
    assert_eq!(index.problems(), Vec::<String>::new());
    assert!(model.iter().all(|(key, value)| index.get(key).as_ref() == Some(value)));
    assert!(gone.iter().all(|key| index.get(key).is_none()));
}

/// `reopens`: between the deletes and the writes.
fn leaves_little<T: Subject>(folder: &Path, reopens: bool) {
    const KEYS: u64 = 200_000;
    let path = folder.join(format!("store {reopens}"));
    let mut rng = fastrand::Rng::with_seed(4);
    let index = T::create(mapped(&path));
    let mut model: BTreeMap<_, _> = (0..KEYS).map(|number| pair(number, 300)).collect();
    model.iter().for_each(|(key, value)| index.put(key, value));
    let full = file_bytes(&path);
    let mut gone: Vec<Vec<u8>> = model.keys().cloned().collect();
    rng.shuffle(&mut gone);
    gone.truncate(KEYS as usize * 9 / 10);
    for key in &gone {
        index.delete(key);
        model.remove(key);
    }
    let index = if reopens {
        index.close();
        T::open(mapped(&path), &path)
    } else {
        index
    };
    // As many bytes as are left, by puts and by several at once.
    let puts: Vec<_> = (KEYS..KEYS + KEYS / 10 * 3 / 10).map(|number| pair(number, 1000)).collect();
    let (alone, together) = puts.split_at(puts.len() / 2);
    alone.iter().for_each(|(key, value)| index.put(key, value));
    together.chunks(50).for_each(|pairs| index.put_many(pairs));
    model.extend(puts);
    assert_holds(&index, &model, &gone);
    let used = file_bytes(&path);
    index.close();

    let compact_path = folder.join(format!("compact {reopens}"));
    let compact = T::create(mapped(&compact_path));
    model.iter().for_each(|(key, value)| compact.put(key, value));
    let live = file_bytes(&compact_path);
    println!("{}: {full} bytes full, {used} at the end, {live} of the same content", path.display());
    assert!(used * 2 <= live * 3, "{used} bytes, {live} of the same content");
    let index = T::open(mapped(&path), &path);
    assert_holds(&index, &model, &gone);
    assert!(file_bytes(&path) * 2 <= live * 3, "opened");
}

/// In memory and on a disk.
pub fn random_deletes_leave_space_for_records_of_another_size<T: Subject>() {
    for reopens in [false, true] {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            leaves_little::<T>(tempfile::tempdir_in(memory).unwrap().path(), reopens);
        }
        leaves_little::<T>(tempfile::tempdir().unwrap().path(), reopens);
    }
}
