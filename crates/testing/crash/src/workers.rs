//! Runs independent work items on several worker threads. The results have the order of the items and do not depend on the assignment of
//! items to threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Progress of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Name of the stage.
    pub stage: &'static str,
    /// Number of completed items.
    pub done: usize,
    /// Number of all items.
    pub total: usize,
    /// Name of the item started last.
    pub piece: &'a str,
}

/// Callback for progress. Any worker thread may call it.
pub type Say<'a> = dyn Fn(Progress<'_>) + Sync + 'a;

/// A stage: its name, its number of threads, and its progress callback.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// Name of the stage.
    pub name: &'static str,
    /// Maximum number of threads.
    pub threads: usize,
    /// Progress callback.
    pub say: &'a Say<'a>,
}

impl Stage<'_> {
    /// A stage without a callback, with as many threads as processors.
    pub fn quiet() -> Stage<'static> {
        Stage { name: "", threads: processors(), say: &|_| {} }
    }

    /// Runs `work` on each of `pieces` and returns the results in their order.
    pub fn map<P: Sync, R: Send>(
        &self,
        pieces: &[P],
        name: impl Fn(&P) -> String + Sync,
        work: impl Fn(&P) -> R + Sync,
    ) -> Vec<R> {
        let results: Vec<Mutex<Option<R>>> = pieces.iter().map(|_| Mutex::new(None)).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let tell = |piece: &str| {
            let (done, total) = (done.load(Ordering::Relaxed), pieces.len());
            (self.say)(Progress { stage: self.name, done, total, piece });
        };
        let worker = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(piece) = pieces.get(index) else { return };
                tell(&name(piece));
                let result = work(piece);
                *results[index].lock().expect("nobody panics while it holds a result") = Some(result);
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            (0..self.threads.clamp(1, pieces.len().max(1))).for_each(|_| _ = scope.spawn(worker));
        });
        let result =
            |slot: Mutex<Option<R>>| slot.into_inner().expect("as above").expect("every piece is done");
        results.into_iter().map(result).collect()
    }
}

/// Number of threads that can run in parallel on this machine.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_pieces_whoever_did_them() {
        let pieces: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 2, 7, 200] {
            let told = AtomicUsize::new(0);
            let say = |progress: Progress<'_>| {
                assert!(progress.done < progress.total);
                told.fetch_add(1, Ordering::Relaxed);
            };
            let stage = Stage { name: "squares", threads, say: &say };
            let squares = stage.map(&pieces, u64::to_string, |number| number * number);
            assert_eq!(squares, pieces.iter().map(|number| number * number).collect::<Vec<_>>());
            assert_eq!(told.into_inner(), pieces.len());
        }
        let nothing = Stage::quiet();
        assert_eq!(nothing.map(&[] as &[u64], u64::to_string, |number| *number), []);
    }
}
