//! Memory control groups: the bound of a store's memory, page cache included.
//!
//! Both versions of the interface are supported. With version 1, a group is made below the group of this process, or in the root of the
//! hierarchy `memory`. With version 2, a group with processes cannot have groups with limits below it. So the group is made below the
//! nearest ancestor that can give the controller `memory` to its children.
//!
//! A group is removed when its value is dropped. The name of a group has the number of the process that made it: [`Hierarchy::find`] also
//! removes the groups of processes that have ended.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::usage::field;

const PREFIX: &str = "bristlecone-flash-";
/// Number of times that the removal of a group is tried: its last process may still be ending.
const REMOVALS: usize = 200;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// Version of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Directory in which groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    parent: PathBuf,
}

/// A memory control group.
#[derive(Debug)]
pub struct Group {
    version: Version,
    path: PathBuf,
}

/// No group can be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot limit the memory of a store: {0}. Run as root, or with a delegated control group (systemd-run --user --scope -p Delegate=yes), or \
     give --unlimited-memory to run without the limit"
)]
pub struct Unlimited(String);

/// The directories in which a group may be possible, best first, from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn candidates(own: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let (mount, system): (Vec<_>, Vec<_>) = (mount.split(' ').collect(), system.split(' ').collect());
        let ([_, _, _, root, point, ..], [kind, _, options]) = (&mount[..], &system[..]) else { continue };
        let has_memory = options.split(',').any(|option| option == "memory");
        let (version, name) = match *kind {
            "cgroup" if has_memory => (Version::One, "memory"),
            "cgroup2" => (Version::Two, ""),
            _ => continue,
        };
        let of = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let is_it = parts.next()?.split(',').any(|controller| controller == name);
            is_it.then(|| parts.next().map(str::to_owned))?
        };
        let path = own.lines().find_map(of).unwrap_or_default();
        // A container sees a part of the hierarchy, and may or may not see paths from the root of that part.
        let below = Path::new(&path).strip_prefix(root).or_else(|_| Path::new(&path).strip_prefix("/"));
        let below = below.unwrap_or_else(|_| Path::new(""));
        for ancestor in below.ancestors() {
            found.push(Hierarchy { version, parent: Path::new(point).join(ancestor) });
        }
    }
    found
}

/// Writes a file of the kernel. It is never created.
fn set(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

impl Hierarchy {
    /// Finds a directory in which groups can be made. Removes groups of earlier runs there.
    ///
    /// # Errors
    /// If no group can be made.
    pub fn find() -> Result<Self, Unlimited> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let candidates = candidates(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        if candidates.is_empty() {
            return Err(Unlimited("no hierarchy of control groups is mounted".to_owned()));
        }
        let mut reasons = Vec::new();
        for candidate in candidates {
            candidate.sweep();
            match candidate.make("trial", 64 << 20) {
                Ok(_) => return Ok(candidate),
                Err(reason) => reasons.push(format!("{}: {reason}", candidate.parent.display())),
            }
        }
        Err(Unlimited(reasons.join("; ")))
    }

    /// Makes a group without processes.
    ///
    /// # Errors
    /// If the system refuses the group or the limit.
    pub fn make(&self, name: &str, limit_bytes: u64) -> io::Result<Group> {
        if self.version == Version::Two {
            // The error is ignored: without the controller, the file of the limit is missing.
            let _ = set(&self.parent.join("cgroup.subtree_control"), "+memory");
        }
        let path = self.parent.join(format!("{PREFIX}{}-{name}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let group = Group { version: self.version, path };
        let limit = limit_bytes.to_string();
        // Swap would be additional memory. A kernel without swap has no such limit, so that error is ignored.
        match self.version {
            Version::One => {
                set(&group.path.join("memory.limit_in_bytes"), &limit)?;
                let _ = set(&group.path.join("memory.memsw.limit_in_bytes"), &limit);
            }
            Version::Two => {
                set(&group.path.join("memory.max"), &limit)?;
                let _ = set(&group.path.join("memory.swap.max"), "0");
            }
        }
        Ok(group)
    }

    /// Removes the groups of processes that have ended.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.parent) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else { continue };
            if !Path::new("/proc").join(number.to_string()).exists() {
                // A group with processes cannot be removed. They end soon, because their input has ended; the next run tries again.
                let _ = fs::remove_dir(&path);
            }
        }
    }
}

impl Group {
    /// Moves a process into the group.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn add(&self, process: u32) -> io::Result<()> {
        set(&self.path.join("cgroup.procs"), &process.to_string())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap_or_default()
    }

    /// The most bytes that the group has used, page cache included. `None` if the kernel does not record it.
    pub fn peak_bytes(&self) -> Option<u64> {
        let name = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        self.read(name).trim().parse().ok()
    }

    /// Bytes of the group that belong to no file: heaps and stacks.
    pub fn anonymous_bytes(&self) -> Option<u64> {
        let name = match self.version {
            Version::One => "rss",
            Version::Two => "anon",
        };
        field(&self.read("memory.stat"), name)
    }

    /// Number of processes that the kernel killed because the group was full.
    pub fn kills(&self) -> u64 {
        let name = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        field(&self.read(name), "oom_kill").unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(REMOVAL_PAUSE);
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn places(own: &str, mounts: &str) -> Vec<(Version, String)> {
        let found = candidates(own, mounts);
        found.into_iter().map(|found| (found.version, found.parent.display().to_string())).collect()
    }

    #[test]
    fn version_1_is_found_in_its_own_hierarchy_first() {
        let found = places("8:pids:/\n4:memory:/a/b\n0::/\n", HYBRID);
        let of = |path: &str| (Version::One, path.to_owned());
        let memory = "/sys/fs/cgroup/memory";
        assert_eq!(
            found[..3],
            [of(&format!("{memory}/a/b")), of(&format!("{memory}/a")), of(&format!("{memory}/"))]
        );
        assert_eq!(found[3], (Version::Two, "/sys/fs/cgroup/unified/".to_owned()));
    }

    #[test]
    fn version_2_goes_up_from_the_own_group() {
        let mounts =
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        let found = places("0::/user.slice/user-1000.slice\n", mounts);
        let of = |path: &str| (Version::Two, format!("/sys/fs/cgroup/{path}"));
        assert_eq!(found, [of("user.slice/user-1000.slice"), of("user.slice"), of("")]);
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_hierarchy_starts_at_its_root() {
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(
            places("4:memory:/docker/abc\n", mounts),
            [(Version::One, "/sys/fs/cgroup/memory/".to_owned())]
        );
        assert_eq!(places("", "no mounts"), []);
    }

    #[test]
    fn without_a_group_the_error_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        for version in [Version::One, Version::Two] {
            // An ordinary directory has no file of the limit.
            let hierarchy = Hierarchy { version, parent: folder.path().to_owned() };
            let error = hierarchy.make("a", 1 << 20).unwrap_err();
            let text = Unlimited(error.to_string()).to_string();
            assert!(text.contains("--unlimited-memory") && text.contains("root"), "{text}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn groups_of_dead_processes_are_removed_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir(folder.path().join(name)).unwrap();
        let alive = format!("{PREFIX}{}-a", std::process::id());
        // Greater than every number of a process.
        [&format!("{PREFIX}4294967295-a"), &alive, "other"].into_iter().for_each(make);
        Hierarchy { version: Version::One, parent: folder.path().to_owned() }.sweep();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [alive.as_str(), "other"]);
    }

    #[test]
    fn a_group_of_this_system_is_removed_and_has_counts() {
        let hierarchy = match Hierarchy::find() {
            Ok(hierarchy) => hierarchy,
            // This system allows none.
            Err(error) => return assert!(error.to_string().contains("--unlimited-memory"), "{error}"),
        };
        let group = hierarchy.make("test", 1 << 30).unwrap();
        let mut process =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        group.add(process.id()).unwrap();
        assert_eq!(group.kills(), 0);
        assert!(group.anonymous_bytes().is_some());
        drop(process.stdin.take());
        process.wait().unwrap();
        let path = group.path.clone();
        drop(group);
        assert!(!path.exists());
    }
}
