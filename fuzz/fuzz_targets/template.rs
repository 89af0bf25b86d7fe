//! See `mrtr_testkit::fuzz::protocol::template`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mrtr_testkit::fuzz::run("template", data));
