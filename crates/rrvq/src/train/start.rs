//! How many batches the data-dependent start of gains and biases sees.
//!
//! With two values, which may nearly be equal, gains become so large that the first steps diverge.

use crate::config::Config;
use crate::dataset::Batches;
use crate::nn::Geometry;
use rrvq_tensor::Group;

/// Values a channel by which a spread can be judged.
const FEWEST_VALUES: usize = 8;
/// Values a channel where a batch has fewer than that.
const ENOUGH_VALUES: usize = 32;

/// Batches of `batch` images to start by, where a channel has `each` values an image: one, or several of few values.
pub(crate) fn batches_to_start(batch: usize, each: usize) -> usize {
    let values = batch * each;
    match values < FEWEST_VALUES {
        true => ENOUGH_VALUES.div_ceil(values.max(1)),
        false => 1,
    }
}

/// The images that gains and biases start by, as the smallest map of features asks for.
pub(super) fn first_images(
    config: &Config,
    batches: &mut Batches<'_>,
    group: Option<&Group>,
) -> Vec<u8> {
    // Not of latents: a fully connected model has one value an image, whatever its maps are.
    let features = Geometry::new(&config.model).features;
    let smallest = features.into_iter().min().unwrap_or(1);
    let count = batches_to_start(config.train.batch, smallest * smallest);
    let batch = |step: usize| batches.at(step as u64).to_vec();
    let all: Vec<Vec<u8>> = (0..count).map(batch).collect();
    // One shard after another.
    let own = group.map_or(1, |group| group.own().len());
    let of_shard = |shard: usize| {
        all.iter()
            .flat_map(move |batch| &batch[shard * batch.len() / own..][..batch.len() / own])
    };
    (0..own).flat_map(of_shard).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::batches_to_start;

    #[test]
    fn few_values_ask_for_more_batches() {
        let counts = [(1, 1), (2, 1), (3, 1), (1, 4), (7, 1), (8, 1), (2, 4)];
        let found = counts.map(|(batch, each)| batches_to_start(batch, each));
        assert_eq!(found, [32, 16, 11, 8, 5, 1, 1]);
    }
}
