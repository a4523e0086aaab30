//! A model to code with as one small file: kernels as bf16, settings beside them.
//!
//! A file written by the codec can be read only with the very model, so a model that is handed on must be the same bits
//! everywhere. Weights are rounded once, when they are packed; unpacked, they are f32 again, and the identity is that of
//! the rounded ones. Some such files are built into the program.

use super::neighbours::Neighbours;
use super::{Identity, Workers};
use rrvq::config::Config;
use rrvq::error::{Error, Result};
use rrvq::programs::Model;
use rrvq::run::Run;
use rrvq::train::checkpoint::load_model;
use rrvq_tensor::Store;
use rrvq_tensor::params::{from_safetensors, to_safetensors_bf16};
use std::collections::BTreeMap;
use std::path::Path;

/// The models that are built in, the one that files are written with first; `model/CARD.md` says what they are and how they
/// were made. None ever goes: files in the world name it.
const BUILT_IN_FILES: [&[u8]; 2] = [
    include_bytes!("model/tiles-2.safetensors"),
    include_bytes!("model/tiles.safetensors"),
];

/// What the built-in model is called where a run or a file could be named.
pub const BUILT_IN: &str = "built-in";

/// A model and its weights.
pub struct Packed {
    pub config: Config,
    pub model: Model,
    pub theta: Vec<f32>,
    /// What pixels learn from each other; runs have none.
    pub neighbours: Option<Neighbours>,
}

impl Packed {
    /// The built-in one that files are written with.
    pub fn built_in() -> Result<Packed> {
        Packed::read(BUILT_IN_FILES[0], "the built-in model")
    }

    /// The built-in one that a file was written with, should it be one of them.
    pub fn built_in_of(wanted: impl Fn(Identity) -> bool) -> Result<Option<Packed>> {
        for file in BUILT_IN_FILES {
            let packed = Packed::read(file, "a built-in model")?;
            if wanted(packed.identity()?) {
                return Ok(Some(packed));
            }
        }
        Ok(None)
    }

    /// The one of this name: the built-in one, or that of a run folder or a packed file.
    pub fn named(name: &Path) -> Result<Packed> {
        match name.to_str() {
            Some(BUILT_IN) => Packed::built_in(),
            _ => Packed::open(name),
        }
    }

    /// That of a run folder, or of a file that [`pack`] made.
    pub fn open(path: &Path) -> Result<Packed> {
        if path.is_file() {
            let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
            return Packed::read(&bytes, &path.display().to_string());
        }
        let (config, model, store, _) = load_model(&Run::open(path)?)?;
        let theta = store.get("theta").to_vec();
        Ok(Packed {
            config,
            model,
            theta,
            neighbours: None,
        })
    }

    fn read(bytes: &[u8], name: &str) -> Result<Packed> {
        let wrong = |said: String| {
            Error::new(format!(
                "{name} is not a packed model: {said}; expected a file written by `rrvq pack`, or a run folder"
            ))
        };
        let tensors = from_safetensors(bytes).map_err(|e| wrong(e.to_string()))?;
        let Some(text) = tensors.metadata.get("config") else {
            return Err(wrong("it holds no settings".into()));
        };
        let config = Config::read(text, name)?;
        config.validate()?;
        let model = Model::new(&config.model);
        let theta = model.layout.flatten(&tensors, "");
        let theta = theta.map_err(|e| wrong(e.to_string()))?;
        let neighbours = Neighbours::from_tensors(&tensors, config.model.image_channels);
        Ok(Packed {
            neighbours: neighbours.map_err(|e| wrong(e.to_string()))?,
            config,
            model,
            theta,
        })
    }

    /// Its weights, as programs take them.
    pub fn store(&self) -> Store {
        Store::with("theta", self.theta.clone())
    }

    /// Ready to code with, and its identity.
    pub fn workers(&self) -> Result<(Workers, Identity)> {
        let workers = Workers::new(&self.model, &self.theta)?;
        Ok((
            workers.with_neighbours(self.neighbours.clone()),
            self.identity()?,
        ))
    }

    fn identity(&self) -> Result<Identity> {
        Identity::of(&self.model, &self.theta, self.neighbours.as_ref())
    }
}

/// Kernels are nearly the whole of a model, and each of their values is one of hundreds in a sum: they are rounded. Biases,
/// gains and codes stay as they are: rounded, they cost the first model this was tried on 0.3 % in bits and saved 2 % in size.
fn is_kernel(name: &str) -> bool {
    name.ends_with(".v")
}

/// The file of a model: averaged weights, kernels rounded to bf16, and its settings. `name` is for what may be wrong with it.
pub fn pack(packed: &Packed, name: &str) -> Result<Vec<u8>> {
    let Packed { model, theta, .. } = packed;
    if let Some(strange) = theta.iter().find(|v| !v.is_finite()) {
        return Err(Error::new(format!(
            "the model in {name} has a weight of {strange}; train it again"
        )));
    }
    let mut config = packed.config.clone();
    // Where the images lay is nobody's business.
    config.data.dir = None;
    let metadata = BTreeMap::from([("config".to_string(), config.to_toml()?)]);
    let mut tensors = model.layout.tensors(theta, "");
    tensors.extend(packed.neighbours.iter().flat_map(Neighbours::tensors));
    Ok(to_safetensors_bf16(&tensors, &metadata, is_kernel)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_models_are_whole_small_and_on_their_card() {
        let card = include_str!("model/CARD.md");
        for file in BUILT_IN_FILES {
            assert!(file.len() <= 8_000_000);
            let packed = Packed::read(file, "a built-in model").unwrap();
            assert!(packed.theta.iter().all(|v| v.is_finite()));
            let config = &packed.config.model;
            assert_eq!((config.size, config.image_channels), (32, 3));
            let (_, identity) = packed.workers().unwrap();
            assert!(card.contains(&format!("{identity:?}")), "{identity:?}");
            let found = Packed::built_in_of(|other| other == identity).unwrap();
            assert!(found.is_some_and(|found| found.theta == packed.theta));
        }
        assert!(Packed::built_in_of(|_| false).unwrap().is_none());
    }

    #[test]
    fn packing_again_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("rrvq-packed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("model.safetensors");
        std::fs::write(&file, BUILT_IN_FILES[0]).unwrap();
        let again = pack(&Packed::open(&file).unwrap(), "itself").unwrap();
        let (a, b) = (
            Packed::built_in().unwrap(),
            Packed::read(&again, "again").unwrap(),
        );
        assert!(a.theta == b.theta && a.config == b.config);
        assert!(a.neighbours.is_some() && a.neighbours == b.neighbours);
        std::fs::write(&file, &BUILT_IN_FILES[0][..1000]).unwrap();
        let said = Packed::open(&file).err().unwrap().to_string();
        assert!(said.contains("is not a packed model"), "{said}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
