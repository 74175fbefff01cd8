//! Mutants that no image can break, each with the invariant that makes it so.

use crash::{Argued, Kind, Spot};
use tree::discipline::Discipline;
use tree::layout::Layout;
use tree::roster::About;
use tree::{LineOrder, Redo, Slotted, Stepwise, UndoRedo, WriteAhead, WriteAtomic};

use crate::lists;

const WRITE_ATOMIC: &str = include_str!("../../tree/src/discipline/write_atomic.rs");
const LOG: &str = include_str!("../../pmem/src/log/mod.rs");

/// The canary: the fence that an engine's discipline rests on most.
pub fn canary(about: &About) -> Spot {
    if lists::has(about) {
        return lists::argued::canary();
    }
    match about.discipline {
        UndoRedo::NAME => Spot::new(
            Kind::DropFence(pmem::Fence::Undo),
            "pmem/src/log/mod.rs",
            LOG,
            "medium.fence(if last { Fence::Commit } else { Fence::Undo });",
        ),
        Redo::NAME | WriteAhead::NAME => Spot::new(
            Kind::DropFence(pmem::Fence::Commit),
            "pmem/src/log/mod.rs",
            LOG,
            "medium.fence(Fence::Commit);",
        ),
        // Between a change's payload and the publish that commits it.
        _ => Spot::new(
            Kind::DropFence(pmem::Fence::Payload),
            "discipline/write_atomic.rs",
            WRITE_ATOMIC,
            "medium.fence(Fence::Payload);",
        ),
    }
}

/// The arguments that an engine needs: one to four.
pub fn argued(about: &About) -> Vec<Argued> {
    if lists::has(about) {
        return lists::argued::argued();
    }
    let lap = Argued {
        spot: Spot::new(Kind::SplitPublish, "pmem/src/log/mod.rs", LOG, "medium.publish(at, tag.word());"),
        why: "L2: the lap is in the upper half, so a record of which only the lower half was stored still carries an older \
              lap and is not read",
    };
    let guard = Argued {
        spot: Spot::new(
            Kind::SwapPublish,
            "discipline/write_atomic.rs",
            WRITE_ATOMIC,
            "medium.publish(at, word);",
        ),
        why: "W2: a cleared valid bit means that the order is derived, which is right at any time; what matters, and is not \
              swapped, is the fence behind it",
    };
    let early_guard = Argued { spot: Spot { kind: Kind::EarlyPublish, ..guard.spot }, ..guard };
    let wiped = Argued {
        spot: Spot::new(
            Kind::DropLine(crash::WhichLine::Nth(0)),
            "pmem/src/log/settle.rs",
            include_str!("../../pmem/src/log/settle.rs"),
            "medium.flush(LOG_AT, self.lines * LINE);",
        ),
        why: "L2: a lap's first record is published in that line, and no publish is durable without the stores to its line before it: \
              the wipe's. Until then the line begins with a record of the lap before, with another tag",
    };
    let homes = Argued {
        spot: Spot::new(
            Kind::DropFence(pmem::Fence::Home),
            "discipline/redo.rs",
            include_str!("../../tree/src/discipline/redo.rs"),
            "medium.fence(Fence::Home);",
        ),
        why: "L1: home words are made durable before their lap is void, whether or not an operation waits for them; VLAB's \
              table 2 prescribes the fence",
    };
    let closed = Argued {
        spot: Spot::new(
            Kind::SwapPublish,
            "pmem/src/alloc.rs",
            include_str!("../../pmem/src/alloc.rs"),
            "region.medium().publish(chunk, 0);",
        ),
        why: "A4: where every change is logged, the lap that is settled just before holds this operation's commit, so the swap \
              crosses the settling's last fence alone: at worst a replay writes into a chunk that is free",
    };
    let closed_early = Argued { spot: Spot { kind: Kind::EarlyPublish, ..closed.spot }, ..closed };
    let opened = Argued {
        spot: Spot::new(
            Kind::SwapPublish,
            "pmem/src/alloc.rs",
            include_str!("../../pmem/src/alloc.rs"),
            "medium.publish(at, 0);",
        ),
        why: "A3: the chunk was free before the operation began, so that it is may be durable at any time; what matters, and is not \
              swapped, is that it is so before its bitmap is written over",
    };
    // Inner nodes change through the log, where no valid bit is cleared.
    let is_guarded = about.leaf == <Slotted>::NAME;
    let in_place = [WriteAtomic::NAME, Stepwise::NAME, LineOrder::NAME].contains(&about.discipline);
    let mut argued = vec![lap];
    // In a pool all publishes are one place, the pool's, and that one is killed.
    argued.extend((about.discipline != WriteAhead::NAME).then_some(opened));
    argued.push(wiped);
    argued.extend((is_guarded && in_place).then_some(guard));
    // Of these several nodes change together, and so several guards behind one fence.
    let in_waves = [WriteAtomic::NAME, LineOrder::NAME].contains(&about.discipline);
    argued.extend((is_guarded && in_waves).then_some(early_guard));
    argued.extend((about.discipline == Redo::NAME).then_some(homes));
    let is_logged = [UndoRedo::NAME, Redo::NAME].contains(&about.discipline);
    argued.extend(is_logged.then_some([closed, closed_early]).into_iter().flatten());
    argued
}
