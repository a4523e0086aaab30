//! Small networks that are trained in memory in seconds: classifiers on codes, features of images.

use rrvq::{Device, Result};
use rrvq_tensor::optim::{Optimiser, Rule};
use rrvq_tensor::{Data, Graph, Layout, Program, Store, Var};

/// Inputs of a step, by name.
pub type Batch = Vec<(&'static str, Vec<f32>)>;

/// Lowers `loss` by Adam, with a learning rate that falls along half a cosine: the places of the parameters, and their
/// averages over the last steps. `batch` gives the inputs of each step.
pub fn fit(
    device: &Device,
    graph: &Graph,
    loss: Var<'_>,
    steps: usize,
    seed: u64,
    mut batch: impl FnMut(usize) -> Result<Batch>,
) -> Result<(Layout, Vec<f32>)> {
    let optimiser = Optimiser {
        rule: Rule::Adam,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        clip: 0.0,
        ema: 0.99,
    };
    let norm = optimiser.build(loss);
    let layout = graph.layout();
    let mut program = Program::new(device, graph, &layout, &[("loss", loss), ("norm", norm)])?;
    let theta = layout.initial(seed);
    let mut store = Store::with("ema", theta.clone());
    for name in ["m", "v"] {
        store.insert(name, vec![0.0; layout.len()]);
    }
    store.insert("theta", theta);
    for step in 0..steps {
        rrvq::interrupt::check()?;
        let given = batch(step)?;
        let (lr, t) = ([falling(step, steps)], [(step + 1) as f32]);
        let mut inputs: Vec<(&str, Data<'_>)> = vec![("lr", Data::F32(&lr)), ("t", Data::F32(&t))];
        inputs.extend(given.iter().map(|(name, v)| (*name, Data::F32(v))));
        program.run(&mut store, &inputs)?;
    }
    store.fetch()?;
    Ok((layout, store.get("ema").to_vec()))
}

/// The learning rate, falling along half a cosine.
fn falling(step: usize, steps: usize) -> f32 {
    let done = step as f32 / steps.max(1) as f32;
    2e-3 * 0.5 * (1.0 + (std::f32::consts::PI * done).cos())
}
