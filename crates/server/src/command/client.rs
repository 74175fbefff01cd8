//! The command CLIENT: the connections, their names, their end, and pauses.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::connection::client_name;
use super::{Call, Command, CommandError, Flags, NO_KEYS, integer, is, tracking};
use crate::clients::{Client, Ending, Pause, Unblocked};
use crate::shared::lock;
use crate::users::DEFAULT;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    flags: Flags::FAST.and(Flags::NOSCRIPT),
    keys: NO_KEYS,
    group: "connection",
    summary: "Shows, names, ends and pauses connections.",
    handler: client,
}];

const HELP: [&str; 16] = [
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME | SETNAME <name>: the name of this connection.",
    "CACHING YES|NO: tracks the keys of the next command, or not.",
    "GETREDIR | TRACKINGINFO: how this connection tracks keys.",
    "ID: the number of this connection.",
    "INFO | LIST [TYPE <type>] [ID <id> ...]: data of connections.",
    "KILL <ip:port>: ends a connection.",
    "KILL [ID <id>] [TYPE <type>] [USER <name>] [ADDR <ip:port>] [LADDR <ip:port>] [MAXAGE <seconds>] [SKIPME yes|no]: ends connections.",
    "NO-EVICT ON|OFF: ends this connection last when memory is short.",
    "NO-TOUCH ON|OFF: has no effect.",
    "PAUSE <milliseconds> [WRITE|ALL] | UNPAUSE: stops the commands of all clients.",
    "REPLY ON|OFF|SKIP: sends replies or not.",
    "SETINFO LIB-NAME|LIB-VER <value>: the library of the client.",
    "TRACKING ON|OFF [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]: tells when keys change that were read.",
    "UNBLOCK <id> [TIMEOUT|ERROR]: ends the blocking command of a client, as if its time were over or with an error.",
    "HELP: this text.",
];

/// Which replies a connection gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None for the next command.
    SkipNext,
}

fn text(text: impl Into<String>) -> CommandError {
    CommandError::Text(text.into())
}

pub(super) fn switch(value: &[u8]) -> Result<bool, CommandError> {
    match (is(value, "ON"), is(value, "OFF")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

fn client(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    let rest = call.rest(2);
    match (subcommand.as_str(), rest) {
        ("id", []) => call.reply.count(call.session.client.id),
        ("getname", []) => {
            let name = lock(&call.session.client.names).name.clone();
            if name.is_empty() { call.reply.null() } else { call.reply.text(&name) }
        }
        ("setname", [name]) => {
            lock(&call.session.client.names).name = client_name(name)?;
            call.reply.ok();
        }
        ("setinfo", [field, value]) => setinfo(call, field, value)?,
        ("list", options) => {
            let lines: String = listed(call, options)?.iter().map(|client| line(client) + "\n").collect();
            call.reply.verbatim(&lines);
        }
        ("info", []) => {
            let line = line(&call.session.client) + "\n";
            call.reply.verbatim(&line);
        }
        ("kill", [_, ..]) => kill(call, rest)?,
        ("pause", [time]) => pause(call, time, b"ALL")?,
        ("pause", [time, mode]) => pause(call, time, mode)?,
        ("unpause", []) => {
            call.shared.set_pause(None);
            call.reply.ok();
        }
        ("no-evict", [value]) => {
            call.session.client.no_evict.store(switch(value)?, Relaxed);
            call.reply.ok();
        }
        ("no-touch", [value]) => {
            switch(value)?;
            call.reply.ok();
        }
        ("reply", [mode]) => {
            call.session.replies = match () {
                () if is(mode, "ON") => Replies::On,
                () if is(mode, "OFF") => Replies::Off,
                // Between OFF and ON there is no reply anyway.
                () if is(mode, "SKIP") && call.session.replies == Replies::Off => Replies::Off,
                () if is(mode, "SKIP") => Replies::SkipNext,
                () => return Err(CommandError::Syntax),
            };
            if call.session.replies == Replies::On {
                call.reply.ok();
            }
        }
        ("tracking", [mode, options @ ..]) => tracking::track(call, mode, options)?,
        ("caching", [mode]) => tracking::choose(call, mode)?,
        ("trackinginfo", []) => tracking::info(call)?,
        ("getredir", []) => {
            let redirect = tracking::redirect(call);
            call.reply.integer(redirect);
        }
        ("unblock", [id, how @ ..]) if how.len() <= 1 => {
            let how = match how {
                [] => Unblocked::Timeout,
                [how] if is(how, "TIMEOUT") => Unblocked::Timeout,
                [how] if is(how, "ERROR") => Unblocked::Error,
                _ => return Err(text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
            };
            let id = integer(id)?;
            let client = call.shared.clients().into_iter().find(|client| i64::try_from(client.id) == Ok(id));
            call.reply.flag(client.is_some_and(|client| client.unblock(how)));
        }
        ("help", []) => {
            call.reply.array(HELP.len());
            HELP.iter().for_each(|line| call.reply.simple(line));
        }
        (
            "id" | "getname" | "setname" | "setinfo" | "info" | "kill" | "pause" | "unpause" | "no-evict"
            | "no-touch" | "reply" | "tracking" | "caching" | "trackinginfo" | "getredir" | "unblock"
            | "help",
            _,
        ) => return Err(CommandError::Arity(format!("client|{subcommand}"))),
        _ => {
            let name = String::from_utf8_lossy(call.argument(1)).chars().take(128).collect();
            return Err(CommandError::Subcommand(name, "CLIENT"));
        }
    }
    Ok(())
}

fn setinfo(call: &mut Call<'_>, field: &[u8], value: &[u8]) -> Result<(), CommandError> {
    let value = client_name(value)?;
    let mut names = lock(&call.session.client.names);
    if is(field, "LIB-NAME") {
        names.library = value;
    } else if is(field, "LIB-VER") {
        names.library_version = value;
    } else {
        let field: String = String::from_utf8_lossy(field).chars().take(128).collect();
        return Err(text(format!("ERR Unrecognized option '{field}'")));
    }
    drop(names);
    call.reply.ok();
    Ok(())
}

/// A property of a client.
type Test = fn(&Client) -> bool;

/// The test whether a client is of this type. The server has no replicas.
fn type_test(name: &[u8]) -> Result<Test, CommandError> {
    let types: [(&str, Test); 5] = [
        ("NORMAL", |client| !client.is_subscribed()),
        ("PUBSUB", Client::is_subscribed),
        ("MASTER", |_| false),
        ("REPLICA", |_| false),
        ("SLAVE", |_| false),
    ];
    if let Some((_, test)) = types.into_iter().find(|(word, _)| is(name, word)) {
        return Ok(test);
    }
    let name: String = String::from_utf8_lossy(name).chars().take(128).collect();
    Err(text(format!("ERR Unknown client type '{name}'")))
}

fn listed(call: &Call<'_>, options: &[bytes::Bytes]) -> Result<Vec<Arc<Client>>, CommandError> {
    let mut clients = call.shared.clients();
    match options {
        [] => {}
        [option, name] if is(option, "TYPE") => {
            let is_of_type = type_test(name)?;
            clients.retain(|client| is_of_type(client));
        }
        [option, ids @ ..] if is(option, "ID") && !ids.is_empty() => {
            let number = |id: &bytes::Bytes| {
                let id = integer(id).ok().and_then(|id| u64::try_from(id).ok());
                id.ok_or_else(|| text("ERR Invalid client ID"))
            };
            let ids = ids.iter().map(number).collect::<Result<Vec<_>, _>>()?;
            clients.retain(|client| ids.contains(&client.id));
        }
        _ => return Err(CommandError::Syntax),
    }
    Ok(clients)
}

/// The filters of CLIENT KILL.
#[derive(Default)]
struct Filters<'a> {
    id: Option<u64>,
    of_type: Option<Test>,
    user: Option<&'a str>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    age: Option<u64>,
    with_me: bool,
}

fn filters<'a>(call: &Call<'_>, options: &'a [bytes::Bytes]) -> Result<Filters<'a>, CommandError> {
    let pairs = options.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(CommandError::Syntax);
    }
    let positive = |value: &[u8], name: &str| {
        let number =
            integer(value).ok().and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| text(format!("ERR {name} should be greater than 0")))
    };
    let mut filters = Filters::default();
    for pair in pairs {
        let (option, value) = (&pair[0], &pair[1]);
        if is(option, "ID") {
            filters.id = Some(positive(value, "client-id")?);
        } else if is(option, "TYPE") {
            filters.of_type = Some(type_test(value)?);
        } else if is(option, "USER") {
            let shown: String = String::from_utf8_lossy(value).chars().take(128).collect();
            let user = std::str::from_utf8(value).ok().filter(|user| call.shared.users.find(user).is_some());
            filters.user = Some(user.ok_or_else(|| text(format!("ERR No such user '{shown}'")))?);
        } else if is(option, "ADDR") {
            filters.address = Some(value);
        } else if is(option, "LADDR") {
            filters.local = Some(value);
        } else if is(option, "MAXAGE") {
            filters.age = Some(positive(value, "maxage")?);
        } else if is(option, "SKIPME") && (is(value, "YES") || is(value, "NO")) {
            filters.with_me = is(value, "NO");
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(filters)
}

fn kill(call: &mut Call<'_>, options: &[bytes::Bytes]) -> Result<(), CommandError> {
    // The old form has an address, includes this connection, and returns OK.
    let is_old = options.len() == 1;
    let filters = match options {
        [address] => Filters { address: Some(address), with_me: true, ..Filters::default() },
        _ => filters(call, options)?,
    };
    let me = call.session.client.id;
    let mut killed = 0;
    for client in call.shared.clients() {
        let is_meant = filters.of_type.is_none_or(|is_of_type| is_of_type(&client))
            && filters.id.is_none_or(|id| id == client.id)
            && filters.user.is_none_or(|user| lock(&client.names).user.as_deref() == Some(user))
            && filters.address.is_none_or(|address| client.peer.to_string().as_bytes() == address)
            && filters.local.is_none_or(|local| client.local.as_bytes() == local)
            && filters.age.is_none_or(|age| client.since.elapsed().as_secs() >= age)
            && (filters.with_me || client.id != me);
        if is_meant {
            killed += 1;
            if client.id == me {
                // This connection still gets its reply.
                call.session.close = true;
            } else {
                client.end(Ending::Killed);
            }
        }
    }
    match is_old {
        true if killed == 0 => Err(text("ERR No such client")),
        true => {
            call.reply.ok();
            Ok(())
        }
        false => {
            call.reply.count(killed);
            Ok(())
        }
    }
}

fn pause(call: &mut Call<'_>, time: &[u8], mode: &[u8]) -> Result<(), CommandError> {
    let time = integer(time).map_err(|_| text("ERR timeout is not an integer or out of range"))?;
    let time = u64::try_from(time).map_err(|_| text("ERR timeout is negative"))?;
    let all = is(mode, "ALL");
    if !all && !is(mode, "WRITE") {
        return Err(text("ERR CLIENT PAUSE mode must be WRITE or ALL"));
    }
    let until = Instant::now().checked_add(Duration::from_millis(time));
    let until = until.ok_or_else(|| text("ERR timeout is not an integer or out of range"))?;
    call.shared.set_pause(Some(Pause { until, all }));
    call.reply.ok();
    Ok(())
}

/// The line of a client in CLIENT LIST. Fields that the server does not have are absent, or have the value for none.
pub(super) fn line(client: &Client) -> String {
    let names = lock(&client.names).clone();
    let mut line = String::new();
    let (age, idle) = (client.since.elapsed().as_secs(), client.idle().as_secs());
    let [sub, psub, ssub] = client.subscriptions.each_ref().map(|count| count.load(Relaxed));
    let (id, peer, local) = (client.id, &client.peer, &client.local);
    let mut flags = String::new();
    for (is_set, flag) in [
        (client.is_monitor.load(Relaxed), 'O'),
        (client.is_subscribed(), 'P'),
        (matches!(peer, crate::stream::Peer::Unix(_)), 'U'),
        (client.no_evict.load(Relaxed), 'e'),
        (names.tracking.is_some(), 't'),
        (names.tracking.as_ref().is_some_and(|tracking| tracking.is_broadcast), 'B'),
    ] {
        if is_set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let _ = write!(
        line,
        "id={id} addr={peer} laddr={local} fd=-1 name={} age={age} idle={idle} flags={flags} db={} sub={sub} psub={psub} ssub={ssub} multi=-1",
        names.name, names.database
    );
    let command = if names.command.is_empty() { "NULL" } else { names.command };
    let user = names.user.as_deref().unwrap_or(DEFAULT);
    let redirect = names.tracking.as_ref().map_or(-1, tracking::target);
    let _ = write!(
        line,
        " tot-mem={} cmd={command} user={user} redir={redirect} resp={} lib-name={} lib-ver={}",
        client.held_bytes(),
        names.protocol,
        names.library,
        names.library_version
    );
    line
}
