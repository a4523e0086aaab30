//! Table 2: how well a small convolutional network tells digits from the embeddings of a layer.

use super::models::{five_layers, one_layer};
use super::spread::Spread;
use crate::fit::fit;
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::{Chart, Series};
use rrvq::config::ModelConfig;
use rrvq::dataset::Split;
use rrvq::nn::Builder;
use rrvq::{CodeMap, Device, Error, Result};
use rrvq_tensor::rng::philox4x32_10;
use rrvq_tensor::{DType, Data, Graph, Program, Store, Var};

/// Table 2.
pub struct Table2;

const CLASSES: usize = 10;
const BATCH: usize = 64;
const CHANNELS: usize = 32;
/// Runs of each classifier.
const RUNS: u64 = 4;

/// Embeddings of a layer with the digits they show.
struct Examples {
    /// Rows and columns of a map, and dimensions of an embedding.
    side: usize,
    width: usize,
    values: Vec<f32>,
    labels: Vec<usize>,
}

impl Examples {
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

/// Means of the codes of a map.
fn embedded(trial: &Trial, map: &CodeMap) -> Result<(usize, Vec<f32>)> {
    let (means, width) = trial.code_means(map.layer)?;
    let codes = map.values.iter();
    let values = codes.flat_map(|&code| &means[code as usize * width..][..width]);
    Ok((width, values.copied().collect()))
}

/// The embeddings of every layer, bottom first, of the labelled images of a split.
fn examples(trial: &Trial, split: Split, most: usize) -> Result<Vec<Examples>> {
    let data = trial.data.as_ref();
    let mut bytes = vec![0; data.shape().iter().product()];
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for index in 0..data.len(split).min(most) {
        if let Some(label) = data.label(split, index) {
            data.read(split, index, &mut bytes);
            images.extend_from_slice(&bytes);
            labels.push(label as usize % CLASSES);
        }
    }
    if labels.is_empty() {
        return Err(Error::new(format!(
            "data set {} has no labels in its {split} images; the digit probe needs them",
            data.name()
        )));
    }
    let codes = trial.trained.encode_bytes(&images)?;
    let layer = |map: &CodeMap| {
        let (width, values) = embedded(trial, map)?;
        Ok(Examples {
            side: map.side,
            width,
            values,
            labels: labels.clone(),
        })
    };
    codes.layers.iter().map(layer).collect()
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

/// Trains a classifier and gives its accuracy on the test examples.
fn accuracy(
    device: &Device,
    train: &Examples,
    test: &Examples,
    steps: usize,
    seed: u64,
) -> Result<f64> {
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
    let mut program = Program::new(device, &graph, &layout, &[("found", found)])?;
    let mut store = Store::with("theta", theta);
    let all: Vec<usize> = (0..test.len()).collect();
    let mut right = 0;
    for rows in all.chunks(BATCH) {
        let (values, _) = test.batch(rows);
        program.run(&mut store, &[("x", Data::F32(&values))])?;
        let found = program.output_u32("found")?;
        let is_right = |(row, found): (&usize, &u32)| test.labels[*row] == *found as usize;
        right += rows.iter().zip(&found).filter(|p| is_right(*p)).count();
    }
    Ok(right as f64 / test.len() as f64)
}

impl Study for Table2 {
    fn name(&self) -> &'static str {
        "table2"
    }

    fn about(&self) -> &'static str {
        "the digit probe: a small convolutional classifier on the embeddings of each layer, SVHN (Table 2)"
    }

    fn paper(&self) -> &'static str {
        "test accuracy of small convolutional networks on SVHN embeddings, four runs: rVQ 0.578 ± 0.008, layer 2 of RRVQ L5 0.626 ± 0.007. Which network is not said."
    }

    fn data(&self) -> &'static [&'static str] {
        &["svhn"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.2,
            Scale::Quick => 1.5,
            Scale::Full => 10.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        Ok(vec![
            one_layer(context, "svhn")?,
            five_layers(context, "svhn")?,
        ])
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let steps = context.by_scale(4, 400, 6000);
        let most = context.by_scale(64, 10_000, 100_000);
        let runs = context.by_scale(1, RUNS, RUNS);
        section.seeds = 1;
        let trials = context.train(self.models(context)?)?;
        let device = context.device().clone();
        let mut found = Vec::new();
        for (trial, model) in trials.iter().zip(["rVQ", "RRVQ"]) {
            let train = examples(trial, Split::Train, most)?;
            let test = examples(trial, Split::Test, most)?;
            for (layer, (train, test)) in train.iter().zip(&test).enumerate() {
                let scores: Result<Vec<f64>> = (0..runs)
                    .map(|seed| accuracy(&device, train, test, steps, seed))
                    .collect();
                found.push((model, layer + 1, train.side, Spread::of(&scores?)));
            }
        }
        let rows: Vec<Vec<String>> = found
            .iter()
            .map(|(model, layer, side, score)| {
                vec![
                    model.to_string(),
                    layer.to_string(),
                    format!("{side} × {side}"),
                    format!("{:.3}", score.mean),
                    format!("{:.3}", score.deviation),
                ]
            })
            .collect();
        section.paragraph(&format!("The classifier: a convolution of {CHANNELS} channels, convolutions of stride 2 until the map has 4 × 4 positions, one more, the mean over positions, ten logits; Adam, {steps} steps of {BATCH} examples, {runs} runs. Its input are the means of the most likely codes of one layer."));
        section.table(
            "numbers",
            &[
                "model",
                "layer",
                "map",
                "test accuracy",
                "standard deviation",
            ],
            &rows,
        )?;
        let of_layers = found.iter().filter(|f| f.0 == "RRVQ");
        let points: Vec<(f64, f64)> = of_layers.map(|f| (f.1 as f64, f.3.mean)).collect();
        let of_rvq = found[0].3;
        let across = vec![(1.0, of_rvq.mean), (points.len() as f64, of_rvq.mean)];
        section.chart(
            "probe",
            &Chart {
                title: "Digits told from the embeddings of one layer".into(),
                x_label: "layer, 1 at the bottom".into(),
                y_label: "test accuracy".into(),
                dots: true,
                series: vec![
                    Series::new("RRVQ, five layers", points),
                    Series::new("rVQ, its one layer", across),
                ],
                ..Chart::default()
            },
        )?;
        let layer = |number: usize| found.iter().find(|f| f.0 == "RRVQ" && f.1 == number);
        let second = layer(2).map_or(Spread::of(&[]), |f| f.3);
        section.claim(
            "Digits are easier to tell from layer 2 of the hierarchy than from rVQ's one layer.",
            "0.626 ± 0.007 against 0.578 ± 0.008",
            format!("{second} against {of_rvq}"),
            Verdict::below(of_rvq.mean, second.mean, of_rvq.noise(&second)),
        );
        let others = found.iter().filter(|f| f.0 == "RRVQ" && f.1 != 2);
        if let Some(best) = others.max_by(|a, b| a.3.mean.total_cmp(&b.3.mean)) {
            section.claim(
                "Of the five layers, the second knows the digit best.",
                "layer 2, by eye",
                format!("{second}; of the others layer {} has {}", best.1, best.3),
                Verdict::below(best.3.mean, second.mean, best.3.noise(&second)),
            );
        }
        Ok(())
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
        let right = accuracy(&Device::Cpu, &train, &test, 60, 1).unwrap();
        assert!(right > 0.95, "{right}");
        let mut wrong = of(200, 100);
        wrong
            .labels
            .iter_mut()
            .for_each(|l| *l = (*l + 1) % CLASSES);
        assert!(accuracy(&Device::Cpu, &train, &wrong, 60, 1).unwrap() < 0.05);
    }
}
