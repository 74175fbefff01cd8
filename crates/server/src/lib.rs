//! Network protocols in front of a Store.
