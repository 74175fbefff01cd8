//! Crash-state explorer: enumerates what a power cut can leave of durable memory, and checks every image.
//!
//! A [`Subject`] lives in durable memory behind [`pmem::Observed`]. A [`Workload`] is run on it; the stores, flushes and
//! fences of each step are recorded; before every fence and at the end of every step the crash model ([`line`],
//! [`model`]) says what each line may hold, and every image is recovered and judged ([`judge`]).
//!
//! * [`subject`]: what the crate asks of the thing under test, workloads, and generators of workloads.
//! * [`line`]: the contents one cache line may have after a crash.
//! * [`model`]: the same for all lines: replays events, advances what is durable at fences.
//! * [`tape`]: the recorder of a running subject.
//! * [`stage`]: the memory in which images are composed *lazily*, line by line as recovery reads them.
//! * [`judge`]: the oracle on one image.
//! * [`search`]: all images of one crash point, and of the crash points inside recovery.
//! * [`explore`]: a whole workload: create, steps, close.
//! * [`mutate`], [`mutants`]: the reverse proof: without any one flush or fence some image must break.
//! * [`report`]: what was explored and what was found.
//!
//! Invariants of the room:
//! * I1: everything is a function of workload, options and mutant; no clock, address or hash order takes part.
//! * I2: between two images the stage holds exactly the known-durable words (every change has an undo entry).
//! * I3: a line is branched on at most once per image, when it is first read or first stored to.
//! * I4: what is not explored is counted: capped lines, sampled crash points.
#![forbid(unsafe_code)]

pub mod explore;
pub mod judge;
pub mod line;
pub mod model;
pub mod mutants;
pub mod mutate;
pub mod report;
pub mod search;
pub mod stage;
pub mod subject;
pub mod tape;

pub use explore::{Options, explore, explore_mutant};
pub use line::{Choices, Words};
pub use model::Model;
pub use mutants::{Argued, MutationReport, Spot, mutants, run_mutants};
pub use mutate::{Kind, Mutant};
pub use report::{Crash, Report, Violation, Worst};
pub use subject::{Contents, Step, Subject, Workload, interrupted, random, sequences};
