//! The end of a lap: home lines are durable, the lap is void, its records mean nothing any more. Every `LAPS` laps, before their tags
//! come round again, all records are wiped (L2).
//!
//! A lap whose number is a multiple of `LAPS` holds no records. It is the time of the wipe:
//!
//! | step | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | the lap before it is void | all records of the last `LAPS` laps | wipes again |
//! | records wiped, flushed | any of them | wipes again |
//! | fence | none of them | wipes again |
//! | the lap itself is void: word published, flushed, fence | none of them | the next lap is empty |

use crate::heap::log::home;
use crate::heap::log::redo::{LAPS, Log};
use crate::heap::region::{LAP_AT, LOG_AT, checked};
use crate::medium::traits::{Fence, LINE, Medium, WORD};

impl Log {
    /// Makes all home words durable and the lap void, so that its home words may change by other means (L1).
    pub fn settle<M: Medium>(&mut self, medium: &M) {
        if self.next == 0 {
            return;
        }
        // Those that were not flushed when they were written.
        home::flush(medium, &mut self.home_lines);
        // Home lines must be durable before the lap is void.
        medium.fence(Fence::Checkpoint);
        self.void(medium);
        if self.is_for_wiping() {
            self.wipe(medium);
        }
    }

    /// True of a lap that holds no records, because the log is wiped in it.
    pub(super) fn is_for_wiping(&self) -> bool {
        self.lap.is_multiple_of(LAPS)
    }

    /// Makes the lap void and begins the next.
    fn void<M: Medium>(&mut self, medium: &M) {
        medium.publish(LAP_AT, checked(self.lap));
        medium.flush(LAP_AT, WORD);
        medium.fence(Fence::Checkpoint);
        self.lap += 1;
        self.next = 0;
        self.filter.fill(0);
    }

    /// Clears every record before lap tags come round again (L2). Home lines are durable.
    pub(super) fn wipe<M: Medium>(&mut self, medium: &M) {
        for place in 0..self.places {
            medium.copy(self.format.at(place), 0);
        }
        medium.flush(LOG_AT, self.lines * LINE);
        medium.fence(Fence::Checkpoint);
        self.void(medium);
    }
}
