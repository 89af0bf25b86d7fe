//! See `mrtr_testkit::fuzz::dialects::dialect_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("dialect_request", data));
