//! See `fuzzing::checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::checkpoint(input));
