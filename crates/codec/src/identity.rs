//! Which model a file was written with: a hash of the settings that change what it computes, and of its weights.
//!
//! Settings that only matter to training are left out, and parameters are taken by name, so that the identity of a model
//! outlives new settings and a new order of drawing.

use super::neighbours::Neighbours;
use rrvq::config::{Backbone, BlockScale, GrowLast};
use rrvq::error::{Error, Result};
use rrvq::programs::Model;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt;

/// The identity of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 32]);

impl fmt::Display for Identity {
    /// The first digits, as people compare them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Settings of a model that its numbers depend on. A newer one is added below the loop over these, and only where it does
/// not have its default, so that older models keep their identity.
const SETTINGS: [&str; 18] = [
    "maps",
    "repeat",
    "size",
    "image_channels",
    "channels",
    "latent",
    "embed",
    "codes",
    "blocks",
    "ladder_blocks",
    "top",
    "prior",
    "sigma",
    "likelihood",
    "mixtures",
    "mixture_log_scale",
    "grow",
    "border",
];

impl Identity {
    /// `theta` are the model's parameters, in the order of its layout.
    pub fn of(model: &Model, theta: &[f32], neighbours: Option<&Neighbours>) -> Result<Identity> {
        let settings = settings(&model.config)?;
        let mut hash = Sha256::new();
        for key in SETTINGS {
            if let Some(value) = settings.get(key) {
                hash.update(format!("{key}={value}\n").as_bytes());
            }
        }
        if model.config.backbone != Backbone::Convolution {
            hash.update(format!("backbone={}\n", settings["backbone"]).as_bytes());
        }
        if model.config.block_scale != BlockScale::Constant(0.1) {
            hash.update(format!("block_scale={}\n", settings["block_scale"]).as_bytes());
        }
        if model.config.data_blocks != 0 {
            hash.update(format!("data_blocks={}\n", settings["data_blocks"]).as_bytes());
        }
        if model.config.grow_last != GrowLast::Once {
            hash.update(format!("grow_last={}\n", settings["grow_last"]).as_bytes());
        }
        if model.config.neighbours != 6 {
            hash.update(format!("neighbours={}\n", settings["neighbours"]).as_bytes());
        }
        if model.config.causal_gain != 0.0 {
            hash.update(format!("causal_gain={}\n", settings["causal_gain"]).as_bytes());
        }
        let mut entries: Vec<_> = model.layout.entries().iter().collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            hash.update(format!("{} {:?}\n", entry.name, entry.shape).as_bytes());
            for value in &theta[entry.offset..entry.offset + entry.len()] {
                hash.update(value.to_le_bytes());
            }
        }
        for (name, shape, values) in neighbours.iter().flat_map(|n| n.tensors()) {
            hash.update(format!("{name} {shape:?}\n").as_bytes());
            values.iter().for_each(|v| hash.update(v.to_le_bytes()));
        }
        Ok(Identity(hash.finalize().into()))
    }
}

fn settings(config: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(config)
        .map_err(|e| Error::new(format!("cannot read the model's settings: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::config::Config;

    #[test]
    fn settings_and_weights_both_count_and_training_does_not() {
        let config = Config::preset("tiny-swatches").unwrap().model;
        let of = |config: &rrvq::config::ModelConfig, change: f32| {
            let model = Model::new(config);
            let mut theta = model.layout.initial(1);
            theta[3] += change;
            Identity::of(&model, &theta, None).unwrap()
        };
        let first = of(&config, 0.0);
        assert_eq!(of(&config, 0.0), first);
        assert_ne!(of(&config, 0.5), first);
        let mut other = config.clone();
        other.free_bits += 1.0;
        assert_eq!(of(&other, 0.0), first);
        other.border = rrvq::config::Border::Edge;
        assert_ne!(of(&other, 0.0), first);
        let scaled = rrvq::config::ModelConfig {
            block_scale: BlockScale::Constant(0.2),
            ..config.clone()
        };
        assert_ne!(of(&scaled, 0.0), first);
    }
}
