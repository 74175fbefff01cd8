//! A report is good only if all of its conditions hold: each fault alone makes it not good.

use crash_tree::{Engine, Options, Report};

fn good(engine: Engine) -> Report {
    Report {
        engine,
        seed: 1,
        ops: Options::OPS,
        crash_points: 1,
        states: engine.floor(),
        nested_states: 0,
        recalled_states: 0,
        sampled_points: 0,
        nested_sampled_points: 0,
        capped_lines: 0,
        floor: engine.floor(),
        states_per_second: 1.0,
        worst: None,
        runs: Vec::new(),
        violations: Vec::new(),
        mutants_killed: 1,
        kills: Vec::new(),
        mutants_argued: Vec::new(),
        mutants_survived: Vec::new(),
        stale_arguments: Vec::new(),
        mutant_states: 1,
        injected_fault: Ok("caught".to_owned()),
        seconds: 1.0,
    }
}

#[test]
fn each_single_fault_makes_a_report_not_good() {
    type Fault = fn(&mut Report);
    let faults: [(&str, Fault); 5] = [
        ("FEWER STATES", |report| report.states -= 1),
        ("VIOLATION in run: lost a key", |report| {
            report.violations.push(("run".to_owned(), "lost a key".to_owned()));
        }),
        ("survived: a fence", |report| report.mutants_survived.push("a fence".to_owned())),
        ("argued for nothing: `fence`", |report| report.stale_arguments.push("fence".to_owned())),
        ("injected fault NOT detected: it survives", |report| {
            report.injected_fault = Err("it survives".to_owned())
        }),
    ];
    for engine in Engine::all() {
        assert!(good(engine).is_good());
        assert!(good(engine).to_string().contains("\ngood in "));
        for (says, fault) in faults {
            let mut report = good(engine);
            fault(&mut report);
            assert!(!report.is_good(), "{says}");
            let text = report.to_string();
            assert!(text.contains(says) && text.contains("\nNOT GOOD in "), "{says}: {text}");
        }
    }
}

#[test]
fn a_whole_run_has_a_floor_and_a_part_of_one_has_none() {
    for engine in Engine::all() {
        let whole = Options::new(engine);
        assert!(whole.floor() > 50_000, "{}: no floor worth the name", engine.name());
        assert_eq!(Options { ops: 100_000, seed: 7, ..whole.clone() }.floor(), whole.floor());
        assert_eq!(Options { node_lines: Some(2), ..whole.clone() }.floor(), 0);
        assert_eq!(Options { ops: Options::OPS - 1, ..whole }.floor(), 0);
    }
}
