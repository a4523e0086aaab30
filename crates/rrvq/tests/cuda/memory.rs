//! What does not fit is refused before anything is allocated, with both numbers.

use crate::common::gpu;
use rrvq_tensor::{DType, Graph, Layout, Program, Var};

/// Elements of one input, 2 GiB of them.
const LARGE: usize = 1 << 29;

#[test]
fn a_plan_that_does_not_fit_names_both_numbers() {
    let Some(gpu) = gpu() else { return };
    let (free, total) = gpu.f32().memory().unwrap().expect("a GPU has memory");
    let count = total / (LARGE * 4) + 2;
    let g = Graph::new();
    let inputs: Vec<Var<'_>> = (0..count)
        .map(|i| g.input(&format!("x{i}"), &[LARGE], DType::F32))
        .collect();
    let sums: Vec<Var<'_>> = inputs.iter().map(|x| x.sum().reshape(&[1])).collect();
    let sum = g.concat(&sums, 0).sum();
    let refused = Program::new(&gpu.f32(), &g, &Layout::default(), &[("sum", sum)]);
    let said = refused.err().expect("it cannot fit").to_string();
    println!("{said}");
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    let numbers: Vec<f64> = said
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|word| word.parse().ok())
        .collect();
    let near = |bytes: usize, by: f64| numbers.iter().any(|n| (n - gib(bytes)).abs() <= by);
    assert!(near(count * LARGE * 4, 1.0), "{said}");
    assert!(near(total, 0.1), "{said}");
    // Others may use the GPU meanwhile, but hardly for more than this.
    assert!(near(free, 2.0), "{said}");
    assert!(said.contains("train.batch"), "{said}");
    let (after, _) = gpu.f32().memory().unwrap().expect("a GPU has memory");
    assert!(after.abs_diff(free) <= 2 << 30, "nothing was taken");
}
