//! Run folders: a run that was stopped goes on as if it had not been, and another device can take it over.

use crate::common::{gpu, named};
use rrvq::config::Config;
use rrvq::dataset::{Split, Swatches};
use rrvq::evaluate::{Evaluator, Extent};
use rrvq::programs::StepOutcome;
use rrvq::run::{Existing, Run};
use rrvq::train::{Finished, Started, TrainOptions, Trainer, Watch};
use rrvq::trained::Trained;
use rrvq_tensor::Device;
use std::fs;
use std::path::{Path, PathBuf};

const STEPS: usize = 24;
/// Where the run is stopped; something is due there, so that a burst ends.
const STOP: usize = 12;

/// A folder that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = format!("rrvq-cuda-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Notes every step, and says stop at one.
struct Notes {
    stop: usize,
    from: usize,
    losses: Vec<f64>,
}

impl Watch for Notes {
    fn started(&mut self, start: &Started) {
        self.from = start.from;
    }

    fn stepped(&mut self, step: usize, outcome: &StepOutcome) {
        self.losses.push(outcome.loss);
        assert_eq!(step, self.from + self.losses.len());
    }

    fn stop(&self) -> bool {
        self.from + self.losses.len() >= self.stop
    }
}

fn config() -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    let steps = format!("train.steps={STEPS}");
    for change in [
        &steps,
        "train.log_every=4",
        "train.save_every=8",
        "train.eval_every=0",
    ] {
        config.set(change).unwrap();
    }
    config
}

fn go(device: &Device, out: &Path, existing: Existing, stop: usize) -> (Notes, Finished) {
    let options = TrainOptions {
        out: Some(out.into()),
        existing,
        ..TrainOptions::default()
    };
    let mut notes = Notes {
        stop,
        from: 0,
        losses: Vec::new(),
    };
    let (config, device) = (config(), device.clone());
    let data = Swatches::for_config(&config);
    let mut trainer = Trainer::with(&config, &data, device, options).unwrap();
    let finished = trainer.run(&mut notes).unwrap();
    (notes, finished)
}

/// `other` relative to the device's own precision: the next loss on the CPU, and bits per dim there.
fn check(device: &Device, loss_limit: f64, bits_limit: f64) {
    let what = named(device);
    let scratch = Scratch::new(&format!("{}-{}", device.name(), device.precision().name()));
    let folder = |name: &str| scratch.0.join(name);
    let never = usize::MAX;
    let (whole, finished) = go(device, &folder("whole"), Existing::Refuse, never);
    assert_eq!((whole.losses.len(), finished.step), (STEPS, STEPS));

    let (begun, stopped) = go(device, &folder("parts"), Existing::Refuse, STOP);
    assert!(stopped.interrupted && stopped.step == STOP, "{what}");
    assert_eq!(
        begun.losses,
        whole.losses[..STOP],
        "{what}: the first steps"
    );
    copy(&folder("parts"), &folder("taken over"));

    let (rest, resumed) = go(device, &folder("parts"), Existing::Resume, never);
    assert_eq!((rest.from, resumed.step), (STOP, STEPS), "{what}");
    assert_eq!(rest.losses, whole.losses[STOP..], "{what}: the steps after");
    let model = |name: &str| fs::read(Run::open(folder(name)).unwrap().model()).unwrap();
    assert!(model("parts") == model("whole"), "{what}: the weights");

    let (there, _) = go(&Device::Cpu, &folder("taken over"), Existing::Resume, never);
    assert_eq!(there.from, STOP);
    let (have, want) = (there.losses[0], whole.losses[STOP]);
    let error = (have - want).abs() / want.abs();
    println!("{what}: {want} after resuming, {have} on the CPU, {error:.1e} apart");
    assert!(error <= loss_limit, "{what}: {have} where {want} was");

    let last = finished.last.expect("evaluated at the end");
    let bits = evaluated_on_the_cpu(finished.run.unwrap());
    let error = (bits - last.bits_per_dim).abs();
    println!(
        "{what}: {} bits per dim, {bits} on the CPU",
        last.bits_per_dim
    );
    assert!(error <= bits_limit, "{what}: {error:.1e} bits apart");
}

fn evaluated_on_the_cpu(run: Run) -> f64 {
    let trained = Trained::of_run(run).unwrap();
    assert_eq!(trained.step(), STEPS as u64);
    let config = trained.config();
    let data = Swatches::for_config(config);
    let (cpu, batch) = (Device::Cpu, config.train.batch);
    let mut evaluator = Evaluator::new(&cpu, trained.model(), &data, batch).unwrap();
    let extent = Extent {
        split: Split::Test,
        images: config.train.eval_images,
    };
    let record = evaluator.evaluate(&mut trained.store(), extent);
    record.unwrap().bits_per_dim
}

/// The files of a run, without its pictures.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn runs_here() {
    check(&Device::Cpu, 0.0, 0.0);
}

#[test]
fn runs_in_f32_go_on_and_change_devices() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.f32(), 1e-4, 1e-4);
}

#[test]
fn runs_in_bf16_go_on_and_change_devices() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.bf16(), 2e-2, 3e-2);
}
