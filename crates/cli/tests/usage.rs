//! The program as scripts see it: exit codes, messages, `serve` from start to end. No test here needs a store to outlive its process.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Serve, code, program, run, run_with_input, stderr, stdout, succeed};
use redis::Commands as _;

#[test]
fn help_and_version_are_there_for_every_command() {
    for command in ["", "serve", "load", "get", "put", "del", "scan", "stats", "check"] {
        let output = program().args(command.split_whitespace()).arg("--help").output().unwrap();
        assert!(succeed(&output).contains("Example"), "{command}");
    }
    let version = succeed(&program().arg("--version").output().unwrap());
    assert_eq!(version.trim(), concat!("bristlecone ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bench_and_lab_say_which_program_has_them() {
    for (arguments, line) in [
        ("bench", "bristlecone-lab -- bench --help"),
        ("bench trees --keys 10", "bristlecone-lab -- bench trees --keys 10"),
        ("lab crash --tree wbtree", "bristlecone-lab -- crash --tree wbtree"),
        ("lab --help", "bristlecone-lab -- --help"),
    ] {
        let output = program().args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments}: {output:?}");
        let said = stderr(&output);
        assert!(said.ends_with(&format!("cargo run --release -p {line}\n")), "{arguments}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
        assert!(stdout(&output).is_empty());
    }
}

#[test]
fn wrong_usage_has_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 12] = [
        &[],
        &["frobnicate"],
        &["get"],
        &["put", "k"],
        &["del"],
        &["load", "x"],
        &["load", "x", "--format", "xml"],
        &["load", "x", "--format", "csv", "--key-column", "id"],
        &["scan", "--prefix", "a", "--from", "b"],
        &["scan", "--limit", "many"],
        &["serve", "--durability", "none"],
        &["serve", "--max-bytes", "12Q"],
    ];
    for arguments in wrong {
        let output = run(dir.path(), arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {output:?}");
        assert!(stdout(&output).is_empty() && !stderr(&output).is_empty());
    }
}

#[test]
fn a_missing_file_is_an_error_and_makes_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let missing = dir.path().join("missing.tsv");
    let output = run(&store, &["load", missing.to_str().unwrap(), "--format", "tsv"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with("bristlecone: cannot open "), "{output:?}");
    let output = run(&store, &["load", dir.path().to_str().unwrap(), "--format", "tsv"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("it is a directory"), "{output:?}");
    assert!(!store.exists());
}

#[test]
fn files_of_every_format_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"a\t1\nb\t2\n").unwrap();
    let packed = packed.finish().unwrap();
    let files: [(&str, &[u8], &str, u64); 7] = [
        ("plain.tsv", b"a\t1\tmore\nb\nc\t\n", "tsv", 3),
        ("unended.tsv", b"a\t1", "tsv", 1),
        ("empty.tsv", b"", "tsv", 0),
        ("packed", &packed, "tsv", 2),
        ("twice-packed", &[packed.clone(), packed.clone()].concat(), "tsv", 4),
        ("table.csv", b"a,1,2\r\n\"b,\"\"x\",\"two\nlines\"\nc\n", "csv", 3),
        ("retail.dat", b"1 2 3\n\n2 3 \n", "fimi", 5),
    ];
    for (name, content, format, keys) in files {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let output = run(
            &dir.path().join(format!("store-{name}")),
            &["load", path.to_str().unwrap(), "--format", format, "--json"],
        );
        let report: serde_json::Value = serde_json::from_str(&succeed(&output)).unwrap();
        assert_eq!(report["pairs"], keys, "{name}");
        assert!(report["pairs_per_second"].as_f64().is_some() && stderr(&output).is_empty(), "{output:?}");
    }
    let output =
        run_with_input(&dir.path().join("store-stdin"), &["load", "-", "--format", "tsv"], b"a\t1\n");
    assert!(succeed(&output).starts_with("loaded 1 pairs, 2 bytes in "), "{output:?}");
}

#[test]
fn a_bad_line_is_named_and_leaves_no_new_store() {
    let dir = tempfile::tempdir().unwrap();
    let long_key = format!("a\t1\n{}\t2\n", "k".repeat(65_536));
    let cases: [(&[u8], &[&str], &str); 9] = [
        (b"a\t1\nb\t2\n\tno key\n", &["tsv"], "line 3: a key of 0 bytes"),
        (long_key.as_bytes(), &["tsv"], "line 2: a key of 65536 bytes"),
        (b"1 2\n3 x\n", &["fimi"], "line 2: \"x\" is not an item number"),
        (b"1 2\n3 1000000\n", &["fimi"], "line 2: \"1000000\" is not an item number"),
        (b"a,1\nb,\"2\n\n", &["csv"], "line 2: a quote is not closed"),
        (b"a,1\n\"b\"c,2\n", &["csv"], "line 2: text after a closing quote"),
        (
            b"id,name\n1,Ada\n2\n",
            &["csv", "--header", "--value-column", "name"],
            "line 3: 1 columns, but column 2",
        ),
        (
            b"id,name\n1,Ada\n",
            &["csv", "--header", "--key-column", "nr"],
            "line 1: the header has no column \"nr\"",
        ),
        (&[0x1f, 0x8b, 8, 0, 1, 2, 3], &["tsv"], "line 1: cannot be read"),
    ];
    for (content, format, message) in cases {
        let path = dir.path().join("input");
        fs::write(&path, content).unwrap();
        let arguments = [&["load", path.to_str().unwrap(), "--format"], format].concat();
        let output = run(&dir.path().join("new/store"), &arguments);
        assert_eq!(code(&output), 1, "{output:?}");
        assert!(stderr(&output).contains(message), "{message} in {output:?}");
        assert!(stderr(&output).ends_with("no store was made\n"), "{output:?}");
        assert!(stdout(&output).is_empty());
        assert!(!dir.path().join("new").exists(), "the directories that it made are gone");
    }
}

#[test]
fn serve_tells_where_it_listens_and_ends_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let dir = tempfile::tempdir().unwrap();
        let mut serve = Serve::start(&dir.path().join("store"));
        assert_eq!(serve.started["stats"]["keys"], 0);
        let mut client = serve.client();
        let _: () = client.set("k", "v").unwrap();
        assert_eq!(client.get::<_, String>("k").unwrap(), "v");
        serve.signal(signal);
        assert_eq!(serve.wait().code(), Some(0));
    }
}

#[test]
fn serve_with_json_prints_an_object_at_its_start_and_one_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir.path().join("store"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut object =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert!(object()["listen"].is_string());
    let status = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    assert_eq!(object(), serde_json::json!({ "closed": true, "keys": 0, "keys_pending": false }));
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn serve_ends_on_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(&dir.path().join("store"));
    assert!(redis::cmd("SHUTDOWN").exec(&mut serve.client()).is_err());
    assert_eq!(serve.wait().code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_an_error_and_makes_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let store = dir.path().join("store");
    let output = run(&store, &["serve", "--listen", &address]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).starts_with(&format!("bristlecone: cannot listen on {address}: ")), "{output:?}");
    assert!(!store.exists());
}

#[test]
fn serve_starts_with_a_readable_block() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir.path().join("store"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut block: Vec<String> = Vec::new();
    while block.len() < 40 && !block.iter().any(|line| line.contains("listening")) {
        let Some(Ok(line)) = lines.next() else { break };
        block.push(line);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for name in ["engine", "medium", "durability", "keys", "found", "journal", "listening   127.0.0.1:"] {
        assert!(block.iter().any(|line| line.trim_start().starts_with(name)), "{name} in {block:?}");
    }
}
