//! `bristlecone-lab costs` on small trees: every operation of every engine has its expected cost, and a wrong expected cost is detected.

use lab::costs::engines::Engine;
use lab::costs::report::{Others, Report};
use lab::costs::{Options, measure};

fn small() -> Options {
    Options { node_lines: vec![2, 8], entry_bytes: vec![16, 128], keys: Some(2500), ..Options::default() }
}

/// The report of an engine. Tests may replace the engine's parts.
fn report(engine: &Engine, lines: u64, bytes: u64, options: &Options) -> Report {
    let (rows, others) = measure::measure(engine, lines, bytes, options).unwrap();
    Report::new(options.fill, options.seed, rows, others)
}

#[test]
fn every_operation_of_every_engine_costs_its_price() {
    let options = small();
    for engine in Engine::named(&[]).unwrap() {
        for lines in engine.node_lines(&options.node_lines) {
            for bytes in engine.entry_bytes(&options.entry_bytes) {
                let report = report(&engine, lines, bytes, &options);
                assert!(report.is_good(), "{report}");
                let names: Vec<_> = report.rows.iter().map(|row| row.operation.name()).collect();
                for name in ["insert", "insert with splits", "delete"] {
                    assert!(names.contains(&name), "no {name}: {report}");
                }
            }
        }
    }
}

#[test]
fn other_fills_seeds_and_sizes_cost_their_price_too() {
    let names =
        ["wbtree", "wbtree-bmp", "unsorted-log", "ubmp-shadow", "wb-4k", "vlab", "vlab-faithful", "nvtree"]
            .map(str::to_owned);
    for (fill, seed, lines) in [(0.3, 2, 3), (0.5, 3, 5), (0.9, 4, 16)] {
        let options = Options { fill, seed, node_lines: vec![lines], entry_bytes: vec![32], ..small() };
        for engine in Engine::named(&names).unwrap() {
            let lines = engine.node_lines(&options.node_lines)[0];
            let bytes = engine.entry_bytes(&options.entry_bytes)[0];
            let report = report(&engine, lines, bytes, &options);
            assert!(report.is_good(), "fill {fill}, seed {seed}: {report}");
        }
    }
}

#[test]
fn an_engine_at_another_ones_price_is_found_out() {
    for (name, other) in [
        ("wbtree", "wbtree-bmp"),
        ("btree-log", "unsorted-log"),
        ("unsorted-log", "ubmp-log"),
        ("btree-shadow", "btree-log"),
        ("bmp-4k", "bmp-all-4k"),
        ("vlab", "vlab-faithful"),
        ("nvtree", "vlab"),
    ] {
        let engine = |name: &str| Engine::named(&[name.to_owned()]).unwrap().remove(0);
        let wrong = Engine { about: engine(name).about, parts: engine(other).parts };
        let lines = wrong.node_lines(&[8])[0];
        let report = report(&wrong, lines, 16, &small());
        assert!(!report.is_good() && report.failures > 0, "{name} at the price of {other}");
        let text = report.to_string();
        assert!(text.contains("our price is") && text.contains("\nNOT GOOD: "), "{text}");
    }
}

#[test]
fn a_report_without_a_row_or_with_a_failure_in_none_is_not_good() {
    assert!(!Report::new(0.7, 1, Vec::new(), Others::default()).is_good());
    let engine = Engine::named(&["wbtree-slot".to_owned()]).unwrap().remove(0);
    let rows = report(&engine, 2, 16, &small()).rows;
    let others = Others { operations: 1, failures: 1, problems: vec!["2 fences".to_owned()] };
    let report = Report::new(0.7, 1, rows, others);
    assert!(
        !report.is_good() && report.to_string().contains("in no row (1 operations): 2 fences"),
        "{report}"
    );
}

#[test]
fn the_papers_mean_at_the_ranks_that_were_met_is_the_measured_mean() {
    for name in ["btree-log", "trad-4k", "ubmp-log", "cnt-4k", "wbtree-slot"] {
        let engine = Engine::named(&[name.to_owned()]).unwrap().remove(0);
        let lines = engine.node_lines(&[8])[0];
        let rows = report(&engine, lines, 16, &small()).rows;
        for row in rows.iter().filter(|row| row.split_levels == 0) {
            let met = row.paper_words_met.unwrap_or(f64::NAN);
            assert!((met - row.words.measured.mean).abs() < 1e-9, "{name}: {row}");
        }
    }
}
