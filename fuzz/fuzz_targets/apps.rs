//! See `mrtr_testkit::fuzz::apps::apps`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("apps", data));
