//! See `mrtr_testkit::fuzz::protocol::header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("header", data));
