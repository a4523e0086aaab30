//! Four tiny models and what PyTorch computed for them in float64, as `tools/golden.py` wrote it: read from the test
//! program itself, run on any device, held to stated limits.

use super::named;
use super::report::Report;
use rrvq::config::Config;
use rrvq::model::Hierarchy;
use rrvq_tensor::params::{Entry, Tensors, from_safetensors};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Data, Device, Graph, Layout, Program, Store, Var, grad};

pub const CASES: [&str; 4] = ["straight-through", "relaxed", "rvq", "mixture"];

pub const TRAINING_STEPS: u64 = 10;

/// How far a device may be from PyTorch.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Loss and likelihood, relative.
    pub values: f32,
    /// Each layer's KL, relative.
    pub kl: f32,
    /// A gradient, relative to the largest element of its tensor.
    pub gradients: f32,
    /// All gradients as one vector: the length of the difference, of its length.
    pub whole: f32,
    /// Losses of ten training steps, relative.
    pub losses: f32,
    /// Gradient norms of ten training steps, relative.
    pub norms: f32,
    /// How far a parameter or its average moved in ten steps, relative to that distance. An optimiser that divides by
    /// the size of a gradient makes much of the smallest ones, so that this says little where maps are rounded.
    pub moves: Option<f32>,
}

/// What f32 reaches, on every device.
pub const F32: Limits = Limits {
    values: 1e-5,
    kl: 1e-5,
    gradients: 2e-5,
    whole: 2e-5,
    losses: 1e-5,
    norms: 1e-5,
    moves: Some(2e-4),
};

/// A golden file.
pub struct Golden {
    pub case: &'static str,
    pub config: Config,
    file: Tensors,
    images: Vec<u8>,
}

impl Golden {
    pub fn read(case: &'static str) -> Golden {
        // Part of the program, so that it runs on a machine without the repository.
        let bytes: &[u8] = match case {
            "straight-through" => include_bytes!("../golden/straight-through.safetensors"),
            "relaxed" => include_bytes!("../golden/relaxed.safetensors"),
            "rvq" => include_bytes!("../golden/rvq.safetensors"),
            "mixture" => include_bytes!("../golden/mixture.safetensors"),
            _ => panic!("there is no case {case}"),
        };
        let file = from_safetensors(bytes).unwrap();
        let mut config = Config::default();
        for change in file.metadata["set"].lines() {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
        let images = file.map["images"].1.iter().map(|&v| v as u8).collect();
        Golden {
            case,
            config,
            file,
            images,
        }
    }

    pub fn values(&self, name: &str) -> &[f32] {
        &self.file.map[name].1
    }

    /// The KL of every image, layer by layer.
    pub fn kl(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values("out.kl").chunks(self.config.train.batch)
    }

    /// Runs with the file's images and noise of the given step.
    fn run(&self, program: &mut Program, store: &mut Store, step: u64) {
        let words = counter(self.config.train.seed, step);
        let tau = [self.config.model.temperature.start as f32];
        let lr = [self.config.train.lr as f32];
        let t = [(step + 1) as f32];
        let inputs = [
            ("images", Data::U8(&self.images)),
            ("counter", Data::U32(&words)),
            ("tau", Data::F32(&tau)),
            ("noise_scale", Data::F32(&[1.0])),
            ("lr", Data::F32(&lr)),
            ("t", Data::F32(&t)),
        ];
        program.run(store, &inputs).unwrap();
    }

    /// The forward pass and every gradient.
    pub fn check_gradients(&self, device: &Device, limits: Limits) {
        let (case, model) = (self.case, &self.config.model);
        let g = Graph::new();
        let elbo = Hierarchy::new(&g, model, self.config.train.batch).training_elbo();
        let loss = elbo.loss(model);
        let layout = g.layout();
        let mut outputs = vec![
            ("loss".to_string(), loss),
            ("log_likelihood".to_string(), elbo.log_likelihood),
        ];
        for (i, (kl, codes)) in elbo.kl.iter().zip(&elbo.codes).enumerate() {
            outputs.push((format!("kl.{}", i + 1), *kl));
            outputs.push((format!("codes.{}", i + 1), *codes));
        }
        for (entry, d) in layout.entries().iter().zip(grad(loss, &g.params())) {
            outputs.push((format!("grad.{}", entry.name), d));
        }
        let mut program = program(device, &g, &layout, &outputs);
        let mut store = Store::with("theta", layout.flatten(&self.file, "param.").unwrap());
        let step: u64 = self.file.metadata["step"].parse().unwrap();
        self.run(&mut program, &mut store, step);

        let mut report = Report::new(format!("gradients of {case}, {}", named(device)));
        for i in 1..=model.layers() {
            let want = self.values(&format!("out.codes.{i}"));
            let want: Vec<u32> = want.iter().map(|&v| v as u32).collect();
            let have = program.output_u32(&format!("codes.{i}")).unwrap();
            report.same(&format!("codes of layer {i}"), &have, &want);
        }
        for name in ["loss", "log_likelihood"] {
            let want = self.values(&format!("out.{name}"));
            let have = program.output(name).unwrap();
            report.each("values", name, &have, want, limits.values);
        }
        assert_eq!(self.kl().len(), model.layers());
        for (i, want) in self.kl().enumerate() {
            let have = program.output(&format!("kl.{}", i + 1)).unwrap();
            let what = format!("KL of layer {}", i + 1);
            report.each("kl", &what, &have, want, limits.kl);
        }
        let in_file = self.file.map.keys().filter(|n| n.starts_with("grad."));
        assert_eq!(
            in_file.count(),
            layout.entries().len(),
            "{case}: parameters"
        );
        let (mut apart, mut length) = (0.0f64, 0.0f64);
        for entry in layout.entries() {
            let name = format!("grad.{}", entry.name);
            let (have, want) = (program.output(&name).unwrap(), self.values(&name));
            report.tensor("gradients", &name, &have, want, limits.gradients);
            for (have, want) in have.iter().zip(want) {
                apart += (*have as f64 - *want as f64).powi(2);
                length += (*want as f64).powi(2);
            }
        }
        let error = (apart / length).sqrt() as f32;
        report.note("whole gradient", "the whole gradient", error, limits.whole);
        report.end();
    }

    /// Ten steps of training.
    pub fn check_training(&self, device: &Device, limits: Limits) {
        let (case, model, train) = (self.case, &self.config.model, &self.config.train);
        let g = Graph::new();
        let loss = Hierarchy::new(&g, model, train.batch)
            .training_elbo()
            .loss(model);
        let norm = train.update().build(loss);
        let layout = g.layout();
        let outputs = [("loss".to_string(), loss), ("norm".to_string(), norm)];
        let mut program = program(device, &g, &layout, &outputs);
        let start = layout.flatten(&self.file, "param.").unwrap();
        let mut store = Store::with("theta", start.clone());
        store.insert("ema", start.clone());
        store.insert("m", vec![0.0; layout.len()]);
        store.insert("v", vec![0.0; layout.len()]);

        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for step in 0..TRAINING_STEPS {
            self.run(&mut program, &mut store, step);
            losses.push(program.scalar("loss").unwrap());
            norms.push(program.scalar("norm").unwrap());
        }
        store.fetch().unwrap();
        let mut report = Report::new(format!("ten steps of {case}, {}", named(device)));
        let wanted = self.values("out.losses");
        report.each("losses", "loss", &losses, wanted, limits.losses);
        let wanted = self.values("out.norms");
        report.each(
            "gradient norms",
            "gradient norm",
            &norms,
            wanted,
            limits.norms,
        );
        for (state, name) in [("theta", "out.moved"), ("ema", "out.ema_moved")] {
            let have = moved(&layout, &start, store.get(state));
            let want = self.values(name).chunks(2);
            assert_eq!(have.len(), want.len(), "{case}: {name}");
            let Some(limit) = limits.moves else { continue };
            for (i, (have, want)) in have.iter().zip(want).enumerate() {
                let what = format!("{name} of parameter {i}");
                report.scaled("moves", &what, have, want, want[1], limit);
            }
        }
        report.end();
    }
}

/// Sum and norm of what each parameter changed by, in the order of the names.
fn moved(layout: &Layout, start: &[f32], end: &[f32]) -> Vec<[f32; 2]> {
    let mut entries: Vec<_> = layout.entries().iter().collect();
    entries.sort_by_key(|entry| &entry.name);
    let of = |entry: &&Entry| {
        let range = entry.offset..entry.offset + entry.len();
        let change = |(a, b): (&f32, &f32)| *b as f64 - *a as f64;
        let changes = || {
            start[range.clone()]
                .iter()
                .zip(&end[range.clone()])
                .map(change)
        };
        let norm = changes().map(|c| c * c).sum::<f64>().sqrt();
        [changes().sum::<f64>() as f32, norm as f32]
    };
    entries.iter().map(of).collect()
}

pub fn program(
    device: &Device,
    g: &Graph,
    layout: &Layout,
    outputs: &[(String, Var<'_>)],
) -> Program {
    let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    Program::new(device, g, layout, &named).unwrap()
}
