//! `versions`: what a store with a past keeps of it, names for it, and the way back.

use std::process::ExitCode;

use bristlecone::{NamedVersion, Store};

use crate::common::{Common, Output};
use crate::failure::Result;

const EXAMPLES: &str = "\
A store of engine cdds keeps versions. A named one is kept, through restarts, until it is forgotten; `get --at NAME` and
`scan --at NAME` read it. `rollback` takes back every write since it was named, in one step, and forgets younger names.

Examples:
  bristlecone versions keep before-import
  bristlecone versions
  bristlecone scan --at before-import --prefix user:
  bristlecone versions rollback before-import
  bristlecone versions forget before-import";

/// Arguments of `versions`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print the versions there are. (What is done if nothing is named.)
    List,
    /// Give the newest version a name.
    Keep {
        /// The name: 1 to 255 bytes.
        name: String,
    },
    /// Forget a name, and with it what only it kept.
    Forget {
        /// The name.
        name: String,
    },
    /// Take back every write since a version was named.
    Rollback {
        /// The name.
        name: String,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let store = arguments.common.open()?;
    match arguments.action.as_ref().unwrap_or(&Action::List) {
        Action::List => {}
        Action::Keep { name } => store.keep(name)?,
        Action::Forget { name } => store.forget(name)?,
        Action::Rollback { name } => {
            let to = store.snapshot_named(name)?;
            store.roll_back(&to)?;
        }
    }
    print(&store, arguments.common.json)?;
    store.close()?;
    Ok(ExitCode::SUCCESS)
}

fn print(store: &Store, json: bool) -> Result<()> {
    let versions = store.versions()?;
    let mut output = Output::new();
    if json {
        output.json(&versions)?;
    } else {
        for NamedVersion { name, version, keys } in &versions.named {
            output.line(&format!("{version:>12}  {keys:>12} keys  {name}"))?;
        }
        output.line(&format!("{:>12}  {:>12} keys  (newest)", versions.newest, store.len().keys))?;
    }
    output.end()
}
