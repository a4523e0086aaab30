//! Runs on one page: what they are, how they learnt, which codes they use, what they draw.
//!
//! Everything comes from the run's folder, so a run that is still going on, or that ended early, has its page too.

use super::layers::{LAYER_HEADERS, layer_rows, over_time};
use super::learning::learning;
use super::{Chart, Figure, Report, Series};
use rrvq::config::Config;
use rrvq::error::{Error, Result};
use rrvq::evaluate::EvalRecord;
use rrvq::latent;
use rrvq::picture::Picture;
use rrvq::programs::Model;
use rrvq::run::Run;
use rrvq::train::log::{Record, read};
use std::collections::BTreeSet;
use std::path::Path;

/// Lines of single layers up to this many; more are hard to tell apart.
const LINES: usize = 8;

/// A picture of samples, and its step in words.
type Samples = Option<(Picture, String)>;

/// A run as its folder has it.
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) config: Config,
    pub(super) records: Vec<Record>,
    /// The newest picture of samples, and its step.
    samples: Samples,
    /// The log of a prior that was trained over the run's codes, and its newest samples.
    prior: Option<(Vec<Record>, Samples)>,
}

/// Writes a page about `runs`, in their order.
pub fn write(runs: &[Run], out: &Path) -> Result<()> {
    if runs.is_empty() {
        return Err(Error::new(
            "there is no run to report on; name at least one run's folder",
        ));
    }
    let dirs: Vec<&Path> = runs.iter().map(Run::dir).collect();
    let seen = runs
        .iter()
        .zip(names(&dirs))
        .map(|(run, name)| Seen::of(run, name))
        .collect::<Result<Vec<_>>>()?;
    let title = match &seen[..] {
        [one] => one.name.clone(),
        several => format!("{} runs", several.len()),
    };
    let headers = [
        "run",
        "bits per dim",
        "split",
        "codes in use",
        "steps",
        "time",
        "parameters",
        "system",
    ];
    let rows: Vec<_> = seen.iter().map(Seen::row).collect();
    let mut page = Report::new(title)
        .paragraph(&data(&seen))
        .table(&headers, &rows);
    for run in &seen {
        if let Some(Record::Diverged(end)) = run.records.last() {
            page = page.paragraph(&format!("{} stopped: {}.", run.name, end.said));
        }
    }
    page = differences(page, &seen);
    page = learning(page, &seen);
    for run in &seen {
        page = run.section(page, seen.len() > 1)?;
    }
    page.write(out)
}

/// What to call runs: their folders, with the folders above where two are alike.
fn names(dirs: &[&Path]) -> Vec<String> {
    let whole = |dir: &&Path| dir.display().to_string();
    let short = |dir: &&Path| {
        let name = dir.file_name();
        name.map_or(whole(dir), |n| n.to_string_lossy().into())
    };
    let all: Vec<String> = dirs.iter().map(short).collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    match distinct.len() == all.len() {
        true => all,
        false => dirs.iter().map(whole).collect(),
    }
}

/// What was learnt, and what is said of it.
fn data(seen: &[Seen]) -> String {
    let names: BTreeSet<&str> = seen
        .iter()
        .map(|run| run.config.data.name.as_str())
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "Data: {}. Bits per dim are of {} images, with hard samples and averaged weights, at the newest evaluation; time is of training alone.",
        names.join(", "),
        splits(seen)
    )
}

/// The splits that runs were evaluated on.
pub(super) fn splits(seen: &[Seen]) -> String {
    let evaluations = seen.iter().flat_map(Seen::evaluations);
    let splits: BTreeSet<&str> = evaluations.map(|eval| eval.split.as_str()).collect();
    match splits.is_empty() {
        true => "test".into(),
        false => splits.into_iter().collect::<Vec<_>>().join(" or "),
    }
}

/// Settings that decide nothing about what a run learns.
const HOUSEKEEPING: [&str; 4] = [
    "data.dir",
    "train.log_every",
    "train.save_every",
    "train.sample_every",
];

/// Settings that are not the same in all runs.
fn differences(page: Report, seen: &[Seen]) -> Report {
    let keys: Vec<_> = seen.iter().map(|run| run.config.keys()).collect();
    let mut rows = Vec::new();
    let telling = keys[0]
        .iter()
        .filter(|key| !HOUSEKEEPING.contains(&key.path.as_str()));
    for first in telling {
        let values: Vec<&str> = keys
            .iter()
            .map(|keys| {
                let found = keys.iter().find(|key| key.path == first.path);
                found.map_or("", |key| key.default.as_str())
            })
            .collect();
        if values.iter().any(|value| *value != values[0]) {
            let cells = [first.path.as_str()].into_iter().chain(values);
            rows.push(cells.map(str::to_string).collect::<Vec<_>>());
        }
    }
    if rows.is_empty() {
        return page;
    }
    let names = seen.iter().map(|run| run.name.as_str());
    let headers: Vec<&str> = ["setting"].into_iter().chain(names).collect();
    page.heading("What differs").table(&headers, &rows)
}

/// A value of each record over the steps made.
pub(super) fn by_step<'a>(
    records: impl Iterator<Item = &'a EvalRecord>,
    value: impl Fn(&EvalRecord) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let points = records.map(|record| Some((record.step as f64, value(record)?)));
    points.flatten().collect()
}

/// Seconds of the unit to tell a time in, and its name.
pub(super) fn unit_of(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 120.0 => (1.0, "seconds"),
        s if s < 7200.0 => (60.0, "minutes"),
        _ => (3600.0, "hours"),
    }
}

/// The share of codes that were drawn at all.
pub(super) fn in_use(record: &EvalRecord) -> Option<f64> {
    let (used, all) = record.codes_in_use()?;
    Some(used as f64 / all as f64)
}

impl Seen {
    fn of(run: &Run, name: String) -> Result<Seen> {
        let config = Config::load(run.config())?;
        config.validate()?;
        Ok(Seen {
            name,
            config,
            records: read(run.log())?,
            samples: newest_samples(run)?,
            prior: match run.prior() {
                prior if prior.log().is_file() => {
                    Some((read(prior.log())?, newest_samples(&prior)?))
                }
                _ => None,
            },
        })
    }

    pub(super) fn evaluations(&self) -> impl DoubleEndedIterator<Item = &EvalRecord> {
        self.records.iter().filter_map(Record::evaluation)
    }

    /// What is known of the use of codes, early evaluations included.
    pub(super) fn code_use(&self) -> impl Iterator<Item = &EvalRecord> {
        self.records.iter().filter_map(Record::code_use)
    }

    pub(super) fn by_step(&self, value: impl Fn(&EvalRecord) -> Option<f64>) -> Vec<(f64, f64)> {
        by_step(self.evaluations(), value)
    }

    /// Seconds of training that `step` steps took, as far as the log tells.
    pub(super) fn seconds_at(&self, step: f64) -> Option<f64> {
        let mut trained = self.records.iter().rev().filter_map(|record| match record {
            Record::Train(train) => Some(train),
            _ => None,
        });
        let before = trained.find(|train| train.step as f64 <= step)?;
        Some(before.seconds * step / before.step as f64)
    }

    fn row(&self) -> Vec<String> {
        let last = self.evaluations().next_back();
        let step = self.records.last().map_or(0, Record::step);
        let known = |value: Option<String>| value.unwrap_or("–".into());
        let seconds = self.seconds_at(step as f64);
        let used = last.and_then(in_use);
        let parameters = Model::new(&self.config.model).layout.count() as f64;
        vec![
            self.name.clone(),
            known(last.map(|eval| format!("{:.4}", eval.bits_per_dim))),
            known(last.map(|eval| eval.split.clone())),
            known(used.map(|share| format!("{:.0} %", share * 100.0))),
            step.to_string(),
            known(seconds.map(|seconds| {
                let (unit, name) = unit_of(seconds);
                format!("{:.1} {name}", seconds / unit)
            })),
            format!("{:.2} M", parameters / 1e6),
            system(&self.config),
        ]
    }

    /// A run by itself: its samples, its layers, its codes over time.
    fn section(&self, mut page: Report, named: bool) -> Result<Report> {
        if named {
            page = page.heading(&self.name);
        }
        if let Some((picture, step)) = &self.samples {
            page = page.figure(&Figure {
                picture,
                caption: format!("Samples of the prior, {step}"),
                alt: format!("samples of {}", self.name),
            })?;
        }
        // A young run has early evaluations alone.
        let newest = self.evaluations().next_back();
        let Some(last) = newest.or_else(|| self.code_use().last()) else {
            return Ok(page);
        };
        let shown = if last.usage.is_empty() { 4 } else { 6 };
        page = page.table(&LAYER_HEADERS[..shown], &layer_rows(&self.config, last));
        let layers = last.usage.len();
        if (2..=LINES).contains(&layers) && self.code_use().count() > 1 {
            let line = |layer: usize| {
                let used = |eval: &EvalRecord| Some(eval.usage.get(layer)?.perplexity);
                Series::new(
                    format!("layer {}", layer + 1),
                    by_step(self.code_use(), used),
                )
            };
            page = page.chart(&Chart {
                title: "Perplexity of each layer's codes".into(),
                x_label: "step".into(),
                y_label: "perplexity".into(),
                log_x: false,
                log_y: false,
                dots: false,
                series: (0..layers).rev().map(line).collect(),
            });
        }
        let records: Vec<&EvalRecord> = self.code_use().collect();
        self.prior(over_time(page, &self.config, &records))
    }

    /// The prior that was trained over the run's codes: bits per dim with it, and its samples.
    fn prior(&self, mut page: Report) -> Result<Report> {
        let Some((records, samples)) = &self.prior else {
            return Ok(page);
        };
        let bits = by_step(records.iter().filter_map(Record::evaluation), |eval| {
            Some(eval.bits_per_dim)
        });
        let without = self.evaluations().next_back().map(|eval| eval.bits_per_dim);
        page = page.paragraph(&match (bits.last(), without) {
            (Some((step, with)), Some(without)) => format!(
                "With the PixelCNN prior over its codes, trained {step} steps: {with:.4} bits per dim; with the uniform \
                 prior: {without:.4}."
            ),
            (Some((step, with)), None) => format!(
                "With the PixelCNN prior over its codes, trained {step} steps: {with:.4} bits per dim."
            ),
            (None, _) => "Its PixelCNN prior has not been evaluated yet.".into(),
        });
        if bits.len() > 1 {
            page = page.chart(&Chart {
                title: "Bits per dim with the PixelCNN prior".into(),
                x_label: "step of the prior".into(),
                y_label: "bits per dim".into(),
                log_x: false,
                log_y: false,
                dots: bits.len() <= 20,
                series: vec![Series::new(&self.name, bits)],
            });
        }
        match samples {
            Some((picture, step)) => page.figure(&Figure {
                picture,
                caption: format!("Samples of the PixelCNN prior, {step}"),
                alt: format!("samples of the prior of {}", self.name),
            }),
            None => Ok(page),
        }
    }
}

/// A model in a few words.
fn system(config: &Config) -> String {
    let model = &config.model;
    let layers = match model.layers() {
        1 => "one layer".to_string(),
        n => format!("{n} layers"),
    };
    latent::of(model).describe(model, &layers)
}

fn newest_samples(run: &Run) -> Result<Samples> {
    let Ok(folder) = std::fs::read_dir(run.samples()) else {
        return Ok(None);
    };
    let files = folder.filter_map(|entry| Some(entry.ok()?.path()));
    let drawn = files.filter(|path| path.extension().is_some_and(|e| e == "png"));
    // Names sort by step.
    let Some(newest) = drawn.max() else {
        return Ok(None);
    };
    let stem = newest.file_stem().unwrap_or_default().to_string_lossy();
    let step = stem.trim_start_matches("step-").trim_start_matches('0');
    let step = format!("step {}", if step.is_empty() { "0" } else { step });
    Ok(Some((Picture::open(&newest)?, step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::evaluate::Usage;

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let [a, b, c] = ["old/x", "new/x", "new/y"].map(Path::new);
        assert_eq!(names(&[a, c]), ["x", "y"]);
        assert_eq!(names(&[a, b, c]), ["old/x", "new/x", "new/y"]);
    }

    #[test]
    fn a_model_is_described_in_a_few_words() {
        let system = |preset| system(&Config::preset(preset).unwrap());
        assert_eq!(
            system("l32-cifar10"),
            "codes in 32 layers, embedding prior, learnt variances"
        );
        assert_eq!(
            system("rvq-cifar10"),
            "codes in one layer, uniform prior, variances 1"
        );
        assert_eq!(
            system("ablate-direct-one-svhn"),
            "codes in 5 layers, direct prior, variances 1"
        );
        assert_eq!(
            system("vq-ema-cifar10"),
            "nearest codes in one layer, codebook by ema"
        );
        assert_eq!(system("spatial32-cifar10"), "Gaussians in 32 layers");
        assert_eq!(system("foust4-cifar10"), "bits in 4 layers");
    }

    #[test]
    fn times_are_told_in_units_that_suit_them() {
        assert_eq!(unit_of(3.0).1, "seconds");
        assert_eq!(unit_of(276.0).1, "minutes");
        assert_eq!(unit_of(90_000.0).1, "hours");
    }

    #[test]
    fn shares_of_codes_in_use() {
        let usage = |used, dead| Usage {
            used,
            dead,
            perplexity: 1.0,
        };
        let of = |usage| EvalRecord {
            usage,
            ..EvalRecord::default()
        };
        assert_eq!(in_use(&of(vec![usage(3, 1), usage(0, 4)])), Some(0.375));
        assert_eq!(in_use(&of(Vec::new())), None);
    }
}
