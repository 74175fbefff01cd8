//! What a paper says of a figure, and whether the measured rows say the same.
//!
//! A claim is a range of factors. Ours are taken from all rows that the claim speaks of; it holds if every one of them,
//! rounded as the paper rounds, lies in the paper's range. A factor beyond the range is a claim that does not hold, also where
//! it is more than the paper promises: the line then says which end was passed. The reason is made of the counts of the two
//! rows behind the factor that decides. A claim of which nothing was measured is left out.

use super::{Batch, Row};
use crate::scratch::Instructions;

/// What a paper says.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// In words.
    pub text: &'static str,
    /// Least factor.
    pub least: Option<f64>,
    /// Greatest factor.
    pub most: Option<f64>,
    /// Digits behind the point that the paper gives.
    pub decimals: usize,
}

/// A claim, judged.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Claim {
    /// What the paper says.
    pub text: &'static str,
    /// How changes were made durable.
    pub instructions: Instructions,
    /// The paper's least and greatest factor.
    pub paper: (Option<f64>, Option<f64>),
    /// Our least and greatest.
    pub ours: (f64, f64),
    /// Digits behind the point.
    pub decimals: usize,
    /// Ours lie in the paper's range.
    pub holds: bool,
    /// Why, in counts.
    pub reason: String,
}

/// How many times slower one row is than another of the same batch and nodes.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    /// The slower one, as the claim has it.
    pub slower: &'a Row,
    /// The faster one.
    pub faster: &'a Row,
}

impl Factor<'_> {
    /// The number. By multiples of the volatile tree: the two may come from different groups.
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

/// Holds measured factors against what a paper says of them; `None` without factors.
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
        // The end nearest to failing, as far as there is one.
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
