//! See `mrtr_testkit::fuzz::protocol::message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("message", data));
