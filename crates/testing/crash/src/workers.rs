//! Independent pieces of work on several threads, the results in the order of the pieces: which thread did what shows
//! nowhere but in the time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far a stage is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What the pieces are for.
    pub stage: &'static str,
    /// Pieces done.
    pub done: usize,
    /// Of so many.
    pub total: usize,
    /// The piece begun last.
    pub piece: &'a str,
}

/// Is told how far it is, by any thread.
pub type Say<'a> = dyn Fn(Progress<'_>) + Sync + 'a;

/// A stage: its name, on how many threads it runs, who is told.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// What the pieces are for.
    pub name: &'static str,
    /// Most threads.
    pub threads: usize,
    /// Who is told.
    pub say: &'a Say<'a>,
}

impl Stage<'_> {
    /// One that tells nobody, on as many threads as there are processors.
    pub fn quiet() -> Stage<'static> {
        Stage { name: "", threads: processors(), say: &|_| {} }
    }

    /// `work` done on each of `pieces`; the results in their order.
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

/// Threads that run beside each other here.
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
