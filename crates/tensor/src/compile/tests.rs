//! What compiling decides: which kernels there are, what reaches memory, and that results do not depend on
//! threads or instruction sets.

use super::{Kernel, Plan, compile};
use crate::device::cpu::Program;
use crate::graph::{DType, Graph, Var};
use crate::params::Layout;
use crate::rng::{Distribution, Noise, counter, fill};
use crate::simd::{Isa, isa};
use crate::{Data, Group, Store, grad};

/// Inputs x0, x1, … of the given shapes.
fn inputs<'g>(g: &'g Graph, shapes: &[Vec<usize>]) -> Vec<Var<'g>> {
    let one = |(i, s): (usize, &Vec<usize>)| g.input(&format!("x{i}"), s, DType::F32);
    shapes.iter().enumerate().map(one).collect()
}

/// Standard normal numbers, the same for the same stream.
fn normal(stream: u32, len: usize) -> Vec<f32> {
    let noise = Noise {
        seed: 7,
        stream,
        step: 0,
    };
    let mut out = vec![0.0; len];
    fill(isa(), noise, Distribution::Normal, 0, &mut out);
    out
}

fn plan(outputs: &[(&str, Var<'_>)]) -> Plan {
    compile(outputs[0].1.graph(), &Layout::default(), outputs).expect("compiles")
}

#[test]
fn an_element_wise_chain_is_one_kernel_without_intermediate_memory() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![8, 64], vec![64]]);
    let y = ((x[0] + x[1]).elu() * 0.5 - x[0].exp()).square();
    let plan = plan(&[("y", y)]);
    assert_eq!(plan.kernels.len(), 1);
    assert_eq!(plan.arena, 8 * 64, "only the result is in memory");
}

#[test]
fn a_softmax_is_one_kernel() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![8, 50]]);
    assert_eq!(plan(&[("y", x[0].log_softmax())]).kernels.len(), 1);
}

#[test]
fn bias_activation_and_residual_are_the_convolution_s_epilogue() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![2, 8, 8, 16], vec![3, 3, 16, 16], vec![16]]);
    let y = x[0] + (x[0].conv(x[1], 1) + x[2]).elu() * 0.1;
    let plan = plan(&[("y", y)]);
    assert!(matches!(plan.kernels[..], [Kernel::Conv { .. }]));
    assert_eq!(plan.arena, 2 * 8 * 8 * 16);
}

#[test]
fn what_a_gradient_needs_of_an_activation_is_recomputed_not_stored() {
    let g = Graph::new();
    let n = 2 * 8 * 8 * 16;
    let x = inputs(
        &g,
        &[vec![2, 8, 8, 16], vec![3, 3, 16, 16], vec![3, 3, 16, 16]],
    );
    let h = x[0].conv(x[1], 1).elu();
    let loss = h.conv(x[2], 1).square().sum();
    let d = grad(loss, &[x[0]])[0];
    let plan = plan(&[("loss", loss), ("d", d)]);
    // The activation, the second convolution's result, its gradient and the outputs; no slope, no square.
    assert!(plan.arena <= 4 * n + 64, "{} floats", plan.arena);
}

#[test]
fn the_same_expression_drawn_twice_is_computed_once() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![100]]);
    let (a, b) = (x[0].exp(), x[0].exp());
    assert!(a.same(b));
    assert!((x[0] * 1.0).same(x[0]) && (x[0] + 0.0).same(x[0]) && (-(-x[0])).same(x[0]));
}

#[test]
fn memory_is_used_again() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![2, 8, 8, 16], vec![3, 3, 16, 16]]);
    let deep = (0..20).fold(x[0], |x0, _| x0.conv(x[1], 1));
    let plan = plan(&[("y", deep)]);
    assert_eq!(
        plan.arena,
        2 * 2 * 8 * 8 * 16,
        "twenty convolutions in two buffers"
    );
}

/// Two vectors packed and summed over shards in one piece of memory, and the sums packed in turn.
#[test]
fn a_sum_over_shards_is_made_where_its_result_will_lie() {
    let group = Group::alone(2);
    let sums = |read_again: bool| {
        let g = Graph::new().in_group(&group);
        let x = inputs(&g, &[vec![16], vec![32]]);
        let (a, b) = (x[0].exp(), x[1].square());
        let first = g.pack(&[a, b], &[0, 16], 48);
        let second = g.pack(&[x[0].square()], &[0], 16);
        let all = g.pack(&[first.all_sum(), second.all_sum()], &[0, 48], 64);
        // What a shard had before the sum, which the sum must then leave alone.
        let own = match read_again {
            true => (all.sum() * first).sum(),
            false => all.sum(),
        };
        let plan = plan(&[("all", all * 2.0), ("own", own)]);
        let in_place =
            |kernel: &&Kernel| matches!(kernel, Kernel::AllSum { from, to, .. } if from == to);
        let count = plan.kernels.iter().filter(in_place).count();
        let mut program = Program::new(plan).in_group(Some(&group));
        let values = [1, 3].map(|stream| [normal(stream, 16), normal(stream + 1, 32)]);
        let data = values
            .each_ref()
            .map(|[a, b]| [("x0", Data::F32(a)), ("x1", Data::F32(b))]);
        let data = data.each_ref().map(|d| d.as_slice());
        let ran = program.run_observed(&mut Store::default(), &data, |_, _| {});
        ran.expect("runs");
        let all = program.output("all").to_vec();
        let want: Vec<f32> = (0..64)
            .map(|i| {
                let of = |[a, b]: &[Vec<f32>; 2]| match i {
                    0..16 => a[i].exp(),
                    16..48 => b[i - 16] * b[i - 16],
                    _ => a[i - 48] * a[i - 48],
                };
                2.0 * values.iter().map(of).sum::<f32>()
            })
            .collect();
        for (got, want) in all.iter().zip(&want) {
            assert!((got - want).abs() <= 1e-5 * want.abs(), "{got} {want}");
        }
        let total = want.iter().sum::<f32>() / 2.0;
        let [a, b] = &values[0];
        let before: f32 = a
            .iter()
            .map(|x| x.exp())
            .chain(b.iter().map(|x| x * x))
            .sum();
        let want = if read_again { total * before } else { total };
        let own = program.scalar("own");
        assert!((own - want).abs() <= 1e-4 * want.abs(), "{own} {want}");
        count
    };
    assert_eq!(sums(false), 2);
    assert_eq!(sums(true), 1);
}

#[test]
fn a_missing_input_and_a_wrong_size_are_sentences() {
    let g = Graph::new();
    let x = inputs(&g, &[vec![4]]);
    let mut program = Program::new(plan(&[("y", x[0].exp())]));
    let mut store = Store::default();
    let missing = program.run(&mut store, &[]).unwrap_err().to_string();
    assert!(
        missing.contains("x0") && missing.contains("not given"),
        "{missing}"
    );
    let short = [("x0", Data::F32(&[1.0]))];
    let wrong = program.run(&mut store, &short).unwrap_err().to_string();
    assert!(wrong.contains("x0") && wrong.contains('4'), "{wrong}");
}

/// Convolutions of both strides, products, reductions of every kind, broadcasts and noise, with gradients.
fn everything<'g>(g: &'g Graph, x: &[Var<'g>]) -> Vec<(String, Var<'g>)> {
    let h = (x[0].conv(x[1], 1) + x[2]).elu();
    let low = h.conv(x[1], 2).avg_pool(2);
    let up = low.conv_transposed(x[1], 2, 6, 6);
    let noise = g.noise(Distribution::Gumbel, &[3 * 36, 18]);
    let rows = up.reshape(&[3 * 36, 18]) + noise * 0.1;
    let scores = rows.matmul(x[3], false, true).log_softmax();
    let loss = (scores.exp() * scores).sum() + h.square().mean() + scores.max_last().sum();
    let mut outputs = vec![("loss".to_string(), loss), ("scores".into(), scores)];
    let d = grad(loss, x);
    outputs.extend(d.into_iter().enumerate().map(|(i, d)| (format!("d{i}"), d)));
    outputs
}

#[test]
fn the_same_bits_on_every_instruction_set_and_for_any_number_of_threads() {
    let shapes = [
        vec![3, 12, 12, 18],
        vec![3, 3, 18, 18],
        vec![18],
        vec![70, 18],
    ];
    let values: Vec<Vec<f32>> = (0u32..)
        .zip(&shapes)
        .map(|(i, s)| {
            normal(i, s.iter().product())
                .iter()
                .map(|v| v * 0.3)
                .collect()
        })
        .collect();
    let results = |isa: Isa, threads: usize| -> Vec<u32> {
        let g = Graph::new();
        let outputs = everything(&g, &inputs(&g, &shapes));
        let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut program = Program::with_isa(plan(&named), isa);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        let names: Vec<String> = (0..values.len()).map(|i| format!("x{i}")).collect();
        let words = counter(3, 5);
        let mut data = vec![("counter", Data::U32(&words))];
        data.extend(
            names
                .iter()
                .zip(&values)
                .map(|(n, v)| (n.as_str(), Data::F32(v))),
        );
        pool.install(|| program.run(&mut Store::default(), &data).unwrap());
        named
            .iter()
            .flat_map(|(n, _)| program.output(n).iter().map(|v| v.to_bits()))
            .collect()
    };
    let first = results(Isa::Portable, 1);
    assert!(first.iter().any(|&bits| f32::from_bits(bits) != 0.0));
    for isa in Isa::all() {
        for threads in [1, 2, 3] {
            assert!(
                results(isa, threads) == first,
                "{isa:?} with {threads} threads differs"
            );
        }
    }
}

#[test]
fn a_plan_that_does_not_fit_its_memory_ends_in_a_panic_and_touches_nothing() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let g = Graph::new();
    let x = inputs(&g, &[vec![4, 32], vec![32, 8]]);
    let rows = (x[0].exp().sum_last() + 1.0).log();
    let outputs = [
        ("map", x[0].elu()),
        ("product", x[0].matmul(x[1], false, false)),
        ("rows", rows),
        ("sum", x[0].square().sum_to(&[32])),
    ];
    let whole = plan(&outputs);
    let a = normal(1, 4 * 32);
    let b = normal(2, 32 * 8);
    let given = [("x0", Data::F32(&a)), ("x1", Data::F32(&b))];
    let run = |plan: Plan| {
        let mut program = Program::new(plan);
        program.run(&mut Store::default(), &given).map(|()| program)
    };
    assert!(run(whole.clone()).is_ok());
    for arena in [0, 16, whole.arena / 2] {
        let small = Plan {
            arena,
            ..whole.clone()
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| run(small).is_ok()));
        assert!(outcome.is_err(), "{arena} floats");
    }
}

/// What is decided for a GPU, which takes none.
#[cfg(feature = "cuda")]
mod for_a_gpu {
    use crate::Precision;
    use crate::compile::{Kernel, Plan, compile_for};
    use crate::graph::{DType, Graph};
    use crate::optim::{Optimiser, Rule};
    use crate::params::Init;
    use crate::testing::cuda_target;

    /// The step of weight-normalised convolutions, the last of which has `out` channels.
    fn normalised_step(out: usize) -> Plan {
        let g = Graph::new();
        let mut y = g.input("x", &[2, 8, 8, 128], DType::F32);
        for (i, channels) in [128, 128, 128, out].into_iter().enumerate() {
            let v = g.param(&format!("{i}.v"), &[3, 3, 128, channels], Init::Normal(0.1));
            let of_each = [1, 1, 1, channels];
            let gain = g.param(&format!("{i}.g"), &of_each, Init::Constant(1.0));
            let norm = (v.square().sum_to(&of_each) + 1e-6).rsqrt();
            y = y.elu().conv(v * (norm * gain), 1);
        }
        let loss = y.square().sum();
        let optimiser = Optimiser {
            rule: Rule::AdaMax,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            clip: 5.0,
            ema: 0.99,
        };
        let norm = optimiser.build(loss);
        let outputs = [("loss", loss), ("norm", norm)];
        compile_for(cuda_target(Precision::Bf16), &g, &g.layout(), &outputs).unwrap()
    }

    #[test]
    fn one_large_kernel_does_not_keep_the_gradients_of_the_others_from_running_together() {
        let batches = |plan: &Plan| -> Vec<usize> {
            let of_kernel = plan.kernels().iter().map(|kernel| match kernel {
                Kernel::Batch(jobs) => jobs.len(),
                _ => 0,
            });
            of_kernel.filter(|jobs| *jobs > 0).collect()
        };
        // The second has a kernel of 1.2 million values.
        let (small, large) = (normalised_step(64), normalised_step(1024));
        assert!(batches(&small).iter().any(|jobs| *jobs >= 4));
        assert_eq!(batches(&small), batches(&large));
        assert_eq!(small.kernels().len(), large.kernels().len());
    }
}
