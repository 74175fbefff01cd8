//! The options of `serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::logging::{Format, Level};
use crate::common::{Common, Writing, size};
use crate::new_store::NewStore;

/// The address that stands for no socket.
pub const NONE: &str = "none";

const EXAMPLES: &str = "\
Speaks the protocol of Redis (RESP2 and RESP3): redis-cli and every Redis client can connect. Without a password it
answers only clients on its own machine. Only --tls-listen encrypts passwords and data. SIGTERM, SIGINT and SHUTDOWN
let running commands end for at most 10 seconds and close the store. A second signal, at least a second after the first,
ends the process at once; acknowledged writes are kept. Log lines go to standard error.

Examples:
  bristlecone serve --dir data
  bristlecone serve --dir /dev/shm/data --listen 127.0.0.1:0 --json
  bristlecone serve --dir data --take-over         replace the running server, for example by a new version

With --json it prints one object when it listens, and one after it closed the store: `closed`, `keys`, `keys_pending`.";

/// Arguments of `serve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Address and port to listen on. Port 0 chooses a free port and prints it.
    /// `none`: no TCP without encryption.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:7379")]
    pub listen: String,
    /// Path of a Unix socket to listen on.
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket, octal.
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "700")]
    pub unix_socket_mode: u32,
    /// Address and port for TLS (versions 1.2 and 1.3). It needs --tls-cert and --tls-key.
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires_all = ["tls_cert", "tls_key"])]
    pub tls_listen: Option<String>,
    /// PEM file of the server's certificate and its intermediate certificates.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the private key.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of certificate authorities. If it is given, clients over TLS must have a certificate that one of these has signed.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_client_ca: Option<PathBuf>,
    /// Address and port for monitoring by HTTP: /metrics in the format of Prometheus, /health. No password is needed.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub metrics_listen: Option<String>,
    /// Address and port, or path of a Unix socket (with a slash), for clients of memcached. If the user `default` needs a password, these
    /// clients log in with a `set` whose data is a user and a password.
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_path)]
    pub memcached: Option<String>,
    /// Table for the items of memcached.
    #[arg(long, value_name = "NAME", default_value = "memcached")]
    pub memcached_table: String,
    /// Maximum size of an item of memcached, with its key and about 60 bytes; at least 1K.
    #[arg(long, value_name = "BYTES", value_parser = size, default_value = "1M")]
    pub memcached_item_size: u64,
    /// Maximum size of the store, at most 4T [default: 1T]; K, M, G and T are powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_bytes: Option<u64>,
    #[command(flatten)]
    pub new: NewStore,
    #[command(flatten)]
    pub writing: Writing,
    /// Maximum bytes of memory for values that were overwritten since a snapshot was opened, or by batches since a scan began [default:
    /// 256M]. At this bound the oldest snapshot or scan fails.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub snapshot_memory: Option<u64>,
    /// Directory for the backups of SAVE and BGSAVE. Each backup gets a subdirectory named by the number that LASTSAVE returns. Without
    /// this option both commands are refused.
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// File whose first line is the password that clients give with AUTH. Without this option, the environment variable
    /// BRISTLECONE_PASSWORD can contain the password itself.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File of users and their permissions, one line `user NAME RULE ...` each. ACL LOAD reads it again, ACL SAVE writes it.
    #[arg(long, value_name = "FILE")]
    pub acl_file: Option<PathBuf>,
    /// TOML file of options, by their names without `--`. The environment variables BRISTLECONE_SERVE_NAME win over the file, and options
    /// of the command line win over both.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Give a command another name; an empty name disables the command. In the file: a table `rename-command`.
    #[arg(long, value_name = "OLD=NEW", value_parser = rename)]
    pub rename_command: Vec<(String, String)>,
    /// Answer clients on other machines although there is no password.
    #[arg(long)]
    pub unprotected: bool,
    /// Take over the listening sockets and the connections of the running server of this store, without a failed request. Connections that
    /// cannot be moved, such as those over TLS, are closed after their last reply. Without a running server, start as usual.
    #[arg(long)]
    pub take_over: bool,
    /// Maximum number of connections. The server raises its limit of open files as far as the system allows, and lowers this number if
    /// that is not enough.
    #[arg(long, value_name = "N", default_value = "10000", alias = "max-connections")]
    pub max_clients: NonZeroUsize,
    /// Threads that run commands [default: half of the processors].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Close connections that were idle for this time. 0: never.
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    pub timeout: u64,
    /// Maximum bytes that the store uses for nodes, keys and values [default: 0, no limit]. A write that needs more first evicts other keys
    /// by --maxmemory-policy.
    #[arg(long, value_name = "BYTES", value_parser = size, default_value = "0", hide_default_value = true)]
    pub maxmemory: u64,
    /// Keys that are evicted at --maxmemory.
    #[arg(long, value_name = "POLICY", value_parser = policies(), default_value = "noeviction")]
    pub maxmemory_policy: String,
    /// Number of keys that are compared for each one that is evicted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), default_value = "5")]
    pub maxmemory_samples: u8,
    /// Maximum bytes of one reply, at least 64K. A longer reply is an error of its command.
    #[arg(long, value_name = "BYTES", value_parser = client_bytes, default_value = "512M")]
    pub max_client_bytes: u64,
    /// Maximum bytes of unfinished commands and unread replies of all connections, at least 1M. Beyond it, connections that hold the most
    /// are closed.
    #[arg(long, value_name = "BYTES", value_parser = clients_bytes, default_value = "2G")]
    pub max_clients_bytes: u64,
    /// Commands that take at least this time are in the slow log. -1: none are.
    #[arg(long, value_name = "MICROSECONDS", default_value = "10000", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub slowlog_slower_than: i64,
    /// Maximum number of entries of the slow log.
    #[arg(long, value_name = "N", default_value = "128")]
    pub slowlog_max_len: usize,
    /// A script that runs longer is stopped, and changes nothing. 0: never.
    #[arg(long, value_name = "MILLISECONDS", default_value = "5000")]
    pub script_time_limit: u64,
    /// Classes of keyspace notifications, as letters of Redis: `KEA` for all but `m` and `n`.
    #[arg(long, value_name = "CLASSES", default_value = "", value_parser = classes)]
    pub notify_keyspace_events: server::notifications::Classes,
    /// Log lines of at least this level.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub log_level: Level,
    /// Form of log lines.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: Format,
    #[command(flatten)]
    pub common: Common,
}

fn policies() -> clap::builder::PossibleValuesParser {
    server::eviction::Policy::ALL.map(server::eviction::Policy::name).into()
}

/// Parses an octal file mode.
fn mode(text: &str) -> std::result::Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give an octal mode, as in 770".to_owned())
}

/// Parses the old and the new name of a command.
fn rename(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').map(|(old, new)| (old.to_owned(), new.to_owned()));
    let pair = pair.ok_or_else(|| "give OLD=NEW".to_owned())?;
    server::settings::Renames::new(std::slice::from_ref(&pair)).map_err(|error| error.to_string())?;
    Ok(pair)
}

/// A number of bytes with a minimum.
fn size_from(text: &str, minimum: u64) -> std::result::Result<u64, String> {
    let bytes = size(text)?;
    if bytes < minimum { Err(format!("at least {minimum} bytes")) } else { Ok(bytes) }
}

fn client_bytes(text: &str) -> std::result::Result<u64, String> {
    size_from(text, 64 << 10)
}

fn clients_bytes(text: &str) -> std::result::Result<u64, String> {
    size_from(text, 1 << 20)
}

fn classes(letters: &str) -> std::result::Result<server::notifications::Classes, String> {
    let classes = server::notifications::Classes::parse(letters);
    classes.ok_or_else(|| "the letters are some of Ag$lshzxeKEtmdn".to_owned())
}

/// Checks the form of an address, or of a path with a slash.
fn address_or_path(text: &str) -> std::result::Result<String, String> {
    if is_path(text) { Ok(text.to_owned()) } else { address(text) }
}

/// True if this is the path of a Unix socket and not an address.
pub fn is_path(text: &str) -> bool {
    text.contains('/')
}

/// Checks the form of an address, host and port. The address itself is tried when the server listens.
pub fn address(text: &str) -> std::result::Result<String, String> {
    if text == NONE {
        return Ok(text.to_owned());
    }
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("give an address and a port, as in 127.0.0.1:7379".to_owned()),
    }
}
