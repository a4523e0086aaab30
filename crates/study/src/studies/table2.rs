//! Table 2: how well a small convolutional network tells digits from the embeddings of a layer.

use super::models::{five_layers, one_layer};
use super::probe::{self, CLASSES, Examples, Probe};
use super::spread::Spread;
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::{Chart, Series};
use rrvq::dataset::Split;
use rrvq::{CodeMap, Error, Result};

/// Table 2.
pub struct Table2;

/// Runs of each classifier.
const RUNS: u64 = 4;

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
                    .map(|seed| Probe::train(&device, train, steps, seed)?.accuracy(test))
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
        section.paragraph(&format!("The classifier: {}; Adam, {steps} steps of {} examples, {runs} runs. Its input are the means of the most likely codes of one layer.", probe::about(), probe::BATCH));
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
