//! The writer's volatile state of the chunks that have a class and were read since open: their taken blocks, and the
//! lists of chunks with space. (Free chunks are in `supply`.) The time of a step does not depend on the number of
//! chunks.
//!
//! The chunks of a class that have space are in two stacks, the *dense* and the *sparse* chunks. One more chunk is *in use*: blocks
//! are taken from it until it is full. A chunk knows its position in its stack, so it is removed by a swap with the last one. Only
//! chunks of kind `Record` can be sparse: such a chunk is sparse if fewer than half of its blocks are taken. A dense chunk is used
//! before a sparse one, so that sparse chunks have time to become empty, by deletes or by moves ([`Space::next_to_move`]). The
//! *victim* is the sparse chunk whose records are being moved to other chunks of its class. A former victim with taken blocks is
//! dense until another of its blocks is freed.
//!
//! Invariants:
//! * S1: a chunk is in at most one of: in use, dense, sparse, victim. It is in none of them if and only if it is full.
//! * S2: `Stock::free` is the sum of the free blocks of a class's chunks, without the victim's.
//! * S3: no block is taken from the victim. Its free blocks stay free.

use rustc_hash::FxHashMap as HashMap;

use crate::heap::alloc::class::{Class, Kind};
use crate::heap::alloc::place::Place;

/// The role of a chunk for the next allocation of its class (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It has no free block.
    Full,
    InUse,
    /// Its position in the stack.
    Dense(usize),
    Sparse(usize),
    /// Its records are being moved.
    Victim,
}

/// Volatile state of one chunk.
#[derive(Debug)]
struct Chunk {
    class: Class,
    free: u64,
    blocks: u64,
    /// Offset of the first block from the chunk.
    first: u64,
    /// Allocated or reserved blocks, a superset of the durable bits.
    taken: Box<[u64]>,
    /// Word of `taken` to search next.
    hint: usize,
    role: Role,
}

/// A class's chunks with space.
#[derive(Debug, Default)]
struct Stock {
    in_use: Option<u64>,
    dense: Vec<u64>,
    sparse: Vec<u64>,
    /// Free blocks (S2).
    free: u64,
}

/// A chunk that is being emptied, and the next block to check.
#[derive(Debug)]
struct Victim {
    at: u64,
    next: u64,
}

/// The volatile state of all chunks that were read since open.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Chunks read since open, by offset.
    chunks: HashMap<u64, Chunk>,
    stocks: HashMap<Class, Stock>,
    /// Sparse chunks of all classes.
    sparse_count: u64,
    victim: Option<Victim>,
    live_bytes: u64,
}

/// The bits of taken blocks. Bits after the last block are set too, so they are never free.
pub(super) fn padded(mut taken: Box<[u64]>, blocks: u64) -> Box<[u64]> {
    if let (Some(last), 1..) = (taken.last_mut(), blocks % 64) {
        *last |= u64::MAX << (blocks % 64);
    }
    taken
}

impl Space {
    /// Bytes of taken blocks in the chunks read since open.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn knows(&self, at: u64) -> bool {
        self.chunks.contains_key(&at)
    }

    /// Adds a chunk that was read or opened. `taken` are its bits, [`padded`].
    pub fn add(&mut self, at: u64, class: Class, blocks: u64, taken: Box<[u64]>) {
        let free = taken.iter().map(|word| u64::from(word.count_zeros())).sum();
        self.live_bytes += (blocks - free) * class.block_bytes;
        self.stocks.entry(class).or_default().free += free;
        let first = class.first(blocks);
        self.chunks.insert(at, Chunk { class, free, blocks, first, taken, hint: 0, role: Role::Full });
        if free > 0 {
            self.list(at);
        }
    }

    /// The class's chunk in use. If there is none, the next of its chunks with space becomes the chunk in use.
    pub fn with_space(&mut self, class: Class) -> Option<u64> {
        let stock = self.stocks.get_mut(&class)?;
        if stock.in_use.is_some() {
            return stock.in_use;
        }
        let next = stock.dense.pop().or_else(|| {
            let sparse = stock.sparse.pop();
            self.sparse_count -= u64::from(sparse.is_some());
            sparse
        })?;
        stock.in_use = Some(next);
        self.chunk(next).role = Role::InUse;
        Some(next)
    }

    /// Makes a new chunk the chunk in use. The class has no other chunk with space.
    pub fn use_new(&mut self, at: u64) {
        self.unlist(at);
        let class = self.chunk(at).class;
        self.stocks.entry(class).or_default().in_use = Some(at);
        self.chunk(at).role = Role::InUse;
    }

    /// Takes a block of the class's chunk in use. Returns its offset and its place.
    pub fn take(&mut self, class: Class) -> Option<(u64, Place)> {
        let stock = self.stocks.get_mut(&class)?;
        let at = stock.in_use?;
        let chunk = self.chunks.get_mut(&at).expect("a chunk in use is known");
        let index = chunk.take();
        stock.free -= 1;
        if chunk.free == 0 {
            chunk.role = Role::Full;
            stock.in_use = None;
        }
        self.live_bytes += class.block_bytes;
        let block = at + chunk.first + index * class.block_bytes;
        Some((block, Place { chunk: at, class, index }))
    }

    /// Frees a block. Returns true if its chunk is empty and not in use: the caller closes it.
    pub fn release(&mut self, place: Place) -> bool {
        let chunk = self.chunks.get_mut(&place.chunk).expect("looked at before a block is released");
        let word = &mut chunk.taken[(place.index / 64) as usize];
        if *word & place.bit() != 0 {
            *word &= !place.bit();
            chunk.free += 1;
            self.live_bytes -= place.class.block_bytes;
            if chunk.role != Role::Victim {
                self.stocks.entry(place.class).or_default().free += 1; // S2
            }
        }
        let (role, is_empty, is_sparse) = (chunk.role, chunk.free == chunk.blocks, chunk.is_sparse());
        match role {
            Role::Full => self.list(place.chunk),
            Role::Dense(_) if is_sparse => {
                self.unlist(place.chunk);
                self.list(place.chunk);
            }
            _ => {}
        }
        is_empty && role != Role::InUse
    }

    /// True if no block of a chunk is taken.
    pub fn is_empty(&self, at: u64) -> bool {
        self.chunks.get(&at).is_some_and(|chunk| chunk.free == chunk.blocks)
    }

    /// Removes a chunk that no longer has a class. Returns its former class.
    pub fn remove(&mut self, at: u64) -> Option<Class> {
        if !self.knows(at) {
            return None;
        }
        self.unlist(at);
        let chunk = self.chunks.remove(&at)?;
        let stock = self.stocks.entry(chunk.class).or_default();
        match chunk.role {
            Role::InUse => stock.in_use = None,
            Role::Victim => self.victim = None,
            _ => {}
        }
        if chunk.role != Role::Victim {
            stock.free -= chunk.free;
        }
        self.live_bytes -= (chunk.blocks - chunk.free) * chunk.class.block_bytes;
        Some(chunk.class)
    }

    /// Free blocks of a class.
    pub fn free(&self, class: Class) -> u64 {
        self.stocks.get(&class).map_or(0, |stock| stock.free)
    }

    /// The next larger class of the same kind that has a chunk with space. None for nodes, which have one size.
    pub fn larger_with_space(&self, class: Class) -> Option<Class> {
        let larger = |other: &Class| {
            !class.kind.is_node() && other.kind == class.kind && other.block_bytes > class.block_bytes
        };
        let with_space = self.stocks.iter().filter(|(class, stock)| larger(class) && stock.free > 0);
        with_space.map(|(class, _)| *class).min_by_key(|class| class.block_bytes)
    }

    /// True if there are sparse chunks.
    pub fn has_sparse(&self) -> bool {
        self.sparse_count > 0
    }

    /// The victim, its class, and the index of its next taken block. A victim whose last block was checked stops being the
    /// victim, even if it still has taken blocks. `None` if there is no sparse chunk whose taken blocks fit into other chunks of
    /// its class.
    pub fn next_to_move(&mut self) -> Option<(u64, Class, u64)> {
        loop {
            let Some(Victim { at, next }) = self.victim else {
                self.choose_victim()?;
                continue;
            };
            let chunk = &self.chunks[&at];
            if let Some(index) = chunk.next_taken(next) {
                let class = chunk.class;
                self.victim = Some(Victim { at, next: index + 1 });
                return Some((at, class, index));
            }
            self.give_up_victim();
        }
    }

    /// Ends the victim's role: its free blocks may be taken again.
    fn give_up_victim(&mut self) {
        let Some(Victim { at, .. }) = self.victim.take() else { return };
        let chunk = self.chunk(at);
        let (class, free) = (chunk.class, chunk.free);
        let stock = self.stocks.entry(class).or_default();
        stock.free += free;
        stock.dense.push(at); // it becomes sparse again only when another of its blocks is freed
        let place = stock.dense.len() - 1;
        self.chunk(at).role = Role::Dense(place);
    }

    /// Chooses the victim. The candidates are the newest sparse chunk of each class, if its taken blocks fit into the other
    /// chunks of the class. The candidate with the lowest fraction of taken blocks becomes the victim.
    fn choose_victim(&mut self) -> Option<()> {
        let fits = |(_, stock): (&Class, &Stock)| {
            let at = *stock.sparse.last()?;
            let chunk = &self.chunks[&at];
            let live = chunk.blocks - chunk.free;
            (stock.free - chunk.free >= live).then_some((live * 1024 / chunk.blocks, at))
        };
        let (_, at) = self.stocks.iter().filter_map(fits).min()?;
        self.unlist(at);
        let chunk = self.chunk(at);
        chunk.role = Role::Victim;
        let (class, free) = (chunk.class, chunk.free);
        self.stocks.entry(class).or_default().free -= free;
        self.victim = Some(Victim { at, next: 0 });
        Some(())
    }

    fn chunk(&mut self, at: u64) -> &mut Chunk {
        self.chunks.get_mut(&at).expect("a listed chunk is known")
    }

    /// Puts a chunk with space into its stack.
    fn list(&mut self, at: u64) {
        let chunk = self.chunks.get_mut(&at).expect("a listed chunk is known");
        let stock = self.stocks.entry(chunk.class).or_default();
        let is_sparse = chunk.is_sparse();
        let stack = if is_sparse { &mut stock.sparse } else { &mut stock.dense };
        let place = stack.len();
        stack.push(at);
        chunk.role = if is_sparse { Role::Sparse(place) } else { Role::Dense(place) };
        self.sparse_count += u64::from(is_sparse);
    }

    /// Removes a chunk from its stack, if it is in one.
    fn unlist(&mut self, at: u64) {
        let chunk = self.chunks.get_mut(&at).expect("a listed chunk is known");
        let stock = self.stocks.entry(chunk.class).or_default();
        let (stack, place, is_sparse) = match chunk.role {
            Role::Dense(place) => (&mut stock.dense, place, false),
            Role::Sparse(place) => (&mut stock.sparse, place, true),
            Role::Full | Role::InUse | Role::Victim => return,
        };
        chunk.role = Role::Full;
        stack.swap_remove(place);
        let moved = stack.get(place).copied();
        self.sparse_count -= u64::from(is_sparse);
        if let Some(moved) = moved {
            self.chunk(moved).role = if is_sparse { Role::Sparse(place) } else { Role::Dense(place) };
        }
    }
}

impl Chunk {
    fn is_sparse(&self) -> bool {
        self.class.kind == Kind::Record && self.free * 2 > self.blocks
    }

    /// Takes a free block. Returns its index.
    fn take(&mut self) -> u64 {
        assert!(self.free > 0, "no space in a chunk of {:?}", self.class);
        loop {
            let word = &mut self.taken[self.hint];
            if *word != u64::MAX {
                let bit = word.trailing_ones();
                *word |= 1 << bit;
                self.free -= 1;
                return self.hint as u64 * 64 + u64::from(bit);
            }
            self.hint = (self.hint + 1) % self.taken.len();
        }
    }

    /// The first taken block from index `from` on.
    fn next_taken(&self, from: u64) -> Option<u64> {
        if from >= self.blocks {
            return None;
        }
        let first = (from / 64) as usize;
        let masked = |number: usize| {
            let word = self.taken[number];
            if number == first { word & u64::MAX << (from % 64) } else { word }
        };
        let number = (first..self.taken.len()).find(|number| masked(*number) != 0)?;
        let index = number as u64 * 64 + u64::from(masked(number).trailing_zeros());
        (index < self.blocks).then_some(index)
    }
}

#[cfg(test)]
impl Space {
    /// S1 and S2.
    pub fn assert_sound(&self) {
        let mut sparse = 0;
        for (class, stock) in &self.stocks {
            sparse += stock.sparse.len() as u64;
            let of_class = || self.chunks.iter().filter(|(_, chunk)| chunk.class == *class);
            let free = of_class().filter(|(_, chunk)| chunk.role != Role::Victim);
            assert_eq!(free.map(|(_, chunk)| chunk.free).sum::<u64>(), stock.free);
            for (at, chunk) in of_class() {
                let listed = match chunk.role {
                    Role::Full => chunk.free == 0,
                    Role::InUse => stock.in_use == Some(*at),
                    Role::Dense(place) => stock.dense[place] == *at && chunk.free > 0,
                    Role::Sparse(place) => stock.sparse[place] == *at && chunk.is_sparse(),
                    Role::Victim => self.victim.as_ref().is_some_and(|victim| victim.at == *at),
                };
                assert!(listed, "{chunk:?}");
            }
            let listed =
                of_class().filter(|(_, chunk)| matches!(chunk.role, Role::Dense(_) | Role::Sparse(_)));
            assert_eq!(listed.count(), stock.dense.len() + stock.sparse.len());
        }
        assert_eq!(sparse, self.sparse_count);
    }
}
