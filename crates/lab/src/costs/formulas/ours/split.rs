//! The changes of an insert with splits. Some trees commit all splits and the new entry at once, others commit each split separately.
//!
//! A full node is split in the middle of its entries. A tree that commits everything at once counts the new entry among
//! them. The middle entry of an inner node moves up to the parent. If the new key is above all others, the left node
//! keeps as many entries as it can.

use super::{Change, Cut, LINK, Nodes, Parts, Run};
use crate::costs::survey::{Step, Way};

/// Numbers of entries of both nodes after a split.
struct Halves {
    left: usize,
    right: usize,
}

impl Halves {
    /// Split of a node with this many entries. `appending`: the new key is above all others.
    fn of(entries: usize, level: usize, appending: bool) -> Self {
        // The middle entry of an inner node moves up and stays on neither side.
        let risen = usize::from(level > 0);
        let left = if appending { entries - 1 - risen } else { entries / 2 };
        Self { left, right: entries - left - risen }
    }
}

/// The pointer from an inner node to the next node on the path.
pub fn pointer(node: &Step) -> Run {
    match node.rank.checked_sub(1) {
        None => LINK,
        Some(rank) => {
            let place = u64::from(node.numbers[rank]);
            Run::new(node.shape.payloads_at + place * node.shape.payload_step, 1)
        }
    }
}

/// A new root above the old one, and the change of the root's word.
fn new_root(parts: &Parts, way: &Way) -> [Change; 2] {
    let inner = way.inner.as_ref().expect("only trees grow upwards");
    [parts.nodes(1).fill(inner, 1), root_word()]
}

/// Change of the root's word.
pub fn root_word() -> Change {
    Change::over(0, vec![Run::new(0, 1)])
}

/// The changes of a split of all full nodes at the end of the path, in one commit with the entry. For each of them: the new node, and the
/// part that stays in the old one. Then the node that receives the last separator, or a new root.
pub fn at_once(parts: &Parts, way: &Way) -> Vec<Change> {
    raise(parts, way, Vec::new(), way.steps.len(), false)
}

/// The same for a leaf that is copied: a new node for either half, the left neighbour's link to the copy, and the parent's pointer to it.
/// (Inner nodes are sorted.)
pub fn with_copied_leaf(parts: &Parts, way: &Way) -> Vec<Change> {
    let leaf = way.leaf();
    let halves = Halves::of(leaf.count() + 1, 0, way.last && leaf.is_behind_all());
    let mut changes =
        vec![parts.leaf.fill(&leaf.shape, halves.right), parts.leaf.fill(&leaf.shape, halves.left)];
    changes.extend(way.has_left_neighbour().then(|| Change::over(0, vec![LINK])));
    raise(parts, way, changes, way.steps.len() - 1, true)
}

/// Changes the first `steps` nodes of the path from the bottom up. `copied`: the child of the lowest one was copied, so the pointer to it
/// changes.
fn raise(parts: &Parts, way: &Way, mut changes: Vec<Change>, steps: usize, mut copied: bool) -> Vec<Change> {
    let appending = way.last && way.leaf().is_behind_all();
    for step in way.steps[..steps].iter().rev() {
        let nodes = parts.nodes(step.level);
        let copied = std::mem::take(&mut copied);
        if !step.is_full() {
            let mut change = nodes.insert(step);
            change.over.extend(copied.then(|| pointer(step)));
            changes.push(change);
            return changes;
        }
        changes.extend(split_with_newcomer(nodes, step, appending && step.is_behind_all(), copied));
    }
    changes.extend(new_root(parts, way));
    changes
}

/// The two changes of a full node that is split together with the insert.
fn split_with_newcomer(nodes: &dyn Nodes, step: &Step, appending: bool, copied: bool) -> [Change; 2] {
    let halves = Halves::of(step.count() + 1, step.level, appending);
    let joins = step.rank < halves.left;
    let cut = Cut {
        keep: halves.left - usize::from(joins),
        join: joins.then_some(step.rank),
        relink: step.level == 0 || (copied && step.rank == 0),
    };
    let mut shrink = nodes.shrink(step, cut);
    if copied && (1..=halves.left).contains(&step.rank) {
        shrink.over.insert(0, pointer(step));
    }
    [nodes.fill(&step.shape, halves.right), shrink]
}

/// The commits of a split in steps, topmost full node first, and the path to the key afterwards. `after` is the actual path after the
/// operation; it supplies the offsets of the new nodes.
pub fn stepwise(parts: &Parts, way: &Way, after: &Way) -> (Vec<Vec<Change>>, Way) {
    let mut way = way.clone();
    let mut commits = Vec::new();
    while way.leaf().is_full() {
        let inner = way.steps.len() - 1;
        let above = way.steps[..inner].iter().rev().take_while(|step| step.is_full()).count();
        commits.push(split_one(parts, &mut way, inner - above));
        for (step, found) in way.steps.iter_mut().rev().zip(after.steps.iter().rev()) {
            if step.node == 0 {
                step.node = found.node;
            }
        }
    }
    (commits, way)
}

/// Splits one full node of the path. Its parent has space.
fn split_one(parts: &Parts, way: &mut Way, index: usize) -> Vec<Change> {
    let inner = way.steps.len() - 1;
    let step = &way.steps[index];
    let nodes = parts.nodes(step.level);
    let appending = match step.level {
        0 => way.last && step.is_behind_all(),
        _ => way.steps[..inner].iter().all(Step::is_behind_all),
    };
    let halves = Halves::of(step.count(), step.level, appending);
    let cut = Cut { keep: halves.left, join: None, relink: step.level == 0 };
    let mut changes = vec![nodes.fill(&step.shape, halves.right), nodes.shrink(step, cut)];
    let goes_right = step.rank > halves.left;
    let half = half_of(nodes, step, cut, goes_right, halves.right);
    match index.checked_sub(1) {
        Some(parent) => {
            let parent = &mut way.steps[parent];
            let nodes = parts.nodes(parent.level);
            changes.push(nodes.insert(parent));
            parent.numbers = nodes.inserted(parent);
            parent.rank += usize::from(goes_right);
        }
        None => changes.extend(new_root(parts, way)),
    }
    way.steps[index] = half;
    if index == 0 {
        let level = way.steps[0].level + 1;
        let rank = usize::from(goes_right);
        let shape = way.inner.expect("only trees grow upwards");
        way.steps.insert(0, Step { node: 0, level, numbers: vec![0], rank, shape, logged: None });
    }
    changes
}

/// The half of a split node that is on the path.
fn half_of(nodes: &dyn Nodes, step: &Step, cut: Cut, right: bool, right_count: usize) -> Step {
    if !right {
        return Step { numbers: nodes.kept(step, cut), ..step.clone() };
    }
    let risen = usize::from(step.level > 0);
    let numbers = nodes.filled(&step.shape, right_count);
    Step { node: 0, numbers, rank: step.rank - cut.keep - risen, ..step.clone() }
}
