//! The mixture of [`super::mixture`], following the errors of pixels that come before: left, above, and around these.
//!
//! Given its latents, a hierarchy takes the pixels of an image for independent. They are not: where the decoder was too
//! dark to the left and above, it is most likely too dark here as well. With e = x − E\[x\] the decoder's error at a
//! pixel, given the earlier channels of that pixel and nothing of other pixels,
//!
//! - the means of all components move by Σ_k a_k e_k over the first `model.neighbours` of twelve neighbours k;
//! - the scales of all components grow by 1 + softplus(b) Σ_k q_k over the nearest four, where q = r / (1 + r / 8) and
//!   r = |e| / E\[s\]: a decoder that was far off nearby is less sure here.
//!
//! The decoder gives a_k, within ±1, and b for each pixel and channel. So means can follow the neighbours' values alone:
//! the models trained so far leave the picture to the errors, the decoder's own means turn grey, and latents no longer carry
//! colours. `model.causal_gain` above 0 keeps Σ |a_k| below it; `train.decoder_share` trains the mixture without its
//! neighbours beside it. What either does for the colours is in `docs/experiments/causal.md`.
//!
//! Errors are of the decoder alone, before any of this, so that
//! all pixels of a known image are computed at once, and a lossless codec goes through them one by one with a few products
//! each. Bits per dim are then what files take, without a correction fitted after training.

use super::mixture::{self, BIN, Mixture};
use super::{Bins, Likelihood, PixelValues, Pixels};
use crate::config::ModelConfig;
use crate::nn::Builder;
use rrvq_tensor::Var;

/// Neighbours whose errors may move the means, the nearest first: rows up, columns to the left.
pub const PLACES: [(usize, isize); 12] = [
    (0, 1),
    (1, 0),
    (1, 1),
    (1, -1),
    (0, 2),
    (2, 0),
    (1, 2),
    (1, -2),
    (2, 1),
    (2, -1),
    (2, 2),
    (2, -2),
];
/// The first so many of them are near: the sizes of their errors widen the scales.
pub const NEAR: usize = 4;
/// An error's size in scales counts at most this much.
pub const LARGEST: f32 = 8.0;
/// Numbers for each pixel and channel: one for each neighbour, and one for the scale; none where no neighbour is followed.
pub fn slots(neighbours: usize) -> usize {
    match neighbours {
        0 => 0,
        some => some + 1,
    }
}

/// An expectation beyond this stands for it: no byte lies outside.
pub const BORDER: f32 = 1.0 - BIN / 2.0;
/// Added to the raw b: scales start to grow by a twentieth for each scale that the neighbours were off.
const FIRST_GROWTH: f32 = -2.97;

/// The decoder's output read as a mixture and what it makes of its neighbours' errors.
pub struct Causal<'g> {
    mixture: Mixture<'g>,
    /// Bound of Σ |a_k|; 0 for none.
    gain: f32,
    /// Neighbours that are followed.
    places: &'static [(usize, isize)],
}

impl<'g> Causal<'g> {
    /// a_k of each neighbour for every channel, [n · h · w, channels] each.
    fn pulls(&self) -> Vec<Var<'g>> {
        let channels = self.mixture.shape[3];
        let count = self.places.len();
        let all = self.own_numbers(0, count);
        let raw: Vec<Var<'g>> = (0..count)
            .map(|k| all.slice(1, k * channels, channels))
            .collect();
        if self.gain == 0.0 {
            return raw.into_iter().map(Var::tanh).collect();
        }
        let one = self.mixture.raw.graph().full(1.0, &raw[0].shape());
        let size = raw.iter().fold(one, |sum, t| sum + t.abs());
        let share = size.recip() * self.gain;
        raw.into_iter().map(|t| t * share).collect()
    }

    /// softplus(b) of every channel, [n · h · w, channels].
    fn growth(&self) -> Var<'g> {
        (self.own_numbers(self.places.len(), 1) + FIRST_GROWTH).softplus()
    }

    /// Some of the numbers behind those of the mixture, all channels of each.
    fn own_numbers(&self, first: usize, count: usize) -> Var<'g> {
        let channels = self.mixture.shape[3];
        let start = mixture::slots(channels) * self.mixture.components;
        let raw = self.mixture.raw;
        raw.slice(1, start + first * channels, count * channels)
    }
}

/// A map as seen from each pixel at the neighbour that lies so many rows up and columns to the left; zero outside.
fn at_neighbour<'g>(map: Var<'g>, (up, left): (usize, isize)) -> Var<'g> {
    let (h, w) = (map.dim(1), map.dim(2));
    let map = match up {
        0 => map,
        // A map of one row has nothing above.
        _ => map.pad(1, up, 0).slice(1, 0, h),
    };
    let by = left.unsigned_abs();
    match left {
        1.. => map.pad(2, by, 0).slice(2, 0, w),
        0 => map,
        _ => map.pad(2, 0, by).slice(2, by, w),
    }
}

/// `model.likelihood = "mixture-causal"`.
pub struct Kind;

impl Likelihood for Kind {
    fn name(&self) -> &'static str {
        "mixture-causal"
    }

    fn about(&self) -> &'static str {
        "the mixture; its means follow the errors of the pixels before, its scales their size"
    }

    /// Its means alone are no picture.
    fn shows(&self) -> PixelValues {
        PixelValues::Drawn
    }

    fn caution(&self) -> Option<&'static str> {
        Some(
            "what is shown are the decoder's means, and this likelihood leaves most of a picture to the pixels before: they may be grey",
        )
    }

    fn channels(&self, config: &ModelConfig) -> usize {
        mixture::Kind.channels(config) + config.image_channels * slots(config.neighbours)
    }

    fn pixels<'g>(&self, builder: &Builder<'g>, raw: Var<'g>) -> Box<dyn Pixels<'g> + 'g> {
        Box::new(Causal {
            mixture: Mixture::draw(builder, raw),
            gain: builder.config.causal_gain as f32,
            places: &PLACES[..builder.config.neighbours],
        })
    }

    fn bins(&self, config: &ModelConfig) -> Option<Bins> {
        let bins = mixture::Kind.bins(config)?;
        Some(Bins {
            neighbours: config.neighbours,
            ..bins
        })
    }
}

impl<'g> Pixels<'g> for Causal<'g> {
    fn log_likelihood(&self, bytes: Var<'g>) -> Var<'g> {
        let [n, h, w, channels] = self.mixture.shape;
        let rows = n * h * w;
        let g = bytes.graph();
        let values = self.mixture.values(bytes);
        let weights = self.mixture.logits().softmax();
        let means: Vec<Var<'g>> = (0..channels)
            .map(|c| self.mixture.mean_given(c, &values))
            .collect();
        let inverses: Vec<Var<'g>> = (0..channels)
            .map(|c| self.mixture.inverse_scale(c))
            .collect();
        let errors: Vec<Var<'g>> = (0..channels)
            .map(|c| values[c] - (weights * means[c]).sum_last().clamp(-BORDER, BORDER))
            .collect();
        let sizes: Vec<Var<'g>> = (0..channels)
            .map(|c| {
                let scale = (weights * inverses[c].recip()).sum_last();
                let r = errors[c].abs() * scale.recip();
                r * (r * (1.0 / LARGEST) + 1.0).recip()
            })
            .collect();
        let map = |parts: &[Var<'g>]| g.concat(parts, 1).reshape(&[n, h, w, channels]);
        let (errors, sizes) = (map(&errors), map(&sizes));
        let seen = |map: Var<'g>, place: usize| {
            at_neighbour(map, self.places[place]).reshape(&[rows, channels])
        };
        let sum = |terms: Vec<Var<'g>>| terms.into_iter().reduce(|a, b| a + b);
        let zero = g.full(0.0, &[rows, channels]);
        let pulls = self.pulls().into_iter().enumerate();
        let moves = pulls.map(|(k, pull)| pull * seen(errors, k));
        let shift = sum(moves.collect()).unwrap_or(zero);
        let near = sum((0..NEAR).map(|k| seen(sizes, k)).collect()).unwrap_or(zero);
        let narrowing = (self.growth() * near + 1.0).recip();
        self.mixture.log_likelihood_of(bytes, |c| {
            (
                means[c] + shift.slice(1, c, 1),
                inverses[c] * narrowing.slice(1, c, 1),
            )
        })
    }

    fn log_likelihood_of_decoder(&self, bytes: Var<'g>) -> Option<Var<'g>> {
        Some(self.mixture.log_likelihood(bytes))
    }

    /// The expectation of the decoder alone: what is expected before any pixel is known.
    fn mean(&self) -> Var<'g> {
        self.mixture.mean()
    }

    /// Those of the mixture, then a_k of each neighbour and softplus(b), all channels of each.
    fn numbers(&self) -> Var<'g> {
        let mut parts = vec![self.mixture.numbers()];
        parts.extend(self.pulls());
        parts.push(self.growth());
        self.mixture.raw.graph().concat(&parts, 1)
    }
}
