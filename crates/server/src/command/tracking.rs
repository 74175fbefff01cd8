//! CLIENT TRACKING, CLIENT CACHING, CLIENT TRACKINGINFO and CLIENT GETREDIR ([`crate::tracking`]).

use std::sync::Arc;

use bytes::Bytes;

use super::client::switch;
use super::{Call, Command, CommandError, Flags, integer, is};
use crate::session::SessionState;
use crate::shared::{Shared, lock};
use crate::tracking::{Options, Tracker};
use crate::users::permissions;

fn text(text: impl Into<String>) -> CommandError {
    CommandError::Text(text.into())
}

/// The number of the client that gets the invalidations; 0 for the client itself.
pub fn target(options: &Options) -> i64 {
    options.redirect.as_ref().map_or(0, |(id, _)| i64::try_from(*id).unwrap_or(i64::MAX))
}

/// The number of the client that gets the invalidations; 0 for the connection itself, -1 if it does not track.
pub fn redirect(call: &Call<'_>) -> i64 {
    call.session.tracker.as_ref().map_or(-1, |tracker| target(&tracker.options()))
}

/// Before a command runs: remembers the keys that it reads. A script is no reader: its commands are.
pub fn note_reads(command: &Command, call: &Call<'_>) {
    if let Some(tracker) = &call.session.tracker
        && command.flags.has(Flags::READ)
        && command.group != "scripting"
    {
        tracker.note(permissions::keys(command, call.arguments).map(|(_, key)| key));
    }
}

/// After a command: CLIENT CACHING was for this one. In a transaction it is for all commands up to EXEC.
pub fn note_end(session: &mut SessionState, shared: &Shared, arguments: &[Bytes]) {
    if let Some(tracker) = &mut session.tracker
        && tracker.is_chosen
        && !session.transaction.is_open()
        && session.blocked.is_none()
    {
        tracker.is_chosen = shared.find(&arguments[0]).is_some_and(|command| command.name == "client");
    }
}

/// Ends the tracking.
pub fn end(call: &mut Call<'_>) {
    call.session.tracker = None;
    lock(&call.session.client.names).tracking = None;
}

/// CLIENT TRACKING.
///
/// # Errors
/// Wrong options, or options that exclude each other or those before.
pub fn track(call: &mut Call<'_>, mode: &[u8], words: &[Bytes]) -> Result<(), CommandError> {
    let (mut options, mut prefixes) = (Options::default(), Vec::new());
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if is(word, "REDIRECT") && rest.len() > 0 {
            let id = integer(rest.next().ok_or(CommandError::Syntax)?)?;
            if options.redirect.is_some() {
                return Err(text("ERR A client can only redirect to a single other client"));
            }
            let clients = call.shared.clients();
            let client = clients.iter().find(|client| i64::try_from(client.id) == Ok(id));
            let client =
                client.ok_or_else(|| text("ERR The client ID you want redirect to does not exist"))?;
            options.redirect = Some((client.id, Arc::downgrade(client)));
        } else if is(word, "PREFIX") && rest.len() > 0 {
            prefixes.extend(rest.next().cloned());
        } else if is(word, "BCAST") {
            options.is_broadcast = true;
        } else if is(word, "OPTIN") {
            options.opts_in = true;
        } else if is(word, "OPTOUT") {
            options.opts_out = true;
        } else if is(word, "NOLOOP") {
            options.is_quiet = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if !switch(mode)? {
        end(call);
        call.reply.ok();
        return Ok(());
    }
    check(&options, call.session.tracker.as_ref(), &prefixes)?;
    if options.is_broadcast && prefixes.is_empty() {
        prefixes.push(Bytes::new());
    }
    let (client, watches) = (&call.session.client, &call.shared.watches);
    let tracker = call.session.tracker.get_or_insert_with(|| Tracker::new(&watches.tracking, client));
    lock(&client.names).tracking = Some(options.clone());
    tracker.set(options, &prefixes);
    watches.pass_gate();
    call.reply.ok();
    Ok(())
}

/// Refuses options that exclude each other, or those that the client has.
fn check(options: &Options, before: Option<&Tracker>, prefixes: &[Bytes]) -> Result<(), CommandError> {
    if !options.is_broadcast && !prefixes.is_empty() {
        return Err(text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    let old = before.map(Tracker::options);
    if old.as_ref().is_some_and(|old| old.is_broadcast != options.is_broadcast) {
        return Err(text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    if options.is_broadcast && (options.opts_in || options.opts_out) {
        return Err(text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if options.opts_in && options.opts_out {
        return Err(text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    let switches = |old: &Options| options.opts_in && old.opts_out || options.opts_out && old.opts_in;
    if old.as_ref().is_some_and(switches) {
        return Err(text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    let overlap = |one: &Bytes, other: &Bytes| one.starts_with(other) || other.starts_with(one);
    let refuse = |one: &Bytes, what: &str, other: &Bytes| {
        let [one, other] = [one, other].map(|name| String::from_utf8_lossy(name));
        let why = "Prefixes for a single client must not overlap.";
        Err(text(format!("ERR Prefix '{one}' overlaps with {what} prefix '{other}'. {why}")))
    };
    for (at, prefix) in prefixes.iter().enumerate() {
        let mut known = before.iter().flat_map(|before| before.prefixes());
        if let Some(other) = known.find(|other| overlap(prefix, other)) {
            return refuse(prefix, "an existing", other);
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlap(prefix, other)) {
            return refuse(prefix, "another provided", other);
        }
    }
    Ok(())
}

/// CLIENT CACHING.
///
/// # Errors
/// The client is in another mode.
pub fn choose(call: &mut Call<'_>, mode: &[u8]) -> Result<(), CommandError> {
    let Some(tracker) = &mut call.session.tracker else {
        return Err(text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let options = tracker.options();
    match (is(mode, "YES"), is(mode, "NO")) {
        (true, _) if !options.opts_in => {
            return Err(text("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."));
        }
        (_, true) if !options.opts_out => {
            return Err(text("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."));
        }
        (false, false) => return Err(CommandError::Syntax),
        _ => tracker.is_chosen = true,
    }
    call.reply.ok();
    Ok(())
}

/// CLIENT TRACKINGINFO.
///
/// # Errors
/// The reply is too long.
pub fn info(call: &mut Call<'_>) -> Result<(), CommandError> {
    let redirect = redirect(call);
    let tracker = call.session.tracker.as_ref();
    let options = tracker.map(Tracker::options).unwrap_or_default();
    let is_chosen = tracker.is_some_and(|tracker| tracker.is_chosen);
    let flags = [
        (tracker.is_none(), "off"),
        (tracker.is_some(), "on"),
        (options.is_broadcast, "bcast"),
        (options.opts_in, "optin"),
        (options.opts_in && is_chosen, "caching-yes"),
        (options.opts_out, "optout"),
        (options.opts_out && is_chosen, "caching-no"),
        (options.is_quiet, "noloop"),
        (tracker.is_some_and(Tracker::is_broken), "broken_redirect"),
    ];
    let flags: Vec<_> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let reply = &mut call.reply;
    reply.map(3);
    reply.text("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.text(flag));
    reply.text("redirect");
    reply.integer(redirect);
    reply.text("prefixes");
    let prefixes = tracker.map(Tracker::prefixes);
    reply.array(prefixes.map_or(0, |prefixes| prefixes.len()));
    prefixes.into_iter().flatten().try_for_each(|prefix| reply.bulk(prefix))?;
    Ok(())
}
