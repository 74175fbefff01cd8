//! What a leaf holds, read without the tree around it.

use pmem::{Medium, Region};

use crate::meta::Meta;
use crate::node::{Entry, Header, Node, Shape};
use crate::version::View;

/// Every entry that stands in the node at `at`, if that is a leaf. What a dead version began is left out and what it ended lives,
/// where the list of dead versions can still be read. A leaf that was replaced has entries that never ended: the one with the
/// newest start is a key's last.
pub fn entries<M: Medium>(region: &Region<M>, at: u64) -> Vec<Entry> {
    let medium = region.medium();
    if Header::read(medium, Node(at)).is_none_or(|header| header.level != 0) {
        return Vec::new();
    }
    let view = region.root().ok().map(Meta).and_then(|meta| {
        let state = meta.read(medium).ok()?;
        Some(View { version: state.current, dead: meta.read_dead(medium, state.current).ok()? })
    });
    let shape = Shape::new(region.identity().node_lines);
    let entries = (0..shape.slots).map(|slot| Node(at).entry(medium, slot)).filter(|entry| entry.start != 0);
    let Some(view) = view else { return entries.collect() };
    let lives = |entry: &Entry| !view.is_void(entry.start) && !view.is_dead(entry.start);
    let is_ended = |end| end != 0 && end <= view.version && !view.is_dead(end);
    entries
        .filter(lives)
        .map(|entry| Entry { end: if is_ended(entry.end) { entry.end } else { 0 }, ..entry })
        .collect()
}
