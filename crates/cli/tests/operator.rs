//! The program in an operator's bad cases: full disks, read-only file systems, destroyed superblocks, wrong arguments.
//!
//! The file systems are small tmpfs, each in its own mount namespace, so that they are invisible outside.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use redis::ConnectionLike as _;

use crate::common::{Serve, code, program, run, run_with_input, stderr, stdout, succeed};

/// Runs a shell script with `$B` the program, in an empty tmpfs of 8 MiB in its own mount namespace.
fn on_small_disk(script: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("set -u\nmount -t tmpfs -o size=8m none \"$D\" || exit 99\ncd \"$D\"\n{script}");
    let mut tried = Vec::new();
    for namespace in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let probe = "mount -t tmpfs -o size=8m none \"$D\"";
        let shell = |script: &str| {
            let mut command = Command::new("timeout");
            command.args(["--kill-after=5", "60", "unshare"]).args(namespace).args(["sh", "-c", script]);
            command.env("B", env!("CARGO_BIN_EXE_bristlecone")).env("D", dir.path());
            command.stdin(Stdio::null()).output().expect("`timeout` (coreutils) is needed")
        };
        let probed = shell(probe);
        if probed.status.success() {
            return shell(&script);
        }
        tried.push(stderr(&probed));
    }
    panic!(
        "this test mounts a tmpfs in a namespace of its own: run it as root with CAP_SYS_ADMIN, or allow \
         unprivileged user namespaces; `unshare` (util-linux) said {tried:?}"
    );
}

/// Pairs of about 900 bytes, in total more than the small disk holds.
const BIG: &str =
    "awk 'BEGIN { v = sprintf(\"%0900d\", 1); for (n = 1; n <= 20000; n++) print \"k\" n \"\\t\" v }'";

#[test]
fn a_load_on_a_full_disk_names_the_file_and_keeps_what_it_loaded() {
    let output = on_small_disk(&format!(
        "{BIG} | $B load - --format tsv --dir s; echo load $?; $B get k1 --dir s | wc -c; $B check --dir s; \
         echo check $?; $B scan --dir s --keys-only | wc -l"
    ));
    let (told, said) = (stderr(&output), stdout(&output));
    assert!(told.starts_with("bristlecone: no space to grow s/store.bristlecone by "), "{output:?}");
    let loaded = told.split("; ").last().and_then(|end| end.split(' ').next()).unwrap();
    assert!(loaded.parse::<u64>().unwrap() > 1000, "{told}");
    assert!(said.starts_with(&format!("load 1\n901\nsound; {loaded} keys")), "{said}");
    assert!(said.ends_with(&format!("check 0\n{loaded}\n")), "{said}");
}

#[test]
fn a_store_that_found_no_space_when_it_was_made_is_made_once_there_is_space() {
    let output = on_small_disk(
        "head -c 9000000 /dev/zero > fill 2> /dev/null; $B put a b --dir s; echo put $?; ls s; rm fill; \
         $B get a --dir s; echo get $?; $B put a b --dir s; echo put $?; $B check --dir s > report; echo check $?",
    );
    // `ls` prints nothing: the failed creation left no file.
    assert_eq!(stdout(&output), "put 1\nget 1\nput 0\ncheck 0\n", "{output:?}");
    let told = stderr(&output);
    assert!(told.starts_with("bristlecone: no space for a new store in s: "), "{told}");
    assert!(!told.contains("reads go on") && !told.contains(".new"), "{told}");
    assert!(told.contains("bristlecone: there is no store in s: "), "{told}");
}

#[test]
fn a_server_on_a_full_disk_refuses_sets_and_takes_them_again_after_deletes() {
    // redis-cli (Debian: redis-tools) takes a command from each line of its input.
    let output = on_small_disk(
        "$B serve --dir s --listen 127.0.0.1:0 --json > started & server=$!
         for try in $(seq 100); do grep -q listen started && break; sleep 0.1; done
         port=$(sed 's/.*\"listen\":\"127.0.0.1:\\([0-9]*\\)\".*/\\1/' started)
         awk 'BEGIN { v = sprintf(\"%0900d\", 1); for (n = 1; n <= 12000; n++) print \"SET k\" n, v }' |
             redis-cli -p $port > /dev/null
         echo refused $(redis-cli -p $port SET another $(printf %0900d 1))
         echo length $(redis-cli -p $port STRLEN k1)
         awk 'BEGIN { for (n = 1; n <= 2000; n++) print \"DEL k\" n }' | redis-cli -p $port | sort | uniq -c
         echo again $(redis-cli -p $port SET another $(printf %0900d 1))
         echo length $(redis-cli -p $port STRLEN another)
         kill $server; wait $server; echo server $?
         $B check --dir s > report; echo check $?",
    );
    let said = stdout(&output);
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 7, "{output:?}");
    assert!(lines[0].starts_with("refused ERR no space to grow s/store.bristlecone"), "{said}");
    assert_eq!(
        lines[1..],
        ["length 900", "2000 1", "again OK", "length 900", "server 0", "check 0"],
        "{said}"
    );
}

/// Writes until the disk is full, deletes, and later does this `write`, which has these replies.
fn write_again_after_a_full_disk(write: &str, replies: &[&str]) {
    let script =
        "$B serve --dir s --listen 127.0.0.1:0 --json --durability power --journal-bytes 4M > started & server=$!
         for try in $(seq 100); do grep -q listen started && break; sleep 0.1; done
         port=$(sed 's/.*\"listen\":\"127.0.0.1:\\([0-9]*\\)\".*/\\1/' started)
         awk 'BEGIN { v = sprintf(\"%0900d\", 1); for (n = 1; n <= 12000; n++) print \"SET k\" n, v }' |
             redis-cli -p $port > /dev/null
         redis-cli -p $port FLUSHALL
         awk 'BEGIN { for (n = 1; n <= 2000; n++) print \"DEL k\" n }' | redis-cli -p $port | sort | uniq -c
         sleep 5.5
         WRITE
         redis-cli -p $port FLUSHALL
         kill $server; wait $server; echo server $?";
    let output = on_small_disk(&script.replace("WRITE", write));
    let (said, told) = (stdout(&output), stderr(&output));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(lines[0].starts_with("ERR no space to grow s/store.bristlecone by "), "{said}");
    assert!(lines[0].contains("; DEL of one key at a time works without space"), "{said}");
    assert_eq!(lines[1..], [&["2000 1"], replies, &["OK", "server 0"]].concat(), "{said}");
    let logged: Vec<&str> = told.lines().collect();
    assert_eq!(logged.len(), 2, "{told}");
    assert!(
        logged[0].contains("ERROR") && logged[0].contains("writes are refused: no space to grow s/store"),
        "{told}"
    );
    assert!(logged[0].contains("DEL of one key at a time works without space"), "{told}");
    assert!(logged[1].contains("WARN") && logged[1].contains("writes succeed again refused="), "{told}");
}

#[test]
fn the_log_has_one_line_when_a_full_disk_refuses_writes_and_one_when_they_succeed_again() {
    let write = "for n in 1 2 3; do redis-cli -p $port SET another $(printf %0900d 1); done";
    write_again_after_a_full_disk(write, &["OK", "OK", "OK"]);
}

#[test]
fn a_transaction_ends_the_time_in_which_writes_are_refused() {
    let write = "printf 'MULTI\\nSET another value\\nEXEC\\n' | redis-cli -p $port";
    write_again_after_a_full_disk(write, &["OK", "QUEUED", "OK"]);
}

#[test]
fn a_read_only_file_system_is_named_as_the_reason() {
    let output = on_small_disk(
        "$B put a b --dir s && mount -o remount,ro \"$D\"
         for c in 'get a' 'put a c' 'del a' scan stats check 'serve --listen 127.0.0.1:0'; do
             timeout 10 $B $c --dir s; echo $?
         done
         $B put a b --dir new; echo $?",
    );
    assert_eq!(stdout(&output), "1\n".repeat(8), "{output:?}");
    let told = stderr(&output);
    let reason = "Read-only file system (os error 30)";
    assert_eq!(told.matches(&format!("cannot open s/store.bristlecone: {reason}\n")).count(), 7, "{told}");
    assert!(told.ends_with(&format!("cannot make directory new: {reason}\n")), "{told}");
}

#[test]
fn a_store_on_a_read_only_file_system_is_salvaged_holes_and_all() {
    // Regression: salvage opened the file for writing and filled its holes, here a gigabyte on a disk of 8 MiB.
    let output = on_small_disk(
        "R=$(mktemp -d); $B put a b --dir s && truncate -s 1G s/store.bristlecone && mount -o remount,ro \"$D\"
         stat -c '%s %b' s/store.bristlecone > $R/before; $B check --salvage $R/new --dir s > $R/report; echo salvage $?
         stat -c '%s %b' s/store.bristlecone | cmp - $R/before; echo same $?
         $B get a --dir $R/new; rm -r $R",
    );
    assert_eq!(stdout(&output), "salvage 0\nsame 0\nb\n", "{output:?}");
}

fn destroy_superblocks(store: &Path) {
    let file = fs::File::options().write(true).open(store.join("store.bristlecone")).unwrap();
    // After the page that pairs the file with its journal.
    for at in [4096, 4096 + 4096] {
        file.write_all_at(&[0xA5; 256], at).unwrap();
    }
}

#[test]
fn a_store_without_superblocks_says_the_way_out_and_is_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, rescued) = (&dir.path().join("store"), &dir.path().join("rescued"));
    let pairs: String = (0..5000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    succeed(&run_with_input(store, &["load", "-", "--format", "tsv"], pairs.as_bytes()));
    destroy_superblocks(store);
    for command in [&["get", "key00001"][..], &["check"]] {
        let output = run(store, command);
        assert_eq!(code(&output), 4);
        assert!(stderr(&output).contains("check --salvage NEW_DIR"), "{output:?}");
    }
    let salvage = ["check", "--salvage", rescued.to_str().unwrap()];
    // The number of keys is lost with the superblock.
    let output = run(store, &salvage);
    assert_eq!(code(&output), 4);
    let report = stdout(&output);
    assert!(report.starts_with("5000 keys are in the new store in "), "{report}");
    assert!(report.contains("the superblock was lost"), "{report}");
    assert!(succeed(&run(rescued, &["check"])).starts_with("sound; 5000 keys"));
    assert_eq!(succeed(&run(rescued, &["scan", "--raw"])), pairs);
    let again = run(store, &salvage);
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("already holds a store"), "{again:?}");
}

#[test]
fn damage_of_every_kind_has_code_4() {
    let dir = tempfile::tempdir().unwrap();
    let pairs: String = (0..2000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("truncated", |store| {
            fs::File::options()
                .write(true)
                .open(store.join("store.bristlecone"))
                .unwrap()
                .set_len(98_304)
                .unwrap();
        }),
        ("empty", |store| fs::write(store.join("store.bristlecone"), b"").unwrap()),
        ("no journal", |store| fs::remove_file(store.join("store.bristlecone.journal")).unwrap()),
        ("bad first page", |store| {
            let file = fs::File::options().write(true).open(store.join("store.bristlecone")).unwrap();
            file.write_all_at(&[0xA5; 4096], 0).unwrap();
        }),
        ("no superblock", destroy_superblocks),
    ];
    for (name, damage) in damages {
        let store = &dir.path().join(name.replace(' ', "-"));
        succeed(&run_with_input(store, &["load", "-", "--format", "tsv"], pairs.as_bytes()));
        damage(store);
        for command in
            [&["get", "key00001"][..], &["stats"], &["check"], &["serve", "--listen", "127.0.0.1:0"]]
        {
            let output = run(store, command);
            assert_eq!(code(&output), 4, "{name}, {command:?}: {output:?}");
        }
        let new = dir.path().join(format!("rescued-{}", name.replace(' ', "-")));
        let output = run(store, &["check", "--salvage", new.to_str().unwrap()]);
        // The first page only identifies the journal of the file. Without it, no data of the store is lost.
        let (expected, says) = match name {
            "bad first page" => (0, "every key of the store was rescued"),
            _ => (4, "some keys of the store may be missing"),
        };
        assert_eq!(code(&output), expected, "{name}: {output:?}");
        assert!(stdout(&output).contains(says), "{name}: {output:?}");
    }
}

/// Regression: the server died of a signal without a message.
#[test]
fn a_server_whose_file_is_cut_short_says_so_and_ends_with_code_4() {
    let dir = tempfile::tempdir().unwrap();
    let store = &dir.path().join("store");
    let pairs: String = (0..20_000).map(|n| format!("key{n:05}\t{n:0100}\n")).collect();
    let mut first = Serve::with(store, &["--durability", "process"]);
    first.signal("TERM");
    assert!(first.wait().success());
    succeed(&run_with_input(store, &["load", "-", "--format", "tsv"], pairs.as_bytes()));
    let mut serve = Serve::telling(store, &["--durability", "process"], Stdio::piped());
    let mut client = serve.client();
    let path = store.join("store.bristlecone");
    fs::File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let get = |n: u32| redis::cmd("GET").arg(format!("key{n:05}")).query::<String>(&mut client);
    assert!((0..20_000).step_by(97).map(get).any(|answer| answer.is_err()));
    assert_eq!(serve.wait().code(), Some(4));
    let mut told = String::new();
    serve.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(
        told.contains(path.to_str().unwrap()) && told.contains("cut short while it was in use"),
        "{told}"
    );
}

#[test]
fn a_creation_that_was_killed_does_not_stop_the_next() {
    let dir = tempfile::tempdir().unwrap();
    for rest in [&b""[..], &[0xA5; 5000]] {
        let store = &dir.path().join(format!("store{}", rest.len()));
        fs::create_dir(store).unwrap();
        fs::write(store.join("store.bristlecone.new"), rest).unwrap();
        assert_eq!(code(&run(store, &["get", "a"])), 1);
        succeed(&run(store, &["put", "a", "b"]));
        assert_eq!(succeed(&run(store, &["get", "a"])), "b\n");
        assert!(!store.join("store.bristlecone.new").exists());
    }
}

#[test]
fn a_volatile_engine_does_not_hide_a_durable_store() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&run(dir.path(), &["put", "a", "b"]));
    let output = run(dir.path(), &["serve", "--engine", "btree", "--listen", "127.0.0.1:0"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("holds a durable store"), "{output:?}");
}

#[test]
fn bad_arguments_of_every_command_have_code_2_and_a_message() {
    let wrong: [&[&str]; 13] = [
        &["get", "a", "b"],
        &["put", "a", "b", "c"],
        &["del"],
        &["scan", "--limit", "-1"],
        &["stats", "extra"],
        &["check", "--salvage"],
        &["load", "-", "--format", "tsv", "--header"],
        &["load"],
        &["serve", "--listen", "nonsense"],
        &["serve", "--listen", "127.0.0.1:99999"],
        &["serve", "--engine", "nonsense"],
        &["serve", "--node-lines", "99"],
        &["serve", "--max-clients", "0"],
    ];
    for arguments in wrong {
        let output = program().args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments:?}: {output:?}");
        assert!(stdout(&output).is_empty() && !stderr(&output).is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn with_json_an_error_is_one_object_and_the_exit_code_stays() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["get", "k", "--json", "--dir", missing], 1, "there is no store in "),
        (&["stats", "--json", "--dir", missing], 1, "there is no store in "),
        (&["top", "--json", "127.0.0.1:1"], 1, "cannot ask the server 127.0.0.1:1: "),
        (
            &["serve", "--json", "--engine", "wbtree", "--compression", "lz4", "--dir", missing],
            1,
            "compression is ",
        ),
        (&["get", "--json"], 2, "the following required arguments were not provided"),
        (&["scan", "--json", "--table", "x"], 1, "there is no store in "),
    ];
    for (arguments, expected, start) in cases {
        let output = program().args(arguments).current_dir(dir.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), expected, "{arguments:?}: {output:?}");
        let told = stderr(&output);
        let object: serde_json::Value =
            serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
        assert!(object["error"].as_str().unwrap().starts_with(start), "{arguments:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let help = program().args(["get", "--json", "--help"]).output().unwrap();
    assert!(succeed(&help).contains("Usage:"));
}

#[test]
fn compression_without_files_names_the_engine_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let output = run_with_input(
        &dir.path().join("s"),
        &["load", "-", "--format", "tsv", "--compression", "lz4"],
        b"a\tb\n",
    );
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("`--engine bwtree --durability power`"), "{output:?}");
}

#[test]
fn a_wrong_address_of_top_says_the_form_of_an_address() {
    for (word, advice) in [
        ("foo", "give an address and a port, as in 127.0.0.1:7379"),
        ("/run/b.sock", "write --unix-socket /run/b.sock"),
    ] {
        let output = program().args(["top", word]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), 2);
        let told = stderr(&output);
        assert!(told.contains(&format!("invalid value '{word}'")) && told.contains(advice), "{told}");
    }
}

#[test]
fn files_of_a_store_without_their_identity_are_kept_and_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (dir.path().join("s"), dir.path().join("s/store.bristlecone"));
    let serve =
        Serve::with(&store, &["--engine", "bwtree", "--durability", "power", "--journal-bytes", "8M"]);
    let mut client = serve.client();
    for number in 0..500 {
        let _: () = redis::cmd("SET").arg(format!("k{number}")).arg(number).query(&mut client).unwrap();
    }
    drop(serve);
    let identity = fs::read(&path).unwrap();
    let salvaged = |name: &str| {
        let new = dir.path().join(name);
        let output = run(&store, &["check", "--salvage", new.to_str().unwrap()]);
        assert_eq!(code(&output), 4, "{output:?}");
        assert!(stdout(&output).starts_with("500 keys are in the new store"), "{output:?}");
        assert_eq!(succeed(&run(&new, &["get", "k499"])), "499\n");
    };
    // A damaged magic number, a damaged text.
    for (byte, name) in [(0, "new0"), (100, "new1"), (30, "new2")] {
        let mut damaged = identity.clone();
        damaged[byte] ^= 0xff;
        fs::write(&path, damaged).unwrap();
        let output = run(&store, &["check"]);
        assert_eq!(code(&output), 4, "{output:?}");
        assert!(stderr(&output).contains("check --salvage NEW_DIR"), "{output:?}");
        salvaged(name);
    }
    fs::remove_file(&path).unwrap();
    for command in ["check", "stats"] {
        let output = run(&store, &[command]);
        assert_eq!(code(&output), 4, "{output:?}");
        let told = stderr(&output);
        assert!(
            told.contains("has lost its file store.bristlecone") && told.contains("is still there"),
            "{told}"
        );
        assert!(told.contains("do not make a new store there. `check --salvage NEW_DIR`"), "{told}");
    }
    salvaged("new3");
    fs::write(&path, identity).unwrap();
    assert_eq!(succeed(&run(&store, &["get", "k499"])), "499\n");
}

/// A pattern search that takes longer than any test. It runs in C code of Lua, which cannot be interrupted.
const LONG_SEARCH: &str =
    "return string.find(string.rep('a', ARGV[1]), string.rep('a?', ARGV[1])..string.rep('a', ARGV[1]))";

/// Starts the search on a connection of its own, after `runs` short ones. It has no reply.
fn search(serve: &Serve, runs: usize) {
    let mut client = serve.client();
    let eval = |length: usize| redis::cmd("EVAL").arg(LONG_SEARCH).arg(0).arg(length).to_owned();
    for _ in 0..runs {
        eval(3).query::<i64>(&mut client).unwrap();
    }
    let packed = eval(40).get_packed_command();
    std::thread::spawn(move || client.req_packed_command(&packed));
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn a_server_closes_its_store_although_a_script_is_in_c_code_that_does_not_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Serve::with(dir.path(), &["--threads", "1"]);
    let mut client = serve.client();
    let _: () = redis::cmd("SET").arg("k").arg("v").query(&mut client).unwrap();
    search(&serve, 0);
    let _: () = redis::cmd("SET").arg("later").arg("w").query(&mut client).unwrap();
    serve.signal("TERM");
    assert_eq!(serve.wait().code(), Some(0));
    for (key, value) in [("k", "v\n"), ("later", "w\n")] {
        assert_eq!(succeed(&run(dir.path(), &["get", key])), value);
    }
}

/// Sends SIGTERM to a server whose only thread is in C code, and perhaps a second one. Checks that the process ends for the reason `why`, and
/// keeps acknowledged writes.
fn ends_before_the_store_is_closed(has_second_signal: bool, why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let told = fs::File::create(dir.path().join("told")).unwrap();
    let store = dir.path().join("s");
    let mut serve = Serve::telling(&store, &["--threads", "1"], told.into());
    let mut client = serve.client();
    let _: () = redis::cmd("SET").arg("k").arg("v").query(&mut client).unwrap();
    // A script that was short runs on the thread of the connections.
    search(&serve, 3);
    serve.signal("TERM");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(serve.child.try_wait().unwrap(), None);
    if has_second_signal {
        serve.signal("TERM");
    }
    assert_eq!(serve.wait().code(), Some(1));
    let told = fs::read_to_string(dir.path().join("told")).unwrap();
    assert!(told.contains(&format!("{why}: the process ends before the store is closed")), "{told}");
    assert_eq!(succeed(&run(&store, &["get", "k"])), "v\n");
}

#[test]
fn a_second_signal_ends_a_server_whose_only_thread_is_in_c_code() {
    ends_before_the_store_is_closed(true, "a second signal arrived");
}

#[test]
fn a_server_whose_only_thread_is_in_c_code_ends_some_time_after_the_signal() {
    ends_before_the_store_is_closed(false, "a command did not end in time");
}
