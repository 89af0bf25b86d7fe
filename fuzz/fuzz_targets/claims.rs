//! See `mrtr_testkit::fuzz::claims`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("claims", data));
