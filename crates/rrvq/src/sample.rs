//! Pictures out of a model: samples of the prior, reconstructions through the posterior.

use crate::cluster::shared;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::likelihood::draw::{Draw, draw};
use crate::likelihood::{self, PixelValues};
use crate::picture::Picture;
use crate::programs::{Inference, Model, Sampler};
use crate::trained::SampleOptions;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Collective, Device, Store};

/// Means of pixels as bytes, rounded to nearest.
pub(crate) fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .map(|v| v.round().clamp(0.0, 255.0) as u8)
        .collect()
}

fn shape(model: &Model) -> [usize; 3] {
    [
        model.config.size,
        model.config.size,
        model.config.image_channels,
    ]
}

/// Bytes of a batch of pictures, whose number settles the noise of pixels that are drawn; `values` are what programs
/// gave for them.
pub(crate) fn bytes_of(
    model: &Model,
    values: &[f32],
    options: SampleOptions,
    batch: u64,
) -> Result<Vec<u8>> {
    if options.shown(&model.config) == PixelValues::Means {
        return Ok(to_bytes(values));
    }
    let kind = likelihood::of(&model.config);
    let Some(bins) = kind.bins(&model.config) else {
        return Err(Error::new(format!(
            "pixels whose model.likelihood is \"{}\" cannot be drawn; show their means",
            kind.name()
        )));
    };
    let side = model.config.size;
    let how = Draw {
        seed: options.seed,
        batch,
        min_p: options.min_p,
    };
    Ok(draw(bins, side, values, how))
}

/// Means of pixels, 0 … 255, of a batch of images as pictures.
pub fn pictures_of(model: &Model, means: &[f32]) -> Result<Vec<Picture>> {
    Picture::batch(shape(model), &to_bytes(means))
}

/// `count` samples of the model; the same seed gives the same pictures, to one process and to each of several.
pub fn samples(
    device: &Device,
    model: &Model,
    store: &mut Store,
    count: usize,
    options: SampleOptions,
    together: Option<&dyn Collective>,
) -> Result<Vec<Picture>> {
    let mut sampler = Sampler::new(
        device,
        model,
        count.clamp(1, 64),
        options.shown(&model.config),
    )?;
    samples_with(&mut sampler, model, store, count, options, together)
}

/// The same with a sampler that is compiled already, for the same pixel values.
pub fn samples_with(
    sampler: &mut Sampler,
    model: &Model,
    store: &mut Store,
    count: usize,
    options: SampleOptions,
    together: Option<&dyn Collective>,
) -> Result<Vec<Picture>> {
    let drawn = shared(together, count.div_ceil(sampler.batch), |batch| {
        interrupt::check()?;
        let noise = counter(options.seed, batch as u64);
        let values = sampler.run(store, noise, options.temperature)?;
        bytes_of(model, &values, options, batch as u64)
    })?;
    first_pictures(model, count, &drawn)
}

/// The first `count` pictures of batches of bytes.
pub(crate) fn first_pictures(
    model: &Model,
    count: usize,
    batches: &[Vec<u8>],
) -> Result<Vec<Picture>> {
    let mut pictures = Picture::batch(shape(model), &batches.concat())?;
    pictures.truncate(count);
    Ok(pictures)
}

/// What is left of images after the posterior's most likely codes.
pub fn reconstructions(
    device: &Device,
    model: &Model,
    store: &mut Store,
    originals: &[Picture],
) -> Result<Vec<Picture>> {
    let batch = originals.len().clamp(1, 64);
    let mut inference = Inference::pictures(device, model, batch)?;
    let mut pictures = Vec::new();
    for group in originals.chunks(batch) {
        interrupt::check()?;
        let images: Vec<u8> = group
            .iter()
            .flat_map(|p| p.pixels().iter().copied())
            .collect();
        let found = inference.run(store, &images, counter(0, 0), 0.0)?;
        pictures.extend(pictures_of(model, &found)?);
    }
    Ok(pictures)
}
