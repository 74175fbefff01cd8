//! Crash-state explorer: enumerates the images that a power cut can leave in durable memory, and checks each of them.
//!
//! A [`Subject`] lives in durable memory behind [`pmem::Observed`]. The explorer runs a [`Workload`] on it and records the stores, flushes
//! and fences of each step. The crash points are before every fence that follows a store of the same step, and at the end of every step. At
//! each of them the crash model ([`mod@line`], [`model`]) derives the possible contents of each line. The explorer recovers and judges
//! every image ([`mod@judge`]).
//!
//! * [`subject`]: the interface to the code under test, workloads, and generators of workloads.
//! * [`mod@line`]: the contents that one cache line may have after a crash.
//! * [`model`]: the contents of all lines. It replays events, and fences advance the durable contents.
//! * [`tape`]: the recorder of a running subject.
//! * [`stage`]: the memory in which images are composed *lazily*, line by line as recovery reads them.
//! * `recall`: skips an image from which the subject would read the same contents as from an image judged before.
//! * [`mod@judge`]: the oracle on one image.
//! * `search`: all images of one crash point, and of the crash points inside recovery.
//! * [`mod@explore`]: a whole workload: create, steps, close.
//! * [`mutate`], [`mod@mutants`]: mutation testing. If a run leaves out a flush or a fence, the oracle must reject some image.
//! * [`region`]: the oracle's checks of the superblock and of the recorded length, for every subject.
//! * [`report`]: counts and violations of an exploration. [`workers`]: parallel explorations with a report in a fixed order.
//! * [`history`]: concurrent histories: is there an order of the operations that explains their results and the contents after a crash?
//! * [`serial`]: the same for transactions, whose operations have several keys. [`mod@order`]: the search of both.
//! * [`failing`]: durable memory whose N-th growth or sync fails, for tests of a full disk.
//! * [`machine`]: a simulated machine with files, for code that does not use mapped memory. Its power can be cut, and its calls can fail.
//!
//! Invariants:
//! * I1: a run depends only on workload, options and mutant, not on a clock, an address or a hash order.
//! * I2: between two images the stage holds exactly the known-durable words. Every change has an undo entry.
//! * I3: an image branches on a line at most once, at the line's first read. Words that recovery has stored to the line before this read do
//!   not branch.
//! * I4: the report counts everything that is not explored: capped lines, sampled crash points.
//!
//! # Example
//! One word, published, flushed and fenced. Without the fence, a crash could lose an acknowledged value.
//! ```
//! use crash::{Contents, Options, Subject, Workload, explore, explore_mutant, mutants};
//! use pmem::{Fence, Medium, Observed};
//!
//! struct Word(Observed);
//!
//! impl Subject for Word {
//!     type Op = u64;
//!     type Config = ();
//!     fn size(_: &()) -> (u64, u64) {
//!         (64, 64)
//!     }
//!     fn create(medium: Observed, _: &()) -> Result<Self, String> {
//!         Ok(Self(medium))
//!     }
//!     fn recover(medium: Observed, _: &()) -> Result<Self, String> {
//!         Ok(Self(medium))
//!     }
//!     fn apply(&mut self, value: &u64) -> Result<(), String> {
//!         self.0.publish(0, *value);
//!         self.0.flush(0, 8);
//!         self.0.fence(Fence::Commit);
//!         Ok(())
//!     }
//!     fn apply_model(value: &u64, model: &mut Contents) {
//!         model.insert(b"word".to_vec(), value.to_le_bytes().to_vec());
//!     }
//!     fn verify(&self) -> Result<Contents, String> {
//!         let word = Some(self.0.word(0)).filter(|word| *word != 0);
//!         Ok(word.map(|word| (b"word".to_vec(), word.to_le_bytes().to_vec())).into_iter().collect())
//!     }
//!     fn continuation(value: &u64) -> Vec<u64> {
//!         vec![value + 1]
//!     }
//!     fn close(self) -> Result<(), String> {
//!         Ok(())
//!     }
//! }
//!
//! let (workload, options) = (Workload::<Word>::new((), [5, 1 << 40 | 6]), Options::default());
//! let report = explore(&workload, &options);
//! assert!(!report.is_violated(), "{report}");
//! for mutant in mutants(&report) {
//!     assert!(explore_mutant(&workload, &options, Some(mutant)).is_violated(), "{mutant} survived");
//! }
//! ```
#![forbid(unsafe_code)]

mod erased;
pub mod explore;
pub mod failing;
pub mod history;
pub mod judge;
pub mod line;
pub mod machine;
pub mod model;
pub mod mutants;
pub mod mutate;
pub mod order;
pub mod panics;
pub mod points;
mod recall;
pub mod region;
pub mod report;
mod search;
pub mod serial;
pub mod stage;
pub mod subject;
pub mod tape;
pub mod tier;
pub mod workers;

pub use explore::{Options, explore, explore_all, explore_changed, explore_mutant};
pub use history::{Found, History, Operation};
pub use line::{Choices, Words};
pub use machine::{Fault, Machine, Survivors, Which};
pub use model::Model;
pub use mutants::{
    Argued, FREE_CHUNK, MutationReport, Share, Spot, Trial, injected_fault, mutants, run_mutants,
    run_some_mutants,
};
pub use mutate::{Kind, Mutant, Which as WhichLine};
pub use panics::panic_everywhere;
pub use points::{Mutated, Points};
pub use report::{Crash, Report, Violation, Worst};
pub use subject::{Contents, Step, Subject, Workload, interrupted, random, sequences};
pub use tier::{by_tier, has_turn, is_soak, seeds, turn};
pub use workers::Stage;
