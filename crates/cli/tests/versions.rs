//! Versions of a store from the command line: names, reads at a name, rollback, also when the rollback is killed.

use std::process::Stdio;
use std::time::Duration;

use crate::common::{code, program, run, stderr, succeed};

/// Makes a store of engine cdds with these pairs.
fn store(dir: &std::path::Path, pairs: u32) {
    let options = bristlecone::Options::default().engine("cdds");
    let store = bristlecone::Store::open(dir, options).unwrap();
    let mut batch = store.batch();
    (0..pairs).for_each(|n| _ = batch.put(format!("key {n:05}").as_bytes(), b"old"));
    assert!(batch.commit().unwrap());
    store.close().unwrap();
}

#[test]
fn a_version_is_named_read_gone_back_to_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path(), 3);
    succeed(&run(dir.path(), &["versions", "keep", "monday"]));
    succeed(&run(dir.path(), &["put", "key 00001", "new"]));
    succeed(&run(dir.path(), &["del", "key 00002"]));
    assert_eq!(succeed(&run(dir.path(), &["get", "key 00001"])), "new\n");
    assert_eq!(succeed(&run(dir.path(), &["get", "key 00001", "--at", "monday"])), "old\n");
    assert_eq!(succeed(&run(dir.path(), &["scan", "--keys-only"])), "key 00000\nkey 00001\n");
    let then = "key 00002\nkey 00001\nkey 00000\n";
    let scanned = run(dir.path(), &["scan", "--keys-only", "--reverse", "--prefix", "key", "--at", "monday"]);
    assert_eq!(succeed(&scanned), then);
    let listed = succeed(&run(dir.path(), &["versions", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (listed["named"][0]["name"].as_str(), listed["named"][0]["keys"].as_u64()),
        (Some("monday"), Some(3))
    );
    let again = run(dir.path(), &["versions", "keep", "monday"]);
    assert!(code(&again) != 0 && stderr(&again).contains("already"), "{again:?}");
    succeed(&run(dir.path(), &["versions", "rollback", "monday"]));
    assert_eq!(succeed(&run(dir.path(), &["scan"])), "key 00000\told\nkey 00001\told\nkey 00002\told\n");
    succeed(&run(dir.path(), &["versions", "forget", "monday"]));
    let gone = run(dir.path(), &["get", "key 00001", "--at", "monday"]);
    assert!(code(&gone) != 0 && stderr(&gone).contains("no version named"), "{gone:?}");
    succeed(&run(dir.path(), &["check"]));
}

#[test]
fn a_store_without_versions_names_the_engine_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&run(dir.path(), &["put", "a", "b"]));
    let refused = run(dir.path(), &["versions", "keep", "monday"]);
    assert!(code(&refused) != 0 && stderr(&refused).contains("keeps no versions"), "{refused:?}");
}

/// A rollback is killed at a random moment: the store has the state before it or the state after it.
#[test]
fn a_rollback_that_is_killed_took_place_or_did_not() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path(), 300);
    succeed(&run(dir.path(), &["versions", "keep", "before"]));
    // A process that another test forks holds the locks of this process until it calls exec. So a store that was just closed may still be
    // locked.
    let open = || {
        let once = || bristlecone::Store::open(dir.path(), bristlecone::Options::default());
        for _ in 0..400 {
            match once() {
                Err(error) if format!("{error:?}").contains("Locked") => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                opened => return opened.unwrap(),
            }
        }
        once().unwrap()
    };
    let values = |store: &bristlecone::Store, past: Option<&str>| -> Vec<Vec<u8>> {
        let past = past.map(|name| store.snapshot_named(name).unwrap());
        let scan = past.as_ref().map_or_else(|| store.scan(..), |past| past.scan(..));
        scan.map(|pair| pair.unwrap().1).collect()
    };
    let mut outcomes = [0; 2];
    for round in 0..40_u64 {
        let new = format!("new {round}").into_bytes();
        let writer = open();
        for n in 0..300 {
            writer
                .with(bristlecone::WriteOptions { sync: n == 299 })
                .put(format!("key {n:05}").as_bytes(), &new)
                .unwrap();
        }
        writer.close().unwrap();
        drop(writer);
        let mut command = program();
        command.args(["versions", "rollback", "before", "--dir"]).arg(dir.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 97 % 41 * 250));
        let _ = child.kill();
        child.wait().unwrap();
        let store = open();
        let found = values(&store, None);
        let is_back = found == vec![b"old".to_vec(); 300];
        assert!(is_back || found == vec![new; 300], "round {round}: {:?}", &found[..3]);
        outcomes[usize::from(is_back)] += 1;
        assert_eq!(values(&store, Some("before")), vec![b"old".to_vec(); 300]);
        let report = store.check().unwrap();
        assert_eq!((report.problems, report.keys), (Vec::new(), 300));
    }
    println!("{} rollbacks did not take place, {} did", outcomes[0], outcomes[1]);
    // If one outcome never occurred, run a rollback to its end.
    if outcomes[0] == 0 || outcomes[1] == 0 {
        succeed(&run(dir.path(), &["versions", "rollback", "before"]));
        assert_eq!(values(&open(), None), vec![b"old".to_vec(); 300]);
    }
}
