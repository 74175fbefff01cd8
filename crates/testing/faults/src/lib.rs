//! Fault injection for tests: power cuts of files, and failing system calls.
//!
//! * [`calls`]: the N-th system call on real files fails.
//! * [`disk`]: the states that a power cut can leave of a directory of real files.
//! * [`images`]: the states that a power cut can leave of the two files of a [`crash::Machine`].
//!
//! This crate is not part of the product.
#![forbid(unsafe_code)]

pub mod calls;
pub mod disk;
pub mod images;

pub use calls::{Failing, Plan};
pub use disk::{Cut, Disk, DiskImages, Lie};
pub use images::{Images, mix};
