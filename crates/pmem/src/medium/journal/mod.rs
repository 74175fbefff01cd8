//! Memory for ordinary files, safe against power cuts: one sync for each group of writes.
//!
//! Reads and stores go to a private image of the data file, at the speed of memory. Whatever was stored since the last commit
//! is the running *group*; [`Journal::commit`] appends the words that it changed to the journal, a preallocated file, and
//! syncs that. A group is durable as a whole or not at all, so `flush` and `fence` have nothing to do, and what is in the
//! image is at any time what a prefix of the stores made. The next group runs while one is on its way to the disk. A checkpoint
//! takes a full half of the journal home to the data file, beside the writer, who fills the other half meanwhile.
//!
//! * [`storage`]: the file calls as a trait, and what a failed one leads to.
//! * `header`: pages that pair the two files and say which laps are live. `group`: a group's bytes.
//! * `image`: the private image and what of it is not home yet. `laps`: space for groups. `home`: groups go home. `recover`: opening.
//! * `space`: the storage of free chunks.
//! * `copy`: the region as a file of its own, while writers go on.
//!
//! ```text
//! stores -> image, lines noted with what they held
//! commit -> journal: | header A | header B | half 0: group group group ... | half 1: group group ... | annex: large group |
//! checkpoint of a half -> data file: | page with the pair's id | the region's bytes |
//! ```
//!
//! Commit point of a group: its last sector to become durable. What a power cut can leave:
//!
//! | step passed | may be on the media | recovery |
//! |---|---|---|
//! | stored to the image | nothing of the group | the state of the group before |
//! | appended to the journal | any sectors of the group | that state, or the group's if all of it is there: made durable first |
//! | journal synced: acknowledged | all of the group | replayed |
//! | checkpoint (the table in `home`) | home lines, in part | replayed over them |
//! | a header synced | home lines, all | no longer live |
//!
//! Invariants:
//! * J1: a group is appended only after the sync of the one before succeeded. So a bad group that is followed by one that was
//!   begun is damage, and one that is not is the end.
//! * J2: every word stored to since the last commit is in the group, flushed or not. Words that hold again what they held
//!   before are left out.
//! * J3: the data file holds lines of durable groups only; a lap's groups stay in the journal until they are durable there and the
//!   header, durably, says so.
//! * J4: a page of the image is given up only while the data file holds the same bytes (M2), or what it holds was discarded (`space`):
//!   readers never see another change that no store made.
//! * J5: space for a group is made before it is closed, space for new bytes before they are shown. A group that is larger than a half
//!   goes into the annex, behind the halves, where one of both live laps may be: the next one waits until that lap is home, and the
//!   file gets its length back then. How full the running group is can be asked ([`Medium::group`](crate::Medium::group)).
//! * J6: a commit waits for a checkpoint only if both halves are full. Beside one it may wait for a turn at a sync (S1): for the
//!   one of the header; a growth, or a commit behind [`Medium::provide`](crate::Medium::provide) of a hole, for the data file's.
//! * J7: after a failed append, sync, home write or header write nothing more is written (S1, S2): commits are refused, reads
//!   go on. [`Journal::roll_back`] takes the refused groups out of the readers' sight; its caller keeps them out meanwhile.
//!   [`Journal::close`] ends writing the same way while it keeps commits out: no group is ever under a header that says there
//!   is none.
//! * J9: a lap is left only between two commits, so no group is on its way to a lap that goes home.
//! * J8: who waits for a half or a failure misses neither: both are told with `live` taken in between.
//!
//! Where this leaves the plan, and why: the data file has a page of its own before the region's bytes, for the pair's id. So
//! the region's format needs no word for it, and a data file without its journal is not taken for a whole store. Groups are
//! padded to sectors, and committed lines are read back from the journal for their way home, checksums verified, because the
//! image may already hold newer stores. A page costs 4 KiB of private memory from the first store to it until its laps are
//! home. A lap is left when it is full, or has lines in so many pages as its half has space for whole lines (some 57 bytes for each byte
//! of the half), or as a quarter of the memory's bound holds ([`Journal::bound_memory`]). A running group that has taken a quarter of
//! that bound is full, too. Twice the lap's, the group's, and the buffers of the one on its way: so all of it stays within the bound.

mod copy;
mod freed;
mod group;
mod header;
mod home;
mod image;
mod journaled;
mod laps;
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
