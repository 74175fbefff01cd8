//! Equivalent mutants: no crash image of such a mutant can have a violation. Each entry gives the invariant that is the reason.

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layout;
use bptree::{LineOrder, Redo, Slotted, Stepwise, UndoRedo, WriteAhead, WriteAtomic};
use crash::{Argued, FREE_CHUNK, Kind, Spot};
use index::About;

use crate::general;

const WRITE_ATOMIC: &str = include_str!("../../../engines/bptree/src/commit_protocol/write_atomic.rs");
const LOG: &str = include_str!("../../../pmem/src/heap/log/redo.rs");

/// Returns the injected fault that must be detected: the most important fence of an engine's commit protocol is missing.
pub fn injected_fault(about: &About) -> Spot {
    if general::has(about) {
        return general::argued::injected_fault(about);
    }
    match about.commit_protocol {
        UndoRedo::NAME => Spot::new(
            Kind::DropFence(pmem::Fence::Undo),
            "pmem/src/heap/log/redo.rs",
            LOG,
            "medium.fence(if last { Fence::Commit } else { Fence::Undo });",
        ),
        Redo::NAME | WriteAhead::NAME => Spot::new(
            Kind::DropFence(pmem::Fence::Commit),
            "pmem/src/heap/log/redo.rs",
            LOG,
            "medium.fence(Fence::Commit);",
        ),
        // Between a change's payload and the publish that commits it.
        _ => Spot::new(
            Kind::DropFence(pmem::Fence::Payload),
            "commit_protocol/write_atomic.rs",
            WRITE_ATOMIC,
            "medium.fence(Fence::Payload);",
        ),
    }
}

/// Equivalent mutants of the guards of inner nodes, for trees whose leaves have no guards. Such a tree changes an inner node in place only
/// when it frees blocks after a clear.
fn guards_of_garbage(guard: Argued) -> Vec<Argued> {
    let why = "U1: a step of freeing removes the last separator of a node, which changes one word of the slot array, and no reader reads garbage: the \
               entries are the same before and after, whether the order comes from the slot array or from the keys";
    let of = |kind, text| Argued {
        spot: Spot::new(kind, "commit_protocol/write_atomic.rs", WRITE_ATOMIC, text),
        why,
    };
    vec![
        Argued { why, ..guard },
        of(Kind::DropFlush, "medium.flush(at, WORD);"),
        of(Kind::DropFence(pmem::Fence::Guard), "medium.fence(Fence::Guard);"),
    ]
}

/// Returns the equivalent mutants of an engine.
pub fn argued(about: &About) -> Vec<Argued> {
    if general::has(about) {
        return general::argued::argued(about);
    }
    let generation = Argued {
        spot: Spot::new(
            Kind::SplitPublish,
            "pmem/src/heap/log/redo.rs",
            LOG,
            "medium.publish(at, tag.word());",
        ),
        why: "L2: the upper half of the tag contains the generation, so a record of which only the lower half was stored has an older \
              generation and is not read",
    };
    let guard = Argued {
        spot: Spot::new(
            Kind::SwapPublish,
            "commit_protocol/write_atomic.rs",
            WRITE_ATOMIC,
            "medium.publish(at, word);",
        ),
        why: "W2: while the valid bit is cleared, the order is derived from the keys, which is correct at any time; the fence after \
              the publish stays",
    };
    let early_guard = Argued { spot: Spot { kind: Kind::EarlyPublish, ..guard.spot }, ..guard };
    let awaited_data_words = Argued {
        spot: Spot::new(
            Kind::DropFence(pmem::Fence::Home),
            "commit_protocol/redo.rs",
            include_str!("../../../engines/bptree/src/commit_protocol/redo.rs"),
            "medium.fence(Fence::Home);",
        ),
        why: "L1: data words become durable before their log generation is void, also if no operation waits for them; the fence is \
              in table 2 of VLAB",
    };
    let closed = Argued {
        spot: Spot::new(
            Kind::SwapPublish,
            "pmem/src/heap/alloc/allocator.rs",
            include_str!("../../../pmem/src/heap/alloc/allocator.rs"),
            "region.medium().publish(chunk, 0);",
        ),
        why: "A4: in engines that log every change, the log generation that is truncated just before contains this operation's commit, \
              so the swap crosses only the last fence of the truncation; at worst a replay writes into a free chunk",
    };
    let closed_early = Argued { spot: Spot { kind: Kind::EarlyPublish, ..closed.spot }, ..closed };
    // Inner nodes change through the log, which clears no valid bit.
    let is_guarded = about.leaf == <Slotted>::NAME;
    let in_place = [WriteAtomic::NAME, Stepwise::NAME, LineOrder::NAME].contains(&about.commit_protocol);
    let mut argued = vec![generation];
    // A buffer pool writes the publish that opens a chunk back with the chunk's header. In its engine this mutant is killed.
    argued.extend((about.commit_protocol != WriteAhead::NAME).then_some(FREE_CHUNK));
    // A write group clears the valid bits of several nodes before one fence. A node with four groups of entries has four valid bits.
    argued.extend((is_guarded && in_place).then_some([guard, early_guard]).into_iter().flatten());
    if about.leaf != <Slotted>::NAME && about.inner == <Slotted>::NAME && in_place {
        argued.extend(guards_of_garbage(guard));
    }
    argued.extend((about.commit_protocol == Redo::NAME).then_some(awaited_data_words));
    let is_logged = [UndoRedo::NAME, Redo::NAME].contains(&about.commit_protocol);
    argued.extend(is_logged.then_some([closed, closed_early]).into_iter().flatten());
    argued
}
