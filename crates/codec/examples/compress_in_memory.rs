//! Compress images in memory with the built-in model, and get the same bytes back.
//!
//! cargo run --release -p rrvq-codec --example compress_in_memory

use rrvq::{SampleOptions, Trained, models};
use rrvq_codec::{Image, compress, decompress};

pub fn main() -> rrvq::Result<()> {
    let model = Trained::open(models::DEFAULT)?;
    let pictures = model.sample(3, SampleOptions::default())?;
    let image = |(i, picture): (usize, &rrvq::picture::Picture)| {
        let [height, width, _] = picture.shape();
        Image::new(
            &format!("sample-{i}"),
            width,
            height,
            picture.pixels().to_vec(),
        )
    };
    let images: Vec<Image> = pictures
        .iter()
        .enumerate()
        .map(image)
        .collect::<rrvq::Result<_>>()?;
    let file = compress(&model, &images)?;
    let raw: usize = images.iter().map(Image::bytes).sum();
    println!("{raw} bytes of pixels in {} bytes", file.len());
    assert_eq!(decompress(&file, None)?, images);
    Ok(())
}
