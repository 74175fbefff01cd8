//! `versions`: lists, names, forgets and restores versions of a store.

use std::process::ExitCode;

use bristlecone::{NamedVersion, Store};

use terminal::Output;

use crate::common::Common;
use crate::failure::Result;

const EXAMPLES: &str = "\
A store of engine cdds, cdds-unsorted or cdds-hash keeps versions. A named version is kept, also through restarts, until it is
forgotten. `get --at NAME` reads it, and so does `scan --at NAME` if the engine orders keys. `rollback` undoes all writes since
the version was named, in one step, and forgets younger names.

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
    /// Action on the versions.
    #[arg(value_enum, default_value = "list")]
    action: Action,
    /// Name of a version, 1 to 255 bytes.
    #[arg(required_if_eq_any([("action", "keep"), ("action", "forget"), ("action", "rollback")]))]
    name: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Action {
    /// List the named versions and the newest one.
    List,
    /// Give the newest version a name, so that the store keeps it.
    Keep,
    /// Forget a name. The store frees what only this version needed.
    Forget,
    /// Roll back every write since a version was named.
    Rollback,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let store = arguments.common.open()?;
    let name = arguments.name.as_deref().unwrap_or_default();
    match arguments.action {
        Action::List => {}
        Action::Keep => store.keep(name)?,
        Action::Forget => store.forget(name)?,
        Action::Rollback => store.roll_back(&store.snapshot_named(name)?)?,
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
    Ok(output.end()?)
}
