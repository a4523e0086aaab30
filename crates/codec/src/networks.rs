//! The model as a codec runs it: one small program for each layer, so that codes can be read or written in between.
//!
//! Prior and posterior are programs of their own. The prior's are the same for writing and for reading, down to the
//! plan; the posterior's only the writer has. The CPU gives the same bits for any number of threads and any
//! instruction set, which is why the device is the CPU and nothing else.
//!
//! Programs are compiled for batches of 1, 2, 4, … tiles when they are first needed. A smaller batch fills the next
//! larger one up; a tile's numbers do not depend on its neighbours.

use super::codes::{MOST_CODES, counts};
use super::neighbours::Neighbours;
use rrvq::error::{Error, Result};
use rrvq::latent::{self, Coded};
use rrvq::likelihood::{self, Bins};
use rrvq::model::Hierarchy;
use rrvq::programs::Model;
use rrvq_tensor::{Data, Device, Graph, Program, Store, Var};
use std::collections::BTreeMap;

const ABOVE: &str = "above";
const CODES: &str = "codes";
const FEATURES: &str = "features";
const LADDER: &str = "ladder";
const COUNTS: &str = "counts";
const NUMBERS: &str = "numbers";
const SHOWN: &str = "shown";

/// What a layer looks like from the prior's side, for a batch.
pub struct Level {
    /// Features above the layer; none at the top, where they are learnt.
    pub features: Vec<f32>,
    /// Counts of every code at every position; none where all codes are alike.
    pub counts: Option<Vec<f32>>,
}

/// All programs for one size of batch.
struct Programs {
    up: Program,
    /// Bottom first.
    prior: Vec<Option<Program>>,
    posterior: Vec<Program>,
    pixels: Program,
    /// Only the lossy mode has a use for it.
    shown: Option<Program>,
}

/// A model ready to code with.
pub struct Networks {
    pub model: Model,
    coded: &'static dyn Coded,
    bins: Bins,
    /// What pixels learn from each other, where the model has it.
    pub neighbours: Option<Neighbours>,
    store: Store,
    by_size: BTreeMap<usize, Programs>,
}

impl Networks {
    /// `theta` are the model's parameters, in the order of its layout.
    pub fn new(model: &Model, theta: &[f32]) -> Result<Networks> {
        let config = &model.config;
        let Some(coded) = latent::find(&config.latent)?.coded() else {
            let of_codes = latent::KINDS.iter().filter(|kind| kind.coded().is_some());
            let names: Vec<String> = of_codes.map(|k| format!("\"{}\"", k.name())).collect();
            return Err(Error::new(format!(
                "a model whose model.latent is \"{}\" has no codes to write; compress with one of {}",
                config.latent,
                names.join(", ")
            )));
        };
        let Some(bins) = likelihood::find(&config.likelihood)?.bins(config) else {
            return Err(Error::new(format!(
                "pixels whose model.likelihood is \"{}\" cannot be coded; compress with a model of another likelihood",
                config.likelihood
            )));
        };
        let mut codes = (0..config.layers()).map(|layer| coded.codes(config, layer));
        if let Some(many) = codes.find(|&codes| codes > MOST_CODES) {
            return Err(Error::new(format!(
                "the model has {many} codes in a layer; the codec can tell {MOST_CODES} apart at most"
            )));
        }
        Ok(Networks {
            model: model.clone(),
            coded,
            bins,
            neighbours: None,
            store: Store::with("theta", theta.to_vec()),
            by_size: BTreeMap::new(),
        })
    }

    pub fn layers(&self) -> usize {
        self.model.config.layers()
    }

    /// Positions of a layer in one tile.
    pub fn positions(&self, layer: usize) -> usize {
        let side = self.model.config.sides()[layer];
        side * side
    }

    pub fn codes(&self, layer: usize) -> usize {
        self.coded.codes(&self.model.config, layer)
    }

    pub fn bins(&self) -> Bins {
        self.bins
    }

    /// Whether the posterior is one code and nothing else: there is nothing to draw, so no bits come back.
    pub fn certain(&self) -> bool {
        self.coded.certain()
    }

    /// Bytes the programs made so far work in.
    pub fn bytes(&self) -> usize {
        let all = self.by_size.values().flat_map(|p| {
            let priors = p.prior.iter().flatten();
            let always = priors.chain(&p.posterior).chain([&p.up, &p.pixels]);
            always.chain(&p.shown)
        });
        4 * self.model.layout.len() + all.map(Program::bytes).sum::<usize>()
    }

    /// What the up pass says to each layer, bottom first; `tiles` are whole tiles one after another, `size` of them.
    pub fn ladders(&mut self, size: usize, tiles: &[u8]) -> Result<Vec<Vec<f32>>> {
        let layers = self.layers();
        let (programs, store) = self.programs(size)?;
        programs.up.run(store, &[("images", Data::U8(tiles))])?;
        (0..layers)
            .map(|layer| Ok(programs.up.output(&ladder_name(layer))?.into_owned()))
            .collect()
    }

    /// The prior of a layer, from the features and the codes of the layer above; the top layer needs neither.
    pub fn prior(
        &mut self,
        size: usize,
        layer: usize,
        above: &[f32],
        codes: &[u32],
    ) -> Result<Level> {
        let layers = self.layers();
        let (programs, store) = self.programs(size)?;
        let Some(program) = &mut programs.prior[layer] else {
            return Ok(Level {
                features: Vec::new(),
                counts: None,
            });
        };
        program.run(store, &inputs(layers, layer + 1, above, codes))?;
        Ok(Level {
            features: match program.has_output(FEATURES) {
                true => program.output(FEATURES)?.into_owned(),
                false => Vec::new(),
            },
            counts: match program.has_output(COUNTS) {
                true => Some(program.output(COUNTS)?.into_owned()),
                false => None,
            },
        })
    }

    /// The posterior's counts of every code at every position of a layer (for nearest codes: their closeness).
    pub fn posterior(
        &mut self,
        size: usize,
        layer: usize,
        features: &[f32],
        ladder: &[f32],
    ) -> Result<Vec<f32>> {
        let top = layer + 1 == self.layers();
        let (programs, store) = self.programs(size)?;
        let mut inputs = vec![(LADDER, Data::F32(ladder))];
        if !top {
            inputs.push((FEATURES, Data::F32(features)));
        }
        let program = &mut programs.posterior[layer];
        program.run(store, &inputs)?;
        Ok(program.output(COUNTS)?.into_owned())
    }

    /// The likelihood's numbers for every pixel, from the features above the bottom layer and its codes.
    pub fn pixels(&mut self, size: usize, above: &[f32], codes: &[u32]) -> Result<Vec<f32>> {
        let layers = self.layers();
        let (programs, store) = self.programs(size)?;
        let program = &mut programs.pixels;
        program.run(store, &inputs(layers, 0, above, codes))?;
        Ok(program.output(NUMBERS)?.into_owned())
    }

    /// The picture itself: the mean of every sample, as a byte.
    pub fn shown(&mut self, size: usize, above: &[f32], codes: &[u32]) -> Result<Vec<u8>> {
        let layers = self.layers();
        self.programs(size)?;
        let Some(programs) = self.by_size.get_mut(&size) else {
            return Err(no_results());
        };
        let program = match &mut programs.shown {
            Some(program) => program,
            none => none.insert(
                draw(&self.model, size, &|hierarchy| {
                    let d = features_above(hierarchy, 0, true);
                    vec![(SHOWN.into(), hierarchy.shown(d))]
                })?
                .ok_or_else(no_results)?,
            ),
        };
        program.run(&mut self.store, &inputs(layers, 0, above, codes))?;
        let means = program.output(SHOWN)?;
        // They lie in [0, 255]; the cast cuts off, and takes a broken model's NaN to 0.
        Ok(means.iter().map(|mean| (mean + 0.5) as u8).collect())
    }

    fn programs(&mut self, size: usize) -> Result<(&mut Programs, &mut Store)> {
        use std::collections::btree_map::Entry;
        let programs = match self.by_size.entry(size) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(room) => {
                room.insert(Programs::new(&self.model, self.coded.certain(), size)?)
            }
        };
        Ok((programs, &mut self.store))
    }
}

/// Inputs of a program that goes on below the layer `layer`: at the top, features are learnt.
fn inputs<'a>(
    layers: usize,
    layer: usize,
    above: &'a [f32],
    codes: &'a [u32],
) -> Vec<(&'static str, Data<'a>)> {
    let mut inputs = Vec::new();
    if layer < layers {
        inputs.push((CODES, Data::U32(codes)));
    }
    if layer + 1 < layers {
        inputs.push((ABOVE, Data::F32(above)));
    }
    inputs
}

fn ladder_name(layer: usize) -> String {
    format!("{LADDER}.{}", layer + 1)
}

type Drawing<'a> = &'a dyn for<'g> Fn(&Hierarchy<'g>) -> Vec<(String, Var<'g>)>;

/// A program of what is drawn; none where that is nothing.
fn draw(model: &Model, size: usize, draw: Drawing<'_>) -> Result<Option<Program>> {
    let graph = Graph::new();
    let outputs = draw(&Hierarchy::new(&graph, &model.config, size));
    let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    match named.is_empty() {
        true => Ok(None),
        false => Ok(Some(Program::new(
            &Device::Cpu,
            &graph,
            &model.layout,
            &named,
        )?)),
    }
}

fn no_results() -> Error {
    Error::new("a program of the codec has no results")
}

impl Programs {
    fn new(model: &Model, certain: bool, size: usize) -> Result<Programs> {
        let layers = model.config.layers();
        let draw = |drawing: Drawing<'_>| draw(model, size, drawing);
        let needed = |program: Option<Program>| program.ok_or_else(no_results);
        let up = draw(&|hierarchy| {
            let ladders = hierarchy.ladders().into_iter().enumerate();
            ladders.map(|(l, map)| (ladder_name(l), map)).collect()
        })?;
        let pixels = draw(&|hierarchy| {
            let d = features_above(hierarchy, 0, true);
            vec![(NUMBERS.into(), hierarchy.decode(d).numbers())]
        })?;
        let (mut prior, mut posterior) = (Vec::new(), Vec::new());
        for layer in 0..layers {
            prior.push(draw(&|hierarchy| {
                let d = features_above(hierarchy, layer + 1, true);
                let log_p = hierarchy.log_prior(layer, d);
                let mut outputs = Vec::new();
                if layer + 1 < layers {
                    outputs.push((FEATURES.into(), d));
                }
                outputs.extend(log_p.map(|log_p| (COUNTS.into(), counts(log_p))));
                outputs
            })?);
            posterior.push(needed(draw(&|hierarchy| {
                let d = features_above(hierarchy, layer + 1, false);
                let ladder = hierarchy.given_ladder(LADDER, layer);
                let log_q = hierarchy.log_posterior(layer, d, ladder);
                let out = if certain { log_q } else { counts(log_q) };
                vec![(COUNTS.into(), out)]
            })?)?);
        }
        Ok(Programs {
            up: needed(up)?,
            prior,
            posterior,
            pixels: needed(pixels)?,
            shown: None,
        })
    }
}

/// Features below the layer `layer`: learnt ones at the top; else one step down from those above it and its codes, or,
/// where they are known already, handed over.
fn features_above<'g>(hierarchy: &Hierarchy<'g>, layer: usize, step: bool) -> Var<'g> {
    let layers = hierarchy.layers();
    if layer == layers {
        return hierarchy.top();
    }
    if !step {
        return hierarchy.given_features(FEATURES, layer);
    }
    let above = match layer + 1 == layers {
        true => hierarchy.top(),
        false => hierarchy.given_features(ABOVE, layer + 1),
    };
    hierarchy.below(layer, above, hierarchy.given_codes(CODES, layer, above))
}
