//! See `mrtr_testkit::fuzz::auth::challenge`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("challenge", data));
