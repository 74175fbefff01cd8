//! `run`, `registry`, `bench trees --engines` and `bench store` as scripts see them. These tests do not judge times.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{code, program, stderr, stdout, succeed};
use serde_json::Value;

/// A small run with its files in `backing`.
fn small(arguments: &str, backing: &Path) -> Value {
    let output = program()
        .args(arguments.split_whitespace())
        .args(["--keys", "2000", "--rounds", "1", "--json", "--backing"])
        .arg(backing)
        .output()
        .expect("the program runs");
    serde_json::from_str(&succeed(&output)).expect("one line of JSON")
}

fn names(of: &Value, field: &str) -> BTreeSet<String> {
    let rows = of.as_array().expect("a list");
    rows.iter().map(|row| row[field].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn without_a_name_the_experiments_are_listed_and_a_wrong_name_says_which_there_are() {
    let listed = succeed(&program().args(["run"]).output().unwrap());
    assert!(listed.contains("wb-fig13") && listed.contains("wb-fig14"), "{listed}");
    for wrong in [
        "run wb-fig99",
        "run wb-fig13 --scale 0",
        "run wb-fig13 --node-lines 17",
        "bench trees --engines wbtree,nosuch",
    ] {
        let output = program().args(wrong.split_whitespace()).output().unwrap();
        assert_eq!(code(&output), 2, "{wrong}: {output:?}");
        assert!(stdout(&output).is_empty() && !stderr(&output).is_empty());
    }
    let output = program().args(["run", "wb-fig99"]).output().unwrap();
    assert!(
        stderr(&output).contains("there are cdds-fig3, vlab-fig15,")
            && stderr(&output).contains("wb-fig12, wb-fig13, wb-fig14"),
        "{output:?}"
    );
}

#[test]
fn figure_13_has_ten_trees_or_nine_every_batch_with_counts_and_seven_claims() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("run wb-fig13 --node-lines 2,4", backing.path());
    let rows = report["rows"].as_array().unwrap();
    // Five batches, two sets of instructions.
    assert_eq!(rows.len(), (9 + 10) * 5 * 2);
    assert!(names(&report["rows"], "tree").contains("wbtree-slot"));
    for row in rows {
        assert!(row["ns"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        let (update, volatile) = (row["batch"] != "search70", row["tree"] == "btree");
        assert_eq!(row["words"].as_f64().unwrap() > 0.0, update, "{row}");
        assert_eq!(row["fences"].as_f64().unwrap() > 0.0, update && !volatile, "{row}");
    }
    let claims = report["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 7 * 2);
    assert!(claims.iter().all(|claim| claim["holds"].is_boolean() && claim["reason"].is_string()));
}

#[test]
fn figure_14_has_the_papers_string_trees_and_inline_prefixes() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("run wb-fig14 --node-lines 2,8", backing.path());
    assert_eq!(report["rows"].as_array().unwrap().len(), (7 + 9) * 5 * 2);
    let trees = names(&report["rows"], "tree");
    assert!(trees.contains("wbtree") && trees.contains("wbtree-bmp-keyptr"), "{trees:?}");
    assert!(!trees.contains("unsorted-log"));
    assert_eq!(report["claims"].as_array().unwrap().len(), 3 * 2);
    // The files of the trees are removed.
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0);
}

#[test]
fn the_registry_lists_every_engine() {
    let output = program().args(["registry", "--json"]).output().unwrap();
    let report: Value = serde_json::from_str(&succeed(&output)).unwrap();
    let engines = report["engines"].as_array().unwrap();
    assert_eq!(engines.len(), bristlecone::registry::engines().count());
    let people = succeed(&program().args(["registry"]).output().unwrap());
    assert!(people.contains("nvtree"), "{people}");
}

#[test]
fn any_engine_is_benched_with_nodes_that_it_has() {
    let backing = tempfile::tempdir().unwrap();
    let report = small(
        "bench trees --engines btree,wbtree-slot,trad-4k --node-lines 2,64 --operations 20",
        backing.path(),
    );
    let expected = [
        "std BTreeMap",
        "btree 128",
        "wbtree-slot process 128",
        "wbtree-slot power 128",
        "trad-4k process 4096",
        "trad-4k power 4096",
    ];
    assert_eq!(names(&report["rows"], "name"), expected.map(str::to_owned).into());
}

#[test]
fn stores_are_measured_in_every_column_and_their_syncs_counted() {
    let backing = tempfile::tempdir().unwrap();
    let report = small(
        "bench store --writers 1,2 --operations 20 --batch 10 --durability power --only bristlecone",
        backing.path(),
    );
    assert_eq!(report["columns"].as_array().unwrap().len(), 5 * 2);
    assert_eq!(names(&report["rows"], "name"), ["bristlecone".to_owned()].into());
    let syncs = report["rows"][0]["syncs"].as_array().unwrap();
    assert_eq!(names(&report["rows"][0]["syncs"], "label").len(), 4);
    assert!(syncs.iter().all(|line| line["commits"].as_u64().unwrap() > 0), "{syncs:?}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_cdds_tree_is_measured_in_both_modes_beside_one_without_versions_and_judged() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("bench cdds --pairs 500", backing.path());
    let names = names(&report["rows"], "name");
    assert!(names.is_superset(&["cdds durable", "cdds volatile"].map(str::to_owned).into()), "{names:?}");
    for row in report["rows"].as_array().unwrap() {
        for operation in ["put", "get", "delete"] {
            assert!(row["rate"][operation].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let price = &report["prices"][0];
    assert_eq!(price["keys"], 2000);
    assert!(price["get_ns"].as_array().unwrap().iter().all(|ns| ns.as_f64().unwrap() > 0.0), "{price}");
    let claims = report["claims"].as_array().unwrap();
    // Two claims about volatile mode, two about the cost of versions; three about Berkeley DB, if this build has it.
    assert!(claims.len() >= 4 && claims.iter().all(|claim| claim["holds"].is_boolean()), "{claims:?}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_bw_tree_is_measured_on_every_workload_beside_other_maps_and_judged() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("bench bwtree --scale 0.0005 --larger 2 --chains 2,8 --caches 6000", backing.path());
    let rows = report["rows"].as_array().unwrap();
    let cell =
        |row: &Value| format!("{} {} {}", row["workload"], row["part"], row["threads"]).replace('"', "");
    let cells: BTreeSet<_> = rows.iter().map(cell).collect();
    let mut expected = BTreeSet::new();
    for threads in [1, 2] {
        let whole = ["Xbox", "deduplication", "synthetic"].map(|name| format!("{name} all {threads}"));
        let parts = ["inserts", "lookups", "updates"].map(|part| format!("uniform {part} {threads}"));
        expected.extend(whole.into_iter().chain(parts));
    }
    assert_eq!(cells, expected);
    let own = report["own"].as_array().unwrap();
    assert_eq!(own.iter().map(cell).collect::<BTreeSet<_>>(), expected);
    // Only our tree is measured again.
    assert!(own.iter().all(|row| row["rate"].as_object().unwrap().keys().eq(["bwtree"])), "{own:?}");
    assert_eq!(report["larger"], 2);
    for (row, map) in rows.iter().flat_map(|row| ["bwtree", "BTreeMap"].map(|map| (row, map))) {
        assert!(row["rate"][map].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(
        report["inside"].as_array().unwrap().iter().all(|of| of["bytes_per_record"].as_f64().unwrap() > 16.0)
    );
    assert_eq!(report["chains"].as_array().unwrap().len(), 2 * 2);
    for of in report["loads"].as_array().unwrap() {
        let each: Vec<_> =
            of["each"].as_array().unwrap().iter().map(|loads| loads.as_f64().unwrap()).collect();
        // A lookup passes several nodes. With so few keys, all are in the last cache level.
        assert!(each[0] > 10.0 && each[1] > 0.0 && each[3] < 1.0, "{of}");
    }
    assert!(names(&report["loads"], "map").is_superset(&["bwtree", "BTreeMap"].map(str::to_owned).into()));
    // Claims: two threads over one in every cell, and lookups compared with std's map; more for the competitors of this build.
    let claims = report["claims"].as_array().unwrap();
    let of_larger =
        |claim: &&Value| claim["claim"].as_str().unwrap().contains(", 2 times as large: at least");
    assert_eq!(claims.iter().filter(of_larger).count(), 6);
    assert!(claims.len() >= 13 && claims.iter().all(|claim| claim["holds"].is_boolean()), "{claims:?}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn every_measurement_of_the_vlab_paper_is_taken_on_six_indexes_and_judged() {
    let backing = tempfile::tempdir().unwrap();
    let trees = ["vlab", "trad-4k", "bmp-4k", "cnt-4k", "wb-4k", "nvtree"].map(str::to_owned);
    let measured = |name: &str, more: &str| {
        let report = small(&format!("run {name} --operations 400 {more}"), backing.path());
        assert_eq!(names(&report["rows"], "tree"), trees.clone().into(), "{name}");
        let claims = report["claims"].as_array().unwrap();
        assert!(!claims.is_empty() && claims.iter().all(|claim| claim["holds"].is_boolean()), "{name}");
        report
    };
    let positive = |report: &Value, field: &str| {
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row[field].as_f64().unwrap() > 0.0), "{field}: {report}");
    };
    for name in ["vlab-fig15", "vlab-fig17", "vlab-fig18"] {
        positive(&measured(name, ""), "ns");
    }
    let report = measured("vlab-table7", "");
    positive(&report, "ns");
    positive(&report, "bare_ns");
    for (name, scale) in [("vlab-table4", "--scale 0.1"), ("vlab-table8", "--scale 0.02")] {
        let report = measured(name, scale);
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["anatomy"]["leaves"].as_f64().unwrap() > 1.0), "{name}: {report}");
    }
    // Counts do not depend on time. VLAB stores one word to delete a key, the other indexes store more.
    let report = measured("vlab-fig16", "");
    let words = |tree: &str| {
        let rows = report["rows"].as_array().unwrap();
        let of = |row: &&Value| {
            row["tree"] == tree && row["workload"] == "DeleteLoad" && row["entry_bytes"] == 128
        };
        rows.iter().find(of).unwrap()["costs"]["words"].as_f64().unwrap()
    };
    assert!(trees[1..].iter().all(|tree| words(tree) > words("vlab")), "{report}");
    let trace = backing.path().join("trace");
    std::fs::write(&trace, "1 2 3\n2 3\n".repeat(200)).unwrap();
    let given = format!("--trace {}", trace.display());
    for name in ["vlab-fig19", "vlab-fig20"] {
        assert_eq!(measured(name, &given)["operations"], 1000);
    }
    std::fs::write(&trace, "1 two\n").unwrap();
    let output = program().args(["run", "vlab-fig19", "--trace"]).arg(&trace).output().unwrap();
    assert!(stderr(&output).contains("line 1: `two` is no item's number"), "{output:?}");
    assert_eq!(code(&output), 1);
}

#[test]
fn vlab_is_asked_for_every_set_of_keys_that_there_is() {
    let backing = tempfile::tempdir().unwrap();
    let made = ["uniform", "zipfian", "sequential", "clustered", "skewed"].map(str::to_owned);
    let report = small("run vlab-keys --operations 1000", backing.path());
    assert_eq!(names(&report["rows"], "set"), made.clone().into());
    assert_eq!(report["left_out"].as_array().unwrap().len(), 2, "{report}");
    let (words, trace) = (backing.path().join("words"), backing.path().join("trace"));
    std::fs::write(&words, "aardvark\nabacus\nabacuses\n").unwrap();
    std::fs::write(&trace, "1 2 3\n2 3\n").unwrap();
    let given =
        format!("run vlab-keys --operations 1000 --words {} --trace {}", words.display(), trace.display());
    let report = small(&given, backing.path());
    let rows = report["rows"].as_array().unwrap();
    let keys = |set: &str| rows.iter().find(|row| row["set"] == set).unwrap()["keys"].as_u64();
    assert_eq!((keys("words"), keys("retail")), (Some(3), Some(5)), "{report}");
    assert!(rows.iter().all(|row| row["ratio"][0].as_f64().unwrap() > 0.0), "{report}");
    let claims = report["claims"].as_array().unwrap();
    assert!(
        claims.len() == rows.len() && claims.iter().all(|claim| claim["holds"].is_boolean()),
        "{claims:?}"
    );
    let output = program().args(["run", "vlab-keys", "--words"]).arg(backing.path()).output().unwrap();
    assert!(stderr(&output).contains("cannot read the words"), "{output:?}");
}

#[test]
fn trees_left_by_a_kill_are_opened_in_every_way_that_they_have() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("bench reopen", backing.path());
    let expected = ["line", "wbtree", "cdds, lazy", "cdds, scan"];
    assert_eq!(names(&report["rows"], "tree"), expected.map(str::to_owned).into());
}

#[test]
fn readers_are_measured_alone_and_beside_a_writer_and_compared() {
    let backing = tempfile::tempdir().unwrap();
    let report = small("bench readers --engine wbtree-slot --readers 2,3 --milliseconds 3", backing.path());
    let rows = report["rows"].as_array().unwrap();
    let cases: Vec<_> =
        rows.iter().map(|row| (row["readers"].as_u64().unwrap(), row["beside_writer"] == true)).collect();
    assert_eq!(cases, [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)]);
    for row in rows {
        assert!(row["gets_per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["writes_per_second"].is_number(), row["beside_writer"] == true, "{row}");
    }
    let expected = [
        "2 readers / 1 reader",
        "3 readers / 1 reader",
        "2 readers beside a writer / 1 reader beside a writer",
        "3 readers beside a writer / 1 reader beside a writer",
        "1 reader beside a writer / 1 reader",
    ];
    assert_eq!(names(&report["ratios"], "name"), expected.map(str::to_owned).into());
    let cores = report["cores"].as_u64().unwrap();
    let last = rows.last().unwrap();
    assert_eq!(last["threads_exceed_cores"], 4 > cores, "three readers and the writer: {last}");
    assert_eq!(std::fs::read_dir(backing.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_store_bench_that_cannot_run_says_what_to_do() {
    let backing = tempfile::tempdir().unwrap();
    let missing = backing.path().join("missing").display().to_string();
    let here = backing.path().display().to_string();
    for (arguments, said) in [
        (["--keys", "10", "--backing", &missing], "--backing"),
        (["--keys", "4000000000", "--backing", &here], "may need"),
        (["--backing", &here, "--only", "sqlite"], "lmdb, rocksdb, redb, fjall"),
    ] {
        let output = program().args(["bench", "store"]).args(arguments).output().unwrap();
        assert_eq!(code(&output), 1, "{output:?}");
        assert!(stderr(&output).contains(said), "{output:?}");
    }
    let output = program().args(["bench", "store", "--durability", "none"]).output().unwrap();
    assert_eq!(code(&output), 2, "{output:?}");
}

/// A new engine is measured without any edit. The smallest engine is registered in tests only.
#[test]
fn bench_trees_takes_every_ordered_engine_from_the_registry() {
    let is_ordered = |name| bristlecone::registry::find(name).unwrap().capabilities.ordered;
    let engines: Vec<_> = bristlecone::registry::engines().filter(|about| is_ordered(about.name)).collect();
    assert!(engines.iter().any(|about| about.name == "toy"));
    for about in engines {
        let backing = tempfile::tempdir().unwrap();
        let (name, lines) = (about.name, about.default_lines);
        let report = small(
            &format!("bench trees --engines {name} --node-lines {lines} --operations 20"),
            backing.path(),
        );
        let rows = names(&report["rows"], "name");
        let expected = if about.durable {
            format!("{name} power {}", lines * 64)
        } else {
            format!("{name} {}", lines * 64)
        };
        assert!(rows.contains(&expected), "{rows:?}");
    }
}
