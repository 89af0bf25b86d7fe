//! See `mrtr_testkit::fuzz::legacy::legacy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("legacy", data));
