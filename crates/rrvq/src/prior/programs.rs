//! The compiled programs of a prior: initialise, train, score, sample.
//!
//! Sampling goes position by position, but not through the whole network each time. The vertical stack sees only rows
//! above, so it runs once a row; the horizontal one runs once a position, on one row. For a map of 16 × 16 that is the
//! work of sixteen passes, not of 256. On the CPU a row has the same bits as in a pass over the whole map.

use super::network::{Map, PixelCnn};
use crate::config::{ModelConfig, PriorConfig};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::latent;
use crate::model::hierarchy::nats_per_dim;
use crate::nn::Builder;
use crate::programs::StepOutcome;
use rrvq_tensor::rng::{Distribution, counter};
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Program, Store, Var};

/// A prior's settings and the places of its parameters.
#[derive(Clone, Debug)]
pub struct PriorModel {
    /// Of the model whose codes these are.
    pub model: ModelConfig,
    /// Its settings.
    pub config: PriorConfig,
    /// The maps of codes it is a prior of.
    pub map: Map,
    /// Places of its parameters.
    pub layout: Layout,
}

impl PriorModel {
    /// The prior over the codes of `model`.
    pub fn new(model: &ModelConfig, config: &PriorConfig) -> Self {
        let map = Map {
            side: model.sides()[0],
            codes: latent::codes(model, 0).expect("a model of codes"),
        };
        let graph = Graph::new();
        let net = PixelCnn::new(Builder::new(&graph, model), config, map, 1);
        net.logits(net.codes());
        PriorModel {
            model: model.clone(),
            config: config.clone(),
            map,
            layout: graph.layout(),
        }
    }

    fn net<'g>(&'g self, graph: &'g Graph, batch: usize) -> PixelCnn<'g> {
        let builder = Builder::new(graph, &self.model);
        PixelCnn::new(builder, &self.config, self.map, batch)
    }

    /// 0, 1, … K − 1, which [`PixelCnn::surprise`] compares codes with.
    fn order(&self) -> Vec<f32> {
        (0..self.map.codes).map(|k| k as f32).collect()
    }

    /// First values of everything a step keeps; gains and biases from the first codes.
    pub fn initial(&self, device: &Device, seed: u64, codes: &[u32]) -> Result<Store> {
        let mut theta = self.layout.initial(seed);
        let graph = Graph::new();
        let builder = Builder::initialising(&graph, &self.model);
        let batch = codes.len() / self.map.positions();
        let net = PixelCnn::new(builder, &self.config, self.map, batch);
        net.logits(net.codes());
        let found = net.builder.found();
        let outputs: Vec<(&str, Var<'_>)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut program = Program::new(device, &graph, &self.layout, &outputs)?;
        let inputs = [("codes", Data::U32(codes))];
        program.run(&mut Store::with("theta", theta.clone()), &inputs)?;
        for (name, _) in &found {
            let entry = self.layout.get(name).expect("found by drawing");
            theta[entry.offset..entry.offset + entry.len()].copy_from_slice(&program.output(name)?);
        }
        let mut store = Store::with("ema", theta.clone());
        store.insert("theta", theta);
        for name in ["m", "v"] {
            store.insert(name, vec![0.0; self.layout.len()]);
        }
        Ok(store)
    }
}

/// Forward, backward, clipping, update, average.
pub struct PriorStep {
    program: Program,
    order: Vec<f32>,
    nats_per_dim: f64,
}

impl PriorStep {
    /// Compiles it for `device`.
    pub fn new(device: &Device, prior: &PriorModel) -> Result<Self> {
        let (config, graph) = (&prior.config, Graph::new());
        let net = prior.net(&graph, config.batch);
        let nats = net.surprise(net.codes()).sum() * (1.0 / config.batch as f32);
        let unit = nats_per_dim(&prior.model);
        let norm = config.training().update().build(nats * (1.0 / unit) as f32);
        let outputs = [("nats", nats), ("norm", norm)];
        Ok(PriorStep {
            program: Program::new(device, &graph, &prior.layout, &outputs)?,
            order: prior.order(),
            nats_per_dim: unit,
        })
    }

    /// Bytes a step works in, on its device.
    pub fn bytes(&self) -> usize {
        self.program.bytes()
    }

    /// Makes step number `step`, counted from 0, on a batch of codes.
    pub fn run(
        &mut self,
        store: &mut Store,
        codes: &[u32],
        step: u64,
        lr: f64,
    ) -> Result<StepOutcome> {
        let inputs = [
            ("codes", Data::U32(codes)),
            ("order", Data::F32(&self.order)),
            ("lr", Data::F32(&[lr as f32])),
            ("t", Data::F32(&[(step + 1) as f32])),
        ];
        self.program.run(store, &inputs)?;
        let nats = self.program.scalar("nats")? as f64;
        Ok(StepOutcome {
            loss: nats / self.nats_per_dim,
            log_likelihood: 0.0,
            kl: vec![nats],
            grad_norm: self.program.scalar("norm")? as f64,
            skipped: false,
        })
    }
}

/// −log p of the codes of each image.
pub struct PriorScorer {
    program: Program,
    order: Vec<f32>,
    map: Map,
    batch: usize,
}

impl PriorScorer {
    /// Compiles it for `batch` maps of codes.
    pub fn new(device: &Device, prior: &PriorModel, batch: usize) -> Result<Self> {
        let graph = Graph::new();
        let net = prior.net(&graph, batch);
        let outputs = [("nats", net.surprise(net.codes()))];
        Ok(PriorScorer {
            program: Program::new(device, &graph, &prior.layout, &outputs)?,
            order: prior.order(),
            map: prior.map,
            batch,
        })
    }

    /// Nats of each image; there may be any number of them.
    pub fn run(&mut self, store: &mut Store, codes: &[u32]) -> Result<Vec<f32>> {
        let positions = self.map.positions();
        let mut nats = Vec::new();
        for group in codes.chunks(self.batch * positions) {
            interrupt::check()?;
            let mut padded = group.to_vec();
            padded.resize(self.batch * positions, 0);
            let order = Data::F32(&self.order);
            let inputs = [("codes", Data::U32(&padded)), ("order", order)];
            self.program.run(store, &inputs)?;
            let found = self.program.output("nats")?;
            nats.extend_from_slice(&found[..group.len() / positions]);
        }
        Ok(nats)
    }
}

/// Codes from the prior, position by position.
pub struct PriorSampler {
    above: Program,
    row: Program,
    map: Map,
    /// Maps of codes that are drawn at a time.
    pub batch: usize,
}

impl PriorSampler {
    /// Compiles it for `batch` maps of codes.
    pub fn new(device: &Device, prior: &PriorModel, batch: usize) -> Result<Self> {
        let side = prior.map.side;
        let graph = Graph::new();
        let net = prior.net(&graph, batch);
        let marked = graph.input("row", &[side], DType::F32);
        let told = net.above(net.codes(), marked);
        let above = Program::new(device, &graph, &prior.layout, &[("above", told)])?;
        let graph = Graph::new();
        let net = prior.net(&graph, batch);
        let marked = graph.input("row", &[side], DType::F32);
        let codes = graph.input("codes", &[batch * side, 1], DType::U32);
        let told = graph.input("above", &net.above_shape(), DType::F32);
        let logits = net.row_logits(codes, told, marked);
        let noise = graph.noise_stream(Distribution::Gumbel, &logits.shape(), 0);
        let scaled = noise * graph.scalar_input("noise_scale");
        let drawn = (logits + scaled).argmax_last();
        let row = Program::new(device, &graph, &prior.layout, &[("drawn", drawn)])?;
        Ok(PriorSampler {
            above,
            row,
            map: prior.map,
            batch,
        })
    }

    /// Codes of a batch of images, [n · M]. `temperature` 1 samples, less is sharper, 0 takes the mode of every code;
    /// `number` counts batches, so that each has noise of its own. After every row, `watch` hears how many are done.
    pub fn run(
        &mut self,
        store: &mut Store,
        seed: u64,
        number: u64,
        temperature: f32,
        watch: &mut dyn FnMut(usize),
    ) -> Result<Vec<u32>> {
        let (side, n) = (self.map.side, self.batch);
        let mut codes = vec![0u32; n * self.map.positions()];
        for row in 0..side {
            interrupt::check()?;
            let mut marked = vec![0.0; side];
            marked[row] = 1.0;
            let marked = Data::F32(&marked);
            let inputs = [("codes", Data::U32(&codes)), ("row", marked)];
            self.above.run(store, &inputs)?;
            let above = self.above.output("above")?;
            // Noise belongs to a place: the passes of a row see the same, and each reads its own column of it.
            let noise = counter(seed, number * side as u64 + row as u64);
            let mut own = vec![0u32; n * side];
            for column in 0..side {
                let inputs = [
                    ("codes", Data::U32(&own)),
                    ("above", Data::F32(&above)),
                    ("row", marked),
                    ("counter", Data::U32(&noise)),
                    ("noise_scale", Data::F32(&[temperature])),
                ];
                self.row.run(store, &inputs)?;
                let drawn = self.row.output_u32("drawn")?;
                for at in (column..n * side).step_by(side) {
                    own[at] = drawn[at];
                }
            }
            if own.iter().any(|&code| code as usize >= self.map.codes) {
                return Err(Error::new(
                    "the prior's logits are not finite; train it again with a lower prior.lr",
                ));
            }
            for (image, own) in codes.chunks_mut(side * side).zip(own.chunks(side)) {
                image[row * side..(row + 1) * side].copy_from_slice(own);
            }
            watch(row + 1);
        }
        Ok(codes)
    }
}
