//! A trained model as the codec sees it: workers to code with, and its identity.
//!
//! A file can be read only with the very model it was written with, so a model that is handed on must be the same bits
//! everywhere. Weights are rounded once, when they are packed ([`Trained::pack`]); unpacked, they are f32 again, and the
//! identity is that of the rounded ones.

use super::neighbours::Neighbours;
use super::{Identity, Workers};
use rrvq::Trained;
use rrvq::config::{Crop, CropWord};
use rrvq::error::{Error, Result};
use rrvq::models;

/// What the codec asks of a trained model.
pub trait CodingModel: Sized {
    /// What pixels learn from each other; only packed models have it.
    fn neighbours(&self) -> Result<Option<Neighbours>>;

    /// The same model with this instead.
    fn with_neighbours(self, neighbours: &Neighbours) -> Self;

    /// Which model it is.
    fn identity(&self) -> Result<Identity>;

    /// Ready to code with, and its identity.
    fn workers(&self) -> Result<(Workers, Identity)>;
}

impl CodingModel for Trained {
    fn neighbours(&self) -> Result<Option<Neighbours>> {
        let channels = self.config().model.image_channels;
        Neighbours::from_tensors(self.extras(), channels).map_err(|error| {
            Error::new(format!(
                "this is not a packed model: {error}; expected a file written by `rrvq pack`"
            ))
        })
    }

    fn with_neighbours(self, neighbours: &Neighbours) -> Self {
        let tensors = neighbours.tensors();
        let owned = tensors.map(|(name, shape, values)| (name, shape, values.to_vec()));
        self.with_extras(owned.to_vec())
    }

    fn identity(&self) -> Result<Identity> {
        Identity::of(self.model(), self.theta(), self.neighbours()?.as_ref())
    }

    fn workers(&self) -> Result<(Workers, Identity)> {
        let workers = Workers::new(self.model(), self.theta())?;
        let mut workers = workers.with_neighbours(self.neighbours()?);
        // A top map of one position has never seen what its kernels' borders say.
        let top = self.config().model.maps.last();
        workers.of_parts = self.config().data.crop == Crop::Word(CropWord::Random)
            && top.is_some_and(|side| *side > 1);
        Ok((workers, self.identity()?))
    }
}

/// The built-in model that a file was written with, should it be one of them.
pub fn built_in_of(wanted: impl Fn(Identity) -> bool) -> Result<Option<Trained>> {
    Ok(found(wanted)?.map(|(_, trained)| trained))
}

/// The name of such a model.
pub fn built_in_name(wanted: impl Fn(Identity) -> bool) -> Result<Option<&'static str>> {
    Ok(found(wanted)?.map(|(name, _)| name))
}

fn found(wanted: impl Fn(Identity) -> bool) -> Result<Option<(&'static str, Trained)>> {
    for model in models::BUILT_IN {
        let trained = Trained::read(model.bytes, model.name)?;
        if wanted(trained.identity()?) {
            return Ok(Some((model.name, trained)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_models_are_whole_small_and_on_their_card() {
        for model in models::BUILT_IN {
            assert!(model.bytes.len() <= 8_000_000);
            let trained = Trained::open(model.name).unwrap();
            assert!(trained.theta().iter().all(|v| v.is_finite()));
            let config = &trained.config().model;
            let large = model.name == "celeba" || models::LOSSY.contains(&model.name);
            let side = if large { 64 } else { 32 };
            assert_eq!((config.size, config.image_channels), (side, 3));
            let (_, identity) = trained.workers().unwrap();
            assert!(
                model.card.contains(&format!("{identity:?}")),
                "{identity:?}"
            );
            let found = built_in_of(|other| other == identity).unwrap();
            assert!(found.is_some_and(|found| found.theta() == trained.theta()));
        }
        assert!(built_in_of(|_| false).unwrap().is_none());
    }

    #[test]
    fn packing_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        let first = Trained::open(models::DEFAULT).unwrap();
        first.save(&file).unwrap();
        let again = Trained::open(&file).unwrap();
        assert!(first.theta() == again.theta() && first.config() == again.config());
        let neighbours = first.neighbours().unwrap();
        assert!(neighbours.is_some() && neighbours == again.neighbours().unwrap());
        let bytes = first.pack().unwrap();
        std::fs::write(&file, &bytes[..1000]).unwrap();
        let said = Trained::open(&file).err().unwrap().to_string();
        assert!(said.contains("is not a packed model"), "{said}");
    }
}
