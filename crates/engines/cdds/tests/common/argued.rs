//! Equivalent mutants of the CDDS structures, with their reasons. The crash exploration of tables uses these lists, too.

use crash::{Argued, FREE_CHUNK, Kind};

pub const META: &str = include_str!("../../src/meta.rs");
const ALLOC: &str = include_str!("../../../../pmem/src/heap/alloc/allocator.rs");

/// The line that stores a count.
const COUNT: &str = "medium.publish(self.word_at(if holds_old { 4 } else { 3 }), count_word(state));";
/// The line that ends an interval of dead versions.
pub const LAST: &str = "medium.publish(at + WORD, hi);";
const COUNT_IS_UNREAD: &str =
    "a count is read only if it is of the current version, which is published behind the fence";
pub const INTERVAL_IS_DEAD: &str = "V1: in a free slot an interval is none before its first version is published; one that grows says \
     of a version that was not committed, and never will be, that it is dead";

/// Equivalent mutants of trees and hash tables.
pub const ARGUED: [Argued; 4] = [
    Argued::new(Kind::SwapPublish, "cdds/src/meta.rs", META, COUNT, COUNT_IS_UNREAD),
    Argued::new(
        Kind::SplitPublish,
        "cdds/src/meta.rs",
        META,
        COUNT,
        "the version is in the upper half: of half a count it is still an older one, and no lookup reads it",
    ),
    Argued::new(
        Kind::EarlyPublish,
        "pmem/src/heap/alloc/allocator.rs",
        ALLOC,
        "medium.publish(at, class.word());",
        "A3: a free chunk's bitmap is durably zero, so a chunk that is opened too early is an open one without blocks, which \
         recovery frees",
    ),
    FREE_CHUNK,
];

/// Equivalent mutants of trees, besides [`ARGUED`].
pub const ARGUED_OF_TREES: [Argued; 2] = [
    Argued::new(Kind::EarlyPublish, "cdds/src/meta.rs", META, COUNT, COUNT_IS_UNREAD),
    Argued::new(Kind::SwapPublish, "cdds/src/meta.rs", META, LAST, INTERVAL_IS_DEAD),
];
