//! A process finds what another process stored: after a clean end, after `kill -9`, after a load that failed.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Serve, code, program, run, run_with_input, stderr, stdout, succeed};
use redis::Commands as _;

/// Loads a file with this content.
fn load(store: &Path, content: &[u8], options: &[&str]) -> std::process::Output {
    run_with_input(store, &[&["load", "-", "--format"], options].concat(), content)
}

#[test]
fn one_command_finds_what_another_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    assert_eq!(succeed(&run(store, &["put", "k", "v"])), "");
    assert_eq!(succeed(&run(store, &["get", "k"])), "v\n");
    assert_eq!(succeed(&run(store, &["get", "--raw", "k"])), "v");
    assert_eq!(
        succeed(&run(store, &["get", "--json", "k"])),
        "{\"found\":true,\"key\":\"k\",\"value\":\"v\"}\n"
    );
    assert_eq!(succeed(&run(store, &["put", "--json", "k", "-w"])), "{\"replaced\":true,\"stored\":true}\n");
    assert_eq!(succeed(&run(store, &["get", "k"])), "-w\n");
    assert_eq!(succeed(&run_with_input(store, &["put", "bytes", "-"], b"\x00\xff\n")), "");
    assert_eq!(run(store, &["get", "--raw", "bytes"]).stdout, b"\x00\xff\n");
    assert_eq!(succeed(&run(store, &["get", "bytes"])), "\\x00\\xFF\\x0A\n");
}

#[test]
fn an_absent_key_has_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    succeed(&load(store, b"a\t1\nb\t2\n", &["tsv"]));
    let output = run(store, &["get", "absent"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (3, ""));
    assert_eq!(stderr(&output), "bristlecone: key not found: absent\n");
    let output = run(store, &["get", "--json", "absent"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (3, "{\"found\":false,\"key\":\"absent\"}\n"));
    let output = run(store, &["del", "a", "absent"]);
    assert_eq!((code(&output), stdout(&output).as_str()), (3, "1\n"));
    assert_eq!(succeed(&run(store, &["del", "--json", "b"])), "{\"missing\":0,\"removed\":1}\n");
    assert_eq!(succeed(&run(store, &["scan"])), "");
}

#[test]
fn a_key_of_a_wrong_length_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let output = run(store, &["put", "", "v"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with("bristlecone: a key of 0 bytes"), "{output:?}");
}

#[test]
fn commands_that_find_no_store_make_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    for arguments in [["get", "k"].as_slice(), &["del", "k"], &["scan"], &["stats"], &["check"]] {
        let output = run(store, arguments);
        assert_eq!(code(&output), 1, "{output:?}");
        assert!(stderr(&output).contains("there is no store in"), "{output:?}");
        assert!(!store.exists(), "{arguments:?}");
    }
}

#[test]
fn scan_prints_ranges_in_order_and_escapes_what_does_not_print() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    succeed(&load(store, "b\t2\na\t1\nuser:1\tAda\nuser:2\tä\\b\nx\u{7}\tbell\n".as_bytes(), &["tsv"]));
    succeed(&run_with_input(store, &["put", "z", "-"], b"\xff\t"));
    let scan = |options: &[&str]| succeed(&run(store, &[&["scan"], options].concat()));
    assert_eq!(scan(&["--to", "c"]), "a\t1\nb\t2\n");
    assert_eq!(scan(&["--prefix", "user:"]), "user:1\tAda\nuser:2\tä\\\\b\n");
    assert_eq!(scan(&["--from", "user:2", "--keys-only"]), "user:2\nx\\x07\nz\n");
    assert_eq!(scan(&["--reverse", "--limit", "1"]), "z\t\\xFF\\x09\n");
    assert_eq!(scan(&["--from", "b", "--to", "b"]), "");
    assert_eq!(scan(&["--limit", "1", "--json"]), "{\"key\":\"a\",\"value\":\"1\"}\n");
    assert_eq!(scan(&["--prefix", "z", "--json"]), "{\"key\":\"z\",\"value_base64\":\"/wk=\"}\n");
    assert_eq!(run(store, &["scan", "--prefix", "z", "--raw"]).stdout, b"z\t\xff\t\n");
}

#[test]
fn a_reader_that_goes_away_ends_scan_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let content: String = (0..100_000).map(|key| format!("{key:06}\tvalue\n")).collect();
    succeed(&load(store, content.as_bytes(), &["tsv"]));
    let mut scan = program();
    let mut scan = scan
        .arg("scan")
        .arg("--dir")
        .arg(store)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = [0; 13];
    scan.stdout.take().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"000000\tvalue\n");
    let output = scan.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
}

#[test]
fn loaded_files_are_found_as_their_formats_say() {
    let dir = tempfile::tempdir().unwrap();
    let scan = |store: &Path| succeed(&run(store, &["scan"]));
    let store = &dir.path().join("tsv");
    succeed(&load(store, b"b\t2\t3\na\nb\tlast\n", &["tsv"]));
    assert_eq!(scan(store), "a\t\nb\tlast\n");
    let store = &dir.path().join("csv");
    succeed(&load(store, b"b,\"2, x\",3\r\n\"a \"\"q\"\"\",1\n", &["csv"]));
    assert_eq!(scan(store), "a \"q\"\t1\nb\t\"2, x\",3\n");
    let store = &dir.path().join("columns");
    let columns = ["csv", "--header", "--key-column", "name", "--value-column", "id"];
    succeed(&load(store, b"id,name\n1,Ada\n2,\"Bo, jr\"\n", &columns));
    assert_eq!(scan(store), "Ada\t1\nBo, jr\t2\n");
    let store = &dir.path().join("fimi");
    for _ in 0..2 {
        // Loading again changes nothing: an item is counted once for each transaction.
        succeed(&load(store, b"1 2\n\n2 30 2\n", &["fimi"]));
    }
    let expected = "i:000001\t1\ni:000002\t2\ni:000030\t1\n\
                    t:00000001:000001\t\nt:00000001:000002\t\nt:00000003:000002\t\nt:00000003:000030\t\n";
    assert_eq!(scan(store), expected);
}

#[test]
fn in_an_existing_store_what_was_loaded_before_a_bad_line_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    succeed(&load(store, b"e\t5\n", &["tsv"]));
    let output = load(store, b"a\t1\nb\t2\n\t3\nd\t4\n", &["tsv"]);
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("line 3: ") && stderr(&output).contains("2 pairs before it were loaded")
    );
    assert_eq!(succeed(&run(store, &["scan"])), "a\t1\nb\t2\ne\t5\n");
}

#[test]
fn a_bad_line_leaves_no_new_store_and_the_same_directory_takes_the_next_load() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let output = load(store, b"a\t1\nb\t2\n\t3\nd\t4\n", &["tsv"]);
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("line 3: ") && stderr(&output).ends_with("no store was made\n"),
        "{output:?}"
    );
    assert!(!store.exists(), "load made the directory, so it removes it");
    succeed(&load(store, b"a\t1\n", &["tsv"]));
    assert_eq!(succeed(&run(store, &["scan"])), "a\t1\n");
}

#[test]
fn load_and_stats_agree_on_the_number_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    for (format, content, pairs) in [("tsv", &b"a\t1\nb\t2\na\t3\n"[..], 3), ("fimi", b"1 2\n2 3\n", 4)] {
        let store = &dir.path().join(format);
        let loaded = succeed(&load(store, content, &[format, "--json"]));
        let loaded: serde_json::Value = serde_json::from_str(&loaded).unwrap();
        let stats = succeed(&run(store, &["stats", "--json"]));
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(loaded["pairs"], pairs);
        assert_eq!(loaded["keys"], stats["keys"]);
        assert!(stats["keys"].as_u64().is_some());
    }
}

#[test]
fn stats_and_check_tell_about_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    succeed(&load(store, b"a\t1\nb\t2\n", &["tsv"]));
    let stats: serde_json::Value = serde_json::from_str(&succeed(&run(store, &["stats", "--json"]))).unwrap();
    assert_eq!((stats["keys"].as_u64(), stats["opened"].as_str()), (Some(2), Some("clean")));
    let table = succeed(&run(store, &["stats"]));
    assert!(table.contains("keys        2\n"));
    // The sizes have the same names in both forms.
    let bytes = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}"));
    assert_eq!(
        bytes("live_bytes") + bytes("free_bytes") + bytes("overhead_bytes"),
        bytes("region_bytes"),
        "{stats}"
    );
    assert_eq!(bytes("file_bytes"), std::fs::metadata(store.join("store.bristlecone")).unwrap().len());
    let sizes =
        [("file", "file_bytes"), ("region", "region_bytes"), ("live", "live_bytes"), ("free", "free_bytes")];
    for (row, name) in sizes {
        assert!(table.contains(&format!("{row:<12}{} bytes", bytes(name))), "{row} in {table}");
    }
    assert_eq!(stats["latency"], serde_json::json!({}), "nothing was read or written: {stats}");
    let report: serde_json::Value =
        serde_json::from_str(&succeed(&run(store, &["check", "--json"]))).unwrap();
    assert_eq!(report["keys"], 2);
    assert!(succeed(&run(store, &["check"])).starts_with("sound; 2 keys, "));
}

#[test]
fn a_damaged_store_is_told_apart_from_a_sound_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let content: String = (0..2000).map(|key| format!("{key:06}\tvalue of {key}\n")).collect();
    succeed(&load(store, content.as_bytes(), &["tsv"]));
    let file = store.join("store.bristlecone");
    let mut bytes = fs::read(&file).unwrap();
    // Flip a bit of a record: its checksum detects this.
    let at = bytes.windows(13).position(|window| window == b"value of 1234").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let output = run(store, &["check"]);
    assert_eq!(code(&output), 4, "{output:?}");
    assert!(stdout(&output).contains("problem: ") && stdout(&output).contains("damaged: "), "{output:?}");
}

#[test]
fn a_second_process_is_refused_while_a_server_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let mut serve = Serve::start(store);
    let _: () = serve.client().set("k", "v").unwrap();
    let output = run(store, &["get", "k"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("in use by another process"), "{output:?}");
    serve.signal("TERM");
    assert_eq!(serve.wait().code(), Some(0));
    assert_eq!(succeed(&run(store, &["get", "k"])), "v\n");
    let stats: serde_json::Value = serde_json::from_str(&succeed(&run(store, &["stats", "--json"]))).unwrap();
    assert_eq!(stats["opened"], "clean");
}

#[test]
fn a_killed_server_has_lost_nothing_that_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let mut expected = 0;
    for round in 0..5 {
        let mut serve = Serve::start(store);
        let mut client = serve.client();
        let found: Option<i64> = client.get("counter").unwrap();
        assert!(
            (expected..=expected + 4).contains(&found.unwrap_or(0)),
            "{expected} acknowledged, {found:?} found"
        );
        expected = found.unwrap_or(0);
        if round > 0 {
            assert_eq!(serve.started["stats"]["opened"], "recovered");
        }
        let acknowledged: i64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let mut client = serve.client();
                    scope.spawn(move || {
                        let mut count = 0;
                        while client.incr::<_, _, i64>("counter", 1).is_ok() {
                            count += 1;
                            let key = format!("key:{round}:{worker}:{count}");
                            if client.set::<_, _, ()>(key, count).is_err() {
                                break;
                            }
                        }
                        count
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(200));
            serve.child.kill().unwrap();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(acknowledged > 0);
        expected += acknowledged;
        serve.wait();
    }
    let stored: i64 = succeed(&run(store, &["get", "counter"])).trim().parse().unwrap();
    assert!((expected..=expected + 4).contains(&stored), "{expected} acknowledged, {stored} stored");
    let check = run(store, &["check"]);
    assert_eq!(code(&check), 0, "{}", stdout(&check));
    // Every SET before an acknowledged increment of the same connection is in the store.
    let keys = succeed(&run(store, &["scan", "--prefix", "key:", "--keys-only"])).lines().count() as i64;
    assert!(keys >= expected - 4 * 5 && keys <= stored, "{keys} keys, {expected} acknowledged");
}
