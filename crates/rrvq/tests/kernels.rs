//! Every CUDA kernel of the model's programs compiles, for the oldest GPU we take and for the one we aim at. Needs
//! NVRTC but no GPU.

use rrvq::SampleOptions;
use rrvq::bench::StepBench;
use rrvq::config::{
    Backbone, CodeStart, CodebookRule, Config, Estimator, Grow, Optimiser, PriorKind, Sample, Top,
};
use rrvq::model::Hierarchy;
use rrvq::nn::Builder;
use rrvq::prior::PriorModel;
use rrvq::prior::network::PixelCnn;
use rrvq::programs::{Model, objective};
use rrvq_tensor::Precision::{self, Bf16, F32};
use rrvq_tensor::optim::Exceptions;
use rrvq_tensor::testing::{self, Function, Plan, compile_for, cuda_target};
use rrvq_tensor::{DType, Graph, Group, Var};
use std::collections::{BTreeMap, HashSet};

fn plans(
    bench: &StepBench,
    change: impl Fn(&mut rrvq::config::Config),
    precision: Precision,
) -> Vec<Plan> {
    plans_in(bench, change, precision, Graph::new)
}

/// Those of one of several processes.
fn sharded_plans(
    bench: &StepBench,
    change: impl Fn(&mut rrvq::config::Config),
    precision: Precision,
) -> Vec<Plan> {
    let graph = || Graph::new().in_group(&Group::alone(1));
    plans_in(bench, change, precision, graph)
}

fn plans_in(
    bench: &StepBench,
    change: impl Fn(&mut rrvq::config::Config),
    precision: Precision,
    graph: impl Fn() -> Graph,
) -> Vec<Plan> {
    let mut config = bench.config();
    change(&mut config);
    let model = Model::new(&config.model);
    let target = cuda_target(precision);
    let compile = |graph: &Graph, outputs: &[(&str, Var<'_>)]| {
        compile_for(target, graph, &model.layout, outputs).expect("compiles")
    };
    let step = graph();
    let (elbo, loss) = objective(&step, &model, &config.train);
    let (rates, matrices) = (
        config.train.rates(&model.layout),
        config.train.matrices(&model.layout),
    );
    let except = Exceptions {
        skip_norm: config.train.skip_norm as f32,
        rates: rates.is_some(),
        matrices: &matrices,
        bf16_sums: precision == Bf16,
        ..Exceptions::default()
    };
    let norm = elbo.descend_with(&config.train.update(), loss, except);
    let evaluation = graph();
    let scored = Hierarchy::new(&evaluation, &model.config, bench.batch).weighed_elbo();
    let mut judged = vec![("weight", scored.log_weight.expect("asked for"))];
    judged.extend(scored.codes.first().map(|&codes| ("codes", codes)));
    let sampler = Graph::new();
    let pixels = SampleOptions::default().shown(&model.config);
    let picture = Hierarchy::new(&sampler, &model.config, bench.batch).generate(pixels);
    let first = graph();
    let hierarchy =
        Hierarchy::with_builder(Builder::initialising(&first, &model.config), bench.batch);
    hierarchy.hard_elbo();
    let found = hierarchy.builder.found();
    let found: Vec<(&str, Var<'_>)> = found.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    vec![
        compile(&step, &[("loss", loss), ("norm", norm)]),
        compile(&evaluation, &judged),
        compile(&sampler, &[("picture", picture)]),
        compile(&first, &found),
    ]
}

/// Step and sampler of a prior over the codes of a VQ-VAE.
fn prior_plans(precision: Precision) -> Vec<Plan> {
    let mut config = Config::preset("vq-ema-cifar10").expect("a preset");
    (config.prior.channels, config.prior.layers) = (32, 2);
    let prior = PriorModel::new(&config.model, &config.prior);
    let draw = |graph: &Graph, outputs: &[(&str, Var<'_>)]| {
        compile_for(cuda_target(precision), graph, &prior.layout, outputs).expect("compiles")
    };
    let step = Graph::new();
    let net = PixelCnn::new(
        Builder::new(&step, &config.model),
        &config.prior,
        prior.map,
        8,
    );
    let loss = net.surprise(net.codes()).sum();
    let norm = config.prior.training().update().build(loss);
    let above = Graph::new();
    let net = PixelCnn::new(
        Builder::new(&above, &config.model),
        &config.prior,
        prior.map,
        8,
    );
    let told = net.above(net.codes(), above.input("row", &[16], DType::F32));
    let row = Graph::new();
    let net = PixelCnn::new(
        Builder::new(&row, &config.model),
        &config.prior,
        prior.map,
        8,
    );
    let codes = row.input("codes", &[8 * 16, 1], DType::U32);
    let heard = row.input("above", &net.above_shape(), DType::F32);
    let logits = net.row_logits(codes, heard, row.input("row", &[16], DType::F32));
    vec![
        draw(&step, &[("loss", loss), ("norm", norm)]),
        draw(&above, &[("above", told)]),
        draw(&row, &[("drawn", logits.argmax_last())]),
    ]
}

#[test]
fn a_prior_has_plans_for_a_gpu() {
    for precision in [F32, Bf16] {
        assert!(
            prior_plans(precision)
                .iter()
                .all(|plan| !plan.kernels().is_empty())
        );
    }
}

/// Generated functions that differ in nothing but sizes compile alike: of those, the one with the largest, whose
/// arrays are the first to become too large. In what is written by hand every number may be a choice.
fn one_of_each_form<'a>(all: &HashSet<&'a Function>) -> Vec<&'a Function> {
    let mut forms: BTreeMap<String, (u64, &Function)> = BTreeMap::new();
    for &function in all {
        // The name of a generated function is a hash of the rest.
        let hash = function.name.strip_prefix('k').unwrap_or("");
        let generated = hash.len() == 16 && hash.chars().all(|c| c.is_ascii_hexdigit());
        let (form, size) = match generated {
            true => without_sizes(&function.source.replace(&function.name, "")),
            false => (function.name.clone() + &function.source, 0),
        };
        let kept = forms.entry(form).or_insert((size, function));
        if (size, &function.name) > (kept.0, &kept.1.name) {
            *kept = (size, function);
        }
    }
    forms.into_values().map(|(_, function)| function).collect()
}

/// The text with `#` for every number that is unsigned or has more than a digit, and their sum. The others are widths
/// and strides, which other code is made for.
fn without_sizes(text: &str) -> (String, u64) {
    let (mut form, mut sum, mut number) = (String::new(), 0, String::new());
    for c in text.chars().chain([' ']) {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        match number.len() > 1 || (number.len() == 1 && c == 'u') {
            false => form += &number,
            true => {
                form.push('#');
                sum += number.parse::<u64>().unwrap_or(0);
            }
        }
        number.clear();
        form.push(c);
    }
    (form, sum)
}

#[test]
fn sizes_are_no_part_of_a_form() {
    let (form, sum) = without_sizes("a[128] + 4 * b7[i % 6u]");
    assert_eq!((form.as_str(), sum), ("a[#] + 4 * b7[i % #u] ", 134));
}

#[test]
fn all_kernels_compile_for_sm_80_and_sm_90() {
    if let Err(missing) = testing::find_nvrtc() {
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
        optimiser: Optimiser::AdaMax,
    };
    let training = bench(8, 256, 32, 256, 256);
    let reinmax = |config: &mut Config| config.model.sample = Sample::ReinMax;
    let mut in_bf16 = plans(&training, |_| {}, Bf16);
    in_bf16.extend(plans(&training, reinmax, Bf16));
    in_bf16.extend(plans(&bench(4, 24, 128, 256, 4), reinmax, Bf16));
    in_bf16.extend(sharded_plans(&training, |_| {}, Bf16));
    in_bf16.extend(sharded_plans(&bench(4, 24, 128, 256, 4), reinmax, Bf16));
    let mut all = plans(
        &bench(4, 20, 12, 40, 3),
        |config| {
            config.model.grow = Grow::Transposed;
            config.model.sample = Sample::Relaxed;
            config.model.top = Top::Uniform;
        },
        F32,
    );
    all.extend(plans(&bench(4, 24, 32, 256, 4), reinmax, F32));
    all.extend(plans(&bench(4, 20, 12, 40, 3), reinmax, F32));
    let changes: [fn(&mut Config); 12] = [
        |config| config.model.code_start = CodeStart::Embeddings,
        |config| config.model.latent = "gaussian".into(),
        |config| config.model.latent = "nearest".into(),
        |config| {
            config.model.latent = "nearest".into();
            config.model.codebook = CodebookRule::Ema;
            (config.train.skip_norm, config.train.code_lr) = (300.0, 0.5);
        },
        |config| config.model.latent = "bernoulli".into(),
        |config| config.model.latent = "fsq".into(),
        |config| config.model.likelihood = "mixture-causal".into(),
        |config| config.model.prior = PriorKind::Direct,
        |config| config.model.backbone = Backbone::Mlp,
        |config| config.train.estimator = Estimator::Vimco,
        |config| config.train.optimiser = Optimiser::Muon,
        |config| config.train.norm_penalty = 1.0,
    ];
    all.extend(sharded_plans(&bench(4, 24, 32, 256, 4), |_| {}, F32));
    all.extend(sharded_plans(&bench(4, 20, 12, 40, 3), |_| {}, F32));
    for change in [changes[1], changes[3], changes[4]] {
        all.extend(sharded_plans(&bench(4, 24, 16, 32, 4), change, Bf16));
    }
    for change in changes {
        all.extend(plans(&bench(4, 24, 16, 32, 4), change, Bf16));
    }
    all.extend(prior_plans(Bf16));
    let lowered = |plans: &[Plan], exact| -> Vec<Function> {
        let functions = |plan| testing::functions(&testing::jobs(plan, exact));
        plans.iter().flat_map(functions).collect()
    };
    let mut functions = lowered(&in_bf16, false);
    functions.extend(lowered(&all, true));
    let all: HashSet<&Function> = functions.iter().collect();
    let functions = one_of_each_form(&all);
    println!("{} of {} functions", functions.len(), all.len());
    let sources: Vec<String> = testing::sources(&functions)
        .into_iter()
        .map(|s| s.0)
        .collect();
    let compile = |arch| {
        let cubins = testing::compile_all(&sources, arch, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(cubins.len(), sources.len());
        assert!(cubins.iter().all(|cubin| cubin.starts_with(b"\x7fELF")));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| compile("sm_80"));
        compile("sm_90");
    });
    println!("compiled: {} sources for sm_80 and sm_90", sources.len());
}
