//! A medium over ordinary files that survives a power failure, with one sync for each group of writes.
//!
//! Reads and stores go to a private image of the data file, at the speed of memory. The stores since the last commit are the running
//! *group*. [`Journal::commit`] appends the words that the group changed to the journal, a preallocated file, and syncs it. A group is
//! durable as a whole or not at all, so `flush` and `fence` do nothing. The stores reach the image in their order. While one group is being
//! written to the disk, the next group is already running. A checkpoint writes the groups of one half of the journal to the data file,
//! while the writer fills the other half.
//!
//! A *generation* is one use of a half. To *checkpoint* a generation is to write its groups to the data file; then it is *checkpointed*. A
//! generation is *live* until the header durably says that it is checkpointed. Recovery replays the live generations. At
//! most two generations are live.
//!
//! * [`storage`]: the file calls as a trait, and the consequences of a failed call.
//! * `header`: the pages that contain the id of the two files and the numbers of the live generations. `group`: the bytes of a group.
//! * `image`: the private image and its changes that are not in the data file yet. `generations`: space for groups. `checkpoint`:
//!   checkpoints. `recover`: opening.
//! * `space`: returns the storage of free chunks to the file system.
//! * `copy`: copies the region to a file of its own, while writers continue.
//!
//! ```text
//! stores -> image; the old content of each changed line is saved
//! commit -> journal: | header A | header B | half 0: group group group ... | half 1: group group ... | annex: large group |
//! checkpoint of a half -> data file: | page with the pair's id | the region's bytes |
//! ```
//!
//! Invariants:
//! * J1: a group is appended only after the sync of the previous group succeeded. So an incomplete group is damage if the header of a later
//!   group exists. Otherwise it is the end of the journal.
//! * J2: a group contains every word that was stored since the last commit, flushed or not, except words that have their old value again.
//! * J3: the data file contains lines of durable groups only. The groups of a generation stay in the journal until their lines are durable
//!   in the data file and the header durably says so.
//! * J4: a page of the image is dropped only while the data file has the same bytes (M2 of `image`), or after the page was discarded
//!   (`space`). Readers see only changes that a writer stored, with one exception: a discarded page may become zeros.
//! * J5: the journal reserves space for a group before it closes the group, and allocates new bytes of the data file
//!   before they are visible. A group that is larger than a half goes to the annex, after the halves. The annex
//!   contains at most one group. A second large group waits until the generation of the first one is checkpointed. The
//!   checkpoint of that generation cuts the annex off the file. [`Medium::group`](crate::Medium::group) returns the
//!   size of the running group and its limit.
//! * J6: a commit waits for the end of a checkpoint, or makes the checkpoint itself, only in two cases: the generation
//!   of the commit is full and the other one is not checkpointed yet, or the group needs the annex and the annex is in
//!   use (J5). During a checkpoint, a commit may also wait for the sync of the header, because syncs of a file go one
//!   at a time (S1 of `storage`). Two operations may wait for a sync of the data file: a growth of the file, and the
//!   first commit after [`Medium::provide`](crate::Medium::provide) allocated storage for a hole.
//! * J7: after a failed append, sync, data file write or header write, nothing more is written (S1, S2 of `storage`). The journal refuses
//!   commits; reads continue. [`Journal::roll_back`] removes the refused groups from the image; its caller keeps readers out meanwhile.
//!   [`Journal::close`] keeps commits out and writes a header with the state "closed". After that, as after a failure, nothing more is
//!   written. So no group follows such a header.
//! * J8: no wake-up is lost. A thread that waits until a half is full or the journal fails holds the mutex `live` from its check until it
//!   sleeps. The thread that signals locks `live` before it signals.
//! * J9: the writer changes to the next generation only between two commits. So no group is being written to a generation while it is
//!   checkpointed.
//!
//! Commit point of a group: the moment when the last of its sectors becomes durable. A power failure can leave:
//!
//! | step passed | may be on the media | recovery |
//! |---|---|---|
//! | stored to the image | nothing of the group | finds the state of the previous group |
//! | appended to the journal | any sectors of the group | finds the previous state, or makes a complete group durable and replays it |
//! | journal synced: acknowledged | all of the group | replays the group |
//! | checkpoint (the table in `checkpoint`) | all of the group, some lines in the data file | replays the group over them |
//! | a header synced | all lines in the data file | replays nothing: the generation is no longer live |
//!
//! Design decisions. The data file has one page before the region's bytes, for the id of the pair. So the region's format needs no word for
//! the id, and a data file without its journal is not mistaken for a complete store. Groups are padded to sectors. A checkpoint reads
//! committed lines back from the journal and verifies their checksums, because the image may already contain newer stores.
//!
//! Memory. A page costs 4 KiB of private memory from the first store to it on. It can be dropped when every generation with a line of it is
//! checkpointed, but is kept until newer pages take its place (M5 of `image`). A generation ends when its half is full. It ends earlier if
//! its pages take a fifth of the memory bound ([`Journal::bound_memory`]), or if the number of its pages reaches the number of lines that
//! fit into a half. (One bound then covers every generation: a group that fills a half may have only one line in each page.) A running
//! group is full at a fifth of that bound, too. Two generations, the running group, the buffers of the group that is being written, and the
//! pages that are kept take at most a fifth each. So their sum stays within the bound. A single operation that changes more may exceed it.

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
