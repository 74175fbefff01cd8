//! External programs that the tests need: from Debian `redis-cli`, `redis-benchmark`, `redis-server`, `memcached`, Valgrind and
//! the module `ensurepip` of Python (package `python3-venv`), and in the target folder a Python environment with the
//! package `redis` and the job systems `rq` and `huey`.
//!
//! Missing Debian packages are installed if the user is root. Otherwise the error names them.

use std::fs;

use crate::Outcome;
use crate::run::{Step, target};

/// The Python packages and their versions: those of `crates/cli/clients/python/requirements.txt`.
const PACKAGES: &str = "redis==8.1.0 rq==3.0.0 huey==3.5.4";

/// A command that must run, and the Debian package that contains its program.
const PROGRAMS: [(&str, &str); 6] = [
    ("redis-cli --version", "redis-tools"),
    ("redis-benchmark --version", "redis-tools"),
    ("redis-server --version", "redis-server"),
    ("memcached --version", "memcached"),
    ("python3 -m ensurepip --version", "python3-venv"),
    ("valgrind --version", "valgrind"),
];

/// Installs all missing programs.
pub fn provide() -> Outcome {
    let missing = missing();
    if !missing.is_empty() {
        install(&missing)?;
    }
    provide_python()
}

fn missing() -> Vec<&'static str> {
    let mut packages: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|(line, _)| !Step::new(line).succeeds())
        .map(|(_, package)| package)
        .collect();
    packages.dedup();
    packages
}

fn install(packages: &[&str]) -> Outcome {
    let packages = packages.join(" ");
    if !is_root() {
        return Err(format!(
            "the tests need the Debian packages {packages}; as root:\n  apt-get install -y --no-install-recommends {packages}"
        ));
    }
    let apt = |line: &str| Step::new(line).with("DEBIAN_FRONTEND", "noninteractive");
    let line = format!("apt-get install -y --no-install-recommends {packages}");
    // A second attempt, because package servers sometimes fail.
    let attempt = || apt("apt-get update").run().and_then(|()| apt(&line).run());
    attempt().or_else(|why| {
        println!("== once more: {why}");
        attempt()
    })?;
    let still = missing();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("installed, but their programs do not run: {}", still.join(" ")))
    }
}

/// True if the owner of this process is user 0.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.and_then(|numbers| numbers.split_whitespace().nth(1)) == Some("0")
}

/// Makes the Python environment if a package is missing.
fn provide_python() -> Outcome {
    let folder = target().join("py");
    let folder = folder.display();
    let stamp = target().join("py").join(".provided");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == PACKAGES)
        && Step::new(&format!("{folder}/bin/python -c")).and("import redis, rq, huey").succeeds()
    {
        return Ok(());
    }
    Step::new(&format!("python3 -m venv --clear {folder}")).run()?;
    let line = format!("{folder}/bin/python -m pip install --quiet --disable-pip-version-check {PACKAGES}");
    Step::new(&line).run().or_else(|_| Step::new(&line).run())?;
    fs::write(&stamp, PACKAGES).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_of_the_campaign_of_clients() {
        let pinned =
            fs::read_to_string(crate::run::root().join("crates/cli/clients/python/requirements.txt"));
        let pinned = pinned.unwrap();
        let wrong = PACKAGES.split(' ').find(|package| !pinned.lines().any(|line| line == *package));
        assert_eq!(wrong, None);
    }
}
