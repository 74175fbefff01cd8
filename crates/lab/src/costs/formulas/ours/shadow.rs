//! Shadowing: a change copies its leaf. The redo-only log switches the parent's pointer and the left neighbour's link to the copy.
//!
//! m is the number of entries of the leaf before the change, c = m + 1 (insert) or m - 1 (delete) the number after the change:
//!
//! | words | flushes | fences |
//! |---|---|---|
//! | the copy: 2 c, link and header; for each pointer that is switched (one or two): the pointer and two words of its log record | lines of the copy; lines of the log records, which have four records each | 2: the copy; the log |
//!
//! A leaf that is the root has one pointer, the root's word. The first leaf has no left neighbour. A leaf that is split is copied into two.
//! Inner nodes change through the log.

use super::write_atomic::through_redo_log;
use super::{Change, LINK, Parts, Price, Protocol, split};
use crate::costs::survey::Way;
use crate::costs::tape::Spent;

/// Protocol of shadowing. See the module's head.
pub struct Shadow;

fn copied(parts: &Parts, way: &Way, entries: usize) -> Price {
    let mut changes = vec![parts.leaf.fill(&way.leaf().shape, entries)];
    changes.extend(way.has_left_neighbour().then(|| Change::over(0, vec![LINK])));
    let parent = way.steps.iter().rev().nth(1);
    changes
        .push(parent.map_or_else(split::root_word, |parent| Change::over(0, vec![split::pointer(parent)])));
    through_redo_log(&changes, 0, &Spent::default())
}

impl Protocol for Shadow {
    fn insert(&self, parts: &Parts, way: &Way) -> Price {
        copied(parts, way, way.leaf().count() + 1)
    }

    fn split(&self, parts: &Parts, way: &Way, _after: &Way, spent: &Spent) -> Price {
        through_redo_log(&split::with_copied_leaf(parts, way), 0, spent)
    }

    fn delete(&self, parts: &Parts, way: &Way) -> Price {
        copied(parts, way, way.leaf().count() - 1)
    }

    fn copies_leaves(&self) -> bool {
        true
    }
}
