//! See `mrtr_testkit::fuzz::protocol::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("journal", data));
