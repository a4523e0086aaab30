//! Every CUDA kernel of the model's programs compiles, for the oldest GPU we take and for the one we aim at. Needs
//! NVRTC but no GPU.

use rrvq::bench::StepBench;
use rrvq::config::{Grow, Sample, Top};
use rrvq::model::Hierarchy;
use rrvq::programs::Model;
use rrvq_tensor::compile::{Plan, Target, compile_for};
use rrvq_tensor::device::cuda::{codegen, library, lower, nvrtc};
use rrvq_tensor::optim::{Optimiser, Rule};
use rrvq_tensor::{Graph, Var};

fn plans(bench: &StepBench, change: impl Fn(&mut rrvq::config::Config), bf16: bool) -> Vec<Plan> {
    let mut config = bench.config();
    change(&mut config);
    let model = Model::new(&config.model);
    let target = Target::cuda(bf16);
    let compile = |graph: &Graph, outputs: &[(&str, Var<'_>)]| {
        compile_for(target, graph, &model.layout, outputs).expect("compiles")
    };
    let step = Graph::new();
    let elbo = Hierarchy::new(&step, &model.config, bench.batch).training_elbo();
    let loss = elbo.loss(&model.config);
    let optimiser = Optimiser {
        rule: Rule::AdaMax,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        clip: 200.0,
        ema: 0.999,
    };
    let norm = optimiser.draw(loss);
    let evaluation = Graph::new();
    let elbo = Hierarchy::new(&evaluation, &model.config, bench.batch).weighed_elbo();
    let weight = elbo.log_weight.expect("asked for");
    let sampler = Graph::new();
    let picture = Hierarchy::new(&sampler, &model.config, bench.batch).generate();
    vec![
        compile(&step, &[("loss", loss), ("norm", norm)]),
        compile(&evaluation, &[("weight", weight), ("codes", elbo.codes[0])]),
        compile(&sampler, &[("picture", picture)]),
    ]
}

#[test]
fn all_kernels_compile_for_sm_80_and_sm_90() {
    if let Err(missing) = library::nvrtc() {
        println!("skipped: {missing}");
        return;
    }
    let bench = |layers, channels, embed, codes, batch| StepBench {
        layers,
        channels,
        embed,
        codes,
        batch,
        steps: 1,
    };
    let mut all = plans(&bench(8, 256, 32, 256, 256), |_| {}, true);
    all.extend(plans(
        &bench(4, 20, 12, 40, 3),
        |config| {
            config.model.grow = Grow::Transposed;
            config.model.sample = Sample::Relaxed;
            config.model.top = Top::Uniform;
        },
        false,
    ));
    let functions: Vec<_> = all
        .iter()
        .enumerate()
        .flat_map(|(i, plan)| lower::functions(&lower::jobs(plan, i >= 3)))
        .collect();
    let functions: Vec<_> = functions.iter().collect();
    let sources: Vec<String> = codegen::sources(&functions)
        .into_iter()
        .map(|s| s.0)
        .collect();
    for arch in ["sm_80", "sm_90"] {
        let cubins = nvrtc::compile_all(&sources, arch, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(cubins.len(), sources.len());
        assert!(cubins.iter().all(|cubin| cubin.starts_with(b"\x7fELF")));
    }
    println!("{} sources for each", sources.len());
}
