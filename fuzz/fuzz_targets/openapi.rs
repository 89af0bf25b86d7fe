//! See `mrtr_testkit::fuzz::openapi::openapi`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("openapi", data));
