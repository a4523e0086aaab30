//! What the programs of one GPU share: cuDNN, cuBLASLt, and the choice between ways to do a convolution.

use super::blas::Blas;
use super::dnn::{self, Dnn, Epilogue, Problem};
use super::driver::Gpu;
use super::lower::Conv;
use crate::Result;
use crate::device::cost::chain_bytes;
use crate::graph::DType;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// What element-wise kernels reach of a GPU's memory, in bytes a microsecond, and what a launch costs: only used to
/// choose between a fused convolution and a plain one with a kernel after it.
const BANDWIDTH: f64 = 3.4e6;
const LAUNCH: f64 = 1.5;

/// The libraries of one GPU.
pub struct Tools {
    gpu: Gpu,
    dnn: OnceLock<Dnn>,
    blas: OnceLock<Blas>,
}

/// How a convolution is done.
pub enum Finish {
    /// With everything that follows it.
    Fused(Arc<dnn::Plan>),
    /// By itself.
    Plain(Arc<dnn::Plan>),
    /// By itself, into bf16 although f32 is wanted.
    Narrow(Arc<dnn::Plan>),
    /// Without cuDNN.
    Direct,
}

impl Tools {
    /// The tools of a GPU; the same ones for all programs on it.
    pub fn of(gpu: &Gpu) -> Result<Arc<Tools>> {
        static ALL: Mutex<Option<HashMap<usize, Arc<Tools>>>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(|e| e.into_inner());
        let tools = all.get_or_insert_default().entry(gpu.info().ordinal);
        let made = tools.or_insert_with(|| {
            Arc::new(Tools {
                gpu: gpu.clone(),
                dnn: OnceLock::new(),
                blas: OnceLock::new(),
            })
        });
        Ok(made.clone())
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub fn dnn(&self) -> Result<&Dnn> {
        if let Some(dnn) = self.dnn.get() {
            return Ok(dnn);
        }
        super::library::cudnn()?;
        self.gpu.make_current()?;
        let dnn = Dnn::new(&self.gpu, crate::cache_dir())?;
        Ok(self.dnn.get_or_init(|| dnn))
    }

    pub fn blas(&self) -> Result<&Blas> {
        if let Some(blas) = self.blas.get() {
            return Ok(blas);
        }
        super::library::cublaslt()?;
        self.gpu.make_current()?;
        let blas = Blas::new()?;
        Ok(self.blas.get_or_init(|| blas))
    }

    /// The best way to do each convolution.
    pub fn engines(&self, convs: &[&Conv]) -> Result<Vec<Finish>> {
        if convs.is_empty() {
            return Ok(Vec::new());
        }
        let dnn = self.dnn()?;
        let plain =
            |conv: &Conv, out: DType| Problem::new(conv.geometry, conv.which, conv.a.dtype, out);
        let mut problems: Vec<Problem> = Vec::new();
        for conv in convs {
            problems.push(plain(conv, conv.out.dtype));
            let chain = conv.chain.as_ref();
            let epilogue = chain.and_then(|c| Epilogue::from_chain(c, conv.channels()));
            problems.extend(epilogue.map(|e| plain(conv, conv.out.dtype).with(e)));
        }
        let plans = dnn.plan_all(&problems)?;
        let mut found = problems
            .iter()
            .map(Problem::key)
            .zip(plans)
            .collect::<HashMap<_, _>>();
        // What has no engine with an f32 result may have one with a bf16 result.
        let narrow: Vec<Problem> = convs
            .iter()
            .filter(|c| c.a.dtype == DType::Bf16 && c.out.dtype == DType::F32)
            .filter(|c| found[&plain(c, DType::F32).key()].is_none())
            .map(|c| plain(c, DType::Bf16))
            .collect();
        let plans = dnn.plan_all(&narrow)?;
        found.extend(narrow.iter().map(Problem::key).zip(plans));
        let get = |problem: Problem| found.get(&problem.key()).cloned().flatten();
        let choose = |conv: &&Conv| {
            let alone = get(plain(conv, conv.out.dtype)).map(|p| (p.micros, Finish::Plain(p)));
            let alone = alone
                .or_else(|| get(plain(conv, DType::Bf16)).map(|p| (p.micros, Finish::Narrow(p))));
            let Some(chain) = &conv.chain else {
                return alone.map_or(Finish::Direct, |(_, way)| way);
            };
            // The separate kernel also reads what the convolution wrote.
            let raw = conv.geometry.outputs(conv.which) * conv.out.dtype.bytes();
            let after = (chain_bytes(chain) + raw) as f64 / BANDWIDTH + LAUNCH;
            let fused = Epilogue::from_chain(chain, conv.channels())
                .and_then(|e| get(plain(conv, conv.out.dtype).with(e)));
            match (alone, fused) {
                (None, None) => Finish::Direct,
                (None, Some(fused)) => Finish::Fused(fused),
                (Some((micros, _)), Some(fused))
                    if (fused.micros as f64) < micros as f64 + after =>
                {
                    Finish::Fused(fused)
                }
                (Some((_, way)), _) => way,
            }
        };
        Ok(convs.iter().map(choose).collect())
    }
}

impl Conv {
    /// Channels of the result.
    pub fn channels(&self) -> usize {
        match self.which {
            dnn::Direction::Forward | dnn::Direction::Weight => self.geometry.co,
            dnn::Direction::Data => self.geometry.ci,
        }
    }
}
