//! Damaged, truncated, swapped, missing and foreign files: each gives an error or exactly the right contents, never a panic and never other
//! contents.
//!
//! A log does not say where it ends. So damage to the last block of the log may cost the operation in that block.

use std::path::Path;

use bwtree::Bytes;
use logstore::salvage::{Lost, salvage};
use logstore::{Settings, Store};

use crate::common::life::{number_from, settings};
use crate::common::{Dir, ID, Model, STEM, contents, open, put};

/// The files of a store, and its contents after each operation.
struct Sample {
    files: Vec<(String, Vec<u8>)>,
    states: Vec<Model>,
}

fn files_of(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Without compression, and with it.
const SEEDS: [u64; 2] = [2, 3];

/// A store with a checkpoint, images in several segments, and `behind` operations in the log behind the checkpoint. The images of an odd
/// seed are compressed.
fn sample(store_id: u64, seed: u64, behind: usize) -> Sample {
    let dir = Dir::new("damage");
    let settings = Settings { compresses: Some(seed % 2 == 1), ..settings(seed) };
    let store = Store::<Bytes>::create(&dir.0, STEM, store_id, settings).unwrap();
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    let mut states = Vec::new();
    for turn in 0..180 + behind {
        if turn == 180 {
            store.checkpoint().unwrap();
        }
        let key = format!("key {:03}", random.u32(..70)).into_bytes();
        let length = if turn % 40 == 0 { 1500 } else { random.usize(..60) };
        let value = vec![random.u8(..); length];
        put(&store, &key, &value).unwrap();
        model.insert(key, value);
        states.push(model.clone());
    }
    assert_eq!(store.stats().saved_bytes > 0, seed % 2 == 1);
    drop(store);
    Sample { files: files_of(&dir.0), states }
}

#[derive(Debug, Default)]
struct Outcomes {
    refused: u64,
    told_by_reads: u64,
    right: u64,
    last_lost: u64,
}

impl Outcomes {
    /// Opens a damaged store and reads all of it.
    fn judge(&mut self, sample: &Sample, dir: &Path, name: &str) {
        let mut is_told = false;
        let run = || -> pmem::Result<Model> {
            let store = open(dir, settings(1))?;
            let found = contents(&store);
            let (problems, _) = store.check();
            assert_eq!(found.is_err(), !problems.is_empty(), "{name}: {problems:?}");
            if let Ok(found) = &found {
                put(&store, b"later", b"value").unwrap();
                store.checkpoint().unwrap();
                store.close().unwrap();
                let mut found = found.clone();
                found.insert(b"later".to_vec(), b"value".to_vec());
                drop(store);
                assert!(contents(&open(dir, settings(1)).unwrap()).unwrap() == found, "{name}: later");
            } else {
                // Updates next to the damage are refused or done.
                for number in 0..70u32 {
                    let _ = put(&store, format!("key {number:03}").as_bytes(), b"new");
                }
                let _ = store.checkpoint();
                let _ = store.close();
                is_told = true;
            }
            found
        };
        let run = std::panic::AssertUnwindSafe(run);
        match std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("{name}: a panic")) {
            Err(_) if is_told => self.told_by_reads += 1,
            Err(_) => self.refused += 1,
            Ok(found) => {
                let lost = sample.states.iter().rev().position(|state| *state == found);
                match lost {
                    Some(0) => self.right += 1,
                    // Each operation has its block. Each block says that the one before was durable, so only the last one can be lost.
                    Some(1) if name.contains(".log-") => self.last_lost += 1,
                    _ => panic!("{name}: silently wrong contents, {lost:?} operations lost"),
                }
            }
        }
    }
}

fn write(dir: &Path, files: &[(String, Vec<u8>)]) {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    for (name, bytes) in files {
        // The zeros behind the last block of a log are a hole.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let path = dir.join(name);
        std::fs::write(&path, &bytes[..used]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes.len() as u64).unwrap();
    }
}

/// Judges the store with each damage to each file. `damages` yields names and new bytes.
fn each(
    sample: &Sample,
    outcomes: &mut Outcomes,
    mut damages: impl FnMut(&str, &[u8]) -> Vec<(String, Option<Vec<u8>>)>,
) {
    let dir = Dir::new("damaged");
    for (at, (name, bytes)) in sample.files.iter().enumerate() {
        for (what, damaged) in damages(name, bytes) {
            let mut files = sample.files.clone();
            match damaged {
                Some(bytes) => files[at].1 = bytes,
                None => _ = files.remove(at),
            }
            write(&dir.0, &files);
            outcomes.judge(sample, &dir.0, &format!("{name}, {what}"));
        }
    }
}

#[test]
fn a_flipped_byte_of_any_file_is_an_error_or_costs_nothing() {
    let (seed, rounds) = (number_from("BRISTLECONE_SEED", 0), number_from("BRISTLECONE_ROUNDS", 1));
    let stride = (41 / rounds.min(41)) as usize;
    let flip = |bytes: &[u8]| {
        // Bytes of the zeros behind the end are tried less often.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let heads = (0..bytes.len()).filter(|at| at % 512 < 48 && at % 512 % 5 == seed as usize % 5);
        let rest = (seed as usize % stride..used).step_by(stride);
        heads
            .chain(rest)
            .map(|at| {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1 << (at % 8);
                (format!("byte {at}"), Some(damaged))
            })
            .collect()
    };
    for seed in [seed, seed + 1] {
        let mut outcomes = Outcomes::default();
        each(&sample(ID, seed, 25), &mut outcomes, |_, bytes| flip(bytes));
        println!("flipped bytes: {outcomes:?}");
        assert!(outcomes.refused > 300 && outcomes.right > 100, "{outcomes:?}");
    }
}

#[test]
fn truncated_missing_and_zeroed_files_are_an_error_or_cost_nothing() {
    let damage = |bytes: &[u8]| {
        let cuts = (0..bytes.len()).step_by(512);
        let truncated = cuts.clone().map(|at| (format!("truncated at {at}"), Some(bytes[..at].to_vec())));
        let zeroed = cuts.map(|at| {
            let mut zeroed = bytes.to_vec();
            let end = (at + 512).min(bytes.len());
            zeroed[at..end].fill(0);
            (format!("zeroed at {at}"), Some(zeroed))
        });
        truncated.chain(zeroed).chain([("missing".to_owned(), None)]).collect()
    };
    for seed in SEEDS {
        let mut outcomes = Outcomes::default();
        each(&sample(ID, seed, 25), &mut outcomes, |_, bytes| damage(bytes));
        println!("truncated, missing and zeroed: {outcomes:?}");
        assert!(outcomes.refused > 50 && outcomes.right > 20, "{outcomes:?}");
    }
}

#[test]
fn files_of_another_store_or_under_another_name_are_refused() {
    for seed in SEEDS {
        let mut outcomes = Outcomes::default();
        swapped(seed, &mut outcomes);
        println!("swapped and foreign: {outcomes:?}");
        assert!(outcomes.refused > 100, "{outcomes:?}");
    }
}

fn swapped(seed: u64, outcomes: &mut Outcomes) {
    let (own, other) = (sample(ID, seed, 25), sample(ID + 1, seed, 25));
    let contents_of: Vec<(String, Vec<u8>)> = own.files.iter().chain(&other.files).cloned().collect();
    each(&own, outcomes, |name, bytes| {
        let others = contents_of.iter().filter(|(_, other)| other != bytes);
        others.map(|(from, other)| (format!("as {from} of {name}"), Some(other.clone()))).collect()
    });
}

/// Sums are right, but counts and lengths are absurd: bounded memory, and an error.
#[test]
fn absurd_lengths_with_right_sums_are_refused() {
    let mut refused = [0; 2];
    for (seed, refused) in SEEDS.into_iter().zip(&mut refused) {
        let has_packed = absurd_lengths(&sample(ID, seed, 25), refused);
        assert!(has_packed || seed == SEEDS[0], "a packed image is the first of its segment");
    }
    println!("absurd lengths: {refused:?} refused");
    assert!(refused.iter().all(|refused| *refused > 50), "{refused:?}");
}

fn absurd_lengths(sample: &Sample, refused: &mut u64) -> bool {
    let (dir, mut is_packed) = (Dir::new("absurd"), false);
    for (at, (name, bytes)) in sample.files.iter().enumerate() {
        let first = if name.contains("checkpoint") { 512 } else { 512 + 16 };
        for field in (first..first + 40).step_by(8) {
            for absurd in [u64::MAX, u64::MAX / 2, 1 << 40, 1 << 32, 0] {
                let mut files = sample.files.clone();
                let Some(word) = files[at].1.get_mut(field..field + 8) else { continue };
                word.copy_from_slice(&absurd.to_le_bytes());
                if name.contains("checkpoint") {
                    let end = bytes.len() - 8;
                    let sum = u64::from(crc32c::crc32c(&files[at].1[..end]));
                    files[at].1[end..].copy_from_slice(&sum.to_le_bytes());
                }
                let number = |bytes: &[u8]| u64::from_le_bytes(bytes[528..536].try_into().unwrap());
                is_packed |= name.contains("pages") && number(bytes) >> 63 == 1;
                // The sum of the first image, if that still ends in the file.
                if name.contains("pages")
                    && let length = number(&files[at].1) << 1 >> 1
                    && length < bytes.len() as u64 - 552
                {
                    let sum = crc32c::crc32c(&files[at].1[520..552 + length as usize]);
                    files[at].1[516..520].copy_from_slice(&sum.to_le_bytes());
                }
                write(&dir.0, &files);
                let found = open(&dir.0, settings(1)).and_then(|store| contents(&store));
                *refused += u64::from(found.is_err());
            }
        }
    }
    is_packed
}

/// Salvages the files, damaged by `damage`. All salvaged values must be values that their keys had.
fn salvaged(sample: &Sample, damage: impl FnOnce(&Path)) -> (Model, Lost) {
    let dir = Dir::new("salvage");
    for (name, bytes) in &sample.files {
        std::fs::write(dir.0.join(name), bytes).unwrap();
    }
    damage(&dir.0);
    let mut model = Model::new();
    let mut apply = |key: &[u8], value: Option<&[u8]>| {
        match value {
            Some(value) => _ = model.insert(key.to_vec(), value.to_vec()),
            None => _ = model.remove(key),
        }
        Ok(())
    };
    let lost = salvage::<Bytes>(&dir.0, STEM, ID, &mut apply, &|_| ()).unwrap();
    for (key, value) in &model {
        let had = |state: &Model| state.get(key) == Some(value);
        assert!(sample.states.iter().any(had), "{key:?} never had {value:?}");
    }
    (model, lost)
}

#[test]
fn salvage_reads_what_is_not_damaged_and_nothing_else() {
    SEEDS.into_iter().for_each(salvages);
}

fn salvages(seed: u64) {
    let sample = sample(ID, seed, 30);
    let last = sample.states.last().unwrap();
    let (whole, lost) = salvaged(&sample, |_| ());
    assert!(whole == *last && lost == Lost::default(), "{lost:?}");
    let is_of = |name: &str, kind: &str| name.contains(kind);
    let (whole, lost) = salvaged(&sample, |dir| {
        let (name, _) = sample.files.iter().find(|(name, _)| is_of(name, "checkpoint")).unwrap();
        std::fs::remove_file(dir.join(name)).unwrap();
    });
    // No key was deleted, so all images and the log are enough.
    assert!(whole == *last && lost == Lost { checkpoint: true, ..Lost::default() }, "{lost:?}");
    // A log that is gone says so, also if the checkpoint has all of it.
    for behind in [0, 30] {
        let (_, lost) = salvaged(&self::sample(ID, seed, behind), |dir| {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if is_of(&entry.file_name().to_string_lossy(), ".log-") {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
        });
        assert!(lost.log && !lost.checkpoint, "{lost:?}");
    }
    let mut random = fastrand::Rng::with_seed(4);
    let (mut complete, mut kept, mut all) = (0, 0, 0);
    for (name, bytes) in &sample.files {
        for turn in 0..40 {
            let mut damaged = bytes.clone();
            match turn {
                0 => damaged.clear(),
                1 => damaged.truncate(random.usize(..bytes.len())),
                2 => damaged[..512].fill(0),
                _ => {
                    let from = random.usize(..damaged.len());
                    let to = (from + random.usize(1..200)).min(damaged.len());
                    damaged[from..to].iter_mut().for_each(|byte| *byte ^= random.u8(1..));
                }
            }
            let (found, lost) = salvaged(&sample, |dir| std::fs::write(dir.join(name), &damaged).unwrap());
            let right = last.iter().filter(|(key, value)| found.get(*key) == Some(value)).count();
            (kept, all) = (kept + right, all + last.len());
            if lost == Lost::default() {
                complete += 1;
                // The last block of the log is indistinguishable from one that was never written.
                assert!(sample.states.iter().rev().take(30).any(|state| found == *state), "{name}, {turn}");
            }
        }
    }
    println!("{complete} salvages lost nothing; {kept} of {all} values are the newest");
    assert!(complete > 0 && kept * 10 > all * 7, "{complete}, {kept} of {all}");
}
