//! RocksDB: a log-structured merge tree with a write-ahead log, through the C interface of the system's library.
//!
//! Process durability: writes with `sync = false`, which hand the log's bytes to the kernel before they return. Power durability: `sync =
//! true`; concurrent writers share a sync.
//!
//! Only the functions that the benchmark calls are declared here. Invariants of the pointers:
//!
//! * R1: every pointer in [`Rocks`] comes from the library's constructor of that type, is never null, and is destroyed once, in `drop`.
//! * R2: any number of threads may use a database and its write and read options at once, as RocksDB documents. A batch and an iterator
//!   belong to one [`Handle`], which is not shared.
//! * R3: an error text comes from the library's allocator, ends with a zero byte, and is freed by the library.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::{Competitor, Error, Kind, Options, Promise, Result, SETTLE_PAUSE, Session, refused};

const NAME: &str = "rocksdb";

pub(crate) const KIND: Kind = Kind { name: NAME, setting, open };

/// The usual Bloom filter: one lookup in a hundred reads a block needlessly.
const FILTER_BITS_PER_KEY: f64 = 10.0;
/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => {
            "sync = false: the log goes to the kernel; block cache, Bloom filters, no compression"
        }
        Promise::Power => "sync = true; block cache, Bloom filters, no compression",
    }
}

/// Properties that are above zero while the library has background work.
const BACKGROUND: [&CStr; 4] = [
    c"rocksdb.mem-table-flush-pending",
    c"rocksdb.compaction-pending",
    c"rocksdb.num-running-flushes",
    c"rocksdb.num-running-compactions",
];

/// Types of the library, used through pointers only.
mod opaque {
    macro_rules! types {
        ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
    }
    types! { Db Options TableOptions Cache Filter Env WriteOptions ReadOptions Batch Iterator Pinned }
}
use opaque::{Batch, Cache, Db, Env, Filter, Iterator, Pinned, ReadOptions, TableOptions, WriteOptions};

type Text = *mut c_char;

unsafe extern "C" {
    safe fn rocksdb_create_default_env() -> *mut Env;
    fn rocksdb_env_set_low_priority_background_threads(env: *mut Env, count: c_int);
    fn rocksdb_env_set_high_priority_background_threads(env: *mut Env, count: c_int);
    fn rocksdb_env_destroy(env: *mut Env);

    safe fn rocksdb_options_create() -> *mut opaque::Options;
    fn rocksdb_options_increase_parallelism(options: *mut opaque::Options, threads: c_int);
    fn rocksdb_options_set_create_if_missing(options: *mut opaque::Options, yes: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: *mut opaque::Options, bytes: usize);
    fn rocksdb_options_set_compression(options: *mut opaque::Options, kind: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: *mut opaque::Options, table: *mut TableOptions);
    fn rocksdb_options_destroy(options: *mut opaque::Options);
    safe fn rocksdb_block_based_options_create() -> *mut TableOptions;
    fn rocksdb_block_based_options_set_filter_policy(table: *mut TableOptions, filter: *mut Filter);
    fn rocksdb_block_based_options_set_block_cache(table: *mut TableOptions, cache: *mut Cache);
    fn rocksdb_block_based_options_destroy(table: *mut TableOptions);
    safe fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    fn rocksdb_cache_destroy(cache: *mut Cache);
    safe fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut Filter;

    fn rocksdb_open(options: *const opaque::Options, path: *const c_char, error: *mut Text) -> *mut Db;
    fn rocksdb_close(db: *mut Db);
    safe fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, yes: c_uchar);
    fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    safe fn rocksdb_readoptions_create() -> *mut ReadOptions;
    fn rocksdb_readoptions_destroy(options: *mut ReadOptions);

    fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        error: *mut Text,
    );
    fn rocksdb_delete(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut Text,
    );
    safe fn rocksdb_writebatch_create() -> *mut Batch;
    fn rocksdb_writebatch_clear(batch: *mut Batch);
    fn rocksdb_writebatch_put(
        batch: *mut Batch,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    );
    fn rocksdb_writebatch_destroy(batch: *mut Batch);
    fn rocksdb_write(db: *mut Db, options: *const WriteOptions, batch: *mut Batch, error: *mut Text);

    fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut Text,
    ) -> *mut Pinned;
    fn rocksdb_pinnableslice_value(pinned: *const Pinned, bytes: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);

    fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iterator;
    fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const u8, key_bytes: usize);
    fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    fn rocksdb_iter_next(iterator: *mut Iterator);
    fn rocksdb_iter_key(iterator: *const Iterator, bytes: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: *const Iterator, bytes: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut Text);
    fn rocksdb_iter_destroy(iterator: *mut Iterator);

    fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;

    fn rocksdb_free(memory: *mut c_void);
}

/// Converts an error text of the library; `Ok` if it is null.
fn told(what: &'static str, error: Text) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: R3.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: R3; the text is not used again.
    unsafe { rocksdb_free(error.cast()) };
    Err(Error { store: NAME, what, source: text.into() })
}

struct Rocks {
    db: *mut Db,
    env: *mut Env,
    write: *mut WriteOptions,
    read: *mut ReadOptions,
}

// SAFETY: R2.
unsafe impl Send for Rocks {}
// SAFETY: R2.
unsafe impl Sync for Rocks {}

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    let path =
        CString::new(path.as_os_str().as_bytes()).map_err(refused(NAME, "use the directory's name"))?;
    let (buffer_bytes, cache_bytes) = options.split_cache();
    let open = rocksdb_options_create();
    let table = rocksdb_block_based_options_create();
    let cache = rocksdb_cache_create_lru(cache_bytes as usize);
    // SAFETY: R1. The table options take ownership of the filter.
    unsafe {
        rocksdb_block_based_options_set_filter_policy(
            table,
            rocksdb_filterpolicy_create_bloom_full(FILTER_BITS_PER_KEY),
        );
    }
    // SAFETY: R1. The table options keep a reference to the cache.
    unsafe { rocksdb_block_based_options_set_block_cache(table, cache) };
    // SAFETY: R1. The options copy the table options.
    unsafe { rocksdb_options_set_block_based_table_factory(open, table) };
    // SAFETY: R1. Starts the background threads from this thread: see `drop`.
    unsafe { rocksdb_options_increase_parallelism(open, threads()) };
    // SAFETY: R1.
    unsafe { rocksdb_options_set_create_if_missing(open, 1) };
    // SAFETY: R1.
    unsafe { rocksdb_options_set_compression(open, NO_COMPRESSION) };
    if let Some(bytes) = buffer_bytes {
        // SAFETY: R1. The default number of buffers is two.
        unsafe { rocksdb_options_set_write_buffer_size(open, bytes as usize) };
    }
    let mut error = ptr::null_mut();
    // SAFETY: R1; the path ends with a zero byte and outlives the call.
    let db = unsafe { rocksdb_open(open, path.as_ptr(), &raw mut error) };
    // SAFETY: R1; the database has copies of the options and references to their parts.
    unsafe { rocksdb_options_destroy(open) };
    // SAFETY: as above.
    unsafe { rocksdb_block_based_options_destroy(table) };
    // SAFETY: as above.
    unsafe { rocksdb_cache_destroy(cache) };
    told("open its files", error)?;
    let write = rocksdb_writeoptions_create();
    // SAFETY: R1.
    unsafe { rocksdb_writeoptions_set_sync(write, c_uchar::from(options.promise == Promise::Power)) };
    Ok(Box::new(Rocks { db, env: rocksdb_create_default_env(), write, read: rocksdb_readoptions_create() }))
}

/// Number of background threads: the number of processors, and at least two, one that flushes and one that compacts.
fn threads() -> c_int {
    std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 64) as c_int)
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: R1. Sessions borrow the database, so none exists.
        unsafe { rocksdb_close(self.db) };
        // The library keeps its background threads for the next database. They end here, because the sync counter counts only the threads
        // that its own thread has started: it would miss threads of an earlier database.
        // SAFETY: R1.
        unsafe { rocksdb_env_set_low_priority_background_threads(self.env, 0) };
        // SAFETY: R1.
        unsafe { rocksdb_env_set_high_priority_background_threads(self.env, 0) };
        // SAFETY: R1. Only the handle is destroyed: the default environment lives as long as the process.
        unsafe { rocksdb_env_destroy(self.env) };
        // SAFETY: R1.
        unsafe { rocksdb_writeoptions_destroy(self.write) };
        // SAFETY: R1.
        unsafe { rocksdb_readoptions_destroy(self.read) };
    }
}

impl Rocks {
    /// A numeric property of the library; 0 if it does not know the name.
    fn number(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: R1, R2; the name ends with a zero byte.
        let refused = unsafe { rocksdb_property_int(self.db, name.as_ptr(), &raw mut value) };
        if refused == 0 { value } else { 0 }
    }
}

impl Competitor for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Handle { rocks: self, batch: rocksdb_writebatch_create() }))
    }

    fn settle(&self) -> Result<()> {
        while BACKGROUND.iter().map(|name| self.number(name)).sum::<u64>() > 0 {
            std::thread::sleep(SETTLE_PAUSE);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Handle<'a> {
    rocks: &'a Rocks,
    batch: *mut Batch,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: R2: made with the handle, used only by it.
        unsafe { rocksdb_writebatch_destroy(self.batch) };
    }
}

/// An iterator that is destroyed at the end of its scope.
struct Cursor(*mut Iterator);

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: R2: made by `scan`, used only by it.
        unsafe { rocksdb_iter_destroy(self.0) };
    }
}

impl Cursor {
    fn is_valid(&self) -> bool {
        // SAFETY: R2.
        let valid = unsafe { rocksdb_iter_valid(self.0) };
        valid != 0
    }

    /// The pair at a valid iterator, until the iterator moves.
    fn pair(&self) -> (&[u8], &[u8]) {
        let (mut key_bytes, mut value_bytes) = (0, 0);
        // SAFETY: R2; the iterator is valid.
        let key = unsafe { rocksdb_iter_key(self.0, &raw mut key_bytes) };
        // SAFETY: R2; the iterator is valid.
        let value = unsafe { rocksdb_iter_value(self.0, &raw mut value_bytes) };
        // SAFETY: the library returns the number of bytes. They stay until the iterator moves, and it is borrowed until then.
        let key = unsafe { std::slice::from_raw_parts(key, key_bytes) };
        // SAFETY: as above.
        let value = unsafe { std::slice::from_raw_parts(value, value_bytes) };
        (key, value)
    }

    fn step(&mut self) {
        // SAFETY: R2; called on a valid iterator.
        unsafe { rocksdb_iter_next(self.0) };
    }
}

impl Session for Handle<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        let Rocks { db, write, .. } = *self.rocks;
        let (k, v) = (key.as_ptr(), value.as_ptr());
        // SAFETY: R1, R2; both slices outlive the call.
        unsafe { rocksdb_put(db, write, k, key.len(), v, value.len(), &raw mut error) };
        told("put", error)
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        // SAFETY: R2.
        unsafe { rocksdb_writebatch_clear(self.batch) };
        for (key, value) in pairs {
            // SAFETY: R2; the library copies both slices.
            unsafe {
                rocksdb_writebatch_put(self.batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
        }
        let mut error = ptr::null_mut();
        // SAFETY: R1, R2.
        unsafe { rocksdb_write(self.rocks.db, self.rocks.write, self.batch, &raw mut error) };
        told("commit", error)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut error = ptr::null_mut();
        let Rocks { db, read, .. } = *self.rocks;
        // SAFETY: R1, R2; the key outlives the call.
        let pinned = unsafe { rocksdb_get_pinned(db, read, key.as_ptr(), key.len(), &raw mut error) };
        told("get", error)?;
        value.clear();
        if pinned.is_null() {
            return Ok(false);
        }
        let mut bytes = 0;
        // SAFETY: the slice is not null and was just made.
        let found = unsafe { rocksdb_pinnableslice_value(pinned, &raw mut bytes) };
        // SAFETY: the library returns the number of bytes. They stay until the slice is destroyed.
        value.extend_from_slice(unsafe { std::slice::from_raw_parts(found, bytes) });
        // SAFETY: the slice is not used again.
        unsafe { rocksdb_pinnableslice_destroy(pinned) };
        Ok(true)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        let Rocks { db, write, .. } = *self.rocks;
        // SAFETY: R1, R2; the key outlives the call.
        unsafe { rocksdb_delete(db, write, key.as_ptr(), key.len(), &raw mut error) };
        told("delete", error)
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        // SAFETY: R1, R2.
        let iterator = unsafe { rocksdb_create_iterator(self.rocks.db, self.rocks.read) };
        let mut cursor = Cursor(iterator);
        // SAFETY: R2; the key outlives the call.
        unsafe { rocksdb_iter_seek(cursor.0, from.as_ptr(), from.len()) };
        let mut count = 0;
        while count < limit && cursor.is_valid() {
            let (key, value) = cursor.pair();
            met(key, value);
            count += 1;
            if count < limit {
                cursor.step();
            }
        }
        let mut error = ptr::null_mut();
        // SAFETY: R2.
        unsafe { rocksdb_iter_get_error(cursor.0, &raw mut error) };
        told("scan", error)?;
        Ok(count)
    }
}
