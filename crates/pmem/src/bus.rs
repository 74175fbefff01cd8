//! The message and exit code of a program when a page of a mapped file cannot be read.
//!
//! The kernel reports this by a signal (SIGBUS), in the middle of a load: the file was truncated while it was mapped,
//! or the device failed. The load cannot be finished, so the process ends. After a call of [`explain`], the process
//! ends with a message that contains the file's path, and with an exit code of the program's choice. Without this call,
//! the signal ends the process without a message.
//!
//! Invariant: the handler only loads atomics and calls `write` and `_exit`. POSIX allows these calls in a signal
//! handler. The handler allocates nothing.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Number of mappings whose paths are kept. For other mappings the message has no path.
const MAPPINGS: usize = 64;
/// Maximum number of bytes of a path that are kept. Only the end of a longer path is kept.
const PATH_MAX: usize = 512;

struct Mapping {
    /// Address of the first byte; 0: the entry is free, 1: the entry is being written.
    begin: AtomicUsize,
    end: AtomicUsize,
    path: [AtomicU8; PATH_MAX],
}

static TABLE: [Mapping; MAPPINGS] = [const {
    Mapping {
        begin: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        path: [const { AtomicU8::new(0) }; PATH_MAX],
    }
}; MAPPINGS];
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Registers a mapping for the message.
pub(crate) fn note(begin: usize, bytes: usize, path: &Path) {
    let taken = |mapping: &&Mapping| {
        mapping.begin.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let Some(mapping) = TABLE.iter().find(taken) else { return };
    let path = path.as_os_str().as_bytes();
    let path = &path[path.len().saturating_sub(PATH_MAX)..];
    let bytes_of = path.iter().copied().chain(std::iter::repeat(0));
    mapping.path.iter().zip(bytes_of).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
    mapping.end.store(begin + bytes, Ordering::Relaxed);
    mapping.begin.store(begin, Ordering::Release);
}

/// Removes a mapping that is about to be unmapped.
pub(crate) fn forget(begin: usize) {
    if let Some(mapping) = TABLE.iter().find(|mapping| mapping.begin.load(Ordering::Acquire) == begin) {
        mapping.begin.store(0, Ordering::Release);
    }
}

/// From now on, the process ends with a message and this exit code when a page of a mapped file cannot be read. Only programs
/// should call this: signals belong to the program, not to a library.
///
/// # Errors
/// `Io` if the system refuses the handler.
pub fn explain(exit_code: i32) -> Result<()> {
    EXIT_CODE.store(exit_code, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    // SAFETY: all zeros are a valid action: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is fully initialised, and the handler keeps the module's invariant.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } == 0 {
        return Ok(());
    }
    let source = std::io::Error::last_os_error();
    Err(Error::Io { what: "cannot handle SIGBUS of", path: "mapped files".into(), source })
}

extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system passes a valid pointer to a handler with SA_SIGINFO.
    let info = unsafe { &*info };
    // SAFETY: the system sets the address for SIGBUS.
    let address = unsafe { info.si_addr() } as usize;
    let has = |mapping: &&Mapping| {
        let begin = mapping.begin.load(Ordering::Acquire);
        begin > 1 && (begin..mapping.end.load(Ordering::Relaxed)).contains(&address)
    };
    tell(b"bristlecone: ");
    match TABLE.iter().find(has) {
        Some(mapping) => {
            let mut path = [0; PATH_MAX];
            path.iter_mut().zip(&mapping.path).for_each(|(to, byte)| *to = byte.load(Ordering::Relaxed));
            let len = path.iter().position(|byte| *byte == 0).unwrap_or(PATH_MAX);
            tell(path.get(..len).unwrap_or_default());
        }
        None => tell(b"a mapped file"),
    }
    tell(
        b": a page of it cannot be had (SIGBUS). It was cut short while it was in use, or its device failed. \
          Stop whatever writes to it besides, see that the device is sound, and run `bristlecone check`; \
          if that finds damage, `bristlecone check --salvage DIR`.\n",
    );
    // SAFETY: ends the process at once; a signal handler may call it.
    unsafe { libc::_exit(EXIT_CODE.load(Ordering::Relaxed)) }
}

/// Writes to the standard error output. Errors are ignored.
fn tell(bytes: &[u8]) {
    // SAFETY: the bytes are valid for the call; a signal handler may call `write`.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}
