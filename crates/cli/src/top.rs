//! `top`: shows what a running server does.

mod frame;
mod resp;
mod sample;
mod screen;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use terminal::Output;

use crate::failure::{Failure, Result, io};
use crate::serve::{first_line, is_path, layers, server_address};
use frame::Frame;
use resp::{Client, Reply};
use sample::Sample;
use screen::Screen;

const HELP: &str = "\
Rates are of the time since the previous sample. The user needs the permissions for INFO, CLIENT LIST and SLOWLOG; without
the last two, `top` shows everything else. `q` quits.

Examples:
  bristlecone top                                     the server on 127.0.0.1:7379
  bristlecone top 10.0.0.7:7379 --user ops --password-file ops.pass
  bristlecone top --once                              one frame, for example for a report
  bristlecone top --json --interval 10 >> load.jsonl  one JSON object each 10 seconds";

/// Columns and rows of a frame that is not shown on a terminal.
const PRINTED: (usize, usize) = (120, 40);

/// Arguments of `top`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// Address and port of the server.
    #[arg(value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:7379")]
    address: String,
    /// Path of the server's Unix socket, instead of an address.
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    unix_socket: Option<PathBuf>,
    /// Name of the user.
    #[arg(long, value_name = "NAME", default_value = "default")]
    user: String,
    /// File whose first line is the password. Without this option, the environment variable BRISTLECONE_PASSWORD can contain the password
    /// itself.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Seconds between two samples.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
    /// Print one frame after the first interval, and end.
    #[arg(long)]
    once: bool,
    /// Print JSON, one object in a line for each interval. An error is an object `{"error":"..."}` on standard error.
    #[arg(long)]
    json: bool,
}

/// Checks the form of the server's address. Any wrong word after `top` arrives here.
fn address(text: &str) -> std::result::Result<String, String> {
    match is_path(text) {
        true => Err(format!("for a Unix socket write --unix-socket {text}")),
        false => server_address(text),
    }
}

impl Arguments {
    /// The name of the server in messages.
    fn server(&self) -> String {
        self.unix_socket.as_ref().map_or_else(|| self.address.clone(), |path| path.display().to_string())
    }
}

/// A connection that is made when it is needed.
struct Source<'a> {
    arguments: &'a Arguments,
    password: Option<server::Password>,
    client: Option<Client>,
}

impl Source<'_> {
    fn connect(&self) -> io::Result<Client> {
        let mut client = match &self.arguments.unix_socket {
            Some(path) => Client::over_unix(path)?,
            None => Client::over_tcp(&self.arguments.address)?,
        };
        let refused = |reply: &Reply| match reply {
            Reply::Error(text) => Err(io::Error::new(io::ErrorKind::PermissionDenied, text.clone())),
            _ => Ok(()),
        };
        if let Some(password) = &self.password {
            let command: &[&[u8]] = &[b"AUTH", self.arguments.user.as_bytes(), password.bytes()];
            client.call(&[command])?.iter().try_for_each(refused)?;
        }
        // CLIENT LIST shows this name. The reply is ignored: a server need not know the command.
        client.call(&[&[b"CLIENT", b"SETNAME", b"bristlecone-top"]])?;
        Ok(client)
    }

    fn sample(&mut self) -> io::Result<Sample> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        let replies = client.call(&sample::COMMANDS)?;
        self.client = Some(client);
        Sample::new(&replies).map_err(io::Error::other)
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let is_live = !arguments.once && !arguments.json;
    if is_live && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Usage("there is no terminal: use --once or --json".to_owned()));
    }
    let password = match &arguments.password_file {
        Some(file) => Some(first_line(file)?),
        None => layers::password(),
    };
    let mut source = Source { arguments, password, client: None };
    match is_live {
        true => live(&mut source),
        false => print(&mut source),
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Prints frames or JSON.
fn print(source: &mut Source<'_>) -> Result<ExitCode> {
    let arguments = source.arguments;
    let (address, interval) = (arguments.server(), Duration::from_secs(arguments.interval));
    let failed = || io(format!("cannot ask the server {address}"));
    let mut before = (Instant::now(), source.sample().map_err(failed())?);
    loop {
        std::thread::sleep(interval.saturating_sub(before.0.elapsed()));
        let now = (Instant::now(), source.sample().map_err(failed())?);
        let frame = Frame {
            address: &address,
            before: &before.1,
            now: &now.1,
            seconds: (now.0 - before.0).as_secs_f64(),
            unix_seconds: unix_seconds(),
        };
        let mut output = Output::new();
        let (columns, rows) = PRINTED;
        let printed = match arguments.json {
            true => output.json(&frame.json()),
            false => frame.lines(columns, rows).iter().try_for_each(|line| output.line(line)),
        };
        // Each frame is written at once, for a program that reads it.
        match printed.and_then(|()| output.end()) {
            Err(error) if error.is_closed_pipe() => return Ok(ExitCode::SUCCESS),
            result => result?,
        }
        if arguments.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
    }
}

/// Shows frames until the user ends it. Without a server it tries again.
fn live(source: &mut Source<'_>) -> Result<ExitCode> {
    let arguments = source.arguments;
    let (address, interval) = (arguments.server(), Duration::from_secs(arguments.interval));
    // A wrong address or password is an error, not a frame.
    let mut before =
        (Instant::now(), source.sample().map_err(io(format!("cannot ask the server {address}")))?);
    let screen = Screen::enter().map_err(io("cannot use the terminal"))?;
    loop {
        let now = (Instant::now(), source.sample());
        let (columns, rows) = Screen::size();
        let lines = match &now.1 {
            Ok(sample) => Frame {
                address: &address,
                before: &before.1,
                now: sample,
                seconds: (now.0 - before.0).as_secs_f64(),
                unix_seconds: unix_seconds(),
            }
            .lines(columns, rows),
            Err(error) => {
                let text = format!("cannot ask the server {address}: {error}. Trying again; q quits.");
                vec![crate::text::escaped(text.as_bytes()).chars().take(columns).collect()]
            }
        };
        screen.show(&lines).map_err(io("cannot write to the terminal"))?;
        if screen
            .wants_end(interval.saturating_sub(now.0.elapsed()))
            .map_err(io("cannot read the terminal"))?
        {
            return Ok(ExitCode::SUCCESS);
        }
        if let (at, Ok(sample)) = now {
            before = (at, sample);
        }
    }
}
