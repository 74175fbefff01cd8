//! Options of the commands that can make a store and choose its form.

use std::ffi::OsStr;

use bristlecone::{Durability, Options};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::common::size;

/// The form of a new store.
#[derive(clap::Args, Default)]
pub struct NewStore {
    /// Engine of a new store. The engine of an existing store cannot be changed.
    #[arg(long, value_name = "NAME", value_parser = engines())]
    engine: Option<String>,
    /// Failure that acknowledged writes survive [default: the strongest that the file system of the directory allows].
    #[arg(long, value_enum)]
    durability: Option<Promise>,
    /// Cache lines of an index node of a new store [default: depends on the engine].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Option<u64>,
    /// Bytes of the journal of a new store, 4M to 1G [default: 64M]. Opening after a crash reads at most this much, and one group that is
    /// larger than half of it. A store on an ordinary file system has a journal unless it is made for process durability.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    journal_bytes: Option<u64>,
}

impl NewStore {
    /// Options with these.
    pub fn set(&self, options: Options) -> Options {
        let durability = self.durability.map(|promise| match promise {
            Promise::Process => Durability::Process,
            Promise::Power => Durability::Power,
        });
        options
            .engine(self.engine.as_deref())
            .durability(durability)
            .node_lines(self.node_lines)
            .journal_bytes(self.journal_bytes)
    }
}

/// Failure that an acknowledged write survives.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Promise {
    /// Death of the process.
    Process,
    /// Loss of power.
    Power,
}

fn engines() -> impl TypedValueParser<Value = String> {
    let values = bristlecone::registry::engines();
    let values: Vec<_> = values.map(|tree| PossibleValue::new(tree.name).help(tree.about)).collect();
    Engines(values.into())
}

/// Parses the name of an engine. The error for an engine that was not compiled says how to compile it.
#[derive(Clone)]
struct Engines(PossibleValuesParser);

impl TypedValueParser for Engines {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let parsed = self.0.parse_ref(command, argument, value);
        parsed.map_err(|error| match bristlecone::registry::find(&value.to_string_lossy()) {
            Err(missing @ bristlecone::Error::NotCompiled { .. }) => {
                clap::Error::raw(ErrorKind::InvalidValue, format!("{missing}\n")).with_cmd(command)
            }
            _ => error,
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}
