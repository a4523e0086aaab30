//! Bits per dim, always with hard samples, and how the codes are used, over a whole split.

use crate::data::{Dataset, Split};
use crate::error::{Error, Result};
use crate::model::hierarchy::nats_per_dim;
use crate::programs::{Inference, Inferred, Model};
use crate::train::log::{EvalRecord, Usage};
use rrvq_tensor::Store;
use rrvq_tensor::device::cpu::counter;
use std::time::Instant;

/// Seed of the noise of every evaluation, so that two of them differ by their weights alone.
pub const EVALUATION_SEED: u64 = 0x5eed;

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub split: Split,
    /// At most this many images; 0 takes all.
    pub images: usize,
}

/// Evaluates again and again with one compiled program.
pub struct Evaluator {
    model: Model,
    inference: Inference,
}

impl Evaluator {
    pub fn new(model: &Model, batch: usize) -> Result<Self> {
        Ok(Evaluator {
            model: model.clone(),
            inference: Inference::new(model, batch, false)?,
        })
    }

    /// The ELBO and the use of the codes, one hard sample an image.
    pub fn evaluate(
        &mut self,
        store: &mut Store,
        data: &dyn Dataset,
        extent: Extent,
    ) -> Result<EvalRecord> {
        self.evaluate_watched(store, data, extent, |_| {})
    }

    /// The same, telling after every batch how many images are done.
    pub fn evaluate_watched(
        &mut self,
        store: &mut Store,
        data: &dyn Dataset,
        extent: Extent,
        mut watch: impl FnMut(usize),
    ) -> Result<EvalRecord> {
        let start = Instant::now();
        let config = &self.model.config;
        let layers = config.layers();
        let (mut log_likelihood, mut kl) = (0.0f64, vec![0.0f64; layers]);
        let mut counts: Vec<Vec<u64>> = (0..layers).map(|l| vec![0; config.codes.at(l)]).collect();
        let mut done = 0;
        let inference = &mut self.inference;
        each_batch(data, extent, inference.batch, |index, images| {
            let noise = counter(EVALUATION_SEED, index);
            let found = inference.run(store, images, self.model.image_len(), noise, 1.0)?;
            log_likelihood += total(&found.log_likelihood);
            for layer in 0..layers {
                kl[layer] += total(&found.kl[layer]);
                found.codes[layer]
                    .iter()
                    .for_each(|&code| counts[layer][code as usize] += 1);
            }
            done += found.log_likelihood.len();
            watch(done);
            Ok(())
        })?;
        let per_dim = 1.0 / (done as f64 * nats_per_dim(config));
        let kl: Vec<f64> = kl.into_iter().map(|v| v * per_dim).collect();
        let reconstruction = -log_likelihood * per_dim;
        Ok(EvalRecord {
            step: 0,
            split: extent.split.to_string(),
            images: done,
            bits_per_dim: reconstruction + kl.iter().sum::<f64>(),
            reconstruction,
            kl,
            usage: counts.iter().map(|c| Usage::of(c)).collect(),
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// The importance bound with `samples` samples an image, in bits a dimension: never above the ELBO's in
/// expectation, and falling towards the true value as samples grow.
pub fn importance_bound(
    model: &Model,
    store: &mut Store,
    data: &dyn Dataset,
    extent: Extent,
    batch: usize,
    samples: usize,
) -> Result<f64> {
    let mut inference = Inference::new(model, batch, true)?;
    let (mut sum, mut done) = (0.0f64, 0);
    each_batch(data, extent, batch, |index, images| {
        let mut weights: Vec<Vec<f64>> = Vec::new();
        for sample in 0..samples as u64 {
            let noise = counter(EVALUATION_SEED + 1 + sample, index);
            let found: Inferred = inference.run(store, images, model.image_len(), noise, 1.0)?;
            let log_weight = found.log_weight.unwrap_or_default();
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
    let len = data.len(extent.split);
    let len = if extent.images == 0 {
        len
    } else {
        len.min(extent.images)
    };
    if len == 0 {
        let (name, split) = (data.name(), extent.split);
        return Err(Error::new(format!(
            "data set {name} has no {split} images to evaluate; choose another split"
        )));
    }
    let image: usize = data.shape().iter().product();
    let mut buffer = vec![0; batch * image];
    for (index, first) in (0..len).step_by(batch).enumerate() {
        let count = batch.min(len - first);
        for (i, out) in buffer[..count * image].chunks_exact_mut(image).enumerate() {
            data.read(extent.split, first + i, out);
        }
        work(index as u64, &buffer[..count * image])?;
    }
    Ok(())
}
