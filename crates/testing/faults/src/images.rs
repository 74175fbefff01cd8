//! The states that a power cut can leave of the two files of a [`Machine`].
//!
//! An *item in flight* is a sector of 512 bytes whose newest version is not durable, or a file length that is not durable. If at most
//! [`ENUMERATED_MAX`] items are in flight, every subset of them is tried. Otherwise these are tried: nothing, all, a prefix and a suffix of
//! the journal's sectors, and random choices among all versions of each sector.
//!
//! Invariants:
//! * I1: every random choice follows from the seed that the caller passes for the cut. A caller derives it from its campaign's seed and the
//!   cut ([`mix`]). With a constant seed every cut would lose the same sectors. This was a defect of an earlier version: every cut lost the
//!   first sector of a write group, so recovery never read a durable header with a torn body.
//! * I2: all tried images are counted. [`Images::require`] fails if no image of a campaign had a torn tail (a group with its first sector
//!   and without a later one), or if none had a lost head (the reverse).

use crash::{Machine, Survivors, Which};

const SECTOR: usize = 512;
/// Maximum number of items in flight of which every subset is tried.
pub const ENUMERATED_MAX: usize = 8;
/// Number of random images of a cut with more items in flight.
const RANDOM: u64 = 4;
/// Offset of the first group in a journal: its header pages come before.
const GROUPS_AT: usize = 8192;

/// Counts the images of a campaign of power cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// Number of power cuts.
    pub cuts: u64,
    /// Number of judged images.
    pub tried: u64,
    /// Number of cuts of which every subset was tried.
    pub enumerated: u64,
    /// Number of images that keep the first sector of the group in flight and lose a later one.
    pub tail_torn: u64,
    /// Number of images that lose the first sector of the group in flight and keep a later one.
    pub head_lost: u64,
    /// Number of images in which a file has a length between the durable and the newest one.
    pub between_lengths: u64,
}

/// A file at a power cut: durable bytes, newest bytes, and the sectors that differ.
#[derive(Debug)]
struct File {
    durable: Vec<u8>,
    newest: Vec<u8>,
    sectors: Vec<usize>,
}

/// An item in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Length(usize),
    Sector(usize, usize),
}

/// A seed for one case of a campaign: the finaliser of splitmix64 over both numbers.
pub fn mix(campaign: u64, case: u64) -> u64 {
    let word = campaign.wrapping_add(case.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(1);
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

impl File {
    fn of(durable: Vec<u8>, newest: Vec<u8>) -> Self {
        let count = newest.len().max(durable.len()).div_ceil(SECTOR);
        let differs = |sector: &usize| sector_of(&durable, *sector) != sector_of(&newest, *sector);
        let sectors = (0..count).filter(differs).collect();
        Self { durable, newest, sectors }
    }

    /// The durable bytes, resized to `len`, with the latest version of these sectors.
    fn with(&self, len: usize, sectors: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(len, 0);
        for sector in sectors {
            let from = (sector * SECTOR).min(len);
            let to = (from + SECTOR).min(len).min(self.newest.len());
            bytes[from..to].copy_from_slice(&self.newest[from..to]);
        }
        bytes
    }

    fn has_newest(&self, bytes: &[u8], sector: usize) -> bool {
        sector_of(bytes, sector) == sector_of(&self.newest, sector)
    }
}

/// Bytes of a sector; zeros after the end.
fn sector_of(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut copy = [0; SECTOR];
    let from = (sector * SECTOR).min(bytes.len());
    let to = (from + SECTOR).min(bytes.len());
    copy[..to - from].copy_from_slice(&bytes[from..to]);
    copy
}

impl Images {
    /// Passes every image of this cut to `judge` (see the module's head). Use a different `seed` for each cut (I1).
    ///
    /// # Errors
    /// The first error of `judge`, prefixed with the image's description.
    pub fn each(
        &mut self,
        machine: &Machine,
        seed: u64,
        mut judge: impl FnMut(&Machine) -> Result<(), String>,
    ) -> Result<(), String> {
        self.cuts += 1;
        let [none, all] = [Survivors::None, Survivors::All].map(|kept| machine.after_power_cut(kept));
        let files =
            [Which::Data, Which::Journal].map(|which| File::of(none.content(which), all.content(which)));
        let mut items = Vec::new();
        for (i, file) in files.iter().enumerate() {
            items.extend((file.durable.len() != file.newest.len()).then_some(Item::Length(i)));
            items.extend(file.sectors.iter().map(|sector| Item::Sector(i, *sector)));
        }
        let mut try_one = |this: &mut Self, image: Machine, name: &dyn Fn() -> String| {
            this.tried += 1;
            judge(&image).map_err(|why| format!("{}: {why}", name()))
        };
        let (journal, mut rng) = (&files[Which::Journal as usize], fastrand::Rng::with_seed(seed));
        if items.len() <= ENUMERATED_MAX {
            self.enumerated += 1;
            for subset in 0..1_u64 << items.len() {
                let kept: Vec<Item> =
                    (0..items.len()).filter(|i| subset & 1 << i != 0).map(|i| items[i]).collect();
                let Some(image) = image_of(&files, &kept) else { continue };
                self.count(journal, |sector| kept.contains(&Item::Sector(Which::Journal as usize, sector)));
                try_one(self, image, &|| format!("{kept:?} kept of {} items", items.len()))?;
            }
        } else {
            try_one(self, none, &|| "nothing kept".to_owned())?;
            try_one(self, all, &|| "all kept".to_owned())?;
            if journal.sectors.len() > 1 {
                let at = rng.usize(1..journal.sectors.len());
                let (head, tail) = journal.sectors.split_at(at);
                for kept in [head, tail] {
                    self.count(journal, |sector| kept.contains(&sector));
                    let bytes = journal.with(journal.newest.len(), kept.iter().copied());
                    let image = Machine::with_files(files[0].durable.clone(), bytes);
                    try_one(self, image, &|| format!("the journal's sectors {kept:?} kept"))?;
                }
            }
            for number in 0..RANDOM {
                let kept = Survivors::Random(mix(seed, number));
                let image = machine.after_power_cut(kept);
                let bytes = image.content(Which::Journal);
                self.count(journal, |sector| journal.has_newest(&bytes, sector));
                try_one(self, image, &|| format!("{kept:?}"))?;
            }
        }
        if let Some(image) = between(&files, &mut rng) {
            self.between_lengths += 1;
            try_one(self, image, &|| "a length in between".to_owned())?;
        }
        Ok(())
    }

    /// Counts an image by the journal's sectors that it keeps.
    fn count(&mut self, journal: &File, keeps: impl Fn(usize) -> bool) {
        let mut group = journal.sectors.iter().filter(|sector| **sector * SECTOR >= GROUPS_AT);
        let Some(head) = group.next() else { return };
        let kept = keeps(*head);
        let mixed = group.any(|sector| keeps(*sector) != kept);
        self.tail_torn += u64::from(kept && mixed);
        self.head_lost += u64::from(!kept && mixed);
    }

    /// Adds the counts of another part of a campaign.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.tried += other.tried;
        self.enumerated += other.enumerated;
        self.tail_torn += other.tail_torn;
        self.head_lost += other.head_lost;
        self.between_lengths += other.between_lengths;
    }

    /// Prints the counts.
    ///
    /// # Panics
    /// If there were fewer than `tried_min` images, none with a torn tail, or none with a lost head (I2).
    pub fn require(&self, name: &str, tried_min: u64) {
        println!("{name}: {self:?}");
        assert!(self.tried >= tried_min, "{name}: {} images of at least {tried_min}", self.tried);
        assert!(self.tail_torn > 0, "{name}: no image had a durable head and a torn tail");
        assert!(self.head_lost > 0, "{name}: no image lost the head of a group alone");
    }
}

/// The files with these items kept. `None` if a sector after the end of its file is kept: another subset has the same image.
fn image_of(files: &[File; 2], kept: &[Item]) -> Option<Machine> {
    let [data, journal] = [0, 1].map(|i| {
        let file = &files[i];
        let len = if kept.contains(&Item::Length(i)) { file.newest.len() } else { file.durable.len() };
        let sectors = kept.iter().filter_map(|item| match item {
            Item::Sector(of, sector) if *of == i => Some(*sector),
            _ => None,
        });
        let sectors: Vec<usize> = sectors.collect();
        let inside = sectors.iter().all(|sector| sector * SECTOR < len);
        inside.then(|| file.with(len, sectors))
    });
    Some(Machine::with_files(data?, journal?))
}

/// All sectors kept, in files with lengths between the durable and the newest one. `None` if neither file has such a length in whole
/// sectors.
fn between(files: &[File; 2], rng: &mut fastrand::Rng) -> Option<Machine> {
    let lengths = files.each_ref().map(|file| {
        let (one, other) = (file.durable.len() / SECTOR, file.newest.len() / SECTOR);
        let (from, to) = (one.min(other), one.max(other));
        if to - from > 1 { Some(rng.usize(from + 1..to) * SECTOR) } else { None }
    });
    if lengths == [None; 2] {
        return None;
    }
    let [data, journal] = [0, 1].map(|i| {
        let file = &files[i];
        file.with(lengths[i].unwrap_or(file.newest.len()), file.sectors.iter().copied())
    });
    Some(Machine::with_files(data, journal))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A machine with `sectors` of the journal in flight after its header pages.
    fn machine(sectors: usize) -> Machine {
        let machine = Machine::with_files(vec![0; 4096], vec![0; GROUPS_AT + 64 * SECTOR]);
        let bytes: Vec<u8> = (0..sectors * SECTOR).map(|i| 1 + (i / SECTOR) as u8).collect();
        machine.storage(Which::Journal).write_at(GROUPS_AT as u64, &bytes).unwrap();
        machine
    }

    fn contents(sectors: usize, seed: u64) -> (Images, BTreeSet<Vec<u8>>) {
        let (mut images, mut found) = (Images::default(), BTreeSet::new());
        images
            .each(&machine(sectors), seed, |image| {
                found.insert(image.content(Which::Journal));
                Ok(())
            })
            .unwrap();
        (images, found)
    }

    #[test]
    fn every_subset_of_few_sectors_is_tried_once() {
        for sectors in 0..=ENUMERATED_MAX {
            let (images, found) = contents(sectors, 1);
            assert_eq!((images.tried, found.len()), (1 << sectors, 1 << sectors));
            // The first sector kept but not all others, or the reverse.
            let mixed = if sectors > 1 { (1 << (sectors - 1)) - 1 } else { 0 };
            assert_eq!((images.tail_torn, images.head_lost), (mixed, mixed), "{sectors}");
        }
    }

    #[test]
    fn of_many_sectors_a_head_a_tail_and_choices_by_the_seed_are_tried() {
        let (images, found) = contents(40, 1);
        assert_eq!((images.tried, images.enumerated), (4 + RANDOM, 0));
        assert!(images.tail_torn > 0 && images.head_lost > 0);
        assert_ne!(found, contents(40, 2).1);
        assert_eq!(found, contents(40, 1).1);
    }

    #[test]
    fn a_length_in_flight_is_tried_whole_missing_and_in_between() {
        let machine = Machine::with_files(vec![7; 4096], vec![0; 3 * GROUPS_AT]);
        machine.storage(Which::Data).allocate(4096, 16384).unwrap();
        let (mut images, mut found) = (Images::default(), Vec::new());
        let judged = images.each(&machine, 9, |image| {
            found.push(image.content(Which::Data).len());
            Ok(())
        });
        judged.unwrap();
        assert_eq!((found[0], found[1], found.len()), (4096, 16384, 3));
        assert!(found[2] > 4096 && found[2] < 16384 && found[2].is_multiple_of(SECTOR));
    }

    #[test]
    #[should_panic(expected = "no image had a durable head and a torn tail")]
    fn a_campaign_without_a_torn_tail_fails() {
        let mut images = Images::default();
        images.each(&machine(1), 1, |_| Ok(())).unwrap();
        images.require("one sector", 1);
    }
}
