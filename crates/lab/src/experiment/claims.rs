//! Claims of a paper about a figure, and their verdict over measured rows.
//!
//! A claim gives a range for a factor. The factor tells how many times slower one row is than another row of the same
//! batch and node size. Each pair of rows that the claim covers gives one measured factor. The claim holds if each
//! factor, rounded as in the paper, is in the paper's range. A factor outside the range refutes the claim, even if the
//! factor is better than the paper promises. A claim without measured rows is omitted.
//!
//! The printed reason names one pair of rows and compares their counts. If some factor is below the range, it is the pair with the smallest
//! factor. If factors are above the range and none is below it, it is the pair with the largest. If the claim holds, it is the pair with
//! the smallest factor, or with the largest if the paper gives no minimum.

use super::{Batch, Row};
use crate::scratch::Instructions;

/// A claim of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Text of the claim.
    pub text: &'static str,
    /// Minimum factor.
    pub least: Option<f64>,
    /// Maximum factor.
    pub most: Option<f64>,
    /// Decimals that the paper gives.
    pub decimals: usize,
}

/// A judged claim.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Claim {
    /// Text of the claim.
    pub text: &'static str,
    /// The instructions that made changes durable.
    pub instructions: Instructions,
    /// The paper's minimum and maximum factor.
    pub paper: (Option<f64>, Option<f64>),
    /// Measured minimum and maximum factor.
    pub ours: (f64, f64),
    /// Decimals of the factors.
    pub decimals: usize,
    /// True if the measured factors are in the paper's range.
    pub holds: bool,
    /// The reason, in counts.
    pub reason: String,
}

/// Two rows of the same batch and node size. The factor says how many times slower one is than the other.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    /// The row that is slower by the claim.
    pub slower: &'a Row,
    /// The row that is faster by the claim.
    pub faster: &'a Row,
}

impl Factor<'_> {
    /// The factor. It is computed from multiples of the volatile tree, because the rows may come from different groups.
    pub fn value(&self) -> f64 {
        self.slower.ratio / self.faster.ratio
    }

    fn reason(&self) -> String {
        let of = |row: &Row| match row.batch {
            Batch::Search70 => format!("{} reads {:.1} lines", row.tree, row.costs.lines_read),
            _ => format!(
                "{} stores {:.1} words, flushes {:.1} lines, fences {:.1} times",
                row.tree, row.costs.words, row.costs.flushes, row.costs.fences
            ),
        };
        let (batch, lines) = (self.slower.batch.name(), self.slower.node_lines);
        format!("{batch}, {lines} lines: {}; {}", of(self.slower), of(self.faster))
    }
}

fn rounded(value: f64, decimals: usize) -> f64 {
    let unit = 10_f64.powi(decimals as i32);
    (value * unit).round() / unit
}

/// Judges measured factors by a claim. `None` without factors.
pub fn judge(said: &Said, factors: &[Factor<'_>]) -> Option<Claim> {
    let by_value = |a: &&Factor<'_>, b: &&Factor<'_>| a.value().total_cmp(&b.value());
    let (least, most) = (factors.iter().min_by(by_value)?, factors.iter().max_by(by_value)?);
    let ours = (rounded(least.value(), said.decimals), rounded(most.value(), said.decimals));
    let below = said.least.is_some_and(|bound| ours.0 < bound);
    let above = said.most.is_some_and(|bound| ours.1 > bound);
    let (end, deciding) = match (below, above) {
        (true, true) => ("both ends passed; below at ", least),
        (true, false) => ("below at ", least),
        (false, true) => ("above at ", most),
        // The measured end that is closest to failing: the minimum, if the paper gives one.
        (false, false) if said.least.is_some() => ("least at ", least),
        (false, false) => ("most at ", most),
    };
    Some(Claim {
        text: said.text,
        instructions: deciding.slower.instructions,
        paper: (said.least, said.most),
        ours,
        decimals: said.decimals,
        holds: !below && !above && ours.0.is_finite() && ours.1.is_finite(),
        reason: format!("{end}{}", deciding.reason()),
    })
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.decimals;
        let paper = match self.paper {
            (Some(least), Some(most)) => format!("{least:.digits$} to {most:.digits$}"),
            (Some(least), None) => format!("at least {least:.digits$}"),
            (None, Some(most)) => format!("at most {most:.digits$}"),
            (None, None) => "no number".to_owned(),
        };
        let verdict = if self.holds { "holds" } else { "does not hold" };
        let (least, most) = self.ours;
        writeln!(f, "{verdict:13}  {}", self.text)?;
        writeln!(f, "{:15}paper {paper}, ours {least:.digits$} to {most:.digits$}", "")?;
        write!(f, "{:15}{}", "", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::super::counts::Costs;
    use super::*;

    fn row(tree: &'static str, ratio: f64) -> Row {
        Row {
            tree,
            leaf: "sorted",
            commit_protocol: "shadow",
            keys: Form::Integer,
            node_lines: 8,
            instructions: Instructions::Paper,
            batch: Batch::Insert70,
            ns: ratio * 100.0,
            ratio,
            costs: Costs { words: 9.0, flushes: 4.0, fences: 3.0, lines_read: 5.0 },
        }
    }

    const SAID: Said = Said { text: "as said", least: Some(1.2), most: Some(1.6), decimals: 1 };

    fn verdict(values: &[f64]) -> Claim {
        let one = row("fast", 1.0);
        let rows: Vec<_> = values.iter().map(|value| row("slow", *value)).collect();
        let factors: Vec<_> = rows.iter().map(|slower| Factor { slower, faster: &one }).collect();
        judge(&SAID, &factors).expect("factors were given")
    }

    #[test]
    fn a_claim_holds_if_every_factor_lies_in_the_range_as_the_paper_rounds() {
        let claim = verdict(&[1.3, 1.16, 1.64]);
        assert!(claim.holds, "{claim}");
        assert_eq!(claim.ours, (1.2, 1.6));
        assert!(claim.to_string().starts_with("holds "), "{claim}");
    }

    #[test]
    fn one_factor_outside_is_enough_and_the_line_says_on_which_side() {
        for (values, side) in [(&[1.3, 1.14][..], "below"), (&[1.3, 1.66], "above"), (&[1.0, 2.0], "both")] {
            let claim = verdict(values);
            assert!(!claim.holds && claim.reason.starts_with(side), "{claim}");
            assert!(claim.to_string().starts_with("does not hold"), "{claim}");
        }
    }

    #[test]
    fn the_reason_names_the_deciding_trees_and_their_counts() {
        let reason = verdict(&[1.3, 2.0]).reason;
        assert_eq!(
            reason,
            "above at insert 70%, 8 lines: slow stores 9.0 words, flushes 4.0 lines, fences 3.0 times; \
             fast stores 9.0 words, flushes 4.0 lines, fences 3.0 times"
        );
    }

    #[test]
    fn without_factors_there_is_no_verdict_and_what_was_not_measured_does_not_hold() {
        assert_eq!(judge(&SAID, &[]), None);
        assert!(!verdict(&[f64::NAN]).holds);
    }
}
