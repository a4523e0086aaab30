//! Which of cuDNN's engines may take a graph, and the plans they make of it.
//!
//! cuDNN's heuristics rank engine configurations; its notes on each engine say what it does to numbers. Sums
//! have to come out the same on every run, and f32 has to mean f32, so engines that do otherwise are left out
//! before anything is compiled.

use super::descriptor::{Descriptor, Kind, Name, Target, Type};
use super::operation::Graph;
use crate::Result;
use crate::graph::DType;
use cudarc::cudnn::sys;

/// An engine with all its choices made: enough to make the same plan again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub engine: i64,
    /// (type, value) of every knob.
    pub knobs: Vec<(u32, i64)>,
}

/// A recipe cuDNN proposed.
pub struct Candidate {
    pub recipe: Recipe,
    /// Its kernel is compiled when the plan is made, which takes long.
    pub compiled: bool,
    config: Descriptor,
}

/// How many plans to make of one graph.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub all: usize,
    /// Of these, how many with a kernel that is compiled first.
    pub compiled: usize,
}

/// A finalized execution plan.
pub struct Ready {
    pub plan: Descriptor,
    pub workspace: usize,
}

/// Whether an engine with these notes may compute on `maps`.
fn allowed(notes: &[u32], maps: DType) -> bool {
    use sys::cudnnBackendNumericalNote_t as Note;
    let mut never = vec![
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    ];
    if maps == DType::F32 {
        never.extend([
            Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
            Note::CUDNN_NUMERICAL_NOTE_FFT,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
        ]);
    }
    !never.iter().any(|&n| notes.contains(&(n as u32)))
}

/// The configurations cuDNN proposes for `graph` that `maps` allow, best guess first.
pub fn candidates(
    target: Target<'_>,
    graph: &Graph,
    maps: DType,
    limits: Limits,
) -> Vec<Candidate> {
    use sys::cudnnBackendHeurMode_t as Mode;
    // With fewer than this the next, less certain source is asked as well.
    const ENOUGH: usize = 2;
    let mut found: Vec<Candidate> = Vec::new();
    for mode in [
        Mode::CUDNN_HEUR_MODE_A,
        Mode::CUDNN_HEUR_MODE_B,
        Mode::CUDNN_HEUR_MODE_FALLBACK,
    ] {
        // A mode that knows nothing about a graph says so with an error.
        for config in heuristics(target, graph, mode).unwrap_or_default() {
            // One that cannot even say what it is, is passed over.
            let _ = keep(&mut found, config, maps, limits);
            if found.len() == limits.all {
                break;
            }
        }
        if found.len() >= ENOUGH {
            return found;
        }
    }
    if !found.is_empty() {
        return found;
    }
    // The heuristics favour tensor cores; an engine without them may exist all the same.
    let count = graph
        .graph
        .get_int(Name::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)
        .unwrap_or(0);
    for engine in 0..count {
        let recipe = Recipe {
            engine,
            knobs: Vec::new(),
        };
        if let Ok(config) = configure(target, graph, &recipe) {
            let _ = keep(&mut found, config, maps, limits);
        }
    }
    found
}

/// Adds a configuration that is allowed, new and within the limits.
fn keep(found: &mut Vec<Candidate>, config: Descriptor, maps: DType, limits: Limits) -> Result<()> {
    let engine = config.get_links(
        Name::CUDNN_ATTR_ENGINECFG_ENGINE,
        Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        1,
    )?;
    let Some(engine) = engine.first() else {
        return Ok(());
    };
    let notes = engine.get_codes(
        Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        Type::CUDNN_TYPE_NUMERICAL_NOTE,
    )?;
    if !allowed(&notes, maps) {
        return Ok(());
    }
    let behaviour = engine.get_codes(
        Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
        Type::CUDNN_TYPE_BEHAVIOR_NOTE,
    )?;
    let runtime = sys::cudnnBackendBehaviorNote_t::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32;
    let compiled = behaviour.contains(&runtime);
    let before = found.iter().filter(|c| c.compiled).count();
    if compiled && before >= limits.compiled {
        return Ok(());
    }
    let recipe = Recipe {
        engine: engine.get_int(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?,
        knobs: knobs(&config)?,
    };
    if !found.iter().any(|c| c.recipe == recipe) {
        found.push(Candidate {
            recipe,
            compiled,
            config,
        });
    }
    Ok(())
}

fn heuristics(
    target: Target<'_>,
    graph: &Graph,
    mode: sys::cudnnBackendHeurMode_t,
) -> Result<Vec<Descriptor>> {
    let asked = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .link(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &graph.graph)?
        .code(
            Name::CUDNN_ATTR_ENGINEHEUR_MODE,
            Type::CUDNN_TYPE_HEUR_MODE,
            mode as u32,
        )?;
    let asked = target
        .apply(asked, None, Some(Name::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))?
        .finalize()?;
    let count = asked.count_links(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS)?;
    asked.get_links(
        Name::CUDNN_ATTR_ENGINEHEUR_RESULTS,
        Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
        count,
    )
}

fn knobs(config: &Descriptor) -> Result<Vec<(u32, i64)>> {
    let choices = config.get_links(
        Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
        Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
        64,
    )?;
    let mut knobs = Vec::with_capacity(choices.len());
    for choice in &choices {
        let kind = choice.get_code(
            Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
            Type::CUDNN_TYPE_KNOB_TYPE,
        )?;
        let value = choice.get_int(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
        knobs.push((kind, value));
    }
    knobs.sort_unstable();
    Ok(knobs)
}

/// The engine configuration of a recipe.
fn configure(target: Target<'_>, graph: &Graph, recipe: &Recipe) -> Result<Descriptor> {
    let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?
        .link(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &graph.graph)?
        .ints(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[recipe.engine])?;
    let engine = target
        .apply(engine, None, Some(Name::CUDNN_ATTR_ENGINE_DEVICEPROP))?
        .finalize()?;
    let mut choices = Vec::with_capacity(recipe.knobs.len());
    for &(kind, value) in &recipe.knobs {
        choices.push(
            Descriptor::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?
                .code(
                    Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                    Type::CUDNN_TYPE_KNOB_TYPE,
                    kind,
                )?
                .ints(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?
                .finalize()?,
        );
    }
    let mut config = Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?
        .link(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &engine)?;
    if !choices.is_empty() {
        config = config.links(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &choices)?;
    }
    config.finalize()
}

fn finished(plan: Descriptor) -> Result<Ready> {
    let plan = plan.finalize()?;
    let bytes = plan.get_int(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    Ok(Ready {
        workspace: usize::try_from(bytes).unwrap_or(usize::MAX),
        plan,
    })
}

fn blank(target: Target<'_>) -> Result<Descriptor> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    on_target(target, plan)
}

fn on_target(target: Target<'_>, plan: Descriptor) -> Result<Descriptor> {
    target.apply(
        plan,
        Some(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE),
        Some(Name::CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP),
    )
}

/// Makes the plan of a candidate; this is where kernels are compiled.
pub fn build(target: Target<'_>, candidate: &Candidate) -> Result<Ready> {
    finished(blank(target)?.link(
        Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
        &candidate.config,
    )?)
}

/// Makes the plan of a recipe.
pub fn rebuild(target: Target<'_>, graph: &Graph, recipe: &Recipe) -> Result<Ready> {
    let config = configure(target, graph, recipe)?;
    finished(blank(target)?.link(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &config)?)
}

/// A plan as text, its compiled kernel included.
pub fn write(plan: &Descriptor) -> Result<Vec<u8>> {
    plan.get_text(Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
}

/// The plan `write` wrote.
pub fn read(target: Target<'_>, text: &[u8]) -> Result<Ready> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .text(Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text)?;
    finished(on_target(target, plan)?)
}
