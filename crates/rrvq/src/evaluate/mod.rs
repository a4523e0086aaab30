//! Bits per dim, always with hard samples, and how the codes are used, over a whole split.
//!
//! On a GPU the images are put on the device once, and the batches of an evaluation follow each other there; what
//! comes back is a number for each image and layer and a count for each code.

pub(crate) mod record;

pub use record::{EvalRecord, Usage, psnr};

use crate::config::Objective;
use crate::dataset::{Dataset, Split, bank};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::latent;
use crate::model::hierarchy::{dims, nats_per_dim};
use crate::programs::{Inference, Model, Scorer, Scores};
use rrvq_tensor::device::RowBank;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Device, Store};
use std::time::Instant;

/// Seed of the noise of every evaluation, so that two of them differ by their weights alone.
pub const EVALUATION_SEED: u64 = 0x5eed;

/// Batches handed to a device at once; between them, whoever watches is told.
const AT_ONCE: usize = 32;

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Which images.
    pub split: Split,
    /// At most this many images; 0 takes all.
    pub images: usize,
}

/// Evaluates any number of times with one compiled program.
pub struct Evaluator<'a> {
    device: Device,
    model: Model,
    data: &'a dyn Dataset,
    scorer: Scorer,
    /// The first images of splits on the device, and how many.
    banks: Vec<(Split, usize, RowBank)>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator of `model` on images of `data`, `batch` at a time.
    pub fn new(
        device: &Device,
        model: &Model,
        data: &'a dyn Dataset,
        batch: usize,
    ) -> Result<Self> {
        Self::for_objective(device, model, data, batch, Objective::Elbo)
    }

    /// The same for a model trained for an objective, which may need squared errors.
    pub fn for_objective(
        device: &Device,
        model: &Model,
        data: &'a dyn Dataset,
        batch: usize,
        objective: Objective,
    ) -> Result<Self> {
        Ok(Evaluator {
            device: device.clone(),
            model: model.clone(),
            data,
            scorer: match objective {
                Objective::Elbo => Scorer::new(device, model, batch)?,
                Objective::RateDistortion => Scorer::with_errors(device, model, batch)?,
            },
            banks: Vec::new(),
        })
    }

    /// The ELBO and the use of the codes, one hard sample an image.
    pub fn evaluate(&mut self, store: &mut Store, extent: Extent) -> Result<EvalRecord> {
        self.evaluate_watched(store, extent, |_| {})
    }

    /// The same, telling after every few batches how many images are done.
    pub fn evaluate_watched(
        &mut self,
        store: &mut Store,
        extent: Extent,
        watch: impl FnMut(usize),
    ) -> Result<EvalRecord> {
        let start = Instant::now();
        let sum = self.sum(store, extent, watch)?;
        Ok(sum.record(&self.model, extent.split, start))
    }

    /// How often each code was drawn, layer by layer from the bottom; nothing where latents are no codes.
    pub fn tally(
        &mut self,
        store: &mut Store,
        extent: Extent,
        watch: impl FnMut(usize),
    ) -> Result<Vec<Vec<u64>>> {
        Ok(self.sum(store, extent, watch)?.tally)
    }

    fn sum(
        &mut self,
        store: &mut Store,
        extent: Extent,
        mut watch: impl FnMut(usize),
    ) -> Result<Sum> {
        let mut sum = Sum::new(&self.model);
        let count = image_count(self.data, extent)?;
        self.put_on_device(extent.split, count)?;
        let bank = self.banks.iter().find(|bank| bank.0 == extent.split);
        let scorer = &mut self.scorer;
        match bank {
            None => each_batch(self.data, extent, scorer.batch, |index, images| {
                sum.add(&scorer.run(store, images, noise(index))?);
                watch(sum.images);
                Ok(())
            })?,
            Some((_, _, bank)) => {
                let batches: Vec<(u32, usize, [u32; 4])> = (0..count)
                    .step_by(scorer.batch)
                    .enumerate()
                    .map(|(i, first)| {
                        let here = scorer.batch.min(count - first);
                        (first as u32, here, noise(i as u64))
                    })
                    .collect();
                for some in batches.chunks(AT_ONCE) {
                    interrupt::check()?;
                    let found = scorer.replay(store, bank, some)?;
                    found.iter().for_each(|scores| sum.add(scores));
                    watch(sum.images);
                }
            }
        }
        Ok(sum)
    }

    fn put_on_device(&mut self, split: Split, count: usize) -> Result<()> {
        let there = |(has, len, _): &(Split, usize, RowBank)| *has == split && *len >= count;
        if !self.banks.iter().any(there) {
            self.banks.retain(|(has, ..)| *has != split);
            let bank = bank::put_if_useful(&self.device, self.data, split, count)?;
            self.banks.extend(bank.map(|bank| (split, count, bank)));
        }
        Ok(())
    }
}

fn noise(batch: u64) -> [u32; 4] {
    counter(EVALUATION_SEED, batch)
}

/// Scores of all batches so far.
struct Sum {
    images: usize,
    log_likelihood: f64,
    kl: Vec<f64>,
    tally: Vec<Vec<u64>>,
    squared_error: Option<f64>,
}

impl Sum {
    fn new(model: &Model) -> Self {
        let config = &model.config;
        let tally = |layer| Some(vec![0; latent::codes(config, layer)?]);
        Sum {
            images: 0,
            log_likelihood: 0.0,
            kl: vec![0.0; config.layers()],
            tally: (0..config.layers()).filter_map(tally).collect(),
            squared_error: None,
        }
    }

    fn add(&mut self, scores: &Scores) {
        self.images += scores.log_likelihood.len();
        self.log_likelihood += total(&scores.log_likelihood);
        for (sum, kl) in self.kl.iter_mut().zip(&scores.kl) {
            *sum += total(kl);
        }
        if let Some(errors) = &scores.squared_error {
            self.squared_error = Some(self.squared_error.unwrap_or(0.0) + total(errors));
        }
        for (sum, tally) in self.tally.iter_mut().zip(&scores.tally) {
            sum.iter_mut().zip(tally).for_each(|(s, t)| *s += t);
        }
    }

    fn record(&self, model: &Model, split: Split, start: Instant) -> EvalRecord {
        let per_dim = 1.0 / (self.images as f64 * nats_per_dim(&model.config));
        let kl: Vec<f64> = self.kl.iter().map(|v| v * per_dim).collect();
        let reconstruction = -self.log_likelihood * per_dim;
        let of_image = 1.0 / (self.images as f64 * std::f64::consts::LN_2);
        let sides = model.config.sides();
        let position = |(nats, side): (&f64, usize)| nats * of_image / (side * side) as f64;
        EvalRecord {
            step: 0,
            split: split.to_string(),
            images: self.images,
            bits_per_dim: reconstruction + kl.iter().sum::<f64>(),
            reconstruction,
            position_bits: self.kl.iter().zip(sides).map(position).collect(),
            kl,
            squared_error: self.squared_error.map(|sum| {
                let values = self.images * dims(&model.config);
                sum / values as f64
            }),
            usage: self.tally.iter().map(|c| Usage::of(c)).collect(),
            seconds: start.elapsed().as_secs_f64(),
        }
    }
}

/// The importance bound with `samples` samples an image, in bits a dimension: never above the ELBO's in
/// expectation, and falling towards the true value as samples grow.
pub fn importance_bound(
    device: &Device,
    model: &Model,
    store: &mut Store,
    data: &dyn Dataset,
    extent: Extent,
    batch: usize,
    samples: usize,
) -> Result<f64> {
    let mut inference = Inference::weights(device, model, batch)?;
    let (mut sum, mut done) = (0.0f64, 0);
    each_batch(data, extent, batch, |index, images| {
        let mut weights: Vec<Vec<f64>> = Vec::new();
        for sample in 0..samples as u64 {
            let noise = counter(EVALUATION_SEED + 1 + sample, index);
            let log_weight = inference.run(store, images, noise, 1.0)?;
            weights.resize(log_weight.len(), Vec::new());
            weights
                .iter_mut()
                .zip(log_weight)
                .for_each(|(all, w)| all.push(w as f64));
        }
        done += weights.len();
        sum += weights.iter().map(|w| log_mean_exp(w)).sum::<f64>();
        Ok(())
    })?;
    Ok(-sum / (done as f64 * nats_per_dim(&model.config)))
}

fn log_mean_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + (values.iter().map(|v| (v - max).exp()).sum::<f64>() / values.len() as f64).ln()
}

fn total(values: &[f32]) -> f64 {
    values.iter().map(|&v| v as f64).sum()
}

/// Hands out the images of an extent in order, a batch at a time; the last may be smaller.
pub fn each_batch(
    data: &dyn Dataset,
    extent: Extent,
    batch: usize,
    mut work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let len = image_count(data, extent)?;
    let image: usize = data.shape().iter().product();
    let mut buffer = vec![0; batch * image];
    for (index, first) in (0..len).step_by(batch).enumerate() {
        interrupt::check()?;
        let count = batch.min(len - first);
        for (i, out) in buffer[..count * image].chunks_exact_mut(image).enumerate() {
            data.read(extent.split, first + i, out);
        }
        work(index as u64, &buffer[..count * image])?;
    }
    Ok(())
}

/// How many images an extent has; none is a mistake.
fn image_count(data: &dyn Dataset, extent: Extent) -> Result<usize> {
    let len = data.len(extent.split);
    if len == 0 {
        let (name, split) = (data.name(), extent.split);
        let advice = match split {
            Split::Validation => "train with data.holdout, or choose another split",
            Split::Train | Split::Test => "choose another split",
        };
        return Err(Error::new(format!(
            "data set {name} has no {split} images to evaluate; {advice}"
        )));
    }
    Ok(match extent.images {
        0 => len,
        most => len.min(most),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::dataset::Swatches;

    #[test]
    fn images_on_the_device_are_scored_as_images_handed_over() {
        let config = Config::preset("tiny-swatches").unwrap();
        let (device, data) = (Device::Cpu, Swatches::for_config(&config));
        let model = Model::new(&config.model);
        let mut store = Store::with("theta", model.layout.initial(1));
        let mut evaluator = Evaluator::new(&device, &model, &data, 24).unwrap();
        let extent = Extent {
            split: Split::Test,
            images: 60,
        };
        let handed = evaluator.evaluate(&mut store, extent).unwrap();
        let bank = bank::put(&device, &data, Split::Test, 64).unwrap();
        evaluator.banks = vec![(Split::Test, 64, bank)];
        let mut told = Vec::new();
        let mut there = evaluator
            .evaluate_watched(&mut store, extent, |n| told.push(n))
            .unwrap();
        assert_eq!(told, [60]);
        there.seconds = handed.seconds;
        assert_eq!(there, handed);
        // A KL of a bit a dimension is 192 bits an image of 8 × 8 pixels, here on 16 and 4 positions.
        for (layer, positions) in [(0, 16.0), (1, 4.0)] {
            let bits = handed.kl[layer] * 192.0 / positions;
            assert!((handed.position_bits[layer] - bits).abs() < 1e-9 * bits.abs());
        }
        let drawn: usize = handed.usage.iter().map(|u| u.used).sum();
        assert!(handed.images == 60 && drawn > 0);
    }

    #[test]
    fn every_position_of_every_image_is_counted_once() {
        let config = Config::preset("tiny-swatches").unwrap();
        let model = Model::new(&config.model);
        let mut store = Store::with("theta", model.layout.initial(1));
        let mut scorer = Scorer::new(&Device::Cpu, &model, 8).unwrap();
        let images = vec![77; 5 * model.image_len()];
        let scores = scorer.run(&mut store, &images, noise(0)).unwrap();
        let counted: Vec<u64> = scores.tally.iter().map(|t| t.iter().sum()).collect();
        assert_eq!(counted, [5 * 16, 5 * 4]);
        assert_eq!(scores.kl.len(), 2);
        assert!(scores.kl.iter().all(|kl| kl.len() == 5));
    }
}
