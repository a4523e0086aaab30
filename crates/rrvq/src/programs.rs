//! The compiled programs of a model: initialise, train, evaluate, reconstruct, sample.
//!
//! Each is drawn and compiled once for a batch size and runs on a [`Store`] of flat vectors that share the
//! model's [`Layout`].

use crate::config::{ModelConfig, Optimiser as Rule, TrainConfig};
use crate::error::{Error, Result};
use crate::model::{Hierarchy, Pen};
use rrvq_tensor::device::cpu::counter;
use rrvq_tensor::optim::{Optimiser, Rule as UpdateRule, STATES};
use rrvq_tensor::{Data, Graph, Layout, Plan, Program, Store, Var, compile};

impl From<rrvq_tensor::Error> for Error {
    fn from(error: rrvq_tensor::Error) -> Self {
        Error::new(error.to_string())
    }
}

/// A model's settings and the places of its parameters.
#[derive(Clone, Debug)]
pub struct Model {
    pub config: ModelConfig,
    pub layout: Layout,
}

/// What one training step tells, in nats averaged over the batch where it is not a norm.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// Bits a dimension, free bits included.
    pub loss: f64,
    pub log_likelihood: f64,
    /// Of each layer, bottom first.
    pub kl: Vec<f64>,
    pub grad_norm: f64,
}

impl StepOutcome {
    /// Where the first number that is not finite stands, looking in the order the step computes.
    pub fn trouble(&self) -> Option<String> {
        if let Some(layer) = self.kl.iter().rposition(|v| !v.is_finite()) {
            return Some(format!("the KL of layer {}", layer + 1));
        }
        if !self.log_likelihood.is_finite() {
            return Some("the likelihood".into());
        }
        if !self.loss.is_finite() {
            return Some("the loss".into());
        }
        (!self.grad_norm.is_finite()).then(|| "the gradient".into())
    }
}

impl Model {
    pub fn new(config: &ModelConfig) -> Self {
        let graph = Graph::new();
        Hierarchy::new(&graph, config, 1).training_elbo();
        Model {
            config: config.clone(),
            layout: graph.layout(),
        }
    }

    /// Bytes of one image.
    pub fn image_len(&self) -> usize {
        self.config.size * self.config.size * self.config.image_channels
    }

    /// First values of everything a training step keeps: parameters from their initialisers, gains and biases
    /// from the first batch.
    pub fn initial(&self, seed: u64, images: &[u8]) -> Result<Store> {
        let theta = self.layout.initial(seed);
        let mut store = Store::with("theta", theta);
        self.initialise_from(&mut store, seed, images)?;
        let theta = store.get("theta").to_vec();
        for name in ["m", "v"] {
            store.insert(name, vec![0.0; self.layout.len()]);
        }
        store.insert("ema", theta);
        debug_assert!(STATES.iter().all(|name| store.vectors.contains_key(*name)));
        Ok(store)
    }

    /// Sets gains and biases so that every convolution's outputs have mean 0 and variance 1 over `images`.
    fn initialise_from(&self, store: &mut Store, seed: u64, images: &[u8]) -> Result<()> {
        let graph = Graph::new();
        let batch = images.len() / self.image_len();
        let hierarchy = Hierarchy::with_pen(Pen::initialising(&graph, &self.config), batch);
        hierarchy.hard_elbo();
        let found = hierarchy.pen.found();
        let outputs: Vec<(&str, Var<'_>)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut program = Program::new(compile(&graph, &self.layout, &outputs)?);
        let noise = counter(seed, 0);
        let inputs = [
            ("images", Data::U8(images)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", one()),
        ];
        program.run(store, &inputs)?;
        let theta = store.vectors.get_mut("theta").expect("given above");
        for (name, _) in &found {
            let entry = self.layout.get(name).expect("found by drawing");
            theta[entry.offset..entry.offset + entry.len()].copy_from_slice(program.output(name));
        }
        Ok(())
    }
}

fn one() -> Data<'static> {
    Data::F32(&[1.0])
}

/// The whole training step: forward, backward, clipping, update, average.
pub struct Step {
    program: Program,
    batch: usize,
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    pub images: &'a [u8],
    pub seed: u64,
    /// Steps made so far.
    pub step: u64,
    pub lr: f64,
    pub tau: f64,
    /// How often the KL counts; read only where the configuration has a warm-up of it.
    pub kl_weight: f64,
}

impl Step {
    pub fn new(model: &Model, train: &TrainConfig) -> Result<Self> {
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &model.config, train.batch).training_elbo();
        let loss = match train.kl_warmup {
            0 => elbo.loss(&model.config),
            _ => elbo.weighted_loss(&model.config, graph.scalar_input("kl_weight")),
        };
        let optimiser = Optimiser {
            rule: match train.optimiser {
                Rule::AdaMax => UpdateRule::AdaMax,
                Rule::Adam => UpdateRule::Adam,
            },
            beta1: train.beta1 as f32,
            beta2: train.beta2 as f32,
            epsilon: train.epsilon as f32,
            clip: train.clip as f32,
            ema: train.ema as f32,
        };
        let norm = optimiser.draw(loss);
        let kl: Vec<Var<'_>> = elbo.kl.iter().map(|kl| kl.sum().reshape(&[1])).collect();
        let outputs = [
            ("loss", loss),
            ("log_likelihood", elbo.log_likelihood.sum()),
            ("kl", graph.concat(&kl, 0)),
            ("norm", norm),
        ];
        let program = Program::new(compile(&graph, &model.layout, &outputs)?);
        Ok(Step {
            program,
            batch: train.batch,
        })
    }

    pub fn plan(&self) -> &Plan {
        self.program.plan()
    }

    /// Makes one step on the vectors of `store`.
    pub fn run(&mut self, store: &mut Store, input: StepInput<'_>) -> Result<StepOutcome> {
        self.run_timed(store, input, |_, _| {})
    }

    /// The same, telling how long each kernel took.
    pub fn run_timed(
        &mut self,
        store: &mut Store,
        input: StepInput<'_>,
        observe: impl FnMut(&rrvq_tensor::compile::Kernel, std::time::Duration) + Send,
    ) -> Result<StepOutcome> {
        let noise = counter(input.seed, input.step);
        let (lr, t, tau) = (
            [input.lr as f32],
            [(input.step + 1) as f32],
            [input.tau as f32],
        );
        let kl_weight = [input.kl_weight as f32];
        let inputs = [
            ("images", Data::U8(input.images)),
            ("counter", Data::U32(&noise)),
            ("lr", Data::F32(&lr)),
            ("t", Data::F32(&t)),
            ("tau", Data::F32(&tau)),
            ("noise_scale", one()),
            ("kl_weight", Data::F32(&kl_weight)),
        ];
        self.program.run_timed(store, &inputs, observe)?;
        let per_image = |sum: f32| sum as f64 / self.batch as f64;
        Ok(StepOutcome {
            loss: self.program.scalar("loss") as f64,
            log_likelihood: per_image(self.program.scalar("log_likelihood")),
            kl: self
                .program
                .output("kl")
                .iter()
                .map(|&v| per_image(v))
                .collect(),
            grad_norm: self.program.scalar("norm") as f64,
        })
    }
}

/// The ELBO with hard samples, image by image; also reconstructions.
pub struct Inference {
    program: Program,
    pub batch: usize,
    layers: usize,
    weighed: bool,
}

/// What inference finds for a batch; layers bottom first.
pub struct Inferred {
    /// Nats of each image.
    pub log_likelihood: Vec<f32>,
    /// Nats of each image, for each layer.
    pub kl: Vec<Vec<f32>>,
    /// Sampled codes of each layer, image after image.
    pub codes: Vec<Vec<u32>>,
    /// log p(x, z) − log q(z | x) of each image, where asked for.
    pub log_weight: Option<Vec<f32>>,
    /// Mean of each pixel, 0 … 255.
    pub picture: Vec<f32>,
}

impl Inference {
    /// `weighed` also gives the log weights that an importance bound needs.
    pub fn new(model: &Model, batch: usize, weighed: bool) -> Result<Self> {
        let graph = Graph::new();
        let hierarchy = Hierarchy::new(&graph, &model.config, batch);
        let elbo = if weighed {
            hierarchy.weighed_elbo()
        } else {
            hierarchy.hard_elbo()
        };
        let mut outputs = vec![
            ("log_likelihood".to_string(), elbo.log_likelihood),
            ("picture".into(), elbo.picture),
        ];
        for (layer, (kl, codes)) in elbo.kl.iter().zip(&elbo.codes).enumerate() {
            outputs.push((format!("kl{layer}"), *kl));
            outputs.push((format!("codes{layer}"), *codes));
        }
        outputs.extend(elbo.log_weight.map(|w| ("log_weight".to_string(), w)));
        let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let program = Program::new(compile(&graph, &model.layout, &named)?);
        Ok(Inference {
            program,
            batch,
            layers: elbo.kl.len(),
            weighed,
        })
    }

    /// `noise_scale` 1 samples the posterior, 0 takes its modes. `images` may be fewer than a batch.
    pub fn run(
        &mut self,
        store: &mut Store,
        images: &[u8],
        image_len: usize,
        noise: [u32; 4],
        noise_scale: f32,
    ) -> Result<Inferred> {
        let count = images.len() / image_len;
        let mut padded = images.to_vec();
        padded.resize(self.batch * image_len, 0);
        let scale = [noise_scale];
        let inputs = [
            ("images", Data::U8(&padded)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", Data::F32(&scale)),
        ];
        self.program.run(store, &inputs)?;
        let first = |name: &str| {
            let all = self.program.output(name);
            all[..all.len() / self.batch * count].to_vec()
        };
        let codes = |layer: usize| {
            let mut all = self.program.output_u32(&format!("codes{layer}"));
            all.truncate(all.len() / self.batch * count);
            all
        };
        Ok(Inferred {
            log_likelihood: first("log_likelihood"),
            kl: (0..self.layers).map(|l| first(&format!("kl{l}"))).collect(),
            codes: (0..self.layers).map(codes).collect(),
            log_weight: self.weighed.then(|| first("log_weight")),
            picture: first("picture"),
        })
    }
}

/// Pictures from the prior.
pub struct Sampler {
    program: Program,
    pub batch: usize,
}

impl Sampler {
    pub fn new(model: &Model, batch: usize) -> Result<Self> {
        let graph = Graph::new();
        let picture = Hierarchy::new(&graph, &model.config, batch).generate();
        let program = Program::new(compile(&graph, &model.layout, &[("picture", picture)])?);
        Ok(Sampler { program, batch })
    }

    /// A batch of pictures, means of the pixels 0 … 255. `temperature` 1 samples the model, less is sharper,
    /// 0 takes every layer's mode.
    pub fn run(
        &mut self,
        store: &mut Store,
        noise: [u32; 4],
        temperature: f32,
    ) -> Result<Vec<f32>> {
        let scale = [temperature];
        let mut inputs = vec![("counter", Data::U32(&noise))];
        inputs.extend([("tau", one()), ("noise_scale", Data::F32(&scale))]);
        self.program.run(store, &inputs)?;
        Ok(self.program.output("picture").to_vec())
    }
}
