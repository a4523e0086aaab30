//! The same weights on maps of another size.
//!
//! Kernels do not know how large a map is, so a model of convolutions that was trained on tiles of 64 × 64 can look at squares of
//! 256 × 256, whose tiles then know of each other. What does know is the learnt start above the top layer: its borders
//! stay borders, and what is between them is repeated.

use crate::config::{Backbone, ModelConfig};
use crate::error::{Error, Result};
use crate::limits::check_bytes;
use crate::model::hierarchy::TOP;
use crate::programs::Model;

/// The model for images of another side, and its parameters.
///
/// Refused where a map would not have whole positions, or where other parameters than the top's belong to places.
pub fn resized(model: &Model, theta: &[f32], side: usize) -> Result<(Model, Vec<f32>)> {
    let config = &model.config;
    if config.backbone != Backbone::Convolution && side != config.size {
        return Err(Error::new(format!(
            "a fully connected model of images of side {} cannot be used at side {side}; one of convolutions \
             (model.backbone = \"convolution\") can",
            config.size
        )));
    }
    let Some(maps) = scaled(&config.maps, config.size, side) else {
        return Err(Error::new(format!(
            "images of side {side} do not fit a model of side {} with maps {:?}, which would not have whole positions; choose \
             {} or a multiple of it",
            config.size, config.maps, config.size
        )));
    };
    let larger = Model::new(&ModelConfig {
        size: side,
        maps,
        ..config.clone()
    });
    let bytes = larger.layout.len().saturating_mul(4);
    check_bytes("holding the model's parameters", bytes)?;
    let mut values = vec![0.0; larger.layout.len()];
    for entry in larger.layout.entries() {
        let refused = || {
            Error::new(format!(
                "{} of this model belongs to places of images of side {}, so it cannot be used at side {side}",
                entry.name, config.size
            ))
        };
        let own = model.layout.get(&entry.name).ok_or_else(refused)?;
        let from = &theta[own.offset..own.offset + own.len()];
        let to = &mut values[entry.offset..entry.offset + entry.len()];
        match (&own.shape[..], &entry.shape[..]) {
            (small, large) if small == large => to.copy_from_slice(from),
            (&[1, old, _, channels], &[1, new, _, _]) if entry.name == TOP => {
                for (place, to) in to.chunks_exact_mut(channels).enumerate() {
                    let row = stretched(place / new, old, new);
                    let place = row * old + stretched(place % new, old, new);
                    to.copy_from_slice(&from[place * channels..][..channels]);
                }
            }
            _ => return Err(refused()),
        }
    }
    Ok((larger, values))
}

/// Maps for images of another side; none where one would not have whole positions.
pub fn scaled(maps: &[usize], from: usize, to: usize) -> Option<Vec<usize>> {
    let map = |own: &usize| {
        let times = own.checked_mul(to)?;
        (times >= from && times % from == 0).then_some(times / from)
    };
    maps.iter().map(map).collect()
}

/// Where place `at` of `to` lies among `from` places: what is near a border stays as near, the middle is repeated or left out.
fn stretched(at: usize, from: usize, to: usize) -> usize {
    match at < to / 2 {
        true => at.min((from / 2).saturating_sub(1)),
        false => (from - from.min(to - at)).max(from / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn borders_stay_borders_and_the_middle_is_repeated() {
        let places = |from, to| {
            (0..to)
                .map(|at| stretched(at, from, to))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(4, 8), [0, 1, 1, 1, 2, 2, 2, 3]);
        assert_eq!(places(4, 4), [0, 1, 2, 3]);
        assert_eq!(places(4, 2), [0, 3]);
        assert_eq!(places(1, 4), [0, 0, 0, 0]);
        assert_eq!(places(2, 4), [0, 0, 1, 1]);
    }

    #[test]
    fn only_the_top_changes_and_what_does_not_fit_is_refused() {
        let config = Config::preset("tiny-swatches").unwrap();
        let model = Model::new(&config.model);
        let theta = model.layout.initial(3);
        let side = config.model.size;
        let (same, values) = resized(&model, &theta, side).unwrap();
        assert!(same.config == config.model && values == theta);
        let (large, values) = resized(&model, &theta, 4 * side).unwrap();
        let sides = |config: &ModelConfig| config.sides();
        let four: Vec<usize> = sides(&config.model).iter().map(|s| 4 * s).collect();
        assert_eq!(sides(&large.config), four);
        for entry in large.layout.entries().iter().filter(|e| e.name != TOP) {
            let own = model.layout.get(&entry.name).unwrap();
            let kept = &values[entry.offset..entry.offset + entry.len()];
            assert_eq!(
                kept,
                &theta[own.offset..own.offset + own.len()],
                "{}",
                entry.name
            );
        }
        assert!(resized(&model, &theta, side + 1).is_err() && resized(&model, &theta, 0).is_err());
        let config = Config::preset("mlp-swatches").unwrap().model;
        let model = Model::new(&config);
        let said = resized(&model, &model.layout.initial(3), 2 * config.size);
        assert!(said.is_err_and(|said| said.to_string().contains("cannot be used at side")));
        assert_eq!(scaled(&[4, 2], 8, usize::MAX), None);
        assert_eq!(scaled(&[4, 2], 8, 4), Some(vec![2, 1]));
    }
}
