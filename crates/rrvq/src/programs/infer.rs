//! What the posterior finds in images: scores, log weights, reconstructions.
//!
//! Each question is a program of its own that computes and hands over nothing else. A score is one number for each
//! image and layer and one count for each code, however large the maps are.

use super::{Model, one};
use crate::error::Result;
use crate::latent;
use crate::model::Hierarchy;
use rrvq_tensor::device::{Frame, RowBank};
use rrvq_tensor::{DType, Data, Device, Graph, Group, Program, Store, Var};

/// One question about each image of a batch.
pub struct Inference {
    program: Program,
    /// Images of a call.
    pub batch: usize,
    image_len: usize,
}

const ANSWER: &str = "answer";

impl Inference {
    /// Mean of each pixel after the posterior's codes, 0 … 255.
    pub fn pictures(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        Self::new(device, model, batch, |hierarchy| {
            hierarchy.hard_elbo().picture
        })
    }

    /// log p(x, z) − log q(z | x) of a sample for each image, which an importance bound needs.
    pub fn weights(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        Self::new(device, model, batch, |hierarchy| {
            let elbo = hierarchy.weighed_elbo();
            elbo.log_weight.expect("weighed")
        })
    }

    fn new(
        device: &Device,
        model: &Model,
        batch: usize,
        draw: impl for<'g> Fn(&Hierarchy<'g>) -> Var<'g>,
    ) -> Result<Self> {
        let graph = Graph::new();
        let answer = draw(&Hierarchy::new(&graph, &model.config, batch));
        Ok(Inference {
            program: Program::new(device, &graph, &model.layout, &[(ANSWER, answer)])?,
            batch,
            image_len: model.image_len(),
        })
    }

    /// `noise_scale` 1 samples the posterior, 0 takes its modes. `images` may be fewer than a batch.
    pub fn run(
        &mut self,
        store: &mut Store,
        images: &[u8],
        noise: [u32; 4],
        noise_scale: f32,
    ) -> Result<Vec<f32>> {
        let count = images.len() / self.image_len;
        let mut padded = images.to_vec();
        padded.resize(self.batch * self.image_len, 0);
        let scale = [noise_scale];
        let inputs = [
            ("images", Data::U8(&padded)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", Data::F32(&scale)),
        ];
        self.program.run(store, &inputs)?;
        let mut all = self.program.output(ANSWER)?.into_owned();
        all.truncate(all.len() / self.batch * count);
        Ok(all)
    }
}

/// The ELBO with hard samples, image by image, and how often each code was drawn.
pub struct Scorer {
    program: Program,
    /// Images of a call.
    pub batch: usize,
    image_len: usize,
    layers: usize,
    /// Codes of each layer, bottom first; none where latents are Gaussians.
    codes: Vec<usize>,
    /// Layers whose embeddings it measures.
    embeddings: usize,
    /// Whether it scores squared errors, too.
    errors: bool,
}

/// What a scorer finds in the images of a batch.
pub struct Scores {
    /// Nats of each image.
    pub log_likelihood: Vec<f32>,
    /// Nats of each image, for each layer, bottom first.
    pub kl: Vec<Vec<f32>>,
    /// How often each code of each layer was drawn; empty where there are no codes.
    pub tally: Vec<Vec<u64>>,
    /// Mean square of the numbers of each image's embeddings, for each layer, bottom first; empty where there are none.
    pub embedding_squares: Vec<Vec<f32>>,
    /// Squared error of each image's means, in steps of a byte; none where it was not asked for.
    pub squared_error: Option<Vec<f32>>,
}

impl Scorer {
    /// Compiles it for `batch` images.
    pub fn new(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        Self::of_graph(device, model, batch, Graph::new(), false)
    }

    /// The same with squared errors.
    pub fn with_errors(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        Self::of_graph(device, model, batch, Graph::new(), true)
    }

    /// The same for parts of larger batches, `batch` images each: a fifth word of the noise is the number of the part.
    pub fn of_parts(device: &Device, model: &Model, batch: usize, errors: bool) -> Result<Self> {
        let graph = Graph::new().in_group(&Group::alone(1));
        Self::of_graph(device, model, batch, graph, errors)
    }

    fn of_graph(
        device: &Device,
        model: &Model,
        batch: usize,
        graph: Graph,
        errors: bool,
    ) -> Result<Self> {
        let elbo = Hierarchy::new(&graph, &model.config, batch).hard_elbo();
        let codes: Vec<usize> = (0..elbo.codes.len())
            .filter_map(|layer| latent::codes(&model.config, layer))
            .collect();
        // Zero for the images that only fill a last batch up.
        let counted = graph.input("counted", &[batch, 1], DType::F32);
        let mut tallies = Vec::new();
        for (drawn, &codes) in elbo.codes.iter().zip(&codes) {
            let each = drawn.size() / batch;
            let counted = counted.broadcast(&[batch, each]);
            tallies.push(drawn.scatter_add(counted.reshape(&[batch * each, 1]), codes));
        }
        let mut outputs = vec![
            ("log_likelihood", elbo.log_likelihood),
            ("kl", graph.concat(&elbo.kl, 0)),
        ];
        if !tallies.is_empty() {
            outputs.push(("tally", graph.concat(&tallies, 0)));
        }
        let squares = elbo.embeddings.iter().map(|e| {
            let each = e.size() / batch;
            e.square().reshape(&[batch, each]).sum_last() * (1.0 / each as f32)
        });
        let squares: Vec<Var<'_>> = squares.collect();
        if !squares.is_empty() {
            outputs.push(("embedding_squares", graph.concat(&squares, 0)));
        }
        if errors {
            outputs.push(("squared_error", elbo.squared_error));
        }
        Ok(Scorer {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
            batch,
            image_len: model.image_len(),
            layers: elbo.kl.len(),
            codes,
            embeddings: squares.len(),
            errors,
        })
    }

    /// The names of the outputs, in the order they are compiled in.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let tally = (!self.codes.is_empty()).then_some("tally");
        let squares = (self.embeddings > 0).then_some("embedding_squares");
        let errors = self.errors.then_some("squared_error");
        ["log_likelihood", "kl"]
            .into_iter()
            .chain(tally)
            .chain(squares)
            .chain(errors)
    }

    /// What it was compiled to.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Bytes a batch works in, on its device.
    pub fn bytes(&self) -> usize {
        self.program.bytes()
    }

    /// Scores images, a batch or fewer.
    pub fn run(&mut self, store: &mut Store, images: &[u8], noise: &[u32]) -> Result<Scores> {
        let count = images.len() / self.image_len;
        let mut padded = images.to_vec();
        padded.resize(self.batch * self.image_len, 0);
        let counted = self.counted(count);
        let mut inputs = named(noise, &counted);
        inputs.push(("images", Data::U8(&padded)));
        self.program.run(store, &inputs)?;
        let mut values = Vec::new();
        for name in self.names() {
            values.extend_from_slice(&self.program.output(name)?);
        }
        Ok(self.scores(&values, count))
    }

    /// Scores images that lie on the device: for each batch, the number of its first one, how many follow it, and
    /// its noise.
    pub fn replay(
        &mut self,
        store: &mut Store,
        bank: &RowBank,
        batches: &[(u32, usize, Vec<u32>)],
    ) -> Result<Vec<Scores>> {
        let rows = |&(first, count, _): &(u32, usize, Vec<u32>)| -> Vec<u32> {
            let last = count.saturating_sub(1) as u32;
            (0..self.batch as u32)
                .map(|i| first + i.min(last))
                .collect()
        };
        let rows: Vec<Vec<u32>> = batches.iter().map(rows).collect();
        let counted: Vec<Vec<f32>> = batches.iter().map(|b| self.counted(b.1)).collect();
        let inputs: Vec<_> = batches
            .iter()
            .zip(&counted)
            .map(|((_, _, noise), counted)| named(noise, counted))
            .collect();
        let frames: Vec<Frame<'_>> = inputs
            .iter()
            .zip(&rows)
            .map(|(inputs, rows)| Frame {
                inputs,
                rows,
                gathered: "images",
            })
            .collect();
        let found = self.program.replay(store, bank, &frames)?;
        let found = found.iter().zip(batches);
        Ok(found.map(|(v, b)| self.scores(v, b.1)).collect())
    }

    fn counted(&self, count: usize) -> Vec<f32> {
        (0..self.batch)
            .map(|i| if i < count { 1.0 } else { 0.0 })
            .collect()
    }

    /// All outputs one after another, for the first `count` images.
    fn scores(&self, values: &[f32], count: usize) -> Scores {
        let (log_likelihood, rest) = values.split_at(self.batch);
        let (kl, rest) = rest.split_at(self.batch * self.layers);
        let (mut tally, rest) = rest.split_at(self.codes.iter().sum());
        let (squares, errors) = rest.split_at(self.batch * self.embeddings);
        let take = |codes: &usize| {
            let (here, rest) = tally.split_at(*codes);
            tally = rest;
            here.iter().map(|v| *v as u64).collect()
        };
        let of_layers = |values: &[f32]| {
            let layers = values.chunks_exact(self.batch);
            layers.map(|layer| layer[..count].to_vec()).collect()
        };
        Scores {
            log_likelihood: log_likelihood[..count].to_vec(),
            kl: of_layers(kl),
            tally: self.codes.iter().map(take).collect(),
            embedding_squares: of_layers(squares),
            squared_error: self.errors.then(|| errors[..count].to_vec()),
        }
    }
}

fn named<'a>(noise: &'a [u32], counted: &'a [f32]) -> Vec<(&'a str, Data<'a>)> {
    vec![
        ("counter", Data::U32(noise)),
        ("tau", one()),
        ("noise_scale", one()),
        ("counted", Data::F32(counted)),
    ]
}
