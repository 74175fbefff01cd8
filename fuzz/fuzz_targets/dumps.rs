//! See `fuzzing::dumps`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::dumps(input));
