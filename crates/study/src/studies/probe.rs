//! A small convolutional network that tells digits: from the embeddings of a layer, or from pixels.

use crate::fit::fit;
use rrvq::config::ModelConfig;
use rrvq::nn::Builder;
use rrvq::picture::Picture;
use rrvq::{Device, Result};
use rrvq_tensor::rng::philox4x32_10;
use rrvq_tensor::{DType, Data, Graph, Program, Store, Var};

pub const CLASSES: usize = 10;
pub const BATCH: usize = 64;
const CHANNELS: usize = 32;

/// What the network is, in words.
pub fn about() -> String {
    format!(
        "a convolution of {CHANNELS} channels, convolutions of stride 2 until the map has 4 × 4 positions, one more, the mean over positions, ten logits"
    )
}

/// Maps of numbers, embeddings or pixels, with the digits they show.
pub struct Examples {
    /// Rows and columns of a map, and numbers of a position.
    pub side: usize,
    pub width: usize,
    pub values: Vec<f32>,
    pub labels: Vec<usize>,
}

impl Examples {
    /// Pixels of square pictures, between −½ and ½.
    pub fn of_pictures(pictures: &[Picture], labels: Vec<usize>) -> Examples {
        let [side, _, width] = pictures.first().map_or([1, 1, 1], Picture::shape);
        let pixels = pictures.iter().flat_map(|picture| picture.pixels());
        Examples {
            side,
            width,
            values: pixels.map(|&v| v as f32 / 255.0 - 0.5).collect(),
            labels,
        }
    }

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn each(&self) -> usize {
        self.side * self.side * self.width
    }

    /// A batch, padded with the first example, and the one-hot labels of it.
    fn batch(&self, which: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let (mut values, mut labels) = (Vec::new(), vec![0.0; BATCH * CLASSES]);
        for row in 0..BATCH {
            let at = which.get(row).copied().unwrap_or(0);
            values.extend_from_slice(&self.values[at * self.each()..][..self.each()]);
            labels[row * CLASSES + self.labels[at]] = 1.0;
        }
        (values, labels)
    }
}

/// Two convolutions, more of stride 2 until the map is small, the mean over it, and logits.
fn classifier<'g>(builder: &Builder<'g>, x: Var<'g>) -> Var<'g> {
    let mut h = builder.conv("probe.1", x, CHANNELS, 3, 1).elu();
    let mut number = 1;
    while h.dim(1) > 4 {
        number += 1;
        let out = (h.dim(3) * 2).min(4 * CHANNELS);
        h = builder.conv(&format!("probe.{number}"), h, out, 3, 2).elu();
    }
    let h = builder.conv("probe.last", h, 2 * CHANNELS, 3, 1).elu();
    let (n, side, channels) = (h.dim(0), h.dim(1), h.dim(3));
    let pooled = h.sum_to(&[n, 1, 1, channels]) * (1.0 / (side * side) as f32);
    builder
        .conv("probe.logits", pooled, CLASSES, 1, 1)
        .reshape(&[n, CLASSES])
}

/// A trained network.
pub struct Probe {
    program: Program,
    store: Store,
}

impl Probe {
    pub fn train(device: &Device, train: &Examples, steps: usize, seed: u64) -> Result<Probe> {
        let config = ModelConfig::default();
        let shape = [BATCH, train.side, train.side, train.width];
        let graph = Graph::new();
        let x = graph.input("x", &shape, DType::F32);
        let wanted = graph.input("labels", &[BATCH, CLASSES], DType::F32);
        let logits = classifier(&Builder::new(&graph, &config), x);
        let loss = (logits.log_softmax() * wanted).sum() * (-1.0 / BATCH as f32);
        let (layout, theta) = fit(device, &graph, loss, steps, seed, |step| {
            let draw = |row: usize| {
                let counter = [row as u32, step as u32, 0, 0];
                philox4x32_10(counter, [seed as u32, 0x9d0b])[0] as usize % train.len()
            };
            let rows: Vec<usize> = (0..BATCH).map(draw).collect();
            let (values, labels) = train.batch(&rows);
            Ok(vec![("x", values), ("labels", labels)])
        })?;
        let graph = Graph::new();
        let x = graph.input("x", &shape, DType::F32);
        let found = classifier(&Builder::new(&graph, &config), x).argmax_last();
        Ok(Probe {
            program: Program::new(device, &graph, &layout, &[("found", found)])?,
            store: Store::with("theta", theta),
        })
    }

    /// The digit it sees in each example.
    pub fn digits(&mut self, examples: &Examples) -> Result<Vec<usize>> {
        let all: Vec<usize> = (0..examples.len()).collect();
        let mut digits = Vec::with_capacity(all.len());
        for rows in all.chunks(BATCH) {
            let (values, _) = examples.batch(rows);
            self.program
                .run(&mut self.store, &[("x", Data::F32(&values))])?;
            let found = self.program.output_u32("found")?;
            digits.extend(found[..rows.len()].iter().map(|&digit| digit as usize));
        }
        Ok(digits)
    }

    /// The share of examples whose digit it sees.
    pub fn accuracy(&mut self, test: &Examples) -> Result<f64> {
        let digits = self.digits(test)?;
        let right = digits.iter().zip(&test.labels).filter(|(a, b)| a == b);
        Ok(right.count() as f64 / test.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_classifier_learns_what_its_examples_tell() {
        // The class is a number in one corner of the map.
        let of = |first: usize, count: usize| {
            let labels: Vec<usize> = (first..first + count).map(|i| i * 7 % CLASSES).collect();
            let values = labels.iter().flat_map(|label| {
                let mut map = vec![0.1; 2 * 2 * CLASSES];
                map[*label] = 1.0;
                map
            });
            Examples {
                side: 2,
                width: CLASSES,
                values: values.collect(),
                labels,
            }
        };
        let (train, test) = (of(0, 200), of(200, 100));
        let mut probe = Probe::train(&Device::Cpu, &train, 60, 1).unwrap();
        let right = probe.accuracy(&test).unwrap();
        assert!(right > 0.95, "{right}");
        let mut wrong = of(200, 100);
        wrong
            .labels
            .iter_mut()
            .for_each(|l| *l = (*l + 1) % CLASSES);
        assert!(probe.accuracy(&wrong).unwrap() < 0.05);
    }
}
