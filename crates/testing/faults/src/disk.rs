//! Power cuts of a directory: a model of the disk's contents, beside the real files.
//!
//! A [`Disk`] observes every system call on the files below its root. Before each call that changes something it reads the real names and
//! files, so it also sees stores through mappings. It records a [`Cut`]: the durable state and the changes that are not durable.
//!
//! Possible effects of a cut:
//!
//! | not durable | until | may survive as |
//! |---|---|---|
//! | a name that was created, removed or changed | a sync of its directory | any subset of the changes; a rename is one change |
//! | a sector of 512 bytes | a sync of its file | any version since the last sync, or the durable one |
//! | a length | a sync of its file | any between the shortest and the longest since the last sync |
//!
//! A file system may guarantee more (most keep the order of names). The store must not depend on it.
//!
//! Invariant: the contents of the root are durable when the [`Disk`] begins to observe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::system::{Kind, Verdict, Watch, Watching, watch};

use crate::mix;

const SECTOR: usize = 512;
/// Maximum number of name changes of which every subset is tried.
const NAMES_MAX: usize = 8;

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Directory,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Made(PathBuf, Node),
    Removed(PathBuf),
    Renamed(PathBuf, PathBuf, Node),
}

impl Change {
    fn dir(&self) -> &Path {
        let (Change::Made(name, _) | Change::Removed(name) | Change::Renamed(_, name, _)) = self;
        name.parent().unwrap_or(Path::new(""))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            Change::Made(name, node) => _ = names.insert(name.clone(), *node),
            Change::Removed(name) => _ = names.remove(name),
            Change::Renamed(from, to, node) => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
struct Bytes {
    durable: Arc<Vec<u8>>,
    newest: Arc<Vec<u8>>,
    /// Versions of sectors since the last sync, oldest first.
    versions: BTreeMap<usize, Vec<Arc<[u8; SECTOR]>>>,
    /// Minimum and maximum length since the last sync.
    lengths: (usize, usize),
}

/// The part of a file's unsynced bytes that survives.
#[derive(Clone, Copy, Debug)]
enum Kept {
    None,
    All,
    /// Sectors in the first part (in 256ths) of the file. The length is the maximum.
    Head(u64),
    Random(u64),
}

impl Bytes {
    fn is_durable(&self) -> bool {
        self.versions.is_empty() && self.lengths.0 == self.lengths.1
    }

    fn see(&mut self, now: Vec<u8>) {
        if now == *self.newest {
            return;
        }
        for sector in 0..now.len().div_ceil(SECTOR) {
            let version = sector_of(&now, sector);
            if version != sector_of(&self.newest, sector) {
                self.versions.entry(sector).or_default().push(Arc::new(version));
            }
        }
        self.lengths = (self.lengths.0.min(now.len()), self.lengths.1.max(now.len()));
        self.newest = Arc::new(now);
    }

    fn sync(&mut self) {
        self.durable = Arc::clone(&self.newest);
        self.versions.clear();
        self.lengths = (self.newest.len(), self.newest.len());
    }

    /// Syncs a range of bytes, but not the length.
    fn sync_range(&mut self, at: usize, bytes: usize) {
        let end = (at + bytes).min(self.durable.len()) / SECTOR;
        let durable = Arc::make_mut(&mut self.durable);
        for sector in at.div_ceil(SECTOR)..end {
            if self.versions.remove(&sector).is_some() {
                let version = sector_of(&self.newest, sector);
                durable[sector * SECTOR..][..SECTOR].copy_from_slice(&version);
            }
        }
    }

    fn survive(&self, kept: Kept) -> Vec<u8> {
        let (mut rng, share) = match kept {
            Kept::None => return self.durable.to_vec(),
            Kept::All => return self.newest.to_vec(),
            Kept::Head(share) => (fastrand::Rng::with_seed(0), Some(share as usize)),
            Kept::Random(seed) => (fastrand::Rng::with_seed(seed), None),
        };
        let (shortest, longest) = self.lengths;
        let mut bytes = self.durable.to_vec();
        bytes.resize(longest, 0);
        for (sector, versions) in &self.versions {
            let version = match share {
                Some(share) if sector * SECTOR * 256 < longest * share => versions.len(),
                Some(_) => 0,
                None => rng.usize(..=versions.len()),
            };
            let place = sector * SECTOR..((sector + 1) * SECTOR).min(longest);
            if let (Some(version), Some(place)) = (version.checked_sub(1), bytes.get_mut(place)) {
                place.copy_from_slice(&versions[version][..place.len()]);
            }
        }
        if share.is_none() {
            let choices = (longest - shortest) / SECTOR;
            bytes.truncate((shortest + rng.usize(..=choices) * SECTOR).min(longest));
        }
        bytes
    }
}

fn sector_of(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut copy = [0; SECTOR];
    let from = (sector * SECTOR).min(bytes.len());
    let to = (from + SECTOR).min(bytes.len());
    copy[..to - from].copy_from_slice(&bytes[from..to]);
    copy
}

#[derive(Clone, Debug, Default)]
struct State {
    durable_names: BTreeMap<PathBuf, Node>,
    names: BTreeMap<PathBuf, Node>,
    changes: Vec<Change>,
    files: BTreeMap<u64, Bytes>,
    /// Files in persistent memory.
    persistent: Vec<u64>,
    mark: u64,
}

/// The state before a call.
#[derive(Clone, Debug)]
pub struct Cut {
    state: State,
    /// The number of the call.
    pub number: u64,
    /// The call.
    pub kind: Kind,
}

/// Syncs that do nothing: an injected fault that a campaign must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Every sync works.
    None,
    /// Syncs of files do nothing.
    Files,
    /// Syncs of directories do nothing.
    Directories,
}

/// A model of a directory's disk. See the module's head.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    lie: Lie,
    /// A cut is recorded before one in this number of calls that write, and before every sync and every change of names.
    write_stride: u64,
    inner: Mutex<(State, Vec<Cut>, u64)>,
}

/// Counts the images of directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskImages {
    /// Number of power cuts.
    pub cuts: u64,
    /// Number of judged images.
    pub tried: u64,
    /// Number of images in which some changes of names survived and others did not.
    pub names_mixed: u64,
    /// Number of images in which a file has neither its synced nor its latest contents.
    pub files_torn: u64,
}

impl Disk {
    /// Observes the files below `root` until the returned [`Watching`] is dropped. Records a cut before one in `write_stride` calls that
    /// write, and before every sync and every change of names.
    pub fn below(root: &Path, write_stride: u64, lie: Lie) -> (Arc<Self>, Watching) {
        let disk = Self { root: root.to_owned(), lie, write_stride, inner: Mutex::default() };
        {
            let mut inner = disk.inner();
            let state = &mut inner.0;
            disk.see(state);
            state.changes.clear();
            state.durable_names = state.names.clone();
            state.files.values_mut().for_each(Bytes::sync);
        }
        let disk = Arc::new(disk);
        let watching = watch(root, Arc::clone(&disk) as Arc<dyn Watch>);
        (disk, watching)
    }

    fn inner(&self) -> MutexGuard<'_, (State, Vec<Cut>, u64)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the program's progress. Later cuts have this number ([`Cut::mark`]).
    pub fn mark(&self, mark: u64) {
        self.inner().0.mark = mark;
    }

    /// Marks the present files as persistent memory: stores to them are durable at once.
    pub fn is_persistent_memory(&self) {
        let state = &mut self.inner().0;
        state.persistent = state.files.keys().copied().collect();
    }

    /// Returns all cuts, and one more for the end of the program.
    pub fn cuts(&self) -> Vec<Cut> {
        let mut inner = self.inner();
        let (state, cuts, number) = &mut *inner;
        self.see(state);
        let mut cuts = cuts.clone();
        cuts.push(Cut { state: state.clone(), number: *number + 1, kind: Kind::Inspect });
        cuts
    }

    /// Reads names and files.
    fn see(&self, state: &mut State) {
        let mut found = BTreeMap::new();
        walk(&self.root, Path::new(""), &mut found);
        for (name, node) in &found {
            if state.names.get(name) == Some(node) {
                continue;
            }
            let old = state.names.iter().find(|(old, of)| *of == node && found.get(*old) != Some(node));
            state.changes.push(match (node, old) {
                (Node::File(_), Some((old, _))) => Change::Renamed(old.clone(), name.clone(), *node),
                _ => Change::Made(name.clone(), *node),
            });
        }
        for (name, node) in &state.names {
            let is_elsewhere = matches!(node, Node::File(_)) && found.values().any(|other| other == node);
            if !found.contains_key(name) && !is_elsewhere {
                state.changes.push(Change::Removed(name.clone()));
            }
        }
        for (name, node) in &found {
            if let Node::File(inode) = node
                && let Ok(bytes) = contents_of(&self.root.join(name), *inode)
            {
                let file = state.files.entry(*inode).or_default();
                file.see(bytes);
                if state.persistent.contains(inode) {
                    file.sync();
                }
            }
        }
        state.names = found;
    }
}

/// Reads a file. If another thread has renamed a file to this name since the names were read, the name refers to another file: its
/// contents are not those of this one.
fn contents_of(path: &Path, inode: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if file.metadata()?.ino() != inode {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn walk(root: &Path, inside: &Path, found: &mut BTreeMap<PathBuf, Node>) {
    let Ok(entries) = std::fs::read_dir(root.join(inside)) else { return };
    for entry in entries.flatten() {
        let name = inside.join(entry.file_name());
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            found.insert(name.clone(), Node::Directory);
            walk(root, &name, found);
        } else {
            found.insert(name, Node::File(about.ino()));
        }
    }
}

impl Watch for Disk {
    fn before(&self, kind: Kind, path: &Path, file: Option<&File>) -> Verdict {
        let is_write =
            matches!(kind, Kind::Write | Kind::SetLength | Kind::Allocate | Kind::SyncRange { .. });
        let changes_names = matches!(kind, Kind::Open | Kind::Rename | Kind::Remove | Kind::MakeDirectory);
        let is_sync = matches!(kind, Kind::Sync | Kind::SyncDirectory);
        if !is_write && !changes_names && !is_sync {
            return Verdict::Go;
        }
        let mut inner = self.inner();
        let (state, cuts, number) = &mut *inner;
        self.see(state);
        *number += 1;
        if !is_write || number.is_multiple_of(self.write_stride) {
            cuts.push(Cut { state: state.clone(), number: *number, kind });
        }
        let of_file = file.and_then(|file| Some(file.metadata().ok()?.ino()));
        let bytes = of_file.and_then(|inode| state.files.get_mut(&inode));
        match (kind, bytes) {
            (Kind::Sync | Kind::SyncRange { .. }, _) if self.lie == Lie::Files => {}
            (Kind::SyncDirectory, _) if self.lie == Lie::Directories => {}
            (Kind::Sync, Some(bytes)) => bytes.sync(),
            (Kind::SyncRange { at, bytes: count }, Some(bytes)) => {
                bytes.sync_range(at as usize, count as usize)
            }
            (Kind::SyncDirectory, _) => {
                let dir = path.strip_prefix(&self.root).unwrap_or(path);
                let (durable, rest) = std::mem::take(&mut state.changes)
                    .into_iter()
                    .partition::<Vec<_>, _>(|change| change.dir() == dir);
                durable.iter().for_each(|change| change.apply(&mut state.durable_names));
                state.changes = rest;
            }
            _ => {}
        }
        Verdict::Go
    }
}

impl Cut {
    /// The program's progress at the cut.
    pub fn mark(&self) -> u64 {
        self.state.mark
    }

    /// Names after the cut if these changes survive.
    fn names(&self, survives: impl Fn(usize) -> bool) -> BTreeMap<PathBuf, Node> {
        let mut names = self.state.durable_names.clone();
        let changes = self.state.changes.iter().enumerate();
        changes.filter(|(i, _)| survives(*i)).for_each(|(_, change)| change.apply(&mut names));
        // A name needs its directories.
        let is_there = |name: &Path| {
            name.ancestors()
                .skip(1)
                .all(|dir| dir.as_os_str().is_empty() || names.get(dir) == Some(&Node::Directory))
        };
        names.iter().filter(|(name, _)| is_there(name)).map(|(name, node)| (name.clone(), *node)).collect()
    }
}

impl DiskImages {
    /// Builds images of a cut, each as a directory in `scratch`, and passes each to `judge`. Use a different `seed` for each cut.
    ///
    /// # Errors
    /// The first error of `judge`, prefixed with the image's description.
    ///
    /// # Panics
    /// If an image's directory cannot be created or removed.
    pub fn each(
        &mut self,
        cut: &Cut,
        seed: u64,
        scratch: &Path,
        mut judge: impl FnMut(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        self.cuts += 1;
        let (count, mut rng) = (cut.state.changes.len(), fastrand::Rng::with_seed(seed));
        let subsets: Vec<u64> = match count {
            0..=NAMES_MAX => (0..1 << count).collect(),
            _ => {
                (0..1 << NAMES_MAX).map(|i| if i < 2 { 0_u64.wrapping_sub(i) } else { rng.u64(..) }).collect()
            }
        };
        let mut seen = Vec::new();
        for subset in subsets {
            let kept = |i: usize| subset & 1 << (i % 64) != 0;
            let names = cut.names(kept);
            if seen.contains(&names) {
                continue;
            }
            let mixed = (0..count).any(kept) && !(0..count).all(kept);
            let in_flight = names.values().any(|node| match node {
                Node::File(inode) => !cut.state.files[inode].is_durable(),
                Node::Directory => false,
            });
            let random = Kept::Random(mix(seed, subset));
            let all = [Kept::All, Kept::None, Kept::Head(1 + mix(seed, subset) % 255), random];
            for content in &all[..if in_flight { all.len() } else { 1 }] {
                self.tried += 1;
                self.names_mixed += u64::from(mixed);
                self.files_torn += u64::from(!matches!(content, Kept::All | Kept::None));
                let image = scratch.join("image");
                make(&image, &names, &cut.state.files, *content).expect("an image of a directory");
                let survived: Vec<_> =
                    cut.state.changes.iter().enumerate().filter(|(i, _)| kept(*i)).collect();
                judge(&image).map_err(|why| {
                    format!(
                        "before call {} ({:?}), mark {}, of {count} names {survived:?} and of the files {content:?} survive: {why}",
                        cut.number, cut.kind, cut.state.mark
                    )
                })?;
                std::fs::remove_dir_all(&image).expect("an image that can be removed");
            }
            seen.push(names);
        }
        Ok(())
    }

    /// Adds the counts of another part of a campaign.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.tried += other.tried;
        self.names_mixed += other.names_mixed;
        self.files_torn += other.files_torn;
    }
}

/// Creates the directory of an image.
fn make(
    image: &Path,
    names: &BTreeMap<PathBuf, Node>,
    files: &BTreeMap<u64, Bytes>,
    kept: Kept,
) -> std::io::Result<()> {
    std::fs::create_dir_all(image)?;
    for (name, node) in names {
        let path = image.join(name);
        let Node::File(inode) = node else {
            std::fs::create_dir_all(&path)?;
            continue;
        };
        let kept = if let Kept::Random(seed) = kept { Kept::Random(mix(seed, *inode)) } else { kept };
        let bytes = files[inode].survive(kept);
        let file = File::create(&path)?;
        file.set_len(bytes.len() as u64)?;
        for (i, page) in bytes.chunks(4096).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                file.write_all_at(page, i as u64 * 4096)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pmem::system;

    use super::*;

    /// Writes a file under a temporary name and renames it. Syncs the file and the directory as requested.
    fn images_of(synced: bool, directory_synced: bool) -> (DiskImages, BTreeSet<String>) {
        let (root, scratch) = (dir("root"), dir("scratch"));
        let (new, name) = (root.join("new"), root.join("name"));
        std::fs::write(&name, b"old").unwrap();
        let (disk, watching) = Disk::below(&root, 1, Lie::None);
        let file = system::open(File::options().write(true).create(true).truncate(false), &new).unwrap();
        system::write_all_at(&file, &new, 0, b"whole").unwrap();
        if synced {
            system::sync_all(&file, &new).unwrap();
        }
        system::rename(&new, &name).unwrap();
        if directory_synced {
            system::sync_dir(&root).unwrap();
        }
        drop(watching);
        let (mut images, mut found) = (DiskImages::default(), BTreeSet::new());
        let cuts = disk.cuts();
        let last = &cuts[cuts.len() - 1];
        let judge = |image: &Path| {
            found.insert(std::fs::read_to_string(image.join("name")).unwrap());
            Ok(())
        };
        images.each(last, 1, &scratch, judge).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        std::fs::remove_dir_all(&scratch).unwrap();
        (images, found)
    }

    fn dir(name: &str) -> PathBuf {
        let unique =
            format!("bristlecone-disk-{name}-{}-{:?}", std::process::id(), std::thread::current().id());
        let dir = std::env::temp_dir().join(unique.replace(['(', ')'], ""));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_rename_survives_alone_if_its_directory_is_synced_and_its_bytes_if_the_file_was() {
        let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(images_of(true, true).1, set(&["whole"]));
        assert_eq!(images_of(true, false).1, set(&["old", "whole"]));
        let (images, found) = images_of(false, false);
        assert!(found.contains("old") && found.contains("whole") && found.contains(""), "{found:?}");
        assert!(images.names_mixed > 0 && images.files_torn > 0);
        assert!(!images_of(false, true).1.contains("old"));
    }

    /// As if another thread renamed a file between the reads of the names and of the contents.
    #[test]
    fn a_file_does_not_get_the_contents_of_one_that_took_its_name() {
        let root = dir("renamed");
        let (new, name) = (root.join("new"), root.join("name"));
        std::fs::write(&name, b"old").unwrap();
        std::fs::write(&new, b"new").unwrap();
        let [old_inode, new_inode] = [&name, &new].map(|path| std::fs::metadata(path).unwrap().ino());
        std::fs::rename(&new, &name).unwrap();
        assert!(contents_of(&name, old_inode).is_err());
        assert_eq!(contents_of(&name, new_inode).unwrap(), b"new");
        std::fs::remove_dir_all(root).unwrap();
    }
}
