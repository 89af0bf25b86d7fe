//! See `mrtr_testkit::fuzz::auth::access_token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("access_token", data));
