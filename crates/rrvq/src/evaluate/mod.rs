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
use rrvq_tensor::{Device, Group, Store};
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
    /// Those who evaluate together.
    group: Option<Group>,
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
        Self::for_objective(device, model, data, batch, Objective::Elbo, None)
    }

    /// The same for a model trained for an objective, which may need squared errors. In a group each process evaluates a part
    /// of the batches, and all of them get the whole result.
    pub fn for_objective(
        device: &Device,
        model: &Model,
        data: &'a dyn Dataset,
        batch: usize,
        objective: Objective,
        group: Option<&Group>,
    ) -> Result<Self> {
        Ok(Evaluator {
            device: device.clone(),
            model: model.clone(),
            data,
            scorer: match (group, objective) {
                (Some(group), _) => {
                    let errors = objective == Objective::RateDistortion;
                    Scorer::of_parts(device, model, batch / group.shards(), errors)?
                }
                (None, Objective::Elbo) => Scorer::new(device, model, batch)?,
                (None, Objective::RateDistortion) => Scorer::with_errors(device, model, batch)?,
            },
            group: group.cloned(),
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
        let count = image_count(self.data, extent)?;
        self.put_on_device(extent.split, count)?;
        let bank = self.banks.iter().find(|bank| bank.0 == extent.split);
        let (scorer, group) = (&mut self.scorer, self.group.as_ref());
        let (rank, world) = group.map_or((0, 1), |group| (group.rank(), group.world()));
        let own = |index: usize| index % world == rank;
        let mut sums: Vec<Sum> = Vec::new();
        let mut done = 0;
        let mut take = |scores: &Scores| {
            done += scores.log_likelihood.len();
            sums.push(Sum::of(scores));
            done
        };
        match bank {
            None => each_batch_of(self.data, extent, scorer.batch, own, |index, images| {
                let scores = scorer.run(store, images, &noise(index, group))?;
                watch(take(&scores));
                Ok(())
            })?,
            Some((_, _, bank)) => {
                let batches: Vec<(u32, usize, Vec<u32>)> = (0..count)
                    .step_by(scorer.batch)
                    .enumerate()
                    .filter(|(i, _)| own(*i))
                    .map(|(i, first)| {
                        let here = scorer.batch.min(count - first);
                        (first as u32, here, noise(i as u64, group))
                    })
                    .collect();
                for some in batches.chunks(AT_ONCE) {
                    interrupt::check()?;
                    let found = scorer.replay(store, bank, some)?;
                    if let Some(done) = found.iter().map(&mut take).last() {
                        watch(done);
                    }
                }
            }
        }
        let sums = match group {
            Some(group) => in_order(group, &Sum::new(&self.model), &sums)?,
            None => sums,
        };
        let mut sum = Sum::new(&self.model);
        sums.iter().for_each(|part| sum.add(part));
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

/// The noise of a batch, or of a shard of one: the same for its images in any number of shards.
fn noise(index: u64, group: Option<&Group>) -> Vec<u32> {
    let shards = group.map_or(1, |group| group.shards() as u64);
    let shard = group.map(|_| (index % shards) as u32);
    let batch = counter(EVALUATION_SEED, index / shards);
    batch.into_iter().chain(shard).collect()
}

/// What all processes found, batch by batch, where each has had every so many-th one.
fn in_order(group: &Group, empty: &Sum, own: &[Sum]) -> Result<Vec<Sum>> {
    let bytes: Vec<u8> = own.iter().flat_map(Sum::to_bytes).collect();
    let each = empty.to_bytes().len();
    let all = group.gather(&bytes)?;
    let mut of_rank: Vec<_> = all.iter().map(|bytes| bytes.chunks_exact(each)).collect();
    let mut sums = Vec::new();
    for rank in (0..of_rank.len()).cycle() {
        match of_rank[rank].next() {
            Some(bytes) => sums.push(empty.like(bytes)),
            None => break,
        }
    }
    Ok(sums)
}

/// Scores of all batches so far.
#[derive(Default)]
struct Sum {
    images: usize,
    log_likelihood: f64,
    kl: Vec<f64>,
    tally: Vec<Vec<u64>>,
    embedding_squares: Vec<f64>,
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
            embedding_squares: match latent::of(config).has_embeddings() {
                true => vec![0.0; config.layers()],
                false => Vec::new(),
            },
            squared_error: None,
        }
    }

    fn of(scores: &Scores) -> Self {
        Sum {
            images: scores.log_likelihood.len(),
            log_likelihood: total(&scores.log_likelihood),
            kl: scores.kl.iter().map(|kl| total(kl)).collect(),
            squared_error: scores.squared_error.as_ref().map(|errors| total(errors)),
            tally: scores.tally.clone(),
            embedding_squares: scores.embedding_squares.iter().map(|v| total(v)).collect(),
        }
    }

    fn add(&mut self, part: &Sum) {
        self.images += part.images;
        self.log_likelihood += part.log_likelihood;
        let sums = self.kl.iter_mut().chain(&mut self.embedding_squares);
        for (sum, more) in sums.zip(part.kl.iter().chain(&part.embedding_squares)) {
            *sum += more;
        }
        if let Some(errors) = part.squared_error {
            self.squared_error = Some(self.squared_error.unwrap_or(0.0) + errors);
        }
        for (sum, tally) in self.tally.iter_mut().zip(&part.tally) {
            sum.iter_mut().zip(tally).for_each(|(s, t)| *s += t);
        }
    }

    /// Eight bytes for each number, in the order of the fields.
    fn to_bytes(&self) -> Vec<u8> {
        let floats = [&self.log_likelihood].into_iter().chain(&self.kl);
        let errors = self.squared_error.unwrap_or(0.0);
        let floats = floats.chain([&errors]).chain(&self.embedding_squares);
        let has_errors = self.squared_error.is_some() as u64;
        let words = [self.images as u64, has_errors].into_iter();
        let words = words.chain(floats.map(|v| v.to_bits()));
        let words = words.chain(self.tally.iter().flatten().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// The same back, with as many layers and codes as this one.
    fn like(&self, bytes: &[u8]) -> Sum {
        let word = |b: &[u8]| b.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
        let mut words = bytes.chunks_exact(8).map(word);
        let mut next = || words.next().unwrap_or(0);
        let (images, has_errors) = (next() as usize, next() == 1);
        Sum {
            images,
            log_likelihood: f64::from_bits(next()),
            kl: self.kl.iter().map(|_| f64::from_bits(next())).collect(),
            squared_error: Some(f64::from_bits(next())).filter(|_| has_errors),
            embedding_squares: self
                .embedding_squares
                .iter()
                .map(|_| f64::from_bits(next()))
                .collect(),
            tally: self
                .tally
                .iter()
                .map(|codes| codes.iter().map(|_| next()).collect())
                .collect(),
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
            embedding_size: {
                let squares = self.embedding_squares.iter();
                squares
                    .map(|sum| (sum / self.images as f64).sqrt())
                    .collect()
            },
            seconds: start.elapsed().as_secs_f64(),
        }
    }
}

/// The importance bound with `samples` samples an image, in bits a dimension: never above the ELBO's in
/// expectation, and falling towards the true value as samples grow. The processes of a group share the batches.
pub fn importance_bound(
    device: &Device,
    model: &Model,
    store: &mut Store,
    data: &dyn Dataset,
    extent: Extent,
    (batch, group): (usize, Option<&Group>),
    samples: usize,
) -> Result<f64> {
    let mut inference = Inference::weights(device, model, batch)?;
    let (rank, world) = group.map_or((0, 1), |group| (group.rank(), group.world()));
    let own = |index: usize| index % world == rank;
    let mut sums: Vec<Sum> = Vec::new();
    each_batch_of(data, extent, batch, own, |index, images| {
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
        sums.push(Sum {
            images: weights.len(),
            log_likelihood: weights.iter().map(|w| log_mean_exp(w)).sum::<f64>(),
            ..Sum::default()
        });
        Ok(())
    })?;
    let sums = match group {
        Some(group) => in_order(group, &Sum::default(), &sums)?,
        None => sums,
    };
    let mut sum = Sum::default();
    sums.iter().for_each(|part| sum.add(part));
    Ok(-sum.log_likelihood / (sum.images as f64 * nats_per_dim(&model.config)))
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
    work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    each_batch_of(data, extent, batch, |_| true, work)
}

/// The same for the batches that are `wanted`.
fn each_batch_of(
    data: &dyn Dataset,
    extent: Extent,
    batch: usize,
    wanted: impl Fn(usize) -> bool,
    mut work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let len = image_count(data, extent)?;
    let image: usize = data.shape().iter().product();
    let mut buffer = vec![0; batch * image];
    let batches = (0..len).step_by(batch).enumerate();
    for (index, first) in batches.filter(|(index, _)| wanted(*index)) {
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
        let scores = scorer.run(&mut store, &images, &noise(0, None)).unwrap();
        let counted: Vec<u64> = scores.tally.iter().map(|t| t.iter().sum()).collect();
        assert_eq!(counted, [5 * 16, 5 * 4]);
        assert_eq!(scores.kl.len(), 2);
        assert!(scores.kl.iter().all(|kl| kl.len() == 5));
    }
}
