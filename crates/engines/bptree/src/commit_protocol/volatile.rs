//! A commit protocol without durability: it stores the words of each edit without a fence. Measurements use it as the baseline for the
//! durable commit protocols.

use pmem::{Medium, Result};

use super::{Change, CommitProtocol};

/// See the module's head.
#[derive(Debug)]
pub struct Volatile;

impl CommitProtocol for Volatile {
    const NAME: &'static str = "volatile";
    type Memory<M: Medium> = M;
    const DURABLE: bool = false;
    const SHARES_FENCES: bool = true;

    #[inline(always)]
    fn commit<M: Medium>(change: Change<'_, M>) -> Result<()> {
        let Change { region, allocator, edits, .. } = change;
        let medium = region.medium();
        for edit in edits {
            for (from, to) in edit.moves.iter().flat_map(|words| words.each()) {
                medium.copy(to, medium.word(from));
            }
            for (at, word) in edit.fresh.iter().chain(&edit.guarded).chain(&edit.switch) {
                medium.copy(*at, *word);
            }
        }
        allocator.flip(region);
        Ok(())
    }
}
