//! Threads that do work for the upkeep: calls of the system that take long, as reads ahead and writes. The upkeep is one
//! thread, and with data beyond memory all updates wait for it. Nearly a third of its time went into requests for reads, and into writes.
//!
//! A helper does its jobs one after the other, in the order in which it gets them.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Number of jobs that wait.
const WAITING: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// A thread. It ends when this value is dropped, after its last job.
#[derive(Debug)]
pub(crate) struct Helper {
    /// `None` while it is dropped.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts a thread. `None` if the system has none to give.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let (jobs, taken) = sync_channel::<Job>(WAITING);
        let work = move || taken.iter().for_each(|job| job());
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work).ok()?;
        Some(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Gives the thread a job. If too many wait, the caller does it.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let Some(jobs) = &self.jobs else { return job() };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = jobs.try_send(Box::new(job)) {
            job();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A job that panicked has ended the thread, and has left no result.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn all_jobs_are_done_by_the_end() {
        let (helper, done) = (Helper::start("test").unwrap(), Arc::new(Mutex::new(Vec::new())));
        for number in 0..1000 {
            let done = Arc::clone(&done);
            helper.run(move || done.lock().unwrap().push(number));
        }
        drop(helper);
        let mut done = done.lock().unwrap().clone();
        done.sort_unstable();
        assert_eq!(done, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_helper_that_panicked_leaves_the_jobs_to_the_caller() {
        let helper = Helper::start("test").unwrap();
        helper.run(|| panic!("a job of a test panics"));
        let thread = helper.thread.as_ref().unwrap();
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        let done = Arc::new(Mutex::new(false));
        let own = Arc::clone(&done);
        helper.run(move || *own.lock().unwrap() = true);
        assert!(*done.lock().unwrap());
    }
}
