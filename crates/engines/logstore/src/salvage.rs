//! Salvage: reads all pairs of a damaged store that can be read.
//!
//! With the checkpoint, the images that it names are read, and then the log behind it. Without the checkpoint, all good images are read in
//! the order in which they were written, and then the whole log; so keys that were deleted before the log began may come back. A leaf
//! whose base is damaged gives its changes alone. The store's files are only read.

use std::borrow::Borrow;
use std::fs::OpenOptions;
use std::path::Path;

use bwtree::{Address, Image, Pairs};
use pmem::{Error, Result, system};

use crate::checkpoint::{self, Checkpoint};
use crate::header::{self, Header, Kind};
use crate::log::LOG;
use crate::place::Place;
use crate::segment::Parts;
use crate::segments::{PAGES, Segments};
use crate::{record, replay};

/// The losses of a salvage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Leaves of which a part could not be read.
    pub leaves: u64,
    /// The checkpoint could not be read.
    pub checkpoint: bool,
    /// A part of the log could not be read.
    pub log: bool,
}

/// Gets a key with its value, or with `None` if the key was deleted. The last call for a key counts.
pub type Apply<'a, P> = &'a mut dyn FnMut(&<P as Pairs>::Key, Option<&<P as Pairs>::Value>) -> Result<()>;

/// The id of the store, from the first of its files with a readable header. `None` if there is none.
///
/// # Errors
/// `Io` if the directory cannot be read.
pub fn store_id(dir: &Path, stem: &str) -> Result<Option<u64>> {
    let place = Place { dir: dir.to_owned(), stem: stem.to_owned(), store: 0 };
    for (what, kind) in [(LOG, Kind::Log), (PAGES, Kind::Segment)] {
        for number in place.numbers(what)? {
            let path = place.path(what, number);
            let mut bytes = vec![0; header::BYTES];
            let file = system::open(OpenOptions::new().read(true), &path);
            let read = file.and_then(|file| system::read_at(&file, &path, 0, &mut bytes));
            if let Ok(count) = read
                && let Ok(header) = Header::decode(&bytes[..count], kind, place.store, &path)
            {
                return Ok(Some(header.store));
            }
        }
    }
    Ok(None)
}

/// True if the store compresses new images; if its checkpoint does not say it, if it has a compressed image. `store` is its id.
///
/// # Errors
/// `Io` if the directory cannot be read.
pub fn compresses(dir: &Path, stem: &str, store: u64) -> Result<bool> {
    let place = Place { dir: dir.to_owned(), stem: stem.to_owned(), store };
    if let Some(compresses) = checkpoint::compresses(&place) {
        return Ok(compresses);
    }
    let segments = Segments::salvage(place.clone())?;
    for number in place.numbers(PAGES)? {
        if segments.images(number)?.iter().any(|(_, address)| Parts::of(*address).is_packed) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the store in `dir` whose files begin with `stem`. `store` is its id. `progress` gets the finished share, 0 to 1.
///
/// # Errors
/// `Io` if the directory or the checkpoint cannot be read for another reason than damage; those of `apply`.
pub fn salvage<P: Pairs>(
    dir: &Path,
    stem: &str,
    store: u64,
    apply: Apply<'_, P>,
    progress: &dyn Fn(f64),
) -> Result<Lost> {
    let place = Place { dir: dir.to_owned(), stem: stem.to_owned(), store };
    let segments = Segments::salvage(place.clone())?;
    let mut lost = Lost::default();
    let mut leaf = |image: Image, low: Option<&P::Key>, high: Option<&P::Key>| -> Result<()> {
        let read = |address: Address| segments.image(address).ok();
        let (pairs, is_whole) = match read(image.address) {
            Some(newest) => bwtree::image::salvage::<P>(newest, read),
            // The base has older values of some keys, which is better than none.
            None => {
                let base = image.base.and_then(read);
                (base.map(|base| bwtree::image::salvage::<P>(base, |_| None).0).unwrap_or_default(), false)
            }
        };
        lost.leaves += u64::from(!is_whole);
        for (key, value) in &pairs {
            if low.is_none_or(|low| low <= key.borrow()) && high.is_none_or(|high| key.borrow() < high) {
                apply(key.borrow(), value.as_ref().map(Borrow::borrow))?;
            }
        }
        Ok(())
    };
    let checkpoint = match checkpoint::load::<P>(&place) {
        Ok(checkpoint) => checkpoint,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(_) => None,
    };
    let is_lost = checkpoint.is_none();
    // As at an open (L6 of the log).
    let is_log_missing =
        checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.number > 0) && place.numbers(LOG)?.is_empty();
    let (mut from, mut durable) = (None, 0);
    match &checkpoint {
        Some(Checkpoint { redo, end, leaves, .. }) => {
            (from, durable) = (Some(*redo), *end);
            for (i, own) in leaves.iter().enumerate() {
                let high = leaves.get(i + 1).and_then(|next| next.low.as_ref());
                leaf(own.image, own.low.as_ref().map(Borrow::borrow), high.map(Borrow::borrow))?;
                progress(i as f64 / leaves.len() as f64 * 0.9);
            }
        }
        None => {
            let mut images = Vec::new();
            for number in place.numbers(PAGES)? {
                images.extend(segments.images(number)?);
            }
            images.sort_unstable();
            for (i, (_, address)) in images.iter().enumerate() {
                leaf(Image { address: *address, base: None }, None, None)?;
                progress(i as f64 / images.len() as f64 * 0.9);
            }
        }
    }
    lost.checkpoint = is_lost;
    let mut are_good = true;
    let is_whole = replay::salvage(&place, from, durable, &mut |contents| {
        let updates = record::decode::<P>(contents);
        are_good &= updates.is_some();
        let mut updates = updates.into_iter().flatten();
        updates.try_for_each(|update| record::with::<P, _>(update, &mut *apply).unwrap_or(Ok(())))
    })?;
    lost.log = !is_whole || !are_good || is_log_missing;
    progress(1.0);
    Ok(lost)
}
