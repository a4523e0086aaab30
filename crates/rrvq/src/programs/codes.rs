//! From images to codes and from codes to pictures.

use super::{Model, one};
use crate::error::{Error, Result};
use crate::latent;
use crate::likelihood::PixelValues;
use crate::model::Hierarchy;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{DType, Data, Device, Graph, Program, Store, Var};

/// What the codes of a layer are called among a program's inputs and outputs.
fn name(layer: usize) -> String {
    format!("codes.{}", layer + 1)
}

/// Refuses a model whose latents are no codes.
pub(super) fn check_coded(model: &Model) -> Result<()> {
    match latent::of(&model.config).coded() {
        Some(_) => Ok(()),
        None => Err(Error::new(format!(
            "a model whose model.latent is \"{}\" has no codes; use one whose latents are codes",
            model.config.latent
        ))),
    }
}

/// The posterior's codes of images.
pub struct Encoder {
    program: Program,
    /// Images at once.
    pub batch: usize,
    image_len: usize,
    layers: usize,
}

impl Encoder {
    /// Compiles the up and down pass of `model` for batches of `batch` images.
    pub fn new(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        check_coded(model)?;
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &model.config, batch).hard_elbo();
        let names: Vec<String> = (0..elbo.codes.len()).map(name).collect();
        let outputs: Vec<(&str, Var<'_>)> = names
            .iter()
            .zip(&elbo.codes)
            .map(|(n, v)| (n.as_str(), *v))
            .collect();
        Ok(Encoder {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
            batch,
            image_len: model.image_len(),
            layers: names.len(),
        })
    }

    /// Codes of images, a batch or fewer: of each layer, bottom first, image by image and position by position. With a
    /// `noise_scale` of 0 they are the most likely ones given those above, with 1 they are a sample.
    pub fn run(
        &mut self,
        store: &mut Store,
        images: &[u8],
        noise: [u32; 4],
        noise_scale: f32,
    ) -> Result<Vec<Vec<u32>>> {
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
        let of_layer = |layer| {
            let mut codes = self.program.output_u32(&name(layer))?;
            codes.truncate(codes.len() / self.batch * count);
            Ok(codes)
        };
        (0..self.layers).map(of_layer).collect()
    }

    /// The codes of the bottom layer, of a posterior that is certain.
    pub(crate) fn bottom(&mut self, store: &mut Store, images: &[u8]) -> Result<Vec<u32>> {
        let mut layers = self.run(store, images, counter(0, 0), 1.0)?;
        Ok(layers.swap_remove(0))
    }
}

/// Pictures of codes; the prior draws the layers that are not given.
pub struct Decoder {
    program: Program,
    /// Pictures at once.
    pub batch: usize,
    layers: usize,
    given: usize,
}

impl Decoder {
    /// Compiles the down pass of `model` with the codes of the topmost `given` layers as inputs.
    pub fn new(
        device: &Device,
        model: &Model,
        batch: usize,
        given: usize,
        pixels: PixelValues,
    ) -> Result<Self> {
        check_coded(model)?;
        let graph = Graph::new();
        let hierarchy = Hierarchy::new(&graph, &model.config, batch);
        let layers = hierarchy.layers();
        let top: Vec<Var<'_>> = (layers - given..layers)
            .rev()
            .map(|layer| graph.input(&name(layer), &[hierarchy.rows(layer), 1], DType::U32))
            .collect();
        let (picture, codes) = hierarchy.complete(&top, pixels);
        let names: Vec<String> = (0..layers - given).map(name).collect();
        let mut outputs: Vec<(&str, Var<'_>)> = names
            .iter()
            .zip(&codes)
            .map(|(n, v)| (n.as_str(), *v))
            .collect();
        outputs.push(("picture", picture));
        Ok(Decoder {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
            batch,
            layers,
            given,
        })
    }

    /// Means of the pixels of a whole batch, 0 … 255, or the numbers they are drawn from; `codes` are those of the given layers, bottom first. `temperature`
    /// is that of the layers the prior draws.
    pub fn run(
        &mut self,
        store: &mut Store,
        codes: &[&[u32]],
        noise: [u32; 4],
        temperature: f32,
    ) -> Result<Vec<f32>> {
        let free = self.layers - self.given;
        let names: Vec<String> = (free..self.layers).map(name).collect();
        let scale = [temperature];
        let mut inputs: Vec<(&str, Data<'_>)> = names
            .iter()
            .zip(codes)
            .map(|(n, codes)| (n.as_str(), Data::U32(codes)))
            .collect();
        if free > 0 {
            inputs.extend([
                ("counter", Data::U32(&noise)),
                ("tau", one()),
                ("noise_scale", Data::F32(&scale)),
            ]);
        }
        self.program.run(store, &inputs)?;
        Ok(self.program.output("picture")?.into_owned())
    }

    /// The codes that the prior drew in the last run, bottom layer first.
    pub fn drawn(&self) -> Result<Vec<Vec<u32>>> {
        let free = self.layers - self.given;
        let drawn = (0..free).map(|layer| self.program.output_u32(&name(layer)));
        Ok(drawn.collect::<rrvq_tensor::Result<_>>()?)
    }
}
