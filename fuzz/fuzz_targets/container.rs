//! Any bytes at all, read as a file: without a model, so that the container and the predictive coder are what is tried.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rrvq_codec::lossy;
use rrvq_codec::record::take_records;
use rrvq_codec::{Reader, read};
use rrvq::config::Config;

fuzz_target!(|bytes: &[u8]| {
    // The small form: lists and blocks, as far as they can be followed without showing anything.
    for packed in [false, true] {
        let _ = take_records(packed, bytes);
    }
    if let (Ok(reader), Ok(config)) = (lossy::Reader::new(bytes), Config::preset("tiny-swatches")) {
        let _ = reader.check(&config.model);
    }
    let _ = read::check(&mut &bytes[..]);
    let mut input = bytes;
    let Ok(mut reader) = Reader::new(&mut input) else {
        return;
    };
    while let Ok(Some(_)) = reader.segment(None, &|_| {}) {}
});
