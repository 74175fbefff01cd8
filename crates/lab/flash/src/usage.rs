//! The input, output and processor time of this process, as the kernel counts them.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval in which an idle process does next to nothing.
const IDLE: Duration = Duration::from_millis(100);
/// Clock ticks (10 ms) of processor time in that interval that still count as idle.
const IDLE_TICKS: u64 = 1;
/// Maximum time to wait until the process is idle.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The value of a line `name: value`, or `name value`, of a file of the kernel.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(':').unwrap_or(rest).strip_prefix(' ')?.trim().parse().ok()
    })
}

/// Bytes written to disks, from the text of `/proc/self/io`: pages that became dirty, and direct writes, of all threads of the process,
/// including threads that have ended. Pages of files that were removed before they were written back are subtracted.
fn written(text: &str) -> Option<i64> {
    let written = i64::try_from(field(text, "write_bytes")?).ok()?;
    Some(written - i64::try_from(field(text, "cancelled_write_bytes")?).ok()?)
}

/// Bytes that this process has caused to be written to disks.
///
/// # Errors
/// If the kernel does not count them.
pub fn written_bytes() -> io::Result<i64> {
    written(&fs::read_to_string("/proc/self/io")?)
        .ok_or_else(|| io::Error::other("no bytes in /proc/self/io"))
}

/// User and system time in clock ticks, from the text of `/proc/self/stat`. The name of the program, in parentheses, may contain spaces.
fn ticks(text: &str) -> Option<u64> {
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Waits until the threads of this process do no work, then until its files are on the disk. So the work of a cell does not disturb the
/// next store, and its bytes are counted in its own cell. Returns false if the threads still work after 10 s.
///
/// # Errors
/// If the kernel does not count, or cannot write.
pub fn quiesce(folder: &Path) -> io::Result<bool> {
    let now = || -> io::Result<(u64, i64)> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let ticks = ticks(&stat).ok_or_else(|| io::Error::other("no times in /proc/self/stat"))?;
        Ok((ticks, written_bytes()?))
    };
    let start = Instant::now();
    let mut before = now()?;
    let mut is_idle = false;
    while !is_idle && start.elapsed() < IDLE_WAIT_MAX {
        std::thread::sleep(IDLE);
        let after = now()?;
        is_idle = after.0 - before.0 <= IDLE_TICKS && after.1 == before.1;
        before = after;
    }
    rustix::fs::syncfs(File::open(folder)?)?;
    Ok(is_idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_texts_of_the_kernel() {
        let io = "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 12288\ncancelled_write_bytes: 4096\n";
        assert_eq!(written(io), Some(8192));
        assert_eq!(written("rchar: 1\n"), None);
        assert_eq!(field("low 0\noom 1\noom_kill 7\n", "oom_kill"), Some(7));
        assert_eq!(field("oom_kill 7\n", "oom"), None);
        let stat = "42 (a) b c) S 1 42 42 0 -1 4194304 100 0 0 0 77 5 0 0 20 0 3 0 1 2 3";
        assert_eq!(ticks(stat), Some(82));
        assert_eq!(ticks("42 (a"), None);
    }

    /// Set for the process whose bytes the test counts.
    const CHILD: &str = "BRISTLECONE_USAGE_CHILD";

    /// The kernel counts bytes of a process, and subtracts those of files that were removed early. So this test starts a process of its
    /// own: in this one, other tests remove their files meanwhile.
    #[test]
    fn the_kernel_counts_this_process() {
        if std::env::var_os(CHILD).is_none() {
            let name = "usage::tests::the_kernel_counts_this_process";
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
            let ended = command.output().unwrap();
            let text = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && text.contains("1 passed"), "{ended:?}");
            return;
        }
        // Not in the directory for temporary files: that is often a memory file system, whose writes the kernel does not count.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let before = written_bytes().unwrap();
        fs::write(folder.path().join("a"), vec![1; 1 << 20]).unwrap();
        quiesce(folder.path()).unwrap();
        let bytes = written_bytes().unwrap() - before;
        let is_in_memory = rustix::fs::statfs(folder.path()).unwrap().f_type == crate::TMPFS;
        assert!(bytes >= 1 << 20 || is_in_memory, "{bytes}");
    }
}
