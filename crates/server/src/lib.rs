//! Network protocols in front of a [`Store`]: today RESP, the protocol of Redis clients.
//!
//! A request's way: [`listener`] accepts a connection and gives it a [`session`]; the session reads what has arrived,
//! [`resp::RequestParser`] cuts it into commands, [`command`] runs each against the store and [`resp::Reply`] writes the
//! answers, which leave together (pipelining costs one write).
//!
//! Invariants
//! * I1: a reply is written only after its store call returned: what is acknowledged is durable as the store promises.
//! * I2: a connection's commands run one after another, in the order in which they came.
//! * I3: memory is bounded: by [`resp::RequestLimits`] for a command, by [`Config::reply_bytes_max`] for an answer, by
//!   [`Config::held_bytes_max`] for all connections together; a client that does not read its answers is not read from.
//! * I4: no input from the network panics.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = bristlecone::Store::open("data", bristlecone::Options::default())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7379").await?;
//! let ctrl_c = async { /* wait for a signal */ };
//! server::serve(store.clone(), listener, server::Config::default(), ctrl_c).await?;
//! store.close()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod command;
pub mod cursor;
pub mod glob;
pub mod listener;
pub mod resp;
pub mod session;
pub mod shared;

use std::path::PathBuf;
use std::time::Duration;

#[doc(no_inline)]
pub use bristlecone::Store;
pub use listener::serve;

/// Settings of a server. `Config::default()` is fit for use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds on one command.
    pub limits: resp::RequestLimits,
    /// Most connections at a time; one more is told so and closed.
    pub connections_max: usize,
    /// Most bytes that one command may answer.
    pub reply_bytes_max: usize,
    /// Most bytes that all connections together may hold in unfinished commands and unread answers.
    pub held_bytes_max: usize,
    /// Most cursors of SCAN that are remembered.
    pub cursors_max: usize,
    /// Directory in which SAVE and BGSAVE make backups; `None` refuses them.
    pub backup_dir: Option<PathBuf>,
    /// How long connections may take to end their running command once the server stops.
    pub stop_grace: Duration,
    /// True if a write to this store takes milliseconds (it syncs a file), so that it must not hold up a worker of
    /// the runtime; `None` to tell it from the store's [`bristlecone::Stats`].
    pub slow_writes: Option<bool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: resp::RequestLimits::default(),
            connections_max: 10_000,
            reply_bytes_max: 512 << 20,
            held_bytes_max: 2 << 30,
            cursors_max: 4096,
            backup_dir: None,
            stop_grace: Duration::from_secs(10),
            slow_writes: None,
        }
    }
}

/// Why a server stopped otherwise than on request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listening socket cannot be used.
    #[error("the listening socket cannot be used: {0}")]
    Listener(#[source] std::io::Error),
}

/// Result of serving.
pub type Result<T> = std::result::Result<T, Error>;
