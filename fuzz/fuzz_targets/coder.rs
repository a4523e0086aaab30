//! Any bytes at all, as an image to be coded and brought back, and as strips to be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rrvq_codec::plane::{self, Shape};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[width, channels], samples)) = bytes.split_first_chunk() else {
        return;
    };
    let (width, channels) = (width as usize + 1, channels as usize % 4 + 1);
    let height = samples.len() / (width * channels);
    if height == 0 {
        return;
    }
    let shape = Shape {
        width,
        height,
        channels,
    };
    let samples = &samples[..shape.bytes()];
    let strips = plane::write(shape, samples).expect("writing always works");
    assert_eq!(plane::read(shape, &strips).as_deref(), Ok(samples));
    let _ = plane::read(shape, &[bytes.to_vec()]);
});
