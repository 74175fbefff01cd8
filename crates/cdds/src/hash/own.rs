//! Who leads to a block: what recovery asks before it settles the allocator's intents.
//!
//! A node says which bucket it belongs to, a record which key it has; so one chain is looked through for each block.

use pmem::alloc::{self, Class, Kind};
use pmem::{Error, Medium, Result, record};
use tree::Schema;

use super::bucket::{Chain, bucket_in};
use super::directory::Directory;
use super::table::Table;
use crate::meta::META_BYTES;
use crate::node::Node;
use crate::version::View;

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// Settles the allocator's intents by asking the table.
    pub(crate) fn recover_blocks(&self) -> Result<()> {
        let view = self.view_at(self.version());
        let top = self.top.load(pmem::sync::Ordering::Acquire);
        let directory = Directory::read(self.region.medium(), top);
        if directory.is_none() && top != 0 {
            return Err(Error::Corrupt { what: "directory", at: top });
        }
        alloc::recover(
            &self.region,
            |class, at| match &directory {
                Some(directory) => self.owns(directory, &view, class, at),
                None => Ok(false),
            },
            |class, at| {
                if class.kind.has_pieces() { record::pieces(&self.region, at) } else { Vec::new() }
            },
        )
    }

    fn owns(&self, directory: &Directory, view: &View, class: Class, at: u64) -> Result<bool> {
        let medium = self.region.medium();
        match class.kind {
            Kind::Inner if at == self.meta_at() => Ok(class.block_bytes == META_BYTES),
            Kind::Inner if at == directory.top => Ok(true),
            Kind::Inner => {
                let index = Directory::index_in::<M>(medium, at);
                let index = index.filter(|index| *index < directory.segments());
                Ok(index.is_some_and(|index| medium.word(directory.segment_at(index)) == at))
            }
            Kind::Leaf => {
                let bucket = bucket_in(medium, Node(at)).filter(|bucket| *bucket < directory.buckets);
                let Some(bucket) = bucket else { return Ok(false) };
                Ok(self.chain(directory, bucket)?.contains(&Node(at)))
            }
            Kind::Record => {
                let mut key = S::KeyBuf::default();
                if !S::key_of_block(medium, at, &mut key) {
                    return Ok(false);
                }
                let hash = self.hash(S::borrow(&key));
                let nodes = self.chain(directory, directory.bucket_of(hash))?;
                let mut used = nodes.iter().flat_map(|node| node.used(medium, &self.shape, view));
                // One of another hash was left behind here when the bucket was split.
                Ok(used.any(|(_, entry)| entry.payload == at && entry.key == hash))
            }
            // Shares its record's fate, if the record lists it.
            Kind::Piece => {
                let record = medium.word(at);
                let class = alloc::class_of(&self.region, record).filter(|class| class.kind.has_pieces());
                let listed = class.is_some() && record::pieces(&self.region, record).contains(&at);
                match class {
                    Some(class) if listed && class.kind == Kind::Record => {
                        self.owns(directory, view, class, record)
                    }
                    _ => Ok(false),
                }
            }
            Kind::Separator | Kind::Batch => Ok(false),
        }
    }

    /// The nodes of a bucket.
    pub(crate) fn chain(&self, directory: &Directory, bucket: u64) -> Result<Vec<Node>> {
        let medium = self.region.medium();
        Chain::new(medium, bucket, medium.word(self.slot_of(directory, bucket)?)).all()
    }
}
