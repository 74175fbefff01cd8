//! `--memory`: the memory that a load needs for pairs that are not checkpointed yet, measured on the process.

use std::io::Write as _;
use std::process::Stdio;

use crate::common::{code, program, run, run_with_input, stderr, stdout};

const MIB: u64 = 1 << 20;
const BOUND: u64 = 16 * MIB;
/// Memory outside the bound: the program, the dirty marks of its index, the reads of a checkpoint.
const BESIDES: u64 = 32 * MIB;

/// Private resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn a_load_of_four_times_the_bound_takes_no_more_memory_than_that() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let mut child = program()
        .args(["load", "-", "--format", "tsv", "--memory", "16M", "--json", "--dir"])
        .arg(store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (mut most, mut pairs) = (0, 0_u64);
    while pairs * 220 < 4 * BOUND {
        let mut lines = Vec::new();
        for _ in 0..1000 {
            let key = pairs.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            lines.extend(format!("{key:020}\t{pairs:0200}\n").into_bytes());
            pairs += 1;
        }
        input.write_all(&lines).unwrap();
        most = most.max(resident(child.id()));
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    println!(
        "{pairs} pairs, {} MiB, bound {} MiB, {} MiB resident",
        pairs * 220 / MIB,
        BOUND / MIB,
        most / MIB
    );
    assert!(most <= BOUND + BESIDES, "{most}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["pairs"].as_u64(), report["keys"].as_u64()), (Some(pairs), Some(pairs)));
    let stats = run(store, &["stats", "--json"]);
    assert!(stdout(&stats).contains("\"journal\":{"), "it had a journal: {}", stdout(&stats));
}

#[test]
fn a_bound_that_is_too_small_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        run_with_input(&dir.path().join("store"), &["load", "-", "--format", "tsv", "--memory", "1M"], b"");
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("16777216"), "{}", stderr(&output));
    assert!(!dir.path().join("store/store.bristlecone").exists(), "a wrong option makes no store");
}
