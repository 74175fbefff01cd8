//! `bench`: times of operations, compared with the memory's baseline and with other stores.

use std::path::PathBuf;
use std::process::ExitCode;

use competitors::Promise;
use lab::scratch::Instructions;
use lab::{Engine, engine, instructions, latch_free, readers, reopen, stores, trees, versioned};

use terminal::show;

use crate::failure::{Failure, Result, with_spinner};

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Time searches, inserts, updates, deletes and scans of trees, with std's BTreeMap and the memory's baseline
    #[command(after_help = "Example:\n  bristlecone-lab bench trees --keys 10000000 --json")]
    Trees(Trees),
    /// Do the operations that `bench trees --count-instructions` runs under Valgrind
    #[command(hide = true)]
    TreesOperations(TreesOperations),
    /// Time the opening of a store that was not closed, by number of keys, for `line`, `wbtree` and both variants of `cdds`
    #[command(after_help = "Example:\n  bristlecone-lab bench reopen --keys 1000000,10000000")]
    Reopen(Reopen),
    /// Time puts, batches, gets and scans of Bristlecone, LMDB, RocksDB, redb, fjall and Berkeley DB at the same durability, and count the
    /// syncs of each write
    #[command(after_help = "\
The other stores are in builds with `--features competitors`; RocksDB and Berkeley DB are the system's (Debian:
librocksdb-dev, libdb5.3-dev).

Durability process: an acknowledged write survives kill -9. Durability power: it was synced before it was acknowledged.
Every answer is checked, and at the end every store is opened again and compared.

Examples:
  cargo run --release -p bristlecone-lab --features competitors -- bench store
  bristlecone-lab bench store --backing . --durability power --keys 100000 --only lmdb,rocksdb")]
    Store(Store),
    /// Compare the engine `bwtree` in files with LMDB, RocksDB, redb, fjall and Berkeley DB, at the same durability and with the same memory
    #[command(after_help = "\
The other stores are in builds with `--features competitors`; RocksDB and Berkeley DB are the system's (Debian:
librocksdb-dev, libdb5.3-dev).

Each store runs in a process of its own in a memory control group, whose limit covers heap and page cache. This needs root or
a delegated group. Every answer is checked. A target that is missed is a result, not an error.

Examples:
  cargo run --release -p bristlecone-lab --features competitors -- bench flash --backing target
  bristlecone-lab bench flash --quick --only rocksdb,lmdb --json")]
    Flash(flash::Arguments),
    /// The process of one store of `bench flash`
    #[command(hide = true)]
    FlashStore,
    /// Compare the CDDS B-Tree with Berkeley DB and with a tree without versions, as in its thesis (section 5.3)
    #[command(after_help = "\
Berkeley DB is in builds with `--features competitors`; it is the system's (Debian: libdb5.3-dev).
A claim that does not hold is a result, not an error.

Examples:
  cargo run --release -p bristlecone-lab --features competitors -- bench cdds
  bristlecone-lab bench cdds --pairs 100000 --keys 1000000 --json")]
    Cdds(Cdds),
    /// Compare the Bw-tree with Berkeley DB, a skip list and other ordered maps in memory, on its paper's workloads (section VI) and on
    /// uniform keys
    #[command(after_help = "\
The others are in builds with `--features competitors`; Berkeley DB is the system's (Debian: libdb5.3-dev).
Every answer is checked. A claim that does not hold is a result, not an error.

Examples:
  cargo run --release -p bristlecone-lab --features competitors -- bench bwtree
  bristlecone-lab bench bwtree --scale 0.01 --keys 1000000 --chains 2,4,8,16,32 --json
  bristlecone-lab bench bwtree --scale 0.01 --caches 1000000")]
    Bwtree(Bwtree),
    /// Do the lookups that `bench bwtree --caches` runs under Valgrind
    #[command(hide = true)]
    BwtreeLookups(BwtreeLookups),
    /// Time lookups by one and by several readers, with and without a concurrent writer
    #[command(after_help = "\
Every answer is checked while it is measured. Targets: 2 readers 1.8 times one; beside a writer at full speed 1.5 times one.

Examples:
  bristlecone-lab bench readers
  bristlecone-lab bench readers --keys 1000000 --readers 1,2,4,8 --engine wbtree-line --json")]
    Readers(Readers),
}

/// Options of most benchmarks.
#[derive(clap::Args)]
struct Common {
    /// Directory for the files. Its file system is measured; the papers' experiments need one in memory.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Seed of keys and their order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Cdds {
    /// Number of pairs with 25-byte keys and 2,048-byte values.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pairs: u64,
    /// Numbers of 64-bit keys at which the cost of versions is measured, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 10_000_000], value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: Vec<u64>,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Bwtree {
    /// Fraction of the paper's 27 and 42 million operations to run.
    #[arg(long, default_value_t = 0.1, value_parser = scale)]
    scale: f64,
    /// Factor for the workloads on which our tree alone is measured in addition, in three rounds at least; 0 omits this. Other maps need
    /// minutes for large workloads.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    larger: u32,
    /// Number of keys of the uniform workload.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Thread counts, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Vec<u64>,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Maximum lengths of delta chains to compare in addition, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    chains: Vec<u32>,
    /// Count the memory loads of lookups among this many keys, by cache level. The caches are simulated: this needs Valgrind, and takes
    /// minutes for a million keys.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    caches: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct BwtreeLookups {
    map: String,
    keys: u64,
    #[arg(long)]
    seed: u64,
}

#[derive(clap::Args)]
struct TreesOperations {
    #[arg(value_parser = engine)]
    engine: Engine,
    operation: String,
    node_lines: u64,
    keys: u64,
    seed: u64,
}

/// Parses `--scale`, a factor of the paper's number of operations.
fn scale(text: &str) -> std::result::Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (1e-5..=10.0).contains(&scale) {
        Ok(scale)
    } else {
        Err("give a number from 0.00001 to 10".to_owned())
    }
}

/// `--durability` of `bench store` and `bench readers`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Durability {
    /// Writes survive the death of the process.
    Process,
    /// Writes survive a loss of power.
    Power,
}

#[derive(clap::Args)]
struct Store {
    /// Number of keys loaded into each store.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Single puts per column; 0 for a twentieth of the keys, at most 100,000, or for 500 at power durability.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    operations: u64,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Thread counts, separated by commas. Each column is measured with each count.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8], value_parser = clap::value_parser!(u64).range(1..=256))]
    writers: Vec<u64>,
    /// Number of puts in a batch. A batch is one atomic commit.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// Failure that acknowledged writes survive.
    #[arg(long, value_enum, default_value_t = Durability::Process)]
    durability: Durability,
    /// Competitors to measure, separated by commas: lmdb, rocksdb, redb, fjall, berkeley [default: all in this build].
    #[arg(long, value_delimiter = ',', value_name = "STORES")]
    only: Option<Vec<String>>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Readers {
    /// Number of keys in the store.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Engine of the store.
    #[arg(long, default_value = "wbtree", value_parser = engine)]
    engine: Engine,
    /// Numbers of readers, separated by commas. One reader is always measured.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u64).range(1..=256))]
    readers: Vec<u64>,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Duration of each case in a round, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    milliseconds: u64,
    /// Failure that acknowledged writes survive.
    #[arg(long, value_enum, default_value_t = Durability::Process)]
    durability: Durability,
    /// Do not make the writer wait until its writes are durable.
    #[arg(long)]
    unsynced: bool,
    /// Number of keys that a reader scans from a random key; 0 for lookups of one key.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 20))]
    scan: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Reopen {
    /// Numbers of keys in the store, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000], value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: Vec<u64>,
    /// Number of times that each store is opened; medians are reported.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Directory for the files.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Trees {
    /// Number of keys in each tree.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Operations of a batch; 0 for a tenth of the keys, at most a million.
    #[arg(long, default_value_t = 0)]
    operations: u64,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Engines, separated by commas. Durable engines are measured at process and at power durability.
    #[arg(long, value_delimiter = ',', default_value = "btree,wbtree", value_parser = engine)]
    engines: Vec<Engine>,
    /// Cache lines of a node [default: those of each engine]. Several sizes, separated by commas, are compared in one run. An engine that
    /// does not support a size is omitted there.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Vec<u64>,
    /// Bytes of a value, a multiple of 8 up to 120. Values larger than 8 bytes are stored inside the entries of trees with 4 KiB nodes:
    /// choose such engines with --engines, and 64 lines per node.
    #[arg(long, default_value_t = 8)]
    value_bytes: u64,
    /// Flush with clflush and fence with mfence, as the papers did.
    #[arg(long)]
    paper_instructions: bool,
    /// Count the instructions of each operation, too, on at most 300,000 keys. This needs Valgrind, and takes about a minute for each engine.
    #[arg(long)]
    count_instructions: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Trees(trees) => {
            let options = trees::Options {
                keys: trees.keys,
                operations: trees.operations,
                rounds: trees.rounds as usize,
                engines: trees.engines.clone(),
                node_lines: trees.node_lines.clone(),
                value_bytes: trees.value_bytes,
                backing: trees.common.backing.clone(),
                instructions: match trees.paper_instructions {
                    true => Instructions::Paper,
                    false => Instructions::Best,
                },
                count_instructions: trees.count_instructions,
                seed: trees.common.seed,
            };
            show(with_spinner(|progress| trees::run(&options, progress))?, trees.common.json)?;
        }
        What::Store(store) => {
            let options = stores::Options {
                keys: store.keys,
                operations: store.operations,
                rounds: store.rounds as usize,
                writers: store.writers.iter().map(|threads| *threads as usize).collect(),
                batch: store.batch as usize,
                backing: store.common.backing.clone(),
                promise: match store.durability {
                    Durability::Process => Promise::Process,
                    Durability::Power => Promise::Power,
                },
                only: store.only.clone(),
                seed: store.common.seed,
            };
            show(with_spinner(|progress| stores::run(&options, progress))?, store.common.json)?;
        }
        What::Flash(arguments) => {
            let program = std::env::current_exe();
            let program =
                program.map_err(|error| Failure::Io("cannot find this program".to_owned(), error))?;
            let options = arguments.options(vec![program.into(), "bench".into(), "flash-store".into()]);
            show(with_spinner(|progress| Ok(flash::run(&options, progress)?))?, arguments.json)?;
        }
        What::FlashStore => {
            flash::serve().map_err(|error| Failure::Io("the process of a store".to_owned(), error))?;
        }
        What::Cdds(cdds) => {
            let options = versioned::Options {
                pairs: cdds.pairs,
                keys: cdds.keys.clone(),
                rounds: cdds.rounds as usize,
                backing: cdds.common.backing.clone(),
                seed: cdds.common.seed,
            };
            show(with_spinner(|progress| versioned::run(&options, progress))?, cdds.common.json)?;
        }
        What::Bwtree(bwtree) => {
            let options = latch_free::Options {
                scale: bwtree.scale,
                keys: bwtree.keys,
                threads: bwtree.threads.iter().map(|threads| *threads as usize).collect(),
                larger: bwtree.larger,
                rounds: bwtree.rounds as usize,
                chains: bwtree.chains.clone(),
                caches: bwtree.caches,
                backing: bwtree.common.backing.clone(),
                seed: bwtree.common.seed,
            };
            show(with_spinner(|progress| latch_free::run(&options, progress))?, bwtree.common.json)?;
        }
        What::TreesOperations(of) => {
            instructions::operate(of.engine, &of.operation, of.node_lines, of.keys, of.seed)?;
        }
        What::BwtreeLookups(of) => latch_free::lookups(&of.map, of.keys, of.seed)?,
        What::Readers(arguments) => {
            let options = readers::Options {
                keys: arguments.keys,
                engine: arguments.engine,
                readers: arguments.readers.iter().map(|readers| *readers as usize).collect(),
                rounds: arguments.rounds as usize,
                milliseconds: arguments.milliseconds,
                durability: match arguments.durability {
                    Durability::Process => bristlecone::Durability::Process,
                    Durability::Power => bristlecone::Durability::Power,
                },
                unsynced: arguments.unsynced,
                scan: arguments.scan as usize,
                backing: arguments.common.backing.clone(),
                seed: arguments.common.seed,
            };
            show(with_spinner(|progress| readers::run(&options, progress))?, arguments.common.json)?;
        }
        What::Reopen(sizes) => {
            let options = reopen::Options {
                keys: sizes.keys.clone(),
                rounds: sizes.rounds as usize,
                backing: sizes.backing.clone(),
            };
            show(with_spinner(|progress| reopen::run(&options, progress))?, sizes.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
