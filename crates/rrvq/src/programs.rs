//! The compiled programs of a model: initialise, train, evaluate, reconstruct, sample.
//!
//! Each is drawn and compiled once for a device and a batch size and runs on a [`Store`] of flat vectors that share
//! the model's [`Layout`].

mod codes;
mod descent;
mod infer;
mod shares;
mod step;
mod update;

pub use codes::{Decoder, Encoder};
pub use descent::{Descent, Found, Posterior};
pub use infer::{Inference, Scorer, Scores};
pub use shares::Shared;
pub use step::{Step, StepInput, StepOutcome, objective};

use crate::config::ModelConfig;
use crate::error::Result;
use crate::latent::codebook::{First, Memory, SHARD_ROWS};
use crate::likelihood::PixelValues;
use crate::limits::check_bytes;
use crate::model::Hierarchy;
use crate::model::hierarchy::dims;
use crate::nn::Builder;
use rrvq_tensor::optim::STATES;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Data, Device, Graph, Group, Layout, Program, Store, Var};

/// A model's settings and the places of its parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its settings.
    pub config: ModelConfig,
    /// Places of its parameters.
    pub layout: Layout,
    /// What a training step keeps besides.
    pub memories: Vec<Memory>,
}

impl Model {
    /// The model that `config` describes.
    pub fn new(config: &ModelConfig) -> Self {
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, config, 1).training_elbo();
        let memories = elbo.moved.iter().flat_map(|m| &m.memories);
        Model {
            config: config.clone(),
            layout: graph.layout(),
            memories: memories.map(|(memory, _)| memory.clone()).collect(),
        }
    }

    /// Bytes of one image.
    pub fn image_len(&self) -> usize {
        dims(&self.config)
    }

    /// First values of everything a training step keeps: parameters from their initialisers, gains and biases
    /// from the first batch.
    pub fn initial(&self, device: &Device, seed: u64, images: &[u8]) -> Result<Store> {
        self.initial_in_group(device, seed, images, None)
    }

    /// The same in each of the processes that train together; `images` are those of this process's shards.
    pub fn initial_in_group(
        &self,
        device: &Device,
        seed: u64,
        images: &[u8],
        group: Option<&Group>,
    ) -> Result<Store> {
        check_bytes(
            "holding the model's parameters",
            self.layout.len().saturating_mul(4),
        )?;
        let theta = self.layout.initial(seed);
        let theta = self.initialise_from(device, theta, seed, images, group)?;
        let mut store = Store::with("ema", theta.clone());
        for memory in &self.memories {
            store.insert(&memory.name, self.first_memory(memory, &theta));
        }
        store.insert("theta", theta);
        for name in ["m", "v"] {
            store.insert(name, vec![0.0; self.layout.len()]);
        }
        debug_assert!(STATES.iter().all(|name| !store.get(name).is_empty()));
        Ok(store)
    }

    fn first_memory(&self, memory: &Memory, theta: &[f32]) -> Vec<f32> {
        match &memory.first {
            First::Ones => vec![1.0; memory.len()],
            First::Parameter(name) => {
                let entry = self.layout.get(name).expect("drawn beside its memory");
                theta[entry.offset..entry.offset + entry.len()].to_vec()
            }
        }
    }

    /// Sets gains and biases so that every convolution's outputs have mean 0 and variance 1 over `images`.
    fn initialise_from(
        &self,
        device: &Device,
        mut theta: Vec<f32>,
        seed: u64,
        images: &[u8],
        group: Option<&Group>,
    ) -> Result<Vec<f32>> {
        let graph = graph(group);
        let own = group.map_or(1, |group| group.own().len());
        let batch = images.len() / self.image_len() / own;
        let shards = Shard::own(group, batch * graph.shards());
        let hierarchy = Hierarchy::with_builder(Builder::initialising(&graph, &self.config), batch);
        hierarchy.hard_elbo();
        let found = hierarchy.builder.found();
        let outputs: Vec<(&str, Var<'_>)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut program = Program::new(device, &graph, &self.layout, &outputs)?;
        let noise = |shard: &Shard| counter(seed, 0).into_iter().chain(shard.number).collect();
        let noise: Vec<Vec<u32>> = shards.iter().map(noise).collect();
        let images = images.chunks_exact(batch * self.image_len());
        let inputs = noise.iter().zip(&shards).zip(images);
        let inputs = inputs.map(|((noise, shard), images)| {
            [
                ("images", Data::U8(images)),
                ("counter", Data::U32(noise)),
                ("tau", one()),
                ("noise_scale", one()),
                shard.rows(),
            ]
        });
        let inputs: Vec<[(&str, Data<'_>); 5]> = inputs.collect();
        let inputs: Vec<&[(&str, Data<'_>)]> = inputs.iter().map(|i| &i[..]).collect();
        program.run_shards(&mut Store::with("theta", theta.clone()), &inputs)?;
        for (name, _) in &found {
            let entry = self.layout.get(name).expect("found by drawing");
            theta[entry.offset..entry.offset + entry.len()].copy_from_slice(&program.output(name)?);
        }
        Ok(theta)
    }
}

/// A graph for one process of a group, or for one alone.
fn graph(group: Option<&Group>) -> Graph {
    match group {
        Some(group) => Graph::new().in_group(group),
        None => Graph::new(),
    }
}

/// A part of the batch that this process works on.
struct Shard {
    /// Its number; none where a process works on whole batches.
    number: Option<u32>,
    /// The numbers of its images in the whole batch.
    rows: Vec<u32>,
}

impl Shard {
    /// The shards of this process, of a whole batch of `batch` images.
    fn own(group: Option<&Group>, batch: usize) -> Vec<Shard> {
        let (shards, own) = group.map_or((1, 0..1), |group| (group.shards(), group.own()));
        let each = batch / shards;
        let shard = |number: usize| Shard {
            number: group.map(|_| number as u32),
            rows: (number * each..(number + 1) * each)
                .map(|row| row as u32)
                .collect(),
        };
        own.map(shard).collect()
    }

    /// The input that some latents need in a group.
    fn rows(&self) -> (&'static str, Data<'_>) {
        (SHARD_ROWS, Data::U32(&self.rows))
    }
}

fn one() -> Data<'static> {
    Data::F32(&[1.0])
}

/// Pictures from the prior, or what their pixels are drawn from.
pub struct Sampler {
    program: Program,
    /// Images of a call.
    pub batch: usize,
}

impl Sampler {
    /// Compiles it for `batch` images.
    pub fn new(device: &Device, model: &Model, batch: usize, pixels: PixelValues) -> Result<Self> {
        let graph = Graph::new();
        let picture = Hierarchy::new(&graph, &model.config, batch).generate(pixels);
        let program = Program::new(device, &graph, &model.layout, &[("picture", picture)])?;
        Ok(Sampler { program, batch })
    }

    /// A batch of pictures: means of the pixels, 0 … 255, or the numbers they are drawn from. `temperature` 1 samples
    /// the prior, less is sharper, 0 takes every layer's mode.
    pub fn run(
        &mut self,
        store: &mut Store,
        noise: [u32; 4],
        temperature: f32,
    ) -> Result<Vec<f32>> {
        let scale = [temperature];
        let mut inputs = vec![("counter", Data::U32(&noise))];
        inputs.extend([("tau", one()), ("noise_scale", Data::F32(&scale))]);
        self.program.run(store, &inputs)?;
        Ok(self.program.output("picture")?.into_owned())
    }
}
