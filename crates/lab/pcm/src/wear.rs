//! The number of writes of each line, and the lifetime of the memory at these numbers.

/// Mapping of lines to cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Levelling {
    /// A line always uses the same cells.
    #[default]
    None,
    /// Start-gap: there is one spare line, the gap. After a number of writes, the line before the gap moves into it. After as many moves as
    /// there are lines, each line has moved by one position.
    StartGap {
        /// Writes between two moves.
        writes: u64,
    },
}

/// A write of a line, for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Cycles when the line went into the queue.
    pub cycles: u64,
    /// Logical number of the line, as the index uses it.
    pub line: u64,
}

/// Writes of every line since the start.
#[derive(Debug)]
pub struct Wear {
    levelling: Levelling,
    /// Writes by physical line.
    writes: Vec<u32>,
    /// Number of lines in use, without the gap.
    lines: u64,
    /// Position of the gap.
    gap: u64,
    /// Position of line 0 when the gap is the last line.
    start: u64,
    until_move: u64,
    moves: u64,
    trace: Option<Vec<Write>>,
}

impl Wear {
    pub(crate) fn new(lines: u64, levelling: Levelling) -> Self {
        let until_move = match levelling {
            Levelling::None => u64::MAX,
            Levelling::StartGap { writes } => writes.max(1),
        };
        let writes = vec![0; lines as usize + 1];
        Self { levelling, writes, lines, gap: lines, start: 0, until_move, moves: 0, trace: None }
    }

    /// Discards all writes. Starts a trace if `traced`.
    pub(crate) fn begin(&mut self, traced: bool) {
        *self = Self { trace: traced.then(Vec::new), ..Self::new(self.lines, self.levelling) };
    }

    /// The present position of a line.
    fn place(&self, line: u64) -> u64 {
        let place = (line + self.start) % self.lines;
        if place >= self.gap { place + 1 } else { place }
    }

    /// Counts a write. If the gap moves, returns the line that moved into it: that line is read and written too.
    pub(crate) fn note(&mut self, cycles: u64, line: u64) -> Option<u64> {
        if let Some(trace) = &mut self.trace {
            trace.push(Write { cycles, line });
        }
        let place = self.place(line) as usize;
        self.writes[place] = self.writes[place].saturating_add(1);
        self.until_move -= 1;
        (self.until_move == 0).then(|| self.move_gap())
    }

    /// Moves the line before the gap into the gap.
    fn move_gap(&mut self) -> u64 {
        let Levelling::StartGap { writes } = self.levelling else {
            unreachable!("nobody counts down to a move")
        };
        self.until_move = writes.max(1);
        self.moves += 1;
        let into = self.gap;
        // From the first position the gap moves back to the last. Then every line has moved by one position.
        let from = if self.gap == 0 { self.lines } else { self.gap - 1 };
        let index = if from > self.gap { from - 1 } else { from };
        let moved = (index + self.lines - self.start) % self.lines;
        self.writes[into as usize] = self.writes[into as usize].saturating_add(1);
        self.gap = from;
        if into == 0 {
            self.start = (self.start + 1) % self.lines;
        }
        moved
    }

    /// Writes of each physical line that is writable, including moves.
    pub fn by_line(&self) -> &[u32] {
        match self.levelling {
            Levelling::None => &self.writes[..self.lines as usize],
            Levelling::StartGap { .. } => &self.writes,
        }
    }

    /// Number of moves of lines.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Maximum number of writes of a physical line.
    pub fn most(&self) -> u32 {
        self.by_line().iter().copied().max().unwrap_or(0)
    }

    /// Number of all writes.
    pub fn total(&self) -> u64 {
        self.by_line().iter().map(|writes| u64::from(*writes)).sum()
    }

    /// The physical lines with the most writes, in descending order: number and writes.
    pub fn hottest(&self, count: usize) -> Vec<(u64, u32)> {
        let written = self.by_line().iter().enumerate().filter(|(_, writes)| **writes > 0);
        let mut lines: Vec<_> = written.map(|(line, writes)| (line as u64, *writes)).collect();
        lines.sort_by_key(|(line, writes)| (std::cmp::Reverse(*writes), *line));
        lines.truncate(count);
        lines
    }

    /// For each `i`, number of lines with at least `2^i` and fewer than `2^(i + 1)` writes.
    pub fn histogram(&self) -> Vec<u64> {
        let mut bins = Vec::new();
        for writes in self.by_line().iter().filter(|writes| **writes > 0) {
            let bin = writes.ilog2() as usize;
            bins.resize(bins.len().max(bin + 1), 0);
            bins[bin] += 1;
        }
        bins
    }

    /// Years until the first cell fails if the counted writes repeat every `seconds` seconds: with the actual wear, and with the same
    /// number of writes spread evenly over all lines. Infinite if nothing was written.
    pub fn years(&self, endurance: f64, seconds: f64) -> (f64, f64) {
        const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;
        let years = |writes: f64| endurance / (writes / seconds) / SECONDS_PER_YEAR;
        (years(f64::from(self.most())), years(self.total() as f64 / self.by_line().len() as f64))
    }

    /// All writes in order. `None` without a trace.
    pub fn trace(&self) -> Option<&[Write]> {
        self.trace.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_line_and_the_worst_come_first() {
        let mut wear = Wear::new(8, Levelling::None);
        wear.begin(true);
        for (cycles, line) in [(1, 3), (1, 5), (2, 3), (3, 3), (3, 7), (4, 5), (4, 3)] {
            assert_eq!(wear.note(cycles, line), None);
        }
        assert_eq!(wear.by_line(), [0, 0, 0, 4, 0, 2, 0, 1]);
        assert_eq!(wear.hottest(2), [(3, 4), (5, 2)]);
        assert_eq!(wear.histogram(), [1, 1, 1]);
        assert_eq!((wear.most(), wear.total(), wear.moves()), (4, 7, 0));
        assert_eq!(wear.trace().map(|trace| trace[2]), Some(Write { cycles: 2, line: 3 }));
        // 4 writes in 2 seconds: 1e8 writes take 5e7 seconds.
        let (as_it_is, alike) = wear.years(1e8, 2.0);
        assert!((as_it_is - 5e7 / 31_557_600.0).abs() < 1e-9);
        assert!((alike / as_it_is - 4.0 / (7.0 / 8.0)).abs() < 1e-9);
        wear.begin(false);
        assert_eq!((wear.total(), wear.trace()), (0, None));
        assert!(wear.years(1e8, 1.0).0.is_infinite());
    }

    /// Every move preserves the contents of all lines: each line is at its position, and no two share one.
    #[test]
    fn start_gap_moves_every_line_and_loses_none() {
        for lines in [2, 3, 7] {
            let mut wear = Wear::new(lines, Levelling::StartGap { writes: 1 });
            let mut cells: Vec<Option<u64>> = (0..lines).map(Some).chain([None]).collect();
            let mut visited = vec![std::collections::BTreeSet::new(); lines as usize];
            for turn in 0..5 * lines * (lines + 1) {
                let gap = wear.gap as usize;
                let moved = wear.note(0, turn % lines).unwrap();
                let from = cells.iter().position(|held| *held == Some(moved)).unwrap();
                assert_eq!(cells[gap], None);
                cells.swap(gap, from);
                for line in 0..lines {
                    let place = wear.place(line);
                    assert_eq!(cells[place as usize], Some(line), "{lines} lines, move {turn}");
                    visited[line as usize].insert(place);
                }
            }
            assert!(visited.iter().all(|places| places.len() as u64 == lines + 1), "{lines} lines");
        }
    }

    #[test]
    fn start_gap_spreads_the_writes_of_one_line() {
        let mut wear = Wear::new(16, Levelling::StartGap { writes: 10 });
        for _ in 0..100_000 {
            wear.note(0, 3);
        }
        assert_eq!(wear.moves(), 10_000);
        assert_eq!(wear.total(), 110_000);
        assert!(u64::from(wear.most()) < 2 * wear.total() / 17, "{:?}", wear.by_line());
    }
}
