//! Convolutions and products on the GPU against the slow way, and how fast they are. Needs a GPU; says so
//! where there is none.

mod fused;
mod gpu;
pub(super) mod reference;

use crate::compile::ConvGeometry;
use crate::device::cuda::blas::Blas;
use crate::device::cuda::dnn::{Direction, Dnn, Epilogue, Plan, Pointers, Problem};
use crate::device::cuda::driver::Gpu;
use crate::graph::DType::{self, Bf16, F32};
use crate::op::MatrixProduct;
use fused::{ALL, BIAS_AT, Fused};
use gpu::{Buffer, random, rounded};
use reference::{conv, convolve, difference, lengths};
use std::time::Instant;

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::Data, Direction::Weight];

/// What a result may be off by, in units of the largest number.
fn tolerance(maps: DType, out: DType) -> f32 {
    match (maps, out) {
        (_, Bf16) => 6e-3,
        (Bf16, _) => 1e-4,
        _ => 3e-5,
    }
}

fn fused_problem(g: ConvGeometry, what: Fused, dtype: DType) -> Option<Problem> {
    let channels = match what.direction() {
        Direction::Data => g.ci,
        _ => g.co,
    };
    let epilogue = Epilogue::from_chain(&what.chain(&g, dtype), channels)?;
    Some(Problem::new(g, what.direction(), dtype, dtype).with(epilogue))
}

/// Runs a plan twice on random numbers; the outputs, which have to be the same both times.
fn outputs(
    gpu: &Gpu,
    plan: &Plan,
    p: &Pointers<'_>,
    out: &[&Buffer],
) -> Result<Vec<Vec<f32>>, String> {
    let mut last: Option<Vec<Vec<f32>>> = None;
    for _ in 0..2 {
        // SAFETY: the callers' buffers have the lengths of the problem, and live until the stream is done.
        unsafe { plan.run(gpu.stream(), p) }.map_err(|e| e.to_string())?;
        gpu.sync().map_err(|e| e.to_string())?;
        let now: Vec<Vec<f32>> = out.iter().map(|b| b.read()).collect();
        if let Some(last) = last
            && last
                .iter()
                .flatten()
                .map(|v| v.to_bits())
                .ne(now.iter().flatten().map(|v| v.to_bits()))
        {
            return Err("two runs differ".into());
        }
        last = Some(now);
    }
    Ok(last.unwrap_or_default())
}

/// The largest difference of a plain problem from the reference.
fn check_plain(gpu: &Gpu, problem: &Problem, plan: &Plan) -> Result<f32, String> {
    let g = &problem.geometry;
    let [lx, lw, ly] = lengths(g);
    let maps = problem.maps;
    let [x, w, y] = [(lx, 1), (lw, 2), (ly, 3)].map(|(len, seed)| random(len, seed, maps));
    let want = convolve(g, problem.direction, &x, &w, &y);
    let out = Buffer::blank(want.len(), problem.out);
    let [bx, bw, by] = [&x, &w, &y].map(|v| Buffer::new(v, maps, 0));
    let workspace = Buffer::blank(plan.workspace.div_ceil(4), F32);
    let mut pointers = Pointers {
        x: bx.at,
        w: bw.at,
        y: by.at,
        workspace: workspace.at,
        ..Pointers::default()
    };
    match problem.direction {
        Direction::Forward => pointers.y = out.at,
        Direction::Data => pointers.x = out.at,
        Direction::Weight => pointers.w = out.at,
    }
    let have = outputs(gpu, plan, &pointers, &[&out])?;
    Ok(difference(&have[0], &want))
}

fn check_fused(gpu: &Gpu, problem: &Problem, what: Fused, plan: &Plan) -> Result<f32, String> {
    let g = &problem.geometry;
    let dtype = problem.maps;
    let [lx, lw, ly] = lengths(g);
    let [x, w, y] = [(lx, 1), (lw, 2), (ly, 3)].map(|(len, seed)| random(len, seed, dtype));
    let plain = convolve(g, problem.direction, &x, &w, &y);
    let channels = plain.len() / what.chain(g, dtype).rows;
    let bias = random(channels, 4, F32);
    let maps = [5, 6].map(|seed| random(plain.len(), seed, dtype));
    let chain = what.chain(g, dtype);
    let mut want = vec![Vec::with_capacity(plain.len()); chain.stores.len()];
    for (at, &v) in plain.iter().enumerate() {
        let values = what.meaning(v, bias[at % channels], maps[0][at], maps[1][at]);
        for (to, v) in want.iter_mut().zip(values) {
            to.push(rounded(v, dtype));
        }
    }
    let [bx, bw, by] = [&x, &w, &y].map(|v| Buffer::new(v, dtype, 0));
    let workspace = Buffer::blank(plan.workspace.div_ceil(4), F32);
    let loads: Vec<Buffer> = {
        let mut maps = maps.iter();
        chain
            .loads
            .iter()
            .map(|l| match l.place.offset {
                BIAS_AT => Buffer::new(&bias, F32, BIAS_AT),
                _ => Buffer::new(maps.next().expect("at most two maps"), dtype, 0),
            })
            .collect()
    };
    let stores: Vec<Buffer> = want.iter().map(|v| Buffer::blank(v.len(), dtype)).collect();
    let epilogue = problem.epilogue.as_ref().ok_or("no epilogue")?;
    let inputs: Vec<u64> = epilogue.inputs.iter().map(|i| loads[i.load].at).collect();
    let outs: Vec<u64> = stores.iter().map(|b| b.at).collect();
    let pointers = Pointers {
        x: bx.at,
        w: bw.at,
        y: by.at,
        workspace: workspace.at,
        inputs: &inputs,
        outputs: &outs,
    };
    let have = outputs(gpu, plan, &pointers, &stores.iter().collect::<Vec<_>>())?;
    let pairs = have.iter().zip(&want);
    Ok(pairs.map(|(h, w)| difference(h, w)).fold(0.0, f32::max))
}

/// Small problems of every kind, against the reference.
fn correctness(gpu: &Gpu, dnn: &Dnn, failures: &mut Vec<String>) {
    let shapes = [
        conv(2, 16, 8, 24, 3, 1),
        conv(2, 16, 32, 16, 3, 2),
        conv(2, 8, 64, 32, 1, 1),
        conv(1, 8, 256, 128, 3, 2),
        conv(3, 4, 256, 64, 3, 1),
        conv(2, 2, 64, 256, 3, 1),
        conv(4, 2, 32, 256, 1, 1),
    ];
    let odd = [
        conv(2, 8, 7, 5, 3, 1),
        conv(3, 16, 3, 13, 3, 2),
        conv(1, 4, 1, 9, 1, 1),
    ];
    let mut plain = Vec::new();
    for d in DIRECTIONS {
        for &g in &shapes {
            plain.push(Problem::new(g, d, F32, F32));
            plain.push(Problem::new(g, d, Bf16, Bf16));
        }
        for &g in &odd {
            plain.push(Problem::new(g, d, F32, F32));
        }
    }
    for &g in &shapes[..5] {
        plain.push(Problem::new(g, Direction::Weight, Bf16, F32));
    }
    let mut fused = Vec::new();
    for dtype in [Bf16, F32] {
        for what in ALL {
            for g in [conv(2, 8, 32, 64, 3, 1), conv(2, 4, 64, 32, 1, 1)] {
                match fused_problem(g, what, dtype) {
                    Some(problem) => fused.push((what, problem)),
                    None => failures.push(format!("{what:?} is not an epilogue")),
                }
            }
        }
    }
    let all: Vec<Problem> = plain
        .iter()
        .chain(fused.iter().map(|f| &f.1))
        .cloned()
        .collect();
    let start = Instant::now();
    let plans = match dnn.plan_all(&all) {
        Ok(plans) => plans,
        Err(e) => return failures.push(format!("planning: {e}")),
    };
    println!(
        "correctness: {} problems planned in {:.1} s",
        all.len(),
        start.elapsed().as_secs_f32()
    );
    let (mut worst, mut passed, mut missing) = ([0.0f32; 4], 0, Vec::new());
    for (at, (problem, plan)) in all.iter().zip(&plans).enumerate() {
        let Some(plan) = plan else {
            // Engines for fused graphs are not there for every type; a plain convolution has to have one.
            match problem.epilogue.is_none() && problem.maps == problem.out {
                true => failures.push(format!("no engine: {}", problem.key())),
                false => missing.push(problem.key()),
            }
            continue;
        };
        let (checked, kind, limit) = match at.checked_sub(plain.len()) {
            None => (
                check_plain(gpu, problem, plan),
                usize::from(problem.maps == Bf16),
                tolerance(problem.maps, problem.out),
            ),
            Some(at) => (
                check_fused(gpu, problem, fused[at].0, plan),
                2 + usize::from(problem.maps == Bf16),
                tolerance(problem.maps, problem.out),
            ),
        };
        match checked {
            Ok(d) if d <= limit => {
                passed += 1;
                worst[kind] = worst[kind].max(d);
            }
            Ok(d) => failures.push(format!(
                "off by {d:.1e}, engine {}: {}",
                plan.recipe.engine,
                problem.key()
            )),
            Err(e) => failures.push(format!("{e}: {}", problem.key())),
        }
    }
    println!(
        "  {passed} agree; worst: plain f32 {:.1e}, bf16 {:.1e}, fused f32 {:.1e}, bf16 {:.1e}; no engine: {}",
        worst[0],
        worst[1],
        worst[2],
        worst[3],
        missing.len()
    );
    for key in missing.iter().take(6) {
        println!("  none: {key}");
    }
}

fn products(gpu: &Gpu, failures: &mut Vec<String>) {
    let blas = match Blas::new() {
        Ok(blas) => blas,
        Err(e) => return failures.push(e.to_string()),
    };
    let mut worst = [0.0f32; 2];
    for (count, m, k, n) in [
        (1, 64, 32, 48),
        (1, 7, 5, 3),
        (1, 1, 300, 17),
        (1, 256, 1000, 33),
        (1, 1000, 8, 1),
        (5, 64, 32, 48),
        (3, 7, 5, 3),
        (2, 256, 1000, 256),
        // As in Muon: Gram matrices, a side that nothing divides, the long side.
        (3, 256, 576, 256),
        (1, 27, 256, 27),
        (4, 576, 32, 32),
    ] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let product = MatrixProduct {
                count,
                m,
                k,
                n,
                ta,
                tb,
            };
            let a = random(product.first(), 1, F32);
            let b = random(product.second(), 2, F32);
            let mut want = vec![0.0f32; product.result()];
            for (row, values) in want.chunks_exact_mut(n).enumerate() {
                let (pair, i) = (row / m, row % m);
                let (a, b) = (&a[pair * m * k..], &b[pair * k * n..]);
                for (j, v) in values.iter_mut().enumerate() {
                    let at = |l: usize| if ta { a[l * m + i] } else { a[i * k + l] };
                    let bt = |l: usize| if tb { b[j * k + l] } else { b[l * n + j] };
                    *v = (0..k)
                        .map(|l| f64::from(at(l)) * f64::from(bt(l)))
                        .sum::<f64>() as f32;
                }
            }
            // Parameters start anywhere in one flat vector, on four bytes; what a plan makes lies on sixteen and more.
            for (offsets, tf32, limit) in [
                ([1, 3], false, 3e-5),
                ([1, 3], true, 2e-3),
                ([0, 0], false, 3e-5),
                ([0, 0], true, 2e-3),
            ] {
                let ba = Buffer::new(&a, F32, offsets[0]);
                let bb = Buffer::new(&b, F32, offsets[1]);
                let c = Buffer::blank(product.result(), F32);
                // SAFETY: buffers of these sizes, one product at a time on one stream.
                let done = unsafe { blas.matmul(product, tf32, ba.at, bb.at, c.at, gpu.stream()) };
                if let Err(e) = done {
                    failures.push(format!("{product:?}, tf32 {tf32}: {e}"));
                    continue;
                }
                gpu.sync().expect("the GPU is still there");
                let d = difference(&c.read(), &want);
                worst[usize::from(tf32)] = worst[usize::from(tf32)].max(d);
                if d > limit {
                    failures.push(format!("{product:?}, tf32 {tf32}: off by {d:.1e}"));
                }
            }
        }
    }
    println!(
        "products: worst {:.1e}, with tf32 {:.1e}",
        worst[0], worst[1]
    );
}

/// Microseconds, TFLOP/s and engine of a plan.
fn cell(problem: &Problem, plan: Option<&Plan>) -> String {
    let Some(p) = plan else {
        return format!("{:>21}", "none");
    };
    let tera = problem.flops() / f64::from(p.micros) * 1e-6;
    let mark = if p.compiled { 'c' } else { 'e' };
    format!(
        "{:>7.1} {tera:>4.0}T {mark}{:<5}",
        p.micros, p.recipe.engine
    )
}

/// The sizes that matter, plain and fused, from nothing and from the cache.
fn speed(gpu: &Gpu, failures: &mut Vec<String>) {
    let folder = std::env::temp_dir().join(format!("rrvq-convolutions-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let mut shapes = Vec::new();
    for size in [16, 8, 4, 2] {
        shapes.push(conv(256, size, 256, 256, 3, 1));
    }
    for size in [16, 4] {
        shapes.push(conv(256, size, 256, 32, 3, 1));
        shapes.push(conv(256, size, 256, 64, 1, 1));
        shapes.push(conv(256, size, 32, 256, 1, 1));
    }
    shapes.push(conv(256, 16, 256, 256, 3, 2));
    let mut problems = Vec::new();
    for &g in &shapes {
        problems.extend(DIRECTIONS.map(|d| Problem::new(g, d, Bf16, Bf16)));
        problems.push(Problem::new(g, Direction::Weight, Bf16, F32));
        for what in [
            Fused::Bias,
            Fused::BiasElu,
            Fused::ResidualElu,
            Fused::Slope,
        ] {
            problems.extend(fused_problem(g, what, Bf16));
        }
    }
    let columns = 8;
    for size in [16, 8] {
        problems
            .extend(DIRECTIONS.map(|d| Problem::new(conv(256, size, 256, 256, 3, 1), d, F32, F32)));
    }
    let mut engines = Vec::new();
    for round in ["cold", "from the cache"] {
        let start = Instant::now();
        let dnn = match Dnn::new(gpu, Some(folder.clone())) {
            Ok(dnn) => dnn,
            Err(e) => return failures.push(e.to_string()),
        };
        let plans = match dnn.plan_all(&problems) {
            Ok(plans) => plans,
            Err(e) => return failures.push(format!("planning {round}: {e}")),
        };
        let now: Vec<_> = plans
            .iter()
            .map(|p| p.as_ref().map(|p| (p.recipe.clone(), p.micros)))
            .collect();
        println!(
            "{} problems planned {round} in {:.2} s",
            problems.len(),
            start.elapsed().as_secs_f32()
        );
        if !engines.is_empty() {
            if now != engines {
                failures.push("the cache gives other plans than were found".into());
            }
            continue;
        }
        engines = now;
        println!("µs, TFLOP/s, engine (e ready, c compiled)/candidates");
        println!(
            "{:16}F | D | W | W f32 | F+bias | F+bias,elu | F 0.1x+res, elu | D*slope",
            "n256 bf16"
        );
        let cells: Vec<String> = problems
            .iter()
            .zip(&plans)
            .map(|(p, plan)| cell(p, plan.as_deref()))
            .collect();
        for (row, g) in cells.chunks(columns).zip(&shapes) {
            println!(
                "{:>3}>{:<3} k{} s{} {:<2} {}",
                g.ci,
                g.co,
                g.kh,
                g.stride,
                g.h,
                row.join("|")
            );
        }
        for (row, size) in cells[shapes.len() * columns..].chunks(3).zip([16, 8]) {
            println!("256>256 f32  {size:<2} {}", row.join("|"));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn convolutions_and_products() {
    let Some(gpu) = gpu::find() else {
        println!("no GPU with cuDNN and cuBLASLt: skipped");
        return;
    };
    let start = Instant::now();
    let dnn = match Dnn::new(&gpu, None) {
        Ok(dnn) => dnn,
        Err(e) => panic!("{e}"),
    };
    println!(
        "{}, cuDNN started in {:.2} s",
        gpu.info().name,
        start.elapsed().as_secs_f32()
    );
    let mut failures = Vec::new();
    correctness(&gpu, &dnn, &mut failures);
    products(&gpu, &mut failures);
    speed(&gpu, &mut failures);
    for failure in failures.iter().take(25) {
        println!("FAILED {}", failure.chars().take(240).collect::<String>());
    }
    assert!(failures.is_empty(), "{} failures", failures.len());
}
