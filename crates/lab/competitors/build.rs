//! Finds the system's RocksDB. It is linked and not compiled, because compiling it would take longer than all other crates together.
//! Berkeley DB is also the system's; the C functions that call it are compiled here.

use std::path::PathBuf;
use std::{env, process};

/// Directories of the library in common distributions, used if `ROCKSDB_LIB_DIR` is not set.
const FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/riscv64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    #[cfg(feature = "berkeley")]
    berkeley();
    if env::var_os("CARGO_FEATURE_ROCKSDB").is_none() {
        return;
    }
    let folders: Vec<PathBuf> = match env::var_os("ROCKSDB_LIB_DIR") {
        Some(folder) => vec![folder.into()],
        None => FOLDERS.iter().map(PathBuf::from).collect(),
    };
    let Some(folder) = folders.iter().find(|folder| folder.join("librocksdb.so").exists()) else {
        let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        println!(
            "cargo::error=librocksdb.so is in none of {}: install it (Debian: apt-get install librocksdb-dev), or name its \
             folder in ROCKSDB_LIB_DIR",
            looked.join(", ")
        );
        process::exit(1);
    };
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=dylib=rocksdb");
}

#[cfg(feature = "berkeley")]
fn berkeley() {
    const SOURCE: &str = "src/berkeley.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    if cc::Build::new().file(SOURCE).warnings_into_errors(true).try_compile("berkeley_calls").is_err() {
        println!(
            "cargo::error={SOURCE} does not compile: it needs a C compiler and Berkeley DB 5.3 (Debian: apt-get install gcc \
             libdb5.3-dev)"
        );
        process::exit(1);
    }
    println!("cargo::rustc-link-lib=dylib=db-5.3");
}
