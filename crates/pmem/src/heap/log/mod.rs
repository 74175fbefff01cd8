//! The logs of [wB+ §3.1]: redo-only (figure 6) and undo-redo (figure 5), with the details that the figures leave out.
//!
//! A *generation* is one use of the log between two truncations. The *data words* of a record or commit are the words of the index that it
//! changes.
//!
//! A line of the log has slots for records. Each record is inside one line:
//!
//! | format | slots in a line | words of a record |
//! |---|---|---|
//! | [`Format::Redo`] | 4 of two words | tag, new word |
//! | [`Format::UndoRedo`] | 2 of three words, 1 of two words | tag, new word, old word; or tag, new word |
//!
//! The writer copies the other words of a record first and then publishes the tag. So a record is complete if its tag has the current
//! generation. Each slot has its tag at a fixed word of the line, in every generation. So recovery never takes a new or old word for a tag.
//! The tag (bit ranges exclude their end):
//!
//! ```text
//! bit 0..39   data word (offset / 8)      39  the record has an old word      40..52  generation
//!     52..63  records of the commit       63  commit mark
//! ```
//!
//! Invariants:
//! * L1: until a commit is truncated, its data words change only through the log. Before any other store, the caller asks `touches` and
//!   truncates the log if it returns true.
//! * L2: the generation in a tag has 12 bits, so its values repeat. All records are wiped before a value is used again. So an old record
//!   never has the current generation. If a crash interrupts a wipe, recovery wipes again.
//! * L3: a generation that contained a record at a crash gets no further records.
//!
//! A redo-only commit has `n` records. The last record has the commit mark and the number `n` ([`Log::commit`]):
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | records written, flushed | any of them | replays them if all are there, else ignores them |
//! | fence; the commit point is the moment when the last of the records becomes durable | all of them | replays them |
//! | data words written, flushed (now or at truncation) | all records, any data words | replays the records |
//! | truncation: fence, generation word published, flushed, fence | all; the old generation word or the new one | replays, or finds no records |
//!
//! An undo-redo commit ([`Log::commit_undo_redo`]) changes words of *unused space*, which have no meaning before the
//! commit, and words in use. It stores a word of unused space without waiting for the word's record. One fence makes
//! all these records durable (`CommitNewRedo`). It stores a word in use only after a flush and a fence of that word's
//! own record. If the commit changes no word in use, the last `NewRedo` record has the commit mark, and the fence of
//! `CommitNewRedo` is the commit point.
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | `NewRedo`: record and data word, for each word of unused space | any of them | ignores the records, unless all are there and the last one has the commit mark |
//! | `CommitNewRedo`: flush, fence | all these records | replays them if the last one has the commit mark, else ignores them |
//! | `WriteUndoRedo`, each but the last: record, flush, fence, data word | records, data words so far | restores old words, last first |
//! | the last `WriteUndoRedo`: record with the commit mark, flush, fence (commit point) | all records | replays them |

mod data_words;
pub(crate) mod redo;
mod truncate;

pub use redo::{DataLines, Format, Log};
