//! Writes the golden stores of this version of the format: `cargo run -p bristlecone --features all-engines --example golden -- DIR`.
//!
//! `tests/golden` holds them once for each version of the format. The test `golden` opens the stores of all versions.

#[path = "../tests/golden/contents.rs"]
#[allow(dead_code)] // the test uses more of it
mod contents;

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bristlecone::registry::Open;
use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Bytes, Durability, Fixed, Options, Store, StoreOf, U64};
use contents::{ALL, Golden, Kind, TABLE, VALUE_BYTES, changes, fixed, in_table, key, value};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let target = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: golden DIR")?);
    fs::create_dir_all(&target)?;
    for golden in ALL {
        match golden.kind {
            Kind::Bytes | Kind::Tables => write::<Bytes>(
                golden,
                &target,
                |store, n, put| match put {
                    Some(put) => store.put(&key(n), &value(put)).map(drop),
                    None => store.delete(&key(n)).map(drop),
                },
                |store| match golden.kind {
                    Kind::Tables => fill_table(store),
                    _ => Ok(()),
                },
            )?,
            Kind::Words => write::<U64>(
                golden,
                &target,
                |store, n, put| match put {
                    Some(put) => store.put(&n, &put).map(drop),
                    None => store.delete(&n).map(drop),
                },
                |_| Ok(()),
            )?,
            Kind::Fixed => write::<Fixed>(
                golden,
                &target,
                |store, n, put| match put {
                    Some(put) => store.put(&n, &fixed(put)).map(drop),
                    None => store.delete(&n).map(drop),
                },
                |_| Ok(()),
            )?,
        }
    }
    Ok(())
}

/// Makes the second table.
fn fill_table(store: &Store) -> bristlecone::Result<()> {
    let table = store.table(TABLE)?;
    in_table().try_for_each(|(n, put, deadline)| table.put_until(&key(n), &value(put), deadline))
}

fn write<K: Open>(
    golden: Golden,
    target: &Path,
    change: impl Fn(&StoreOf<K>, u64, Option<u64>) -> bristlecone::Result<()>,
    table: impl Fn(&StoreOf<K>) -> bristlecone::Result<()>,
) -> Outcome {
    let name = golden.name(bristlecone::FORMAT_VERSION);
    let dir = target.join(&name);
    let options = Options::default()
        .engine(golden.engine)
        .durability((!golden.journaled).then_some(Durability::Process))
        .journal_bytes(golden.journaled.then_some(4 << 20))
        .value_bytes((golden.kind == Kind::Fixed).then_some(VALUE_BYTES))
        .max_bytes(1 << 30)
        .tables(golden.kind == Kind::Tables);
    let store = StoreOf::<K>::open(&dir, options)?;
    for (key, put) in changes() {
        change(&store, key, put)?;
    }
    // Only stores of byte strings have tables.
    table(&store)?;
    if golden.closed {
        store.close()?;
    }
    // The files of an open store equal those that a crash of the process leaves.
    for file in [FILE_NAME, JOURNAL_NAME] {
        let Ok(content) = fs::read(dir.join(file)) else { continue };
        let packed = fs::File::create_new(target.join(format!("{name}.{file}.gz")))?;
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::best());
        packed.write_all(&content)?;
        packed.finish()?;
    }
    drop(store);
    fs::remove_dir_all(&dir)?;
    Ok(())
}
