//! A medium over ordinary files that survives a power failure, with one sync for each group of writes.
//!
//! Reads and stores go to a private image of the data file, at the speed of memory. The stores since the last commit are the
//! running *group*. [`Journal::commit`] appends the words that the group changed to the journal, a preallocated file, and syncs it.
//! A group is durable as a whole or not at all, so `flush` and `fence` do nothing. The image always holds the result of a prefix of
//! the stores. The next group runs while the previous one is written to the disk. A checkpoint writes a full half of the journal to
//! the data file, while the writer fills the other half.
//!
//! A *generation* (`generation` in the code) is one use of a half. To *checkpoint* a generation is to write its groups to the data file;
//! then it is *checkpointed*.
//!
//! * [`storage`]: the file calls as a trait, and the consequences of a failed call.
//! * `header`: the pages that pair the two files and say which generations are live. `group`: the bytes of a group.
//! * `image`: the private image and its changes that are not in the data file yet. `generations`: space for groups. `checkpoint`:
//!   checkpoints. `recover`: opening.
//! * `space`: the storage of free chunks.
//! * `copy`: the region as a file of its own, while writers go on.
//!
//! ```text
//! stores -> image; the old content of each changed line is saved
//! commit -> journal: | header A | header B | half 0: group group group ... | half 1: group group ... | annex: large group |
//! checkpoint of a half -> data file: | page with the pair's id | the region's bytes |
//! ```
//!
//! Invariants:
//! * J1: a group is appended only after the sync of the previous group succeeded. So a bad group followed by a begun group is
//!   damage. A bad group without a successor is the end of the journal.
//! * J2: every word stored to since the last commit is in the group, flushed or not. Words that have their old value again are left
//!   out.
//! * J3: the data file holds lines of durable groups only. The groups of a generation stay in the journal until they are durable in
//!   the data file and the header durably says so.
//! * J4: a page of the image is dropped only while the data file holds the same bytes (M2), or after its content was discarded
//!   (`space`). Readers see no other change that was not stored.
//! * J5: space for a group is made before the group is closed, and space for new bytes before they are visible. A group that is
//!   larger than a half goes to the annex, after the halves. The annex holds at most one group of both live generations. The next
//!   such group waits until that generation is checkpointed, and then the file gets its length back.
//!   [`Medium::group`](crate::Medium::group) tells how full the running group is.
//! * J6: a commit waits for a checkpoint only if both halves are full. During a checkpoint it may wait for its turn at a sync (S1):
//!   for the sync of the header. A growth, or a commit after [`Medium::provide`](crate::Medium::provide) of a hole, may wait for
//!   the sync of the data file.
//! * J7: after a failed append, sync, data file write or header write nothing more is written (S1, S2). Commits are refused and
//!   reads go on. [`Journal::roll_back`] removes the refused groups from the image; its caller keeps readers out meanwhile.
//!   [`Journal::close`] ends writing in the same way while it keeps commits out, so no group is ever under a header that says there
//!   is none.
//! * J8: a thread that waits for a full half or a failure misses neither, because both are signalled after `live` was locked.
//! * J9: the writer leaves a generation only between two commits, so no group is being written to a generation that is
//!   checkpointed.
//!
//! Commit point of a group: the last of its sectors that becomes durable. A power failure can leave:
//!
//! | step passed | may be on the media | recovery |
//! |---|---|---|
//! | stored to the image | nothing of the group | the state of the previous group |
//! | appended to the journal | any sectors of the group | the previous state; or the group, if complete: recovery makes it durable first |
//! | journal synced: acknowledged | all of the group | the group is replayed |
//! | checkpoint (the table in `checkpoint`) | some lines in the data file | replayed over them |
//! | a header synced | all lines in the data file | the groups are no longer live |
//!
//! Design decisions. The data file has a page of its own before the region's bytes, for the id of the pair. So the region's format
//! needs no word for it, and a data file without its journal is not mistaken for a complete store. Groups are padded to sectors. A
//! checkpoint reads committed lines back from the journal and verifies their checksums, because the image may already hold newer
//! stores.
//!
//! Memory. A page costs 4 KiB of private memory from the first store to it until its generations are checkpointed. A generation
//! ends when its half is full, or when it has lines in as many pages as its half has space for whole lines (some 57 bytes of memory
//! for each byte of the half), or in as many as fit into a quarter of the memory bound ([`Journal::bound_memory`]). A running group
//! that takes a quarter of that bound is full too. Two generations, the running group, and the buffers of the group that is being
//! written take a quarter each, so all of it stays within the bound.

mod checkpoint;
mod copy;
mod freed;
mod generations;
mod group;
mod header;
mod image;
mod journaled;
mod live;
mod recover;
mod sizes;
mod space;
pub mod storage;

pub use copy::{ORIGIN, adopt, copy_files, pair, view};
pub use header::is_journaled;
pub use journaled::Journal;
pub use recover::{Remains, Replay, capacity_of, look};
pub use sizes::{
    Activity, CAPACITY, CAPACITY_MAX, CAPACITY_MIN, Checkpoint, MEMORY_MIN, Options, memory_default,
};
