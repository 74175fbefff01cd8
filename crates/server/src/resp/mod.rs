//! RESP, the protocol of Redis clients: requests in ([`request`]), replies out ([`reply`]), versions 2 and 3.
//!
//! Why not a protocol crate: a request is only ever an array of bulk strings or one inline line, a small part of what
//! such crates decode, and what a server needs beside it they do not offer: inline lines, limits that hold before
//! memory is taken, and a parse that resumes where the last bytes ended (decoding again from the start makes a large
//! command that drips in quadratic). So this is a small strict parser of our own.

pub mod reply;
pub mod request;

pub use reply::{Protocol, Reply};
pub use request::{ProtocolError, RequestLimits, RequestParser};
