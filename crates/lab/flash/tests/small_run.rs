//! A small run from end to end. It once waited forever for an answer that it had skipped as noise, so it also shows that the protocol
//! works between two processes.

use std::ffi::OsString;
use std::path::Path;

use competitors::{KINDS, Promise};
use flash::{Error, Options, run};

/// Set for the process of a store.
const CHILD: &str = "BRISTLECONE_FLASH_CHILD";

/// Not an independent test: the process of a store in the other tests.
#[test]
fn store() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // The test program has printed the beginning of a line.
    println!();
    flash::serve().unwrap();
}

/// The command that starts the process of a store. It fails if `is_child` is false.
fn child(is_child: bool) -> Vec<OsString> {
    let program = std::env::current_exe().unwrap();
    let mut command = vec![OsString::from("env")];
    command.extend(is_child.then(|| OsString::from(format!("{CHILD}=1"))));
    command.push(program.into_os_string());
    command.extend(["--exact", "store", "--nocapture", "--test-threads=1"].map(OsString::from));
    command
}

fn options(backing: &Path) -> Options {
    Options {
        memory_bytes: 32 << 20,
        cache_percent: 75,
        is_limited: false,
        direct_io: false,
        sizes: vec![0.005, 0.01],
        promises: vec![Promise::Process, Promise::Power],
        seconds: 3600.0,
        load_seconds: 3600.0,
        operations_max: 60,
        rounds: 2,
        only: None,
        backing: backing.to_owned(),
        seed: 7,
        child: child(true),
    }
}

#[test]
fn a_small_run_has_every_cell_of_every_store_and_leaves_nothing() {
    let backing = tempfile::tempdir().unwrap();
    let report = run(&options(backing.path()), &|_| {}).unwrap();
    assert_eq!(report.parts.len(), 4);
    for part in &report.parts {
        let reads = if part.durability == Promise::Process { 3 } else { 0 };
        assert_eq!(part.columns.len(), 1 + reads + 4, "{:?}", part.columns);
        assert_eq!(part.rows.len(), 1 + KINDS.len());
        for row in &part.rows {
            assert_eq!(row.failure, None);
            assert!(row.cells.iter().flatten().all(|figure| figure.per_second > 0.0), "{row:?}");
            assert!(row.cells.iter().all(Option::is_some) && row.reopen_seconds.is_some(), "{row:?}");
            assert!(row.space_amplification.is_some_and(|ratio| ratio > 1.0), "{row:?}");
        }
    }
    let counted = |part: &flash::Part| {
        let row = &part.rows[0];
        assert_eq!(row.uncounted, None);
        row.cells.iter().flatten().filter(|figure| figure.syncs_per_commit.is_some()).count()
    };
    let counts: Vec<_> = report.parts.iter().map(counted).collect();
    assert_eq!(counts, [0, 5, 0, 0], "one part with power durability: the load and four cells that update");
    let text = report.to_string();
    assert!(text.contains("MEMORY IS NOT LIMITED") && text.contains("update, 8 writers"), "{text}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
}

#[test]
fn a_run_with_direct_io_says_so() {
    let backing = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let only = Some(vec![competitors::ours::NAME.to_owned()]);
    let direct = Options { direct_io: true, rounds: 1, sizes: vec![0.01], only, ..options(backing.path()) };
    let report = run(&direct, &|_| {}).unwrap();
    for row in report.parts.iter().flat_map(|part| &part.rows) {
        assert!(row.failure.is_none() && row.cells.iter().all(Option::is_some), "{row:?}");
    }
    assert!(report.to_string().contains("Bristlecone with direct I/O"));
}

#[test]
fn a_limited_run_works_or_says_how_to_run_without_the_limit() {
    // Not in the directory for temporary files: that is often a memory file system, whose files count as memory.
    let backing = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let limited = Options {
        is_limited: true,
        memory_bytes: 256 << 20,
        sizes: vec![0.001],
        promises: vec![Promise::Process],
        rounds: 1,
        ..options(backing.path())
    };
    match run(&limited, &|_| {}) {
        Ok(report) => {
            let row = &report.parts[0].rows[0];
            assert!(row.peak_bytes.is_some_and(|bytes| bytes > 0 && bytes <= 256 << 20), "{row:?}");
            assert!(!report.to_string().contains("NOT LIMITED"));
        }
        Err(error) => {
            assert!(matches!(error, Error::Unlimited(_) | Error::InMemory(_)), "{error}");
            assert!(error.to_string().contains("--unlimited-memory"), "{error}");
        }
    }
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
}

#[test]
fn a_process_that_ends_early_and_too_little_space_are_errors() {
    let backing = tempfile::tempdir().unwrap();
    let dies = Options { child: child(false), ..options(backing.path()) };
    let error = run(&dies, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("the process of bristlecone ended early"), "{error}");
    let much = Options { sizes: vec![1e12], ..options(backing.path()) };
    let error = run(&much, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("--memory"), "{error}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
}
