//! The logs of [wB+ §3.1]: redo-only (figure 6) and undo-redo (figure 5), with what the figures leave out.
//!
//! A line of the log has places for records, each wholly inside it:
//!
//! | format | places | a record |
//! |---|---|---|
//! | [`Format::Redo`] | 4 of two words | tag, new word |
//! | [`Format::UndoRedo`] | 2 of three words, 1 of two | tag, new word, old word; or tag, new word |
//!
//! The words are copied first and the tag published after them, so a record whose tag carries the current lap is whole. Tags
//! stand at fixed words of a line, whatever records an older lap had there: no value is ever taken for a tag. The tag holds
//!
//! ```text
//! bit 0..39  home word (offset / 8)   39  has the old word   40..52  lap   52..63  records of the commit   63  commit mark
//! ```
//!
//! A redo-only commit is `n` records, the last one marked and counting them ([`Log::commit`]):
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | records written, flushed | any of them | incomplete count: ignored |
//! | fence (commit point: the last record of the commit to become durable) | all of them | replayed |
//! | home words written, flushed | any of them | replayed over them |
//! | settle: fence, lap word published, fence | all of them | next lap is empty |
//!
//! An undo-redo commit ([`Log::commit_undo_redo`]) writes unused words home at once, their records with one fence, and each
//! word in use only after the fence of its own record:
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | `NewRedo` of unused words | any records, any of the words | ignored: the words mean nothing |
//! | `CommitNewRedo`: flush, fence | all those records | ignored |
//! | `WriteUndoRedo`, each but the last: record, flush, fence, home word | records so far, words so far | old words put back, last first |
//! | the last: record with the commit mark, flush, fence | all records | replayed |
//!
//! Invariants:
//! * L1: while a commit is unsettled, its home words change only through the log (`touches` tells; callers settle first).
//! * L2: a lap's tag is used again only after all records were wiped, so no stale record carries the current lap. A wipe that a crash
//!   cut short is done again by recovery.
//! * L3: a lap that held anything at a crash is never written again.

mod home;
pub(crate) mod redo;
mod settle;

pub use redo::{Format, Homes, Log};
