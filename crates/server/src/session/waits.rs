//! A session that waits: for the end of a pause (CLIENT PAUSE), or for an element ([`crate::command::blocking`]).

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::{READ_BYTES, Session, stopped, until};
use crate::clients::{Pause, Unblocked};
use crate::command;
use crate::command::client::Replies;
use crate::handover::Stopping;
use crate::resp::Reply;

impl Session {
    /// The pause that the next command has to wait for. CLIENT does not wait, because it can end the pause.
    pub(super) fn pause(&self, commands: &std::vec::Drain<'_, Vec<Bytes>>) -> Option<Pause> {
        self.pause_before(commands.as_slice().first()?)
    }

    fn pause_before(&self, arguments: &[Bytes]) -> Option<Pause> {
        if !self.shared.may_pause() {
            return None;
        }
        let command = self.shared.find(&arguments[0]);
        let name = command.map_or("", |command| command.name);
        let changes = || command.is_some_and(command::Command::waits_for_writes);
        self.shared.pause(changes).filter(|_| name != "client")
    }

    /// Waits until a pause ends. The client does not count as idle meanwhile. False if the connection ends.
    pub(super) async fn wait(&mut self, pause: Pause) -> bool {
        self.entry.client.set_running(true);
        let is_over = tokio::select! {
            () = self.shared.pause_end(pause) => true,
            _ = self.entry.client.ended() => false,
            _ = stopped(&mut self.stopping, Stopping::No) => false,
        };
        self.entry.client.set_active();
        self.entry.client.set_running(false);
        is_over
    }

    /// Waits until the clients that the last command has woken have run ([`waiting`](crate::waiting), B3).
    pub(super) async fn let_the_woken_run(&mut self) {
        tokio::select! {
            biased;
            () = self.state.turns.over() => {}
            _ = stopped(&mut self.stopping, Stopping::No) => {}
            _ = self.entry.client.ended() => {}
        }
    }

    /// Runs a command that has to wait until it has a reply. False if the connection ends. The client does not count as idle meanwhile.
    pub(super) async fn wait_for_element(&mut self) -> io::Result<bool> {
        let Some(first) = self.state.blocked.take() else { return Ok(true) };
        self.flush().await?;
        self.hold();
        if self.is_closing() {
            // A commit has failed. The client gets no element any more.
            return Ok(false);
        }
        self.state.waiting = Some(Box::new(self.shared.waiters.join(self.state.db, &first.keys, first.kind)));
        self.entry.client.set_running(true);
        let goes_on = self.run_until_replied(&first.arguments, first.until).await;
        // It ends the turn of this client (B4).
        self.state.waiting = None;
        self.let_the_woken_run().await;
        self.entry.client.set_active();
        self.entry.client.set_running(false);
        goes_on
    }

    /// Replies with null, or with an error after CLIENT UNBLOCK ERROR, unless CLIENT REPLY has switched replies off.
    fn write_end_of_wait(&mut self, unblocked: Option<Unblocked>) {
        match self.state.replies {
            Replies::On => {
                let mut reply = Reply::new(&mut self.output, self.state.protocol, usize::MAX);
                match unblocked {
                    Some(Unblocked::Error) => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
                    Some(Unblocked::Timeout) | None => reply.null_array(),
                }
            }
            Replies::SkipNext => self.state.replies = Replies::On,
            Replies::Off => {}
        }
    }

    async fn run_until_replied(
        &mut self,
        arguments: &[Bytes],
        until_time: Option<Instant>,
    ) -> io::Result<bool> {
        loop {
            if let Some(pause) = self.pause_before(arguments) {
                if let Some(waiting) = &mut self.state.waiting {
                    waiting.pause();
                }
                if !self.wait(pause).await {
                    return Ok(false);
                }
            }
            if let Some(waiting) = &mut self.state.waiting {
                waiting.start();
            }
            self.entry.client.set_running(true);
            // An element may have come before the client joined its queues.
            self.state.command_start = Instant::now();
            let shared = Arc::clone(&self.shared);
            let ((), ticket) = shared.store.apply(|_| {
                command::run(&shared, &mut self.state, arguments, &mut self.output);
            });
            self.state.ticket = self.state.ticket.max(ticket);
            if self.state.blocked.take().is_none() {
                return Ok(true);
            }
            if let Some(waiting) = &mut self.state.waiting {
                waiting.rest();
            }
            self.entry.client.begin_wait();
            loop {
                let waiting = self.state.waiting.as_ref();
                let woken = async {
                    match waiting {
                        Some(waiting) => waiting.woken().await,
                        None => std::future::pending().await,
                    }
                };
                // Commands behind this one are read, so that the end of the connection is noticed; not more than a few.
                let has_space = self.input.len() < READ_BYTES;
                self.input.reserve(READ_BYTES / 4);
                tokio::select! {
                    biased;
                    _ = stopped(&mut self.stopping, Stopping::No) => return Ok(false),
                    _ = self.entry.client.ended() => return Ok(false),
                    () = self.entry.client.unblocked() => {
                        let unblocked = self.entry.client.end_wait();
                        self.write_end_of_wait(unblocked);
                        return Ok(true);
                    }
                    () = woken => break,
                    () = self.entry.client.pushes.arrived() => {
                        self.write_messages();
                        self.flush().await?;
                    }
                    () = until(until_time) => {
                        let unblocked = self.entry.client.end_wait();
                        self.write_end_of_wait(unblocked);
                        return Ok(true);
                    }
                    count = self.stream.read_buf(&mut self.input), if has_space => if count? == 0 {
                        return Ok(false);
                    }
                }
            }
            if let Some(unblocked) = self.entry.client.end_wait() {
                self.write_end_of_wait(Some(unblocked));
                return Ok(true);
            }
        }
    }
}
