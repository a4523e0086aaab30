#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rrvq_fuzz::container(bytes));
