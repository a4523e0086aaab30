//! What an evaluation finds, as it is logged.

use crate::config::{ModelConfig, Objective, TrainConfig};
use serde::{Deserialize, Deserializer, Serialize};

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EvalRecord {
    /// Steps made.
    pub step: usize,
    /// "train", "validation" or "test".
    pub split: String,
    /// Images looked at.
    pub images: usize,
    /// Negative ELBO, in bits a dimension, with hard samples.
    #[serde(deserialize_with = "number")]
    pub bits_per_dim: f64,
    /// The reconstruction's part of it, in bits a dimension.
    #[serde(deserialize_with = "number")]
    pub reconstruction: f64,
    /// Each layer's KL, in bits a dimension, bottom first.
    #[serde(deserialize_with = "numbers")]
    pub kl: Vec<f64>,
    /// The same in bits a position; older logs have none.
    #[serde(default, deserialize_with = "numbers")]
    pub position_bits: Vec<f64>,
    /// Mean squared error of a value, in steps of a byte; only of models trained for a rate and a distortion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squared_error: Option<f64>,
    /// How each layer's codes are used, bottom first.
    pub usage: Vec<Usage>,
    /// Root mean square of the numbers of each layer's posterior embeddings, which start near 1; empty where there are none,
    /// and in older logs.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "numbers"
    )]
    pub embedding_size: Vec<f64>,
    /// Seconds the evaluation took.
    pub seconds: f64,
}

impl EvalRecord {
    /// Codes that were drawn at least once, and codes in all, over all layers; none where latents are no codes.
    pub fn codes_in_use(&self) -> Option<(usize, usize)> {
        let used = self.usage.iter().map(|u| u.used).sum();
        let all = self.usage.iter().map(|u| u.used + u.dead).sum();
        (all > 0).then_some((used, all))
    }

    /// Layers, counted from 0 at the bottom, that have one code left because their embeddings have run away from all of them:
    /// their gradient is zero, and what lies above never comes back by itself.
    pub fn runaway(&self) -> Vec<usize> {
        let layers = self.usage.iter().zip(&self.embedding_size).enumerate();
        let gone = layers.filter(|(_, (usage, size))| {
            let far = size.is_nan() || **size > TrainConfig::default().norm_limit;
            far && usage.perplexity < 2.0 && usage.used + usage.dead > 2
        });
        gone.map(|(layer, _)| layer).collect()
    }

    /// What training lowers, in bits a dimension.
    pub fn objective(&self, train: &TrainConfig) -> f64 {
        match (train.objective, self.squared_error) {
            (Objective::RateDistortion, Some(error)) => {
                self.kl.iter().sum::<f64>() + error / train.bit_worth
            }
            _ => self.bits_per_dim,
        }
    }

    /// Rate in bits a pixel, and quality in decibels (PSNR), of a model trained for both.
    pub fn rate_and_quality(&self, model: &ModelConfig) -> Option<(f64, f64)> {
        let rate = self.kl.iter().sum::<f64>() * model.image_channels as f64;
        Some((rate, psnr(self.squared_error?)))
    }
}

/// Peak signal-to-noise ratio of a mean squared error of bytes, in decibels; infinite where there is no error.
pub fn psnr(squared_error: f64) -> f64 {
    10.0 * (255.0 * 255.0 / squared_error).log10()
}

/// How the codes of a layer are used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Codes that were drawn at least once.
    pub used: usize,
    /// Exponential of the entropy of how often each was drawn.
    #[serde(deserialize_with = "number")]
    pub perplexity: f64,
    /// Codes that were never drawn.
    pub dead: usize,
}

impl Usage {
    /// The usage of a codebook whose codes were drawn `counts` times.
    pub fn of(counts: &[u64]) -> Usage {
        let total: u64 = counts.iter().sum();
        let used = counts.iter().filter(|count| **count > 0).count();
        let share = counts
            .iter()
            .filter(|count| **count > 0)
            .map(|count| *count as f64 / total as f64);
        let entropy: f64 = -share.map(|p| p * p.ln()).sum::<f64>();
        Usage {
            used,
            perplexity: entropy.exp(),
            dead: counts.len() - used,
        }
    }
}

/// JSON has no NaN and no infinity: they are written as null, and null is read as NaN.
pub(crate) fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

pub(crate) fn numbers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers
        .into_iter()
        .map(|number| number.unwrap_or(f64::NAN))
        .collect())
}
