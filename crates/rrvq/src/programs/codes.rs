//! From images to codes and from codes to pictures, for whoever works on codes alone.

use super::{Model, one};
use crate::error::Result;
use crate::model::Hierarchy;
use rrvq_tensor::device::counter;
use rrvq_tensor::{DType, Data, Device, Graph, Program, Store};

/// The codes of the bottom layer, for models of nearest codes.
pub struct Coder {
    program: Program,
    batch: usize,
    image_len: usize,
}

impl Coder {
    pub fn new(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &model.config, batch).hard_elbo();
        Ok(Coder {
            program: Program::new(device, &graph, &model.layout, &[("codes", elbo.codes[0])])?,
            batch,
            image_len: model.image_len(),
        })
    }

    /// Codes of images, a batch or fewer, position by position.
    pub fn run(&mut self, store: &mut Store, images: &[u8]) -> Result<Vec<u32>> {
        let count = images.len() / self.image_len;
        let mut padded = images.to_vec();
        padded.resize(self.batch * self.image_len, 0);
        let noise = counter(0, 0);
        let inputs = [
            ("images", Data::U8(&padded)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", one()),
        ];
        self.program.run(store, &inputs)?;
        let mut codes = self.program.output_u32("codes")?;
        codes.truncate(codes.len() / self.batch * count);
        Ok(codes)
    }
}

/// Pictures of the codes of a model with one layer.
pub struct Decoder {
    program: Program,
}

impl Decoder {
    pub fn new(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        let graph = Graph::new();
        let side = model.config.sides()[0];
        let codes = graph.input("codes", &[batch * side * side, 1], DType::U32);
        let picture = Hierarchy::new(&graph, &model.config, batch).picture_of(&[codes]);
        let outputs = [("picture", picture)];
        Ok(Decoder {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
        })
    }

    /// Means of the pixels, 0 … 255, of a whole batch of codes.
    pub fn run(&mut self, store: &mut Store, codes: &[u32]) -> Result<Vec<f32>> {
        self.program.run(store, &[("codes", Data::U32(codes))])?;
        Ok(self.program.output("picture")?.into_owned())
    }
}
