//! Train on your own images: implement `Dataset`, hand it to a `Trainer`.
//!
//! cargo run --release -p rrvq --example own_data

use rrvq::{Config, Dataset, Device, Event, SampleOptions, Split, Trainer};

/// Stripes of a random width, made up on the fly. A real data set would read files.
struct Stripes;

impl Dataset for Stripes {
    fn name(&self) -> &str {
        "stripes"
    }

    fn len(&self, split: Split) -> usize {
        match split {
            Split::Train => 512,
            Split::Validation | Split::Test => 64,
        }
    }

    fn shape(&self) -> [usize; 3] {
        [8, 8, 3]
    }

    fn read(&self, _split: Split, index: usize, out: &mut [u8]) {
        let width = 1 + index % 4;
        for (i, pixel) in out.chunks_exact_mut(3).enumerate() {
            let bright = (i % 8 / width).is_multiple_of(2);
            pixel.fill(if bright { 220 } else { 30 });
        }
    }
}

pub fn main() -> rrvq::Result<()> {
    let mut config = Config::preset("tiny-swatches")?;
    config.set("train.steps=60")?;
    let mut trainer = Trainer::new(&config, &Stripes, Device::Cpu)?;
    while let Some(event) = trainer.step()? {
        if let Event::Evaluated(record) = event {
            println!("step {}: {:.3} bits/dim", record.step, record.bits_per_dim);
        }
    }
    let model = trainer.finish()?;
    let samples = model.sample(4, SampleOptions::default())?;
    println!("{} samples of {:?}", samples.len(), samples[0].shape());
    Ok(())
}
