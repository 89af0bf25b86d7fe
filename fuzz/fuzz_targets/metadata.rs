//! See `mrtr_testkit::fuzz::auth::metadata`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("metadata", data));
