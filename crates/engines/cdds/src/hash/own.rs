//! The owner of a block. Recovery asks for the owner before it resolves the allocator's intents (the durable list of the blocks that the
//! newest operation allocates or frees).
//!
//! A node contains the number of its bucket, and a record contains its key. So recovery searches one chain for each block.

use index::Schema;
use pmem::alloc::{Class, Kind};
use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};

use super::bucket::{Chain, bucket_in};
use super::directory::Directory;
use super::table::Table;
use crate::node::Node;
use crate::version::View;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// True if the directory, a chain or an entry references the block.
    pub(crate) fn leads_to(&self, view: &View, class: Class, at: u64) -> Result<bool> {
        let medium = self.region.medium();
        let top = self.root.load(Ordering::Acquire);
        let directory = Directory::read(medium, top).ok_or(Error::Corrupt { what: "directory", at: top })?;
        match class.kind {
            Kind::Inner if at == top => Ok(true),
            Kind::Inner => {
                let index = Directory::index_in::<M>(medium, at);
                let index = index.filter(|index| *index < directory.segments());
                Ok(index.is_some_and(|index| medium.word(directory.segment_at(index)) == at))
            }
            Kind::Leaf => {
                let bucket = bucket_in(medium, Node(at)).filter(|bucket| *bucket < directory.buckets);
                let Some(bucket) = bucket else { return Ok(false) };
                Ok(self.chain(&directory, bucket)?.contains(&Node(at)))
            }
            Kind::Record => {
                let mut key = S::KeyBuf::default();
                if !S::key_of_block(medium, at, &mut key) {
                    return Ok(false);
                }
                let hash = self.hash(S::borrow(&key));
                let nodes = self.chain(&directory, directory.bucket_of(hash))?;
                let mut used = nodes.iter().flat_map(|node| node.used(medium, &self.shape, view));
                // An entry of another hash is a leftover of a split of this bucket.
                Ok(used.any(|(_, entry)| entry.payload == at && entry.key == hash))
            }
            Kind::Separator | Kind::Batch | Kind::Piece => Ok(false),
        }
    }

    /// The nodes of a bucket.
    pub(crate) fn chain(&self, directory: &Directory, bucket: u64) -> Result<Vec<Node>> {
        let medium = self.region.medium();
        Chain::new(medium, bucket, medium.word(self.slot_of(directory, bucket)?)).all()
    }
}
