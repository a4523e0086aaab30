//! "Performance increases as we increase the number of layers": bits against depth at equal cost.

use super::models::with_steps;
use super::spread::{Spread, bits, from_each_seed};
use crate::framework::{Context, Scale, Section, Study, Verdict, Wanted};
use crate::report::{Chart, Series};
use rrvq::Result;
use rrvq::dataset::Split;
use rrvq::evaluate::EvalRecord;

/// Bits against depth.
pub struct Depth;

/// Layers, and the maps and layers a map that make them.
const DEPTHS: [(usize, &str, usize); 6] = [
    (1, "[16]", 1),
    (2, "[16, 8]", 1),
    (5, "[16, 8, 4, 2, 1]", 1),
    (8, "[16, 8, 4, 2]", 2),
    (16, "[16, 8, 4, 2]", 4),
    (32, "[16, 8, 4, 2]", 8),
];

/// Minutes of training of each model.
const QUICK_MINUTES: f64 = 0.6;
const FULL_MINUTES: f64 = 3.0;
/// In seconds of a CPU, steps are what deep models lack: batches are small, and rates with them.
const QUICK_SETTINGS: [&str; 2] = ["train.batch=8", "train.lr=0.048"];

fn wanted(
    context: &Context<'_>,
    data: &str,
    depth: usize,
    maps: &str,
    repeat: usize,
) -> Result<Wanted> {
    let base = Wanted::preset(context.preset("small-l5-cifar10", "l32-cifar10"))?;
    let settings = [
        format!("model.maps={maps}"),
        format!("model.repeat={repeat}"),
    ];
    let mut settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    settings.extend(context.by_scale(&[][..], &QUICK_SETTINGS, &[]));
    let wanted = base
        .with(&format!("depth-{depth:02}-cifar10"), &settings)?
        .on(data);
    let steps = wanted.config.train.steps;
    let mut wanted = with_steps(context, wanted, steps, steps)?;
    (wanted.quick_minutes, wanted.full_minutes) = (Some(QUICK_MINUTES), Some(FULL_MINUTES));
    Ok(wanted)
}

impl Study for Depth {
    fn name(&self) -> &'static str {
        "depth"
    }

    fn about(&self) -> &'static str {
        "bits per dim against the number of layers, 1 to 32, at equal minutes of training"
    }

    fn paper(&self) -> &'static str {
        "\"We find that performance increases as we increase the number of layers\"; numbers for 5 and 32 layers only: 4.65 and 3.94 test bits per dim on CIFAR-10, 2.96 and 2.30 on SVHN."
    }

    fn data(&self) -> &'static [&'static str] {
        &["cifar10", "svhn"]
    }

    fn minutes(&self, scale: Scale) -> f64 {
        let models = DEPTHS.len() as f64;
        match scale {
            Scale::Smoke => 0.5,
            Scale::Quick => models * QUICK_MINUTES * 1.1,
            Scale::Full => models * FULL_MINUTES * 1.1,
        }
    }

    fn models(&self, context: &Context<'_>) -> Result<Vec<Wanted>> {
        // One data set says it; CIFAR-10 where both are there.
        let data = context.available(self.data())[0];
        let mut models = Vec::new();
        for (depth, maps, repeat) in DEPTHS {
            let model = wanted(context, data, depth, maps, repeat)?;
            models.extend(from_each_seed(context, &model));
        }
        Ok(models)
    }

    fn extents(&self, context: &Context<'_>) -> Vec<(Split, usize)> {
        vec![(Split::Test, context.by_scale(16, 1000, 0))]
    }

    fn takes_seeds(&self) -> bool {
        true
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let seeds = context.seeds(1, 1).len();
        section.seeds = seeds;
        let data = context.available(self.data())[0];
        let (split, images) = self.extents(context)[0];
        let trials = context.train(self.models(context)?)?;
        let (mut rows, mut points, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for ((depth, ..), trials) in DEPTHS.iter().zip(trials.chunks(seeds)) {
            let tests = trials.iter().map(|trial| trial.evaluate(split, images));
            let tests = tests.collect::<Result<Vec<EvalRecord>>>()?;
            let bits = bits(&tests);
            rows.push(vec![
                depth.to_string(),
                bits.to_string(),
                Spread::over(&tests, |test| test.reconstruction).to_string(),
                Spread::over(&tests, |test| test.kl.iter().sum()).to_string(),
                trials[0].steps().to_string(),
                trials[0].minutes(),
            ]);
            points.push((*depth as f64, bits.mean));
            told.push(format!("{depth}: {bits}"));
        }
        section.paragraph("All models have the same channels, codes and dimensions of codes, and the same minutes of training here, so that a deeper one makes fewer steps.");
        section.table(
            "numbers",
            &[
                "layers",
                "test bits per dim",
                "reconstruction",
                "KL",
                "steps",
                "minutes",
            ],
            &rows,
        )?;
        section.chart(
            "depth",
            &Chart {
                title: format!("Test bits per dim on {data} at equal minutes of training"),
                x_label: "layers".into(),
                y_label: "bits per dim".into(),
                log_x: true,
                dots: true,
                series: vec![Series::new(data, points.clone())],
                ..Chart::default()
            },
        )?;
        let bits: Vec<f64> = points.iter().map(|(_, b)| *b).collect();
        section.claim(
            "Deeper is better.",
            "CIFAR-10: 5 layers 4.65, 32 layers 3.94",
            format!("bits by layers on {data}: {}", told.join(", ")),
            verdict(&bits),
        );
        Ok(())
    }
}

/// Whether bits fall with the number of layers. Where they rise, a deeper model may lack nothing but the steps that its minutes
/// had no room for: that decides nothing.
fn verdict(bits: &[f64]) -> Verdict {
    match bits.is_sorted_by(|fewer, more| *more < fewer + 0.01) {
        true => Verdict::below(bits[bits.len() - 1], bits[0], 0.02),
        false => Verdict::NotDecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_is_better_only_if_it_is_so_all_the_way() {
        let falling = [5.82, 5.51, 5.44, 5.04, 4.73, 4.63];
        assert_eq!(verdict(&falling), Verdict::Holds);
        // The last is ahead of five layers, and behind half of its own.
        let rising = [5.88, 5.63, 5.61, 5.28, 5.25, 5.60];
        assert_eq!(verdict(&rising), Verdict::NotDecided);
        assert_eq!(verdict(&[5.0, 4.995, 4.99]), Verdict::NotDecided);
    }
}
