//! Schedules of the registry's engines that have none in their own crate. A new engine is run here without an edit.

#[cfg(shuttle)]
mod registered;
