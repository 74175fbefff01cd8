//! Options of `serve` from a file and from the environment.

use std::process::Stdio;

use crate::common::{Serve, code, program, run, stderr};
use redis::cmd;

fn setting(serve: &Serve, name: &str) -> String {
    let pair: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query(&mut serve.client()).unwrap();
    pair[1].clone()
}

#[test]
fn file_environment_and_options_set_a_server_up() {
    let dir = tempfile::tempdir().unwrap();
    let (config, acl) = (dir.path().join("conf.toml"), dir.path().join("users.acl"));
    std::fs::write(&acl, "user default on nopass ~* +@all\nuser bob on >pw ~a* +get\n").unwrap();
    let text = format!(
        "maxmemory = \"100mb\"\nmaxmemory-policy = \"allkeys-lru\"\ntimeout = 300\nmax-clients = 20\nslowlog-max-len = 5\nacl-file = \"{}\"\n[rename-command]\nKEYS = \"\"\n",
        acl.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = program();
    command.env("BRISTLECONE_SERVE_MAX_CLIENTS", "30").env("BRISTLECONE_SERVE_SLOWLOG_MAX_LEN", "6");
    command.env("BRISTLECONE_SERVE_LOG_LEVEL", "error");
    let options = ["--config", config.to_str().unwrap(), "--slowlog-max-len", "7"];
    let serve = Serve::by(command, &dir.path().join("store"), &options, Stdio::inherit());
    let values = ["timeout", "maxclients", "slowlog-max-len", "log-level"].map(|name| setting(&serve, name));
    assert_eq!(values, ["300", "30", "7", "error"]);
    assert_eq!(setting(&serve, "maxmemory"), (100 << 20).to_string());
    assert_eq!(setting(&serve, "maxmemory-policy"), "allkeys-lru");
    assert_eq!(setting(&serve, "acl-file"), acl.to_str().unwrap());
    let mut client = serve.client();
    let error = cmd("KEYS").arg("*").query::<Vec<String>>(&mut client).unwrap_err().to_string();
    assert!(error.contains("unknown command"), "{error}");
    let users: Vec<String> = cmd("ACL").arg("USERS").query(&mut client).unwrap();
    assert_eq!(users, ["bob", "default"]);
    cmd("CONFIG").arg("SET").arg(&["loglevel", "debug"]).exec(&mut client).unwrap();
    assert_eq!(setting(&serve, "loglevel"), "debug");
}

#[test]
fn wrong_settings_are_named_and_make_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, config) = (dir.path().join("store"), dir.path().join("conf.toml"));
    std::fs::write(&config, "timeout = 1\ntimout = 2\n").unwrap();
    let output = run(&store, &["serve", "--config", config.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("conf.toml:2: there is no option timout"), "{output:?}");
    let output = run(&store, &["serve", "--config", "no/such/file"]);
    assert!(stderr(&output).contains("cannot read the configuration no/such/file"), "{output:?}");
    let output = program()
        .args(["serve", "--dir"])
        .arg(&store)
        .env("BRISTLECONE_SERVE_TIMEOUT", "x")
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("BRISTLECONE_SERVE_TIMEOUT: invalid value"), "{output:?}");
    let output = run(&store, &["serve", "--threads", "1000000000"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("1000000000 is not in 1..=256"), "{output:?}");
    std::fs::write(&config, "user bob on\nuser eve foo\n").unwrap();
    let output = run(&store, &["serve", "--acl-file", config.to_str().unwrap()]);
    assert!(stderr(&output).contains("conf.toml:2: foo: Syntax error"), "{output:?}");
    let output = run(&store, &["serve", "--rename-command", "nosuch=x"]);
    assert!(stderr(&output).contains("there is no command nosuch"), "{output:?}");
    assert!(!store.exists());
}

#[test]
fn a_variable_that_is_no_option_is_logged() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut command = program();
    command.env("BRISTLECONE_SERVE_TIMOUT", "7");
    let file = std::fs::File::create(&log).unwrap();
    let serve = Serve::by(command, &dir.path().join("store"), &[], file.into());
    assert_eq!(setting(&serve, "timeout"), "0");
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("BRISTLECONE_SERVE_TIMOUT is no option"), "{text}");
}
