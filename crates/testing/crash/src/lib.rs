//! Crash-state explorer: enumerates what a power cut can leave of durable memory, and checks every image.
//!
//! A [`Subject`] lives in durable memory behind [`pmem::Observed`]. A [`Workload`] is run on it; the stores, flushes and
//! fences of each step are recorded; before every fence and at the end of every step the crash model ([`mod@line`],
//! [`model`]) says what each line may hold, and every image is recovered and judged ([`mod@judge`]).
//!
//! * [`subject`]: what the crate asks of the thing under test, workloads, and generators of workloads.
//! * [`mod@line`]: the contents one cache line may have after a crash.
//! * [`model`]: the same for all lines: replays events, advances what is durable at fences.
//! * [`tape`]: the recorder of a running subject.
//! * [`stage`]: the memory in which images are composed *lazily*, line by line as recovery reads them.
//! * `recall`: what was read before need not be read again.
//! * [`mod@judge`]: the oracle on one image.
//! * `search`: all images of one crash point, and of the crash points inside recovery.
//! * [`mod@explore`]: a whole workload: create, steps, close.
//! * [`mutate`], [`mod@mutants`]: the reverse proof: without any one flush or fence some image must break.
//! * [`region`]: what the oracle of every subject asks of the superblock and of the noted length.
//! * [`report`]: what was explored and what was found. [`workers`]: explorations side by side, the report in a fixed order.
//! * [`history`]: for threads beside each other: can what they were told, and what is there after a crash, be explained?
//! * [`failing`]: for what meets a full disk: durable memory whose N-th growth or sync fails.
//! * [`machine`]: for what goes through files in place of lines: a machine whose power can be cut and whose calls can fail.
//!
//! Invariants of the space:
//! * I1: everything is a function of workload, options and mutant; no clock, address or hash order takes part.
//! * I2: between two images the stage holds exactly the known-durable words (every change has an undo entry).
//! * I3: a line is branched on at most once per image, when it is first read; words stored before that do not branch.
//! * I4: what is not explored is counted: capped lines, sampled crash points.
//!
//! # Example
//! One word, published, flushed and fenced. Without the fence an acknowledged value could be lost.
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
pub mod panics;
pub mod points;
mod recall;
pub mod region;
pub mod report;
mod search;
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
    Argued, FREE_CHUNK, MutationReport, Share, Spot, Trial, canary, mutants, run_mutants, run_some_mutants,
};
pub use mutate::{Kind, Mutant, Which as WhichLine};
pub use panics::panic_everywhere;
pub use points::{Mutated, Points};
pub use report::{Crash, Report, Violation, Worst};
pub use subject::{Contents, Step, Subject, Workload, interrupted, random, sequences};
pub use tier::{by_tier, has_turn, is_soak, seeds, turn};
pub use workers::Stage;
