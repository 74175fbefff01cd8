//! The text commands, and the changes of items that text and meta commands share.

use std::borrow::Cow;
use std::io::Write as _;

use bristlecone::{Deadline, Next, Store};
use bytes::Bytes;

use super::item::{self, Damaged, HEADER_BYTES, Header, Item};
use super::parse::{Mode, Request, Storage};
use super::stats::{self, Count, Counts};
use super::words::{behind, split, unsigned};
use super::{Life, Memcached, VERSION, meta};
use crate::eviction::{self, Admission, Refused};
use crate::shared::{MEMCACHED, Shared};

/// Number of keys of a `get` that are read at one moment.
const KEYS_PER_READ: usize = 32;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no memory for the write.
    #[error("SERVER_ERROR out of memory storing object")]
    OutOfMemory,
    /// The item is damaged.
    #[error("SERVER_ERROR {0}")]
    Damaged(#[from] Damaged),
    /// An error of the store.
    #[error("SERVER_ERROR {0}")]
    Store(#[from] bristlecone::Error),
    /// Keys to evict could not be read or removed.
    #[error("SERVER_ERROR {0}")]
    Eviction(crate::access::AccessError),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Access(error) => Self::Eviction(error),
        }
    }
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The item has the new value.
    Done,
    /// A condition of the command does not hold.
    NotStored,
    /// The item has another unique number.
    Exists,
    /// There is no item.
    NotFound,
}

/// The outcome of `incr`, `decr` or `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new number, the item's header, and its life before `T`.
    Number(u64, Header, Life),
    /// The same for a new counter.
    New(u64, Header, Life),
    /// The data is not a number.
    NotNumeric,
    /// The item has another unique number.
    Exists,
    /// There is no item.
    NotFound,
}

/// What a counter command does.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// True to add.
    pub adds: bool,
    /// The number to add or subtract.
    pub delta: u64,
    /// The unique number that the item must have. 0: any.
    pub compare: Option<u64>,
    /// The number and the life of a new counter, if there is none.
    pub vivify: Option<(u64, Life)>,
    /// The new life of a counter that is there.
    pub life: Option<Life>,
}

/// A command that runs.
pub struct Call<'a> {
    /// The server.
    pub shared: &'a Shared,
    /// The state of the protocol.
    pub memcached: &'a Memcached,
    /// The table of items.
    pub store: &'a Store,
    /// The replies of the connection.
    pub output: &'a mut Vec<u8>,
    /// The counters of the connection.
    pub counts: &'a mut Counts,
    /// A buffer for values.
    pub value: &'a mut Vec<u8>,
}

/// Seconds of a time in milliseconds.
pub fn seconds(millis: u64) -> u32 {
    u32::try_from(millis / 1000).unwrap_or(u32::MAX)
}

/// Runs a request. If its reply became longer than `output_max`, returns the rest of the request.
pub fn run(call: &mut Call<'_>, request: Request, output_max: usize) -> Option<Request> {
    call.counts.commands += 1;
    let (start, mut is_quiet) = (call.output.len(), false);
    let rest = match execute(call, request, output_max, &mut is_quiet) {
        Ok(rest) => rest,
        Err(failure) => {
            if let Failure::Store(error) = &failure {
                call.shared.note_refused_write(error);
            }
            call.output.truncate(start);
            call.line(&failure.to_string());
            None
        }
    };
    let reply = &call.output[start..];
    if reply.starts_with(b"ERROR") || reply.starts_with(b"CLIENT_ERROR") || reply.starts_with(b"SERVER_ERROR")
    {
        call.counts.errors += 1;
    }
    if is_quiet {
        call.output.truncate(start);
    }
    rest
}

fn execute(
    call: &mut Call<'_>,
    request: Request,
    output_max: usize,
    is_quiet: &mut bool,
) -> Result<Option<Request>> {
    call.memcached.flush_if_due(call.shared)?;
    match request {
        Request::Get { keys, with_cas, exptime } => return get(call, keys, with_cas, exptime, output_max),
        Request::Store(storage, data) => match &storage.options {
            Some(options) => meta::set(call, &storage, options, &data)?,
            None => {
                *is_quiet = storage.is_quiet;
                let (outcome, _) = call.write(&storage, &data)?;
                call.line(match outcome {
                    Outcome::Done => "STORED",
                    Outcome::NotStored => "NOT_STORED",
                    Outcome::Exists => "EXISTS",
                    Outcome::NotFound => "NOT_FOUND",
                });
            }
        },
        Request::TooLarge { removes, is_quiet: quiet } => {
            *is_quiet = quiet;
            if let Some(key) = removes {
                call.remove(&key, None)?;
            }
            call.line("SERVER_ERROR object too large for cache");
        }
        Request::Touch { key, exptime, is_quiet: quiet } => {
            *is_quiet = quiet;
            call.counts.add(Count::CmdTouch);
            let found = call.touch(&key, exptime, |_| {})?;
            call.counts.add(if found { Count::TouchHits } else { Count::TouchMisses });
            call.line(if found { "TOUCHED" } else { "NOT_FOUND" });
        }
        Request::Delete { key, is_quiet: quiet } => {
            *is_quiet = quiet;
            let outcome = call.remove(&key, None)?;
            let is_done = outcome == Outcome::Done;
            call.counts.add(if is_done { Count::DeleteHits } else { Count::DeleteMisses });
            call.line(if is_done { "DELETED" } else { "NOT_FOUND" });
        }
        Request::Arithmetic { key, adds, delta, is_quiet: quiet } => {
            *is_quiet = quiet;
            match call.count(&key, Step { adds, delta, compare: None, vivify: None, life: None })? {
                Counted::Number(number, ..) | Counted::New(number, ..) => call.line(&number.to_string()),
                Counted::NotNumeric => call.line(meta::NOT_NUMERIC),
                Counted::Exists | Counted::NotFound => call.line("NOT_FOUND"),
            }
        }
        Request::Flush { exptime, is_quiet: quiet } => {
            *is_quiet = quiet;
            call.counts.add(Count::CmdFlush);
            crate::command::off_the_worker(|| call.memcached.flush(call.shared, exptime))?;
            call.line("OK");
        }
        Request::Meta(name, key, options) => meta::run(call, name, &key, &options)?,
        Request::Debug { written, key } => meta::debug(call, &written, &key)?,
        Request::Stats(arguments) => stats::reply(call, &arguments)?,
        Request::Version => {
            call.line(&format!("VERSION {VERSION}"));
        }
        Request::Reply { text, is_quiet: quiet } => {
            *is_quiet = quiet;
            call.line(text);
        }
        // A client that has logged in cannot send a login, and the session ends at `quit`.
        Request::Login(_) | Request::Quit => {}
    }
    Ok(None)
}

/// Replies to `get` and its relatives, until the output holds `output_max` bytes. Returns the rest of the request.
fn get(
    call: &mut Call<'_>,
    keys: Bytes,
    with_cas: bool,
    exptime: Option<i64>,
    output_max: usize,
) -> Result<Option<Request>> {
    let now = seconds(call.shared.store.now()?);
    let mut rest = keys;
    loop {
        let batch: Vec<Bytes> = split(&rest).take(KEYS_PER_READ).map(|key| rest.slice_ref(key)).collect();
        let mut done = 0;
        let mut failed = None;
        if let Some(exptime) = exptime {
            for key in &batch {
                get_and_touch(call, key, with_cas, exptime, now)?;
                done += 1;
                if call.output.len() >= output_max {
                    break;
                }
            }
        } else if let [key] = &batch[..] {
            let mut value = std::mem::take(call.value);
            let found = call.store.get_into(key, &mut value)?;
            let shown = show(call, key, found.then_some(&value[..]), with_cas, now);
            *call.value = value;
            shown?;
            done = 1;
        } else if !batch.is_empty() {
            let keys: Vec<&[u8]> = batch.iter().map(|key| &key[..]).collect();
            let store = call.store;
            store.get_each(&keys, |value| {
                failed = show(call, keys[done], value.as_deref(), with_cas, now).err();
                done += 1;
                failed.is_none() && call.output.len() < output_max
            })?;
        }
        failed.map_or(Ok(()), Err)?;
        call.shared.eviction.note(MEMCACHED, batch[..done].iter().map(|key| &key[..]));
        rest = behind(&rest, done);
        if batch.len() < KEYS_PER_READ && done == batch.len() {
            call.output.extend_from_slice(b"END\r\n");
            return Ok(None);
        }
        if call.output.len() >= output_max {
            return Ok(Some(Request::Get { keys: rest, with_cas, exptime }));
        }
    }
}

/// Appends an item to a reply.
fn show(call: &mut Call<'_>, key: &[u8], stored: Option<&[u8]>, with_cas: bool, now: u32) -> Result<()> {
    call.counts.add(Count::CmdGet);
    let Some(stored) = stored else {
        call.counts.add(Count::GetMisses);
        return Ok(());
    };
    let Item { header, data } = Item::decode(stored)?;
    call.counts.add(Count::GetHits);
    call.memcached.recent.note(key, now);
    call.output.reserve(key.len() + data.len() + 64);
    call.output.extend_from_slice(b"VALUE ");
    call.output.extend_from_slice(key);
    // Writing to memory does not fail.
    let _ = match with_cas {
        true => write!(call.output, " {} {} {}\r\n", header.flags, data.len(), header.cas),
        false => write!(call.output, " {} {}\r\n", header.flags, data.len()),
    };
    call.output.extend_from_slice(&data);
    call.output.extend_from_slice(b"\r\n");
    Ok(())
}

fn get_and_touch(call: &mut Call<'_>, key: &[u8], with_cas: bool, exptime: i64, now: u32) -> Result<()> {
    let mut stored = None;
    let found = call.touch(key, exptime, |value| stored = Some(value.to_vec()))?;
    call.counts.add(Count::CmdTouch);
    call.counts.add(if found { Count::TouchHits } else { Count::TouchMisses });
    show(call, key, stored.as_deref(), with_cas, now)
}

impl Call<'_> {
    /// Appends a reply of one line.
    pub fn line(&mut self, text: &str) {
        self.output.extend_from_slice(text.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }

    /// Makes space for a write of this many bytes.
    ///
    /// # Errors
    /// `OutOfMemory`; the errors of eviction.
    pub fn admit(&self, key: &[u8], bytes: usize) -> Result<Admission<'_>> {
        let bytes = key.len() + HEADER_BYTES + bytes;
        Ok(self.shared.eviction.admit(self.shared, eviction::write_cost(1, bytes as u64))?)
    }

    /// Reads and changes an item and its deadline in one step. `decide` may be called again.
    ///
    /// # Errors
    /// Those of the store; the item is damaged.
    pub fn change(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<(Item<'_>, Deadline)>) -> Next<Vec<u8>>,
    ) -> Result<()> {
        let mut damaged: std::result::Result<(), Damaged> = Ok(());
        self.store.change_until(key, |old| {
            let old = match old.map(|(stored, deadline)| Ok((Item::decode(stored)?, deadline))).transpose() {
                Ok(old) => old,
                Err(error) => {
                    damaged = Err(error);
                    return Next::Keep;
                }
            };
            damaged = Ok(());
            let next = decide(old);
            if let Next::Put(value, _) = &next {
                self.shared.eviction.charge(value.len());
            }
            next
        })?;
        self.shared.eviction.note(MEMCACHED, [key]);
        Ok(damaged?)
    }

    /// Gives an item another expiry. `see` gets its stored form. False if it is absent.
    ///
    /// # Errors
    /// Those of [`Call::change`].
    pub fn touch(&self, key: &[u8], exptime: i64, mut see: impl FnMut(&[u8])) -> Result<bool> {
        let now = self.shared.store.now()?;
        let life = Life::new(exptime, now);
        let mut is_found = false;
        self.store.change_until(key, |old| {
            let Some((stored, deadline)) = old else {
                is_found = false;
                return Next::Keep;
            };
            is_found = true;
            see(stored);
            match life {
                Life::Over => Next::Delete,
                Life::Until(same) if same == deadline => Next::Keep,
                Life::Until(deadline) => Next::Put(stored.to_vec(), deadline),
            }
        })?;
        self.shared.eviction.note(MEMCACHED, [key]);
        if is_found {
            self.memcached.recent.note(key, seconds(now));
        }
        Ok(is_found)
    }

    /// Removes an item, if it has this unique number.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove(&mut self, key: &[u8], compare: Option<u64>) -> Result<Outcome> {
        let mut outcome = Outcome::NotFound;
        match compare {
            None => {
                if self.store.delete(key)? {
                    outcome = Outcome::Done;
                }
            }
            Some(compare) => self.change(key, |old| {
                outcome = match old {
                    None => Outcome::NotFound,
                    Some((item, _)) if item.header.cas == compare => Outcome::Done,
                    Some(_) => Outcome::Exists,
                };
                if outcome == Outcome::Done { Next::Delete } else { Next::Keep }
            })?,
        }
        self.shared.eviction.note_change();
        Ok(outcome)
    }

    /// Runs a storage command. Returns the unique number of the new value.
    ///
    /// # Errors
    /// `OutOfMemory`: then a plain `set` removes the old item, because a reader must not find it in place of the lost one. Otherwise those
    /// of [`Call::change`].
    pub fn write(&mut self, storage: &Storage, data: &Bytes) -> Result<(Outcome, u64)> {
        self.counts.add(Count::CmdSet);
        let is_plain = storage.mode == Mode::Set && storage.compare.is_none();
        let admission = match self.admit(&storage.key, data.len()) {
            Ok(admission) => admission,
            Err(failure) => {
                if is_plain {
                    self.store.delete(&storage.key)?;
                }
                return Err(failure);
            }
        };
        let now = self.shared.store.now()?;
        let life = Life::new(storage.exptime, now);
        let cas = self.memcached.new_cas()?;
        let options = storage.options.as_ref();
        let invalidates = options.is_some_and(|options| options.has(b'I'));
        let fresh = Header {
            flags: storage.flags,
            cas,
            written: seconds(now),
            is_binary_key: options.is_some_and(|options| options.has(b'b')),
            ..Header::default()
        };
        let item_bytes_max = self.memcached.settings.item_bytes_max;
        let mut outcome = Outcome::NotStored;
        self.change(&storage.key, |old| {
            let before = old.as_ref().map(|(item, _)| item.header);
            let kept = old.as_ref().map(|(_, deadline)| *deadline);
            let is_stale;
            (outcome, is_stale) = verdict(storage, invalidates, before.as_ref());
            if outcome != Outcome::Done {
                return Next::Keep;
            }
            let extends = matches!(storage.mode, Mode::Append | Mode::Prepend);
            match old.filter(|_| extends) {
                Some((item, deadline)) => {
                    let bytes = item.data.len() + data.len();
                    if item::size(storage.key.len(), item.header.flags, bytes) > item_bytes_max {
                        outcome = Outcome::NotStored;
                        return Next::Keep;
                    }
                    let data = match storage.mode {
                        Mode::Prepend => [&data[..], &item.data[..]].concat(),
                        _ => [&item.data[..], &data[..]].concat(),
                    };
                    let header = Header { flags: item.header.flags, is_binary_key: false, ..fresh };
                    Next::Put(Item { header, data: Cow::Owned(data) }.encode(), deadline)
                }
                // A stale value keeps the expiry of the item.
                None => match kept.filter(|_| is_stale).map_or(life, Life::Until) {
                    Life::Over => Next::Delete,
                    Life::Until(deadline) => {
                        // It does not give the task of renewing it to another client.
                        let is_token_sent = is_stale && before.is_some_and(|header| header.is_token_sent);
                        let header = Header { is_stale, is_token_sent, ..fresh };
                        Next::Put(Item { header, data: Cow::Borrowed(data) }.encode(), deadline)
                    }
                },
            }
        })?;
        drop(admission);
        if storage.compare.is_some() {
            self.counts.add(match outcome {
                Outcome::Done => Count::CasHits,
                Outcome::Exists => Count::CasBadval,
                _ => Count::CasMisses,
            });
        }
        if outcome == Outcome::Done {
            self.shared.note_stored_write();
            self.memcached.recent.forget(&storage.key);
        }
        Ok((outcome, cas))
    }

    /// Adds to a counter, or subtracts from it.
    ///
    /// # Errors
    /// `OutOfMemory`; those of [`Call::change`].
    pub fn count(&mut self, key: &[u8], step: Step) -> Result<Counted> {
        let admission = self.admit(key, 20)?;
        let now = self.shared.store.now()?;
        let cas = self.memcached.new_cas()?;
        let (mut counted, mut is_in_place) = (Counted::NotFound, false);
        self.change(key, |old| {
            (counted, is_in_place) = (Counted::NotFound, false);
            let fresh = Header { cas, written: seconds(now), ..Header::default() };
            let is_new = old.is_none();
            let (number, header, data_bytes, life) = match old {
                None => match step.vivify {
                    None => return Next::Keep,
                    Some((initial, life)) => (initial, fresh, 0, life),
                },
                Some((Item { header, data }, deadline)) => {
                    if data.is_empty() {
                        counted = Counted::NotNumeric;
                        return Next::Keep;
                    }
                    let compare = step.compare.filter(|compare| *compare != 0);
                    if compare.is_some_and(|compare| compare != header.cas) {
                        counted = Counted::Exists;
                        return Next::Keep;
                    }
                    let Some(number) = unsigned(&data) else {
                        counted = Counted::NotNumeric;
                        return Next::Keep;
                    };
                    let number = match step.adds {
                        true => number.wrapping_add(step.delta),
                        false => number.saturating_sub(step.delta),
                    };
                    is_in_place = number.to_string().len() <= data.len();
                    let header = match is_in_place {
                        true => Header { cas, ..header },
                        false => Header { flags: header.flags, ..fresh },
                    };
                    (number, header, data.len(), Life::Until(deadline))
                }
            };
            counted = match is_new {
                true => Counted::New(number, header, life),
                false => Counted::Number(number, header, life),
            };
            let mut text = number.to_string().into_bytes();
            // A shorter number has spaces behind it, as in memcached.
            text.resize(text.len().max(data_bytes), b' ');
            match step.life.filter(|_| !is_new).unwrap_or(life) {
                Life::Until(deadline) => {
                    Next::Put(Item { header, data: Cow::Owned(text) }.encode(), deadline)
                }
                Life::Over => Next::Delete,
            }
        })?;
        drop(admission);
        let is_found = !matches!(counted, Counted::NotFound | Counted::New(..));
        self.counts.add(match (step.adds, is_found) {
            (true, true) => Count::IncrHits,
            (true, false) => Count::IncrMisses,
            (false, true) => Count::DecrHits,
            (false, false) => Count::DecrMisses,
        });
        if matches!(counted, Counted::Number(..) | Counted::New(..)) && !is_in_place {
            self.memcached.recent.forget(key);
        }
        Ok(counted)
    }
}

/// The outcome of a storage command over an item with this header, and whether the new value is stale.
fn verdict(storage: &Storage, invalidates: bool, old: Option<&Header>) -> (Outcome, bool) {
    let extends = matches!(storage.mode, Mode::Append | Mode::Prepend);
    // Only these two take 0 for any number.
    let compare = storage.compare.filter(|compare| !extends || *compare != 0);
    let outcome = match (old, compare) {
        (None, Some(_)) if matches!(storage.mode, Mode::Set | Mode::Replace) => Outcome::NotFound,
        (None, _) if matches!(storage.mode, Mode::Set | Mode::Add) => Outcome::Done,
        (None, _) => Outcome::NotStored,
        (Some(_), _) if storage.mode == Mode::Add => Outcome::NotStored,
        (Some(_), None) => Outcome::Done,
        (Some(old), Some(compare)) if compare == old.cas => Outcome::Done,
        (Some(old), Some(1..)) if invalidates && !extends && compare < Some(old.cas) => {
            return (Outcome::Done, true);
        }
        (Some(_), Some(_)) => Outcome::Exists,
    };
    (outcome, false)
}
