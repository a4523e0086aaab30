//! The averaged weights of a run, read back.

use crate::error::{Error, Result};
use crate::run::Run;
use rrvq_tensor::params::{Tensors, from_safetensors};
use rrvq_tensor::{Layout, Store};
use std::collections::BTreeMap;
use std::path::Path;

/// The averaged weights of a run, as `theta`, and what was noted beside them.
pub struct Weights {
    /// The weights, under the name `theta`.
    pub store: Store,
    /// Steps they were trained for.
    pub step: u64,
    /// Notes that were saved with them.
    pub notes: BTreeMap<String, String>,
}

/// The weights of `run`, whose parameters are laid out as `layout` says.
pub fn load_weights(run: &Run, layout: &Layout) -> Result<Weights> {
    let path = run.model();
    let tensors = read(&path)?;
    let theta = layout.flatten(&tensors, "").map_err(|e| named(&path, e))?;
    Ok(Weights {
        store: Store::with("theta", theta),
        step: number(&tensors, "step", &path)?,
        notes: tensors.metadata,
    })
}

pub(crate) fn read(path: &Path) -> Result<Tensors> {
    let bytes = crate::limits::read_file(path)?;
    from_safetensors(&bytes).map_err(|e| {
        Error::new(format!(
            "{} is damaged: {e}; restore it from a copy or train again",
            path.display()
        ))
    })
}

pub(crate) fn named(path: &Path, error: rrvq_tensor::Error) -> Error {
    Error::new(format!("{}: {error}", path.display()))
}

pub(crate) fn number<T: std::str::FromStr>(tensors: &Tensors, key: &str, path: &Path) -> Result<T> {
    let found = tensors.metadata.get(key).and_then(|text| text.parse().ok());
    found.ok_or_else(|| {
        Error::new(format!(
            "{} has no readable {key}; it was not written by a run",
            path.display()
        ))
    })
}
