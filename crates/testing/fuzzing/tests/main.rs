//! Replays the corpus of each fuzz target, and mutations of it. `BRISTLECONE_ROUNDS` (default 1) multiplies the number of mutations.
//! `BRISTLECONE_SEED` changes them. For longer campaigns use cargo-fuzz: see `fuzz/README.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzzing::TARGETS;

/// Number of mutations of a target's corpus.
const MUTATIONS: u64 = 150;

/// An input that takes longer is an endless loop.
const SECONDS_MAX: Duration = Duration::from_secs(30);

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Returns the input with some bytes changed, removed, inserted, duplicated or appended.
fn mutated(input: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..=bytes.len());
        match random.u8(0..6) {
            // A change of a target for damaged stores has at most 12 bytes.
            4 => bytes.extend((0..random.usize(2..13)).map(|_| random.u8(..))),
            5 => bytes[..1.min(at)].iter_mut().for_each(|first| *first ^= 1 << random.u8(..8)),
            0 if at < bytes.len() => bytes[at] = random.u8(..),
            1 if at < bytes.len() => _ = bytes.remove(at),
            2 if at < bytes.len() => bytes.extend_from_within(at..),
            _ => bytes.insert(at, random.u8(..)),
        }
        bytes.truncate(4096);
    }
    bytes
}

fn replay(name: &str) {
    let (_, run) = TARGETS.into_iter().find(|(target, _)| *target == name).expect("a target");
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let (corpus, mut slowest) = (corpus(name), Duration::ZERO);
    assert!(!corpus.is_empty(), "no corpus of {name}");
    for (path, input) in &corpus {
        println!("{}", path.display());
        run(input);
    }
    for n in 0..MUTATIONS * rounds {
        let mut random = fastrand::Rng::with_seed(seed << 32 | n);
        let input = mutated(&corpus[random.usize(0..corpus.len())].1, &mut random);
        println!("mutation {n} of seed {seed}: {input:?}");
        let start = Instant::now();
        run(&input);
        slowest = slowest.max(start.elapsed());
        assert!(slowest < SECONDS_MAX, "an input took {slowest:?}");
    }
    println!("{name}: {} inputs, the slowest took {slowest:?}", corpus.len() as u64 + MUTATIONS * rounds);
}

#[test]
fn requests_are_parsed_the_same_however_they_are_cut() {
    replay("requests");
}

#[test]
fn requests_of_memcached_are_parsed_the_same_however_they_are_cut() {
    replay("memcached");
}

#[test]
fn a_payload_of_restore_is_refused_or_the_only_one_of_its_value() {
    replay("dumps");
}

#[test]
fn a_damaged_region_is_refused_or_answers_rightly() {
    replay("region");
}

#[test]
fn a_damaged_journal_is_refused_or_replayed_rightly() {
    replay("journal");
}

#[test]
fn what_is_salvaged_of_a_damaged_store_is_right() {
    replay("salvage");
}

#[test]
fn damaged_segments_are_refused_or_answer_rightly() {
    replay("segment");
}

#[test]
fn a_damaged_checkpoint_is_refused_or_answers_rightly() {
    replay("checkpoint");
}

#[test]
fn a_damaged_log_is_refused_or_replayed_rightly() {
    replay("log");
}

#[test]
fn every_target_is_replayed_and_has_its_fuzz_program() {
    for (name, _) in TARGETS {
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../fuzz/fuzz_targets/{name}.rs"));
        assert!(program.is_file(), "{}", program.display());
    }
}
