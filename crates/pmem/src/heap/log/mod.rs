//! The logs of [wB+ §3.1]: redo-only (figure 6) and undo-redo (figure 5), with the details that the figures leave out.
//!
//! A *generation* is one use of the log between two truncations. The *data words* of a record are the words that it changes.
//!
//! A line of the log has slots for records. Each record is inside one line:
//!
//! | format | slots | a record |
//! |---|---|---|
//! | [`Format::Redo`] | 4 of two words | tag, new word |
//! | [`Format::UndoRedo`] | 2 of three words, 1 of two | tag, new word, old word; or tag, new word |
//!
//! The words are copied first and the tag is published after them, so a record whose tag has the current generation is complete.
//! Tags are at fixed words of a line, whatever records an older generation had there, so no value is ever taken for a tag. The tag:
//!
//! ```text
//! bit 0..39  data word (offset / 8)   39  has the old word   40..52  generation   52..63  records of the commit   63  commit mark
//! ```
//!
//! Invariants:
//! * L1: while a commit is not truncated, its data words change only through the log (`touches` tells; callers truncate first).
//! * L2: a generation's tag is used again only after all records were wiped, so no stale record has the current generation. A wipe
//!   that a crash interrupted is done again by recovery.
//! * L3: a generation that held any record at a crash is never written again.
//!
//! A redo-only commit is `n` records. The last one is marked and contains their count ([`Log::commit`]):
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | records written, flushed | any of them | incomplete count: ignored |
//! | fence (commit point: the last record of the commit to become durable) | all of them | replayed |
//! | data words written, flushed | any of them | replayed over them |
//! | truncation: fence, generation word published, fence | all of them | next generation is empty |
//!
//! An undo-redo commit ([`Log::commit_undo_redo`]) writes unused data words at once, their records with one fence, and each word in
//! use only after the fence of its own record:
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | `NewRedo` of unused words | any records, any of the words | ignored: the words have no meaning |
//! | `CommitNewRedo`: flush, fence | all those records | ignored |
//! | `WriteUndoRedo`, each but the last: record, flush, fence, data word | records so far, words so far | old words put back, last first |
//! | the last: record with the commit mark, flush, fence | all records | replayed |

mod data_words;
pub(crate) mod redo;
mod settle;

pub use redo::{DataLines, Format, Log};
