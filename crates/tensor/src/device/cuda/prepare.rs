//! What is decided before the first run: an engine for every convolution, a function for every launch, a lane for
//! every job, and where everything lies in one allocation.

use super::codegen::{Draft, direct, elementwise, movement, sources};
use super::driver::{Kernel, Module};
use super::hazards::{Lane, Touch, lanes};
use super::launch::{Arg, Function, Launch};
use super::lower::{Action, Conv, Job, Product, scratch};
use super::tools::{Finish, Tools};
use super::{dnn, nvrtc};
use crate::Result;
use crate::compile::{Place, Plan};
use crate::graph::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// Streams for what the step waits for, and for what can wait. One more is for sums over processes, where there are some.
pub(super) const LANES: (usize, usize) = (3, 2);

/// Everything in the one allocation starts on a multiple of this.
const ALIGN: usize = 256;

/// Where things lie in the allocation, in bytes from its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pub inputs: Vec<usize>,
    pub arena: usize,
    pub counters: usize,
    pub tables: usize,
    /// Scratch memory and workspace of each lane.
    pub lanes: Vec<[usize; 2]>,
    pub total: usize,
}

/// A job with its functions and engines found.
pub(super) struct Prepared {
    pub kind: &'static str,
    pub flops: f64,
    pub bytes: f64,
    pub steps: Vec<Step>,
    pub lane: Lane,
}

pub(super) enum Step {
    Launch {
        kernel: Kernel,
        launch: Launch,
        /// Where its counters lie among all.
        counters: usize,
        /// The addresses of a shared launch, and where they lie among all tables.
        table: Option<(Vec<Arg>, usize)>,
    },
    Conv {
        plan: Arc<dnn::Plan>,
        conv: Conv,
        out: Place,
        fused: bool,
    },
    Product(Product),
    AllSum {
        len: usize,
        from: Place,
        to: Place,
    },
}

/// Bytes that all jobs together need beside the plan's own.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    pub counters: usize,
    pub tables: usize,
    /// Scratch memory and workspace of each lane.
    pub lanes: Vec<[usize; 2]>,
}

impl Map {
    pub fn new(plan: &Plan, sizes: &Sizes) -> Self {
        let mut map = Map::default();
        let mut at = 0;
        let mut take = |bytes: usize| {
            at += bytes.next_multiple_of(ALIGN);
            at - bytes.next_multiple_of(ALIGN)
        };
        for input in &plan.inputs {
            let count: usize = input.shape.iter().product();
            map.inputs.push(take(count * input.dtype.bytes()));
        }
        map.arena = take(plan.arena_bytes());
        map.counters = take(sizes.counters);
        map.tables = take(sizes.tables);
        map.lanes = sizes
            .lanes
            .iter()
            .map(|&[scratch, workspace]| [take(scratch), take(workspace)])
            .collect();
        map.total = at.max(ALIGN);
        map
    }
}

/// Finds an engine for every convolution and a function for every launch.
pub(super) fn prepare(tools: &Tools, jobs: Vec<Job>) -> Result<(Vec<Prepared>, Sizes)> {
    let convs: Vec<&Conv> = jobs
        .iter()
        .flat_map(|job| &job.actions)
        .filter_map(|action| match action {
            Action::Conv(conv) => Some(conv),
            _ => None,
        })
        .collect();
    let mut chosen = tools.engines(&convs)?.into_iter();
    let touches: Vec<Touch> = jobs.iter().map(|job| job.touch.clone()).collect();
    // Nobody waits for a weight gradient before the end: those fill the gaps the others leave.
    let (many, few) = LANES;
    let sums = jobs.iter().any(Job::is_sum) as usize;
    let pools: Vec<_> = jobs
        .iter()
        .map(|job| match (job.is_sum(), job.is_background()) {
            (true, _) => many + few..many + few + 1,
            (_, true) => many..many + few,
            _ => 0..many,
        })
        .collect();
    let streams = many + few + sums;
    let mut lanes = lanes(&touches, &pools, streams).into_iter();
    let mut sizes = Sizes {
        lanes: vec![[0; 2]; streams],
        ..Sizes::default()
    };
    let mut pending: Vec<(Job, Lane, Vec<Pending>)> = Vec::new();
    for job in jobs {
        let lane = lanes.next().expect("a lane for every job");
        let size = &mut sizes.lanes[lane.stream];
        size[0] = size[0].max(job.scratch);
        let mut steps = Vec::new();
        for action in &job.actions {
            match action {
                Action::Launch(launch) => steps.push(Pending::Launch(launch.clone(), None)),
                Action::Shared(launch, table) => {
                    steps.push(Pending::Launch(launch.clone(), Some(table.clone())));
                }
                Action::Product(p) => {
                    steps.push(Pending::Ready(Box::new(Step::Product(p.clone()))))
                }
                &Action::AllSum { len, from, to } => {
                    steps.push(Pending::Ready(Box::new(Step::AllSum { len, from, to })));
                }
                Action::Conv(conv) => {
                    let choice = chosen.next().expect("an answer for every convolution");
                    finish(conv, choice, &mut steps, size);
                }
            }
        }
        pending.push((job, lane, steps));
    }
    let launches = pending.iter().flat_map(|(_, _, steps)| steps);
    let functions: Vec<&Function> = launches
        .filter_map(|step| match step {
            Pending::Launch(launch, _) => Some(&launch.function),
            Pending::Ready(_) => None,
        })
        .collect();
    let kernels = load(tools, &functions)?;
    let prepared = pending
        .into_iter()
        .map(|(job, lane, steps)| {
            let counters = sizes.counters;
            sizes.counters += job.counters.next_multiple_of(ALIGN);
            let steps = steps.into_iter().map(|step| match step {
                Pending::Ready(step) => *step,
                Pending::Launch(launch, table) => {
                    let table = table.map(|table| {
                        let at = sizes.tables;
                        sizes.tables += (table.len() * 8).next_multiple_of(ALIGN);
                        (table, at)
                    });
                    Step::Launch {
                        kernel: kernels[&launch.function].clone(),
                        launch,
                        counters,
                        table,
                    }
                }
            });
            Prepared {
                kind: job.kind,
                flops: job.flops,
                bytes: job.bytes,
                steps: steps.collect(),
                lane,
            }
        })
        .collect();
    Ok((prepared, sizes))
}

/// A step whose function is not compiled yet.
enum Pending {
    Launch(Launch, Option<Vec<Arg>>),
    Ready(Box<Step>),
}

/// The steps of a convolution once its engine is known.
fn finish(conv: &Conv, choice: Finish, steps: &mut Vec<Pending>, size: &mut [usize; 2]) {
    let mut launch = |draft: Draft| {
        steps.push(Pending::Launch(draft.single(), None));
    };
    let scratch_for = |dtype: DType| conv.geometry.outputs(conv.which) * dtype.bytes();
    let (plan, out, fused) = match choice {
        Finish::Fused(plan) => (plan, conv.out, true),
        Finish::Plain(plan) => (plan, conv.out, false),
        Finish::Narrow(plan) => (plan, scratch(DType::Bf16), false),
        Finish::Direct => {
            let direct = direct::conv(conv.which, &conv.geometry, conv.a, conv.b, conv.out);
            launch(direct);
            if let Some(chain) = &conv.chain {
                launch(elementwise::map(chain, Some(conv.out)));
            }
            return;
        }
    };
    size[1] = size[1].max(plan.workspace);
    steps.push(Pending::Ready(Box::new(Step::Conv {
        plan,
        conv: conv.clone(),
        out,
        fused,
    })));
    let mut launch = |draft: Draft| steps.push(Pending::Launch(draft.single(), None));
    if fused {
        return;
    }
    if out != conv.out {
        size[0] = size[0].max(scratch_for(DType::Bf16));
    }
    match &conv.chain {
        Some(chain) => launch(elementwise::map(chain, Some(out))),
        None if out != conv.out => {
            let len = conv.geometry.outputs(conv.which);
            launch(movement::convert(out, conv.out, len));
        }
        None => {}
    }
}

fn load(tools: &Tools, functions: &[&Function]) -> Result<HashMap<Function, Kernel>> {
    let sources = sources(functions);
    let texts: Vec<&str> = sources.iter().map(|(s, _)| s.as_str()).collect();
    let gpu = tools.gpu();
    let cubins = nvrtc::compile_all(&texts, &gpu.arch(), crate::cache_dir().as_deref())?;
    let mut kernels = HashMap::new();
    for (cubin, (_, group)) in cubins.iter().zip(&sources) {
        let module = Module::load(gpu, cubin)?;
        for &function in group {
            kernels.insert(function.clone(), module.function(&function.name)?);
        }
    }
    Ok(kernels)
}
