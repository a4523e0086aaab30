//! A plan made for tensor cores computes what the CPU's own plan computes.

use rrvq::bench::StepBench;
use rrvq::config::{CodebookRule, Config, Grow, Optimiser};
use rrvq::programs::{Model, objective};
use rrvq_tensor::optim::Exceptions;
use rrvq_tensor::rng::counter;
use rrvq_tensor::testing::{
    CpuProgram as Program, Kernel, Lane, Plan, Target, Touch, compile_for, cuda_target, lanes,
};
use rrvq_tensor::{Data, Device, Graph, Group, Precision, Store};

fn step(model: &Model, config: &Config, target: Target) -> Plan {
    step_in(Graph::new(), model, config, target)
}

fn step_in(graph: Graph, model: &Model, config: &Config, target: Target) -> Plan {
    let (elbo, loss) = objective(&graph, model, &config.train);
    let matrices = config.train.matrices(&model.layout);
    // Several sums of gradients, also for a model as small as this.
    let except = Exceptions {
        bucket: 4_000,
        matrices: &matrices,
        ..Exceptions::default()
    };
    let norm = elbo.descend_with(&config.train.update(), loss, except);
    compile_for(
        target,
        &graph,
        &model.layout,
        &[("loss", loss), ("norm", norm)],
    )
    .unwrap()
}

fn run(model: &Model, plan: Plan, images: &[u8]) -> (f32, f32, Store) {
    run_in(None, model, plan, images)
}

fn run_in(group: Option<&Group>, model: &Model, plan: Plan, images: &[u8]) -> (f32, f32, Store) {
    let mut store = model.initial(&Device::Cpu, 1, images).unwrap();
    let mut program = Program::new(plan).in_group(group);
    let rows: Vec<u32> = (0..images.len() / model.image_len())
        .map(|row| row as u32)
        .collect();
    for step in 0..2u64 {
        let noise = counter(1, step).into_iter().chain(group.map(|_| 0));
        let noise: Vec<u32> = noise.collect();
        let inputs = [
            ("images", Data::U8(images)),
            ("counter", Data::U32(&noise)),
            ("shard_rows", Data::U32(&rows)),
            // Small: where a gradient is near zero its sign decides a first step, and the two may differ.
            ("lr", Data::F32(&[2e-4])),
            ("t", Data::F32(&[step as f32 + 1.0])),
            ("tau", Data::F32(&[0.5])),
            ("noise_scale", Data::F32(&[1.0])),
        ];
        program.run(&mut store, &inputs).unwrap();
    }
    (program.scalar("loss"), program.scalar("norm"), store)
}

#[test]
fn turned_padded_joined_and_batched_is_the_same_step() {
    for (grow, settings) in [
        (Grow::Nearest, &[][..]),
        // Without clipping nothing but the report needs the norm, and Adam's own squares feed it.
        (Grow::Transposed, &["train.optimiser=adam", "train.clip=0"]),
        (Grow::Nearest, &["train.optimiser=muon"]),
        (
            Grow::Nearest,
            &["train.norm_penalty=1", "train.norm_limit=0.8"],
        ),
        (Grow::Nearest, &["model.latent=gaussian"]),
        (Grow::Transposed, &["model.latent=nearest"]),
        (
            Grow::Transposed,
            &["model.latent=nearest", "model.codebook=ema"],
        ),
        (Grow::Nearest, &["model.latent=bernoulli"]),
        (Grow::Transposed, &["model.latent=fsq"]),
        (
            Grow::Nearest,
            &["train.estimator=vimco", "train.particles=2"],
        ),
        (Grow::Nearest, &["model.backbone=mlp"]),
    ] {
        let bench = StepBench {
            layers: 8,
            channels: 20,
            embed: 12,
            codes: 16,
            batch: 3,
            steps: 1,
            optimiser: Optimiser::AdaMax,
        };
        let mut config = bench.config();
        config.model.grow = grow;
        settings.iter().for_each(|set| config.set(set).unwrap());
        let codebook = config.model.codebook;
        let model = Model::new(&config.model);
        let images: Vec<u8> = (0..3 * model.image_len())
            .map(|i| (i * 37 % 251) as u8)
            .collect();
        let plain = step(&model, &config, Target::default());
        let target = Target {
            sums_by_rows: false,
            ..cuda_target(Precision::F32)
        };
        let turned = step(&model, &config, target);
        let count =
            |plan: &Plan, is: fn(&Kernel) -> bool| plan.kernels().iter().filter(|k| is(k)).count();
        let convs = |k: &Kernel| matches!(k, Kernel::Conv { .. });
        let joins = count(&turned, convs) < count(&plain, convs);
        // The nearest code has no prior's strap to join with.
        let nearest = settings.first() == Some(&"model.latent=nearest");
        assert!(joins || nearest, "straps join");
        assert!(
            turned.kernels().len() < plain.kernels().len(),
            "small kernels gather"
        );
        let (loss, norm, store) = run(&model, plain, &images);
        let (loss2, norm2, store2) = run(&model, turned, &images);
        assert!((loss - loss2).abs() < 1e-5 * loss, "{loss} {loss2}");
        assert!((norm - norm2).abs() < 1e-3 * norm, "{norm} {norm2}");
        let (a, b) = (store.get("m"), store2.get("m"));
        let largest = a.iter().fold(0f32, |x, v| x.max(v.abs()));
        let error = a.iter().zip(b).fold(0f32, |x, (p, q)| x.max((p - q).abs()));
        assert!(error < 1e-3 * largest, "{error} of {largest}");
        let (a, b) = (store.get("theta"), store2.get("theta"));
        // Two steps of up to 2e-4.
        let error = a.iter().zip(b).map(|(p, q)| (p - q).abs()).sum::<f32>() / a.len() as f32;
        assert!(error < 4e-6, "parameters differ by {error} {settings:?}");
        assert_eq!(model.memories.is_empty(), codebook == CodebookRule::Loss);
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(p, q)| (p - q).abs() < 1e-4);
        for memory in &model.memories {
            let (a, b) = (store.get(&memory.name), store2.get(&memory.name));
            assert!(near(a, b), "{}", memory.name);
        }
        if codebook == CodebookRule::Ema {
            let entry = model.layout.get("layer.8.codes.mean").unwrap();
            let [a, b] = [&store, &store2].map(|s| &s.get("theta")[entry.offset..][..entry.len()]);
            assert!(near(a, b), "means of codes");
        }
    }
}

/// An order of jobs that keeps each stream's own and every wait, but nothing else; another for another seed.
fn some_order(lanes: &[Lane], mut seed: u32) -> Vec<usize> {
    let streams = 1 + lanes.iter().map(|l| l.stream).max().unwrap_or(0);
    let mut queues: Vec<std::collections::VecDeque<usize>> = vec![Default::default(); streams];
    for (job, lane) in lanes.iter().enumerate() {
        queues[lane.stream].push_back(job);
    }
    let mut done = vec![false; lanes.len()];
    let mut order = Vec::new();
    while order.len() < lanes.len() {
        let ready: Vec<usize> = (0..streams)
            .filter(|&s| {
                let first = queues[s].front();
                first.is_some_and(|&job| lanes[job].waits.iter().all(|&w| done[w]))
            })
            .collect();
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        let stream = ready[(seed >> 16) as usize % ready.len()];
        // Runs of one stream now and then, so that it gets far ahead of the others.
        let burst = 1 + (seed >> 8) % 7;
        for _ in 0..burst {
            let Some(&job) = queues[stream].front() else {
                break;
            };
            if !lanes[job].waits.iter().all(|&w| done[w]) {
                break;
            }
            queues[stream].pop_front();
            done[job] = true;
            order.push(job);
        }
    }
    order
}

/// The last `few` streams for weight gradients.
fn pools(plan: &Plan, streams: usize, few: usize) -> Vec<std::ops::Range<usize>> {
    let pool = |k: &Kernel| match k {
        Kernel::ConvGradWeight { .. } => streams - few..streams,
        _ => 0..streams - few,
    };
    plan.kernels().iter().map(pool).collect()
}

/// Sums over processes are made while gradients are still computed, on a stream of their own, and change no bit.
#[test]
fn sums_over_processes_run_beside_the_backward_pass() {
    let bench = StepBench {
        layers: 12,
        channels: 16,
        embed: 8,
        codes: 16,
        batch: 2,
        steps: 1,
        optimiser: Optimiser::AdaMax,
    };
    for settings in [&[][..], &["model.latent=nearest", "model.codebook=ema"]] {
        let mut config = bench.config();
        settings.iter().for_each(|set| config.set(set).unwrap());
        let model = Model::new(&config.model);
        let images: Vec<u8> = (0..2 * model.image_len())
            .map(|i| (i * 37 % 251) as u8)
            .collect();
        let group = Group::alone(1);
        let target = Target {
            sums_by_rows: false,
            ..cuda_target(Precision::F32)
        };
        let alone = step(&model, &config, target);
        let graph = Graph::new().in_group(&group);
        let plan = step_in(graph, &model, &config, target);
        let is_sum = |k: &Kernel| matches!(k, Kernel::AllSum { .. });
        let sums: Vec<usize> = (0..plan.kernels().len())
            .filter(|&i| is_sum(&plan.kernels()[i]))
            .collect();
        let gradients = |k: &Kernel| matches!(k, Kernel::ConvGradWeight { .. });
        let last = plan.kernels().iter().rposition(gradients).unwrap();
        let before = sums.iter().filter(|&&sum| sum < last).count();
        assert!(
            before * 2 > sums.len() && sums.len() > 4,
            "{before} of {}",
            sums.len()
        );
        let batched = |plan: &Plan| plan.kernels().len();
        assert!(
            batched(&plan) < batched(&alone) + 12 * sums.len(),
            "small kernels gather"
        );
        let (loss, norm, store) = run(&model, alone, &images);
        let touches: Vec<Touch> = plan.kernels().iter().map(Touch::of).collect();
        for (seed, streams) in [6, 9, 4].into_iter().enumerate() {
            let mut pools = pools(&plan, streams - 1, 1);
            sums.iter()
                .for_each(|&sum| pools[sum] = streams - 1..streams);
            let order = some_order(&lanes(&touches, &pools, streams), seed as u32);
            let plan = plan.in_order(&order);
            let (loss2, norm2, store2) = run_in(Some(&group), &model, plan, &images);
            assert_eq!((loss, norm), (loss2, norm2), "{settings:?}");
            assert!(store.get("theta") == store2.get("theta"), "{settings:?}");
        }
    }
}

#[test]
fn any_order_that_the_lanes_allow_gives_the_same_bits() {
    let bench = StepBench {
        layers: 12,
        channels: 16,
        embed: 8,
        codes: 16,
        batch: 2,
        steps: 1,
        optimiser: Optimiser::AdaMax,
    };
    let config = bench.config();
    let model = Model::new(&config.model);
    let images: Vec<u8> = (0..2 * model.image_len())
        .map(|i| (i * 37 % 251) as u8)
        .collect();
    let target = Target {
        sums_by_rows: false,
        ..cuda_target(Precision::F32)
    };
    let plan = step(&model, &config, target);
    let touches: Vec<Touch> = plan.kernels().iter().map(Touch::of).collect();
    let (loss, norm, store) = run(&model, plan.clone(), &images);
    for (seed, (streams, few)) in [(5, 2), (4, 0), (9, 3), (3, 2), (8, 2), (8, 0)]
        .into_iter()
        .enumerate()
    {
        let lanes = lanes(&touches, &pools(&plan, streams, few), streams);
        let order = some_order(&lanes, seed as u32);
        let moved = order.windows(2).filter(|w| w[1] != w[0] + 1).count();
        assert!(moved > 20, "the order is another: {moved}");
        let (loss2, norm2, store2) = run(&model, plan.in_order(&order), &images);
        assert_eq!(
            (loss, norm),
            (loss2, norm2),
            "{streams} streams, {few} of them background"
        );
        assert!(
            store.get("theta") == store2.get("theta"),
            "weights, {streams} streams"
        );
    }
}
