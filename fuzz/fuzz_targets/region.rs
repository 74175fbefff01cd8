//! See `fuzzing::region`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::region(input));
