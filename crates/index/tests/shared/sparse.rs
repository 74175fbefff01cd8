//! Sparse chunks: after random deletes and writes of records of another size, the file is at most 1.5 times as large as
//! a new file with the same pairs. After all keys are deleted, the file is about as small as before the first key.
//!
//! A former defect: every chunk kept its size class although only a tenth of its blocks was in use.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use index::kind::Bytes;
use index::{Index, Write, WriteOptions};
use pmem::journal::{self, Journal};
use pmem::{Durability, Durable, Native};

use crate::common::engine::Subject;
use crate::common::samples::Sample;

type Pair = (Vec<u8>, Vec<u8>);

const SYNCED: WriteOptions = WriteOptions { sync: true };

/// Operations per commit of a journal.
const BATCH: usize = 500;

/// The file at `path`, mapped or over a journal.
fn medium(path: &Path, journaled: bool) -> Durable {
    let is_new = !path.exists();
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    if !journaled {
        return Native::map(file, path, 1 << 32, Durability::Process).unwrap().into();
    }
    let options = journal::Options { capacity_bytes: 8 << 20, max_bytes: 1 << 32 };
    let beside = path.with_extension("journal");
    let journal = match is_new {
        true => Journal::create(file, path, &beside, &options),
        false => Journal::open(file, path, &beside, options.max_bytes).map(|(journal, _)| journal),
    };
    Arc::new(journal.unwrap()).into()
}

/// An index, with the parts from which the size of its file is read.
struct Opened<I> {
    index: I,
    journal: Option<Arc<Journal>>,
    path: PathBuf,
}

impl<I: Index<Bytes>> Opened<I> {
    fn new<X: Subject<Over<Durable> = I>>(subject: &X, path: PathBuf, journaled: bool) -> Self {
        let is_new = !path.exists();
        let medium = medium(&path, journaled);
        let journal = medium.journal().cloned();
        let index = match is_new {
            true => subject.create(medium).unwrap(),
            false => subject.open(medium, Durability::Process, 0).unwrap().0,
        };
        Self { index, journal, path }
    }

    fn write_many(&self, writes: &[Write<'_, [u8], [u8]>]) -> Vec<bool> {
        self.index.write_many(writes, SYNCED).unwrap()
    }

    fn put_many(&self, pairs: &[Pair]) {
        self.write_many(
            &pairs.iter().map(|(key, value)| Write::Put(&key[..], &value[..])).collect::<Vec<_>>(),
        );
    }

    fn put_all(&self, pairs: &[Pair]) {
        match self.journal {
            Some(_) => pairs.chunks(BATCH).for_each(|pairs| self.put_many(pairs)),
            None => pairs.iter().for_each(|(key, value)| _ = self.index.put(key, value, SYNCED).unwrap()),
        }
    }

    fn delete_all(&self, keys: &[Vec<u8>]) {
        if self.journal.is_none() {
            return keys.iter().for_each(|key| assert!(self.index.delete(key, SYNCED).unwrap()));
        }
        for keys in keys.chunks(BATCH) {
            let found = self.write_many(&keys.iter().map(|key| Write::Delete(&key[..])).collect::<Vec<_>>());
            assert!(found.iter().all(|found| *found));
        }
    }

    /// Bytes of the file after a checkpoint.
    fn file_bytes(&self) -> u64 {
        if let Some(journal) = &self.journal {
            journal.checkpoint_all().unwrap();
        }
        std::fs::metadata(&self.path).unwrap().blocks() * 512
    }

    fn close(self) -> PathBuf {
        self.index.close().unwrap();
        if let Some(journal) = self.journal {
            journal.close().unwrap();
        }
        self.path
    }
}

fn pair(number: u64, bytes: usize) -> Pair {
    (format!("key {number:08}").into_bytes(), vec![number as u8; bytes])
}

fn assert_holds(index: &impl Index<Bytes>, model: &BTreeMap<Vec<u8>, Vec<u8>>, gone: &[Vec<u8>]) {
    let get = |key: &[u8]| {
        let mut value = Vec::new();
        index.get(key, Some(&mut value)).unwrap().then_some(value)
    };
    assert_eq!(index.check().problems, Vec::<String>::new());
    assert!(model.iter().all(|(key, value)| get(key).as_ref() == Some(value)));
    assert!(gone.iter().all(|key| get(key).is_none()));
}

/// Runs the test. `reopens`: the index is reopened between the deletes and the writes.
fn leaves_little<X: Subject<Schema: Sample<Kind = Bytes>>>(
    subject: &X,
    folder: &Path,
    reopens: bool,
    journaled: bool,
) {
    const KEYS: u64 = 200_000;
    let path = |name: &str| folder.join(format!("{name} {reopens} {journaled}"));
    let mut rng = fastrand::Rng::with_seed(4);
    let mut opened = Opened::new(subject, path("store"), journaled);
    let all: Vec<_> = (0..KEYS).map(|number| pair(number, 300)).collect();
    opened.put_all(&all);
    let full = opened.file_bytes();
    let mut model: BTreeMap<_, _> = all.into_iter().collect();
    let mut gone: Vec<Vec<u8>> = model.keys().cloned().collect();
    rng.shuffle(&mut gone);
    gone.truncate(KEYS as usize * 9 / 10);
    opened.delete_all(&gone);
    gone.iter().for_each(|key| assert!(model.remove(key).is_some()));
    if reopens {
        opened = Opened::new(subject, opened.close(), journaled);
    }
    // As many bytes as remain, half by single puts and half by write groups.
    let puts: Vec<_> = (KEYS..KEYS + KEYS / 10 * 3 / 10).map(|number| pair(number, 1000)).collect();
    let (alone, together) = puts.split_at(puts.len() / 2);
    opened.put_all(alone);
    together.chunks(50).for_each(|pairs| opened.put_many(pairs));
    model.extend(puts);
    assert_holds(&opened.index, &model, &gone);
    let used = opened.file_bytes();
    let closed = opened.close();

    let compact = Opened::new(subject, path("compact"), journaled);
    compact.put_all(&model.clone().into_iter().collect::<Vec<_>>());
    let live = std::fs::metadata(compact.close()).unwrap().blocks() * 512;
    println!("{}: {full} bytes full, {used} at the end, {live} of the same content", closed.display());
    assert!(used * 2 <= live * 3, "{used} bytes, {live} of the same content");
    let opened = Opened::new(subject, closed, journaled);
    assert_holds(&opened.index, &model, &gone);
    assert!(opened.file_bytes() * 2 <= live * 3, "opened");
}

/// All keys are deleted. Then the file is about as small as before the first key.
fn leaves_nothing<X: Subject<Schema: Sample<Kind = Bytes>>>(subject: &X, folder: &Path, journaled: bool) {
    let opened = Opened::new(subject, folder.join(format!("emptied {journaled}")), journaled);
    let empty = opened.file_bytes();
    let (all, keys): (Vec<_>, Vec<_>) =
        (0..50_000).map(|number| (pair(number, 300), pair(number, 0).0)).unzip();
    opened.put_all(&all);
    let full = opened.file_bytes();
    opened.delete_all(&keys);
    let none = opened.file_bytes();
    println!("{}: {empty} bytes before, {full} full, {none} without a key", opened.path.display());
    // The allowance covers held free chunks and the chunks of the last growth.
    assert!(none <= empty + (4 << 20), "{none} bytes without a key, {empty} before the first");
    assert_eq!(opened.index.check().problems, Vec::<String>::new());
    // The free chunks are used again.
    opened.put_all(&all);
    assert_holds(&opened.index, &all.into_iter().collect(), &[]);
    assert!(opened.file_bytes() * 2 <= full * 3, "{} bytes full again", opened.file_bytes());
    assert_eq!(opened.index.check().problems, Vec::<String>::new());
}

/// Runs the tests in memory and on a disk, mapped and over a journal.
pub fn random_deletes_leave_space_for_records_of_another_size<X: Subject<Schema: Sample<Kind = Bytes>>>(
    subject: &X,
) {
    let memory = Path::new("/dev/shm");
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(memory.is_dir().then(|| tempfile::tempdir_in(memory).unwrap()));
    for folder in &folders {
        for journaled in [true, false] {
            leaves_nothing(subject, folder.path(), journaled);
            for reopens in [false, true] {
                leaves_little(subject, folder.path(), reopens, journaled);
            }
        }
    }
}
