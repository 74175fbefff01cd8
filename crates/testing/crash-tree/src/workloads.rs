//! The workloads of trees. The comment of each workload states the transition that it tests.

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use crash::{Step, Workload, interrupted, random, sequences};
use index::SchemaOf;
use pmem::Geometry;

use crate::subject::{Act, BULK_STEP, Op, Sampled, Sizes, TreeSubject};

/// A workload of a tree.
pub type Work<K, S, L, D> = Workload<TreeSubject<K, S, L, D>>;

/// A workload of any tree with nodes of these sizes. It does not depend on the tree's type, so it is compiled once, not once for each tree.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the tree.
    pub sizes: Sizes,
    /// Operations that run first, without exploration.
    pub prepare: Vec<Op>,
    /// Steps to explore.
    pub steps: Vec<Step<Op>>,
}

impl Plan {
    /// Converts the plan to a workload of one tree.
    pub fn of<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(self) -> Work<K, S, L, D> {
        Work::<K, S, L, D> { config: self.sizes, prepare: self.prepare, steps: self.steps }
    }
}

/// Makes operations for nodes of one size.
pub struct Maker {
    /// Sizes of the tree.
    pub sizes: Sizes,
    /// Maximum number of entries of a leaf.
    pub entries: u32,
    /// Maximum number of separators of an inner node.
    pub separators: u32,
    /// True if keys are words.
    pub plain: bool,
}

impl Maker {
    /// A maker for nodes of `lines` lines.
    pub fn new<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol>(lines: u64) -> Self {
        let sizes = Sizes::new::<D>(lines);
        let (entries, separators) = (sizes.entries::<K, S, L>(), sizes.separators::<S, L>());
        Self { sizes, entries, separators, plain: S::PLAIN }
    }

    /// An operation whose continuation splits and merges.
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

    /// Returns all sequences of two operations, with each step explored once. A first step that an earlier sequence shares runs without
    /// exploration.
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

    /// Starts from the empty tree.
    pub fn from_empty(&self) -> Vec<Plan> {
        self.pairs(&[], [100, 200, 300, 400, 500])
    }

    /// Starts from a leaf one entry below full, under a full root. The second insert splits both and adds a level.
    pub fn from_full(&self) -> Vec<Plan> {
        let mut start = self.bulk(self.separators + 1, 1);
        let leaf = BULK_STEP * 3;
        start.extend(self.puts((1..self.entries - 1).map(|i| leaf + i)));
        self.pairs(&start, [leaf, leaf + 1, leaf + 80, leaf + 81, leaf + 90])
    }

    /// Starts from two leaves under a root, one of them one entry above underflow. Deletes merge them and remove the root.
    pub fn from_low(&self) -> Vec<Plan> {
        let each = self.entries / 4 + 1;
        let mut start = self.bulk(2, each);
        start.push(self.op(Act::Delete, BULK_STEP));
        let step = BULK_STEP;
        let second = step * (1 + each);
        self.pairs(&start, [step * 2, step * 3, second, second + step, second + 1])
    }
}

/// Makes a plan whose steps all run to their end.
pub fn whole(sizes: Sizes, prepare: Vec<Op>, ops: Vec<Op>) -> Plan {
    Plan { sizes, prepare, steps: ops.into_iter().map(Step::Run).collect() }
}

impl Maker {
    /// A random run over `keys` keys with values of all sizes up to `value_bytes`, with occasional kills, closes and cut steps.
    pub fn random(&self, seed: u64, count: usize, keys: u32, value_bytes: u32) -> Plan {
        let mut step = 0;
        let ops = random(seed, count, |rng| {
            step += 1;
            // The tree grows, changes, and shrinks.
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

    /// Three levels. An inner node near underflow, beside a full one, takes half of the full node's entries. Later inner nodes merge, and
    /// the root is removed. `mirrored`: the left node is the one near underflow.
    pub fn levelling(&self, mirrored: bool) -> Plan {
        let each = (self.entries / 4).max(1);
        // One leaf more than a full root holds splits the root: all but one separator stay on the left.
        let leaves = if mirrored { 2 * self.separators + 1 } else { self.separators + 2 };
        let mut prepare = self.bulk(leaves, each);
        if !mirrored {
            // One more leaf under the left inner node fills it.
            let leaf = BULK_STEP * (1 + each);
            prepare.extend(self.puts((1..=self.entries - each + 1).map(|i| leaf + i)));
        }
        let all: Vec<u32> = (0..leaves * each).map(|i| BULK_STEP * (1 + i)).collect();
        let victims: Vec<u32> = if mirrored { all } else { all.into_iter().rev().collect() };
        whole(self.sizes, prepare, self.deletes(victims))
    }
}

/// The number of a value with this many bytes.
fn bytes(length: u32) -> u32 {
    length * 16 + 5
}

impl Maker {
    /// The intent ring still references a record's block after the block's chunk was closed and holds pieces of another record at the same
    /// address.
    pub fn reused_chunk(&self) -> Plan {
        let put = |key, length| self.op(Act::Put(bytes(length)), key);
        // Four records fill a chunk. The last record keeps the third chunk in use. The others free two chunks: one for the head of the
        // large record, one for its pieces.
        let prepare = (1..10).map(|key| put(key, 900)).collect();
        let mut ops = self.deletes(1..9);
        ops.extend([put(10, 2500), self.op(Act::Kill, 10), put(11, 1500), self.op(Act::Delete, 10)]);
        whole(self.sizes, prepare, ops)
    }

    /// Updates replace values in place by smaller ones, without the log, until the chunk of the old values is empty and is closed.
    pub fn emptied_chunk(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk. The ninth is alone in the chunk that stays for further records of its size.
        let prepare = (1..10).map(|key| self.op(Act::Put(bytes(900)), key)).collect();
        // The kill empties the log. Otherwise the fences of the log's truncation would replace those that closing a chunk needs itself.
        let mut ops = vec![alone(Act::Kill, 1)];
        ops.extend([9, 1, 2, 3, 4].map(|key| alone(Act::Update(bytes(600)), key)));
        whole(self.sizes, prepare, ops)
    }

    /// Two chunks become empty in one write group, without the log. Only the group's last fence precedes the closing of both.
    pub fn emptied_chunks(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk: 2, 6, 1, 3 the first, 10, 14, 9, 11 the second. The chunk of 5 stays for further records of its size.
        let large = [2, 6, 1, 3, 10, 14, 9, 11, 5].map(|key| self.op(Act::Put(bytes(900)), key));
        // These keys put 2, 6, 10 and 14 into different leaves.
        let small = [4, 7, 8, 12, 13, 15, 16].map(|key| self.op(Act::Put(bytes(8)), key));
        // Two records remain in each chunk, so it is not sparse and no record moves. No operation after the kill uses the log.
        let moved = [5, 1, 3, 9, 11].map(|key| alone(Act::Update(bytes(600)), key));
        let prepare = large.into_iter().chain(small).chain([alone(Act::Kill, 1)]).chain(moved).collect();
        whole(self.sizes, prepare, vec![alone(Act::Many(4, 4), 2)])
    }

    /// Eight chunks with one record each and a ninth chunk, then records of other sizes. After each write, records move together. The
    /// chunks that this frees are used, held and discarded, and discarded ones are used again.
    pub fn moved_records(&self) -> Plan {
        let alone = |act, key| Op { act, key, burst: 0 };
        // Four records fill a chunk.
        let prepare = (1..=36).map(|key| self.op(Act::Put(bytes(900)), key));
        let sparse = self.deletes((1..=32).filter(|key| key % 4 != 0));
        let smaller = [alone(Act::Put(bytes(600)), 3), alone(Act::Put(bytes(600)), 7), alone(Act::Kill, 1)];
        // Two records fill a chunk.
        let larger = [40, 41, 42, 43, 44, 45, 46, 47].map(|key| alone(Act::Put(bytes(1800)), key));
        let ops = smaller.into_iter().chain(larger);
        whole(self.sizes, prepare.chain(sparse).collect(), ops.collect())
    }

    /// Large records are written, replaced by larger and smaller ones, and deleted. The last one has more pieces than are written between
    /// two fences.
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

    /// A bitmap longer than a chunk header's line: a chunk of larger records, the first directly after that line, becomes a chunk of the
    /// smallest blocks.
    pub fn long_bitmap(&self) -> Plan {
        let geometry = Geometry { chunk_bytes: 16 << 10, ..self.sizes.geometry };
        let sizes = Sizes { geometry, capacity: 512 << 10, ..self.sizes };
        let put = |key, length| self.op(Act::Put(bytes(length)), key);
        let prepare = (1..70).map(|key| put(key, 500)).chain(self.deletes(1..69)).collect();
        whole(sizes, prepare, vec![put(20, 0), put(21, 0), self.op(Act::Kill, 21)])
    }

    /// The reverse: an empty chunk of the smallest blocks, read by an open, becomes a chunk of larger records. The first record overwrites
    /// the bitmap.
    pub fn narrowed_chunk(&self) -> Plan {
        self.narrowed_by(&[500, 500])
    }

    /// The same with a record that ends in the line after the header's line, so that all images can be tried.
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

    /// As `narrowed_chunk`, with a closed chunk, after a process that ended before it wrote the chunk's header back. The next process reads
    /// that the chunk is free, but the durable header differs.
    pub fn narrowed_chunk_of_another_process(&self) -> Plan {
        let geometry = Geometry { chunk_bytes: 16 << 10, ..self.sizes.geometry };
        let sizes = Sizes { geometry, capacity: 1 << 20, ..self.sizes };
        let alone = |act, key| Op { act, key, burst: 0 };
        // One block more than a chunk holds. Then all of the chunk's records except one move out.
        let blocks = 511;
        let prepare = (1..=blocks + 1).map(|key| alone(Act::Put(0), key));
        let prepare = prepare.chain((2..=blocks).map(|key| alone(Act::Update(bytes(8)), key)));
        let prepare = prepare.collect();
        let last = blocks + 2;
        let ops = [alone(Act::Update(bytes(8)), 1), alone(Act::Kill, 1), alone(Act::Put(bytes(500)), last)];
        whole(sizes, prepare, ops.to_vec())
    }

    /// Clears a tree of three levels. Each later write frees a leaf, across a kill and a close. A second clear first frees the rest of the
    /// first one. An empty tree is cleared, too.
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

    /// The region has no space for a large value. The write is refused after the bits of some of the value's pieces are set. A small value
    /// then takes the block that listed these pieces.
    pub fn refused(&self) -> Plan {
        // Space for a leaf, a small record, the large record's head, and 64 of its 66 pieces.
        let sizes = Sizes { capacity: self.sizes.geometry.heap_at() + 11 * 4096, ..self.sizes };
        let alone = |act, key| Op { act, key, burst: 0 };
        let ops = vec![
            alone(Act::Put(0x31), 1),
            // The kill empties the log. Otherwise the fences of the log's truncation would replace the refusal's own.
            alone(Act::Kill, 1),
            alone(Act::Refused(bytes(66 * 488 + 300)), 2),
            alone(Act::Put(bytes(900)), 3),
        ];
        whole(sizes, Vec::new(), ops)
    }

    /// Repeated crashes: half of the steps are cut, so that the next operation runs on the stores of recovery.
    pub fn cuts(&self, seed: u64, count: usize) -> Plan {
        let mut work = self.random(seed, count, 20, 8);
        work.steps = interrupted(seed, 2, work.steps.iter().map(|step| *step.op()));
        work
    }

    /// A region that is closed and opened repeatedly, with random cuts. Tests the superblock.
    pub fn lives(&self, seed: u64, count: usize) -> Plan {
        let ops = (0..count as u32).map(|i| self.op(if i % 2 == 0 { Act::Put(i) } else { Act::Reopen }, i));
        Plan { sizes: self.sizes, prepare: Vec::new(), steps: interrupted(seed, 2, ops) }
    }

    /// Consecutive bulk loads: a root, and levels above it.
    pub fn bulk_loads(&self) -> Plan {
        let each = self.entries.min(6);
        let ops = self.bulk(self.entries.min(8) + 2, each);
        whole(self.sizes, Vec::new(), ops)
    }

    /// Write groups over leaves of three keys: inserts and a delete of an absent key; updates and deletes; two writes to one leaf, which
    /// cannot share a group; leaves that fill up and split after the group.
    pub fn write_groups(&self) -> Plan {
        let many = |count, key| self.op(Act::Many(count, 3 * BULK_STEP), key);
        let mut ops = vec![many(3, BULK_STEP + 1), many(4, BULK_STEP), many(3, BULK_STEP * 2)];
        ops.extend((2..6).map(|i| many(3, BULK_STEP + i)));
        ops.push(self.op(Act::Kill, BULK_STEP));
        ops.push(many(3, BULK_STEP * 3));
        whole(self.sizes, self.bulk(4, 3.min(self.entries)), ops)
    }

    /// Batches of a few keys in one leaf and in several, with updates, deletes and splits. Repeated crashes also cut the recovery that
    /// completes a batch.
    pub fn batches(&self, seed: u64) -> Plan {
        let batch = |count, step, key| self.op(Act::Batch(count, step, bytes(42)), key);
        let mut ops = vec![
            batch(3, 3 * BULK_STEP, BULK_STEP + 1),
            batch(4, BULK_STEP, BULK_STEP),
            batch(2, 1, BULK_STEP * 2 + 1),
            self.op(Act::Kill, BULK_STEP),
        ];
        // Some leaves fill and split, others underflow and merge.
        ops.extend((2..5).map(|i| batch(5, BULK_STEP, BULK_STEP + i)));
        ops.push(batch(6, BULK_STEP, BULK_STEP * 2));
        let mut work = whole(self.sizes, self.bulk(3, 3.min(self.entries)), ops.clone());
        work.steps.extend(interrupted(seed, 2, ops));
        if !self.plain {
            // These batches are so long that the log stores them in pieces.
            let long = |key| self.op(Act::Batch(3, BULK_STEP, bytes(500)), key);
            work.steps.extend(interrupted(seed, 2, [long(BULK_STEP), long(BULK_STEP * 2)]));
            work.steps.push(Step::Run(long(BULK_STEP + 7)));
        }
        work
    }

    /// Write groups over three leaves whose slot arrays extend into the next line (in nodes of 16 lines), until they split.
    pub fn full_groups(&self) -> Plan {
        let each = self.entries - 2;
        let ops = [BULK_STEP + 1, BULK_STEP * 3, BULK_STEP + 2, BULK_STEP + 3];
        let many = |key| self.op(Act::Many(3, each * BULK_STEP), key);
        whole(self.sizes, self.bulk(3, each), ops.map(many).to_vec())
    }

    /// A leaf whose slot array extends into the next line (in nodes of 16 lines).
    pub fn full_slots(&self) -> Plan {
        let prepare = self.bulk(1, self.entries - 2);
        let step = BULK_STEP;
        let mut ops = self.puts([step + 1, step + 2, step + 3]);
        ops.extend(self.deletes([step * 3, step + 1, step * 4]));
        whole(self.sizes, prepare, ops)
    }
}
