//! A set-associative cache of line numbers with LRU replacement, and a cache of page translations.

use crate::config::Level;

/// No line has this number.
const NONE: u64 = u64::MAX;

/// Sets of lines, each in order of use with the most recently used line first.
#[derive(Debug)]
pub(crate) struct Cache {
    ways: usize,
    sets: u64,
    lines: Box<[u64]>,
}

impl Cache {
    /// Makes an empty cache.
    pub fn new(level: Level) -> Self {
        let count = level.bytes / pmem::LINE;
        Self { ways: level.ways as usize, sets: count / level.ways, lines: vec![NONE; count as usize].into() }
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        self.lines.fill(NONE);
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let first = (line % self.sets) as usize * self.ways;
        &mut self.lines[first..first + self.ways]
    }

    /// True if the cache has the line. The line becomes the most recently used one of its set.
    #[inline]
    pub fn touch(&mut self, line: u64) -> bool {
        let set = self.set(line);
        if set[0] == line {
            return true;
        }
        let Some(way) = set.iter().position(|held| *held == line) else { return false };
        set[..=way].rotate_right(1);
        true
    }

    /// Inserts a line that the cache does not have. Returns the evicted line.
    pub fn insert(&mut self, line: u64) -> Option<u64> {
        let set = self.set(line);
        debug_assert!(!set.contains(&line), "line {line} is here");
        set.rotate_right(1);
        let victim = std::mem::replace(&mut set[0], line);
        (victim != NONE).then_some(victim)
    }

    /// Removes a line if the cache has it.
    pub fn remove(&mut self, line: u64) {
        let set = self.set(line);
        if let Some(way) = set.iter().position(|held| *held == line) {
            set[way] = NONE;
            // Empty ways are used first.
            set[way..].rotate_left(1);
        }
    }
}

/// The translations in the TLB: fully associative, LRU replacement.
#[derive(Debug)]
pub(crate) struct Tlb {
    /// Pages, each with the time of its last use.
    entries: Box<[(u64, u64)]>,
    /// Index of the page that was used last.
    last: usize,
    uses: u64,
}

impl Tlb {
    /// Makes an empty TLB.
    pub fn new(entries: u64) -> Self {
        Self { entries: vec![(NONE, 0); entries as usize].into(), last: 0, uses: 0 }
    }

    /// Empties the TLB.
    pub fn clear(&mut self) {
        self.entries.fill((NONE, 0));
    }

    /// True if the TLB had the page's translation. It has it afterwards.
    #[inline]
    pub fn touch(&mut self, page: u64) -> bool {
        self.uses += 1;
        if self.entries[self.last].0 == page {
            self.entries[self.last].1 = self.uses;
            return true;
        }
        let found = self.entries.iter().position(|(held, _)| *held == page);
        self.last = found.unwrap_or_else(|| {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, (_, used))| *used);
            oldest.map_or(0, |(place, _)| place)
        });
        self.entries[self.last] = (page, self.uses);
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_of_a_set_goes() {
        let mut cache = Cache::new(Level { bytes: 4 * 2 * 64, ways: 2, cycles: 1 });
        assert_eq!((cache.insert(0), cache.insert(4), cache.insert(1)), (None, None, None));
        assert!(cache.touch(0));
        assert_eq!(cache.insert(8), Some(4));
        assert!(!cache.touch(4) && cache.touch(0) && cache.touch(8) && cache.touch(1));
        cache.remove(8);
        assert_eq!(cache.insert(12), None, "the removed line's place is free");
        assert!(cache.touch(0) && cache.touch(12));
        cache.clear();
        assert!(!cache.touch(0));
    }

    #[test]
    fn the_least_recently_used_page_goes() {
        let mut tlb = Tlb::new(2);
        assert!(!tlb.touch(1) && !tlb.touch(2) && tlb.touch(1) && tlb.touch(1));
        assert!(!tlb.touch(3), "in the place of 2");
        assert!(tlb.touch(1) && !tlb.touch(2));
    }
}
