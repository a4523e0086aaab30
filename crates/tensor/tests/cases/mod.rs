//! Every operation drawn once or more, with inputs that suit it. Whoever includes this file says what is checked: it
//! has a `check_gradient(name, draw, shapes, values, step)`.

use super::check_gradient;
use super::common::{Draw, normal, uniform};
use rrvq_tensor::ReduceOp;
use rrvq_tensor::rng::Distribution;

/// Checks with standard normal inputs.
fn check(name: &str, shapes: &[&[usize]], draw: &Draw) {
    check_scaled(name, shapes, 1.0, 0.0, draw);
}

fn check_scaled(name: &str, shapes: &[&[usize]], scale: f32, shift: f32, draw: &Draw) {
    let shapes: Vec<Vec<usize>> = shapes.iter().map(|s| s.to_vec()).collect();
    let value = |(i, s): (usize, &Vec<usize>)| {
        normal(i as u32, s.iter().product())
            .into_iter()
            .map(|v| v * scale + shift)
            .collect()
    };
    let values = shapes.iter().enumerate().map(value).collect();
    check_gradient(name, draw, &shapes, values, 5e-3);
}

/// Checks with inputs in (low, high).
fn check_between(name: &str, shapes: &[&[usize]], low: f32, high: f32, draw: &Draw) {
    let shapes: Vec<Vec<usize>> = shapes.iter().map(|s| s.to_vec()).collect();
    let value = |(i, s): (usize, &Vec<usize>)| {
        let draw = uniform(i as u32, s.iter().product());
        draw.into_iter().map(|v| low + (high - low) * v).collect()
    };
    let values = shapes.iter().enumerate().map(value).collect();
    check_gradient(name, draw, &shapes, values, 2e-3);
}

pub fn element_wise_with_one_operand() {
    check("neg", &[&[37]], &|_, x| -x[0]);
    check_between("abs", &[&[37]], 0.1, 2.0, &|_, x| {
        x[0].abs() + (-x[0]).abs()
    });
    check("exp", &[&[37]], &|_, x| x[0].exp());
    check("expm1", &[&[37]], &|_, x| x[0].expm1());
    check_between("log", &[&[37]], 0.2, 3.0, &|_, x| x[0].log());
    check_between("sqrt", &[&[37]], 0.2, 3.0, &|_, x| x[0].sqrt());
    check_between("rsqrt", &[&[37]], 0.3, 3.0, &|_, x| x[0].rsqrt());
    check_between("recip", &[&[37]], 0.3, 3.0, &|_, x| x[0].recip());
    check("square", &[&[37]], &|_, x| x[0].square());
    check("sigmoid", &[&[37]], &|_, x| x[0].sigmoid());
    check("softplus", &[&[37]], &|_, x| x[0].softplus());
    check("tanh", &[&[37]], &|_, x| x[0].tanh());
    check("elu", &[&[37]], &|_, x| x[0].elu());
    check_between("floor has none", &[&[37]], 0.1, 0.9, &|_, x| {
        x[0].floor() + x[0]
    });
    check("clamp", &[&[37]], &|_, x| {
        x[0].clamp(-0.4, 0.6) + x[0] * 0.1
    });
}

pub fn the_slope_of_elu_itself_has_a_gradient() {
    // The second derivative of ELU: its slope is drawn from its output.
    let twice: &Draw = &|g, x| {
        let y = x[0].elu();
        rrvq_tensor::grad((y * y).sum(), &[x[0]])[0] + g.scalar(0.0)
    };
    check_between("elu slope", &[&[37]], -1.5, -0.2, twice);
}

pub fn element_wise_with_several_operands() {
    check("add", &[&[5, 7], &[5, 7]], &|_, x| x[0] + x[1]);
    check("sub", &[&[5, 7], &[5, 7]], &|_, x| x[0] - x[1]);
    check("mul", &[&[5, 7], &[5, 7]], &|_, x| x[0] * x[1]);
    check_between("div", &[&[5, 7], &[5, 7]], 0.5, 2.0, &|_, x| x[0] / x[1]);
    check("max", &[&[5, 7], &[5, 7]], &|_, x| x[0].max(x[1]));
    check("min", &[&[5, 7], &[5, 7]], &|_, x| x[0].min(x[1]));
    check("select", &[&[5, 7], &[5, 7]], &|g, x| {
        x[0].greater(g.scalar(0.3)).select(x[1], x[1].square())
    });
    check("equal", &[&[5, 7]], &|_, x| x[0].equal(x[0]) * x[0]);
    check("detach", &[&[5, 7]], &|_, x| {
        x[0] * 3.0 + (x[0].detach() * 0.0)
    });
}

pub fn broadcasting_in_every_direction() {
    check("channel", &[&[2, 3, 3, 5], &[5]], &|_, x| x[0] * x[1]);
    check("image", &[&[2, 3, 3, 5], &[2, 1, 1, 1]], &|_, x| {
        x[0] * x[1]
    });
    check("pixel", &[&[2, 3, 3, 5], &[2, 3, 3, 1]], &|_, x| {
        x[0] * x[1]
    });
    check("map", &[&[2, 3, 3, 5], &[1, 3, 3, 5]], &|_, x| x[0] * x[1]);
    check("middle", &[&[2, 3, 3, 5], &[2, 1, 1, 5]], &|_, x| {
        x[0] * x[1]
    });
    check("both ends", &[&[2, 3, 3, 5], &[1, 3, 3, 1]], &|_, x| {
        x[0] * x[1]
    });
    check("alternating", &[&[2, 3, 3, 5], &[2, 1, 3, 1]], &|_, x| {
        x[0] * x[1]
    });
    check("scalar", &[&[2, 3, 3, 5], &[]], &|_, x| x[0] * x[1]);
    check(
        "several",
        &[&[2, 3, 3, 5], &[5], &[2, 1, 1, 1], &[]],
        &|_, x| (x[0] + x[1]) * x[2] * x[3],
    );
    check("outer", &[&[4, 1], &[1, 6]], &|_, x| x[0] * x[1]);
}

pub fn reductions() {
    check("sum of rows", &[&[6, 20]], &|_, x| x[0].square().sum_last());
    check("sum of columns", &[&[20, 6]], &|_, x| {
        x[0].square().reduce(ReduceOp::Sum, 0, 1)
    });
    check("sum of the middle", &[&[3, 7, 4]], &|_, x| {
        x[0].square().reduce(ReduceOp::Sum, 1, 2)
    });
    check("sum of everything", &[&[6, 20]], &|_, x| {
        x[0].square().sum()
    });
    check_scaled("a long row", &[&[2, 20_000]], 0.05, 0.0, &|_, x| {
        x[0].square().sum_last()
    });
    check("mean", &[&[6, 20]], &|_, x| x[0].square().mean() * 10.0);
    check("max of rows", &[&[6, 20]], &|_, x| x[0].max_last());
    check("max of columns", &[&[20, 6]], &|_, x| {
        x[0].reduce(ReduceOp::Max, 0, 1)
    });
    check("sum_to", &[&[2, 3, 3, 5]], &|_, x| {
        x[0].square().sum_to(&[3, 1, 5])
    });
    check("log_softmax", &[&[6, 20]], &|_, x| x[0].log_softmax());
    check("softmax", &[&[6, 20]], &|_, x| x[0].softmax() * 3.0);
}

pub fn moving_and_picking() {
    check("reshape", &[&[4, 6]], &|_, x| {
        x[0].square().reshape(&[3, 8])
    });
    check("slice rows", &[&[6, 5]], &|_, x| {
        x[0].slice(0, 2, 3).square()
    });
    check("slice columns", &[&[6, 5]], &|_, x| {
        x[0].slice(1, 1, 3).square()
    });
    check("pad", &[&[6, 5]], &|_, x| x[0].square().pad(1, 2, 1));
    check("concat", &[&[2, 3, 4], &[2, 5, 4]], &|g, x| {
        g.concat(&[x[0].square(), x[1]], 1)
    });
    check("pack", &[&[3, 4], &[5]], &|g, x| {
        g.pack(&[x[0].square(), x[1]], &[0, 16], 32)
    });
    check("upsample", &[&[2, 3, 2, 5]], &|_, x| {
        x[0].square().upsample(2)
    });
    check("avg_pool", &[&[2, 4, 6, 5]], &|_, x| {
        x[0].square().avg_pool(2)
    });
    check("edge_pad", &[&[2, 3, 4, 5]], &|_, x| {
        x[0].square().edge_pad(1)
    });
    check("edge_pad of one pixel", &[&[3, 1, 1, 4]], &|_, x| {
        x[0].square().edge_pad(2)
    });
    check("edge_fold", &[&[2, 5, 6, 3]], &|g, x| {
        let narrow = g.noise(Distribution::Normal, &[2, 3, 4, 3]);
        let back = rrvq_tensor::grad((narrow.edge_pad(1) * x[0].square()).sum(), &[narrow])[0];
        back.square() * 0.1
    });
    check("space_to_depth", &[&[2, 4, 6, 3]], &|_, x| {
        x[0].square().space_to_depth(2)
    });
    check("transpose", &[&[5, 3]], &|_, x| x[0].square().transpose());
    check("depth_to_space", &[&[2, 2, 3, 12]], &|_, x| {
        x[0].square().depth_to_space(2)
    });
    // Indices come from noise: a step of an input never changes them.
    check("gather", &[&[9, 5]], &|g, x| {
        x[0].gather(g.noise(Distribution::Normal, &[7, 9]).argmax_last())
    });
    check("scatter", &[&[9, 5]], &|g, x| {
        let picked = x[0].gather(g.noise(Distribution::Normal, &[7, 9]).argmax_last());
        rrvq_tensor::grad(picked.square().sum(), &[x[0]])[0]
    });
}

pub fn products() {
    check("matmul", &[&[7, 5], &[5, 9]], &|_, x| {
        x[0].matmul(x[1], false, false)
    });
    check("matmul, first transposed", &[&[5, 7], &[5, 9]], &|_, x| {
        x[0].matmul(x[1], true, false)
    });
    check("matmul, second transposed", &[&[7, 5], &[9, 5]], &|_, x| {
        x[0].matmul(x[1], false, true)
    });
    check("matmul, both transposed", &[&[5, 7], &[9, 5]], &|_, x| {
        x[0].matmul(x[1], true, true)
    });
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        let a: &[usize] = if ta { &[3, 5, 7] } else { &[3, 7, 5] };
        let b: &[usize] = if tb { &[3, 9, 5] } else { &[3, 5, 9] };
        let name = format!("three products, transposed: {ta}, {tb}");
        check(&name, &[a, b], &move |_, x| {
            (x[0].elu().matmul(x[1], ta, tb) * 0.5).square()
        });
    }
    let shapes: [&[usize]; 3] = [&[18, 8], &[8, 8], &[3, 3, 8, 8]];
    check("matmul beside convolutions", &shapes, &|_, x| {
        let mixed = x[0].matmul(x[1], false, false);
        let map = mixed.reshape(&[2, 3, 3, 8]).conv(x[2], 1);
        map.reshape(&[18, 8]) + mixed.matmul(x[1], false, true) * 0.5
    });
}

pub fn convolutions() {
    for (k, stride) in [(1, 1), (3, 1), (5, 1), (1, 2), (3, 2), (5, 2)] {
        let name = format!("conv {k}x{k} stride {stride}");
        check(&name, &[&[2, 6, 6, 3], &[k, k, 3, 4]], &move |_, x| {
            x[0].conv(x[1], stride)
        });
        let small = 6usize.div_ceil(stride);
        let name = format!("transposed {k}x{k} stride {stride}");
        check(
            &name,
            &[&[2, small, small, 4], &[k, k, 3, 4]],
            &move |_, x| x[0].conv_transposed(x[1], stride, 6, 6),
        );
    }
    for stride in [1, 2] {
        check(
            &format!("valid convolution, stride {stride}"),
            &[&[2, 6, 6, 3], &[3, 3, 3, 4]],
            &move |_, x| x[0].edge_pad(1).conv_valid(x[1], stride),
        );
    }
    // Two rows and three columns, or one row and two: what an autoregressive model may see.
    for [kh, kw] in [[2, 3], [1, 2]] {
        check(
            &format!("valid convolution {kh}x{kw}"),
            &[&[2, 4, 5, 3], &[kh, kw, 3, 4]],
            &move |_, x| x[0].pad(1, kh - 1, 0).pad(2, 1, 0).conv_valid(x[1], 1),
        );
    }
    // The weight gradient, differentiated once more.
    let weight: &Draw = &|_, x| rrvq_tensor::grad(x[0].conv(x[1], 1).square().sum(), &[x[1]])[0];
    check_scaled(
        "weight gradient",
        &[&[2, 5, 5, 2], &[3, 3, 2, 3]],
        0.5,
        0.0,
        weight,
    );
}

pub fn chains_that_fuse_across_kinds() {
    // A residual block: epilogues on forward and data-gradient convolutions.
    check(
        "residual block",
        &[&[2, 6, 6, 4], &[3, 3, 4, 4], &[4], &[3, 3, 4, 4]],
        &|_, x| {
            let h = x[0].elu().conv(x[1] * 0.3, 1) + x[2];
            x[0] + h.elu().conv(x[3] * 0.3, 1) * 0.1
        },
    );
    // Weight normalisation: reductions over leading axes inside the step.
    check(
        "weight norm",
        &[&[2, 5, 5, 3], &[3, 3, 3, 4], &[4]],
        &|_, x| {
            let norm = x[1].square().sum_to(&[1, 1, 1, 4]);
            x[0].conv(x[1] * (x[2] * (norm + 1e-6).rsqrt()), 1)
        },
    );
    // Row reductions in the middle of a chain, and their values used outside it.
    check("normalised rows", &[&[6, 20], &[20]], &|_, x| {
        let centred = x[0] - x[0].sum_last() * (1.0 / 20.0);
        let spread = (centred.square().sum_last() * (1.0 / 20.0) + 1e-3).sqrt();
        (centred / spread) * x[1] + spread
    });
}
