//! Truncation of the log: the lines of all data words become durable, then the generation is declared void. For that, its number becomes
//! durable in the log line of the region (the *generation word*). The records of a void generation have no meaning. Every `GENERATIONS`
//! generations, before their tags are used again, all records are wiped (L2 of [`super`]).
//!
//! A generation whose number is a multiple of `GENERATIONS` is a *wipe generation*: it holds no records, and the wipe takes place in it:
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | the generation before the wipe generation is void | all records of the last `GENERATIONS` generations | wipes again |
//! | records wiped, flushed | any of them | wipes again |
//! | fence | none of them | wipes again |
//! | the wipe generation is void: word published, flushed, fence | none of them | the next generation is empty |

use crate::heap::log::data_words;
use crate::heap::log::redo::{GENERATIONS, Log};
use crate::heap::region::{GENERATION_AT, LOG_AT, checked};
use crate::medium::traits::{Fence, LINE, Medium, WORD};

impl Log {
    /// Makes all data words durable and the generation void, so that its data words may change by other means (L1). Two fences, and
    /// two more if the log is wiped; none if the log is empty.
    pub fn truncate<M: Medium>(&mut self, medium: &M) {
        if self.next == 0 {
            return;
        }
        // Flushes the deferred lines.
        data_words::flush(medium, &mut self.data_lines);
        // The data words must be durable before the generation is void.
        medium.fence(Fence::Checkpoint);
        self.void(medium);
        if self.is_for_wiping() {
            self.wipe(medium);
        }
    }

    /// True for a generation that holds no records, because the log is wiped in it.
    pub(super) fn is_for_wiping(&self) -> bool {
        self.generation.is_multiple_of(GENERATIONS)
    }

    /// Makes the generation void and begins the next.
    fn void<M: Medium>(&mut self, medium: &M) {
        medium.publish(GENERATION_AT, checked(self.generation));
        medium.flush(GENERATION_AT, WORD);
        medium.fence(Fence::Checkpoint);
        self.generation += 1;
        self.next = 0;
        self.filter.fill(0);
    }

    /// Clears every record before generation tags are used again (L2). The data words are durable.
    pub(super) fn wipe<M: Medium>(&mut self, medium: &M) {
        for place in 0..self.places {
            medium.copy(self.format.at(place), 0);
        }
        medium.flush(LOG_AT, self.lines * LINE);
        medium.fence(Fence::Checkpoint);
        self.void(medium);
    }
}
