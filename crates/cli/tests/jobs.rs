//! Two job systems, rq and huey, whose server is killed (`kill -9`) while workers run jobs: no job is lost.
//!
//! `crates/cli/clients/jobs/jobs.py` plays the rounds and judges them; its head has the rules. It also plays a round of each system with
//! `redis-server` without persistence, and fails if it does not notice the lost jobs. All five job systems are a campaign of `soak`.

use std::process::{Command, Stdio};

use crate::real_clients::{INSTALL, python};

/// Jobs of a round, and kills: constants of the script.
const JOBS: u64 = 400;
const KILLS: u64 = 3;

#[test]
fn no_job_of_rq_or_huey_is_lost_across_kill_9() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/jobs/jobs.py");
    let target = tempfile::tempdir().unwrap();
    let (python, seed) = (python(), std::env::var("BRISTLECONE_SEED").unwrap_or_else(|_| "1".to_owned()));
    // The script stops its servers and workers if it gets SIGTERM.
    let output = Command::new("timeout")
        .args(["--kill-after", "20", "240"])
        .arg(&python)
        .args(["-B", script, "--seed", &seed, "--server", env!("CARGO_BIN_EXE_bristlecone"), "--target"])
        .arg(target.path())
        .arg("--python")
        .arg(&python)
        .args(["rq", "huey"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}; seed {seed}; programs are missing? {INSTALL}\n{error}",
        output.status
    );
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{figures}");
    for row in rows {
        assert_eq!((row["acknowledged"].as_u64(), row["kills"].as_u64()), (Some(JOBS), Some(KILLS)), "{row}");
        assert!(row["lost"].as_u64() <= row["may_be_lost"].as_u64(), "{row}");
    }
    assert_eq!((&rows[0]["system"], &rows[0]["lost"]), (&"rq".into(), &0.into()), "{figures}");
    println!("{error}");
}
