//! See `fuzzing::memcached`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::memcached(input));
