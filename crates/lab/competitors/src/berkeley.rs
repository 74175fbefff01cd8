//! Berkeley DB 5.3: a B-tree with a write-ahead log. The library is the system's; our C functions (`berkeley.c`) call it.
//!
//! Process durability: `DB_TXN_WRITE_NOSYNC`, which hands the log of a commit to the kernel. Power durability: `DB_TXN_SYNC`, the default.
//! [`PLAIN`] is the same B-tree without transactions, locks and log. It has no durability, and only one thread may use it. [`SHARED`] also
//! has no transactions and no log, but it locks, so that several threads may use it.
//!
//! Invariants of the pointers:
//!
//! * B1: the pointer of a [`Berkeley`] comes from `berkeley_open`, and goes to `berkeley_close` once. Any number of threads may use it: the
//!   handles are opened with `DB_THREAD`. Only [`PLAIN`] is different: it has no locks, and the benchmarks use it with one thread.
//! * B2: the pointer of a [`Scan`] comes from `berkeley_scan` of a store that outlives it, and goes to `berkeley_end` once.
//! * B3: the functions read no byte of a slice after they have returned.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use crate::{Competitor, Error, Kind, Options, Promise, Result, Session, refused};

const NAME: &str = "berkeley";

pub(crate) const KIND: Kind = Kind { name: NAME, setting, open };

/// Berkeley DB without transactions, for one thread.
pub const PLAIN: Kind = Kind {
    name: "berkeley-plain",
    setting: |_| "B-tree without transactions, locks and log: no promise",
    open: |path, options| open_as(path, options, 0),
};

/// Berkeley DB without transactions, for several threads. It has the locks of Concurrent Data Store.
pub const SHARED: Kind = Kind {
    name: "berkeley-shared",
    setting: |_| "B-tree, Concurrent Data Store: many readers or one writer, no log, no promise",
    open: |path, options| open_as(path, options, 3),
};

fn setting(promise: Promise) -> &'static str {
    match promise {
        Promise::Process => "B-tree, DB_TXN_WRITE_NOSYNC: the log goes to the kernel",
        Promise::Power => "B-tree, DB_TXN_SYNC",
    }
}

#[repr(C)]
struct Handle {
    _private: [u8; 0],
}

#[repr(C)]
struct Cursor {
    _private: [u8; 0],
}

unsafe extern "C" {
    safe fn berkeley_why(error: c_int) -> *const c_char;
    safe fn berkeley_is_absent(error: c_int) -> c_int;
    safe fn berkeley_is_too_large(error: c_int) -> c_int;
    fn berkeley_open(
        home: *const c_char,
        cache_bytes: u64,
        promise: c_int,
        opened: *mut *mut Handle,
    ) -> c_int;
    fn berkeley_close(handle: *mut Handle) -> c_int;
    fn berkeley_put(
        handle: *mut Handle,
        key: *const c_void,
        key_size: usize,
        value: *const c_void,
        value_size: usize,
    ) -> c_int;
    fn berkeley_batch(
        handle: *mut Handle,
        count: usize,
        data: *const *const c_void,
        sizes: *const usize,
    ) -> c_int;
    fn berkeley_get(
        handle: *mut Handle,
        key: *const c_void,
        key_size: usize,
        buffer: *mut c_void,
        size: *mut usize,
    ) -> c_int;
    fn berkeley_delete(handle: *mut Handle, key: *const c_void, key_size: usize) -> c_int;
    fn berkeley_scan(handle: *mut Handle, opened: *mut *mut Cursor) -> c_int;
    fn berkeley_next(
        scan: *mut Cursor,
        from: *const c_void,
        from_size: usize,
        key: *mut *const c_void,
        key_size: *mut usize,
        value: *mut *const c_void,
        value_size: *mut usize,
    ) -> c_int;
    fn berkeley_end(scan: *mut Cursor) -> c_int;
}

/// Converts an error number of the library.
fn told(what: &'static str, error: c_int) -> Result<()> {
    if error == 0 {
        return Ok(());
    }
    // SAFETY: the library has a text for every number, which ends with a zero byte; it is copied immediately.
    let text = unsafe { CStr::from_ptr(berkeley_why(error)) }.to_string_lossy().into_owned();
    Err(Error { store: NAME, what, source: text.into() })
}

struct Berkeley(NonNull<Handle>);

// SAFETY: B1.
unsafe impl Send for Berkeley {}
// SAFETY: B1.
unsafe impl Sync for Berkeley {}

fn open(path: &Path, options: &Options) -> Result<Box<dyn Competitor>> {
    let promise = match options.promise {
        Promise::Process => 1,
        Promise::Power => 2,
    };
    open_as(path, options, promise)
}

fn open_as(path: &Path, options: &Options, promise: c_int) -> Result<Box<dyn Competitor>> {
    let path =
        CString::new(path.as_os_str().as_bytes()).map_err(refused(NAME, "use the directory's name"))?;
    let mut handle = ptr::null_mut();
    // SAFETY: the path ends with a zero byte and outlives the call, as does the variable for the handle.
    let error = unsafe { berkeley_open(path.as_ptr(), options.cache_bytes(), promise, &raw mut handle) };
    told("open its files", error)?;
    let handle = NonNull::new(handle).ok_or("no handle").map_err(refused(NAME, "open its files"))?;
    Ok(Box::new(Berkeley(handle)))
}

impl Berkeley {
    fn close_once(&self) -> Result<()> {
        // SAFETY: B1: called by `close`, which forgets the store, or by its drop.
        told("close", unsafe { berkeley_close(self.0.as_ptr()) })
    }
}

impl Drop for Berkeley {
    fn drop(&mut self) {
        // The error is ignored. Callers that need it call `close`.
        let _ = self.close_once();
    }
}

impl Competitor for Berkeley {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let closed = self.close_once();
        std::mem::forget(*self);
        closed
    }
}

impl Session for &Berkeley {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: B1, B3.
        told("put", unsafe { berkeley_put(self.0.as_ptr(), k, key.len(), v, value.len()) })
    }

    fn batch(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let flat = || pairs.iter().flat_map(|(key, value)| [*key, *value]);
        let data: Vec<*const c_void> = flat().map(|slice| slice.as_ptr().cast()).collect();
        let sizes: Vec<usize> = flat().map(<[u8]>::len).collect();
        // SAFETY: B1, B3; both arrays have two elements for each pair.
        told("commit", unsafe { berkeley_batch(self.0.as_ptr(), pairs.len(), data.as_ptr(), sizes.as_ptr()) })
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        loop {
            value.clear();
            let mut size = value.capacity();
            let (k, buffer) = (key.as_ptr().cast(), value.as_mut_ptr().cast());
            // SAFETY: B1, B3; the buffer has space for `size` bytes.
            let error = unsafe { berkeley_get(self.0.as_ptr(), k, key.len(), buffer, &raw mut size) };
            if berkeley_is_absent(error) != 0 {
                return Ok(false);
            }
            if berkeley_is_too_large(error) != 0 {
                value.reserve(size);
                continue;
            }
            told("get", error)?;
            // SAFETY: the library has written this many bytes, and they had space.
            unsafe { value.set_len(size) };
            return Ok(true);
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: B1, B3.
        let error = unsafe { berkeley_delete(self.0.as_ptr(), key.as_ptr().cast(), key.len()) };
        if berkeley_is_absent(error) != 0 { Ok(()) } else { told("delete", error) }
    }

    fn scan(&mut self, from: &[u8], limit: u64, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut scan = Scan::new(self)?;
        let (mut from, mut count) = (Some(from), 0);
        while count < limit && scan.next(from.take(), met)? {
            count += 1;
        }
        Ok(count)
    }
}

struct Scan<'a> {
    cursor: *mut Cursor,
    store: PhantomData<&'a Berkeley>,
}

impl<'a> Scan<'a> {
    fn new(store: &'a Berkeley) -> Result<Self> {
        let mut cursor = ptr::null_mut();
        // SAFETY: B1.
        told("scan", unsafe { berkeley_scan(store.0.as_ptr(), &raw mut cursor) })?;
        Ok(Self { cursor, store: PhantomData })
    }

    fn next(&mut self, from: Option<&[u8]>, met: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let (from, from_size) = from.map_or((ptr::null(), 0), |from| (from.as_ptr().cast(), from.len()));
        let (mut key, mut value) = (ptr::null(), ptr::null());
        let (mut key_size, mut value_size) = (0, 0);
        // SAFETY: B2, B3.
        let error = unsafe {
            berkeley_next(
                self.cursor,
                from,
                from_size,
                &raw mut key,
                &raw mut key_size,
                &raw mut value,
                &raw mut value_size,
            )
        };
        if berkeley_is_absent(error) != 0 {
            return Ok(false);
        }
        told("scan", error)?;
        // SAFETY: the library returns the number of bytes. They stay until the next call, which needs the borrowed scan.
        let key = unsafe { std::slice::from_raw_parts(key.cast(), key_size) };
        // SAFETY: as above.
        let value = unsafe { std::slice::from_raw_parts(value.cast(), value_size) };
        met(key, value);
        Ok(true)
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // SAFETY: B2. An error of closing a cursor has no consequences.
        let _ = unsafe { berkeley_end(self.cursor) };
    }
}
