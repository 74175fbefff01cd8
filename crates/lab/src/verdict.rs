//! A sentence of a paper beside what was measured, where one number decides. (Claims over the rows of trees are
//! [`crate::experiment::claims`].)

use std::fmt::{Display, Formatter, Result};

/// A sentence, judged.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// What the paper says.
    pub claim: String,
    /// Ours.
    pub ours: String,
    /// Whether it holds here.
    pub holds: bool,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let verdict = if self.holds { "holds" } else { "does not hold" };
        write!(f, "{verdict:15}{}; ours {}", self.claim, self.ours)
    }
}
