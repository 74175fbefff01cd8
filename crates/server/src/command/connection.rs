//! Commands of the connection: PING, HELLO, AUTH, SELECT, QUIT …
//!
//! A client is the user `default` if that user needs no password. Otherwise it must log in with AUTH or HELLO before other
//! commands.

use super::client::Replies;
use super::transactions::State;
use super::{Call, Command, CommandError, Flags, Handler, NO_KEYS, acl, integer, is};
use crate::refusals::Class;
use crate::resp::Protocol;
use crate::shared::lock;
use crate::users::DEFAULT;
use crate::users::denials::Reason;

const GROUP: &str = "connection";
/// Maximum length of a client's name in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// The version of Redis whose commands and replies the server imitates.
pub const REDIS_VERSION: &str = "7.0.0";

const fn command(name: &'static str, arity: i64, summary: &'static str, handler: Handler) -> Command {
    Command { name, arity, flags: Flags::FAST, keys: NO_KEYS, group: GROUP, summary, handler }
}

const OPEN: Flags = Flags::FAST.and(Flags::OPEN);
const AT_ONCE: Flags = OPEN.and(Flags::AT_ONCE);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("ping", -1, "Answers PONG, or its argument.", ping),
    command("echo", 2, "Returns its argument.", |call| Ok(call.reply.bulk(call.argument(1))?)),
    Command {
        flags: OPEN.and(Flags::NOSCRIPT),
        ..command("hello", -1, "Chooses the protocol's version. Options: AUTH, SETNAME.", hello)
    },
    Command { flags: OPEN.and(Flags::NOSCRIPT), ..command("auth", -2, "Gives the password.", auth) },
    Command { flags: AT_ONCE, ..command("quit", -1, "Closes the connection.", quit) },
    Command { flags: AT_ONCE, ..command("reset", 1, "Makes the connection as it was when new.", reset) },
];

fn ping(call: &mut Call<'_>) -> Result<(), CommandError> {
    match call.rest(1) {
        text @ ([] | [_]) if super::subscriptions::is_confined(call.session) => {
            // So that the client can tell it from a message.
            call.reply.array(2);
            call.reply.text("pong");
            call.reply.bulk(text.first().map_or(&b""[..], AsRef::as_ref))?;
        }
        [] => call.reply.simple("PONG"),
        [text] => call.reply.bulk(text)?,
        _ => return Err(CommandError::Arity("ping".to_owned())),
    }
    Ok(())
}

fn no_password() -> CommandError {
    CommandError::Text(
        "ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?"
            .to_owned(),
    )
}

fn auth(call: &mut Call<'_>) -> Result<(), CommandError> {
    match call.rest(1) {
        [password] => {
            if call.shared.users.find(DEFAULT).is_some_and(|user| user.needs_no_password) {
                return Err(no_password());
            }
            admit(call, DEFAULT.as_bytes(), password)?;
        }
        [user, password] => admit(call, user, password)?,
        _ => return Err(CommandError::Syntax),
    }
    call.reply.ok();
    Ok(())
}

/// Logs the connection in as this user, if the password is right.
fn admit(call: &mut Call<'_>, user: &[u8], given: &[u8]) -> Result<(), CommandError> {
    let found = std::str::from_utf8(user).ok().and_then(|user| call.shared.users.find(user));
    let Some(user) = found.filter(|user| user.admits(given)) else {
        call.shared.refuse(Class::Password, &call.session.client.peer, "wrong user or password");
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        acl::note_denial(call, Reason::Login, shown(call.argument(0)), shown(user));
        let text = "WRONGPASS invalid username-password pair or user is disabled.";
        return Err(CommandError::Text(text.to_owned()));
    };
    call.session.log_in(Some(user));
    Ok(())
}

fn hello(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut protocol = call.session.protocol;
    let mut name = None;
    if let Some((version, options)) = call.rest(1).split_first() {
        let not_integer =
            || CommandError::Text("ERR Protocol version is not an integer or out of range".to_owned());
        protocol = match integer(version).map_err(|_| not_integer())? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::Text("NOPROTO unsupported protocol version".to_owned())),
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match options.next() {
                Some(user) if is(option, "AUTH") => match options.next() {
                    Some(password) => admit(call, user, password)?,
                    None => return Err(CommandError::Syntax),
                },
                Some(value) if is(option, "SETNAME") => name = Some(client_name(value)?),
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(CommandError::Text(format!("ERR Syntax error in HELLO option '{option}'")));
                }
            }
        }
    }
    if call.session.user.is_none() {
        let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
                    option can be used to authenticate the client and select the RESP protocol version at the same time";
        return Err(CommandError::Text(text.to_owned()));
    }
    if let Some(name) = name {
        lock(&call.session.client.names).name = name;
    }
    set_protocol(call, protocol);
    let reply = &mut call.reply;
    reply.map(7);
    for (field, value) in [("server", "bristlecone"), ("version", REDIS_VERSION)] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("proto");
    reply.integer(protocol.number().into());
    reply.text("id");
    reply.count(call.session.client.id);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("modules");
    reply.array(0);
    Ok(())
}

fn set_protocol(call: &mut Call<'_>, protocol: Protocol) {
    call.session.protocol = protocol;
    call.reply.set_protocol(protocol);
    lock(&call.session.client.names).protocol = protocol.number();
}

fn quit(call: &mut Call<'_>) -> Result<(), CommandError> {
    call.session.close = true;
    call.session.subscriber = None;
    super::tracking::end(call);
    call.reply.ok();
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Result<(), CommandError> {
    set_protocol(call, Protocol::Resp2);
    call.session.transaction = State::default();
    call.session.db = 0;
    lock(&call.session.client.names).database = 0;
    call.session.log_in(call.shared.users.initial());
    call.session.monitor = None;
    call.session.subscriber = None;
    call.session.client.is_monitor.store(false, std::sync::atomic::Ordering::Relaxed);
    call.session.replies = Replies::On;
    lock(&call.session.client.names).name.clear();
    call.reply.simple("RESET");
    Ok(())
}

/// Parses a client's name: printable ASCII without spaces.
pub(super) fn client_name(name: &[u8]) -> Result<String, CommandError> {
    if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
        let text = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(CommandError::Text(text.to_owned()));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}
