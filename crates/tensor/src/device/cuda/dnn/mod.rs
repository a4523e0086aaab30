//! Convolutions: cuDNN's graph interface, the fastest engine found once and remembered.
//!
//! ```text
//! Problem ─► operation graph ─► heuristics ─► plans (compiled in parallel) ─► timed ─► the fastest Plan
//!    └────────────────────────── cache on disk ──────────────────────────────────────────────▲
//! ```
//!
//! - [`problem`], [`epilogue`]: what is asked, as plain data.
//! - [`descriptor`], [`operation`], [`engines`], [`plan`]: cuDNN's side of it.
//! - [`measure`]: the clock. Plans are timed the way they are used, inside a CUDA graph.
//! - [`cache`]: what was found, by GPU and version of cuDNN.
//!
//! cuDNN is loaded at run time; nothing here is called before [`Dnn::new`] has seen that it is there.

pub mod cache;
pub mod descriptor;
pub mod engines;
pub mod epilogue;
pub mod measure;
pub mod operation;
pub mod plan;
pub mod problem;

#[cfg(test)]
mod gpu_tests;
#[cfg(test)]
mod tests;

pub use epilogue::Epilogue;
pub use plan::{Plan, Pointers};
pub use problem::{Direction, Problem};

use crate::device::cuda::driver::Gpu;
use crate::graph::DType;
use crate::{Error, Result};
use cache::{Cache, Entry};
use cudarc::cudnn::sys;
use descriptor::Target;
use engines::Limits;
use measure::Bench;
use operation::Form;
use plan::Handle;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// No plan may ask for more scratch memory.
pub const MOST_WORKSPACE: usize = 256 << 20;

/// Plans to try where kernels are there already, and where some have to be compiled first.
const PLAIN: Limits = Limits {
    all: 8,
    compiled: 2,
};
const FUSED: Limits = Limits {
    all: 8,
    compiled: 2,
};

/// More threads than this only wait for each other.
const MOST_THREADS: usize = 16;
/// Every thread needs a handle; plans the cache knows are made sooner than many handles.
const FEW_THREADS: usize = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A plan that was made but not chosen yet.
struct Built {
    plan: Plan,
    /// Time the cache knew.
    known: bool,
}

/// cuDNN on one GPU.
pub struct Dnn {
    gpu: Gpu,
    cache: Mutex<Option<Cache>>,
    idle: Mutex<Vec<Arc<Handle>>>,
    plans: Mutex<HashMap<String, Option<Arc<Plan>>>>,
}

impl Dnn {
    /// cuDNN on a GPU. Its measurements are cached in the folder `cache`, if there is one.
    pub fn new(gpu: &Gpu, cache: Option<PathBuf>) -> Result<Dnn> {
        // SAFETY: these two only look for and ask the library.
        let version = unsafe {
            if !sys::is_culib_present() {
                return Err(Error::new(
                    "cuDNN was not found: version 9 is expected where the system looks for libraries; install it or run on the CPU",
                ));
            }
            sys::cudnnGetVersion()
        };
        if !(90_000..100_000).contains(&version) {
            return Err(Error::new(format!(
                "cuDNN has version number {version} where one of version 9 (9xxxx) is expected; install cuDNN 9"
            )));
        }
        let handle = Handle::new(gpu)?;
        Ok(Dnn {
            gpu: gpu.clone(),
            cache: Mutex::new(cache.map(|folder| Cache::open(&folder, &gpu.info().name, version))),
            idle: Mutex::new(vec![Arc::new(handle)]),
            plans: Mutex::new(HashMap::new()),
        })
    }

    /// The fastest plans for many problems: made in parallel, then timed one after the other.
    pub fn plan_all(&self, problems: &[Problem]) -> Result<Vec<Option<Arc<Plan>>>> {
        let keys: Vec<String> = problems.iter().map(Problem::key).collect();
        let mut open: Vec<(&str, &Problem)> = Vec::new();
        {
            let plans = locked(&self.plans);
            for (key, problem) in keys.iter().zip(problems) {
                if !plans.contains_key(key) && !open.iter().any(|(k, _)| k == key) {
                    open.push((key, problem));
                }
            }
        }
        if !open.is_empty() {
            let made = self.make_all(&open)?;
            self.choose_all(&open, made)?;
        }
        let plans = locked(&self.plans);
        Ok(keys
            .iter()
            .map(|k| plans.get(k).cloned().flatten())
            .collect())
    }

    /// The candidates of every problem, made by several threads with a handle each.
    fn make_all(&self, open: &[(&str, &Problem)]) -> Result<Vec<Vec<Built>>> {
        let cached = match &*locked(&self.cache) {
            Some(cache) => open.iter().all(|(key, _)| cache.get(key).is_some()),
            None => false,
        };
        let most = if cached { FEW_THREADS } else { MOST_THREADS };
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        let threads = threads.min(most).min(open.len());
        // What takes longest comes first, so that nobody waits for it at the end.
        let mut order: Vec<usize> = (0..open.len()).collect();
        order.sort_by_key(|&at| !open[at].1.is_compiled());
        let next = AtomicUsize::new(0);
        let made: Vec<Mutex<Result<Vec<Built>>>> =
            open.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
        std::thread::scope(|scope| -> Result<()> {
            let mut workers = Vec::new();
            for _ in 0..threads {
                workers.push(scope.spawn(|| -> Result<()> {
                    self.gpu.make_current()?;
                    let idle = locked(&self.idle).pop();
                    let handle = match idle {
                        Some(handle) => handle,
                        None => Arc::new(Handle::new(&self.gpu)?),
                    };
                    let guard = locked(&handle.stream);
                    while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (key, problem) = open[at];
                        *locked(&made[at]) = self.make(&handle, key, problem);
                    }
                    drop(guard);
                    locked(&self.idle).push(handle);
                    Ok(())
                }));
            }
            for worker in workers {
                let ended = worker.join();
                ended.map_err(|_| {
                    Error::new("a thread that plans convolutions stopped; this is a bug")
                })??;
            }
            Ok(())
        })?;
        made.into_iter()
            .map(|m| m.into_inner().unwrap_or_else(|e| e.into_inner()))
            .collect()
    }

    /// The candidates of one problem, or the one the cache knows.
    fn make(&self, handle: &Arc<Handle>, key: &str, problem: &Problem) -> Result<Vec<Built>> {
        let target = Target::of(handle);
        let known = match &*locked(&self.cache) {
            Some(cache) => cache.get(key),
            None => None,
        };
        match known {
            Some(None) => return Ok(Vec::new()),
            Some(Some(entry)) => {
                if let Ok(built) = self.remake(handle, key, problem, entry) {
                    return Ok(vec![built]);
                }
            }
            None => {}
        }
        let mixed = problem.epilogue.is_none() && problem.maps != problem.out;
        let forms: &[Form] = match mixed {
            true => &[Form::Direct, Form::Identity],
            false => &[Form::Direct],
        };
        let limits = match problem.is_compiled() {
            true => FUSED,
            false => PLAIN,
        };
        let mut built = Vec::new();
        for &form in forms {
            // A graph cuDNN will not have is no mistake of the user's: nobody takes it.
            let Ok(graph) = operation::graph(target, problem, form) else {
                continue;
            };
            for candidate in engines::candidates(target, &graph, problem.maps, limits) {
                let Ok(ready) = engines::build(target, &candidate) else {
                    continue;
                };
                if ready.workspace > MOST_WORKSPACE {
                    continue;
                }
                let plan = Plan::new(
                    handle,
                    problem,
                    ready,
                    candidate.recipe,
                    form,
                    candidate.compiled,
                );
                built.push(Built { plan, known: false });
            }
        }
        Ok(built)
    }

    /// The plan of a cache entry: read back whole if its kernel was compiled, else made again.
    fn remake(
        &self,
        handle: &Arc<Handle>,
        key: &str,
        problem: &Problem,
        entry: Entry,
    ) -> Result<Built> {
        let target = Target::of(handle);
        let text = match &*locked(&self.cache) {
            Some(cache) if entry.compiled => cache.text(key),
            _ => None,
        };
        let ready = match text.map(|text| engines::read(target, &text)) {
            Some(Ok(ready)) => ready,
            _ => {
                let graph = operation::graph(target, problem, entry.form)?;
                engines::rebuild(target, &graph, &entry.recipe)?
            }
        };
        let mut plan = Plan::new(
            handle,
            problem,
            ready,
            entry.recipe,
            entry.form,
            entry.compiled,
        );
        plan.micros = entry.micros;
        Ok(Built { plan, known: true })
    }

    /// Times what has to be timed and keeps the fastest plan of every problem.
    fn choose_all(&self, open: &[(&str, &Problem)], made: Vec<Vec<Built>>) -> Result<()> {
        let unknown = |built: &Vec<Built>| built.iter().any(|b| !b.known);
        let timed: Vec<(&Problem, usize)> = open
            .iter()
            .zip(&made)
            .filter(|(_, built)| unknown(built))
            .map(|((_, p), built)| {
                let most = built.iter().map(|b| b.plan.workspace).max();
                (*p, most.unwrap_or(0))
            })
            .collect();
        let bench = match timed.is_empty() {
            true => None,
            false => Some(Bench::new(&self.gpu, &timed)?),
        };
        let mut chosen = Vec::with_capacity(open.len());
        for (&(key, problem), mut built) in open.iter().zip(made) {
            if let (Some(bench), true) = (&bench, unknown(&built)) {
                bench.time_all(problem, built.iter_mut().map(|b| &mut b.plan))?;
                built.retain(|b| b.plan.micros.is_finite());
            }
            let fresh = built.is_empty() || unknown(&built);
            let fastest = built
                .into_iter()
                .map(|b| b.plan)
                .min_by(|a, b| a.micros.total_cmp(&b.micros))
                .map(Arc::new);
            if fresh && let Some(cache) = &mut *locked(&self.cache) {
                cache.put(key, fastest.as_deref());
            }
            chosen.push((key.to_string(), fastest));
        }
        if let Some(cache) = &mut *locked(&self.cache) {
            // A cache that cannot be written costs the next start some time and nothing else.
            let _ = cache.save();
        }
        locked(&self.plans).extend(chosen);
        Ok(())
    }
}

/// The bytes of everything a problem reads, and of everything it writes.
pub(super) fn bytes(problem: &Problem) -> (Vec<usize>, Vec<usize>) {
    let size = |shape: [usize; 4], dtype: DType| shape.iter().product::<usize>() * dtype.bytes();
    let mut read: Vec<usize> = problem
        .operands()
        .iter()
        .map(|&shape| size(shape, problem.maps))
        .collect();
    let result = problem.result();
    let Some(epilogue) = &problem.epilogue else {
        return (read, vec![size(result, problem.out)]);
    };
    for input in &epilogue.inputs {
        let count = match input.extent {
            epilogue::Extent::One => 1,
            epilogue::Extent::Channels => result[1],
            epilogue::Extent::Full => {
                result.iter().product::<usize>() / result[1] * input.pitch.unwrap_or(result[1])
            }
        };
        read.push(count * input.dtype.bytes());
    }
    let outputs = epilogue.outputs.iter();
    (read, outputs.map(|o| size(result, o.dtype)).collect())
}
