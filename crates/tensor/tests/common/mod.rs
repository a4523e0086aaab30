//! Small helpers the integration tests share.
#![allow(dead_code)]

use rrvq_tensor::rng::{Distribution, Noise, counter, fill};
use rrvq_tensor::simd::isa;
use rrvq_tensor::{DType, Data, Device, Graph, Layout, Program, Store, Var, grad};

/// Standard normal numbers, the same for the same stream.
pub fn normal(stream: u32, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    fill(
        isa(),
        Noise {
            seed: 7,
            stream,
            step: 0,
        },
        Distribution::Normal,
        0,
        &mut out,
    );
    out
}

pub fn uniform(stream: u32, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    fill(
        isa(),
        Noise {
            seed: 7,
            stream,
            step: 0,
        },
        Distribution::Uniform,
        0,
        &mut out,
    );
    out
}

/// A function drawn on inputs x0, x1, … of the given shapes.
pub type Draw = dyn for<'g> Fn(&'g Graph, &[Var<'g>]) -> Var<'g>;

pub fn inputs<'g>(g: &'g Graph, shapes: &[Vec<usize>]) -> Vec<Var<'g>> {
    let one = |(i, s): (usize, &Vec<usize>)| g.input(&format!("x{i}"), s, DType::F32);
    shapes.iter().enumerate().map(one).collect()
}

/// Compares the drawn gradient of every input with central differences of a random projection of the result.
pub fn check_gradient(
    name: &str,
    draw: &Draw,
    shapes: &[Vec<usize>],
    values: Vec<Vec<f32>>,
    step: f32,
) {
    let g = Graph::new();
    let x = inputs(&g, shapes);
    let y = draw(&g, &x);
    let weights = normal(99, y.size());
    let w = g.input("w", &y.shape(), DType::F32);
    let loss = (y * w).sum();
    let mut outputs = vec![("loss".to_string(), loss)];
    for (i, d) in grad(loss, &x).into_iter().enumerate() {
        outputs.push((format!("d{i}"), d));
    }
    let named: Vec<(&str, Var<'_>)> = outputs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let mut program = Program::new(&Device::Cpu, &g, &Layout::default(), &named).expect("compiles");
    let words = counter(3, 5);
    let names: Vec<String> = (0..values.len()).map(|i| format!("x{i}")).collect();
    let at = |program: &mut Program, values: &[Vec<f32>]| {
        let mut data: Vec<(&str, Data<'_>)> = names
            .iter()
            .zip(values)
            .map(|(n, v)| (n.as_str(), Data::F32(v)))
            .collect();
        data.extend([("counter", Data::U32(&words)), ("w", Data::F32(&weights))]);
        program
            .run(&mut Store::default(), &data)
            .expect("inputs fit");
        program.scalar("loss").expect("an output")
    };
    at(&mut program, &values);
    let drawn: Vec<Vec<f32>> = (0..values.len())
        .map(|i| {
            program
                .output(&format!("d{i}"))
                .expect("an output")
                .to_vec()
        })
        .collect();
    let largest = drawn.iter().flatten().fold(0.0f32, |a, v| a.max(v.abs()));
    assert!(largest > 1e-3, "{name}: the gradient is zero everywhere");
    for (i, value) in values.iter().enumerate() {
        // Enough elements to see every kind of place, few enough to stay fast.
        for k in (0..value.len()).step_by(1 + value.len() / 24) {
            let mut moved = values.clone();
            moved[i][k] = value[k] + step;
            let up = at(&mut program, &moved);
            moved[i][k] = value[k] - step;
            let down = at(&mut program, &moved);
            let slope = (up as f64 - down as f64) / (2.0 * step as f64);
            let have = drawn[i][k] as f64;
            let tolerance = 0.02 * have.abs().max(0.1 * largest as f64).max(0.02);
            assert!(
                (slope - have).abs() < tolerance,
                "{name}: input {i} element {k}: drawn {have}, measured {slope}"
            );
        }
    }
}
