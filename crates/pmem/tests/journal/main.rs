//! The journal medium under power cuts, failing calls and damage.
//!
//! They run on [`crash::Machine`]. `life`: random programs and what may be found after a crash. `power`, `faults`, `damage`: one
//! way to go wrong each. `restart`: a process that ends before the power does. `syncs`: each sync left out. `beside`: two of them
//! with a second thread. `files`: real files, with a checkpoint thread and readers. `memory`: what is given up. `space`: what goes back to the file system. `copy`: copies and
//! views of a pair.

mod beside;
mod copy;
mod damage;
mod faults;
mod files;
mod growth;
mod life;
mod memory;
mod power;
mod restart;
mod space;
mod syncs;
