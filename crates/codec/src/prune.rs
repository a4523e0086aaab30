//! A model without the codes that nobody uses.
//!
//! Training leaves codes behind that no image ever takes. They cost nothing in bits, since prior and posterior agree
//! that they never come; but each is compared with at every position, and has its place in every table.

use rrvq::Trained;
use rrvq::config::Codes;
use rrvq::dataset::{Dataset, Split};
use rrvq::error::{Error, Remedy, Result};
use rrvq::evaluate::{Evaluator, Extent};
use rrvq::latent;
use rrvq::programs::{Model, Shared};
use rrvq_tensor::Device;

/// Images at once.
const BATCH: usize = 32;

/// The model without codes that none of the first `images` training images uses. `watch` is told how many are done.
pub fn prune(
    trained: &Trained,
    data: &dyn Dataset,
    images: usize,
    watch: impl FnMut(usize),
) -> Result<Trained> {
    let coded = latent::find(&trained.config().model.latent)?.coded();
    if !coded.is_some_and(|coded| coded.has_codebook()) {
        return Err(Error::with_remedy(
            format!(
                "a model whose model.latent is \"{}\" has no codes to leave out",
                trained.config().model.latent
            ),
            Remedy::Prune,
        ));
    }
    let mut evaluator = Evaluator::new(&Device::Cpu, trained.model(), data, BATCH)?;
    let mut store = trained.store();
    let split = Split::Train;
    let tally = evaluator.tally(&mut store, Extent { split, images }, watch)?;
    let used = |counts: Vec<u64>| -> Vec<usize> {
        let counted = counts.into_iter().enumerate();
        let kept: Vec<usize> = counted.filter(|(_, n)| *n > 0).map(|(k, _)| k).collect();
        // A codebook has two codes at least.
        if kept.len() < 2 { vec![0, 1] } else { kept }
    };
    let kept: Vec<Vec<usize>> = tally.into_iter().map(used).collect();
    keep(trained, &kept)
}

/// The model with these codes of each layer, bottom first, in their order.
fn keep(trained: &Trained, kept: &[Vec<usize>]) -> Result<Trained> {
    let mut config = trained.config().clone();
    config.model.codes = Codes::Each(kept.iter().map(Vec::len).collect());
    let model = Model::new(&config.model);
    let shared = trained.model().shared_by_codes();
    let mut theta = vec![0.0; model.layout.len()];
    let pairs = trained.model().layout.entries().iter();
    for (i, (from, to)) in pairs.zip(model.layout.entries()).enumerate() {
        let values = &trained.theta()[from.offset..from.offset + from.len()];
        let place = &mut theta[to.offset..to.offset + to.len()];
        let Some(shared) = shared.iter().find(|shared| shared.entry == i) else {
            place.copy_from_slice(values);
            continue;
        };
        let kept = &kept[shared.layer];
        let fewer = Shared {
            codes: kept.len(),
            ..shared.clone()
        };
        for (k, &old) in kept.iter().enumerate() {
            let places = fewer.of_code(k, to.len());
            for (here, there) in shared.of_code(old, from.len()).zip(places) {
                place[there].copy_from_slice(&values[here]);
            }
        }
    }
    let run = trained.run().cloned();
    let pruned = Trained::new(config, theta, trained.step(), run)?;
    Ok(pruned.with_extras(trained.extras().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::Networks;
    use rrvq::config::Config;
    use rrvq::dataset::Swatches;

    fn packed(change: impl Fn(&mut Config)) -> Trained {
        let mut config = Config::preset("tiny-swatches").unwrap();
        change(&mut config);
        let theta = Model::new(&config.model).layout.initial(3);
        Trained::new(config, theta, 0, None).unwrap()
    }

    /// The prior of the top layer, and the layer below it under some codes there.
    fn counts(trained: &Trained, codes: &[u32]) -> [Vec<f32>; 2] {
        let mut networks = Networks::new(trained.model(), trained.theta()).unwrap();
        let top = networks.prior(1, 1, &[], &[]).unwrap();
        let below = networks.prior(1, 0, &top.features, codes).unwrap();
        [top, below].map(|level| level.counts.unwrap())
    }

    /// The codes that stay keep their meaning and their shares, whether prior and codes share a codebook or not.
    #[test]
    fn codes_that_stay_are_what_they_were() {
        for prior in ["embedding", "direct"] {
            let full = packed(|c| c.set(&format!("model.prior={prior}")).unwrap());
            // Every parameter something of its own, so that none can be taken for another.
            let number = |i: usize| (i as f32 * 0.7).sin() * 0.3;
            let theta = full.theta().iter().enumerate();
            let theta = theta.map(|(i, v)| v + number(i)).collect();
            let full = Trained::new(full.config().clone(), theta, 0, None).unwrap();
            let kept = [vec![0, 2, 3, 7, 9, 15], vec![1, 4, 5, 11]];
            let smaller = keep(&full, &kept).unwrap();
            smaller.config().validate().unwrap();
            // Codes 4, 1, 11, 5 of the top layer by their old and by their new numbers.
            let (old, new) = (
                counts(&full, &[4, 1, 11, 5]),
                counts(&smaller, &[1, 0, 3, 2]),
            );
            for ((kept, old), new) in kept.iter().rev().zip(old).zip(new) {
                for (old, new) in old.chunks_exact(16).zip(new.chunks_exact(kept.len())) {
                    for (k, new_count) in kept.iter().zip(new) {
                        let (was, is) = (old[*k] / old[kept[0]], new_count / new[0]);
                        assert!((was / is - 1.0).abs() < 1e-2, "{prior} {k}: {was} {is}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_codebook_keeps_what_is_used() {
        let full = packed(|_| {});
        let config = full.config();
        let data = Swatches::for_config(config);
        let pruned = prune(&full, &data, 64, |_| {}).unwrap();
        for layer in 0..config.model.layers() {
            let codes = pruned.config().model.codes.at(layer);
            assert!((2..=config.model.codes.at(layer)).contains(&codes));
        }
        let gaussian = packed(|c| c.set("model.latent=gaussian").unwrap());
        let said = prune(&gaussian, &data, 8, |_| {})
            .err()
            .unwrap()
            .to_string();
        assert!(said.contains("no codes to leave out"), "{said}");
    }
}
