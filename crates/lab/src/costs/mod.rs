//! `bristlecone-lab costs`: measured words, flushes and fences of operations, compared with the papers' formulas.
//!
//! * [`engines`]: the durable trees and lists, each with the claims of a paper.
//! * [`formulas`]: the papers' formulas, and the expected cost of each operation (exact words and fences, bounds of flushes).
//! * [`subject`], [`lists`]: a tree or a list on memory that counts stores, flushes and fences. [`tape`]: the counts of an operation.
//!   [`survey`]: reads the path to the key of an operation before the operation.
//! * [`measure`], [`judge`]: run operations one by one, and compare the counts of each with the expected cost and the formula.
//! * [`report`], [`mod@print`]: the results as data and as text.
//! * [`categories`]: bytes by purpose, as in VLAB's figure 6a.
//!
//! A run succeeds only if every operation stores the words and passes the fences of its expected cost, flushes within its bounds, and
//! relates to the paper's formula as its [`Standing`](formulas::Standing) requires.

pub mod categories;
pub mod engines;
pub mod formulas;
pub mod judge;
pub mod lists;
pub mod measure;
pub mod print;
pub mod report;
pub mod subject;
pub mod survey;
pub mod tape;

use report::{Others, Report};

use crate::Error;

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the trees; all trees if empty.
    pub trees: Vec<String>,
    /// Cache lines of a node, for trees that support several sizes.
    pub node_lines: Vec<u64>,
    /// Bytes of an entry, for trees that support several sizes.
    pub entry_bytes: Vec<u64>,
    /// Fill factor of leaves, 0.3 to 0.9.
    pub fill: f64,
    /// Number of keys in each tree; `None` for 400 full leaves.
    pub keys: Option<u64>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            trees: Vec::new(),
            node_lines: vec![2, 4, 8],
            entry_bytes: subject::ENTRY_BYTES.to_vec(),
            fill: 0.7,
            keys: None,
            seed: 1,
        }
    }
}

/// Runs the measurement. Reports each step to `progress`.
///
/// # Errors
/// `UnknownTree`; errors of a tree; `Wrong` for a wrong answer.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let (mut rows, mut others) = (Vec::new(), Others::default());
    for engine in engines::Engine::named(&options.trees)? {
        for lines in engine.node_lines(&options.node_lines) {
            for bytes in engine.entry_bytes(&options.entry_bytes) {
                progress(&format!("{}, {lines} lines, entries of {bytes} bytes", engine.about.name));
                let measured = measure::measure(&engine, lines, bytes, options)?;
                rows.extend(measured.0);
                others.merge(measured.1);
            }
        }
    }
    Ok(Report::new(options.fill, options.seed, rows, others))
}
