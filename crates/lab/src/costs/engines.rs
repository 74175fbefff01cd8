//! The engines whose costs are compared: the leaf-list indexes of [`LISTS`], and the durable trees of the roster without `wbtree-keyptr`
//! and `buffer-pool`. Each has the parts of its expected cost. Some also have the claims of a paper.

use bptree::roster::{self, TREES};
use index::About;

use super::formulas::Standing::{Apart, Equal, NoLess, RoundedUp};
use super::formulas::ours::{self, Nodes, Parts, Protocol};
use super::formulas::{Allocation, Claim, Met, Paper, Standing, vlab2018, wbtree2015};
use super::lists::{self, LISTS};
use super::subject::{LeafShape, Plan, Subject};
use crate::Error;

/// Cache lines of a 4 KB node.
const PAGE_LINES: u64 = 64;

/// A paper with formulas. The papers count in different units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Source {
    /// The paper counts words. Its operations do not flush the words that the log covers.
    #[serde(rename = "wB+ table 3")]
    Wbtree2015,
    /// The paper counts bytes. Its operations flush and fence the words that the log covers.
    #[serde(rename = "VLAB table 2")]
    Vlab2018,
}

/// Formulas of a paper for the operations of an engine.
#[derive(Clone, Copy)]
pub struct Claims {
    /// The paper.
    pub source: Source,
    /// Insert without split.
    pub insert: Claim,
    /// Insert with splits.
    pub split: Claim,
    /// Delete without merge.
    pub delete: Claim,
}

/// An engine to measure.
pub struct Engine {
    /// The engine's entry in the registry.
    pub about: &'static About,
    /// The parts of its expected cost.
    pub parts: Parts,
}

impl Engine {
    /// Returns the engines of these names; all engines if `names` is empty.
    ///
    /// # Errors
    /// `UnknownTree` with the known names.
    pub fn named(names: &[String]) -> Result<Vec<Self>, Error> {
        // `wbtree-keyptr` has the costs of its inline variant. The costs of `buffer-pool` depend on when it writes dirty lines.
        let uncounted = ["wbtree-keyptr", "buffer-pool"];
        let counted = |about: &&About| about.durable && !uncounted.contains(&about.name);
        let known: Vec<&'static About> = TREES.iter().filter(counted).chain(LISTS).collect();
        if let Some(name) = names.iter().find(|name| known.iter().all(|about| about.name != **name)) {
            let known: Vec<_> = known.iter().map(|about| about.name).collect();
            return Err(Error::UnknownTree { name: name.clone(), known: known.join(", ") });
        }
        let asked = |about: &&&'static About| names.is_empty() || names.iter().any(|name| name == about.name);
        Ok(known.iter().filter(asked).map(|about| Self::of(about)).collect())
    }

    fn of(about: &'static About) -> Self {
        if lists::has(about) {
            return Self { about, parts: parts_of_list(about) };
        }
        let groups = if about.default_lines > 16 { 4 } else { 1 };
        let parts = Parts {
            leaf: nodes(about.leaf, groups),
            inner: Some(nodes(about.inner, groups)),
            protocol: protocol(about.commit_protocol),
        };
        Self { about, parts }
    }

    /// True if the engine has 4 KB nodes, as in VLAB.
    fn is_large(&self) -> bool {
        self.about.default_lines > 16
    }

    /// The node sizes to measure, given the requested ones.
    pub fn node_lines(&self, asked: &[u64]) -> Vec<u64> {
        // Slot-only nodes hold seven entries in any size. The paper uses two lines.
        if self.is_large() || self.about.leaf == "slot-only" {
            return vec![if self.is_large() { PAGE_LINES } else { self.about.default_lines }];
        }
        asked.iter().copied().filter(|lines| self.about.allows(*lines)).collect()
    }

    /// The entry sizes to measure, given the requested ones. Only trees of large nodes support several.
    pub fn entry_bytes(&self, asked: &[u64]) -> Vec<u64> {
        if self.is_large() { asked.to_vec() } else { vec![16] }
    }

    /// Maximum number of entries of a leaf.
    pub fn leaf_capacity(&self, plan: Plan) -> usize {
        let shape = match lists::has(self.about) {
            true => lists::leaf_shape(self.about, plan),
            false => roster::visit(self.about.name, LeafShape(plan)),
        };
        shape.map_or(0, |shape| shape.capacity)
    }

    /// Claims of a paper for entries of this size. The formulas are for 16-byte entries, except those of VLAB, which hold for any size.
    pub fn claims(&self, entry_bytes: u64) -> Option<Claims> {
        if entry_bytes == 16 || lists::has(self.about) { claims(self.about.name) } else { None }
    }

    /// Makes an empty index.
    ///
    /// # Errors
    /// Errors of making the index.
    pub fn make(&self, plan: Plan) -> pmem::Result<Box<dyn Subject>> {
        if lists::has(self.about) {
            return lists::make(self.about, plan);
        }
        roster::visit(self.about.name, plan).expect("the engine was taken from the roster")
    }
}

fn nodes(layout: &str, groups: usize) -> Box<dyn Nodes> {
    match layout {
        "sorted" => Box::new(ours::Sorted),
        "counter" => Box::new(ours::Counted),
        "bitmap" => Box::new(ours::Bitmap { groups }),
        "slot-only" => Box::new(ours::SlotOnly),
        "slot+bitmap" => Box::new(ours::Slotted { groups }),
        _ => panic!("no price for nodes of layout {layout}: write one"),
    }
}

/// The parts of the expected cost of a list.
fn parts_of_list(about: &About) -> Parts {
    let (leaf, protocol): (Box<dyn Nodes>, &dyn Protocol) = match (about.leaf, about.commit_protocol) {
        ("log", _) => (Box::new(ours::LogLeaf), &ours::Appended),
        ("bitmap", "one word") => (Box::new(ours::Bucket), &ours::OneWord { stepwise: false }),
        ("bitmap", "one word, step by step") => (Box::new(ours::Bucket), &ours::OneWord { stepwise: true }),
        (leaf, commit_protocol) => {
            panic!("no price for a list of {leaf} leaves and commit_protocol {commit_protocol}: write one")
        }
    };
    Parts { leaf, inner: None, protocol }
}

fn protocol(commit_protocol: &str) -> &'static dyn Protocol {
    match commit_protocol {
        "write-atomic" => &ours::WriteAtomic,
        "write-atomic, order within a line" => &ours::LineOrder,
        "write-atomic, splits step by step" => &ours::Stepwise,
        "undo-redo log" => &ours::UndoRedo,
        "redo log" => &ours::Redo,
        "shadow" => &ours::Shadow,
        _ => panic!("no price for commit_protocol {commit_protocol}: write one"),
    }
}

const SLOTS: &str = "slot arrays are written in whole words and flushed in whole lines";
const ONE_LINE: &str =
    "a departure: where valid bit and slot array share a line, its order stands for a flush and a fence";
const ONE_COMMIT: &str = "the paper splits, then inserts; here the entry is part of the split, allocation stands apart, and \
                          no valid bit is cleared where the log commits";
const RECORDS: &str = "flushes are lower bounds: a batch of records begins anywhere in a line";
const COPY: &str = "the paper's allocation costs a word, a flush and a fence: here a column of its own, and the copy has \
                    that fence";
const HOMES: &str = "home lines are flushed as they are; the paper adds a line for the log's end";
const STEPS: &str = "each split is a commit of its own, its fences are added; words and flushes depend on ranks and on what \
                     the paper takes an average of";
const BYTE: &str = "the paper counts one byte of a bitmap, here it is a word";
const CHANGED: &str = "the paper counts bytes whose value changes: they stand below, beside its value, and here are all words stored";
const STEPS_OF_ONE: &str = "the paper's row is of the split alone: the insert's own row is added; words and flushes are those of the \
                            entries that move, of which the row has all";
const ORDER_OF_STEPS: &str = "a departure: of the paper's five fences of a split two are left, for a line keeps the order of its stores";

fn claim(formula: fn(&Met) -> Paper, [written, flushes, fences]: [Standing; 3], note: &'static str) -> Claim {
    Claim { formula, written, flushes, fences, allocation: Allocation::NONE, changed: None, note }
}

fn copying(formula: fn(&Met) -> Paper, standings: [Standing; 3]) -> Claim {
    Claim { allocation: Allocation { words: 1, flushes: 1 }, ..claim(formula, standings, COPY) }
}

fn wbtree(insert: Claim, split: fn(&Met) -> Paper, delete: Claim) -> Option<Claims> {
    let split = claim(split, [Apart; 3], ONE_COMMIT);
    Some(Claims { source: Source::Wbtree2015, insert, split, delete })
}

/// Like [`wbtree`], for engines whose splits have the paper's two fences: one for new nodes, one for the log.
fn two_fences(insert: Claim, split: fn(&Met) -> Paper, delete: Claim) -> Option<Claims> {
    let split = claim(split, [Apart, Apart, Equal], ONE_COMMIT);
    Some(Claims { source: Source::Wbtree2015, insert, split, delete })
}

fn vlab(insert: Claim, split: fn(&Met) -> Paper, delete: Claim) -> Option<Claims> {
    let split = claim(split, [Apart, Apart, Equal], STEPS);
    Some(Claims { source: Source::Vlab2018, insert, split, delete })
}

/// Claims for VLAB itself, whose formulas count changed bytes.
fn vlab_itself(fences: Standing, note: &'static str) -> Option<Claims> {
    let changing = |formula, standings, changed, note| Claim {
        changed: Some(changed),
        ..claim(formula, standings, note)
    };
    let exact = [RoundedUp, Equal, Equal];
    Some(Claims {
        source: Source::Vlab2018,
        insert: changing(vlab2018::vlab_insert, exact, vlab2018::vlab_insert_changed, CHANGED),
        split: changing(vlab2018::vlab_split, [Apart, Apart, fences], vlab2018::vlab_split_changed, note),
        delete: changing(vlab2018::vlab_delete, exact, vlab2018::vlab_delete_changed, CHANGED),
    })
}

/// Claims of a paper for the engine of this name.
fn claims(name: &str) -> Option<Claims> {
    let all = [Equal; 3];
    let rounded = [RoundedUp, NoLess, Equal];
    let records = [Equal, NoLess, Equal];
    let logged = [Equal, Apart, Equal];
    match name {
        "wbtree" => wbtree(
            claim(wbtree2015::wbtree_insert, rounded, SLOTS),
            wbtree2015::wbtree_split,
            claim(wbtree2015::wbtree_delete, rounded, SLOTS),
        ),
        "wbtree-line" => wbtree(
            claim(wbtree2015::wbtree_insert, [RoundedUp, Apart, Apart], ONE_LINE),
            wbtree2015::wbtree_split,
            claim(wbtree2015::wbtree_delete, [RoundedUp, Apart, Apart], ONE_LINE),
        ),
        "wbtree-bmp" => wbtree(
            claim(wbtree2015::wbtree_one_word_insert, all, ""),
            wbtree2015::wbtree_bmp_split,
            claim(wbtree2015::wbtree_one_word_delete, all, ""),
        ),
        "wbtree-slot" => two_fences(
            claim(wbtree2015::wbtree_one_word_insert, all, ""),
            wbtree2015::wbtree_slot_split,
            claim(wbtree2015::wbtree_one_word_delete, all, ""),
        ),
        "btree-log" => wbtree(
            claim(wbtree2015::btree_log_insert, all, ""),
            wbtree2015::btree_log_split,
            claim(wbtree2015::btree_log_delete, all, ""),
        ),
        "unsorted-log" => wbtree(
            claim(wbtree2015::unsorted_log_insert, records, RECORDS),
            wbtree2015::unsorted_log_split,
            claim(wbtree2015::unsorted_log_delete, all, ""),
        ),
        "ubmp-log" => wbtree(
            claim(wbtree2015::unsorted_log_insert, records, RECORDS),
            wbtree2015::ubmp_log_split,
            claim(wbtree2015::ubmp_log_delete, all, ""),
        ),
        "btree-shadow" | "unsorted-shadow" | "ubmp-shadow" | "trad-4k-shadow" => two_fences(
            copying(wbtree2015::shadow_insert, records),
            wbtree2015::shadow_split,
            copying(wbtree2015::shadow_delete, records),
        ),
        "trad-4k" => vlab(
            claim(vlab2018::trad_insert, logged, HOMES),
            vlab2018::trad_split,
            claim(vlab2018::trad_delete, logged, HOMES),
        ),
        "cnt-4k" => vlab(
            claim(vlab2018::cnt_insert, logged, HOMES),
            vlab2018::cnt_split,
            claim(vlab2018::cnt_delete, logged, HOMES),
        ),
        "bmp-4k" => vlab(
            claim(vlab2018::bmp_insert, [RoundedUp, Apart, Equal], BYTE),
            vlab2018::bmp_split,
            claim(vlab2018::bmp_delete, [RoundedUp, Apart, Equal], BYTE),
        ),
        "wb-4k" => vlab(
            claim(vlab2018::wb_insert, rounded, SLOTS),
            vlab2018::wb_split,
            claim(vlab2018::wb_delete, rounded, SLOTS),
        ),
        "vlab" => vlab_itself(Apart, ORDER_OF_STEPS),
        "vlab-faithful" => vlab_itself(Equal, STEPS_OF_ONE),
        _ => None,
    }
}
