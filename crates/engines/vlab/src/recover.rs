//! Opening: reads the list from its head, completes or undoes an interrupted change, and builds the directory.
//!
//! Every header is read. A split or merge sets the flag of a bucket (the last bit of its bitmap) while it runs, so a crash leaves at most
//! one flagged bucket. Recovery reads the entries of the flagged bucket only: it drops those at or above the next bucket's `min`, sets
//! `max`, and clears the flag. Afterwards recovery sets the allocation bit of each block that the newest operation allocated or freed,
//! according to whether the list references the block.
//!
//! With the option `faithful` there are two lists, which a combine merges ([`crate::combine`]). A combine that a crash interrupted is
//! completed or undone before the flag is handled.

use index::Schema;
use index::leaf_list::bound::bound;
use index::leaf_list::recover::is_leaf_block;
use index::sorting::sort_by_first;
use pmem::region::unchecked;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Found, Medium, Result, WORD};

use crate::braids::{Braids, Item};
use crate::bucket::{BIT_WORDS, Bucket, MAX, MIN, NXT, VNXT, slots};
use crate::directory::Directory;
use crate::index::{View, Vlab};
use crate::meta::Phase;
use crate::rewired::{Way, Why};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Reads the list, or both lists, and builds the view.
    ///
    /// # Errors
    /// `Corrupt` if this is not a list of buckets with ascending bounds.
    pub(crate) fn load(&self, found: Found) -> Result<()> {
        let medium = self.region.medium();
        let was_closed = matches!(found, Found::Clean { .. });
        let (head, (faithful, phase)) = (self.meta().head(medium)?, self.meta().mode(medium)?);
        let main = self.walk(head, if phase == Phase::Linked { VNXT } else { NXT })?;
        let second = match phase {
            Phase::Idle if faithful => self.walk(self.meta().second(medium)?, NXT)?,
            _ => Vec::new(),
        };
        let (Some((_, first)), true) = (main.first(), self.are_two(&main, &second)) else {
            return Err(Error::Corrupt { what: "head of the list", at: self.meta().0 });
        };
        if medium.word(first + MIN) != 0 || (was_closed && phase != Phase::Idle) {
            return Err(Error::Corrupt { what: "head of the list", at: *first });
        }
        if faithful {
            self.finish_combine(phase, &main, &second);
        }
        let mut all: Vec<(&S::KeyBuf, u64)> =
            main.iter().chain(&second).map(|(key, at)| (key, *at)).collect();
        sort_by_first(&mut all);
        let mut keys = 0;
        for (i, (_, at)) in all.iter().enumerate() {
            if Bucket(*at).is_flagged(medium) {
                if was_closed {
                    return Err(Error::Corrupt { what: "bucket of a store that was closed", at: *at });
                }
                self.settle_flag(Bucket(*at), all.get(i + 1));
            }
            keys += Bucket(*at).count(medium, &self.shape) as u64;
        }
        self.keys.store(keys, Ordering::Release);
        self.set_view(view_of::<S>(&main, &second));
        self.changes.add();
        Ok(())
    }

    /// `min` and address of each bucket of a list. `link` is the offset of its link word.
    fn walk(&self, head: u64, link: u64) -> Result<Vec<(S::KeyBuf, u64)>> {
        let mut buckets: Vec<(S::KeyBuf, u64)> = Vec::new();
        let mut next = head;
        while next != 0 {
            let (key, nxt) = self.read_header(Bucket(next), link)?;
            if buckets.last().is_some_and(|(last, _)| *last >= key) {
                return Err(Error::Corrupt { what: "order of buckets", at: next });
            }
            buckets.push((key, next));
            next = nxt;
        }
        Ok(buckets)
    }

    /// True if no bucket of the second list has the same bound as a bucket of the first list, and none is before the first list's first
    /// bucket.
    fn are_two(&self, main: &[(S::KeyBuf, u64)], second: &[(S::KeyBuf, u64)]) -> bool {
        let in_main = |key: &S::KeyBuf| main.binary_search_by(|(other, _)| other.cmp(key)).is_ok();
        !second.iter().any(|(key, _)| in_main(key))
            && second.first().zip(main.first()).is_none_or(|(second, main)| second.0 > main.0)
    }

    /// The lower bound of a bucket, and the next one's address.
    fn read_header(&self, bucket: Bucket, link: u64) -> Result<(S::KeyBuf, u64)> {
        let medium = self.region.medium();
        let corrupt = Error::Corrupt { what: "bucket", at: bucket.0 };
        let nxt = unchecked(medium.word(bucket.0 + link)).map(|nxt| nxt * WORD);
        let Some(nxt) = nxt.filter(|_| is_leaf_block(self, bucket.0)) else { return Err(corrupt) };
        Ok((bound::<M, S>(medium, medium.word(bucket.0 + MIN))?, nxt))
    }

    /// Completes or undoes a split or merge that a crash interrupted.
    fn settle_flag(&self, bucket: Bucket, next: Option<&(&S::KeyBuf, u64)>) {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let old = bucket.bits(medium, shape);
        let (mut new, mut max) = (old, 0);
        if let Some((upper, next)) = next {
            max = medium.word(next + MIN);
            let probe = S::probe(S::borrow(upper));
            for slot in slots(&old) {
                if S::compare(medium, bucket.slot_at(shape, slot), probe).is_ge() {
                    new[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        bucket.publish_changed(medium, &old, &new);
        medium.copy(bucket.0 + MAX, max);
        bucket.publish_bits(medium, BIT_WORDS - 1, new[BIT_WORDS - 1], false);
        bucket.flush_header(medium);
        medium.fence(Fence::Home);
    }
}

/// A view with `main` in the directory and `second` in braids. The lists have `min` and address of each bucket.
fn view_of<S: Schema>(main: &[(S::KeyBuf, u64)], second: &[(S::KeyBuf, u64)]) -> View<S> {
    let range = main.get(1).zip(main.last());
    let range = range.map(|((first, _), (last, _))| (S::borrow(first), S::borrow(last)));
    let mut directory = Directory::with_capacity::<S>(main.len(), range);
    main.iter().for_each(|(key, at)| directory.push::<S>(S::borrow(key), *at));
    let mut braids = Braids::default();
    let most = 2 * (main.len() + second.len()).max(2).ilog2() as usize;
    for (key, at) in second {
        directory.note_split::<S>(S::borrow(key));
        braids.insert(Item::new(key.clone(), *at), most);
    }
    View { directory: directory.into(), way: Way::Directory(Why::Making), braids }
}
