//! Training again gives the same bits on the same GPU, and steps in bursts are the same steps as one by one.

use crate::common::{Slopes, gpu, named, small_models};
use rrvq::config::Config;
use rrvq::dataset::Batches;
use rrvq::dataset::Dataset;
use rrvq::programs::{Model, Step, StepInput, StepOutcome};
use rrvq_tensor::device::FLIPPED;
use rrvq_tensor::optim::STATES;
use rrvq_tensor::{Device, Store};

const SEED: u64 = 3;

/// Fewer than the steps see, so that a second epoch begins.
const DATA: Slopes = Slopes {
    size: 16,
    images: 100,
};

/// A training that can be gone on with in either way.
struct Training<'a> {
    step: Step,
    store: Store,
    batches: Batches<'a>,
    outcomes: Vec<StepOutcome>,
}

impl<'a> Training<'a> {
    fn new(device: &Device, config: &Config, data: &'a dyn Dataset) -> Self {
        let model = Model::new(&config.model);
        let mut batches = Batches::new(data, SEED, config.train.batch, true);
        batches.put_on(device).unwrap();
        Training {
            store: model.initial(device, SEED, batches.at(0)).unwrap(),
            step: Step::new(device, &model, &config.train).unwrap(),
            batches,
            outcomes: Vec::new(),
        }
    }

    fn input(step: usize) -> StepInput {
        StepInput {
            seed: SEED,
            step: step as u64,
            lr: 2e-3 + 1e-4 * (step % 20) as f64,
            tau: 0.7 - 0.005 * (step % 40) as f64,
            kl_weight: 1.0,
        }
    }

    /// Steps with images that are handed over one batch at a time.
    fn one_by_one(mut self, count: usize) -> Self {
        for step in self.outcomes.len()..self.outcomes.len() + count {
            let images = self.batches.at(step as u64);
            let made = self.step.run(&mut self.store, images, &Self::input(step));
            self.outcomes.push(made.unwrap());
        }
        self
    }

    /// Steps with images that lie on the device.
    fn burst(mut self, count: usize) -> Self {
        let first = self.outcomes.len();
        let inputs: Vec<StepInput> = (first..first + count).map(Self::input).collect();
        assert!(self.batches.bank().is_some());
        let Training {
            step,
            store,
            batches,
            ..
        } = &mut self;
        let made = step.burst(store, batches, &inputs).unwrap();
        assert_eq!(made.len(), count);
        self.outcomes.extend(made);
        self
    }

    fn end(mut self) -> Trained {
        self.store.fetch().unwrap();
        let bits = |name: &str| -> Vec<u32> {
            let vector = self.store.get(name);
            vector.iter().map(|v| v.to_bits()).collect()
        };
        Trained {
            states: STATES.map(bits).to_vec(),
            outcomes: self.outcomes,
        }
    }
}

/// Everything a training leaves behind; states as bits.
struct Trained {
    outcomes: Vec<StepOutcome>,
    states: Vec<Vec<u32>>,
}

impl Trained {
    #[track_caller]
    fn is(&self, other: &Trained, what: &str) {
        assert_eq!(self.outcomes.len(), other.outcomes.len(), "{what}");
        for (i, (a, b)) in self.outcomes.iter().zip(&other.outcomes).enumerate() {
            assert_eq!(a, b, "{what}: step {i}");
        }
        for (i, name) in STATES.iter().enumerate() {
            let (a, b) = (&self.states[i], &other.states[i]);
            assert!(a.len() > 1000 && a.len() == b.len());
            let apart = a.iter().zip(b).filter(|(a, b)| a != b).count();
            assert_eq!(apart, 0, "{what}: values of {name} that differ");
        }
    }

    #[track_caller]
    fn learns(&self, what: &str) {
        let losses: Vec<f64> = self.outcomes.iter().map(|o| o.loss).collect();
        println!("{what}: {} to {}", losses[0], losses[losses.len() - 1]);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert!(losses[losses.len() - 1] < 0.95 * losses[0], "{losses:?}");
    }
}

fn check_again(device: &Device) {
    for (name, config) in small_models() {
        let what = format!("{name}, {}", named(device));
        let once = || Training::new(device, &config, &DATA).one_by_one(20).end();
        let (first, second) = (once(), once());
        first.learns(&what);
        first.is(&second, &what);
    }
}

fn check_bursts(device: &Device) {
    for (name, config) in small_models() {
        let what = format!("{name}, {}", named(device));
        let new = || Training::new(device, &config, &DATA);
        let rows = new().batches.rows(0);
        let mirrored = rows.iter().filter(|row| *row & FLIPPED != 0).count();
        assert!((1..rows.len()).contains(&mirrored), "some are mirrored");
        let singly = new().one_by_one(20).end();
        new()
            .burst(20)
            .end()
            .is(&singly, &format!("{what}, one burst"));
        let mixed = new().one_by_one(3).burst(9).one_by_one(2).burst(6).end();
        mixed.is(&singly, &format!("{what}, by turns"));
    }
}

/// More steps than are sent to the device at once.
fn check_long(device: &Device, steps: usize) {
    let (name, config) = small_models().swap_remove(0);
    let what = format!("{name}, {steps} steps, {}", named(device));
    let new = || Training::new(device, &config, &DATA);
    let whole = new().burst(steps).end();
    whole.learns(&what);
    let parts = new().burst(steps / 3).burst(steps - steps / 3).end();
    parts.is(&whole, &what);
}

/// One compiled step on two sets of weights by turns.
fn check_two_stores(device: &Device) {
    let (name, config) = small_models().swap_remove(0);
    let what = format!("{name}, two stores, {}", named(device));
    let new = || Training::new(device, &config, &DATA);
    let (singly, bursts) = (new().one_by_one(4).end(), new().burst(4).end());
    let (mut one, mut other) = (new(), new());
    for _ in 0..2 {
        one = one.one_by_one(2);
        // The same program goes over to the other store and comes back.
        std::mem::swap(&mut one.step, &mut other.step);
        other = other.burst(2);
        std::mem::swap(&mut one.step, &mut other.step);
    }
    one.end().is(&singly, &what);
    other.end().is(&bursts, &what);
}

#[test]
fn trainings_here() {
    check_again(&Device::Cpu);
    check_bursts(&Device::Cpu);
    check_long(&Device::Cpu, 30);
    check_two_stores(&Device::Cpu);
}

#[test]
fn training_again_gives_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    gpu.both().iter().for_each(check_again);
}

#[test]
fn bursts_are_the_same_steps() {
    let Some(gpu) = gpu() else { return };
    gpu.both().iter().for_each(check_bursts);
    check_long(&gpu.bf16(), 300);
}

#[test]
fn one_program_serves_two_stores() {
    let Some(gpu) = gpu() else { return };
    gpu.both().iter().for_each(check_two_stores);
}
