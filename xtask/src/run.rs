//! Running a command from the repository's root, with a line that says what runs and, if it fails, what repeats it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::Outcome;

/// The repository's root: the folder above this crate.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// Cargo's folder for what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

/// A command: variables, program, arguments.
pub struct Step {
    variables: Vec<(&'static str, String)>,
    program: String,
    arguments: Vec<String>,
}

impl Step {
    /// A command in the words of a shell without quotes: see [`Step::and`] for an argument with blanks.
    pub fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        Self { variables: Vec::new(), program, arguments: words.collect() }
    }

    /// With a variable of the environment.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// With one more argument, blanks and all.
    pub fn and(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The line that repeats it.
    pub fn line(&self) -> String {
        let quote =
            |text: &str| if text.contains([' ', '\'']) { format!("{text:?}") } else { text.to_owned() };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let words = std::iter::once(&self.program).chain(&self.arguments).map(|word| quote(word));
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Runs it, its output being ours.
    pub fn run(&self) -> Outcome {
        let line = self.line();
        println!("\n== {line}");
        let start = Instant::now();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root());
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        let status = command.status().map_err(|error| format!("cannot run {}: {error}", self.program))?;
        if !status.success() {
            return Err(format!("failed ({status}). To repeat it:\n  {line}"));
        }
        println!("== done in {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// True if it runs and succeeds; its output is thrown away.
    pub fn succeeds(&self) -> bool {
        Command::new(&self.program).args(&self.arguments).output().is_ok_and(|output| output.status.success())
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
}
