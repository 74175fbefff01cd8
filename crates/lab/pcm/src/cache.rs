//! A set-associative cache of line numbers, least recently used first out, and the translations of pages.

use crate::config::Level;

/// No line has this number.
const NONE: u64 = u64::MAX;

/// Sets of lines, the most recently used of each first.
#[derive(Debug)]
pub(crate) struct Cache {
    ways: usize,
    sets: u64,
    lines: Box<[u64]>,
}

impl Cache {
    /// An empty cache.
    pub fn new(level: Level) -> Self {
        let count = level.bytes / pmem::LINE;
        Self { ways: level.ways as usize, sets: count / level.ways, lines: vec![NONE; count as usize].into() }
    }

    /// As it was made.
    pub fn clear(&mut self) {
        self.lines.fill(NONE);
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let first = (line % self.sets) as usize * self.ways;
        &mut self.lines[first..first + self.ways]
    }

    /// True if the line is here; it is the most recently used one of its set then.
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

    /// Takes a line in that is not here; returns the one that had to go.
    pub fn insert(&mut self, line: u64) -> Option<u64> {
        let set = self.set(line);
        debug_assert!(!set.contains(&line), "line {line} is here");
        set.rotate_right(1);
        let victim = std::mem::replace(&mut set[0], line);
        (victim != NONE).then_some(victim)
    }

    /// Throws a line out if it is here.
    pub fn remove(&mut self, line: u64) {
        let set = self.set(line);
        if let Some(way) = set.iter().position(|held| *held == line) {
            set[way] = NONE;
            // What is empty is taken next.
            set[way..].rotate_left(1);
        }
    }
}

/// Translations of pages at hand: fully associative, least recently used first out.
#[derive(Debug)]
pub(crate) struct Tlb {
    /// Page and when it was used last.
    entries: Box<[(u64, u64)]>,
    /// The place of the page that was used last.
    last: usize,
    uses: u64,
}

impl Tlb {
    /// No translation is at hand.
    pub fn new(entries: u64) -> Self {
        Self { entries: vec![(NONE, 0); entries as usize].into(), last: 0, uses: 0 }
    }

    /// As it was made.
    pub fn clear(&mut self) {
        self.entries.fill((NONE, 0));
    }

    /// True if the page's translation was at hand. It is now.
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
