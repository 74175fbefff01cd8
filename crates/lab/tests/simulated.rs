//! `run` and `heat` on simulated memory, as scripts see them. Simulated results are the same on every machine.

use crate::common::{code, program, stderr, succeed};
use serde_json::Value;

fn json(arguments: &str) -> Vec<Value> {
    let output =
        program().args(arguments.split_whitespace()).arg("--json").output().expect("the program runs");
    succeed(&output).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn number(of: &Value, field: &str) -> f64 {
    of[field].as_f64().unwrap_or_else(|| panic!("{field} of {of}"))
}

#[test]
fn figures_are_simulated_one_after_another_and_give_the_same_cycles_twice() {
    let run = || {
        json(
            "run wb-fig4 wb-fig11 wb-fig12 --keys 40000 --operations 2000 --scale 0.05 --node-lines 8,2,8 --set l3-bytes=524288",
        )
    };
    let reports = run();
    assert_eq!(reports, run());
    let [writes, trees, inserts] = &reports[..] else { panic!("three reports: {reports:?}") };
    assert_eq!(writes["points"].as_array().unwrap().len(), 18);
    assert_eq!(writes["claims"].as_array().unwrap().len(), 5);
    let rows = trees["rows"].as_array().unwrap();
    assert_eq!(rows.len(), (8 + 9) * 5);
    for row in rows {
        let (update, volatile) = (row["batch"] != "search70", row["tree"] == "btree");
        assert!(
            number(row, "cycles") > 0.0 && number(row, "ratio") > 0.0 && number(row, "pj") > 0.0,
            "{row}"
        );
        assert_eq!(number(row, "flushes") > 0.0, update && !volatile, "{row}");
        if !update {
            assert!(number(row, "bits_new") < 1.0, "a search writes: {row}");
        } else if !volatile {
            // A delete from a bitmap leaf is one bit.
            assert!(number(row, "bits_new") >= 1.0 && number(row, "fence_cycles") > 0.0, "{row}");
        } else {
            assert!(number(row, "fence_cycles") == 0.0, "nobody waits for a volatile tree's flushes: {row}");
        }
    }
    assert_eq!(trees["claims"].as_array().unwrap().len(), 7);
    let rows = inserts["rows"].as_array().unwrap();
    assert_eq!((rows.len(), inserts["claims"].as_array().unwrap().len()), (9, 1));
    assert!(rows.iter().all(|row| row["batch"] == "insert70" && row["node_lines"] == 8));
}

#[test]
fn every_figure_of_the_memory_is_an_option() {
    let cycles = |more: &str| {
        let reports = json(&format!("run wb-fig12 --keys 4000 --operations 100 {more}"));
        let rows = reports[0]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["tree"] == "wbtree").map(|row| number(row, "cycles")).unwrap()
    };
    let pcm = cycles("");
    assert!(cycles("--set write-word-cycles=4500") > 2.0 * pcm);
    assert!(cycles("--memory sttram") < pcm && cycles("--memory nvdimm") < pcm);
    for wrong in ["--memory flash", "--set read-cycles", "--set ranks=0", "--set speed=1"] {
        let output = program().args(["run", "wb-fig12"]).args(wrong.split(' ')).output().unwrap();
        assert_eq!(code(&output), 2, "{wrong}");
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn heat_shows_where_and_when_a_tree_writes() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("heat.svg").display().to_string();
    let reports = json(&format!("heat --tree wbtree --keys 1000 --svg {svg}"));
    let nodes = reports[0]["nodes"].as_array().unwrap();
    // 1,000 keys in leaves of at most 30 entries, and their inner nodes.
    assert!((34..120).contains(&nodes.len()), "{} nodes", nodes.len());
    let sum =
        |of: &Value, field: &str| of.as_array().unwrap().iter().map(|one| number(one, field)).sum::<f64>();
    let bins = &reports[0]["bins"];
    assert_eq!(sum(&reports[0]["nodes"], "stores"), sum(bins, "stores"));
    assert_eq!(sum(bins, "nodes_made"), nodes.len() as f64);
    let parts = reports[0]["parts"].as_object().unwrap();
    assert_eq!(parts.values().map(|part| number(part, "writes")).sum::<f64>(), sum(bins, "writes"));
    assert!(number(&parts["leaf"], "stores") > 1000.0 && number(&parts["leaf"], "writes") >= 1000.0);
    assert!(number(&reports[0], "years") < number(&reports[0], "years_alike"));
    // Half the rate of inserts means twice the years.
    let [slow, fast] = [1000, 2000].map(|rate| {
        let reports = json(&format!("heat --tree wbtree --keys 1000 --rate {rate}"));
        number(&reports[0], "years")
    });
    assert!((slow / fast - 2.0).abs() < 1e-9 && slow > number(&reports[0], "years"), "{slow} {fast}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.matches("<rect").count() > nodes.len(),
        "{} bytes",
        drawn.len()
    );
    let again = program().args(["heat", "--tree", "wbtree", "--svg", &svg]).output().unwrap();
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("cannot write"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), drawn);
}

#[test]
fn trees_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("heat.svg").display().to_string();
    let command = "heat --tree cdds,btree,btree-log --node-lines 16,8,8 --keys 1000";
    let reports = json(&format!("{command} --svg {svg}"));
    assert_eq!(reports.len(), 4);
    let rows = reports[3]["rows"].as_array().unwrap();
    for (row, heat) in rows.iter().zip(&reports) {
        assert_eq!(row["engine"], heat["engine"]);
        let nodes = heat["nodes"].as_array().unwrap();
        assert_eq!(number(row, "nodes"), nodes.len() as f64);
        assert_eq!(number(row, "node_stores"), nodes.iter().map(|node| number(node, "stores")).sum::<f64>());
        // The block with the current version is no node, although every insert stores to it.
        assert!(nodes.iter().all(|node| number(node, "stores") < number(row, "node_stores") / 2.0));
    }
    assert!(number(&rows[2], "log_stores") > 0.0 && number(&rows[0], "log_stores") < 100.0, "{rows:?}");
    assert_eq!(reports[3]["claims"].as_array().unwrap().len(), 4);
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("cdds, 1000 keys") && drawn.contains("btree-log, 1000 keys"));
    let people = succeed(&program().args(command.split(' ')).output().unwrap());
    assert!(people.contains("side by side") && people.contains("6.5: versions write less than a log"));
    let wrong = program().args(["heat", "--tree", "cdds,btree", "--node-lines", "4,8,16"]).output().unwrap();
    assert_eq!(code(&wrong), 2);
    assert!(stderr(&wrong).contains("3 sizes for 2 trees"), "{wrong:?}");
}

#[test]
fn levelling_spreads_what_wears_out() {
    let of = |more: &str| {
        let report = &json(&format!("heat --tree wbtree --keys 300 {more}"))[0];
        (number(report, "moves"), number(&report["hottest"][0], "writes"))
    };
    let (as_it_is, levelled) = (of(""), of("--start-gap 1"));
    assert_eq!(as_it_is.0, 0.0);
    assert!(levelled.0 > 300.0, "{levelled:?}");
    // A volatile tree never has to write its lines back.
    let report = &json("heat --tree btree --keys 300")[0];
    assert!(number(&report["parts"]["leaf"], "stores") > 300.0);
    let people = succeed(&program().args(["heat", "--tree", "btree-log"]).output().unwrap());
    assert!(people.contains("hottest lines") && people.contains("log"), "{people}");
}
