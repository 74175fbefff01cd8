//! `load` reads back what `scan --json` wrote: every key and value keeps its bytes.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::common::{code, run, run_with_input, stderr, succeed};
use bristlecone::{Options, Store};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys and values with every byte, with the bytes that text formats escape, and without any byte.
fn pairs() -> Pairs {
    let all: Vec<u8> = (0..=255).collect();
    let awkward: [&[u8]; 10] = [
        b"plain",
        b"a\nb\n",
        b"a\tb\t\tc",
        b"\r\n",
        b"back\\slash \\x0A \\\\",
        b"\"quoted\", {\"key\":1}",
        b"\0",
        b"\xff\xfe",
        "\u{85}\u{2028}\u{feff}\u{10ffff}".as_bytes(),
        &all,
    ];
    let mut pairs: Pairs = awkward.iter().map(|bytes| (bytes.to_vec(), bytes.to_vec())).collect();
    pairs.extend(all.iter().map(|&byte| (vec![b'k', byte], vec![byte])));
    pairs.push((b"empty value".to_vec(), Vec::new()));
    pairs.push((b"long".to_vec(), all.repeat(5000)));
    pairs.sort();
    pairs
}

fn write(dir: &Path, pairs: &Pairs) {
    let store = Store::open(dir, Options::default()).unwrap();
    let mut batch = store.batch();
    for (key, value) in pairs {
        batch.put(key, value);
    }
    batch.commit().unwrap();
    store.close().unwrap();
}

fn read(dir: &Path) -> Pairs {
    let store = Store::open(dir, Options::default().create(false)).unwrap();
    let pairs = store.scan(..).collect::<Result<_, _>>().unwrap();
    store.close().unwrap();
    pairs
}

#[test]
fn a_store_moves_through_scan_json_and_load_without_a_changed_byte() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new, unpacked] = ["old", "new", "unpacked"].map(|name| dir.path().join(name));
    let pairs = pairs();
    write(&old, &pairs);
    let lines = succeed(&run(&old, &["scan", "--json"]));
    assert_eq!(lines.lines().count(), pairs.len());
    let report =
        succeed(&run_with_input(&new, &["load", "-", "--format", "jsonl", "--json"], lines.as_bytes()));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["pairs"], &report["keys"]), (&pairs.len().into(), &pairs.len().into()));
    assert!(read(&new) == pairs);

    // The same from a packed file.
    let file = dir.path().join("pairs.jsonl.gz");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(lines.as_bytes()).unwrap();
    fs::write(&file, packed.finish().unwrap()).unwrap();
    succeed(&run(&unpacked, &["load", file.to_str().unwrap(), "--format", "jsonl"]));
    assert!(read(&unpacked) == pairs);
}

#[test]
fn pages_are_compressed_where_there_are_pages() {
    let dir = tempfile::tempdir().unwrap();
    let [tree, region, file] = ["tree", "region", "input"].map(|name| dir.path().join(name));
    let mut lines = String::new();
    for number in 0..20_000 {
        use std::fmt::Write as _;
        writeln!(lines, "key {number}\tcustomer {number}, country DE, paid").unwrap();
    }
    fs::write(&file, lines).unwrap();
    let load = |store: &Path, format: &str| {
        run(store, &["load", "--format", "tsv", "--compression", format, file.to_str().unwrap()])
    };
    // The options of a new store are those of `serve`.
    let form = ["--engine", "bwtree", "--durability", "process", "--journal-bytes", "8M"];
    let file_name = file.to_str().unwrap();
    succeed(&run(&tree, &[&["load", "--format", "tsv", file_name][..], &form].concat()));
    let stats: serde_json::Value = serde_json::from_str(&succeed(&run(&tree, &["stats", "--json"]))).unwrap();
    assert_eq!((&stats["engine"], &stats["durability"]), (&"bwtree".into(), &"process".into()), "{stats}");
    let other = run(&tree, &["load", "--format", "tsv", file_name, "--engine", "wbtree"]);
    assert!(code(&other) == 1 && stderr(&other).contains("bwtree"), "{}", stderr(&other));
    // Without a durability this engine has no files.
    let lost = run(&region, &["load", "--format", "tsv", file_name, "--engine", "bwtree"]);
    assert!(code(&lost) == 2 && stderr(&lost).contains("would keep nothing"), "{}", stderr(&lost));
    succeed(&load(&tree, "none"));
    let pages = |dir: &Path| -> u64 {
        let files = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let pages = files.filter(|file| file.file_name().to_string_lossy().contains(".pages-"));
        pages.map(|file| file.metadata().unwrap().len()).sum()
    };
    let before = pages(&tree);
    succeed(&load(&tree, "lz4"));
    let packed = pages(&tree);
    assert!(packed < before / 4 * 3, "{packed} after {before}");
    // The default engine has no pages of this kind.
    let refused = load(&region, "lz4");
    assert!(stderr(&refused).contains("open it without compression"), "{}", stderr(&refused));
    assert!(code(&refused) == 1 && !region.exists());
    assert_eq!(code(&load(&tree, "zstd")), 2);

    // Direct I/O, on a disk: beside the programs that were built.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = || Options::default().engine("bwtree").durability(bristlecone::Durability::Process);
    Store::open(disk.path(), options()).unwrap().close().unwrap();
    let load = |store: &Path| run(store, &["load", "--format", "tsv", "--direct-io", file.to_str().unwrap()]);
    succeed(&load(disk.path()));
    assert_eq!(Store::open(disk.path(), options()).unwrap().check().unwrap().keys, 20_000);
    let refused = load(&region);
    assert!(stderr(&refused).contains("open it without direct I/O"), "{}", stderr(&refused));
    assert!(code(&refused) == 1 && !region.exists());
}

#[test]
fn a_line_that_scan_json_does_not_write_is_refused_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    for (input, message) in [
        (
            "{\"key\":\"a\",\"value\":\"1\"}\nb\t2\n",
            "line 2: not an object as `scan --json` writes it: expected value (column 1); no store was made",
        ),
        (
            "{\"key\":\"a\",\"value\":\"1\"}\n\n",
            "line 2: not an object as `scan --json` writes it: EOF while",
        ),
        ("{\"key\":\"a\"}\n", "line 1: has no field `value` or `value_base64`"),
        ("{\"key\":\"\",\"value\":\"1\"}\n", "line 1: a key of 0 bytes"),
    ] {
        let output = run_with_input(&store, &["load", "-", "--format", "jsonl"], input.as_bytes());
        assert_eq!(code(&output), 1, "{output:?}");
        assert!(stderr(&output).contains(message), "{message} in {output:?}");
        assert!(!store.join("store.bristlecone").exists());
    }
    // In a store that existed before, the pairs before the bad line stay.
    write(&store, &vec![(b"old".to_vec(), b"1".to_vec())]);
    let input = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":2}\n";
    let output = run_with_input(&store, &["load", "-", "--format", "jsonl"], input);
    assert!(stderr(&output).ends_with("; 1 pairs before it were loaded and stay\n"), "{output:?}");
    assert_eq!(succeed(&run(&store, &["scan"])), "a\t1\nold\t1\n");
}
