//! RESP, the protocol of Redis clients, versions 2 and 3: requests ([`request`]) and replies ([`reply`]).
//!
//! There is a parser of our own instead of a protocol crate, for two reasons. A request is an array of bulk strings or one inline line, a
//! small part of what such crates decode. And the server needs features that they lack: inline lines, limits that apply before memory is
//! allocated, and a parser that resumes at the last byte. Parsing again from the start takes quadratic time for a large command that
//! arrives in small pieces.

pub mod reply;
pub mod request;

pub use reply::{Protocol, Reply};
pub use request::{ProtocolError, RequestLimits, RequestParser};
