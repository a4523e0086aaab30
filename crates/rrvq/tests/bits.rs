//! Bits and their gradient against sums over both values of each bit, in f64.

use rrvq::latent::bernoulli::Bernoulli;
use rrvq_tensor::rng::{counter, philox4x32_10};
use rrvq_tensor::testing::{CpuProgram as Program, compile};
use rrvq_tensor::{DType, Data, Graph, Layout, Store, Var, grad};

const ROWS: usize = 4096;
const BITS: usize = 3;
/// Logits of the three bits, the same in all rows: unsure, leaning, nearly certain.
const LOGITS: [f32; BITS] = [0.3, -1.1, 2.5];

fn random(stream: u32, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| philox4x32_10([i as u32, stream, 0, 0], [5, 0])[0] as f32 / 2f32.powi(31) - 1.0)
        .collect()
}

fn sigmoid(a: f64) -> f64 {
    1.0 / (1.0 + (-a).exp())
}

#[test]
fn kl_and_log_mass_are_sums_over_both_values() {
    let g = Graph::new();
    let var = |name: &str| g.input(name, &[40, BITS], DType::F32);
    let (q, p) = (var("q"), var("p"));
    let [q, p] = [q, p].map(|logits| Bernoulli { logits });
    let hard = q.hard(g.scalar_input("noise_scale"), 1);
    let outputs = [
        ("kl", q.divergence(p)),
        ("hard", hard),
        ("log_mass", q.log_mass(hard)),
    ];
    let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
    // Some logits are so large that a probability is 0 in f32.
    let wide = |stream| -> Vec<f32> {
        let all = random(stream, 40 * BITS).into_iter().enumerate();
        all.map(|(i, v)| v * if i % 7 == 0 { 60.0 } else { 3.0 })
            .collect()
    };
    let (a, b) = (wide(1), wide(2));
    let inputs = [
        ("counter", Data::U32(&counter(1, 0))),
        ("noise_scale", Data::F32(&[1.0])),
        ("q", Data::F32(&a)),
        ("p", Data::F32(&b)),
    ];
    program.run(&mut Store::default(), &inputs).unwrap();
    let log = |x: f64, logit: f32| {
        let t = -x * logit as f64;
        -(t.max(0.0) + (-t.abs()).exp().ln_1p())
    };
    for row in 0..40 {
        let (mut kl, mut mass) = (0.0, 0.0);
        for i in row * BITS..(row + 1) * BITS {
            for x in [-1.0, 1.0] {
                kl += log(x, a[i]).exp() * (log(x, a[i]) - log(x, b[i]));
            }
            let hard = program.output("hard")[i];
            assert!(hard == 1.0 || hard == -1.0);
            mass += log(hard as f64, a[i]);
        }
        let near = |name: &str, exact: f64| {
            let found = program.output(name)[row] as f64;
            let limit = 1e-5 * (1.0 + exact.abs());
            assert!((found - exact).abs() < limit, "{name}: {found} {exact}");
        };
        near("kl", kl);
        near("log_mass", mass);
    }
}

/// A cost of the bits as the network below would have it: defined between −1 and 1 too.
type Cost = for<'g> fn(&[Var<'g>; BITS]) -> Var<'g>;

/// Mean and standard error of the estimated gradient of E f for each logit, over rows and seeds.
fn estimated(f: Cost, noise: f32) -> [(f64, f64); BITS] {
    let g = Graph::new();
    let logits = g.input("logits", &[ROWS, BITS], DType::F32);
    let bits = Bernoulli { logits }.sample(noise, g.scalar_input("noise_scale"), 3);
    let columns: [Var<'_>; BITS] = std::array::from_fn(|i| bits.z.slice(1, i, 1));
    let slopes = grad(f(&columns).sum(), &[logits])[0];
    let mut program = Program::new(compile(&g, &Layout::default(), &[("slopes", slopes)]).unwrap());
    let all: Vec<f32> = (0..ROWS * BITS).map(|i| LOGITS[i % BITS]).collect();
    let (mut sums, mut squares, seeds) = ([0.0; BITS], [0.0; BITS], 60);
    for seed in 0..seeds {
        let inputs = [
            ("counter", Data::U32(&counter(seed, 0))),
            ("noise_scale", Data::F32(&[1.0])),
            ("logits", Data::F32(&all)),
        ];
        program.run(&mut Store::default(), &inputs).unwrap();
        for (i, &v) in program.output("slopes").iter().enumerate() {
            sums[i % BITS] += v as f64;
            squares[i % BITS] += (v as f64).powi(2);
        }
    }
    let count = seeds as f64 * ROWS as f64;
    std::array::from_fn(|i| {
        let mean = sums[i] / count;
        (
            mean,
            ((squares[i] / count - mean * mean).max(0.0) / count).sqrt(),
        )
    })
}

/// dE f / da, by all values of all bits.
fn exact(f: impl Fn([f64; BITS]) -> f64) -> [f64; BITS] {
    let p = LOGITS.map(|a| sigmoid(a as f64));
    std::array::from_fn(|i| {
        (0..1 << BITS)
            .map(|set: usize| {
                let up = |j: usize| set >> j & 1 == 1;
                let x = std::array::from_fn(|j| if up(j) { 1.0 } else { -1.0 });
                let mass = |j: usize| match (j == i, up(j)) {
                    (true, true) => p[j] * (1.0 - p[j]),
                    (true, false) => -p[j] * (1.0 - p[j]),
                    (false, true) => p[j],
                    (false, false) => 1.0 - p[j],
                };
                (0..BITS).map(mass).product::<f64>() * f(x)
            })
            .sum()
    })
}

/// Within five standard errors, of which f32's rounding may add a little.
fn agrees((mean, error): (f64, f64), exact: f64) -> bool {
    (mean - exact).abs() < 5.0 * error + 1e-5
}

#[test]
fn without_noise_products_and_squares_are_unbiased_and_cubes_count_threefold() {
    let products: Cost = |z| z[0] * z[1] * 0.7 + z[0] * z[1] * z[2] - z[2] * 1.3 + z[1].square();
    let true_slopes = exact(|x| 0.7 * x[0] * x[1] + x[0] * x[1] * x[2] - 1.3 * x[2]);
    for (found, exact) in estimated(products, 0.0).into_iter().zip(true_slopes) {
        assert!(agrees(found, exact), "{found:?} {exact}");
        assert!(found.1 < 0.01, "the limit is a real one: {found:?}");
    }
    let cubes: Cost = |z| z[0] * z[0] * z[0] + z[1] * 2.0;
    let [cube, line, nothing] = estimated(cubes, 0.0);
    let slopes = exact(|x| x[0] + 2.0 * x[1]);
    assert!(agrees(cube, 3.0 * slopes[0]), "{cube:?} {slopes:?}");
    assert!(agrees(line, slopes[1]), "{line:?} {slopes:?}");
    assert_eq!(nothing, (0.0, 0.0));
}

#[test]
fn with_full_noise_any_function_of_single_bits_is_unbiased() {
    // e^z, a steep sigmoid, and a quintic: nothing a low degree would catch.
    let curved: Cost =
        |z| z[0].exp() + (z[1] * 5.0 + 1.0).sigmoid() * 3.0 + z[2] * z[2] * z[2] * z[2] * z[2];
    let slopes = exact(|x| x[0].exp() + 3.0 * sigmoid(5.0 * x[1] + 1.0) + x[2].powi(5));
    for (found, exact) in estimated(curved, 1.0).into_iter().zip(slopes) {
        assert!(agrees(found, exact), "{found:?} {exact}");
    }
    // Without noise the same function is far off: the test can fail.
    let hard = estimated(curved, 0.0);
    assert!((0..BITS).all(|i| !agrees(hard[i], slopes[i])), "{hard:?}");
    // The price: every other bit of a product stands half way to 0.
    let product: Cost = |z| z[0] * z[1];
    let slopes = exact(|x| x[0] * x[1]);
    let [first, second, _] = estimated(product, 1.0);
    assert!(agrees(first, 0.5 * slopes[0]), "{first:?} {slopes:?}");
    assert!(agrees(second, 0.5 * slopes[1]), "{second:?} {slopes:?}");
}
