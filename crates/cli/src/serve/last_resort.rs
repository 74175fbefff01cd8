//! Ends the process if the server cannot stop.
//!
//! A command in C code of Lua, such as a pattern with much backtracking, cannot be interrupted. It may hold a thread of the runtime, also
//! the only one. So a thread of its own waits for signals. An acknowledged write survives the end of the process at any moment, so no write
//! is lost; the next start recovers the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Signals;
use crate::failure::{Result, io};

/// Time between the first signal and the end of the process, if the server still runs commands then. The server itself gives them 10
/// seconds (`server::Config::stop_grace`), and closes the store.
const GRACE: Duration = Duration::from_secs(15);
/// A second signal within this time is ignored: `timeout` and service managers may send the same signal to a process and to its group.
const REPEATED: Duration = Duration::from_secs(1);

/// The thread that waits for signals.
#[derive(Clone, Default)]
pub struct LastResort {
    /// True while clients are served. Before that, recovery has all the time that it needs, and after that the close of the store.
    is_serving: Arc<AtomicBool>,
}

impl LastResort {
    /// Starts the thread. It has a runtime of its own.
    pub fn start() -> Result<Self> {
        let this = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(io("cannot start the runtime for signals"))?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::new()?
        };
        let is_serving = Arc::clone(&this.is_serving);
        let wait = async move {
            signals.next().await;
            tokio::time::sleep(REPEATED).await;
            let again = tokio::select! {
                () = signals.next() => true,
                () = tokio::time::sleep(GRACE - REPEATED) => false,
            };
            if !again {
                if is_serving.load(Ordering::SeqCst) {
                    end("a command did not end in time");
                }
                signals.next().await;
            }
            end("a second signal arrived");
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || runtime.block_on(wait)).map_err(io("cannot start the thread for signals"))?;
        Ok(this)
    }

    /// Notes that clients are served from now on, or no longer.
    pub fn set_serving(&self, is_serving: bool) {
        self.is_serving.store(is_serving, Ordering::SeqCst);
    }
}

fn end(why: &str) -> ! {
    tracing::error!(
        "{why}: the process ends before the store is closed; acknowledged writes are kept, and the next start recovers the store"
    );
    std::process::exit(1)
}
