//! See `mrtr_testkit::fuzz::canonical`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("canonical", data));
