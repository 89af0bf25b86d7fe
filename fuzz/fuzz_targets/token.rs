//! See `mrtr_testkit::fuzz::token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("token", data));
