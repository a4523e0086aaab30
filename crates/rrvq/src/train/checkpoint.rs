//! Saving and loading: averaged weights for use, raw weights with everything needed to go on.

use super::schedule::Plateau;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::latent::codebook::Memory;
use crate::programs::Model;
use crate::run::Run;
use crate::weights::{named, number, read};
use rrvq_tensor::optim::STATES;
use rrvq_tensor::params::{Tensors, to_safetensors};
use rrvq_tensor::{Layout, Store};
use std::collections::BTreeMap;
use std::path::Path;

/// What a run is besides its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Progress {
    /// Steps made.
    pub step: u64,
    /// Memory of the plateau schedule.
    pub plateau: Plateau,
    /// Seconds of training so far.
    pub seconds: f64,
    /// What was due after the last step and not finished.
    pub due: Option<Due>,
}

/// Work that follows some steps, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// An evaluation, then samples.
    Evaluation,
    /// Samples alone.
    Samples,
}

impl Due {
    const NAMES: [(Due, &str); 2] = [(Due::Evaluation, "evaluation"), (Due::Samples, "samples")];
}

/// Where a file says what is due.
const DUE: &str = "due";

/// How the names of memories begin in a file.
const MEMORY: &str = "memory/";

/// What a checkpoint is about: the parameters, and what a step keeps besides.
#[derive(Clone, Copy)]
pub struct Kept<'a> {
    /// Places of the parameters.
    pub layout: &'a Layout,
    /// What a step keeps besides parameters and moments.
    pub memories: &'a [Memory],
}

impl Model {
    /// What the model keeps between steps.
    pub fn kept(&self) -> Kept<'_> {
        Kept {
            layout: &self.layout,
            memories: &self.memories,
        }
    }
}

/// Writes model, then state, both with `notes`; each is whole or the old one stays. Between the two, the state is the older one, and
/// going on from it makes the same model again. The first time the state comes first: a model without any state could not
/// go on.
pub fn save(
    run: &Run,
    kept: Kept<'_>,
    store: &mut Store,
    progress: &Progress,
    notes: &[(&str, &str)],
) -> Result<()> {
    store.fetch()?;
    let mut metadata = BTreeMap::from([("step".to_string(), progress.step.to_string())]);
    let notes = notes
        .iter()
        .map(|(key, text)| (key.to_string(), text.to_string()));
    metadata.extend(notes);
    let ema = kept.layout.tensors(store.get("ema"), "");
    let model = to_safetensors(&ema, &metadata)?;
    metadata.insert("seconds".into(), progress.seconds.to_string());
    let plateau = serde_json::to_string(&progress.plateau)
        .map_err(|e| Error::new(format!("plateau state: {e}")))?;
    metadata.insert("plateau".into(), plateau);
    let due = Due::NAMES
        .iter()
        .find(|(due, _)| progress.due == Some(*due));
    metadata.extend(due.map(|(_, name)| (DUE.into(), name.to_string())));
    let mut state = Vec::new();
    for name in STATES {
        state.extend(kept.layout.tensors(store.get(name), &format!("{name}/")));
    }
    for memory in kept.memories {
        let name = format!("{MEMORY}{}", memory.name);
        state.push((name, memory.shape.clone(), store.get(&memory.name)));
    }
    let state = to_safetensors(&state, &metadata)?;
    let mut files = [(run.model(), model), (run.state(), state)];
    if !run.state().exists() {
        files.reverse();
    }
    files
        .iter()
        .try_for_each(|(path, bytes)| write_atomic(path, |file| file.write_all(bytes)))
}

/// Everything needed to go on training.
pub fn load_state(run: &Run, kept: Kept<'_>) -> Result<(Store, Progress)> {
    let path = run.state();
    let tensors = read(&path)?;
    let mut store = Store::default();
    for name in STATES {
        let flat = kept
            .layout
            .flatten(&tensors, &format!("{name}/"))
            .map_err(|e| named(&path, e))?;
        store.insert(name, flat);
    }
    for memory in kept.memories {
        store.insert(&memory.name, remembered(&tensors, memory, &path)?);
    }
    let missing = |key: &str| {
        Error::new(format!(
            "{} has no readable {key}; it was not written by a run",
            path.display()
        ))
    };
    let plateau = tensors
        .metadata
        .get("plateau")
        .and_then(|text| serde_json::from_str(text).ok());
    let progress = Progress {
        step: number(&tensors, "step", &path)?,
        plateau: plateau.ok_or_else(|| missing("plateau"))?,
        seconds: number(&tensors, "seconds", &path)?,
        due: match tensors.metadata.get(DUE) {
            None => None,
            Some(said) => {
                let known = Due::NAMES.iter().find(|(_, name)| name == said);
                Some(known.ok_or_else(|| missing(DUE))?.0)
            }
        },
    };
    Ok((store, progress))
}

/// A memory as the file has it.
fn remembered(tensors: &Tensors, memory: &Memory, path: &Path) -> Result<Vec<f32>> {
    let name = format!("{MEMORY}{}", memory.name);
    match tensors.map.get(&name) {
        Some((shape, values)) if *shape == memory.shape => Ok(values.clone()),
        found => {
            let (path, want) = (path.display(), &memory.shape);
            let has = match found {
                Some((shape, _)) => format!("tensor {name} of shape {shape:?}"),
                None => format!("no tensor {name}"),
            };
            Err(Error::new(format!(
                "{path} has {has} where the model wants {want:?}; the run was trained with other settings of its codebook"
            )))
        }
    }
}
