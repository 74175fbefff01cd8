//! The end of a lap: home lines are durable, the lap is void, its records mean nothing any more.

use super::{LAPS, Log, home};
use crate::medium::{Fence, LINE, Medium, WORD};
use crate::region::{LAP_AT, LOG_AT, checked};

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
        medium.publish(LAP_AT, checked(self.lap));
        medium.flush(LAP_AT, WORD);
        medium.fence(Fence::Checkpoint);
        self.lap += 1;
        self.next = 0;
        self.filter.fill(0);
        if self.lap.is_multiple_of(LAPS) {
            self.wipe(medium);
        }
    }

    /// Clears every record before lap tags come round again (L2).
    fn wipe<M: Medium>(&mut self, medium: &M) {
        for place in 0..self.places {
            medium.copy(self.format.at(place), 0);
        }
        medium.flush(LOG_AT, self.lines * LINE);
        medium.fence(Fence::Checkpoint);
    }
}
