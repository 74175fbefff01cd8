//! A simulated disk in schedules. The scheduler may switch threads before and after each call that changes something. After some of these
//! calls the module records the state that a power cut would leave, and the execution goes on.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crash::{History, Machine, Survivors, Which};
use pmem::Result;
use pmem::journal::storage::Storage;

use crate::medium::Points;

/// Records the states after power cuts.
#[derive(Debug)]
pub struct Cuts {
    machine: Machine,
    points: Arc<Points>,
    history: Arc<History>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    random: fastrand::Rng,
    /// The moment of each cut, and the machine after it.
    cuts: Vec<(u64, Machine)>,
    /// Maximum number of cuts. 0 until cuts are allowed.
    most: usize,
}

impl Cuts {
    /// The recorder of a machine. Makes no cuts before [`Cuts::allow`].
    pub fn new(machine: &Machine, points: &Arc<Points>, history: &Arc<History>, seed: u64) -> Arc<Self> {
        let random = fastrand::Rng::with_seed(seed);
        Arc::new(Self {
            machine: machine.clone(),
            points: points.clone(),
            history: history.clone(),
            kept: Mutex::new(Kept { random, cuts: Vec::new(), most: 0 }),
        })
    }

    /// Sets the maximum number of cuts.
    pub fn allow(&self, most: usize) {
        self.kept.lock().unwrap().most = most;
    }

    /// The recorded cuts.
    pub fn take(&self) -> Vec<(u64, Machine)> {
        std::mem::take(&mut self.kept.lock().unwrap().cuts)
    }

    /// Records a power cut here, by a random choice.
    fn cut(&self) {
        let kept = &mut *self.kept.lock().unwrap();
        if kept.cuts.len() < kept.most && kept.random.u8(..6) == 0 {
            let survivors = match kept.random.u8(..4) {
                0 | 1 => Survivors::None,
                2 => Survivors::All,
                _ => Survivors::Random(kept.random.u64(..)),
            };
            kept.cuts.push((self.history.now(), self.machine.after_power_cut(survivors)));
        }
    }

    /// One of the machine's files.
    pub fn file(self: &Arc<Self>, which: Which) -> Box<dyn Storage> {
        Box::new(File { storage: self.machine.storage(which), cuts: self.clone() })
    }
}

/// A file whose changes are switch points. A power cut may be recorded after each of them.
#[derive(Debug)]
struct File {
    storage: Box<dyn Storage>,
    cuts: Arc<Cuts>,
}

impl File {
    fn change<T>(&self, call: impl FnOnce(&dyn Storage) -> T) -> T {
        self.cuts.points.pass();
        let done = call(&*self.storage);
        self.cuts.cut();
        self.cuts.points.pass();
        done
    }
}

impl Storage for File {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        self.storage.read_at(at, bytes)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        self.change(|storage| storage.write_at(at, bytes))
    }
    fn sync(&self) -> Result<()> {
        self.change(|storage| storage.sync())
    }
    fn allocate(&self, from: u64, to: u64) -> Result<()> {
        self.change(|storage| storage.allocate(from, to))
    }
    fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.change(|storage| storage.discard(from, to))
    }
    fn fill_holes(&self, from: u64, to: u64) -> Result<()> {
        self.change(|storage| storage.fill_holes(from, to))
    }
    fn holes(&self) -> Result<Vec<(u64, u64)>> {
        self.storage.holes()
    }
    fn len(&self) -> Result<u64> {
        self.storage.len()
    }
    fn path(&self) -> &Path {
        self.storage.path()
    }
}
