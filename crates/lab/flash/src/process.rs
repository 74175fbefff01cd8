//! The benchmark's side of a store's process.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Error;
use crate::cgroup::Group;
use crate::protocol::{Answer, Cell, Job, Measured, Order};

const SIGKILL: i32 = 9;

/// A process with a store. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    store: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process of a store inside a group, and opens the store. Returns the time of the open in seconds, too.
    ///
    /// # Errors
    /// `System`, and the errors of [`Process::order`].
    pub fn start(command: &[OsString], job: &Job, group: Option<&Group>) -> Result<(Self, f64), Error> {
        let system = |what: &'static str| move |source| Error::System { what, source };
        let (program, arguments) = command.split_first().expect("the command has a program");
        let mut command = Command::new(program);
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(system("start the process of a store"))?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).expect("both are piped");
        let mut process = Self { store: job.store.clone(), child, input, output: BufReader::new(output) };
        // The process waits for its job, so it uses its memory inside the group.
        if let Some(group) = group {
            group.add(process.child.id()).map_err(system("move a process into its memory control group"))?;
        }
        process.write(job)?;
        match process.answer(group)? {
            Answer::Opened { seconds } => Ok((process, seconds)),
            other => Err(process.unexpected(&other)),
        }
    }

    fn write(&mut self, line: &impl serde::Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(line).map_err(std::io::Error::from);
        // An error means that the process has ended. The read of its answer tells why.
        text.map(|text| _ = writeln!(self.input, "{text}"))
            .map_err(|source| Error::System { what: "write an order", source })
    }

    fn unexpected(&self, answer: &Answer) -> Error {
        Error::Died { store: self.store.clone(), how: format!("answered {answer:?}") }
    }

    fn answer(&mut self, group: Option<&Group>) -> Result<Answer, Error> {
        let store = || self.store.clone();
        let mut line = String::new();
        while !line.starts_with('{') {
            line.clear();
            let read = self.output.read_line(&mut line);
            if read.map_err(|source| Error::System { what: "read an answer", source })? == 0 {
                let status = self.child.wait();
                let status = status.map_err(|source| Error::System { what: "wait for a process", source })?;
                return Err(
                    if status.signal() == Some(SIGKILL) && group.is_some_and(|group| group.kills() > 0) {
                        Error::Memory(store())
                    } else {
                        Error::Died { store: store(), how: format!("ended early ({status})") }
                    },
                );
            }
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(why)) => Err(Error::Store(why)),
            Ok(Answer::Wrong(what)) => Err(Error::Wrong { store: store(), what }),
            Ok(Answer::Uncounted(why)) => Err(Error::Uncounted { store: store(), why }),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Error::Died { store: store(), how: format!("answered {line:?} ({error})") }),
        }
    }

    /// Gives an order that has no result.
    ///
    /// # Errors
    /// `Memory` if the kernel killed the process because its group is full; `Died`, `Store`, `Wrong`, `System`.
    pub fn order(&mut self, order: &Order, group: Option<&Group>) -> Result<(), Error> {
        self.write(order)?;
        match self.answer(group)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Does the work of a cell.
    ///
    /// # Errors
    /// As [`Process::order`].
    pub fn measure(
        &mut self,
        cell: Cell,
        (seconds, operations_max): (f64, u64),
        group: Option<&Group>,
    ) -> Result<Measured, Error> {
        self.write(&Order::Measure { cell, seconds, operations_max })?;
        match self.answer(group)? {
            Answer::Measured(measured) => Ok(measured),
            other => Err(self.unexpected(&other)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL. An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
