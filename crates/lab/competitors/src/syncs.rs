//! Counts the syncs of a store: the system calls that wait for the disk, counted at their entry into the kernel.
//!
//! The count relies neither on a store's documentation nor on the calls of one library. A kernel filter (seccomp) applies to one thread and
//! to all threads that this thread starts. The filter stops the calls that are listed below, and all plain writes. It notifies a thread
//! outside the filter, which counts the call and lets it continue. This needs no privilege and no other program. The filter sees these
//! calls whatever language or library makes them, except through an `io_uring` ring. For a store that opens such a ring, counting fails.
//!
//! Counted calls: `fsync`, `fdatasync`, `sync_file_range`, `syncfs`, `sync`; `msync` with `MS_SYNC` (without it, the call does not wait);
//! synchronous writes. A write is synchronous if its descriptor has `O_SYNC` or `O_DSYNC`, or if the call is `pwritev2` with `RWF_SYNC` or
//! `RWF_DSYNC`.
//!
//! * I1: the filter is installed on a separate thread, which ends with the work. The filter does not affect the rest of the process.
//! * I2: a call is counted before it continues. So the count includes the syncs of every write that has returned.
//! * I3: calls of threads that outlive the work are still let through: the counting thread ends only when the last of these threads has
//!   ended.
//!
//! A stopped call takes some microseconds longer. So times are measured in another pass, without a filter.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of calls that waited for a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Syncs {
    /// `fsync`.
    pub fsync: u64,
    /// `fdatasync`.
    pub fdatasync: u64,
    /// `msync` with `MS_SYNC`.
    pub msync: u64,
    /// `sync_file_range`.
    pub sync_file_range: u64,
    /// `syncfs` and `sync`.
    pub syncfs: u64,
    /// Writes to descriptors, or with flags, that make each write synchronous.
    pub synchronous_writes: u64,
}

impl Syncs {
    /// Number of all calls.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// The numbers with their names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("fsync", self.fsync),
            ("fdatasync", self.fdatasync),
            ("msync", self.msync),
            ("sync_file_range", self.sync_file_range),
            ("syncfs", self.syncfs),
            ("synchronous write", self.synchronous_writes),
        ]
    }
}

/// Counts since the last [`Counter::take`].
#[derive(Debug, Default)]
pub struct Counter {
    counts: [AtomicU64; 6],
    rings: AtomicU64,
}

impl Counter {
    /// Returns the count and resets it.
    ///
    /// # Errors
    /// If an `io_uring` ring was opened, which can hide calls from the count.
    pub fn take(&self) -> io::Result<Syncs> {
        if self.rings.load(Ordering::Acquire) != 0 {
            return Err(io::Error::other("the store uses io_uring, whose calls cannot be counted"));
        }
        let [fsync, fdatasync, msync, sync_file_range, syncfs, synchronous_writes] =
            self.counts.each_ref().map(|count| count.swap(0, Ordering::AcqRel));
        Ok(Syncs { fsync, fdatasync, msync, sync_file_range, syncfs, synchronous_writes })
    }

    fn meet(&self, call: Call) {
        match call {
            Call::Sync(kind) => self.counts[kind].fetch_add(1, Ordering::AcqRel),
            Call::Ring => self.rings.fetch_add(1, Ordering::AcqRel),
            Call::Harmless => 0,
        };
    }
}

/// Runs `work` on a new thread. The counter includes the syncs of that thread and of all threads that it starts.
///
/// # Errors
/// If the kernel does not support such filters or forbids them. Then `work` did not run.
pub fn counted<T: Send>(work: impl FnOnce(&Counter) -> T + Send) -> io::Result<T> {
    let counter = Arc::new(Counter::default());
    let (send, receive) = std::sync::mpsc::channel::<File>();
    let outside = Arc::clone(&counter);
    // Started before the filter is installed, so that the filter does not apply to it.
    let counting = std::thread::Builder::new().name("sync counter".into()).spawn(move || {
        if let Ok(listener) = receive.recv() {
            supervise(&listener, &outside);
        }
    })?;
    let done = std::thread::scope(|scope| {
        let inside = std::thread::Builder::new().name("counted".into()).spawn_scoped(scope, || {
            let listener = install()?;
            // The counting thread is waiting for this message.
            send.send(listener).map_err(|_| io::Error::other("the counting thread has ended"))?;
            Ok(work(&counter))
        })?;
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(send);
    // I3: not joined, because threads of the store may still run.
    drop(counting);
    done
}

/// The kind of a stopped call.
enum Call {
    Sync(usize),
    Ring,
    Harmless,
}

/// The stopped calls. The number is the index in [`Counter::counts`], for the first six.
const STOPPED: [(libc::c_long, usize); 7] = [
    (libc::SYS_fsync, 0),
    (libc::SYS_fdatasync, 1),
    (libc::SYS_msync, 2),
    (libc::SYS_sync_file_range, 3),
    (libc::SYS_syncfs, 4),
    (libc::SYS_sync, 4),
    (libc::SYS_io_uring_setup, RING),
];
const WRITES: [libc::c_long; 5] =
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2];
const SYNCHRONOUS_WRITE: usize = 5;
const RING: usize = usize::MAX;

fn judge(call: &libc::seccomp_data) -> Call {
    let number = libc::c_long::from(call.nr);
    if WRITES.contains(&number) {
        let asked =
            number == libc::SYS_pwritev2 && call.args[5] & (libc::RWF_DSYNC | libc::RWF_SYNC) as u64 != 0;
        // SAFETY: reads the flags of a number that may or may not be a descriptor; accesses no memory.
        let flags = unsafe { libc::fcntl(call.args[0] as RawFd, libc::F_GETFL) };
        // O_SYNC includes the bit of O_DSYNC.
        let synchronous = asked || flags >= 0 && flags & libc::O_DSYNC != 0;
        return if synchronous { Call::Sync(SYNCHRONOUS_WRITE) } else { Call::Harmless };
    }
    if number == libc::SYS_msync && call.args[2] & libc::MS_SYNC as u64 == 0 {
        return Call::Harmless;
    }
    match STOPPED.iter().find(|(stopped, _)| *stopped == number) {
        Some((_, RING)) => Call::Ring,
        Some((_, kind)) => Call::Sync(*kind),
        None => Call::Harmless,
    }
}

/// The kernel's number for the architecture of this processor.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// The filter: calls in the list are stopped, all others pass.
fn program() -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // Offsets in `seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        // Let calls of another architecture pass: this program makes none, and their numbers have other meanings.
        step(JUMP_EQUAL, 1, 0, ARCHITECTURE),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(LOAD, 0, 0, NUMBER),
    ];
    for number in STOPPED.iter().map(|(number, _)| *number).chain(WRITES) {
        program.push(step(JUMP_EQUAL, 0, 1, number as u32));
        program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs the filter on the calling thread. Returns the descriptor that receives the notifications.
fn install() -> io::Result<File> {
    if ARCHITECTURE == 0 {
        return Err(io::Error::other("not written for this processor"));
    }
    let mut program = program();
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: sets a flag of the calling thread, which then cannot gain privileges. It needs none.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its steps outlive the call; the kernel copies and checks them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made the descriptor, and it has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor as RawFd) })
}

/// Counts calls and lets them continue, until no thread is left under the filter.
fn supervise(listener: &File, counter: &Counter) {
    let descriptor = listener.as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: the call gets one entry, which outlives it.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 {
            continue; // a signal
        }
        if poll.revents & libc::POLLIN == 0 {
            return;
        }
        // SAFETY: a struct of integers, for which zeros are valid. The kernel requires zeros.
        let mut heard: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in a value of exactly this type.
        if unsafe { libc::ioctl(descriptor, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut heard) } != 0 {
            continue; // the thread was killed between the two calls
        }
        counter.meet(judge(&heard.data));
        let mut answer = libc::seccomp_notif_resp {
            id: heard.id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        };
        // SAFETY: the kernel reads a value of exactly this type. An error means that the stopped thread has ended.
        unsafe { libc::ioctl(descriptor, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn known_syncs_are_counted_by_kind_and_plain_writes_are_not() {
        let file = tempfile::tempfile().unwrap();
        let syncs = counted(|counter| {
            (&file).write_all(b"plain").unwrap();
            assert_eq!(counter.take().unwrap(), Syncs::default());
            for _ in 0..3 {
                file.sync_data().unwrap();
            }
            file.sync_all().unwrap();
            counter.take().unwrap()
        });
        assert_eq!(syncs.unwrap(), Syncs { fsync: 1, fdatasync: 3, ..Syncs::default() });
    }

    #[test]
    fn a_write_through_a_synchronous_descriptor_is_a_sync() {
        let path = std::env::temp_dir().join(format!("bristlecone-o-dsync-{}", std::process::id()));
        let mut open = File::options();
        let file = open.write(true).create_new(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let syncs = counted(|counter| {
            (&file).write_all(b"a").unwrap();
            (&file).write_all(b"b").unwrap();
            counter.take().unwrap()
        });
        assert_eq!(syncs.unwrap(), Syncs { synchronous_writes: 2, ..Syncs::default() });
    }

    #[test]
    fn threads_of_the_work_are_counted_and_others_are_not() {
        let (inside, outside) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let syncs = std::thread::scope(|scope| {
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let (done, seen) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                wait.recv().unwrap();
                outside.sync_all().unwrap();
                done.send(()).unwrap();
            });
            counted(move |counter| {
                std::thread::scope(|inner| {
                    for _ in 0..4 {
                        inner.spawn(|| inside.sync_data().unwrap());
                    }
                });
                go.send(()).unwrap();
                seen.recv().unwrap();
                counter.take().unwrap()
            })
        });
        assert_eq!(syncs.unwrap(), Syncs { fdatasync: 4, ..Syncs::default() });
    }

    #[test]
    fn two_works_at_once_have_counts_of_their_own_and_a_later_thread_is_let_on() {
        let later = std::thread::scope(|scope| {
            let works: Vec<_> = (1..=2)
                .map(|syncs| {
                    scope.spawn(move || {
                        let file = tempfile::tempfile().unwrap();
                        counted(move |counter| {
                            (0..syncs).for_each(|_| file.sync_data().unwrap());
                            let count = counter.take().unwrap().fdatasync;
                            // This thread syncs after the work has ended.
                            let (go, wait) = std::sync::mpsc::channel::<()>();
                            let thread = std::thread::spawn(move || {
                                wait.recv().unwrap();
                                file.sync_data().unwrap();
                            });
                            (count, syncs, go, thread)
                        })
                        .unwrap()
                    })
                })
                .collect();
            works.into_iter().map(|work| work.join().unwrap()).collect::<Vec<_>>()
        });
        for (count, syncs, go, thread) in later {
            assert_eq!(count, syncs);
            go.send(()).unwrap();
            thread.join().unwrap();
        }
    }
}
