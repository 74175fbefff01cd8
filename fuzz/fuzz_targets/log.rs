//! See `fuzzing::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::log(input));
