//! Backups on request: SAVE, BGSAVE, LASTSAVE.
//!
//! The administrator sets the parent directory ([`Config::backup_dir`](crate::Config)); a client cannot. Each backup has its own directory,
//! named by its start time in seconds, or by the next number that is free. LASTSAVE returns that name.
//!
//! Invariant: at most one backup runs at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bristlecone::Store;

use super::server::command;
use super::{Call, Command, CommandError, Flags, is};
use crate::shared::{Shared, unix_time};

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command(
        "save",
        1,
        Flags::ADMIN.and(Flags::SLOW).and(Flags::ALONE),
        "Makes a backup and answers when it is durable.",
        save,
    ),
    command("bgsave", -1, Flags::ADMIN.and(Flags::ALONE), "Makes a backup beside other commands.", bgsave),
    command("lastsave", 1, Flags::FAST, "Returns the name of the newest backup, a Unix time.", lastsave),
];

/// The state of backups.
#[derive(Debug, Default)]
pub struct Saves {
    running: AtomicBool,
    failed: AtomicBool,
    newest: AtomicU64,
}

/// The right to make a backup. Dropping it frees the right.
struct Turn(Arc<Saves>);

impl Saves {
    /// True while a backup is running.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// True if the last backup failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Name of the latest backup that succeeded since the server started, a Unix time; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// If no backup is running, lets none begin any more. False if one is running.
    pub fn end(&self) -> bool {
        !self.running.swap(true, Ordering::SeqCst)
    }

    fn begin(self: &Arc<Self>) -> Result<Turn, CommandError> {
        if self.running.swap(true, Ordering::SeqCst) {
            return Err(CommandError::Text("ERR Background save already in progress".to_owned()));
        }
        Ok(Turn(Arc::clone(self)))
    }
}

impl Turn {
    fn make(&self, store: &Store, dir: &Path) -> Result<(), bristlecone::Error> {
        let mut second = unix_time().as_secs().max(self.0.newest() + 1);
        while dir.join(second.to_string()).exists() {
            second += 1;
        }
        let made = store.backup(dir.join(second.to_string()), |_, _| {});
        self.0.failed.store(made.is_err(), Ordering::SeqCst);
        made?;
        self.0.newest.store(second, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::SeqCst);
    }
}

fn dir(shared: &Shared) -> Result<PathBuf, CommandError> {
    shared.config.backup_dir.clone().ok_or_else(|| {
        CommandError::Text(
            "ERR there is no directory for backups: start the server with --backup-dir (acknowledged writes are durable without it)"
                .to_owned(),
        )
    })
}

fn save(call: &mut Call<'_>) -> Result<(), CommandError> {
    let dir = dir(call.shared)?;
    let turn = call.shared.saves.begin()?;
    turn.make(&call.shared.store, &dir)?;
    call.reply.ok();
    Ok(())
}

fn bgsave(call: &mut Call<'_>) -> Result<(), CommandError> {
    match call.rest(1) {
        [] => {}
        [how] if is(how, "SCHEDULE") => {}
        _ => return Err(CommandError::Syntax),
    }
    let dir = dir(call.shared)?;
    let turn = call.shared.saves.begin()?;
    let store = call.shared.store.clone();
    // INFO tells whether the backup failed.
    let make = move || _ = turn.make(&store, &dir);
    let thread = std::thread::Builder::new().name("backup".into()).spawn(make);
    thread.map_err(|error| CommandError::Text(format!("ERR cannot start a thread: {error}")))?;
    call.reply.simple("Background saving started");
    Ok(())
}

fn lastsave(call: &mut Call<'_>) -> Result<(), CommandError> {
    call.reply.count(call.shared.saves.newest());
    Ok(())
}
