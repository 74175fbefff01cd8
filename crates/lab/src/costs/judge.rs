//! Compares the counts of one operation with the expected cost and, where the paper's formula is exact, with the formula.

use super::engines::{Claims, Source};
use super::formulas::ours::{Bounds, Price};
use super::formulas::{Met, Standing};
use super::measure::{Operation, Tally};

/// An operation with its counts and its expected cost.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Kind of the operation.
    pub operation: Operation,
    /// Arguments of the paper's formulas.
    pub met: Met,
    /// The counts.
    pub tally: Tally,
    /// The expected cost.
    pub price: Price,
    /// True if the operation waits for its data lines. Then they count as flushes.
    pub awaits_homes: bool,
}

impl Observation {
    /// Number of lines to compare with a paper's flushes.
    pub fn flushes(&self) -> u64 {
        self.tally.flushes + if self.awaits_homes { self.tally.homes } else { 0 }
    }

    /// Expected bounds of [`flushes`](Self::flushes).
    pub fn flush_bounds(&self) -> Bounds {
        self.price.flushes + Bounds::exactly(if self.awaits_homes { self.price.homes } else { 0 })
    }
}

/// Describes each difference in a sentence.
pub fn problems(seen: &Observation, claims: Option<&Claims>) -> Vec<String> {
    let mut problems = against_ours(seen);
    if let Some(claims) = claims {
        problems.extend(against_paper(seen, claims));
    }
    problems
}

fn against_ours(seen: &Observation) -> Vec<String> {
    let (tally, price) = (&seen.tally, &seen.price);
    let mut problems = Vec::new();
    for (what, counted, priced) in [
        ("words of nodes", tally.node_words, price.node_words),
        ("words of the log", tally.log_words, price.log_words),
        ("flushes of home lines", tally.homes, price.homes),
        ("fences", tally.fences, price.fences),
    ] {
        if counted != priced {
            problems.push(format!("{counted} {what}, our price is {priced}"));
        }
    }
    let Bounds { least, most } = price.flushes;
    if !price.flushes.hold(tally.flushes) {
        problems.push(format!("{} flushes, our price is {least} to {most}", tally.flushes));
    }
    problems
}

fn against_paper(seen: &Observation, claims: &Claims) -> Vec<String> {
    let Some(claim) = seen.operation.claim(claims) else { return Vec::new() };
    let paper = (claim.formula)(&seen.met);
    // VLAB counts bytes; a word has eight.
    let bytes = if claims.source == Source::Vlab2018 { 8.0 } else { 1.0 };
    let words = paper.written / bytes - f64::from(claim.allocation.words);
    let flushes = paper.flushes - f64::from(claim.allocation.flushes);
    let mut problems = Vec::new();
    for (what, counted, said, standing) in [
        ("words", seen.tally.words(), words, claim.written),
        ("flushes", seen.flushes(), flushes, claim.flushes),
        ("fences", seen.tally.fences, paper.fences, claim.fences),
    ] {
        if !standing.allows(counted, said) {
            let relation = match standing {
                Standing::Equal | Standing::Apart => "exactly",
                Standing::RoundedUp => "rounded up",
                Standing::NoLess => "at least",
            };
            problems.push(format!("{counted} {what}, the paper says {relation} {said}"));
        }
    }
    let changed = seen.tally.bytes_changed;
    if let Some(most) = claim.changed.map(|changed| changed(&seen.met)).filter(|most| changed as f64 > *most)
    {
        problems.push(format!("{changed} bytes changed, the paper says at most {most}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::engines::Engine;

    /// An insert into a leaf of 29 entries with 21 in use, as in `wbtree`: 4 + 3 words, 4 flushes, 3 fences.
    fn right() -> Observation {
        let price = Price { node_words: 7, flushes: Bounds::exactly(4), fences: 3, ..Price::default() };
        let tally = Tally { node_words: 7, flushes: 4, fences: 3, ..Tally::default() };
        let met = Met { n: 29.0, m: 21.0, ..Met::default() };
        Observation { operation: Operation::Insert, met, tally, price, awaits_homes: false }
    }

    fn judged(seen: &Observation, engine: &str) -> String {
        let engine = &Engine::named(&[engine.to_owned()]).unwrap()[0];
        problems(seen, engine.claims(16).as_ref()).join("; ")
    }

    #[test]
    fn what_costs_its_price_is_right() {
        assert_eq!(judged(&right(), "wbtree"), "");
    }

    #[test]
    fn every_single_wrong_count_is_told() {
        type Fault = fn(&mut Tally);
        let faults: [(&str, Fault); 9] = [
            ("8 words of nodes, our price is 7", |tally| tally.node_words += 1),
            ("6 words of nodes, our price is 7", |tally| tally.node_words -= 1),
            ("1 words of the log, our price is 0", |tally| tally.log_words += 1),
            ("1 flushes of home lines, our price is 0", |tally| tally.homes += 1),
            ("4 fences, our price is 3", |tally| tally.fences += 1),
            ("2 fences, our price is 3", |tally| tally.fences -= 1),
            ("5 flushes, our price is 4 to 4", |tally| tally.flushes += 1),
            ("3 flushes, our price is 4 to 4", |tally| tally.flushes -= 1),
            ("3 flushes, the paper says at least 3.359375", |tally| tally.flushes -= 1),
        ];
        for (says, fault) in faults {
            let mut seen = right();
            fault(&mut seen.tally);
            assert!(judged(&seen, "wbtree").contains(says), "{says}: {}", judged(&seen, "wbtree"));
        }
    }

    #[test]
    fn a_byte_that_changes_beside_the_papers_is_told() {
        let of_insert = |bytes_changed: u64| Observation {
            met: Met { entry_bytes: 16.0, ..Met::default() },
            tally: Tally { node_words: 3, flushes: 2, fences: 2, bytes_changed, ..Tally::default() },
            price: Price { node_words: 3, flushes: Bounds::exactly(2), fences: 2, ..Price::default() },
            ..right()
        };
        assert_eq!(judged(&of_insert(17), "vlab"), "");
        assert_eq!(judged(&of_insert(18), "vlab"), "18 bytes changed, the paper says at most 17");
    }

    #[test]
    fn a_price_that_the_paper_does_not_have_is_told_though_the_counts_meet_it() {
        let wrong = |word: u64, fence: u64| {
            let mut seen = right();
            (seen.tally.node_words, seen.price.node_words) = (7 + word, 7 + word);
            (seen.tally.fences, seen.price.fences) = (3 + fence, 3 + fence);
            judged(&seen, "wbtree")
        };
        assert_eq!(wrong(1, 0), "8 words, the paper says rounded up 6.875");
        assert_eq!(wrong(0, 1), "4 fences, the paper says exactly 3");
        assert!(judged(&right(), "wbtree-bmp").contains("7 words, the paper says exactly 3"));
    }

    #[test]
    fn bounds_allow_a_batch_of_records_one_line_more_and_no_more() {
        for (records, per_line, least, most) in
            [(1, 4, 1, 1), (4, 4, 1, 2), (5, 4, 2, 2), (2, 3, 1, 2), (7, 3, 3, 3)]
        {
            assert_eq!(
                Bounds::of_records(records, per_line),
                Bounds { least, most },
                "{records} of {per_line}"
            );
        }
        let mut seen = right();
        seen.price.flushes = Bounds { least: 4, most: 5 };
        for (flushes, good) in [(3, false), (4, true), (5, true), (6, false)] {
            seen.tally.flushes = flushes;
            assert_eq!(judged(&seen, "wbtree").is_empty(), good, "{flushes} flushes");
        }
    }

    #[test]
    fn an_average_over_ranks_is_held_at_the_rank_that_was_met() {
        let seen = |moved: f64, words: u64| Observation {
            met: Met { n: 31.0, m: 21.0, moved: Some(moved), ..Met::default() },
            tally: Tally {
                node_words: words,
                log_words: 3 * words,
                flushes: words,
                fences: words,
                ..Tally::default()
            },
            price: Price {
                node_words: words,
                log_words: 3 * words,
                flushes: Bounds::exactly(words),
                fences: words,
                ..Price::default()
            },
            ..right()
        };
        assert_eq!(judged(&seen(0.0, 3), "btree-log"), "");
        assert_eq!(judged(&seen(21.0, 45), "btree-log"), "");
        assert!(judged(&seen(20.0, 45), "btree-log").contains("180 words, the paper says exactly 172"));
    }
}
