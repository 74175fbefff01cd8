//! A simulated machine with two files. Its power can be cut, and its calls can fail.
//!
//! Each file has the content that the process sees (`cache`), a state on disk (`durable`) and, for every sector of 512 bytes, the versions
//! written since the last sync. For each such sector, a power cut keeps one of these versions or the durable one. After the cut, a file
//! that grew since the last sync may have its old length again. A discarded range reads as zeros; the zeros are durable only after a sync.
//! A discarded range needs storage again before a write, and so does a range that lost its storage in a power cut. A failed sync writes
//! some of the sectors and marks the others clean, so no later sync writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::journal::storage::Storage;
use pmem::observed::Site;
use pmem::{Error, Result};

const SECTOR: usize = 512;
const PAGE: usize = 4096;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The data file.
    Data,
    /// The journal of the data file.
    Journal,
}

/// The failure of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any call: EIO without effect. A sync drops some sectors.
    Eio,
    /// A write or a growth: ENOSPC without effect.
    NoSpace,
    /// A write stores half of the bytes and returns that count. The caller continues after them.
    Short,
    /// A write stores half of the bytes and fails.
    ShortThenEio,
    /// A write stores nothing and returns 0.
    Nothing,
}

/// The unsynced sectors that survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// No sector.
    None,
    /// All of them, in their last version.
    All,
    /// A random version of each, by this seed.
    Random(u64),
}

#[derive(Clone, Debug, Default)]
struct SimFile {
    cache: Vec<u8>,
    durable: Vec<u8>,
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Pages without storage, in the view of the process and on the disk.
    holes: [BTreeSet<usize>; 2],
}

#[derive(Clone, Debug)]
struct State {
    files: [SimFile; 2],
    /// Number of writes, syncs and growths.
    changes: u64,
    /// Number of calls: the changes and the reads.
    calls: u64,
    /// The power is cut at this change.
    cut_at: Option<u64>,
    /// This call fails.
    fault_at: Option<(u64, Fault)>,
    /// Number of successful syncs.
    syncs: u64,
    faults: u64,
    /// Number of failed writes and syncs, a subset of `faults`.
    fatal: u64,
    off: bool,
    /// Syncs of this file make only its length durable.
    lies: Option<Which>,
    /// Syncs from this call site are left out.
    left_out: Option<Site>,
    /// Call sites of syncs.
    sync_sites: BTreeSet<Site>,
    /// Syncs are slow, so that threads overlap.
    slow: bool,
    rng: fastrand::Rng,
}

/// The machine. Clones share one state.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Mutex<State>>);

#[derive(Debug)]
struct Handle {
    machine: Machine,
    which: Which,
    path: PathBuf,
}

impl Machine {
    /// A machine with two empty files. `seed` determines the sectors that a failed sync keeps.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            files: Default::default(),
            changes: 0,
            calls: 0,
            cut_at: None,
            fault_at: None,
            syncs: 0,
            faults: 0,
            fatal: 0,
            off: false,
            lies: None,
            left_out: None,
            sync_sites: BTreeSet::new(),
            slow: false,
            rng: fastrand::Rng::with_seed(seed),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the power at this write, sync or growth. The first one is 1.
    pub fn cut_at(&self, change: u64) {
        self.state().cut_at = Some(change);
    }

    /// Injects a fault into this call. Reads count as calls.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.state().fault_at = Some((call, fault));
    }

    /// From now on, syncs of this file make only its length durable.
    pub fn lie_about_syncs_of(&self, which: Option<Which>) {
        self.state().lies = which;
    }

    /// From now on, syncs from this call site of the journal do nothing, even after a restart or a power cut.
    pub fn leave_out_syncs_at(&self, site: Option<Site>) {
        self.state().left_out = site;
    }

    /// The call sites of syncs.
    pub fn sync_sites(&self) -> BTreeSet<Site> {
        self.state().sync_sites.clone()
    }

    /// Makes syncs slow, so that threads overlap.
    pub fn make_slow(&self) {
        self.state().slow = true;
    }

    /// Number of writes, syncs and growths so far.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Number of writes, syncs, growths and reads so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Number of syncs of both files that returned success.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Number of calls with an injected fault.
    pub fn faults(&self) -> u64 {
        self.state().faults
    }

    /// Number of failed writes and syncs. After the first one the journal must refuse further writes.
    pub fn fatal(&self) -> u64 {
        self.state().fatal
    }

    /// True after a power cut.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// A storage handle to one of the files.
    pub fn storage(&self, which: Which) -> Box<dyn Storage> {
        let path = PathBuf::from(if which == Which::Data { "store" } else { "store.journal" });
        Box::new(Handle { machine: self.clone(), which, path })
    }

    /// The file as a process reads it.
    pub fn content(&self, which: Which) -> Vec<u8> {
        self.state().files[which as usize].cache.clone()
    }

    /// Flips bit 0 of the byte at `at`, on the disk and in the cache.
    pub fn damage(&self, which: Which, at: usize) {
        let file = &mut self.state().files[which as usize];
        file.cache[at] ^= 1;
        file.durable[at] ^= 1;
    }

    /// A machine whose files durably hold these bytes.
    pub fn with_files(data: Vec<u8>, journal: Vec<u8>) -> Self {
        let machine = Self::new(1);
        for (file, bytes) in machine.state().files.iter_mut().zip([data, journal]) {
            (file.cache, file.durable) = (bytes.clone(), bytes);
        }
        machine
    }

    /// The machine after the power has returned.
    pub fn after_power_cut(&self, survivors: Survivors) -> Self {
        let state = self.state();
        let mut rng = fastrand::Rng::with_seed(match survivors {
            Survivors::Random(seed) => seed,
            Survivors::None | Survivors::All => 0,
        });
        let [data, journal] = state.files.each_ref().map(|file| file.survive(survivors, &mut rng));
        let machine = Self::with_files(data, journal);
        for (file, before) in machine.state().files.iter_mut().zip(&state.files) {
            let holes = before.holes_in(&file.cache);
            file.holes = [holes.clone(), holes];
        }
        (machine.state().lies, machine.state().left_out) = (state.lies, state.left_out);
        machine
    }

    /// The machine after the process died. The page cache stays; unsynced sectors are still unsynced.
    pub fn after_restart(&self) -> Self {
        let mut state = self.state().clone();
        (state.changes, state.calls, state.faults, state.fatal, state.off) = (0, 0, 0, 0, false);
        (state.cut_at, state.fault_at) = (None, None);
        Self(Arc::new(Mutex::new(state)))
    }
}

impl SimFile {
    fn survive(&self, survivors: Survivors, rng: &mut fastrand::Rng) -> Vec<u8> {
        let longer = match survivors {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Random(_) => rng.bool(),
        };
        let mut bytes = self.durable.clone();
        if longer {
            bytes.resize(self.cache.len().max(bytes.len()), 0);
        }
        for (sector, versions) in &self.unsynced {
            let kept = match survivors {
                Survivors::None => 0,
                Survivors::All => versions.len(),
                Survivors::Random(_) => rng.usize(..=versions.len()),
            };
            let place = sector * SECTOR..(sector + 1) * SECTOR;
            if let (Some(version), Some(place)) = (kept.checked_sub(1), bytes.get_mut(place)) {
                place.copy_from_slice(&versions[version]);
            }
        }
        bytes
    }

    /// Pages of the surviving file that may have no storage.
    fn holes_in(&self, bytes: &[u8]) -> BTreeSet<usize> {
        let is_zero = |page: &usize| {
            bytes.chunks(PAGE).nth(*page).is_some_and(|page| page.iter().all(|byte| *byte == 0))
        };
        self.holes.iter().flatten().copied().filter(is_zero).collect()
    }

    fn discard(&mut self, from: usize, to: usize) {
        self.write(from, &vec![0; to - from]);
        self.holes[0].extend(from / PAGE..to / PAGE);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).div_ceil(PAGE).max(at / PAGE);
        assert_eq!(self.holes[0].range(at / PAGE..end).next(), None, "a write to a page without storage");
        assert!(at + bytes.len() <= self.cache.len(), "a write after the allocated end");
        self.cache[at..at + bytes.len()].copy_from_slice(bytes);
        for sector in at / SECTOR..(at + bytes.len()).div_ceil(SECTOR) {
            let version = self.cache[sector * SECTOR..(sector + 1) * SECTOR].try_into().unwrap();
            self.unsynced.entry(sector).or_default().push(version);
        }
    }

    /// Takes effect at once. A power cut before the new length is durable leaves the same as a power cut before this call, so it needs no
    /// case of its own.
    fn shorten(&mut self, to: usize) {
        self.cache.truncate(to);
        self.durable.truncate(to);
        self.unsynced.retain(|sector, _| sector * SECTOR < to);
    }

    fn sync(&mut self, mut keeps: impl FnMut() -> bool) {
        if keeps() {
            self.durable.resize(self.cache.len(), 0);
            self.holes[1] = self.holes[0].clone();
        }
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            let place = sector * SECTOR..(sector + 1) * SECTOR;
            if let Some(place) = self.durable.get_mut(place).filter(|_| keeps()) {
                place.copy_from_slice(versions.last().unwrap());
            }
        }
    }
}

impl Handle {
    fn error(&self, what: &'static str, code: i32) -> Error {
        let source = std::io::Error::from_raw_os_error(code);
        Error::Io { what, path: self.path.clone(), source }
    }

    /// Counts a call and returns its injected fault. Returns an error if the power is off. If the power is cut at this change, `state.off`
    /// is set.
    fn call(&self, state: &mut State, change: bool) -> Result<Option<Fault>> {
        if state.off {
            return Err(self.error("no power for", EIO));
        }
        state.calls += 1;
        state.changes += u64::from(change);
        state.off = change && state.cut_at == Some(state.changes);
        Ok(state.fault_at.filter(|(at, _)| *at == state.calls).map(|(_, fault)| fault))
    }
}

impl Storage for Handle {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        let mut state = self.machine.state();
        if let Some(Fault::Eio) = self.call(&mut state, false)? {
            state.faults += 1;
            return Err(self.error("cannot read", EIO));
        }
        let cache = &state.files[self.which as usize].cache;
        let from = cache.len().min(at as usize);
        let count = bytes.len().min(cache.len() - from);
        bytes[..count].copy_from_slice(&cache[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        let mut state = self.machine.state();
        let fault = self.call(&mut state, true)?;
        let taken = match fault {
            Some(Fault::Eio | Fault::NoSpace | Fault::Nothing) => 0,
            Some(Fault::Short | Fault::ShortThenEio) => bytes.len() / 2,
            None => bytes.len(),
        };
        state.files[self.which as usize].write(at as usize, &bytes[..taken]);
        state.faults += u64::from(fault.is_some());
        state.fatal += u64::from(fault.is_some_and(|fault| fault != Fault::Short));
        match fault {
            _ if state.off => Err(self.error("no power for", EIO)),
            Some(Fault::Eio | Fault::ShortThenEio) => Err(self.error("cannot write", EIO)),
            Some(Fault::NoSpace) => Err(self.error("cannot write", ENOSPC)),
            Some(Fault::Nothing | Fault::Short) | None => Ok(taken),
        }
    }

    fn sync_for(&self, site: Site) -> Result<()> {
        let mut state = self.machine.state();
        state.sync_sites.insert(site);
        if state.left_out != Some(site) {
            drop(state);
            return self.sync();
        }
        // A power cut is still possible here. Changes have the same numbers as without the mutant.
        self.call(&mut state, true)?;
        if state.off { Err(self.error("no power for", EIO)) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        if self.machine.state().slow {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        let mut state = self.machine.state();
        let fault = self.call(&mut state, true)?;
        if state.off {
            return Err(self.error("no power for", EIO));
        }
        let State { files, rng, lies, faults, fatal, .. } = &mut *state;
        let file = &mut files[self.which as usize];
        if fault == Some(Fault::Eio) {
            file.sync(|| rng.bool());
            (*faults, *fatal) = (*faults + 1, *fatal + 1);
            return Err(self.error("cannot sync", EIO));
        }
        if *lies == Some(self.which) {
            file.durable.resize(file.cache.len(), 0);
        } else {
            file.sync(|| true);
        }
        state.syncs += 1;
        Ok(())
    }

    fn allocate(&self, from: u64, to: u64) -> Result<()> {
        let mut state = self.machine.state();
        let fault = self.call(&mut state, true)?;
        assert_eq!(from, state.files[self.which as usize].cache.len() as u64, "growth begins at the end");
        match fault {
            Some(Fault::NoSpace) => {
                state.faults += 1;
                return Err(Error::NoSpace { path: self.path.clone(), bytes: to - from });
            }
            Some(Fault::Eio) => {
                state.faults += 1;
                return Err(self.error("cannot allocate space in", EIO));
            }
            _ => {}
        }
        state.files[self.which as usize].cache.resize(to as usize, 0);
        if state.off { Err(self.error("no power for", EIO)) } else { Ok(()) }
    }

    fn shorten(&self, to: u64) -> Result<()> {
        let mut state = self.machine.state();
        let fault = self.call(&mut state, true)?;
        if fault.is_some() {
            state.faults += 1;
            return Err(self.error("cannot truncate", EIO));
        }
        state.files[self.which as usize].shorten(to as usize);
        if state.off { Err(self.error("no power for", EIO)) } else { Ok(()) }
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        let mut state = self.machine.state();
        if let Some(Fault::Eio | Fault::NoSpace) = self.call(&mut state, true)? {
            state.faults += 1;
            return Err(self.error("cannot punch a hole in", EIO));
        }
        let file = &mut state.files[self.which as usize];
        // A page that is already a hole stays one.
        file.holes[0].retain(|page| !(from as usize / PAGE..to as usize / PAGE).contains(page));
        file.discard(from as usize, to as usize);
        if state.off { Err(self.error("no power for", EIO)) } else { Ok(()) }
    }

    fn fill_holes(&self, from: u64, to: u64) -> Result<()> {
        let mut state = self.machine.state();
        match self.call(&mut state, true)? {
            Some(Fault::NoSpace) => {
                state.faults += 1;
                return Err(Error::NoSpace { path: self.path.clone(), bytes: to - from });
            }
            Some(Fault::Eio) => {
                state.faults += 1;
                return Err(self.error("cannot allocate space in", EIO));
            }
            _ => {}
        }
        let filled = from as usize / PAGE..(to as usize).div_ceil(PAGE);
        state.files[self.which as usize].holes[0].retain(|page| !filled.contains(page));
        if state.off { Err(self.error("no power for", EIO)) } else { Ok(()) }
    }

    fn holes(&self) -> Result<Vec<(u64, u64)>> {
        let state = self.machine.state();
        let pages = state.files[self.which as usize].holes[0].iter().map(|page| (page * PAGE) as u64);
        Ok(pages.map(|at| (at, at + PAGE as u64)).collect())
    }

    fn len(&self) -> Result<u64> {
        let mut state = self.machine.state();
        if let Some(Fault::Eio) = self.call(&mut state, false)? {
            state.faults += 1;
            return Err(self.error("cannot inspect", EIO));
        }
        Ok(state.files[self.which as usize].cache.len() as u64)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
