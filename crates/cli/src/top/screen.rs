//! The terminal of `top`. It shows the alternate screen, hides the cursor and does not echo keys. Dropping [`Screen`] restores
//! the terminal.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Size if the terminal does not tell its own: columns, rows.
const SIZE: (u16, u16) = (80, 24);
/// Shows the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor and the main screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The byte of Ctrl-C, which arrives as a key here.
const CTRL_C: u8 = 3;

/// The terminal.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal of standard input and output.
    ///
    /// # Errors
    /// Standard input is not a terminal, or a write to standard output fails.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        // A read does not wait for more keys.
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub fn size() -> (usize, usize) {
        let (columns, rows) = tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let known = if columns > 0 && rows > 0 { (columns, rows) } else { SIZE };
        (known.0.into(), known.1.into())
    }

    /// Replaces the contents of the screen.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        // Each line is overwritten and its rest erased. So nothing flickers.
        let lines: Vec<_> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")))
    }

    /// Waits for at most this time. True if the user ends the program: `q`, Ctrl-C, or the end of the input.
    pub fn wants_end(&self, time: Duration) -> io::Result<bool> {
        let stdin = io::stdin();
        let until = std::time::Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
                // A change of the window's size, for example.
                Err(rustix::io::Errno::INTR) => return Ok(false),
                ready => {
                    if ready? == 0 {
                        return Ok(false);
                    }
                }
            }
            let mut keys = [0; 64];
            let count = stdin.lock().read(&mut keys)?;
            if count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | &CTRL_C)) {
                return Ok(true);
            }
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
