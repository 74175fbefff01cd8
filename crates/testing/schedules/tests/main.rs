//! Schedules of the registry's engines that have none in their own crate, and of transactions. The tests run a new engine without an edit
//! here.

#[cfg(shuttle)]
mod registered;
#[cfg(shuttle)]
mod transactions;
