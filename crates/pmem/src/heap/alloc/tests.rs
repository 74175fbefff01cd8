//! Tests of the allocator over counted memory and over files: reads per allocation, the fate of free chunks, the choice of moved
//! blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::heap::alloc::place::{allocated, blocks_in, chunks};
use crate::heap::log::redo::Format;
use crate::heap::region::Geometry;
use crate::heap::region::{Identity, RegionOptions};
use crate::medium::counter::Counter;
use crate::medium::events::{Event, Observer};
use crate::medium::native::{Durability, Native};
use crate::medium::observed::{Memory, Observed};
use crate::system::{self, Verdict, Watch};

fn options(geometry: Geometry) -> RegionOptions {
    let identity = Identity { engine: "engine".into(), kind: "kind".into(), node_lines: 4 };
    RegionOptions { geometry, identity }
}

/// An allocator with its region and log. Each call is an operation.
struct Heap<M: Medium> {
    region: Region<M>,
    log: Log,
    allocator: Allocator,
}

impl<M: Medium> Heap<M> {
    fn new(region: Region<M>) -> Self {
        let log = Log::new(region.geometry(), Format::Redo);
        let allocator = Allocator::new(&region);
        Self { region, log, allocator }
    }

    fn create(medium: M, geometry: Geometry) -> Self {
        Self::new(Region::create(medium, &options(geometry), Durability::Process).unwrap())
    }

    fn end(&mut self) {
        self.allocator.flip(&self.region);
        self.allocator.finish(&self.region, &mut self.log);
    }

    fn take(&mut self, kind: Kind, bytes: u64) -> Result<u64> {
        match self.allocator.take(&self.region, &mut self.log, kind, bytes) {
            Ok(at) => {
                self.end();
                Ok(at)
            }
            Err(error) => {
                self.allocator.abort(&self.region, &mut self.log);
                Err(error)
            }
        }
    }

    fn give(&mut self, at: u64) {
        self.allocator.give(&self.region, at).unwrap();
        self.end();
    }

    /// Allocates as many records of this size as fill this many chunks.
    fn fill(&mut self, bytes: u64, chunks: u64) -> Vec<u64> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let blocks = Class::holding(Kind::Record, bytes, chunk_bytes).unwrap().blocks(chunk_bytes);
        (0..chunks * blocks).map(|_| self.take(Kind::Record, bytes).unwrap()).collect()
    }
}

/// Counts the chunk headers that are read.
struct Heads {
    geometry: Geometry,
    read: AtomicU64,
}

impl Observer for Heads {
    fn read(&self, line: u64) {
        let is_head = line
            .checked_sub(self.geometry.heap_at())
            .is_some_and(|at| at.is_multiple_of(self.geometry.chunk_bytes));
        self.read.fetch_add(u64::from(is_head), Ordering::Relaxed);
    }
    fn event(&self, _: Event) {}
}

/// Once, the first allocation after open read 1,024 headers.
#[test]
fn a_demand_after_open_reads_a_bounded_number_of_chunk_heads() {
    let geometry = Geometry::tiny();
    let heads = Arc::new(Heads { geometry, read: AtomicU64::new(0) });
    let memory = Memory::new(16 << 20, 0);
    let observed = || Observed::new(Arc::clone(&memory), Arc::clone(&heads) as Arc<dyn Observer>);
    let mut heap = Heap::create(observed(), geometry);
    heap.fill(900, 2_000);
    let (region, _) = Region::open(observed(), Path::new("memory")).unwrap();
    let mut heap = Heap::new(region);
    let mut most = 0;
    let len = heap.region.medium().len();
    for size in 0..300 {
        heads.read.store(0, Ordering::Relaxed);
        heap.take(Kind::Record, 100 + size % 3 * 800).unwrap();
        most = most.max(heads.read.load(Ordering::Relaxed));
    }
    println!("{most} heads read for one block");
    // The probe reads the class and the bits of each chunk. The allocation also reads the header of the block's own chunk.
    assert!(most <= 20, "{most} heads read for one block");
    // All headers are known before the region has grown by more than an eighth and one growth.
    assert!(heap.allocator.live_bytes(&heap.region).1 > 0);
    let grown = heap.region.medium().len() - len;
    assert!(grown <= len / 8 + len / 16, "{grown} bytes more than {len}");
}

/// Compares a heap with a model through random steps.
#[test]
fn no_block_is_handed_out_twice_and_no_chunk_is_in_two_stacks() {
    let mut rng = fastrand::Rng::with_seed(11);
    let memory = Memory::new(4 << 20, 0);
    let observed = || Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
    let mut heap = Heap::create(observed(), Geometry::tiny());
    let mut taken = BTreeMap::new();
    for step in 0..40_000_u64 {
        let grows = step / 2_000 % 2 == 0;
        if rng.u32(..10) < if grows { 7 } else { 2 } {
            let kind = [Kind::Record, Kind::Leaf, Kind::Separator][rng.usize(..3)];
            let bytes = if kind == Kind::Leaf { 256 } else { rng.u64(16..1000) };
            let at = heap.take(kind, bytes).unwrap();
            let class = allocated(&heap.region, at).unwrap();
            assert!(taken.insert(at, class).is_none(), "{at:#x} was handed out twice");
        } else if let Some(at) = rng.choice(taken.keys().copied().collect::<Vec<_>>()) {
            taken.remove(&at);
            heap.give(at);
        }
        if step % 1_000 == 0 {
            heap.allocator.space.assert_sound();
            if step % 10_000 == 5_000 {
                let (region, _) = Region::open(observed(), Path::new("memory")).unwrap();
                heap = Heap::new(region);
            }
        }
    }
    let durable: BTreeSet<u64> = chunks(&heap.region)
        .filter_map(|(at, class)| Some((at, class.unwrap()?)))
        .flat_map(|(at, class)| blocks_in(&heap.region, at, class).collect::<Vec<_>>())
        .collect();
    assert!(taken.keys().eq(&durable), "{} blocks taken, {} allocated", taken.len(), durable.len());
}

/// Records the calls on a file and fails those of one kind.
#[derive(Default)]
struct Calls {
    made: Mutex<Vec<system::Kind>>,
    failing: Mutex<Option<(system::Kind, i32)>>,
}

impl Watch for Calls {
    fn before(&self, kind: system::Kind, _: &Path, _: Option<&File>) -> Verdict {
        self.made.lock().unwrap().push(kind);
        match *self.failing.lock().unwrap() {
            Some((failing, code)) if failing == kind => Verdict::Fail(code),
            _ => Verdict::Go,
        }
    }
}

impl Calls {
    fn count(&self, kind: system::Kind) -> usize {
        self.made.lock().unwrap().iter().filter(|made| **made == kind).count()
    }
}

/// A directory in memory, if the system has `/dev/shm`, and another one.
fn folders() -> impl Iterator<Item = tempfile::TempDir> {
    [Some("/dev/shm"), None].into_iter().map(|memory| match memory {
        Some(memory) if Path::new(memory).is_dir() => tempfile::tempdir_in(memory).unwrap(),
        _ => tempfile::tempdir().unwrap(),
    })
}

fn mapped(path: &Path) -> Native {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    Native::map(file, path, 1 << 30, Durability::Process).unwrap()
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn free_chunks_go_back_to_the_file_system_and_are_used_again() {
    for folder in folders() {
        let path = folder.path().join("store");
        let geometry = Geometry::default();
        let mut heap = Heap::create(mapped(&path), geometry);
        let blocks = heap.fill(1000, 64);
        let full = file_bytes(&path);
        assert!(full >= 64 * geometry.chunk_bytes);
        blocks[1..].iter().for_each(|at| heap.give(*at));
        let empty = file_bytes(&path);
        println!("{}: {full} bytes full, {empty} after deletes", path.display());
        // The chunk of the first block, the one in use, those that are held, and those of one growth.
        assert!(empty <= full / 4, "{empty} of {full} bytes");
        assert_eq!(heap.region.medium().word(blocks[1]), 0);
        // A chunk that is a hole is stored to only after it was allocated.
        let again = heap.fill(2000, 32);
        again.iter().for_each(|at| heap.region.medium().copy(*at + 1992, *at));
        assert!(file_bytes(&path) >= 32 * geometry.chunk_bytes);
        again[16 * 128..].iter().for_each(|at| heap.give(*at));
        drop(heap);

        let before = file_bytes(&path);
        let (region, _) = Region::open(mapped(&path), &path).unwrap();
        let mut heap = Heap::new(region);
        assert!(file_bytes(&path) <= before + geometry.chunk_bytes, "opening filled holes");
        assert!(again[..16 * 128].iter().all(|at| heap.region.medium().word(*at + 1992) == *at));
        heap.fill(3000, 64).iter().for_each(|at| heap.region.medium().copy(*at + 2992, *at));
        assert!(again[..16 * 128].iter().all(|at| heap.region.medium().word(*at + 1992) == *at));
    }
}

#[test]
fn a_discarded_chunk_that_finds_a_full_disk_is_an_error_and_the_next_try_succeeds() {
    for folder in folders() {
        let path = folder.path().join("store");
        let calls = Arc::new(Calls::default());
        let _watching = system::watch(folder.path(), Arc::clone(&calls) as Arc<dyn Watch>);
        let mut heap = Heap::create(mapped(&path), Geometry::default());
        let blocks = heap.fill(1000, 40);
        blocks[1..].iter().for_each(|at| heap.give(*at));
        assert!(calls.count(system::Kind::Discard) > 20);
        *calls.failing.lock().unwrap() = Some((system::Kind::Allocate, libc::ENOSPC));
        let mut count = 0;
        let error = loop {
            match heap.take(Kind::Record, 2000) {
                Ok(at) => heap.region.medium().copy(at, 1),
                Err(error) => break error,
            }
            count += 1;
        };
        assert!(count > 0 && matches!(error, Error::NoSpace { .. }), "{error} after {count}");
        // A request for many blocks is refused before any is taken.
        let many = heap.allocator.prepare(&heap.region, &mut heap.log, [(Kind::Record, 2000, 1000)]);
        assert!(matches!(many, Err(Error::NoSpace { .. })));
        *calls.failing.lock().unwrap() = None;
        heap.fill(2000, 20).iter().for_each(|at| heap.region.medium().copy(*at, 1));
    }
}

#[test]
fn a_file_system_that_gives_no_blocks_back_keeps_them_and_is_asked_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let calls = Arc::new(Calls::default());
    *calls.failing.lock().unwrap() = Some((system::Kind::Discard, libc::EOPNOTSUPP));
    let _watching = system::watch(folder.path(), Arc::clone(&calls) as Arc<dyn Watch>);
    let mut heap = Heap::create(mapped(&path), Geometry::default());
    for _ in 0..3 {
        let blocks = heap.fill(1000, 16);
        blocks.iter().for_each(|at| heap.region.medium().copy(*at, *at));
        assert!(blocks.iter().all(|at| heap.region.medium().word(*at) == *at));
        blocks.iter().for_each(|at| heap.give(*at));
    }
    assert_eq!(calls.count(system::Kind::Discard), 1);
}

#[test]
fn a_steady_workload_neither_discards_nor_allocates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let calls = Arc::new(Calls::default());
    let _watching = system::watch(folder.path(), Arc::clone(&calls) as Arc<dyn Watch>);
    let mut heap = Heap::create(mapped(&path), Geometry::default());
    heap.fill(1000, 8);
    for round in 0..20 {
        if round == 2 {
            calls.made.lock().unwrap().clear();
        }
        let blocks = heap.fill(1000 + round % 2 * 1000, 2);
        blocks.iter().for_each(|at| heap.give(*at));
    }
    let made = std::mem::take(&mut *calls.made.lock().unwrap());
    assert!(made.is_empty(), "{made:?}");
}

/// A file copied without its zeros: its holes are in chunks that are in use.
#[test]
fn a_copy_with_holes_is_opened_and_stored_to() {
    for folder in folders() {
        let path = folder.path().join("store");
        let mut heap = Heap::create(mapped(&path), Geometry::default());
        let blocks = heap.fill(8000, 4);
        blocks.iter().step_by(2).for_each(|at| heap.region.medium().copy(*at, *at));
        let len = heap.region.medium().len();
        drop(heap);
        let content = std::fs::read(&path).unwrap();
        let copy = folder.path().join("copy");
        let file = File::create(&copy).unwrap();
        file.set_len(len).unwrap();
        for (number, page) in
            content.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0))
        {
            std::os::unix::fs::FileExt::write_all_at(&file, page, number as u64 * 4096).unwrap();
        }
        assert!(file_bytes(&copy) < len / 2);
        let (region, _) = Region::open(mapped(&copy), &copy).unwrap();
        let mut heap = Heap::new(region);
        for at in &blocks {
            (0..8000).step_by(8).for_each(|word| heap.region.medium().copy(at + word, 7));
        }
        heap.fill(500, 20).iter().for_each(|at| heap.region.medium().copy(*at, 7));
    }
}
