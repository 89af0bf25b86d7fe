//! See `mrtr_testkit::fuzz::protocol::form`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("form", data));
