//! A small network that is trained on a data set, whose features pictures are compared by.
//!
//! Convolutions of stride 2 down to a map of 4×4, one more, and the mean over positions. Where images have labels, it is
//! trained to tell them; else features must allow a linear map to draw the image again, made small. It depends on the
//! data set alone, so that all models are judged by the same network, and is kept for the next time.

use super::Points;
use crate::fit::{Batch, fit};
use rrvq::config::ModelConfig;
use rrvq::dataset::{Dataset, Split};
use rrvq::files::write_atomic;
use rrvq::nn::Builder;
use rrvq::picture::Picture;
use rrvq::{Device, Error, Result, cache_dir};
use rrvq_tensor::params::{from_safetensors, to_safetensors};
use rrvq_tensor::rng::philox4x32_10;
use rrvq_tensor::{DType, Data, Graph, Layout, Program, Store, Var};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Numbers of a picture.
pub const WIDTH: usize = 64;
const CHANNELS: usize = 32;
const BATCH: usize = 64;
/// Side of the pictures that are drawn again, at most.
const SMALL: usize = 16;
/// Images whose bytes stand for the data set in the name of the file.
const STAMPED: usize = 64;
/// Changes when the network or its training does.
const VERSION: &str = "1";

/// The network, trained.
pub struct Features {
    device: Device,
    shape: [usize; 3],
    layout: Layout,
    theta: Vec<f32>,
    /// What it was trained for: "labels" or "images".
    pub learnt_from: &'static str,
}

/// Pixels of a batch of images as the network sees them, in (−1, 1).
fn seen(bytes: &[u8]) -> Vec<f32> {
    bytes
        .iter()
        .map(|b| (*b as f32 + 0.5) / 128.0 - 1.0)
        .collect()
}

/// From images [n, h, w, channels] to features [n, 1, 1, WIDTH].
fn network<'g>(builder: &Builder<'g>, x: Var<'g>) -> Var<'g> {
    let mut h = builder.conv("features.1", x, CHANNELS, 3, 2).elu();
    let mut number = 1;
    while h.dim(1) > 4 {
        number += 1;
        let name = format!("features.{number}");
        h = builder.conv(&name, h, WIDTH, 3, 2).elu();
    }
    let h = builder.conv("features.last", h, WIDTH, 3, 1).elu();
    let (n, side) = (h.dim(0), h.dim(1));
    h.sum_to(&[n, 1, 1, WIDTH]) * (1.0 / (side * side) as f32)
}

/// An image made small by averaging, in (−1, 1).
fn small(pixels: &[f32], [height, width, channels]: [usize; 3]) -> Vec<f32> {
    let side = SMALL.min(height).min(width);
    let (down, across) = (height / side, width / side);
    let mut out = vec![0.0; side * side * channels];
    for y in 0..side * down {
        for x in 0..side * across {
            for c in 0..channels {
                out[(y / down * side + x / across) * channels + c] +=
                    pixels[(y * width + x) * channels + c] / (down * across) as f32;
            }
        }
    }
    out
}

/// Labels, and how many classes there are; none where an image has none.
fn labels(data: &dyn Dataset) -> Option<(Vec<u32>, usize)> {
    let labels: Option<Vec<u32>> = (0..data.len(Split::Train))
        .map(|index| data.label(Split::Train, index))
        .collect();
    let labels = labels.filter(|labels| !labels.is_empty())?;
    let classes = *labels.iter().max()? as usize + 1;
    (2..=1000).contains(&classes).then_some((labels, classes))
}

/// The file that features of a data set are kept in; none where nothing is cached.
fn file_of(data: &dyn Dataset, steps: usize, device: &Device) -> Option<PathBuf> {
    let count = data.len(Split::Train);
    let mut bytes = vec![0; data.shape().iter().product()];
    // FNV-1a: a name, not a promise; the file says what it is of.
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for index in 0..STAMPED.min(count) {
        data.read(Split::Train, index, &mut bytes);
        for byte in &bytes {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    let [height, width, channels] = data.shape();
    // A GPU's features differ in the last digits, and distances with them.
    let kind = if device.is_cpu() { "cpu" } else { "gpu" };
    let name = data.name();
    let file = format!(
        "{name}-{height}x{width}x{channels}-{count}-{steps}-{kind}-v{VERSION}-{sum:016x}.safetensors"
    );
    Some(cache_dir()?.join("features").join(file))
}

impl Features {
    /// The network of a data set: the one that is kept, or a new one after `steps` steps.
    pub fn of(device: &Device, data: &dyn Dataset, steps: usize) -> Result<Features> {
        let file = file_of(data, steps, device);
        let known = labels(data);
        let learnt_from = if known.is_some() { "labels" } else { "images" };
        let kept = file.as_ref().and_then(|file| std::fs::read(file).ok());
        if let Some(bytes) = kept {
            // What is damaged is made again.
            let layout = layout(data.shape());
            let read = from_safetensors(&bytes);
            if let Ok(theta) = read.and_then(|tensors| layout.flatten(&tensors, "")) {
                return Ok(Features {
                    device: device.clone(),
                    shape: data.shape(),
                    layout,
                    theta,
                    learnt_from,
                });
            }
        }
        let mut made = Features::train(device, data, known, steps)?;
        made.learnt_from = learnt_from;
        if let Some(file) = file {
            let tensors = made.layout.tensors(&made.theta, "");
            let bytes = to_safetensors(&tensors, &BTreeMap::new())?;
            // A cache that cannot be written is no reason to fail.
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = write_atomic(&file, |out| out.write_all(&bytes));
        }
        Ok(made)
    }

    fn train(
        device: &Device,
        data: &dyn Dataset,
        labels: Option<(Vec<u32>, usize)>,
        steps: usize,
    ) -> Result<Features> {
        let count = data.len(Split::Train);
        if count == 0 {
            return Err(Error::new(format!(
                "data set {} has no training images to learn features from",
                data.name()
            )));
        }
        let shape @ [height, width, channels] = data.shape();
        let config = ModelConfig::default();
        let graph = Graph::new();
        let builder = Builder::new(&graph, &config);
        let x = graph.input("x", &[BATCH, height, width, channels], DType::F32);
        let features = network(&builder, x);
        let side = SMALL.min(height).min(width);
        let outputs = match &labels {
            Some((_, classes)) => *classes,
            None => side * side * channels,
        };
        let found = builder.conv("head", features, outputs, 1, 1);
        let found = found.reshape(&[BATCH, outputs]);
        let wanted = graph.input("wanted", &[BATCH, outputs], DType::F32);
        let loss = match &labels {
            Some(_) => (found.log_softmax() * wanted).sum() * (-1.0 / BATCH as f32),
            None => {
                let error = found - wanted;
                (error * error).sum() * (1.0 / (BATCH * outputs) as f32)
            }
        };
        let each = height * width * channels;
        let mut bytes = vec![0; BATCH * each];
        let (_, theta) = fit(device, &graph, loss, steps, 0, |step| {
            let draw = |row: usize| {
                let counter = [row as u32, step as u32, 0, 0];
                philox4x32_10(counter, [0, 0xfea7])[0] as usize % count
            };
            let rows: Vec<usize> = (0..BATCH).map(draw).collect();
            for (row, out) in rows.iter().zip(bytes.chunks_exact_mut(each)) {
                data.read(Split::Train, *row, out);
            }
            let pixels = seen(&bytes);
            let wanted = match &labels {
                Some((labels, classes)) => {
                    let mut wanted = vec![0.0; BATCH * classes];
                    for (at, row) in rows.iter().enumerate() {
                        wanted[at * classes + labels[*row] as usize] = 1.0;
                    }
                    wanted
                }
                None => {
                    let images = pixels.chunks_exact(each);
                    images.flat_map(|image| small(image, shape)).collect()
                }
            };
            let batch: Batch = vec![("x", pixels), ("wanted", wanted)];
            Ok(batch)
        })?;
        let whole = graph.layout();
        let layout = layout(shape);
        // The head is left behind.
        let kept = layout.entries().iter().map(|entry| {
            let from = whole.get(&entry.name);
            let from =
                from.ok_or_else(|| Error::new("features have no network; please report this"))?;
            Ok(&theta[from.offset..from.offset + from.len()])
        });
        let mut values = vec![0.0; layout.len()];
        for (entry, kept) in layout
            .entries()
            .iter()
            .zip(kept.collect::<Result<Vec<_>>>()?)
        {
            values[entry.offset..entry.offset + entry.len()].copy_from_slice(kept);
        }
        Ok(Features {
            device: device.clone(),
            shape,
            layout,
            theta: values,
            learnt_from: "",
        })
    }

    /// The features of pictures.
    pub fn of_pictures(&self, pictures: &[Picture]) -> Result<Points> {
        if let Some(odd) = pictures.iter().find(|p| p.shape() != self.shape) {
            return Err(Error::new(format!(
                "a picture is {:?}, but the features are of {:?}; only pictures of the data set's size can be compared",
                odd.shape(),
                self.shape
            )));
        }
        let [height, width, channels] = self.shape;
        let config = ModelConfig::default();
        let graph = Graph::new();
        let x = graph.input("x", &[BATCH, height, width, channels], DType::F32);
        let found = network(&Builder::new(&graph, &config), x);
        let mut program = Program::new(&self.device, &graph, &self.layout, &[("features", found)])?;
        let mut store = Store::with("theta", self.theta.clone());
        let mut values = Vec::with_capacity(pictures.len() * WIDTH);
        for some in pictures.chunks(BATCH) {
            rrvq::interrupt::check()?;
            let bytes: Vec<u8> = some.iter().flat_map(|p| p.pixels()).copied().collect();
            let mut pixels = seen(&bytes);
            pixels.resize(BATCH * height * width * channels, 0.0);
            program.run(&mut store, &[("x", Data::F32(&pixels))])?;
            let found = program.output("features")?;
            values.extend_from_slice(&found[..some.len() * WIDTH]);
        }
        Ok(Points {
            width: WIDTH,
            values,
        })
    }
}

/// The places of the network's parameters, without the head's.
fn layout([height, width, channels]: [usize; 3]) -> Layout {
    let config = ModelConfig::default();
    let graph = Graph::new();
    let x = graph.input("x", &[1, height, width, channels], DType::F32);
    network(&Builder::new(&graph, &config), x);
    graph.layout()
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use super::*;
    use rrvq::config::Config;
    use rrvq::dataset::Swatches;

    #[test]
    fn features_tell_images_of_the_set_from_others() {
        let data = Swatches::for_config(&Config::preset("tiny-swatches").unwrap());
        let features = Features::train(&Device::Cpu, &data, None, 150).unwrap();
        let images = crate::framework::first_images(&data, Split::Train, 256).unwrap();
        let of = |pictures: &[Picture]| features.of_pictures(pictures).unwrap();
        let (real, others) = (of(&images[..128]), of(&images[128..]));
        let alike = compare(&real, &others).unwrap();
        let patched: Vec<Picture> = images[128..]
            .iter()
            .enumerate()
            .map(|(i, picture)| {
                let noise = |(at, byte): (usize, &u8)| byte.wrapping_add((at * 73 + i * 31) as u8);
                let pixels = picture.pixels().iter().enumerate().map(noise);
                Picture::new(picture.shape(), pixels.collect()).unwrap()
            })
            .collect();
        let odd = compare(&real, &of(&patched)).unwrap();
        assert!(odd.frechet > 10.0 * alike.frechet, "{odd:?} {alike:?}");
        assert!(odd.precision < alike.precision, "{odd:?} {alike:?}");
    }

    #[test]
    fn images_are_made_small_by_averaging() {
        let image: Vec<f32> = (0..32 * 32).map(|i| (i % 32 / 2) as f32).collect();
        let small = small(&image, [32, 32, 1]);
        assert_eq!(small.len(), 256);
        assert_eq!(&small[..3], [0.0, 1.0, 2.0]);
    }
}
