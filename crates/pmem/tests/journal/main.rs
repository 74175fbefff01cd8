//! The journal medium under power cuts, failing calls and damage.
//!
//! The tests run on [`crash::Machine`], except `files`, `space` and `copy`, which mainly use real files. `life`: random sequences of groups
//! and the possible states after a crash. `power`, `faults`, `damage`: one kind of fault each. `restart`: a process that ends some time
//! before a power cut. `syncs`: each sync left out. `growth`: growth of the data file. `beside`: power cuts and faults with a second
//! thread. `files`: a checkpoint thread and readers. `memory`: dropped pages. `space`: storage that is freed in the file system. `copy`:
//! copies and views of the two files.

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
