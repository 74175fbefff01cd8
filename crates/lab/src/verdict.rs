//! A claim of a paper that one measured number decides. ([`crate::experiment::claims`] has claims about several rows.)

use std::fmt::{Display, Formatter, Result};

/// A judged claim.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// The claim of the paper.
    pub claim: String,
    /// The measured result.
    pub ours: String,
    /// True if the claim holds here.
    pub holds: bool,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let verdict = if self.holds { "holds" } else { "does not hold" };
        write!(f, "{verdict:15}{}; ours {}", self.claim, self.ours)
    }
}
