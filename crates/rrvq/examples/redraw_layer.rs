//! Redraw one layer: keep the codes above it, draw its own anew, take the most likely codes below it (the paper's
//! Figure 3).
//!
//! cargo run --release -p rrvq --example redraw_layer

use rrvq::{SampleOptions, Trained};

pub fn main() -> rrvq::Result<()> {
    let model = Trained::open("tiles-2")?;
    let images = model.sample(4, SampleOptions::default())?;
    let codes = model.encode(&images)?;
    let layers = codes.layers.len();
    for layer in (0..layers).rev() {
        let above = codes.top(layers - 1 - layer);
        let drawn = model.complete(
            &above,
            SampleOptions {
                seed: 7,
                ..SampleOptions::default()
            },
        )?;
        let pictures = model.decode(&drawn.top(layers - layer))?;
        let changed = pictures.iter().zip(&images).filter(|(new, old)| new != old);
        println!(
            "layer {}: {} of 4 images change",
            layer + 1,
            changed.count()
        );
    }
    Ok(())
}
