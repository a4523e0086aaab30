//! What the tests of a model's numbers share: golden values, a report of differences, pictures to learn from, and
//! the GPU, one test at a time.
//!
//! A check takes the device it is about. The same code runs on the CPU in every test run, against the CPU itself,
//! and on a GPU where there is one, so that a mistake in a check shows without a GPU.
#![allow(dead_code)] // every test program uses a part

pub mod golden;
pub mod report;

use rrvq::config::Config;
use rrvq::dataset::{Dataset, Split};
use rrvq_tensor::rng::{Distribution, Noise, counter, fill, philox4x32_10};
use rrvq_tensor::{Data, Device, Precision, Program, Store};
use std::sync::{Mutex, MutexGuard};

/// The first GPU, which no other test of this program uses meanwhile.
pub struct Exclusive {
    gpu: Device,
    _turn: MutexGuard<'static, ()>,
}

/// The GPU, or a printed reason why there is none.
pub fn gpu() -> Option<Exclusive> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed while it had its turn leaves nothing behind that the next one needs.
    let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    match Device::cuda(0, Precision::F32) {
        Ok(gpu) => Some(Exclusive { gpu, _turn: turn }),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

impl Exclusive {
    pub fn f32(&self) -> Device {
        self.gpu.clone()
    }

    pub fn bf16(&self) -> Device {
        self.gpu.with_precision(Precision::Bf16)
    }

    pub fn both(&self) -> [Device; 2] {
        [self.f32(), self.bf16()]
    }
}

/// "cpu in f32", "cuda in bf16".
pub fn named(device: &Device) -> String {
    format!("{} in {}", device.name(), device.precision().name())
}

/// Runs a program without states on these inputs, and one counter.
pub fn run_once(program: &mut Program, given: &[(&str, Vec<f32>)]) {
    let words = counter(5, 6);
    let mut inputs: Vec<_> = given.iter().map(|(n, v)| (*n, Data::F32(v))).collect();
    inputs.push(("counter", Data::U32(&words)));
    program.run(&mut Store::default(), &inputs).unwrap();
}

/// Normal numbers with standard deviation `scale`, the same for the same stream.
pub fn normal(stream: u32, len: usize, scale: f32) -> Vec<f32> {
    let mut out = vec![0.0; len];
    let noise = Noise {
        seed: 11,
        stream,
        step: 0,
    };
    let isa = rrvq_tensor::simd::isa();
    fill(isa, noise, Distribution::Normal, 0, &mut out);
    out.iter_mut().for_each(|v| *v *= scale);
    out
}

/// Colours that run from one corner to another: something to learn, and never their own mirror images.
pub struct Slopes {
    pub size: usize,
    pub images: usize,
}

impl Dataset for Slopes {
    fn name(&self) -> &str {
        "slopes"
    }

    fn len(&self, _: Split) -> usize {
        self.images
    }

    fn shape(&self) -> [usize; 3] {
        [self.size, self.size, 3]
    }

    fn read(&self, split: Split, index: usize, out: &mut [u8]) {
        let of = [index as u32, split as u32, 0, 0];
        let words = philox4x32_10(of, [17, 0]);
        for (i, value) in out.iter_mut().enumerate() {
            let (pixel, channel) = (i / 3, i % 3);
            let (y, x) = (pixel / self.size, pixel % self.size);
            let start = words[channel] % 120;
            let slope = 4 + words[3] % 5;
            *value = (start as usize + slope as usize * x + 3 * y * (channel + 1)).min(255) as u8;
        }
    }

    fn may_flip(&self) -> bool {
        true
    }
}

/// Small models that between them take every road: sizes tensor cores suit with the hard sample, and odd sizes with
/// the relaxed one.
pub fn small_models() -> Vec<(&'static str, Config)> {
    let with = |changes: &[&str]| {
        let common = [
            "model.size=16",
            "model.maps=[8, 4]",
            "model.log_scale=-2.0",
            "train.batch=8",
            "train.ema=0.9",
        ];
        let mut config = Config::default();
        for change in common.iter().chain(changes) {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
        config
    };
    let even = with(&[
        "model.channels=16",
        "model.embed=16",
        "model.codes=64",
        "model.grow=\"nearest\"",
    ]);
    let odd = with(&[
        "model.channels=12",
        "model.embed=6",
        "model.codes=[10, 7]",
        "model.sample=\"relaxed\"",
        "model.top=\"uniform\"",
        "model.ladder_blocks=1",
        "model.border=\"edge\"",
        "model.likelihood=\"logistic-channel\"",
        "train.optimiser=\"adam\"",
    ]);
    let causal = with(&[
        "model.channels=12",
        "model.codes=20",
        "model.sample=\"reinmax\"",
        "model.temperature={start=2, end=1}",
        "model.likelihood=\"mixture-causal\"",
        "model.mixtures=3",
        "model.neighbours=12",
        "train.optimiser=\"muon\"",
        "train.norm_penalty=1",
        "train.norm_limit=0.8",
    ]);
    vec![
        ("even sizes", even),
        ("odd sizes", odd),
        ("causal mixture", causal),
    ]
}
