//! Reads the entries of a leaf alone, without the tree or the table to which the leaf belonged.

use pmem::{Medium, Region};

use crate::meta::Meta;
use crate::node::{Entry, Node, Shape};
use crate::structure::Structure;
use crate::version::View;

/// All used entries of the node at `at`, if it is a leaf of a tree or a node of a table. If the list of dead versions can be read, entries
/// that a dead version began are left out, and entries that a dead version ended live again. A replaced leaf has entries that never ended.
/// So among the entries of one key, the entry with the newest start is the latest one.
pub fn entries<M: Medium, X: Structure>(region: &Region<M>, at: u64) -> Vec<Entry> {
    let medium = region.medium();
    if !X::is_leaf(medium, Node(at)) {
        return Vec::new();
    }
    let meta = region.root().ok().map(Meta);
    let state = meta.and_then(|meta| Some((meta, meta.read(medium).ok()?)));
    let view = state.and_then(|(meta, state)| {
        Some(View { version: state.current, dead: meta.read_dead(medium, state.current).ok()? })
    });
    let root = state.map_or(0, |(_, state)| state.root);
    let shape = Shape::new(region.identity().node_lines);
    let entries = (0..shape.slots).map(|slot| Node(at).entry(medium, slot)).filter(|entry| entry.start != 0);
    let entries = entries.filter(|entry| X::is_at_home(medium, root, Node(at), entry));
    let Some(view) = view else { return entries.collect() };
    let lives = |entry: &Entry| !view.is_void(entry.start) && !view.is_dead(entry.start);
    let is_ended = |end| end != 0 && end <= view.version && !view.is_dead(end);
    entries
        .filter(lives)
        .map(|entry| Entry { end: if is_ended(entry.end) { entry.end } else { 0 }, ..entry })
        .collect()
}
