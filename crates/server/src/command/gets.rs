//! Consecutive GET commands of a pipeline, answered by one call of the store, so that their cache misses overlap.

use std::time::Instant;

use bytes::Bytes;

use super::client::Replies;
use super::subscriptions::is_confined;
use super::{CommandError, is};
use crate::access::take_string;
use crate::notifications::Events;
use crate::resp::Reply;
use crate::session::SessionState;
use crate::shared::{Shared, lock};

fn is_get(arguments: &[Bytes]) -> bool {
    arguments.len() == 2 && is(&arguments[0], "get")
}

/// Runs the GETs at the front of `commands`, if there are several, and writes their replies to `output` until it holds `bytes_max` bytes.
/// Returns the number of GETs that ran; 0 if the first command has to run alone.
pub fn run(
    shared: &Shared,
    session: &mut SessionState,
    commands: &[Vec<Bytes>],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> usize {
    let count = commands.iter().take_while(|arguments| is_get(arguments)).count();
    let notes_misses = Events::new(shared).has_misses();
    let is_usual = session.replies == Replies::On
        && !shared.has_monitors()
        && !notes_misses
        && session.tracker.is_none();
    if count < 2 || session.transaction.is_open() || !is_usual || is_confined(session) {
        return 0;
    }
    session.refresh_user(shared);
    // Another command may have the name after a rename.
    let get = shared.find(b"get").filter(|get| get.name == "get");
    let (Some(get), Some(user)) = (get, session.user.clone()) else { return 0 };
    let allowed = commands[..count].iter().take_while(|arguments| user.check(get, arguments).is_ok());
    let keys: Vec<&[u8]> = allowed.map(|arguments| &arguments[1][..]).collect();
    let Ok(store) = shared.databases.get(session.db) else { return 0 };
    if session.command != get.name {
        session.command = get.name;
        lock(&session.client.names).command = get.name;
    }
    let started = session.command_start;
    let (mut done, protocol) = (0, session.protocol);
    let reply_bytes_max = shared.reply_bytes_max(&session.client);
    // After an error, the GET that failed runs alone and replies with the error.
    let _ = store.get_each(&keys, |value| {
        let mut reply = Reply::new(output, protocol, reply_bytes_max);
        match value {
            Some(mut value) => {
                session.hits += 1;
                let string = take_string(&mut value).map_err(CommandError::from);
                if let Err(error) = string.and_then(|()| Ok(reply.bulk(&value)?)) {
                    session.errors += 1;
                    reply.error(&error.to_string());
                }
            }
            None => {
                session.misses += 1;
                reply.null();
            }
        }
        done += 1;
        output.len() < bytes_max
    });
    session.commands += done as u64;
    if done > 0 {
        shared.eviction.note(session.db, keys[..done].iter().copied());
        let now = Instant::now();
        let duration = now.duration_since(started) / u32::try_from(done).unwrap_or(u32::MAX);
        shared.note_duration(&session.client, &commands[0], duration);
        session.command_start = now;
    }
    done
}
