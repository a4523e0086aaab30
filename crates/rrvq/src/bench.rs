//! Measurements of speed that the README quotes.

use crate::config::{Codes, Config, Grow, ModelConfig};
use crate::error::Result;
use crate::programs::{Model, Step, StepInput};
use rrvq_tensor::compile::Kernel;
use rrvq_tensor::rng::philox4x32_10;
use std::collections::BTreeMap;
use std::time::Instant;

/// The yardstick's model: L layers over 16², 8², 4² and 2², nearest-neighbour growth, no free bits.
#[derive(Clone, Copy, Debug)]
pub struct StepBench {
    pub layers: usize,
    pub channels: usize,
    pub embed: usize,
    pub codes: usize,
    pub batch: usize,
    pub steps: usize,
}

/// What a benchmark of the training step found.
#[derive(Clone, Debug)]
pub struct StepReport {
    pub ms_per_step: f64,
    pub images_per_second: f64,
    /// Seconds from nothing to the end of the first step: drawing, compiling, initialising, running.
    pub first_step_seconds: f64,
    pub parameters: usize,
    pub arena_bytes: usize,
    pub kernels: usize,
    /// Bits a dimension at the last step; the images are noise, so this only shows that it learns.
    pub loss: f64,
    /// Multiply-adds of convolutions and products, two operations each, a step.
    pub flops: f64,
    /// Milliseconds a step by kind of kernel.
    pub by_kind: Vec<(String, f64)>,
}

impl StepBench {
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        let per_scale = (self.layers / 4).max(1);
        let maps = (0..self.layers)
            .map(|l| 16 >> (l / per_scale).min(3))
            .collect();
        config.model = ModelConfig {
            maps,
            channels: self.channels,
            embed: self.embed,
            codes: Codes::Same(self.codes),
            grow: Grow::Nearest,
            free_bits: 0.0,
            ..config.model
        };
        config.train.batch = self.batch;
        config
    }

    pub fn run(&self) -> Result<StepReport> {
        let config = self.config();
        config.validate()?;
        let begin = Instant::now();
        let model = Model::new(&config.model);
        let images = noise_images(self.batch * model.image_len());
        let mut store = model.initial(0, &images)?;
        let mut step = Step::new(&model, &config.train)?;
        let input = |step: u64| StepInput {
            images: &images,
            seed: 0,
            step,
            lr: config.train.lr,
            tau: 0.5,
            kl_weight: 1.0,
        };
        step.run(&mut store, input(0))?;
        let first_step_seconds = begin.elapsed().as_secs_f64();
        for warm in 1..4 {
            step.run(&mut store, input(warm))?;
        }
        let begin = Instant::now();
        let mut loss = 0.0;
        for i in 0..self.steps as u64 {
            loss = step.run(&mut store, input(4 + i))?.loss;
        }
        let seconds = begin.elapsed().as_secs_f64() / self.steps as f64;
        let mut kinds: BTreeMap<&'static str, f64> = BTreeMap::new();
        const PROFILED: u64 = 3;
        for i in 0..PROFILED {
            let at = input(4 + self.steps as u64 + i);
            step.run_timed(&mut store, at, |kernel, time| {
                *kinds.entry(kind(kernel)).or_default() +=
                    time.as_secs_f64() * 1e3 / PROFILED as f64;
            })?;
        }
        let mut by_kind: Vec<(String, f64)> =
            kinds.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        by_kind.sort_by(|a, b| b.1.total_cmp(&a.1));
        let plan = step.plan();
        Ok(StepReport {
            ms_per_step: seconds * 1e3,
            images_per_second: self.batch as f64 / seconds,
            first_step_seconds,
            parameters: model.layout.count(),
            arena_bytes: plan.arena_bytes(),
            kernels: plan.kernels.len(),
            loss,
            flops: plan.kernels.iter().map(flops).sum(),
            by_kind,
        })
    }
}

/// Bytes without structure, the same every time.
fn noise_images(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| philox4x32_10([i as u32, 0, 0, 0], [1, 0])[0] as u8)
        .collect()
}

fn kind(kernel: &Kernel) -> &'static str {
    match kernel {
        Kernel::Conv { .. } => "convolution",
        Kernel::ConvGradInput { .. } => "convolution, data gradient",
        Kernel::ConvGradWeight { .. } => "convolution, weight gradient",
        Kernel::Matmul { .. } => "matrix product",
        Kernel::Responsibility { .. } => "responsibility",
        Kernel::ResponsibilityGrad { .. } => "responsibility, gradient",
        Kernel::Map(_) => "element-wise",
        Kernel::Reduce { .. } => "reduction",
        _ => "other",
    }
}

fn flops(kernel: &Kernel) -> f64 {
    match kernel {
        Kernel::Conv { geometry: g, .. }
        | Kernel::ConvGradInput { geometry: g, .. }
        | Kernel::ConvGradWeight { geometry: g, .. } => {
            2.0 * (g.n * g.oh * g.ow * g.co * g.ci * g.kh * g.kw) as f64
        }
        Kernel::Matmul { m, k, n, .. } => 2.0 * (m * k * n) as f64,
        // Two embeddings against means and inverse variances.
        Kernel::Responsibility {
            rows, dim, codes, ..
        } => 8.0 * (rows * dim * codes) as f64,
        // Those again, both ways back, and the sample's gradient.
        Kernel::ResponsibilityGrad {
            rows, dim, codes, ..
        } => 26.0 * (rows * dim * codes) as f64,
        _ => 0.0,
    }
}
