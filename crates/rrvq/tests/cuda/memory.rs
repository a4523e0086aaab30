//! What does not fit is refused before anything is allocated, with both numbers.

use crate::common::gpu;
use rrvq_tensor::{DType, Graph, Layout, Program, Var};

/// Elements of one input, 2 GiB of them.
const LARGE: usize = 1 << 29;

#[test]
fn a_plan_that_does_not_fit_names_both_numbers() {
    let Some(alone) = gpu() else { return };
    let (free, total) = alone.gpu().memory().unwrap();
    let count = total / (LARGE * 4) + 2;
    let g = Graph::new();
    let inputs: Vec<Var<'_>> = (0..count)
        .map(|i| g.input(&format!("x{i}"), &[LARGE], DType::F32))
        .collect();
    let sums: Vec<Var<'_>> = inputs.iter().map(|x| x.sum().reshape(&[1])).collect();
    let sum = g.concat(&sums, 0).sum();
    let refused = Program::new(&alone.f32(), &g, &Layout::default(), &[("sum", sum)]);
    let said = refused.err().expect("it cannot fit").to_string();
    println!("{said}");
    let needed = (count * LARGE * 4) >> 20;
    let numbers: Vec<usize> = said
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        numbers.iter().any(|n| (needed..needed + 1024).contains(n)),
        "{said}"
    );
    assert!(numbers.contains(&(total >> 20)), "{said}");
    // Others may use the GPU meanwhile, but hardly for more than this.
    let near = |n: &usize| n.abs_diff(free >> 20) <= 2048;
    assert!(numbers.iter().any(near), "{said}");
    assert!(said.contains("train.batch"), "{said}");
    let (after, _) = alone.gpu().memory().unwrap();
    assert!(after.abs_diff(free) <= 2 << 30, "nothing was taken");
}
