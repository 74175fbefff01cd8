//! Backups, compaction and reads while other processes have the store open: servers under load, killed servers, small disks.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Serve, code, program, run, run_with_input, stderr, stdout, succeed};
use redis::Commands as _;

/// Runs a command whose directories are arguments.
fn tell(arguments: &[&str], dirs: &[&Path]) -> Output {
    program().args(arguments).args(dirs).stdin(Stdio::null()).output().unwrap()
}

fn memory() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn fill(store: &Path, keys: u32) {
    let content: String = (0..keys).map(|n| format!("key {n:06}\t{:0200}\n", n)).collect();
    succeed(&run_with_input(store, &["load", "-", "--format", "tsv"], content.as_bytes()));
}

type Trace = Vec<(String, Vec<u8>, u64, (i64, i64))>;

fn trace(dir: &Path) -> Trace {
    let mut all: Trace = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let meta = fs::metadata(&path).unwrap();
            let name = path.display().to_string();
            // The socket of takeovers cannot be read.
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            (name, bytes, meta.blocks(), (meta.mtime(), meta.mtime_nsec()))
        })
        .collect();
    all.sort();
    all
}

/// The two counters of a client that raises them together, `a` before `b`.
fn counts(dir: &Path, options: &[&str]) -> [i64; 2] {
    // One process reads both, so that they are of one moment.
    let scan = succeed(&run(dir, &[&["scan", "--prefix", "count:"], options].concat()));
    let of = |name: &str| {
        let line = scan.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        line.map_or(0, |count| count.parse().unwrap())
    };
    [of("count:a"), of("count:b")]
}

/// Sets a flag when it is dropped, also by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_store_that_a_server_has_open_is_read_and_backed_up_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    fill(store, 20_000);
    let mut serve = Serve::start(store);
    let mut client = serve.client();
    let _: () = client.set("before", "1").unwrap();
    let ends = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // If an assertion fails, the scope waits for the worker.
        let _ends = SetOnDrop(ends);
        let mut singer = serve.client();
        let worker = scope.spawn(move || {
            let mut count = 0_i64;
            while !ends.load(Ordering::Relaxed)
                && singer.incr::<_, _, i64>("count:a", 1).is_ok()
                && singer.incr::<_, _, i64>("count:b", 1).is_ok()
            {
                count += 1;
            }
            count
        });
        for round in 0..3 {
            let acknowledged: i64 = client.get::<_, Option<i64>>("count:b").unwrap().unwrap_or(0);
            let sound = |[a, b]: [i64; 2]| a >= acknowledged && (a == b || a == b + 1);
            let seen = counts(store, &["--read-only"]);
            assert!(sound(seen), "{seen:?} of {acknowledged}");
            let target = dir.path().join(format!("backup {round}"));
            let made = succeed(&tell(&["backup"], &[store, &target]));
            assert!(made.starts_with("200") && made.contains(" bytes are in "), "{made}");
            let seen = counts(&target, &[]);
            assert!(sound(seen), "{seen:?} of {acknowledged}");
            assert_eq!(succeed(&run(&target, &["get", "before"])), "1\n");
            let stats: serde_json::Value =
                serde_json::from_str(&succeed(&run(&target, &["stats", "--json"]))).unwrap();
            assert_eq!(stats["opened"], "clean");
            assert!(succeed(&run(&target, &["check"])).starts_with("sound; 200"));
        }
        assert!(succeed(&run(store, &["check", "--read-only"])).starts_with("sound; 200"));
        let stats: serde_json::Value =
            serde_json::from_str(&succeed(&run(store, &["stats", "--read-only", "--json"]))).unwrap();
        assert_eq!((&stats["read_only"], &stats["durability"]), (&true.into(), &"power".into()));
        assert_eq!(stats["beside_writer"], true);
        let text = succeed(&run(store, &["stats", "--read-only"]));
        assert!(text.contains("found       open in another process: this is a copy in memory"), "{text}");
        assert!(!text.contains("recovered"), "nothing crashed: {text}");
        // Values that only the server knows are absent, not zero.
        let journal = stats["journal"].as_object().unwrap();
        assert_eq!(journal.keys().collect::<Vec<_>>(), ["bytes", "file_bytes"], "{stats}");
        assert!(stats["live_bytes"].as_u64().unwrap() > 0);
        // Only the server may write. The error text names the alternatives.
        for arguments in [["put", "k", "v"].as_slice(), &["get", "before"], &["del", "before"]] {
            let output = run(store, arguments);
            assert_eq!(code(&output), 1);
            assert!(stderr(&output).contains("can be read (`--read-only`)"), "{output:?}");
        }
        let output = tell(&["compact"], &[store]);
        assert!(code(&output) == 1 && stderr(&output).contains("in use by another process"), "{output:?}");
        serve.signal("TERM");
        assert!(worker.join().unwrap() > 0);
    });
    assert_eq!(serve.wait().code(), Some(0));
}

#[test]
fn a_store_without_a_journal_is_its_servers_alone_who_makes_the_backup() {
    let dir = memory();
    let (store, backups) = (&dir.path().join("store"), &dir.path().join("backups"));
    fill(store, 1000);
    let serve = Serve::with(store, &["--durability", "process", "--backup-dir", backups.to_str().unwrap()]);
    let mut client = serve.client();
    let _: () = client.set("k", "v").unwrap();
    if serve.started["stats"]["journal"].is_null() {
        let target = &dir.path().join("b");
        for output in [
            run(store, &["get", "--read-only", "k"]),
            run(store, &["check", "--read-only"]),
            tell(&["backup"], &[store, target]),
        ] {
            assert_eq!(code(&output), 1);
            assert!(stderr(&output).contains("it has no journal, so others cannot read it"), "{output:?}");
            assert!(stderr(&output).contains("`BGSAVE`"), "{output:?}");
        }
        assert!(!target.exists());
    }
    assert_eq!(redis::cmd("LASTSAVE").query::<u64>(&mut client).unwrap(), 0);
    assert_eq!(redis::cmd("SAVE").query::<String>(&mut client).unwrap(), "OK");
    let first: u64 = redis::cmd("LASTSAVE").query(&mut client).unwrap();
    let _: () = client.set("k", "w").unwrap();
    assert_eq!(redis::cmd("BGSAVE").query::<String>(&mut client).unwrap(), "Background saving started");
    let deadline = Instant::now() + Duration::from_secs(30);
    let second = loop {
        let second: u64 = redis::cmd("LASTSAVE").query(&mut client).unwrap();
        if second > first {
            break second;
        }
        if Instant::now() > deadline {
            panic!("BGSAVE does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    for (name, value) in [(first, "v\n"), (second, "w\n")] {
        let made = &backups.join(name.to_string());
        assert_eq!(succeed(&run(made, &["get", "k"])), value);
        assert!(succeed(&run(made, &["check"])).starts_with("sound; 1001 keys"));
    }
    let info: String = redis::cmd("INFO").arg("persistence").query(&mut client).unwrap();
    assert!(
        info.contains("rdb_last_bgsave_status:ok") && info.contains(&format!("rdb_last_save_time:{second}"))
    );
}

#[test]
fn a_server_that_was_told_no_directory_for_backups_refuses_to_make_them() {
    let dir = memory();
    let serve = Serve::start(&dir.path().join("store"));
    let mut client = serve.client();
    for command in ["SAVE", "BGSAVE"] {
        let error = redis::cmd(command).exec(&mut client).unwrap_err().to_string();
        assert!(error.contains("--backup-dir"), "{error}");
    }
    assert_eq!(redis::cmd("LASTSAVE").query::<u64>(&mut client).unwrap(), 0);
}

#[test]
fn a_killed_servers_store_is_read_as_it_will_be_recovered_and_stays_as_it_is() {
    for (dir, options) in
        [(tempfile::tempdir().unwrap(), [].as_slice()), (memory(), &["--durability", "process"])]
    {
        let store = &dir.path().join("store");
        fill(store, 2000);
        for _ in 0..3 {
            let mut serve = Serve::with(store, options);
            std::thread::scope(|scope| {
                for worker in 0..3 {
                    let mut client = serve.client();
                    scope.spawn(move || {
                        for n in 0_u64.. {
                            let key = format!("{worker} {}", n * 7919 % 5000);
                            if client.set::<_, _, ()>(key, n).is_err() || client.del::<_, ()>(n).is_err() {
                                break;
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(150));
                serve.child.kill().unwrap();
            });
            serve.wait();
            let before = trace(store);
            let seen = succeed(&run(store, &["scan", "--read-only"]));
            assert!(succeed(&run(store, &["check", "--read-only"])).starts_with("sound; "));
            let value = succeed(&run(store, &["get", "--read-only", "key 000007"]));
            assert_eq!(value.trim_end().trim_start_matches('0'), "7");
            let text = succeed(&run(store, &["stats", "--read-only"]));
            assert!(text.contains("found       not closed: recovered in memory"), "{text}");
            let target = dir.path().join("backup");
            succeed(&tell(&["backup", "--json"], &[store, &target]));
            assert!(trace(store) == before, "a file was changed by who only reads");
            assert!(succeed(&run(&target, &["scan"])) == seen);
            fs::remove_dir_all(target).unwrap();
            let stats: serde_json::Value =
                serde_json::from_str(&succeed(&run(store, &["stats", "--json"]))).unwrap();
            assert_eq!(stats["opened"], "recovered");
            assert!(succeed(&run(store, &["scan"])) == seen);
        }
    }
}

#[test]
fn processes_that_only_read_share_a_store_and_a_writer_waits_its_turn() {
    let dir = memory();
    let store = &dir.path().join("store");
    fill(store, 3000);
    // The output exceeds a pipe, so this process has the store open until the output is read.
    let mut reading = program();
    let reading = reading.args(["scan", "--read-only", "--dir"]).arg(store);
    let mut reading = reading.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    std::io::Read::read_exact(reading.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(&first, b"key 000000");
    assert_eq!(succeed(&run(store, &["scan", "--read-only", "--keys-only"])).lines().count(), 3000);
    let output = run(store, &["put", "k", "v"]);
    assert!(code(&output) == 1 && stderr(&output).contains("in use by another process"), "{output:?}");
    let rest = reading.wait_with_output().unwrap();
    assert_eq!(rest.stdout.iter().filter(|byte| **byte == b'\n').count(), 3000);
    succeed(&run(store, &["put", "k", "v"]));
}

#[test]
fn a_compaction_that_is_killed_leaves_every_key() {
    for dir in [tempfile::tempdir().unwrap(), memory()] {
        let store = &dir.path().join("store");
        fill(store, 30_000);
        let expected = succeed(&run(store, &["scan"]));
        let file = &store.join("store.bristlecone");
        let (mut killed, mut ended, mut wait) = (0, 0, 1);
        while killed < 12 || ended < 2 {
            let inode = fs::metadata(file).unwrap().ino();
            let mut compact = program();
            let mut compact = compact.arg("compact").arg(store).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            compact.kill().unwrap();
            compact.wait().unwrap();
            if fs::metadata(file).unwrap().ino() == inode {
                killed += 1;
                wait += wait / 3 + 1;
            } else {
                ended += 1;
                wait = 1 + wait / 2;
            }
            if killed % 3 == 0 {
                assert!(succeed(&run(store, &["scan", "--read-only"])) == expected);
            }
            assert!(succeed(&run(store, &["check"])).starts_with("sound; 30000 keys"));
            assert!(!store.join("store.bristlecone.new").exists());
        }
        assert!(succeed(&run(store, &["scan"])) == expected);
    }
}

#[test]
fn backup_and_compact_take_the_store_as_an_argument_or_as_dir() {
    let dir = memory();
    let store = &dir.path().join("store");
    fill(store, 10);
    let (first, second) = (&dir.path().join("first"), &dir.path().join("second"));
    assert!(succeed(&tell(&["backup"], &[store, first])).starts_with("10 keys, "));
    assert!(succeed(&tell(&["backup", "--dir"], &[store, second])).starts_with("10 keys, "));
    assert_eq!(succeed(&run(second, &["scan"])), succeed(&run(store, &["scan"])));
    assert!(succeed(&tell(&["compact"], &[store])).starts_with("10 keys; "));
    assert!(succeed(&tell(&["compact", "--dir"], &[store])).starts_with("10 keys; "));
    // Exactly one of the two, and a target for the backup.
    for output in [
        tell(&["compact"], &[]),
        tell(&["backup"], &[]),
        tell(&["backup"], &[store]),
        tell(&["backup", "--dir"], &[store]),
        run(store, &["compact", "elsewhere"]),
        run(store, &["backup", "elsewhere", "target"]),
    ] {
        assert_eq!(code(&output), 2, "{output:?}");
    }
}

/// Changes a byte of a value wherever it is in a store, but not in the log: a damaged log is noticed by the open.
fn damage(store: &Path) {
    let value = format!("{:0200}", 500);
    let mut found = 0;
    let files = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.is_file() && !path.display().to_string().contains(".log-")) {
        let mut bytes = fs::read(&file).unwrap();
        let places: Vec<usize> = bytes
            .windows(value.len())
            .enumerate()
            .filter(|(_, found)| *found == value.as_bytes())
            .map(|(at, _)| at)
            .collect();
        found += places.len();
        places.iter().for_each(|at| bytes[at + 100] ^= 1);
        fs::write(&file, bytes).unwrap();
    }
    assert!(found > 0, "the value is in no file");
}

#[test]
fn a_backup_with_check_is_known_to_be_sound_or_damaged() {
    for form in [&["--durability", "process"][..], &["--engine", "bwtree", "--durability", "process"]] {
        let dir = memory();
        let [store, sound, damaged] = ["store", "sound", "damaged"].map(|name| dir.path().join(name));
        let content: String = (0..1000).map(|n| format!("key {n:06}\t{n:0200}\n")).collect();
        let load = [&["load", "-", "--format", "tsv"][..], form].concat();
        succeed(&run_with_input(&store, &load, content.as_bytes()));
        let done = succeed(&tell(&["backup", "--check"], &[&store, &sound]));
        assert!(done.starts_with("1000 keys, ") && done.ends_with("the backup is sound\n"), "{done}");
        assert!(succeed(&run(&sound, &["check"])).starts_with("sound; 1000 keys"));
        damage(&store);
        // Without `--check` the damage goes over unseen.
        succeed(&tell(&["backup"], &[&store, &dir.path().join("unseen")]));
        let json = tell(&["backup", "--check", "--json"], &[&store, &damaged]);
        let report: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert_eq!((code(&json), report["problems"].as_array().unwrap().is_empty()), (4, false), "{report}");
        let text = tell(&["backup", "--check"], &[&store, &dir.path().join("again")]);
        assert!(code(&text) == 4 && stdout(&text).contains("the backup is damaged"), "{}", stdout(&text));
        assert_eq!(code(&run(&damaged, &["check"])), 4);
    }
}

#[test]
fn a_killed_store_with_a_damaged_page_can_be_backed_up() {
    let dir = memory();
    let [store, copy] = ["store", "copy"].map(|name| dir.path().join(name));
    let content: String = (0..1000).map(|n| format!("key {n:06}\t{n:0200}\n")).collect();
    let load = ["load", "-", "--format", "tsv", "--engine", "bwtree", "--durability", "process"];
    succeed(&run_with_input(&store, &load, content.as_bytes()));
    let mut serve = Serve::start(&store);
    let _: () = serve.client().set("later", "value").unwrap();
    serve.signal("KILL");
    serve.wait();
    damage(&store);
    // The log has a write, so the stored number of keys is not that of the copy. The pages are not read to count them.
    let done = succeed(&tell(&["backup", "--json"], &[&store, &copy]));
    let report: serde_json::Value = serde_json::from_str(&done).unwrap();
    assert!([1000, 1001].contains(&report["keys"].as_u64().unwrap()), "{report}");
    assert_eq!(report["keys_pending"], true, "{report}");
    assert_eq!(succeed(&run(&copy, &["get", "later"])), "value\n");
    let checked = tell(&["backup", "--check"], &[&store, &dir.path().join("again")]);
    assert!(code(&checked) == 4 && stdout(&checked).starts_with("about 100"), "{checked:?}");
    // The check names the problems also if the keys cannot be counted and nothing can be written.
    let read_only = run(&copy, &["check", "--read-only"]);
    assert!(code(&read_only) == 4 && stdout(&read_only).contains("problem: "), "{read_only:?}");
}

#[test]
fn a_store_of_few_keys_left_shrinks() {
    let dir = memory();
    let store = &dir.path().join("store");
    fill(store, 20_000);
    let keys: Vec<String> = (100..20_000).map(|n| format!("key {n:06}")).collect();
    for keys in keys.chunks(5000) {
        succeed(&run(store, &[&["del".to_owned()], keys].concat()));
    }
    let kept = succeed(&run(store, &["scan"]));
    let done: serde_json::Value =
        serde_json::from_str(&succeed(&tell(&["compact", "--json"], &[store]))).unwrap();
    assert_eq!(done["keys"], 100);
    let bytes = [&done["bytes_before"], &done["bytes"]].map(|bytes| bytes.as_u64().unwrap());
    assert!(bytes[0] > 4_000_000 && bytes[1] < 2_000_000, "{done}");
    assert_eq!(fs::metadata(store.join("store.bristlecone")).unwrap().len(), bytes[1]);
    assert_eq!(succeed(&run(store, &["scan"])), kept);
    assert!(succeed(&tell(&["compact"], &[store])).starts_with("100 keys; the file has "));
    let output = tell(&["compact"], &[&dir.path().join("none")]);
    assert!(code(&output) == 1 && stderr(&output).contains("there is no store in"), "{output:?}");
}

/// Runs a shell script with `$B` the program, in an empty tmpfs of 8 MiB in its own mount namespace.
fn on_small_disk(script: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("set -u\nmount -t tmpfs -o size=8m none \"$D\" || exit 99\ncd \"$D\"\n{script}");
    let mut last = None;
    for namespace in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60", "unshare"]).args(namespace).args(["sh", "-c", &script]);
        command.env("B", env!("CARGO_BIN_EXE_bristlecone")).env("D", dir.path());
        let output = command.stdin(Stdio::null()).output().expect("`timeout` (coreutils) is needed");
        if output.status.code() != Some(99) && output.status.code() != Some(1) {
            return output;
        }
        last = Some(output);
    }
    panic!(
        "this test mounts a tmpfs in a namespace of its own: run it as root, or allow user namespaces: {last:?}"
    );
}

#[test]
fn a_disk_without_space_for_a_second_store_keeps_the_first_and_nothing_of_the_other() {
    let output = on_small_disk(
        "awk 'BEGIN { v = sprintf(\"%0900d\", 1); for (n = 1; n <= 5000; n++) print \"k\" n \"\\t\" v }' |
           $B load - --format tsv --dir s > load.txt
         $B backup s b; echo backup $?; ls -d b; ls s
         $B compact s; echo compact $?; ls s
         $B check --dir s; echo check $?; $B get --dir s k4999 | wc -c; $B put --dir s more v; echo put $?; exit 0",
    );
    let (told, said) = (stderr(&output), stdout(&output));
    assert!(told.contains("no space for the backup in b, which takes "), "{output:?}");
    assert!(told.contains("no space for the compacted store beside it in s, which takes "), "{output:?}");
    assert!(told.contains("what was made of the other is removed"), "{told}");
    let expected = "backup 1\nstore.bristlecone\ncompact 1\nstore.bristlecone\nsound; 5000 keys";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.ends_with("check 0\n901\nput 0\n"), "{said}");
}
