//! What the trees are driven by. Every workload names the transition that it is there for.

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use crash::{Step, Workload, interrupted, random, sequences};
use index::SchemaOf;
use pmem::Geometry;

use crate::subject::{Act, BULK_STEP, Op, Sampled, Sizes, TreeSubject};

/// A workload of a tree.
pub type Work<K, S, L, D> = Workload<TreeSubject<K, S, L, D>>;

/// A workload of any tree that has nodes of these sizes. (It is made without the tree's type, so that this is compiled once and not for each tree.)
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the tree.
    pub sizes: Sizes,
    /// Carried out first, without exploring.
    pub prepare: Vec<Op>,
    /// Explored.
    pub steps: Vec<Step<Op>>,
}

impl Plan {
    /// Of one tree.
    pub fn of<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(self) -> Work<K, S, L, D> {
        Work::<K, S, L, D> { config: self.sizes, prepare: self.prepare, steps: self.steps }
    }
}

/// Operations for nodes of one size.
pub struct Maker {
    /// Sizes of the tree.
    pub sizes: Sizes,
    /// Most entries of a leaf.
    pub entries: u32,
    /// Most separators of an inner node.
    pub separators: u32,
    /// Keys are words.
    pub plain: bool,
}

impl Maker {
    /// For nodes of so many lines.
    pub fn new<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(lines: u64) -> Self {
        let sizes = Sizes::new::<D>(lines);
        let (entries, separators) = (sizes.entries::<K, S, L>(), sizes.separators::<S, L>());
        Self { sizes, entries, separators, plain: S::PLAIN }
    }

    /// An operation; its continuation splits and merges.
    pub fn op(&self, act: Act, key: u32) -> Op {
        Op { act, key, burst: (self.entries / 2 + 2).min(8) as u8 }
    }

    fn puts(&self, keys: impl IntoIterator<Item = u32>) -> Vec<Op> {
        keys.into_iter().map(|key| self.op(Act::Put(key % 64), key)).collect()
    }

    fn deletes(&self, keys: impl IntoIterator<Item = u32>) -> Vec<Op> {
        keys.into_iter().map(|key| self.op(Act::Delete, key)).collect()
    }

    /// `leaves` leaves of `each` keys, one [`BULK_STEP`] apart; the first key is `BULK_STEP`.
    fn bulk(&self, leaves: u32, each: u32) -> Vec<Op> {
        let bulk = |i| self.op(Act::Bulk(each as u16), BULK_STEP + i * each * BULK_STEP);
        (0..leaves).map(bulk).collect()
    }

    /// All sequences of two operations, each step explored once: a first step that another sequence has in common is
    /// only carried out.
    pub fn pairs(&self, start: &[Op], keys: [u32; 5]) -> Vec<Plan> {
        let acts = [Act::Put(0x87), Act::Update(0x93), Act::Delete];
        let alphabet: Vec<Op> = keys.iter().flat_map(|key| acts.map(|act| self.op(act, *key))).collect();
        let pairs = sequences(&alphabet, 2).enumerate().map(|(number, pair)| {
            let known = usize::from(number % alphabet.len() != 0);
            let prepare = start.iter().chain(&pair[..known]).copied();
            whole(self.sizes, prepare.collect(), pair[known..].to_vec())
        });
        pairs.collect()
    }

    /// The empty tree.
    pub fn from_empty(&self) -> Vec<Plan> {
        self.pairs(&[], [100, 200, 300, 400, 500])
    }

    /// A leaf one short of full below a full root: the second insert splits both, and a level is added.
    pub fn from_full(&self) -> Vec<Plan> {
        let mut start = self.bulk(self.separators + 1, 1);
        let leaf = BULK_STEP * 3;
        start.extend(self.puts((1..self.entries - 1).map(|i| leaf + i)));
        self.pairs(&start, [leaf, leaf + 1, leaf + 80, leaf + 81, leaf + 90])
    }

    /// Two leaves below a root, one of them one short of underflow: deletes merge them and the root goes.
    pub fn from_low(&self) -> Vec<Plan> {
        let each = self.entries / 4 + 1;
        let mut start = self.bulk(2, each);
        start.push(self.op(Act::Delete, BULK_STEP));
        let step = BULK_STEP;
        let second = step * (1 + each);
        self.pairs(&start, [step * 2, step * 3, second, second + step, second + 1])
    }
}

/// Makes steps that all run to their ends.
pub fn whole(sizes: Sizes, prepare: Vec<Op>, ops: Vec<Op>) -> Plan {
    Plan { sizes, prepare, steps: ops.into_iter().map(Step::Run).collect() }
}

impl Maker {
    /// A random run over `keys` keys with values of all sizes up to `value_bytes`; now and then a kill, a close, a cut step.
    pub fn random(&self, seed: u64, count: usize, keys: u32, value_bytes: u32) -> Plan {
        let mut step = 0;
        let ops = random(seed, count, |rng| {
            step += 1;
            // The tree grows, is mixed, and shrinks.
            let deletes = [2, 5, 8][(step - 1) * 3 / count];
            let key = rng.u32(0..keys) * BULK_STEP;
            let large = value_bytes > 100 && rng.u32(..4) == 0;
            let value = rng.u32(0..16 * if large { value_bytes } else { 100.min(value_bytes) });
            match rng.u32(0..200) {
                0 => self.op(Act::Reopen, key),
                1..=3 => self.op(Act::Kill, key),
                4..=40 => self.op(Act::Update(value), key),
                _ if rng.u32(0..10) < deletes => self.op(Act::Delete, key),
                _ => self.op(Act::Put(value), key),
            }
        });
        Plan { sizes: self.sizes, prepare: Vec::new(), steps: interrupted(seed, 12, ops) }
    }

    /// Three levels: a starved inner node beside a full one takes half of its entries; later inner nodes join and the root
    /// goes. `mirrored`: the left one starves.
    pub fn levelling(&self, mirrored: bool) -> Plan {
        let each = (self.entries / 4).max(1);
        // One leaf more than a full root has splits it: all but one separator stay left.
        let leaves = if mirrored { 2 * self.separators + 1 } else { self.separators + 2 };
        let mut prepare = self.bulk(leaves, each);
        if !mirrored {
            // One more leaf below the left inner node fills it.
            let leaf = BULK_STEP * (1 + each);
            prepare.extend(self.puts((1..=self.entries - each + 1).map(|i| leaf + i)));
        }
        let all: Vec<u32> = (0..leaves * each).map(|i| BULK_STEP * (1 + i)).collect();
        let victims: Vec<u32> = if mirrored { all } else { all.into_iter().rev().collect() };
        whole(self.sizes, prepare, self.deletes(victims))
    }
}

/// A value of this many bytes.
fn bytes(length: u32) -> u32 {
    length * 16 + 5
}

impl Maker {
    /// The ring still names a record's block when its chunk, closed meanwhile, holds pieces of another record at the same
    /// address.
    pub fn reused_chunk(&self) -> Plan {
        let put = |key, length| self.op(Act::Put(bytes(length)), key);
        // Four records fill a chunk; the last keeps the third chunk in use, the others free two: one for the head of the
        // large record, one for its pieces.
        let prepare = (1..10).map(|key| put(key, 900)).collect();
        let mut ops = self.deletes(1..9);
        ops.extend([put(10, 2500), self.op(Act::Kill, 10), put(11, 1500), self.op(Act::Delete, 10)]);
        whole(self.sizes, prepare, ops)
    }

    /// Values replaced in place by smaller ones, without the log, until the chunk of the old ones is empty and closed.
    pub fn emptied_chunk(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk; the ninth alone is in the one that stays, for more of its size.
        let prepare = (1..10).map(|key| self.op(Act::Put(bytes(900)), key)).collect();
        // An empty log: its settling has fences that would stand for what closing a chunk needs itself.
        let mut ops = vec![alone(Act::Kill, 1)];
        ops.extend([9, 1, 2, 3, 4].map(|key| alone(Act::Update(bytes(600)), key)));
        whole(self.sizes, prepare, ops)
    }

    /// Two chunks that become empty in one write group, without the log: only the group's last fence stands before both closings.
    pub fn emptied_chunks(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk: 2, 6, 1, 3 the first, 10, 14, 9, 11 the second; that of 5 stays, for more of its size.
        let large = [2, 6, 1, 3, 10, 14, 9, 11, 5].map(|key| self.op(Act::Put(bytes(900)), key));
        // With these between them, 2, 6, 10 and 14 are in different leaves.
        let small = [4, 7, 8, 12, 13, 15, 16].map(|key| self.op(Act::Put(bytes(8)), key));
        // Two records are left in each chunk, which is not sparse then: no record moves. Nothing behind the kill is logged.
        let moved = [5, 1, 3, 9, 11].map(|key| alone(Act::Update(bytes(600)), key));
        let prepare = large.into_iter().chain(small).chain([alone(Act::Kill, 1)]).chain(moved).collect();
        whole(self.sizes, prepare, vec![alone(Act::Many(4, 4), 2)])
    }

    /// Eight chunks with one record each beside a ninth, then records of another size: behind each write records move together, the
    /// chunks that this frees are used, held and discarded, and discarded ones are used again.
    pub fn moved_records(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk.
        let prepare = (1..=36).map(|key| self.op(Act::Put(bytes(900)), key));
        let sparse = self.deletes((1..=32).filter(|key| key % 4 != 0));
        let smaller = [alone(Act::Put(bytes(600)), 3), alone(Act::Put(bytes(600)), 7), alone(Act::Kill, 1)];
        // Two fill a chunk.
        let larger = [40, 41, 42, 43, 44, 45, 46, 47].map(|key| alone(Act::Put(bytes(1800)), key));
        let ops = smaller.into_iter().chain(larger);
        whole(self.sizes, prepare.chain(sparse).collect(), ops.collect())
    }

    /// Large records written, replaced by larger and smaller ones, and deleted; the last has more pieces than are
    /// written between two fences.
    pub fn large(&self) -> Plan {
        let put = |key, length| self.op(Act::Put(bytes(length)), key);
        let ops = vec![
            put(1, 1100),
            put(1, 2000),
            put(1, 20),
            put(2, 1500),
            self.op(Act::Update(bytes(1100)), 2),
            self.op(Act::Delete, 1),
            self.op(Act::Delete, 2),
            put(3, 32_000),
            self.op(Act::Delete, 3),
        ];
        whole(self.sizes, Vec::new(), ops)
    }

    /// Bitmaps longer than a chunk header's line: a chunk of larger records, the first of them right behind that line, becomes
    /// one of the smallest blocks.
    pub fn long_bitmap(&self) -> Plan {
        let geometry = Geometry { chunk_bytes: 16 << 10, ..self.sizes.geometry };
        let sizes = Sizes { geometry, capacity: 512 << 10, ..self.sizes };
        let put = |key, length| self.op(Act::Put(bytes(length)), key);
        let prepare = (1..70).map(|key| put(key, 500)).chain(self.deletes(1..69)).collect();
        whole(sizes, prepare, vec![put(20, 0), put(21, 0), self.op(Act::Kill, 21)])
    }

    /// The other way round: an empty chunk of the smallest blocks, found by an open, becomes one of larger records, the first of
    /// them where the bitmap was.
    pub fn narrowed_chunk(&self) -> Plan {
        self.narrowed_by(&[500, 500])
    }

    /// The same with a record that ends in the line behind the header's, so that all images can be tried.
    pub fn narrowed_chunk_in_few_lines(&self) -> Plan {
        self.narrowed_by(&[60])
    }

    fn narrowed_by(&self, lengths: &[u32]) -> Plan {
        let geometry = Geometry { chunk_bytes: 16 << 10, ..self.sizes.geometry };
        let sizes = Sizes { geometry, capacity: 512 << 10, ..self.sizes };
        let alone = |act, key| Op { act, key, burst: 0 };
        let prepare = vec![alone(Act::Put(0), 1), alone(Act::Delete, 1)];
        let puts = lengths.iter().zip(2..).map(|(length, key)| alone(Act::Put(bytes(*length)), key));
        whole(sizes, prepare, std::iter::once(alone(Act::Kill, 1)).chain(puts).collect())
    }

    /// The same with a chunk that was closed, and a process that ended before its header was written back: the next one reads that
    /// it is free, and what is durable says otherwise.
    pub fn narrowed_chunk_of_another_process(&self) -> Plan {
        let geometry = Geometry { chunk_bytes: 16 << 10, ..self.sizes.geometry };
        let sizes = Sizes { geometry, capacity: 1 << 20, ..self.sizes };
        let alone = |act, key| Op { act, key, burst: 0 };
        // One more than fill a chunk; then all of them but one have moved out.
        let blocks = 511;
        let prepare = (1..=blocks + 1).map(|key| alone(Act::Put(0), key));
        let prepare = prepare.chain((2..=blocks).map(|key| alone(Act::Update(bytes(8)), key)));
        let prepare = prepare.collect();
        let last = blocks + 2;
        let ops = [alone(Act::Update(bytes(8)), 1), alone(Act::Kill, 1), alone(Act::Put(bytes(500)), last)];
        whole(sizes, prepare, ops.to_vec())
    }

    /// Three levels are cleared and freed a leaf behind each write, through a kill and a close; a second clear comes meanwhile and
    /// frees the rest first; an empty tree is cleared too.
    pub fn clears(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        let each = (self.entries / 2).max(1);
        let prepare = self.bulk(self.separators + 2, each);
        let clear = alone(Act::Clear, BULK_STEP);
        let mut ops = vec![clear];
        ops.extend([7, 8, 9].map(|key| alone(Act::Put(key), key)));
        ops.extend([alone(Act::Kill, 7), alone(Act::Delete, 8), alone(Act::Reopen, 7), clear]);
        ops.extend((7..9 + self.entries).map(|key| alone(Act::Put(key % 64), key)));
        ops.extend([clear, alone(Act::Put(5), 7), alone(Act::Delete, 7), alone(Act::Put(6), 9)]);
        ops.extend([clear, clear]);
        whole(self.sizes, prepare, ops)
    }

    /// A large value that the region has no space for, refused when some of its pieces have their bits already; then a
    /// small one that takes the block in which those pieces were listed.
    pub fn refused(&self) -> Plan {
        // A leaf, a small record, the large record's head, and 64 of its 66 pieces.
        let sizes = Sizes { capacity: self.sizes.geometry.heap_at() + 11 * 4096, ..self.sizes };
        let alone = |act, key| Op { act, key, burst: 0 };
        let ops = vec![
            alone(Act::Put(0x31), 1),
            // An empty log: its settling has fences that would stand for the refusal's own.
            alone(Act::Kill, 1),
            alone(Act::Refused(bytes(66 * 488 + 300)), 2),
            alone(Act::Put(bytes(900)), 3),
        ];
        whole(sizes, Vec::new(), ops)
    }

    /// Crash upon crash: half of the steps are cut short, so that recovery's own stores meet the next operation.
    pub fn cuts(&self, seed: u64, count: usize) -> Plan {
        let mut work = self.random(seed, count, 20, 8);
        work.steps = interrupted(seed, 2, work.steps.iter().map(|step| *step.op()));
        work
    }

    /// A region that is closed and opened again and again, cut short at random: the superblock's life.
    pub fn lives(&self, seed: u64, count: usize) -> Plan {
        let ops = (0..count as u32).map(|i| self.op(if i % 2 == 0 { Act::Put(i) } else { Act::Reopen }, i));
        Plan { sizes: self.sizes, prepare: Vec::new(), steps: interrupted(seed, 2, ops) }
    }

    /// Bulk loads behind each other: a root, and levels above it.
    pub fn bulk_loads(&self) -> Plan {
        let each = self.entries.min(6);
        let ops = self.bulk(self.entries.min(8) + 2, each);
        whole(self.sizes, Vec::new(), ops)
    }

    /// Many keys at once, in leaves of three: inserts and a delete of nothing; updates and deletes; two of a leaf, which cannot
    /// go together; leaves that get full and are split behind the write group.
    pub fn write_groups(&self) -> Plan {
        let many = |count, key| self.op(Act::Many(count, 3 * BULK_STEP), key);
        let mut ops = vec![many(3, BULK_STEP + 1), many(4, BULK_STEP), many(3, BULK_STEP * 2)];
        ops.extend((2..6).map(|i| many(3, BULK_STEP + i)));
        ops.push(self.op(Act::Kill, BULK_STEP));
        ops.push(many(3, BULK_STEP * 3));
        whole(self.sizes, self.bulk(4, 3.min(self.entries)), ops)
    }

    /// Batches: of a few keys in one leaf and in several, with updates, deletes and splits; crash upon crash in them, so that
    /// what finishes a batch is cut short too.
    pub fn batches(&self, seed: u64) -> Plan {
        let batch = |count, step, key| self.op(Act::Batch(count, step, bytes(42)), key);
        let mut ops = vec![
            batch(3, 3 * BULK_STEP, BULK_STEP + 1),
            batch(4, BULK_STEP, BULK_STEP),
            batch(2, 1, BULK_STEP * 2 + 1),
            self.op(Act::Kill, BULK_STEP),
        ];
        // Some leaves fill and split, others run low and join.
        ops.extend((2..5).map(|i| batch(5, BULK_STEP, BULK_STEP + i)));
        ops.push(batch(6, BULK_STEP, BULK_STEP * 2));
        let mut work = whole(self.sizes, self.bulk(3, 3.min(self.entries)), ops.clone());
        work.steps.extend(interrupted(seed, 2, ops));
        if !self.plain {
            // So long that it is written down in pieces.
            let long = |key| self.op(Act::Batch(3, BULK_STEP, bytes(500)), key);
            work.steps.extend(interrupted(seed, 2, [long(BULK_STEP), long(BULK_STEP * 2)]));
            work.steps.push(Step::Run(long(BULK_STEP + 7)));
        }
        work
    }

    /// The same in three leaves so full that their slot arrays cross into the next line (in nodes of 16 lines), until they split.
    pub fn full_groups(&self) -> Plan {
        let each = self.entries - 2;
        let ops = [BULK_STEP + 1, BULK_STEP * 3, BULK_STEP + 2, BULK_STEP + 3];
        let many = |key| self.op(Act::Many(3, each * BULK_STEP), key);
        whole(self.sizes, self.bulk(3, each), ops.map(many).to_vec())
    }

    /// A leaf so full that its slot array crosses into the next line (in nodes of 16 lines).
    pub fn full_slots(&self) -> Plan {
        let prepare = self.bulk(1, self.entries - 2);
        let step = BULK_STEP;
        let mut ops = self.puts([step + 1, step + 2, step + 3]);
        ops.extend(self.deletes([step * 3, step + 1, step * 4]));
        whole(self.sizes, prepare, ops)
    }
}
