//! The memory below the caches: ranks that work in parallel, and the queue of lines to write.
//!
//! A rank does one operation at a time. A read waits for the running operation of its rank, and has priority over waiting writes. A write
//! waits in the queue until its rank is free, and leaves the queue when it is complete. If the queue is full, the caller of a write waits.

use std::collections::VecDeque;

use crate::config::Config;

/// A line in the write queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    since: u64,
    cycles: u64,
    /// True if a fence waits for the line.
    flushed: bool,
}

#[derive(Debug, Default)]
struct Rank {
    /// End of the running operation.
    busy_until: u64,
    /// End of the latest write that has begun.
    writes_until: u64,
    /// End of the latest flushed write that has begun.
    flushed_until: u64,
    queue: VecDeque<Queued>,
}

impl Rank {
    /// Begins the waiting writes that can begin before `now`.
    fn advance(&mut self, now: u64) {
        while let Some(next) = self.queue.front() {
            let begin = self.busy_until.max(next.since);
            if begin >= now {
                break;
            }
            self.begin(begin);
        }
    }

    fn begin(&mut self, begin: u64) {
        let Some(next) = self.queue.pop_front() else { return };
        self.busy_until = begin + next.cycles;
        self.writes_until = self.busy_until;
        if next.flushed {
            self.flushed_until = self.busy_until;
        }
    }

    /// Number of this rank's lines in the queue.
    fn queued(&self, now: u64) -> u64 {
        self.queue.len() as u64 + u64::from(self.writes_until > now)
    }
}

/// All ranks. The clock of successive calls must not decrease.
#[derive(Debug)]
pub(crate) struct Device {
    ranks: Box<[Rank]>,
    capacity: u64,
    read_cycles: u64,
}

impl Device {
    /// Makes idle ranks.
    pub fn new(config: &Config) -> Self {
        let ranks = (0..config.ranks).map(|_| Rank::default()).collect();
        Self { ranks, capacity: config.queue, read_cycles: config.read_cycles }
    }

    fn rank(&mut self, line: u64) -> &mut Rank {
        let count = self.ranks.len() as u64;
        &mut self.ranks[(line % count) as usize]
    }

    /// Reads a line. Returns the time when the line is available.
    pub fn read(&mut self, line: u64, now: u64) -> u64 {
        let cycles = self.read_cycles;
        let rank = self.rank(line);
        rank.advance(now);
        rank.busy_until = rank.busy_until.max(now) + cycles;
        rank.busy_until
    }

    /// Adds a line to the queue. Its write takes `cycles`. Returns the time when the queue had space for it.
    pub fn write(&mut self, line: u64, cycles: u64, flushed: bool, now: u64) -> u64 {
        let mut now = now;
        loop {
            self.ranks.iter_mut().for_each(|rank| rank.advance(now));
            if self.ranks.iter().map(|rank| rank.queued(now)).sum::<u64>() < self.capacity {
                break;
            }
            // Let the ranks with queued lines continue. One of them is the first to complete or to begin a write.
            let busy = self.ranks.iter().filter(|rank| rank.queued(now) > 0);
            let next =
                |rank: &Rank| if rank.writes_until > now { rank.writes_until } else { rank.busy_until };
            now = busy.map(next).min().map_or(now, |done| done.max(now + 1));
        }
        self.rank(line).queue.push_back(Queued { since: now, cycles, flushed });
        now
    }

    /// The time when all lines flushed before `now` are written.
    pub fn flushed(&mut self, now: u64) -> u64 {
        let mut done = now;
        for rank in &mut self.ranks {
            rank.advance(now);
            while rank.queue.iter().any(|write| write.flushed) {
                let begin = rank.queue.front().map_or(0, |next| rank.busy_until.max(next.since));
                rank.begin(begin);
            }
            done = done.max(rank.flushed_until);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ranks: u64, queue: u64) -> Device {
        Device::new(&Config { ranks, queue, read_cycles: 100, ..Config::pcm() })
    }

    #[test]
    fn reads_of_different_ranks_overlap_and_of_one_do_not() {
        let mut device = device(2, 8);
        assert_eq!([device.read(0, 10), device.read(1, 11), device.read(2, 12)], [110, 111, 210]);
    }

    #[test]
    fn a_read_goes_before_the_writes_that_wait_and_waits_for_the_one_that_runs() {
        let mut device = device(1, 8);
        device.write(0, 1000, true, 0);
        device.write(1, 1000, true, 0);
        // At 500 the first write runs until 1000, then the read, then the second write.
        assert_eq!(device.read(2, 500), 1100);
        assert_eq!(device.flushed(500), 2100);
        assert_eq!(device.flushed(3000), 3000);
    }

    #[test]
    fn a_full_queue_makes_its_user_wait_for_the_first_line_to_be_done() {
        let mut device = device(2, 2);
        assert_eq!((device.write(0, 300, false, 0), device.write(1, 200, false, 0)), (0, 0));
        assert_eq!(device.write(1, 200, false, 50), 200, "rank 1 is done first");
        assert_eq!(device.write(0, 300, false, 210), 300);
        // A fence does not wait for lines that were not flushed.
        assert_eq!(device.flushed(310), 310);
    }

    #[test]
    fn a_write_that_runs_takes_its_place_in_the_queue_though_a_read_waits_behind_it() {
        let mut device = device(1, 1);
        assert_eq!(device.write(0, 1000, false, 0), 0);
        assert_eq!(device.read(1, 10), 1100);
        assert_eq!(device.write(2, 1000, false, 10), 1000);
        // The read came first, so the write waits for it.
        assert_eq!(device.write(3, 1000, true, 1000), 2100);
        assert_eq!(device.flushed(2100), 3100);
    }

    #[test]
    fn a_fence_waits_for_unflushed_lines_only_where_they_are_in_the_way() {
        let mut device = device(2, 8);
        device.write(0, 300, false, 0);
        device.write(2, 300, true, 0);
        device.write(1, 5000, false, 0);
        assert_eq!(device.flushed(10), 600);
    }
}
