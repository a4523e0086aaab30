//! Codes that follow averages find the clusters, come back to life, and go on bit for bit; and where codes start.

use rrvq::config::{CodeStart, CodebookRule, Config};
use rrvq::dataset::Batches;
use rrvq::dataset::Swatches;
use rrvq::evaluate::{Evaluator, Extent};
use rrvq::latent::codebook::{First, FirstBatch};
use rrvq::latent::nearest::{Averages, Nearest};
use rrvq::latent::responsibility::Codebook;
use rrvq::nn::Builder;
use rrvq::programs::{Model, Step, StepInput};
use rrvq::run::{Existing, Run};
use rrvq::train::checkpoint::{Progress, load_state, save};
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Store};

const DIM: usize = 2;
const IMAGES: usize = 8;
const POSITIONS: usize = 6;
const ROWS: usize = IMAGES * POSITIONS;
const CENTRES: [[f32; DIM]; 4] = [[2.0, 0.5], [-1.0, 1.0], [0.5, -2.0], [-2.0, -2.0]];

/// Points near the centres, each centre as often as the others.
fn points(batch: u32) -> Vec<f32> {
    let near = |i: usize| {
        let words = philox4x32_10([i as u32, batch, 0, 0], [3, 0]);
        let centre = CENTRES[i % CENTRES.len()];
        (0..DIM).map(move |d| centre[d] + 0.2 * (words[d] as f32 / 2f32.powi(31) - 1.0))
    };
    (0..ROWS).flat_map(near).collect()
}

/// Nothing but a codebook: its program, and its vectors with the codes at `means`.
fn book(averages: Averages, means: &[f32]) -> (Program, Store) {
    let codes = means.len() / DIM;
    let g = Graph::new();
    let e = g.input("e", &[ROWS, DIM], DType::F32);
    let mu = g.state("means", means.len()).reshape(&[codes, DIM]);
    let index = Nearest { mu }
        .quantise(e, 0.25, CodebookRule::Ema)
        .sampled
        .index;
    let moved = averages.moved("book", codes, e, index, IMAGES);
    g.assign("means", moved.mean.1);
    let mut store = Store::with("means", means.to_vec());
    for (memory, value) in &moved.memories {
        let first = match memory.first {
            First::Ones => vec![1.0; codes],
            First::Parameter(_) => means.to_vec(),
        };
        store.insert(&memory.name, first);
        g.assign(&memory.name, *value);
    }
    let outputs = [("index", index)];
    let plan = compile(&g, &Layout::default(), &outputs).unwrap();
    (Program::new(plan), store)
}

fn feed(program: &mut Program, store: &mut Store, seed: u64, steps: std::ops::Range<u32>) {
    for step in steps {
        let (e, words) = (points(step), counter(seed, step as u64));
        let inputs = [("e", Data::F32(&e)), ("counter", Data::U32(&words))];
        program.run(store, &inputs).unwrap();
    }
}

fn averages(revive: f32) -> Averages {
    Averages {
        decay: 0.9,
        revive,
        stream: 40,
    }
}

#[test]
fn codes_become_the_means_of_their_clusters() {
    let start = [1.0, 1.0, -1.0, 0.0, 0.0, -1.0, -1.0, -1.0];
    let (mut program, mut store) = book(averages(0.0), &start);
    feed(&mut program, &mut store, 1, 0..120);
    for (code, centre) in store.get("means").chunks(DIM).zip(CENTRES) {
        let apart = (0..DIM)
            .map(|d| (code[d] - centre[d]).abs())
            .fold(0.0, f32::max);
        assert!(apart < 0.05, "{code:?} {centre:?}");
    }
    for used in store.get("book.use") {
        assert!((used - 1.0).abs() < 1e-4, "even use is 1: {used}");
    }
}

#[test]
fn one_step_is_the_smoothed_ratio_of_the_averages() {
    let start = [1.0, 1.0, -1.0, 0.0, 0.0, -1.0];
    let (mut program, mut store) = book(averages(0.0), &start);
    feed(&mut program, &mut store, 1, 0..1);
    let (e, index) = (points(0), program.output_u32("index"));
    let (codes, unit) = (3, 3.0 / ROWS as f64);
    let (mut used, mut sum) = (vec![0.9f64; codes], vec![0.0f64; codes * DIM]);
    sum.iter_mut()
        .zip(start)
        .for_each(|(s, m)| *s = 0.9 * m as f64);
    for (row, &code) in index.iter().enumerate() {
        used[code as usize] += 0.1 * unit;
        for d in 0..DIM {
            sum[code as usize * DIM + d] += 0.1 * unit * e[row * DIM + d] as f64;
        }
    }
    let total: f64 = used.iter().sum();
    for (i, mean) in store.get("means").iter().enumerate() {
        let smooth = (used[i / DIM] + 1e-5) * total / (total + codes as f64 * 1e-5);
        assert!((*mean as f64 - sum[i] / smooth).abs() < 1e-5);
    }
}

#[test]
fn a_code_that_is_not_used_starts_again_at_a_point_of_the_batch() {
    let far = 1e3;
    let start = [
        2.0, 0.5, far, far, far, far, -far, far, far, -far, -far, -far,
    ];
    let (mut program, mut store) = book(averages(0.0), &start);
    feed(&mut program, &mut store, 1, 0..40);
    assert!(
        store.get("means")[2..].iter().all(|v| v.abs() > 100.0),
        "left alone, they stay"
    );

    let (mut program, mut store) = book(averages(0.5), &start);
    // 0.9⁶ is above the threshold, 0.9⁷ is not.
    feed(&mut program, &mut store, 1, 0..6);
    assert!(store.get("means")[2] > 100.0);
    feed(&mut program, &mut store, 1, 6..7);
    let batch = points(6);
    let revived = store.get("means").to_vec();
    for code in revived[DIM..].chunks(DIM) {
        let near = |p: &[f32]| p.iter().zip(code).all(|(a, b)| (a - b).abs() < 1e-3);
        assert!(batch.chunks(DIM).any(near), "{code:?}");
    }
    assert_eq!(store.get("book.use")[1..], [1.0; 5]);
    feed(&mut program, &mut store, 1, 7..120);
    for centre in CENTRES {
        let near = |c: &[f32]| (0..DIM).all(|d| (c[d] - centre[d]).abs() < 0.2);
        assert!(store.get("means").chunks(DIM).any(near), "{centre:?}");
    }

    let again = |seed| {
        let (mut program, mut store) = book(averages(0.5), &start);
        feed(&mut program, &mut store, seed, 0..7);
        store.get("means").to_vec()
    };
    assert_eq!(again(1), revived, "the same noise, the same places");
    assert_ne!(again(2), revived);
}

fn tiny() -> Config {
    let mut config = Config::preset("tiny-swatches").unwrap();
    for change in [
        "model.latent=nearest",
        "model.maps=[4]",
        "model.top=uniform",
        "model.codebook=ema",
        "model.codebook_decay=0.8",
        "model.codebook_revive=0.3",
    ] {
        config.set(change).unwrap();
    }
    config.validate().unwrap();
    config
}

fn input(step: u64) -> StepInput {
    StepInput {
        seed: 3,
        step,
        lr: 2e-3,
        tau: 0.5,
        kl_weight: 1.0,
    }
}

#[test]
fn the_optimiser_leaves_the_codes_to_their_averages() {
    let (config, device) = (tiny(), Device::Cpu);
    let data = Swatches::for_config(&config);
    let model = Model::new(&config.model);
    let mut batches = Batches::new(&data, 3, config.train.batch, true);
    let mut store = model.initial(&device, 3, batches.at(0)).unwrap();
    let mut step = Step::new(&device, &model, &config.train).unwrap();
    let entry = model.layout.get("layer.1.codes.mean").unwrap();
    let place = entry.offset..entry.offset + entry.len();
    let first = store.get("theta")[place.clone()].to_vec();
    assert_eq!(
        store.get("layer.1.codes.sum"),
        first,
        "means start as averages of one"
    );
    for i in 0..4 {
        step.run(&mut store, batches.at(i), &input(i)).unwrap();
    }
    let (used, sum) = (
        store.get("layer.1.codes.use"),
        store.get("layer.1.codes.sum"),
    );
    let means = &store.get("theta")[place.clone()];
    assert_ne!(means, first);
    for (i, mean) in means.iter().enumerate() {
        let ratio = sum[i] / used[i / config.model.embed];
        assert!(
            (mean - ratio).abs() < 1e-3 * (1.0 + ratio.abs()),
            "{mean} {ratio}"
        );
    }
    for moment in ["m", "v"] {
        assert!(store.get(moment)[place.clone()].iter().all(|&v| v == 0.0));
    }
}

#[test]
fn averages_are_saved_and_a_resumed_run_makes_the_same_steps() {
    let (config, device) = (tiny(), Device::Cpu);
    let data = Swatches::for_config(&config);
    let model = Model::new(&config.model);
    let mut batches = Batches::new(&data, 3, config.train.batch, true);
    let mut store = model.initial(&device, 3, batches.at(0)).unwrap();
    let mut step = Step::new(&device, &model, &config.train).unwrap();
    for i in 0..5 {
        step.run(&mut store, batches.at(i), &input(i)).unwrap();
    }
    let dir = std::env::temp_dir().join(format!("rrvq-codebook-{}", std::process::id()));
    let (run, _lock) = Run::create(&dir, Existing::Overwrite).unwrap();
    save(&run, model.kept(), &mut store, &Progress::default(), &[]).unwrap();
    let (mut loaded, _) = load_state(&run, model.kept()).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    for i in 5..9 {
        let went_on = step.run(&mut store, batches.at(i), &input(i)).unwrap();
        let resumed = step.run(&mut loaded, batches.at(i), &input(i)).unwrap();
        assert_eq!(went_on, resumed);
    }
    for name in ["theta", "ema", "layer.1.codes.use", "layer.1.codes.sum"] {
        assert!(!store.get(name).is_empty());
        assert_eq!(store.get(name), loaded.get(name), "{name}");
    }
    let mut evaluator = Evaluator::new(&device, &model, &data, 16).unwrap();
    let extent = Extent {
        split: rrvq::dataset::Split::Test,
        images: 32,
    };
    let record = evaluator.evaluate(&mut loaded, extent).unwrap();
    assert!(record.usage[0].used > 1 && record.usage[0].perplexity > 1.0);
}

/// Means of sixteen codes after an initialisation by `points(0)`, all at 0.01 before it.
fn started(start: CodeStart, initialising: bool, seed: u64) -> Vec<f32> {
    let mut config = Config::default().model;
    (config.embed, config.code_scale, config.code_start) = (DIM, 0.5, start);
    let g = Graph::new();
    let builder = match initialising {
        true => Builder::initialising(&g, &config),
        false => Builder::new(&g, &config),
    };
    let e = g.input("e", &[ROWS, DIM], DType::F32);
    let batch = FirstBatch {
        name: "book".into(),
        layer: 0,
        e,
        images: IMAGES,
    };
    let book = Codebook::draw(&builder, "book", 16).starting(&builder, &batch);
    let found = builder.found();
    assert_eq!(
        found.is_empty(),
        !initialising || start == CodeStart::Normal
    );
    assert!(
        found
            .iter()
            .all(|(name, mu)| name == "book.mean" && mu.same(book.mu))
    );
    // Read besides, so that there is a counter and an input in each case.
    let used = e.sum() + g.noise(rrvq_tensor::rng::Distribution::Uniform, &[1]).sum();
    let layout = g.layout();
    let plan = compile(&g, &layout, &[("mu", book.mu), ("used", used)]).unwrap();
    let (e, words) = (points(0), counter(seed, 0));
    let inputs = [("e", Data::F32(&e)), ("counter", Data::U32(&words))];
    let mut program = Program::new(plan);
    let mut store = Store::with("theta", vec![0.01; layout.len()]);
    program.run(&mut store, &inputs).unwrap();
    program.output("mu").to_vec()
}

#[test]
fn codes_start_at_embeddings_where_asked_to() {
    let codes = started(CodeStart::Embeddings, true, 1);
    let given = points(0);
    let near = |code: &[f32], e: &[f32]| {
        let mut both = code.iter().zip(e);
        both.all(|(mu, e)| (mu - (0.5 * e + 0.001)).abs() < 1e-6)
    };
    let mut rows = Vec::new();
    for code in codes.chunks(DIM) {
        let row = given.chunks(DIM).position(|e| near(code, e));
        rows.push(row.expect("an embedding, half as large, and a tenth of what was there"));
    }
    rows.sort();
    rows.dedup();
    assert!(
        rows.len() > 8,
        "16 draws of 48 rows are {} different ones",
        rows.len()
    );
    assert_eq!(codes, started(CodeStart::Embeddings, true, 1));
    assert_ne!(codes, started(CodeStart::Embeddings, true, 2));
    let untouched = vec![0.01; 16 * DIM];
    assert_eq!(started(CodeStart::Normal, true, 1), untouched);
    assert_eq!(started(CodeStart::Embeddings, false, 1), untouched);
}
