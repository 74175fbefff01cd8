//! Items: the values of the table of memcached. docs/format.md has their bytes.

use std::borrow::Cow;

/// The version of the header.
const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 18;
/// Bytes that memcached counts for each item beside its key and data: its own header, the end of the key, and the end of the data. An item
/// whose client flags are not 0 has four more.
const OVERHEAD_BYTES: usize = 59;
const FLAGS_BYTES: usize = 4;

const STALE: u8 = 1;
const TOKEN_SENT: u8 = 2;
const BINARY_KEY: u8 = 4;

/// The header of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The flags of the client.
    pub flags: u32,
    /// The unique number of this value.
    pub cas: u64,
    /// Time of the write, in seconds since 1970.
    pub written: u32,
    /// True if the item was marked as stale (`md` with `I`).
    pub is_stale: bool,
    /// True if a client has the task to renew the item (`W`).
    pub is_token_sent: bool,
    /// True if the key was given in base64. Then replies have it in base64, too.
    pub is_binary_key: bool,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its header.
    pub header: Header,
    /// Its data.
    pub data: Cow<'a, [u8]>,
}

/// The bytes are no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored item is damaged: delete this key, or run `bristlecone check` on the store")]
pub struct Damaged;

impl<'a> Item<'a> {
    /// The item in these stored bytes.
    ///
    /// # Errors
    /// The bytes are no item.
    pub fn decode(stored: &'a [u8]) -> Result<Self, Damaged> {
        let (header, data) = stored.split_first_chunk::<HEADER_BYTES>().ok_or(Damaged)?;
        let [VERSION, state, rest @ ..] = header else { return Err(Damaged) };
        let (flags, rest) = rest.split_first_chunk::<4>().ok_or(Damaged)?;
        let (cas, written) = rest.split_first_chunk::<8>().ok_or(Damaged)?;
        let header = Header {
            flags: u32::from_be_bytes(*flags),
            cas: u64::from_be_bytes(*cas),
            written: u32::from_be_bytes(written.try_into().map_err(|_| Damaged)?),
            is_stale: state & STALE != 0,
            is_token_sent: state & TOKEN_SENT != 0,
            is_binary_key: state & BINARY_KEY != 0,
        };
        Ok(Self { header, data: Cow::Borrowed(data) })
    }

    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Header { flags, cas, written, .. } = self.header;
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let state = bit(self.header.is_stale, STALE)
            | bit(self.header.is_token_sent, TOKEN_SENT)
            | bit(self.header.is_binary_key, BINARY_KEY);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.data.len());
        bytes.extend_from_slice(&[VERSION, state]);
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&cas.to_be_bytes());
        bytes.extend_from_slice(&written.to_be_bytes());
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

/// The size of an item as memcached counts it. The limit of items applies to this number.
#[must_use]
pub fn size(key_bytes: usize, flags: u32, data_bytes: usize) -> usize {
    OVERHEAD_BYTES + key_bytes + data_bytes + if flags == 0 { 0 } else { FLAGS_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_the_bytes_of_the_format_and_returns() {
        let header = Header {
            flags: 0x0102_0304,
            cas: 0x0506_0708_090A_0B0C,
            written: 0x0D0E_0F10,
            is_stale: true,
            is_token_sent: false,
            is_binary_key: true,
        };
        let item = Item { header, data: Cow::Borrowed(b"data") };
        let bytes = item.encode();
        assert_eq!(bytes, [&[1, 5][..], &(1..=16).collect::<Vec<u8>>(), b"data"].concat());
        assert_eq!(Item::decode(&bytes), Ok(item));
    }

    #[test]
    fn other_bytes_are_damaged_items() {
        for bytes in [&b""[..], b"a string of the other protocol", &[1; 17]] {
            assert_eq!(Item::decode(bytes), Err(Damaged));
        }
    }
}
