//! Table 1: bits per dim of all systems on all data sets.

use super::models::{continuous, deepest, on_cifar10, one_layer};
use super::spread::{Spread, bits, codes_in_use, from_each_seed};
use crate::framework::{Context, Scale, Section, Study, Trial, Verdict, Wanted};
use crate::report::{Chart, Series};
use rrvq::Result;
use rrvq::dataset::Split;
use rrvq::evaluate::EvalRecord;
use rrvq::train::log::Record;

/// Table 1.
pub struct Table1;

/// A row of the paper's: system, test and train bits per dim.
struct Row {
    system: &'static str,
    test: f64,
    train: Option<f64>,
}

const fn row(system: &'static str, test: f64, train: Option<f64>) -> Row {
    Row {
        system,
        test,
        train,
    }
}

const RVQ: &str = "rVQ-VAE";
const RRVQ: &str = "RRVQ-VAE";
const SPATIAL: &str = "Spatial-VAE";

/// The paper's numbers by data set.
const PAPER: [(&str, &[Row]); 3] = [
    (
        "cifar10",
        &[
            row("VIMCO", 5.14, None),
            row(RVQ, 4.77, Some(4.87)),
            row("FouST, L = 4", 4.16, None),
            row("FouST, L = 1", 4.02, None),
            row(RRVQ, 3.94, Some(3.81)),
            row(SPATIAL, 3.55, Some(3.49)),
        ],
    ),
    (
        "svhn",
        &[
            row(RVQ, 3.73, Some(4.17)),
            row(RRVQ, 2.30, Some(2.52)),
            row(SPATIAL, 1.94, Some(2.07)),
        ],
    ),
    (
        "celeba",
        &[
            row(RVQ, 5.31, Some(5.31)),
            row(RRVQ, 2.97, Some(2.97)),
            row(SPATIAL, 2.54, Some(2.58)),
        ],
    ),
];

fn wanted(context: &Context<'_>, data: &str, system: &str) -> Result<Wanted> {
    match system {
        "VIMCO" => on_cifar10(context, "small-vimco-cifar10", "vimco-cifar10"),
        "FouST, L = 4" => on_cifar10(context, "small-foust4-cifar10", "foust4-cifar10"),
        "FouST, L = 1" => on_cifar10(context, "small-foust1-cifar10", "foust1-cifar10"),
        RVQ => one_layer(context, data),
        RRVQ => deepest(context, data),
        _ => continuous(context, data),
    }
}

/// Test bits by minutes of training, as evaluated on the way.
fn curve(name: &str, trial: &Trial) -> Series {
    let (mut seconds, mut points) = (0.0, Vec::new());
    for record in &trial.records {
        match record {
            Record::Train(train) => seconds = train.seconds,
            Record::Eval(eval) => points.push((seconds / 60.0, eval.bits_per_dim)),
            _ => {}
        }
    }
    Series::new(name, points)
}

impl Study for Table1 {
    fn name(&self) -> &'static str {
        "table1"
    }

    fn about(&self) -> &'static str {
        "test and train bits per dim of every system on CIFAR-10, SVHN and CelebA (Table 1)"
    }

    fn paper(&self) -> &'static str {
        "test bits per dim on CIFAR-10: VIMCO 5.14, rVQ 4.77, FouST L4 4.16 and L1 4.02, RRVQ L32 3.94, Spatial-VAE L32 3.55; SVHN: 3.73, 2.30, 1.94 for rVQ, RRVQ, Spatial-VAE; CelebA: 5.31, 2.97, 2.54. A week on one M60 for each."
    }

    fn data(&self) -> &'static [&'static str] {
        &["cifar10", "svhn", "celeba"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.5,
            Scale::Quick => 5.6,
            Scale::Full => 28.0,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        let given = PAPER.iter().filter(|(data, _)| context.has(data));
        let mut models = Vec::new();
        for (data, rows) in given {
            for row in *rows {
                models.extend(from_each_seed(context, &wanted(context, data, row.system)?));
            }
        }
        Ok(models)
    }

    fn extents(&self, context: &Context<'_>) -> Vec<(Split, usize)> {
        vec![
            (Split::Test, context.by_scale(16, 1000, 0)),
            (Split::Train, context.by_scale(16, 1000, 10_000)),
        ]
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        section.seeds = context.seeds(1, 1).len();
        let [test, train] = [0, 1].map(|which| self.extents(context)[which]);
        let layers = context.by_scale("5", "5", "32");
        let mut table = Vec::new();
        for (data, rows) in PAPER {
            if !context.has(data) {
                continue;
            }
            let (mut found, mut curves) = (Vec::new(), Vec::new());
            for row in rows {
                let model = wanted(context, data, row.system)?;
                let trials = context.train(from_each_seed(context, &model))?;
                let judged = |(split, images): (Split, usize)| -> Result<Vec<EvalRecord>> {
                    trials.iter().map(|t| t.evaluate(split, images)).collect()
                };
                let (test, train) = (judged(test)?, judged(train)?);
                table.push(vec![
                    data.to_string(),
                    row.system.to_string(),
                    format!("{:.2}", row.test),
                    row.train.map_or("–".into(), |v| format!("{v:.2}")),
                    bits(&test).to_string(),
                    bits(&train).to_string(),
                    codes_in_use(&test),
                    trials[0].steps().to_string(),
                    trials[0].minutes(),
                ]);
                found.push((row.system, bits(&test)));
                curves.push(curve(row.system, &trials[0]));
            }
            section.chart(
                data,
                &Chart {
                    title: format!("Test bits per dim on {data} while training"),
                    x_label: "minutes of training".into(),
                    y_label: "bits per dim".into(),
                    dots: true,
                    series: curves,
                    ..Chart::default()
                },
            )?;
            let of = |system: &str| {
                let one = found.iter().find(|(s, _)| *s == system);
                one.map_or(Spread::of(&[]), |(_, bits)| *bits)
            };
            let below = |less: &str, more: &str| {
                let (less, more) = (of(less), of(more));
                Verdict::below(less.mean, more.mean, less.noise(&more).max(0.02))
            };
            let paper = |system: &str| {
                let one = rows.iter().find(|r| r.system == system);
                one.map_or(f64::NAN, |r| r.test)
            };
            for row in rows.iter().filter(|r| ![RRVQ, SPATIAL].contains(&r.system)) {
                section.claim(
                    &format!(
                        "On {data}, {layers} layers of RRVQ are ahead of {}.",
                        row.system
                    ),
                    &format!("{:.2} against {:.2}", paper(RRVQ), row.test),
                    format!("{} against {}", of(RRVQ), of(row.system)),
                    below(RRVQ, row.system),
                );
            }
            section.claim(
                &format!("On {data}, the continuous twin of the hierarchy is ahead of it."),
                &format!("{:.2} against {:.2}", paper(SPATIAL), paper(RRVQ)),
                format!("{} against {}", of(SPATIAL), of(RRVQ)),
                below(SPATIAL, RRVQ),
            );
        }
        section.paragraph("Bits per dim are of hard samples and averaged weights. Differences of 0.02 or less, or within twice their standard error, decide nothing. With several seeds curves, steps and minutes are the first one's, codes in use the mean. SVHN may be a reduced set: its rows then say which order comes out, and compare with no published number.");
        section.table(
            "numbers",
            &[
                "data",
                "system",
                "paper, test",
                "paper, train",
                "ours, test",
                "ours, train",
                "codes in use",
                "steps",
                "minutes",
            ],
            &table,
        )
    }
}
