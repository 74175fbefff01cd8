//! SUBSCRIBE, PUBLISH and related commands ([`crate::subscriptions`]).
//!
//! Subscribing and its end reply with one element for each name, as in Redis. A client of RESP2 that is subscribed may send only the few
//! commands in [`ALLOWED`], because its replies could not be told from messages.
//!
//! A message that is published in a transaction is sent after the transaction has committed, and once, however many times the transaction
//! runs.

use std::sync::Arc;

use bytes::Bytes;

use super::observe::{help, unknown};
use super::{Call, Command, CommandError, Flags, Handler, NO_KEYS};
use crate::access::Access;
use crate::clients::Ending;
use crate::resp::Protocol;
use crate::session::SessionState;
use crate::subscriptions::{Kind, NAME_BYTES_MAX, Subscriber};
use crate::users::permissions::full_name;

const GROUP: &str = "pubsub";
const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: NO_KEYS, group: GROUP, summary, handler }
}

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("subscribe", -2, Flags::ALONE, "Receives the messages of channels.", |call| {
        subscribe(call, Kind::Channel)
    }),
    command("unsubscribe", -1, Flags::ALONE, "Ends the subscriptions to channels, or to all.", |call| {
        unsubscribe(call, Kind::Channel)
    }),
    command(
        "psubscribe",
        -2,
        Flags::ALONE,
        "Receives the messages of channels that match patterns.",
        |call| subscribe(call, Kind::Pattern),
    ),
    command("punsubscribe", -1, Flags::ALONE, "Ends the subscriptions to patterns, or to all.", |call| {
        unsubscribe(call, Kind::Pattern)
    }),
    command("ssubscribe", -2, Flags::ALONE, "Receives the messages of shard channels.", |call| {
        subscribe(call, Kind::Shard)
    }),
    command(
        "sunsubscribe",
        -1,
        Flags::ALONE,
        "Ends the subscriptions to shard channels, or to all.",
        |call| unsubscribe(call, Kind::Shard),
    ),
    command(
        "publish",
        3,
        Flags::FAST,
        "Sends a message to a channel. Returns the number of receivers.",
        |call| publish(call, Kind::Channel),
    ),
    command("spublish", 3, Flags::FAST, "Sends a message to a shard channel.", |call| {
        publish(call, Kind::Shard)
    }),
    command("pubsub", -2, Flags::SLOW, "Shows the channels that have subscribers.", pubsub),
];

/// The commands that a subscribed client of RESP2 may send.
pub const ALLOWED: [&str; 9] = [
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "ping",
    "quit",
    "reset",
];

/// True if the client is subscribed and speaks RESP2.
#[must_use]
pub fn is_confined(session: &SessionState) -> bool {
    session.protocol == Protocol::Resp2 && session.subscriber.as_ref().is_some_and(Subscriber::has_any)
}

/// The error of a command that a subscribed client of RESP2 may not send.
#[must_use]
pub fn confined(command: &Command, arguments: &[Bytes]) -> CommandError {
    let code = if command.name == "exec" { "EXECABORT Transaction discarded because of:" } else { "ERR" };
    CommandError::Text(format!(
        "{code} Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        full_name(command, arguments)
    ))
}

/// Refuses names that are too long.
fn check_names<'a>(names: impl IntoIterator<Item = &'a Bytes>) -> Result<(), CommandError> {
    match names.into_iter().all(|name| name.len() <= NAME_BYTES_MAX) {
        true => Ok(()),
        false => Err(CommandError::Text(format!(
            "ERR the name of a channel and a pattern have at most {NAME_BYTES_MAX} bytes: choose a shorter one"
        ))),
    }
}

fn subscribe(call: &mut Call<'_>, kind: Kind) -> Result<(), CommandError> {
    let names = call.rest(1);
    check_names(names)?;
    let (all, client) = (&call.shared.subscriptions, &call.session.client);
    let subscriber = call.session.subscriber.get_or_insert_with(|| Subscriber::new(Arc::clone(all), client));
    for name in names {
        subscriber.add(kind, name);
        let count = subscriber.count(kind);
        confirm(&mut call.reply, kind.words()[0], Some(name), count);
    }
    call.session.has_pushed = true;
    // A change of the user after the check of permissions did not see these subscriptions.
    call.session.refresh_user(call.shared);
    let may = |name| {
        let user = call.session.user.as_ref();
        user.is_some_and(|user| user.may_use_channel(name, kind == Kind::Pattern))
    };
    if !names.iter().all(|name| may(name)) {
        call.session.client.end(Ending::Killed);
    }
    Ok(())
}

fn unsubscribe(call: &mut Call<'_>, kind: Kind) -> Result<(), CommandError> {
    call.session.has_pushed = true;
    let (word, named) = (kind.words()[1], call.rest(1));
    let Some(subscriber) = &mut call.session.subscriber else {
        match named {
            [] => confirm(&mut call.reply, word, None, 0),
            names => names.iter().for_each(|name| confirm(&mut call.reply, word, Some(name), 0)),
        }
        return Ok(());
    };
    let names = match named {
        [] => subscriber.names(kind),
        names => names.to_vec(),
    };
    for name in &names {
        subscriber.remove(kind, name);
        // The messages that arrived before the end of the subscription come before its confirmation.
        subscriber.write_waiting(call.reply.output(), call.session.protocol, usize::MAX);
        confirm(&mut call.reply, word, Some(name), subscriber.count(kind));
    }
    if names.is_empty() {
        confirm(&mut call.reply, word, None, subscriber.count(kind));
    }
    if !subscriber.has_any() {
        call.session.subscriber = None;
    }
    Ok(())
}

fn confirm(reply: &mut crate::resp::Reply<'_>, word: &str, name: Option<&Bytes>, count: usize) {
    reply.push(3);
    reply.text(word);
    match name {
        Some(name) => reply.any_bulk(name),
        None => reply.null(),
    }
    reply.count(count as u64);
}

fn publish(call: &mut Call<'_>, kind: Kind) -> Result<(), CommandError> {
    let [_, channel, payload] = call.arguments else { return Err(CommandError::Syntax) };
    check_names([channel])?;
    let shared = call.shared;
    let is_queued = matches!(call.keys, Access::Transaction { .. });
    let receivers = match is_queued {
        true => shared.receivers(kind, channel),
        false => shared.publish(kind, channel, payload),
    };
    if is_queued {
        call.keys.events().note_message(kind, channel.clone(), payload.clone());
    } else if let Some(subscriber) = &call.session.subscriber
        && !call.session.is_silent
    {
        // A client of RESP3 that is subscribed to the channel gets the message before the reply, as in Redis.
        subscriber.write_waiting(call.reply.output(), call.session.protocol, usize::MAX);
    }
    call.reply.count(receivers as u64);
    Ok(())
}

fn pubsub(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    let kind = if subcommand.starts_with("shard") { Kind::Shard } else { Kind::Channel };
    let all = &call.shared.subscriptions;
    match (subcommand.as_str(), call.rest(2)) {
        ("channels" | "shardchannels", patterns @ ([] | [_])) => {
            let names = all.names(kind, patterns.first().map(AsRef::as_ref));
            call.reply.array(names.len());
            names.iter().try_for_each(|name| call.reply.bulk(name))?;
        }
        ("numsub" | "shardnumsub", names) => {
            call.reply.array(2 * names.len());
            for name in names {
                call.reply.bulk(name)?;
                call.reply.count(all.subscribers(kind, name) as u64);
            }
        }
        ("numpat", []) => call.reply.count(all.count(Kind::Pattern) as u64),
        ("help", []) => help(
            call,
            &[
                "PUBSUB <subcommand> [<arg> ...]. Subcommands are:",
                "CHANNELS [<pattern>]: the channels that have subscribers.",
                "NUMPAT: the number of patterns that have subscribers.",
                "NUMSUB [<channel> ...]: the number of subscribers of each channel.",
                "SHARDCHANNELS [<pattern>]: the shard channels that have subscribers.",
                "SHARDNUMSUB [<shardchannel> ...]: the number of subscribers of each shard channel.",
                "HELP: this text.",
            ],
        ),
        ("channels" | "shardchannels", _) => {
            let given = String::from_utf8_lossy(call.argument(1));
            return Err(CommandError::Text(format!(
                "ERR unknown subcommand or wrong number of arguments for '{given}'. Try PUBSUB HELP."
            )));
        }
        ("numpat" | "help", _) => {
            return Err(CommandError::Arity(format!("pubsub|{subcommand}")));
        }
        _ => return Err(unknown(call, "PUBSUB")),
    }
    Ok(())
}
