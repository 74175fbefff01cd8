//! Damage to either file. It is harmless, or it is reported with its offset before any change, or it costs only the
//! newest group (recovery takes that group for a torn one). It never yields a wrong image.

use pmem::journal::Options;
use pmem::{Error, Journal};

use crate::life::{End, ID, MAX_BYTES, Oracle, Step};
use crash::{Machine, Which, by_tier, turn};

const SECTOR: usize = 512;
const HALF: usize = 8192;
const HALVES_AT: usize = 8192;
const GROUPS: u64 = 20;

/// Twenty groups of one sector each: sixteen fill one half, four are in the other. None is checkpointed.
fn store(id_of_other: bool) -> (Oracle, Vec<u8>, Vec<u8>) {
    let machine = Machine::new(3);
    let mut oracle = Oracle::new();
    let id = if id_of_other { [5, 6] } else { ID };
    let journal = oracle.create_with(&machine, id).unwrap();
    let mut steps = vec![Step::Grow];
    for group in 0..GROUPS {
        steps.extend([Step::Line(group * 8), Step::Line((group + 90) * 8), Step::Commit]);
    }
    oracle.run(&journal, &steps).unwrap();
    (oracle, machine.content(Which::Data), machine.content(Which::Journal))
}

fn open(data: &[u8], journal: &[u8]) -> (Result<u64, Error>, Machine) {
    let machine = Machine::with_files(data.to_vec(), journal.to_vec());
    let opened = Journal::open_on(machine.storage(Which::Data), machine.storage(Which::Journal), MAX_BYTES);
    (opened.map(|(_, replay)| replay.newest), machine)
}

/// Opens the files and lets the oracle judge the image. Returns the number of the newest group, or the offset in the journal of an
/// acknowledged group that is reported as damaged. The newest group may be missing.
fn judged(oracle: &Oracle, data: &[u8], journal: &[u8]) -> Result<u64, u64> {
    let (outcome, machine) = open(data, journal);
    if let Err(Error::Corrupt { at, .. }) = outcome {
        assert_eq!(machine.changes(), 0, "damage is told before anything is changed");
        return Err(at);
    }
    let machine = Machine::with_files(data.to_vec(), journal.to_vec());
    let mut oracle = oracle.clone();
    oracle.doubt_behind(GROUPS - 1);
    match oracle.open(&machine) {
        Ok(Some((_, replay))) => Ok(replay.newest),
        other => panic!("{other:?}"),
    }
}

/// Offset of a group in the journal.
fn place_of(group: u64) -> usize {
    let index = group as usize - 1;
    HALVES_AT + index / 16 * HALF + index % 16 * SECTOR
}

#[test]
fn every_flipped_bit_in_a_byte_of_the_journal_is_harmless_or_told_or_takes_the_last_group_alone() {
    let (oracle, data, journal) = store(false);
    let bytes_of = |group: u64| 40 + journal[place_of(group) + 16] as usize;
    let bytes_before_last: usize = (1..GROUPS).map(bytes_of).sum();
    let (mut told, mut harmless, mut ended, mut inside) = (0, 0, 0, 0);
    // One run flips a bit in one byte of four. Four runs cover all bytes of a file.
    let stride = by_tier(4, 1);
    for at in (turn() as usize % stride..journal.len()).step_by(stride) {
        let mut bytes = journal.clone();
        bytes[at] ^= 1 << (at % 8);
        let hit =
            (1..=GROUPS).find(|group| (place_of(*group)..place_of(*group) + bytes_of(*group)).contains(&at));
        inside += usize::from(hit.is_some_and(|group| group < GROUPS));
        match (judged(&oracle, &data, &bytes), hit) {
            (Ok(GROUPS), None) => harmless += 1,
            (Ok(newest), Some(GROUPS)) if newest == GROUPS - 1 => ended += 1,
            (Err(place), Some(group)) if group < GROUPS && place == place_of(group) as u64 => told += 1,
            (other, hit) => panic!("byte {at} in group {hit:?}: {other:?}"),
        }
    }
    println!("flipped bits: {told} told, {harmless} harmless, {ended} taken for a torn end");
    assert!(told == inside && told >= bytes_before_last / stride - 19, "{told} of {inside}");
}

#[test]
fn sectors_that_are_zeroed_or_hold_what_another_held_are_told_or_take_the_last_group_alone() {
    let (oracle, data, journal) = store(false);
    let mut told = 0;
    for source in (0..=journal.len() / SECTOR).step_by(3) {
        for target in HALVES_AT / SECTOR..journal.len() / SECTOR {
            let mut bytes = journal.clone();
            let content = match journal.get(source * SECTOR..(source + 1) * SECTOR) {
                Some(content) => content.to_vec(),
                None => vec![0; SECTOR],
            };
            bytes[target * SECTOR..(target + 1) * SECTOR].copy_from_slice(&content);
            // `judged` panics if it does not accept the result.
            told += u64::from(judged(&oracle, &data, &bytes).is_err());
        }
    }
    println!("sectors: {told} told");
    assert!(told > 300);
}

#[test]
fn a_bad_group_in_the_middle_is_told_even_if_all_behind_it_are_torn() {
    let (oracle, data, journal) = store(false);
    let mut bytes = journal.clone();
    for group in 5..=16 {
        bytes[place_of(group) + 60] ^= 1;
    }
    bytes[place_of(17)..].fill(0);
    assert_eq!(judged(&oracle, &data, &bytes), Err(place_of(5) as u64));
    // The whole older half is lost. The younger half reveals it.
    let mut bytes = journal;
    bytes[HALVES_AT..HALVES_AT + HALF].fill(0);
    assert_eq!(judged(&oracle, &data, &bytes), Err(HALVES_AT as u64));
}

/// Corrects the checksum of a header's first words.
fn seal(header: &mut [u8], words: usize) {
    let check = u64::from(crc32c::crc32c(&header[..words * 8])) | 0xB215_4A0E << 32;
    header[words * 8..][..8].copy_from_slice(&check.to_le_bytes());
}

#[test]
fn files_that_are_no_pair_are_refused_with_the_way_out_and_not_touched() {
    let (_, data, journal) = store(false);
    let (_, other_data, other_journal) = store(true);
    let refused = |data: &[u8], journal: &[u8], what: &str| {
        let (outcome, machine) = open(data, journal);
        let error = outcome.expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(machine.changes(), 0, "{what}");
        error
    };
    for (data, journal) in [(&data, &other_journal), (&other_data, &journal)] {
        let told = refused(data, journal, "belongs to another store");
        assert!(told.contains("put the journal back"), "{told}");
    }
    refused(&data, &[], "is too short to be a journal");
    for bytes in (HALVES_AT..journal.len()).step_by(SECTOR) {
        refused(&data, &journal[..bytes], "is shorter than its header says");
    }
    refused(&data, &vec![0; journal.len()], "is not a journal");
    let mut damaged = journal.clone();
    (damaged[20], damaged[4096 + 40]) = (!damaged[20], !damaged[4096 + 40]);
    refused(&data, &damaged, "two damaged headers");
    refused(&[], &journal, "is not a Bristlecone store");
    refused(&vec![7; data.len()], &journal, "is not a Bristlecone store");
    for bytes in (4096..data.len()).step_by(SECTOR) {
        refused(&data[..bytes], &journal, "is truncated");
    }
    for (at, words) in [(0, 8), (4096, 8)] {
        let mut newer = journal.clone();
        (newer[at + 8], newer[at + 32]) = (4, 99);
        seal(&mut newer[at..], words);
        refused(&data, &newer, "format version 4");
    }
    let mut newer = data.clone();
    newer[8] = 4;
    seal(&mut newer, 4);
    refused(&newer, &journal, "format version 4");
    for (word, value) in [(5, u64::MAX), (5, 1 << 40), (5, 0), (5, 4097), (6, u64::MAX), (7, 0)] {
        let mut absurd = journal.clone();
        for at in [0, 4096] {
            absurd[at + word * 8..][..8].copy_from_slice(&value.to_le_bytes());
            seal(&mut absurd[at..], 8);
        }
        refused(&data, &absurd, "has a header that no program wrote");
    }
}

#[test]
fn sizes_that_no_file_and_no_address_space_has_are_refused() {
    let (_, data, journal) = store(false);
    for region_bytes in [!4095, 1 << 63, !1_u64] {
        let mut absurd = journal.clone();
        let header = &mut absurd[place_of(GROUPS)..][..40];
        header[24..32].copy_from_slice(&region_bytes.to_le_bytes());
        let check = u64::from(crc32c::crc32c(&header[..32])) | 0x6772_6F76 << 32;
        header[32..].copy_from_slice(&check.to_le_bytes());
        let (outcome, machine) = open(&data, &absurd);
        let told = matches!(outcome, Err(Error::Corrupt { at, .. }) if at == place_of(GROUPS) as u64);
        assert!(told && machine.changes() == 0, "{region_bytes:#x}: {outcome:?}");
    }
    for max_bytes in [u64::MAX, !4095, (1 << 63) + 1, (1 << 46) + 1] {
        let machine = Machine::with_files(data.clone(), journal.clone());
        let files = || (machine.storage(Which::Data), machine.storage(Which::Journal));
        let opened = Journal::open_on(files().0, files().1, max_bytes).map(|_| ());
        let options = Options { capacity_bytes: 16 << 10, max_bytes };
        let made = Journal::create_on(files().0, files().1, ID, &options).map(|_| ());
        for outcome in [opened, made] {
            assert!(matches!(outcome, Err(Error::Durability(_))), "{max_bytes:#x}: {outcome:?}");
        }
        assert_eq!(machine.changes(), 0);
    }
}

#[test]
fn a_damaged_header_copy_is_made_whole_by_the_next_open() {
    let (oracle, data, journal) = store(false);
    for copy in [0, 4096] {
        let mut bytes = journal.clone();
        bytes[copy + 30] ^= 4;
        let machine = Machine::with_files(data.clone(), bytes);
        let mut oracle = oracle.clone();
        assert!(matches!(oracle.open(&machine), Ok(Some(_))));
        let healed = machine.content(Which::Journal);
        assert_eq!(healed[..SECTOR], healed[4096..4096 + SECTOR]);
    }
}

#[test]
fn an_acknowledged_group_that_cannot_be_read_back_is_told_and_nothing_more_is_taken() {
    let machine = Machine::new(4);
    let mut oracle = Oracle::new();
    let journal = oracle.create(&machine).unwrap();
    let mut steps = vec![Step::Grow];
    for group in 0..GROUPS {
        steps.extend([Step::Line(group * 8), Step::Commit]);
    }
    oracle.run(&journal, &steps).unwrap();
    machine.damage(Which::Journal, place_of(7) + 50);
    assert!(matches!(journal.checkpoint(), Err(Error::Corrupt { .. })));
    assert!(matches!(oracle.run(&journal, &[Step::Line(0), Step::Commit]), Err(End::Error(Error::Failed))));
    oracle.roll_back(&journal);
    oracle.compare(&journal, "reads go on").unwrap();
}
