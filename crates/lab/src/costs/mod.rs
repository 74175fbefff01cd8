//! `bristlecone-lab costs`: words, flushes and fences of an operation, measured, beside the papers' formulas.
//!
//! * [`engines`]: the durable trees and lists, and what a paper says of each.
//! * [`formulas`]: the papers' formulas, and our own prices: exact for each operation.
//! * [`subject`], [`lists`], [`tape`], [`survey`]: a tree, or a list, on memory that counts; what an operation did; what it was about
//!   to meet.
//! * [`measure`], [`judge`]: operations one by one, each priced before it is counted, and held against both.
//! * [`report`], [`mod@print`]: the table, as data and as people read it.
//! * [`categories`]: bytes by what they are for, as VLAB's figure 6a has them.
//!
//! A run is good only if every single operation stored the words and passed the fences of our price, flushed within its
//! bounds, and stands to the paper's formula as its [`Standing`](formulas::Standing) says.

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

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Trees, by name; all if there are none.
    pub trees: Vec<String>,
    /// Lines of a node, for trees that have a choice.
    pub node_lines: Vec<u64>,
    /// Bytes of an entry, for trees that have a choice.
    pub entry_bytes: Vec<u64>,
    /// How full leaves are, 0.3 to 0.9.
    pub fill: f64,
    /// Keys in each tree; by default 400 full leaves.
    pub keys: Option<u64>,
    /// Seed of everything random.
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

/// Measures, telling `progress` what is going on.
///
/// # Errors
/// `UnknownTree`; what a tree says; `Wrong` if one answers wrongly.
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
