//! Full verification: directory, buckets, versions, records, and the ownership of every block.

use std::collections::{HashMap, HashSet};

use index::Report;
use index::Schema;
use pmem::alloc::Kind;
use pmem::{Medium, record};

use super::directory::Directory;
use super::table::{Hashed, Table};
use crate::node::{Entry, Node};
use crate::structure::Structure;
use crate::version::View;

struct Walk {
    report: Report,
    /// Blocks with their kinds.
    owned: HashMap<u64, Kind>,
    view: View,
    directory: Directory,
}

impl Walk {
    fn problem(&mut self, text: String) {
        self.report.problem(text);
    }

    /// Records the owner of a block. A block has one owner: no two entries reference one record, and no two buckets one node.
    fn own(&mut self, block: u64, kind: Kind) {
        if self.owned.insert(block, kind).is_some() {
            self.problem(format!("block {block:#x} is used as a {kind:?} and once more"));
        }
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    pub(crate) fn check_all_buckets(&self) -> Report {
        let writer = self.writer_side();
        let directory = match self.directory(&writer) {
            Ok(directory) => directory,
            Err(error) => return Report { problems: vec![error.to_string()], ..Report::default() },
        };
        let view = self.view_now(&writer);
        let mut walk = Walk { report: Report::default(), owned: HashMap::new(), view, directory };
        walk.own(self.meta_at(), Kind::Inner);
        walk.own(directory.top, Kind::Inner);
        let kept = self.meta.kept(self.region.medium());
        if kept != 0 {
            walk.own(kept, Kind::Batch);
            record::pieces(&self.region, kept).into_iter().for_each(|piece| walk.own(piece, Kind::Piece));
        }
        for index in 0..directory.segments() {
            let segment = self.region.medium().word(directory.segment_at(index));
            walk.own(segment, Kind::Inner);
            if Directory::index_in(self.region.medium(), segment) != Some(index) {
                walk.problem(format!("no segment {index} at {segment:#x}"));
            }
        }
        if walk.report.problems.is_empty() {
            (0..directory.buckets).for_each(|bucket| self.check_bucket(&mut walk, bucket));
        }
        if walk.report.problems.is_empty() && walk.report.keys != writer.state.keys {
            let text =
                format!("{} keys are in buckets, {} were counted", walk.report.keys, writer.state.keys);
            walk.problem(text);
        }
        let mut report = walk.report;
        report.check_blocks(&self.region, walk.owned.into_iter().collect());
        report
    }

    fn check_bucket(&self, walk: &mut Walk, bucket: u64) {
        let nodes = match self.chain(&walk.directory, bucket) {
            Ok(nodes) => nodes,
            Err(error) => return walk.problem(format!("bucket {bucket}: {error}")),
        };
        walk.report.nodes += nodes.len() as u64;
        walk.report.levels = walk.report.levels.max(nodes.len() as u64);
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for node in nodes {
            walk.own(node.0, Kind::Leaf);
            let used: Vec<(usize, Entry)> =
                node.used(self.region.medium(), &self.shape, &walk.view).collect();
            for (_, entry) in used {
                if walk.directory.bucket_of(self.hash_of(&entry)) == bucket {
                    self.check_entry(walk, node, &entry, &mut seen);
                }
            }
        }
    }

    fn check_entry(&self, walk: &mut Walk, node: Node, entry: &Entry, seen: &mut HashSet<Vec<u8>>) {
        let of_schema = Hashed::<S>::of_schema(entry);
        if entry.end != 0 && entry.end <= entry.start {
            walk.problem(format!("node {:#x}: versions of an entry are wrong", node.0));
        }
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        if !S::read_pair(self.region.medium(), &of_schema, &mut key, &mut value) {
            walk.problem(format!("node {:#x}: the record at {:#x} is damaged", node.0, entry.payload));
        } else if self.hash(S::borrow(&key)) != self.hash_of(entry) {
            walk.problem(format!("node {:#x}: an entry has not the hash of its key", node.0));
        }
        for block in S::blocks_of(&of_schema) {
            walk.own(block, Kind::Record);
            for piece in record::pieces(&self.region, block) {
                walk.own(piece, Kind::Piece);
            }
        }
        if walk.view.sees(entry.start, entry.end) {
            walk.report.keys += 1;
            if !seen.insert(S::key_bytes(S::borrow(&key)).as_ref().to_vec()) {
                walk.problem(format!("node {:#x}: a second entry of one key", node.0));
            }
        }
    }
}
