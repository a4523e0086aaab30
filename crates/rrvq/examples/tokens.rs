//! Tokens for another model: the codes of every layer as integer maps, in a file that NumPy, PyTorch and JAX read.
//!
//! cargo run --release -p rrvq --example tokens

use rrvq::{Codes, SampleOptions, Trained};

pub fn main() -> rrvq::Result<()> {
    let model = Trained::open("tiles-2")?; // or a run folder, or a packed file
    let images = model.sample(8, SampleOptions::default())?;
    let codes = model.encode(&images)?;
    for map in &codes.layers {
        println!(
            "layer {}: {} images of {}×{} tokens below {}",
            map.layer + 1,
            codes.images,
            map.side,
            map.side,
            map.codes
        );
    }
    let file = std::env::temp_dir().join(format!("tokens-{}.safetensors", std::process::id()));
    codes.save(&file)?;
    assert_eq!(Codes::load(&file)?, codes);
    std::fs::remove_file(&file).map_err(|e| rrvq::Error::io("remove", &file, e))?;
    Ok(())
}
