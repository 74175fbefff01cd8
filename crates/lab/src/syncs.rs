//! How often a store really waits for its disk: system calls counted where they enter the kernel.
//!
//! What a store documents is not what is counted here, nor the calls of one library: a filter of the kernel (seccomp) stops
//! every system call that may wait for the disk, of one thread and of all threads that it starts, and tells a thread outside the
//! filter, which counts it and lets it go on. It needs no privilege and no other program, and no call escapes it, whichever
//! language or library made it. (Only a ring of `io_uring` would; a store that opens one is refused a count.)
//!
//! What counts: `fsync`, `fdatasync`, `sync_file_range`, `syncfs`, `sync`; `msync` with `MS_SYNC` (without it nothing is waited
//! for); writes to a descriptor that was opened with `O_SYNC` or `O_DSYNC`, and writes that ask for it themselves, each of which
//! is a write and a sync in one.
//!
//! * I1: the filter is installed on a thread of its own, which ends with the work. The rest of the process never meets it.
//! * I2: a call is counted before it goes on; so whoever has seen a write return finds its syncs in the count.
//! * I3: threads that outlive the work are let go on as before: the counting thread ends with the last of them.
//!
//! A stopped call takes some microseconds more. Times are therefore measured without a filter, in another pass.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls that waited for a disk.
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
    /// Writes to descriptors, or with flags, that make each write a sync.
    pub synchronous_writes: u64,
}

impl Syncs {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Each with its name.
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

/// What has been counted and not yet taken.
#[derive(Debug, Default)]
pub struct Counter {
    counts: [AtomicU64; 6],
    rings: AtomicU64,
}

impl Counter {
    /// The count since the last time; it begins again at nothing.
    ///
    /// # Errors
    /// If a ring of `io_uring` was opened, through which calls may have passed uncounted.
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

/// Runs `work` on a thread of its own, whose syncs and those of all threads it starts come into the counter.
///
/// # Errors
/// If the kernel has no such filters or does not allow them here: the reason, and nothing was run.
pub fn counted<T: Send>(work: impl FnOnce(&Counter) -> T + Send) -> io::Result<T> {
    let counter = Arc::new(Counter::default());
    let (send, receive) = std::sync::mpsc::channel::<File>();
    let outside = Arc::clone(&counter);
    // Started before the filter is there, so that it never meets it.
    let counting = std::thread::Builder::new().name("sync counter".into()).spawn(move || {
        if let Ok(listener) = receive.recv() {
            supervise(&listener, &outside);
        }
    })?;
    let done = std::thread::scope(|scope| {
        let inside = std::thread::Builder::new().name("counted".into()).spawn_scoped(scope, || {
            let listener = install()?;
            // It waits for this, and a thread that waits is there.
            send.send(listener).map_err(|_| io::Error::other("the counting thread has ended"))?;
            Ok(work(&counter))
        })?;
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(send);
    // I3: not joined, for threads of the store may live on.
    drop(counting);
    done
}

/// What a stopped call is.
enum Call {
    Sync(usize),
    Ring,
    Harmless,
}

/// Calls that are stopped. The place of the first six in [`Counter::counts`].
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
        // SAFETY: asks for the flags of a number that may or may not be a descriptor; nothing else is touched.
        let flags = unsafe { libc::fcntl(call.args[0] as RawFd, libc::F_GETFL) };
        // O_SYNC holds the bit of O_DSYNC.
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

/// The kernel's name for the system calls of this processor.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// The filter: calls of the list wait for an answer, all others pass.
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
        // Calls of another architecture are not of this program: they have other numbers.
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

/// Puts the calling thread under the filter. What is returned hears of the calls.
fn install() -> io::Result<File> {
    if ARCHITECTURE == 0 {
        return Err(io::Error::other("not written for this processor"));
    }
    let mut program = program();
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: changes a flag of the calling thread: it can gain no privileges, which it does not want.
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
    // SAFETY: the kernel just made the descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor as RawFd) })
}

/// Counts calls and lets them go on, until no thread is left under the filter.
fn supervise(listener: &File, counter: &Counter) {
    let descriptor = listener.as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 {
            continue; // a signal
        }
        if poll.revents & libc::POLLIN == 0 {
            return;
        }
        // SAFETY: plain numbers, for which zeros are a value. The kernel wants them to be zero.
        let mut heard: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in a value of just that type.
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
        // SAFETY: the kernel reads a value of just that type. If it fails, the thread that would hear it is gone.
        unsafe { libc::ioctl(descriptor, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    fn temporary(name: &str) -> File {
        crate::scratch::file(&std::env::temp_dir(), name).unwrap()
    }

    #[test]
    fn known_syncs_are_counted_by_kind_and_plain_writes_are_not() {
        let file = temporary("syncs-kinds");
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
        let (inside, outside) = (temporary("syncs-inside"), temporary("syncs-outside"));
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
                        let file = temporary(&format!("syncs-work-{syncs}"));
                        counted(move |counter| {
                            (0..syncs).for_each(|_| file.sync_data().unwrap());
                            let count = counter.take().unwrap().fdatasync;
                            // It syncs when the work has ended.
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
