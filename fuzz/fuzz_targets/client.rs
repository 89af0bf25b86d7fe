//! See `mrtr_testkit::fuzz::protocol::client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("client", data));
