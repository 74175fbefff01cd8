//! `bristlecone-lab` as scripts see it: exit codes and messages.

use crate::common::{code, program, stderr, stdout, succeed};

#[test]
fn help_and_version_are_there_for_every_command() {
    for command in [
        "",
        "crash",
        "costs",
        "run",
        "registry",
        "heat",
        "flush",
        "bench trees",
        "bench store",
        "bench flash",
    ] {
        let output = program().args(command.split_whitespace()).arg("--help").output().unwrap();
        assert!(succeed(&output).contains("Example"), "{command}");
    }
    let version = succeed(&program().arg("--version").output().unwrap());
    assert_eq!(version.trim(), concat!("bristlecone-lab ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_of_a_benchmark_has_code_2() {
    for arguments in
        ["", "bench", "bench trees --keys 0", "bench reopen --keys x", "bench flash --memory 1", "frobnicate"]
    {
        let output = program().args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments}: {output:?}");
        assert!(stdout(&output).is_empty() && !stderr(&output).is_empty(), "{arguments}: {output:?}");
    }
}

#[test]
fn wrong_usage_of_the_cost_lab_has_code_2_and_says_what_is_wrong() {
    for (arguments, says) in [
        ("costs --trees frob", "there are wbtree,"),
        ("costs --trees btree", "no durable tree `btree`"),
        ("costs --node-lines 17", "--node-lines"),
        ("costs --entry-bytes 24", "--entry-bytes"),
        ("costs --fill 1.5", "give 0.3 to 0.9"),
        ("costs --keys 1", "--keys"),
        ("costs --scale 0.1", "--by-category"),
        ("costs --by-category --scale 0", "--scale"),
        ("costs --by-category --check", "--check"),
    ] {
        let output = program().args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments}: {output:?}");
        assert!(stderr(&output).contains(says), "{arguments}: {output:?}");
    }
}

#[test]
fn costs_are_checked_and_printed_for_people_and_programs() {
    let costs = |more: &str| {
        let arguments = format!("costs --trees wbtree-slot,wbtree --node-lines 4 --keys 1000 --check {more}");
        succeed(&program().args(arguments.split_whitespace()).output().unwrap())
    };
    let text = costs("");
    assert!(text.contains("wbtree, 4 lines") && text.contains("\ngood: "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&costs("--json")).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(json["failures"], 0);
    let insert =
        rows.iter().find(|row| row["engine"] == "wbtree-slot" && row["operation"] == "insert").unwrap();
    assert_eq!(insert["words"]["measured"]["max"], 3);
    assert_eq!(insert["words"]["paper"], 3.0);
    assert_eq!(insert["source"], "wB+ table 3");
}

#[test]
fn wrong_usage_of_the_crash_lab_has_code_2_and_says_what_is_wrong() {
    for (arguments, says) in [
        ("crash", "--tree"),
        ("crash --tree bwtree", "there are wbtree, wbtree-keyptr"),
        ("crash --tree wbtree --threads 0", "--threads"),
        ("crash --tree wbtree --node-lines 17", "--node-lines"),
    ] {
        let output = program().args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments}: {output:?}");
        assert!(stderr(&output).contains(says), "{arguments}: {output:?}");
    }
}
