//! Any bytes at all, read as a file: without a model, so that the container and the predictive coder are what is tried.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rrvq::codec::{Reader, read};

fuzz_target!(|bytes: &[u8]| {
    let _ = read::check(&mut &bytes[..]);
    let mut input = bytes;
    let Ok(mut reader) = Reader::new(&mut input) else {
        return;
    };
    while let Ok(Some(_)) = reader.segment(None, &|_| {}) {}
});
