//! Embeddings that run away from their codes: what a posterior learns there, and what brings it back.

use rrvq::config::Config;
use rrvq::dataset::{Batches, Swatches};
use rrvq::evaluate::{Evaluator, Extent};
use rrvq::programs::{Model, Step, StepInput, objective};
use rrvq::{Device, Split};
use rrvq_tensor::{Data, Graph, Program, Store, grad};

fn config(changes: &[&str]) -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    let common = [
        "model.sample=reinmax",
        "train.batch=8",
        "train.norm_limit=4",
    ];
    for change in common.iter().chain(changes) {
        config.set(change).unwrap();
    }
    config.validate().unwrap();
    config
}

/// A model at its start, but for the bias of the top layer's embeddings, and images to look at.
fn moved(config: &Config, far: f32) -> (Model, Store, Vec<u8>) {
    let model = Model::new(&config.model);
    let data = Swatches::for_config(config);
    let mut batches = Batches::new(&data, 1, config.train.batch, false);
    let images = batches.at(0).to_vec();
    let mut store = model.initial(&Device::Cpu, 1, &images).unwrap();
    let bias = format!("layer.{}.qladder.b", config.model.layers());
    let bias = model.layout.get(&bias).unwrap();
    let mut theta = store.get("theta").to_vec();
    theta[bias.offset..][..bias.len()].fill(far);
    store.insert("theta", theta);
    (model, store, images)
}

/// The top layer's embeddings, the gradient of the loss with respect to them, and the loss.
fn look(
    config: &Config,
    model: &Model,
    store: &mut Store,
    images: &[u8],
) -> (Vec<f32>, Vec<f32>, f64) {
    let g = Graph::new();
    let (elbo, loss) = objective(&g, model, &config.train);
    let e = *elbo.embeddings.last().unwrap();
    let outputs = [("loss", loss), ("e", e), ("slope", grad(loss, &[e])[0])];
    let mut program = Program::new(&Device::Cpu, &g, &model.layout, &outputs).unwrap();
    let inputs = [
        ("images", Data::U8(images)),
        ("counter", Data::U32(&[1, 0, 0, 0])),
        ("tau", Data::F32(&[2.0])),
        ("noise_scale", Data::F32(&[1.0])),
    ];
    program.run(store, &inputs).unwrap();
    let loss = f64::from(program.scalar("loss").unwrap());
    let [e, slope] = ["e", "slope"].map(|name| program.output(name).unwrap().to_vec());
    (e, slope, loss)
}

/// The same of a model whose bias was moved.
fn top(config: &Config, far: f32) -> (Vec<f32>, Vec<f32>, f64) {
    let (model, mut store, images) = moved(config, far);
    look(config, &model, &mut store, &images)
}

#[test]
fn far_from_all_codes_nothing_is_learnt_but_by_the_penalty() {
    let largest = |v: &[f32]| v.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let (plain, limited) = (config(&[]), config(&["train.norm_penalty=3"]));
    // Near the codes the penalty is nothing.
    let (e, near, loss) = top(&plain, 0.0);
    assert!(largest(&e) < 4.0 && largest(&near) > 1e-6);
    assert_eq!(top(&limited, 0.0), (e, near, loss));

    // Far from them a posterior is one code, and its gradient is zero to the last bit.
    let (e, slope, loss) = top(&plain, 1e4);
    assert_eq!(largest(&slope), 0.0);

    // With the penalty it points away from them, by as much at any distance.
    let (_, slope, with) = top(&limited, 1e4);
    let d = limited.model.embed;
    let scale = limited.train.norm_penalty / (e.len() / d) as f64;
    let limit = limited.train.norm_limit * (d as f64).sqrt();
    let mut penalty = 0.0;
    for (e, slope) in e.chunks_exact(d).zip(slope.chunks_exact(d)) {
        let norm = e.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        penalty += scale * (norm / limit - 1.0);
        for (e, slope) in e.iter().zip(slope) {
            let want = scale * f64::from(*e) / (norm * limit);
            let slope = f64::from(*slope);
            assert!((slope - want).abs() < 1e-4 * want.abs(), "{slope}, {want}");
        }
    }
    assert!(
        (with - loss - penalty).abs() < 1e-4 * penalty,
        "{with}, {loss}, {penalty}"
    );
}

#[test]
fn evaluations_tell_the_size_of_embeddings_and_which_layers_are_lost() {
    let config = config(&[]);
    let found = |far: f32| {
        let (model, mut store, _) = moved(&config, far);
        // What is evaluated are averaged weights.
        let theta = store.get("theta").to_vec();
        store.insert("ema", theta);
        let data = Swatches::for_config(&config);
        let mut evaluator = Evaluator::new(&Device::Cpu, &model, &data, 7).unwrap();
        let extent = Extent {
            split: Split::Test,
            images: 30,
        };
        evaluator.evaluate(&mut store, extent).unwrap()
    };
    let (start, moved) = (found(0.0), found(20.0));
    for size in &start.embedding_size {
        assert!((0.3..4.0).contains(size), "{:?}", start.embedding_size);
    }
    assert!(start.runaway().is_empty());
    let top = config.model.layers() - 1;
    assert!(
        (19.0..23.0).contains(&moved.embedding_size[top]),
        "{:?}",
        moved.embedding_size
    );
    assert!(moved.usage[top].used == 1);
    assert_eq!(moved.runaway(), [top]);
}

/// Trains from weights whose top layer is far away: the mean size of its embeddings' numbers before and after.
fn trained(config: &Config, steps: u64) -> [f32; 2] {
    let (model, mut store, images) = moved(config, 20.0);
    let mut step = Step::new(&Device::Cpu, &model, &config.train).unwrap();
    let size = |store: &mut Store| {
        let (e, ..) = look(config, &model, store, &images);
        e.iter().map(|v| v.abs()).sum::<f32>() / e.len() as f32
    };
    let before = size(&mut store);
    for step_number in 0..steps {
        let input = StepInput {
            seed: 3,
            step: step_number,
            lr: 0.02,
            tau: 2.0,
            kl_weight: 1.0,
        };
        step.run(&mut store, &images, &input).unwrap();
    }
    [before, size(&mut store)]
}

#[test]
fn a_layer_that_has_run_away_comes_back() {
    let (plain, limited) = (config(&[]), config(&["train.norm_penalty=1"]));
    let [before, after] = trained(&plain, 800);
    assert!(before > 15.0 && after > 0.9 * before, "{before} {after}");
    let [before, after] = trained(&limited, 800);
    let limit = limited.train.norm_limit as f32;
    assert!(before > 15.0 && after < 1.25 * limit, "{before} {after}");
}
