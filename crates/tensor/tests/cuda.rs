//! Every operation and its gradient on a GPU against the CPU, in f32 and in bf16, and what must hold of programs
//! there. Skipped, with a word, where there is no GPU.

mod cases;
mod common;

use common::{Draw, inputs, normal};
use rrvq_tensor::device::{Device, Precision, Program};
use rrvq_tensor::optim::{Exceptions, Optimiser, Rule, STATES};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{DType, Data, Graph, Init, Layout, Store, Var, grad};
use std::sync::Mutex;

/// Largest error in f32, of the largest value of a tensor.
const F32: f32 = 1e-5;
/// The same where maps and kernels are bf16, whose rounding is 2⁻⁹: a few roundings follow each other.
const BF16: f32 = 3e-2;

static FAILED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One test at a time has the GPU.
static BUSY: Mutex<()> = Mutex::new(());

fn gpu() -> Option<Device> {
    match Device::cuda(0, Precision::F32) {
        Ok(gpu) => Some(gpu),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn note(text: String) {
    println!("FAILED {text}");
    FAILED.lock().unwrap().push(text);
}

/// All outputs of a program that draws `draw` and the gradient of a random projection of it.
fn outputs(
    device: &Device,
    draw: &Draw,
    shapes: &[Vec<usize>],
    values: &[Vec<f32>],
) -> rrvq_tensor::Result<Vec<(String, Vec<f32>)>> {
    let g = Graph::new();
    let x = inputs(&g, shapes);
    let y = draw(&g, &x);
    let weights = normal(99, y.size());
    let w = g.input("w", &y.shape(), DType::F32);
    let loss = (y * w).sum();
    let mut outputs = vec![("loss".to_string(), loss), ("y".into(), y)];
    for (i, d) in grad(loss, &x).into_iter().enumerate() {
        outputs.push((format!("d{i}"), d));
    }
    let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let mut program = Program::new(device, &g, &Layout::default(), &named)?;
    let words = counter(3, 5);
    let names: Vec<String> = (0..values.len()).map(|i| format!("x{i}")).collect();
    let mut data: Vec<(&str, Data<'_>)> = names
        .iter()
        .zip(values)
        .map(|(n, v)| (n.as_str(), Data::F32(v)))
        .collect();
    data.extend([("counter", Data::U32(&words)), ("w", Data::F32(&weights))]);
    let mut store = Store::default();
    program.run(&mut store, &data)?;
    outputs
        .iter()
        .map(|(n, _)| Ok((n.clone(), program.output(n)?.to_vec())))
        .collect()
}

/// Largest difference, of the largest value.
fn error(a: &[f32], b: &[f32]) -> f32 {
    let largest = a.iter().fold(1e-3f32, |x, v| x.max(v.abs()));
    let difference = |(a, b): (&f32, &f32)| match (a - b).abs() {
        d if d.is_nan() => f32::INFINITY,
        d => d,
    };
    a.iter().zip(b).map(difference).fold(0.0, f32::max) / largest
}

fn check_gradient(name: &str, draw: &Draw, shapes: &[Vec<usize>], values: Vec<Vec<f32>>, _: f32) {
    let Some(gpu) = gpu() else { return };
    let expected = outputs(&Device::Cpu, draw, shapes, &values).expect("runs on the CPU");
    for (precision, limit) in [(Precision::F32, F32), (Precision::Bf16, BF16)] {
        let device = gpu.with_precision(precision);
        let got = match outputs(&device, draw, shapes, &values) {
            Ok(got) => got,
            Err(e) => {
                note(format!("{name} in {}: {e}", precision.name()));
                continue;
            }
        };
        for ((output, a), (_, b)) in expected.iter().zip(&got) {
            // A sum of signed terms is only as accurate as its largest term.
            let limit = if output == "loss" {
                limit * 10.0
            } else {
                limit
            };
            let error = error(a, b);
            if a.len() != b.len() || error > limit {
                note(format!(
                    "{name} in {}: {output} is off by {error:.2e}",
                    precision.name()
                ));
            }
        }
    }
}

#[test]
fn every_operation_is_what_it_is_on_the_cpu() {
    let _alone = BUSY.lock();
    if gpu().is_none() {
        return;
    }
    cases::element_wise_with_one_operand();
    cases::the_slope_of_elu_itself_has_a_gradient();
    cases::element_wise_with_several_operands();
    cases::broadcasting_in_every_direction();
    cases::reductions();
    cases::moving_and_picking();
    cases::products();
    cases::convolutions();
    cases::chains_that_fuse_across_kinds();
    let failed = FAILED.lock().unwrap();
    assert!(
        failed.is_empty(),
        "{} failures:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// A small network with a weight update, to run more than once.
fn training(device: &Device, steps: u64) -> (Vec<f32>, Vec<f32>) {
    let g = Graph::new();
    let x = g.input("x", &[4, 8, 8, 16], DType::F32);
    let (a, b) = (
        g.param("a", &[3, 3, 16, 32], Init::Normal(0.1)),
        g.param("b", &[3, 3, 32, 16], Init::Normal(0.1)),
    );
    let y = x + x.elu().conv(a, 1).elu().conv(b, 1) * 0.1;
    let loss = (y - x.square()).square().mean();
    let d = grad(loss, &[a, b]);
    let layout = g.layout();
    let offsets: Vec<usize> = layout.entries().iter().map(|e| e.offset).collect();
    let flat = g.pack(&d, &offsets, layout.len());
    g.assign("theta", g.state("theta", layout.len()) - flat * 0.5);
    let mut program = Program::new(device, &g, &layout, &[("loss", loss)]).expect("compiles");
    let mut store = Store::with("theta", layout.initial(3));
    let x = normal(1, 4 * 8 * 8 * 16);
    let losses = (0..steps)
        .map(|_| {
            program
                .run(&mut store, &[("x", Data::F32(&x))])
                .expect("runs");
            program.scalar("loss").expect("is there")
        })
        .collect();
    store.fetch().expect("comes back");
    (losses, store.get("theta").to_vec())
}

#[test]
fn parts_of_states_are_read_and_replaced_on_the_device() {
    let _alone = BUSY.lock();
    let Some(device) = gpu() else { return };
    let g = Graph::new();
    let state = g.state("s", 8);
    g.assign("s", state * 2.0);
    let sum = state.sum();
    let mut program =
        Program::new(&device, &g, &Layout::default(), &[("sum", sum)]).expect("compiles");
    let mut store = Store::with("s", (0..8).map(|i| i as f32).collect());
    program.run(&mut store, &[]).expect("runs");
    // The host has not been told yet, and need not be.
    assert_eq!(store.part("s", 2..5).expect("is there"), [4.0, 6.0, 8.0]);
    store.set_part("s", 3, &[100.0, 200.0]).expect("fits");
    program.run(&mut store, &[]).expect("runs");
    store.fetch().expect("comes back");
    let want = [0.0, 4.0, 8.0, 200.0, 400.0, 20.0, 24.0, 28.0];
    assert_eq!(store.get("s"), want);
}

#[test]
fn states_live_on_the_device_and_two_runs_give_the_same_losses() {
    let _alone = BUSY.lock();
    let Some(gpu) = gpu() else { return };
    let (losses, theta) = training(&Device::Cpu, 5);
    for (precision, limit) in [(Precision::F32, 1e-4), (Precision::Bf16, 2e-2)] {
        let device = gpu.with_precision(precision);
        let (first, there) = training(&device, 5);
        let (second, again) = training(&device, 5);
        assert_eq!(first, second, "two runs in {}", precision.name());
        assert_eq!(there, again, "two runs in {}", precision.name());
        assert!(losses[4] < losses[0], "it learns: {losses:?}");
        assert!(error(&losses, &first) < limit, "{losses:?} {first:?}");
        assert!(
            error(&theta, &there) < limit,
            "weights in {}",
            precision.name()
        );
    }
}

/// Parameters and whether Muon has them: several of one shape, tall and wide, sizes that tensor cores suit and sizes that they do not.
const KERNELS: [(&str, &[usize], bool); 9] = [
    ("left", &[5, 5], false),
    ("a", &[40, 24], true),
    ("b", &[40, 24], true),
    ("c", &[40, 24], true),
    ("odd", &[3, 3, 3, 20], true),
    ("wide", &[12, 50], true),
    ("wider", &[12, 50], true),
    ("kernel", &[3, 3, 64, 32], true),
    ("row", &[1, 9], true),
];

/// What three steps of Muon make of each parameter.
fn muon(device: &Device) -> Vec<Vec<f32>> {
    let g = Graph::new();
    let mut loss = g.scalar(0.0);
    for (name, shape, _) in KERNELS {
        let slope = g.input(&format!("slope of {name}"), shape, DType::F32);
        loss = loss + (g.param(name, shape, Init::Constant(0.0)) * slope).sum();
    }
    let layout = g.layout();
    let matrices: Vec<String> = KERNELS.iter().filter(|k| k.2).map(|k| k.0.into()).collect();
    let optimiser = Optimiser {
        rule: Rule::AdaMax,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        clip: 0.0,
        ema: 0.9,
    };
    let except = Exceptions {
        matrices: &matrices,
        ..Exceptions::default()
    };
    let norm = optimiser.build_with(loss, except).norm;
    let mut program = Program::new(device, &g, &layout, &[("norm", norm)]).expect("compiles");
    let mut store = Store::default();
    for name in STATES {
        store.insert(name, vec![0.0; layout.len()]);
    }
    for t in 1..=3u32 {
        let slope = |(i, (name, shape, _)): (u32, &(&str, &[usize], bool))| {
            let values = normal(10 * t + i, shape.iter().product());
            (format!("slope of {name}"), values)
        };
        let slopes: Vec<(String, Vec<f32>)> = (0..).zip(&KERNELS).map(slope).collect();
        let t = [t as f32];
        let mut inputs: Vec<(&str, Data<'_>)> = slopes
            .iter()
            .map(|(name, values)| (name.as_str(), Data::F32(values)))
            .collect();
        inputs.extend([("lr", Data::F32(&[1.0])), ("t", Data::F32(&t))]);
        program.run(&mut store, &inputs).expect("runs");
    }
    store.fetch().expect("comes back");
    let theta = store.get("theta");
    let own = |entry: &rrvq_tensor::params::Entry| theta[entry.offset..][..entry.len()].to_vec();
    layout.entries().iter().map(own).collect()
}

#[test]
fn muon_makes_the_steps_it_makes_on_the_cpu() {
    let _alone = BUSY.lock();
    let Some(gpu) = gpu() else { return };
    let want = muon(&Device::Cpu);
    let length = |v: &mut dyn Iterator<Item = f32>| v.map(|x| x * x).sum::<f32>().sqrt();
    // With bf16 the products are of TF32, of whose rounding the rounds make 0.05 here, 0.1 at worst; and anything of one direction alone.
    for (precision, limit) in [(Precision::F32, 2e-3), (Precision::Bf16, 2e-1)] {
        let device = gpu.with_precision(precision);
        let have = muon(&device);
        assert!(have == muon(&device), "two runs in {}", precision.name());
        for ((name, ..), (have, want)) in KERNELS.iter().zip(have.iter().zip(&want)) {
            let off = length(&mut have.iter().zip(want).map(|(a, b)| a - b));
            let off = off / length(&mut want.iter().copied());
            println!("{name} in {}: off by {off:.1e}", precision.name());
            let alone = *name == "row" && precision == Precision::Bf16;
            assert!(
                off < if alone { 2.0 } else { limit },
                "{name} in {}: {off}",
                precision.name()
            );
        }
    }
}
