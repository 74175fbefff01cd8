//! The flags of meta commands: `mg KEY FLAG...`. A flag is a letter, and some have a token behind it.
//!
//! The checks and their error texts are those of memcached 1.6.18, because clients match on them.

use bytes::Bytes;

use super::words::{decode_base64, share, signed, unsigned};

/// The letters that are flags of any meta command.
const LETTERS: &[u8] = b"bcfhklqstuvCDFIJLMNOPRT";
/// Maximum length of the flag `O` with its token.
const OPAQUE_BYTES_MAX: usize = 32;

/// The reason why flags are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// The letter is no flag.
    Invalid,
    /// The flag occurs twice.
    Duplicate,
    /// The key is not in base64.
    Key,
    /// The token of `O` is too long.
    Opaque,
    /// The token of `C`, `N`, `R` or `T` is not a number.
    Number,
    /// The token of `F` is not a number.
    ClientFlags,
    /// The token of `D` is not a number.
    Delta,
    /// The token of `J` is not a number.
    Initial,
    /// The token of `M` is not one letter.
    Mode,
}

impl OptionError {
    /// The reply.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Invalid => "CLIENT_ERROR invalid flag",
            Self::Duplicate => "CLIENT_ERROR duplicate flag",
            Self::Key => "CLIENT_ERROR error decoding key",
            Self::Opaque => "CLIENT_ERROR opaque token too long",
            Self::Number => "CLIENT_ERROR bad token in command line format",
            Self::ClientFlags => "CLIENT_ERROR bad command line format",
            Self::Delta => "CLIENT_ERROR invalid numeric delta value",
            Self::Initial => "CLIENT_ERROR invalid numeric initial value",
            Self::Mode => "CLIENT_ERROR incorrect length for M token",
        }
    }
}

/// The flags of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The key as the client wrote it.
    pub written_key: Bytes,
    /// The letters and their tokens, in order.
    pub list: Vec<(u8, Bytes)>,
    /// A bit for each letter of [`LETTERS`].
    seen: u32,
    /// `T`: the expiry.
    pub exptime: Option<i64>,
    /// `N`: make the item if it is absent, with this expiry.
    pub vivify: Option<i64>,
    /// `R`: have the item renewed if it expires within these seconds.
    pub recache: Option<i64>,
    /// `F`: the flags of the client. Larger numbers lose their high bits.
    pub flags: u32,
    /// `C`: the unique number that the item must have.
    pub compare: Option<u64>,
    /// `D`: the number to add or subtract.
    pub delta: Option<u64>,
    /// `J`: the first value of a counter.
    pub initial: u64,
    /// `M`: a letter.
    pub mode: Option<u8>,
}

impl Options {
    /// Parses the flags of a command with this key. Returns the key, decoded if the flag `b` is there.
    ///
    /// # Errors
    /// A letter that is no flag or occurs twice; otherwise the last wrong token.
    pub fn parse<'w>(
        line: &Bytes,
        key: &[u8],
        words: impl Iterator<Item = &'w [u8]>,
    ) -> Result<(Bytes, Self), OptionError> {
        let written_key = share(line, key);
        let (mut key, mut all) = (written_key.clone(), Self { written_key, ..Self::default() });
        for word in words {
            let Some((letter, token)) = word.split_first() else { continue };
            let index = LETTERS.iter().position(|known| known == letter).ok_or(OptionError::Invalid)?;
            if all.seen & 1 << index != 0 {
                return Err(OptionError::Duplicate);
            }
            all.seen |= 1 << index;
            all.list.push((*letter, share(line, token)));
        }
        // The last wrong token is reported. That of `F` is reported if it is the only one.
        let mut wrong = None;
        for (letter, token) in all.list.clone() {
            let set = match letter {
                b'b' => decode_base64(&key).map(|decoded| key = decoded.into()).ok_or(OptionError::Key),
                _ => all.set(letter, &token),
            };
            wrong = match set.err() {
                Some(OptionError::ClientFlags) => wrong.or(Some(OptionError::ClientFlags)),
                error => error.or(wrong),
            };
        }
        wrong.map_or(Ok((key, all)), Err)
    }

    /// Checks the length of `O`.
    ///
    /// # Errors
    /// `Opaque`.
    pub fn check_opaque(&self) -> Result<(), OptionError> {
        let is_long = |(letter, token): &(u8, Bytes)| *letter == b'O' && token.len() >= OPAQUE_BYTES_MAX;
        if self.list.iter().any(is_long) { Err(OptionError::Opaque) } else { Ok(()) }
    }

    /// Takes the token of a flag.
    fn set(&mut self, letter: u8, token: &[u8]) -> Result<(), OptionError> {
        let number = || signed(token).ok_or(OptionError::Number);
        match letter {
            b'T' => self.exptime = Some(number()?),
            b'N' => self.vivify = Some(number()?),
            b'R' => self.recache = Some(number()?),
            b'C' => self.compare = Some(unsigned(token).ok_or(OptionError::Number)?),
            b'F' => self.flags = unsigned(token).ok_or(OptionError::ClientFlags)? as u32,
            b'D' => self.delta = Some(unsigned(token).ok_or(OptionError::Delta)?),
            b'J' => self.initial = unsigned(token).ok_or(OptionError::Initial)?,
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err(OptionError::Mode),
            },
            _ => {}
        }
        Ok(())
    }

    /// True if a flag is there.
    #[must_use]
    pub fn has(&self, letter: u8) -> bool {
        LETTERS.iter().position(|known| *known == letter).is_some_and(|index| self.seen & 1 << index != 0)
    }

    /// True if the client wants no reply to the usual outcome (`q`).
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.has(b'q')
    }
}
