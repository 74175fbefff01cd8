//! Runs commands in the repository's root. For each command, this module prints the command line that repeats the command, and the
//! command's time.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::Outcome;

/// The repository's root: the parent folder of this crate.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// The commit that is checked out; `None` outside a repository.
pub fn commit() -> Option<String> {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output().ok()?;
    head.status.success().then(|| String::from_utf8_lossy(&head.stdout).trim().to_owned())
}

/// Wall time and processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Wall time.
    pub wall: Duration,
    /// Processor time of the command and its children, on all processors.
    pub processor: Duration,
}

/// Processor time of all children that this process has waited for. The kernel counts in hundredths of a second (`cutime` and `cstime` of
/// proc(5)).
fn children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name of the program, which may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(13) + ticks(14)) * 10)
}

/// Runs a closure. Returns its result, its wall time, and the processor time of the child processes that ended in it.
pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Times) {
    let (start, before) = (Instant::now(), children());
    let outcome = run();
    (outcome, Times { wall: start.elapsed(), processor: children().saturating_sub(before) })
}

/// The times of a task's steps, printed at its end.
#[derive(Debug, Default)]
pub struct Clock(RefCell<Vec<(String, Times)>>);

impl Clock {
    /// Runs a step and records its times.
    pub fn step(&self, name: &str, run: impl FnOnce() -> Outcome) -> Outcome {
        let (outcome, times) = timed(run);
        self.0.borrow_mut().push((name.to_owned(), times));
        outcome
    }

    /// Prints a line for each step, and the sum.
    pub fn print(&self) {
        println!("\n{:<34} {:>8} {:>12}", "step", "wall s", "processor s");
        let mut sum = Times::default();
        for (name, times) in self.0.borrow().iter() {
            println!("{name:<34} {:>8.1} {:>12.1}", times.wall.as_secs_f64(), times.processor.as_secs_f64());
            sum.wall += times.wall;
            sum.processor += times.processor;
        }
        println!("{:<34} {:>8.1} {:>12.1}", "all", sum.wall.as_secs_f64(), sum.processor.as_secs_f64());
    }
}

/// A command: environment variables, program, arguments.
#[derive(Clone)]
pub struct Step {
    variables: Vec<(&'static str, String)>,
    program: String,
    arguments: Vec<String>,
}

impl Step {
    /// A command from a line of words without quotes. [`Step::and`] adds an argument with spaces.
    pub fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        Self { variables: Vec::new(), program, arguments: words.collect() }
    }

    /// Adds an environment variable.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Adds one argument, which may contain spaces.
    pub fn and(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The command line that repeats it.
    pub fn line(&self) -> String {
        let quote =
            |text: &str| if text.contains([' ', '\'']) { format!("{text:?}") } else { text.to_owned() };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let words = std::iter::once(&self.program).chain(&self.arguments).map(|word| quote(word));
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// The command, with the repository's root as its working directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root());
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }

    /// Runs the command with inherited output.
    pub fn run(&self) -> Outcome {
        self.run_until(None).map(drop)
    }

    /// Runs the command. True if it ended; false if it was killed at the deadline.
    pub fn run_until(&self, deadline: Option<Instant>) -> Result<bool, String> {
        let line = self.line();
        println!("\n== {line}");
        let start = Instant::now();
        let mut child =
            self.command().spawn().map_err(|error| format!("cannot run {}: {error}", self.program))?;
        let Some(status) = wait(&mut child, deadline)? else {
            println!("== ended after {:.1} s: its time is up", start.elapsed().as_secs_f64());
            return Ok(false);
        };
        if !status.success() {
            return Err(format!("failed ({status}). To repeat it:\n  {line}"));
        }
        println!("== done in {:.1} s", start.elapsed().as_secs_f64());
        Ok(true)
    }

    /// True if the command runs and succeeds. Discards its output.
    pub fn succeeds(&self) -> bool {
        Command::new(&self.program).args(&self.arguments).output().is_ok_and(|output| output.status.success())
    }

    /// The standard output of the command.
    pub fn output(&self) -> Result<String, String> {
        let output =
            self.command().output().map_err(|error| format!("cannot run {}: {error}", self.program))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("failed ({}). To repeat it:\n  {}\n{said}", output.status, self.line()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Waits for a child. At the deadline, kills it and returns `None`.
fn wait(child: &mut Child, deadline: Option<Instant>) -> Result<Option<ExitStatus>, String> {
    let fail = |error: std::io::Error| format!("cannot wait for a command: {error}");
    let Some(deadline) = deadline else { return child.wait().map(Some).map_err(fail) };
    loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill().map_err(fail)?;
            child.wait().map_err(fail)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_tells_the_line_that_repeats_it() {
        let step = Step::new("cargo doc  --no-deps").with("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(step.line(), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn a_step_that_fails_is_an_error_with_its_line() {
        assert!(Step::new("true").run().is_ok());
        assert!(Step::new("false").run().unwrap_err().ends_with("\n  false"));
        assert!(Step::new("no-such-program-anywhere").run().is_err());
    }

    #[test]
    fn a_step_is_ended_at_its_deadline() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        assert_eq!(Step::new("sleep 60").run_until(Some(now)), Ok(false));
        assert_eq!(Step::new("true").run_until(Some(later)), Ok(true));
    }

    #[test]
    fn processor_time_of_a_command_is_counted() {
        let (output, times) =
            timed(|| Step::new("sh -c").and("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").output());
        output.unwrap();
        assert!(!times.processor.is_zero());
    }
}
