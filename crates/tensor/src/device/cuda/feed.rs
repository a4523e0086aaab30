//! Steps that follow each other without the host: their inputs and rows are on the device before the first.

use super::driver::{Buffer, Kernel, Module, StreamRef};
use super::nvrtc;
use super::tools::Tools;
use crate::compile::{Named, Place, Plan};
use crate::device::{Frame, RowBank, RowLayout, find_input};
use crate::graph::DType;
use crate::{Error, Result};
use std::fmt::Write;

/// Most steps that are uploaded at once.
pub const MOST: usize = 256;

const BLOCK: u32 = 256;

/// The kernels before and after a step, and what they read and write.
pub struct Feed {
    before: Kernel,
    after: Kernel,
    before_args: Vec<u64>,
    after_args: Vec<u64>,
    gathered: String,
    bank: u64,
    layout: RowLayout,
    /// Rows in the bank, rows a step.
    count: usize,
    batch: usize,
    /// Words of the small inputs of a step, and floats of its results.
    words: usize,
    floats: usize,
    slot: Buffer,
    frames: Buffer,
    rows: Buffer,
    results: Buffer,
}

impl Feed {
    pub fn new(
        tools: &Tools,
        plan: &Plan,
        bank: &RowBank,
        gathered: &str,
        address: impl Fn(Place) -> u64,
    ) -> Result<Feed> {
        let gpu = tools.gpu();
        let find = plan.inputs.iter().find(|i| i.name == gathered);
        let (stored, layout): (&Buffer, _) = (bank.stored()?, bank.layout);
        let fits = |i: &&Named| i.dtype == DType::U8 && size(i).is_multiple_of(layout.bytes);
        let Some(gather_to) = find.filter(fits) else {
            return Err(Error::new(format!(
                "the program's input {gathered} does not take rows of {} bytes",
                layout.bytes
            )));
        };
        let batch = size(gather_to) / layout.bytes;
        let small: Vec<&Named> = small(plan, gathered).collect();
        if let Some(odd) = small.iter().find(|i| i.dtype.bytes() != 4) {
            return Err(Error::new(format!(
                "the input {} cannot be given for many steps at once: its elements are not words",
                odd.name
            )));
        }
        let words: usize = small.iter().map(|i| size(i)).sum();
        let outputs: Vec<&Named> = plan
            .outputs
            .iter()
            .filter(|o| o.place.dtype == DType::F32)
            .collect();
        let floats: usize = outputs.iter().map(|o| size(o)).sum();
        let source = source(layout, &small, &outputs);
        let cubin = nvrtc::compile_all(&[source], &gpu.arch(), crate::cache_dir().as_deref())?;
        let module = Module::load(gpu, &cubin[0])?;
        let (slot, frames) = (gpu.alloc(256)?, gpu.alloc((MOST * words * 4).max(4))?);
        let rows = gpu.alloc(MOST * batch * 4)?;
        let results = gpu.alloc((MOST * floats * 4).max(4))?;
        let mut before_args = vec![
            slot.address(),
            frames.address(),
            rows.address(),
            stored.address(),
            address(gather_to.place),
        ];
        before_args.extend(small.iter().map(|i| address(i.place)));
        let mut after_args = vec![slot.address(), results.address()];
        after_args.extend(outputs.iter().map(|o| address(o.place)));
        Ok(Feed {
            before: module.function("before")?,
            after: module.function("after")?,
            before_args,
            after_args,
            gathered: gathered.into(),
            bank: stored.address(),
            layout,
            count: bank.count,
            batch,
            words,
            floats,
            slot,
            frames,
            rows,
            results,
        })
    }

    /// Whether it was made for this bank and such frames.
    pub fn serves(&self, bank: &RowBank, frame: &Frame<'_>) -> bool {
        let address = bank.stored().ok().map(Buffer::address);
        address == Some(self.bank)
            && (self.layout, self.count) == (bank.layout, bank.count)
            && self.gathered == frame.gathered
    }

    /// Sends the inputs of the next steps and starts counting anew.
    pub fn upload(&self, plan: &Plan, bank: &RowBank, frames: &[Frame<'_>]) -> Result<()> {
        let mut words: Vec<u8> = Vec::with_capacity(frames.len() * self.words * 4);
        let mut rows: Vec<u8> = Vec::with_capacity(frames.len() * self.batch * 4);
        for frame in frames {
            for want in small(plan, &self.gathered) {
                words.extend_from_slice(find_input(want, frame.inputs)?.bytes());
            }
            if frame.rows.len() != self.batch {
                let have = frame.rows.len();
                let batch = self.batch;
                return Err(Error::new(format!(
                    "a run takes {batch} rows, but {have} were named"
                )));
            }
            for &row in frame.rows {
                bank.index(row)?;
                rows.extend_from_slice(&row.to_le_bytes());
            }
        }
        self.frames.upload_at(0, &words)?;
        self.rows.upload_at(0, &rows)?;
        self.slot.fill_zero()
    }

    /// Queues what brings a step its inputs.
    ///
    /// # Safety
    /// The bank and the program that `new` was given outlive the launch, or the graph it is recorded in.
    pub unsafe fn before(&self, stream: StreamRef<'_>) -> Result<()> {
        let grid = [self.batch as u32, 1, 1];
        // SAFETY: `before_args` are addresses in the bank, the program and our own buffers, of the sizes in `source`.
        unsafe {
            self.before
                .launch(stream, grid, BLOCK, 0, &self.before_args)
        }
    }

    /// Queues what keeps a step's results and counts it.
    ///
    /// # Safety
    /// As for `before`.
    pub unsafe fn after(&self, stream: StreamRef<'_>) -> Result<()> {
        // SAFETY: `after_args` are addresses in the program and our own buffers, of the sizes in `source`.
        unsafe {
            self.after
                .launch(stream, [1, 1, 1], BLOCK, 0, &self.after_args)
        }
    }

    /// The results of the first `count` steps since the upload.
    pub fn results(&self, count: usize) -> Result<Vec<Vec<f32>>> {
        if self.floats == 0 {
            return Ok(vec![Vec::new(); count]);
        }
        let mut bytes = vec![0u8; count * self.floats * 4];
        self.results.download_at(0, &mut bytes)?;
        let float = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let frame = |bytes: &[u8]| bytes.chunks_exact(4).map(float).collect();
        Ok(bytes.chunks_exact(self.floats * 4).map(frame).collect())
    }
}

fn size(named: &Named) -> usize {
    named.shape.iter().product()
}

/// Every input but the gathered one.
fn small<'a>(plan: &'a Plan, gathered: &str) -> impl Iterator<Item = &'a Named> {
    let gathered = gathered.to_string();
    plan.inputs.iter().filter(move |i| i.name != gathered)
}

/// Both kernels, for rows of one layout.
fn source(layout: RowLayout, small: &[&Named], outputs: &[&Named]) -> String {
    let RowLayout {
        bytes,
        axis,
        element,
    } = layout;
    let words: usize = small.iter().map(|i| size(i)).sum();
    let floats: usize = outputs.iter().map(|o| size(o)).sum();
    let mut text = String::from("typedef unsigned int u32;\ntypedef unsigned char u8;\n");
    let inputs: String = (0..small.len()).map(|i| format!(", u32* i{i}")).collect();
    let _ = write!(
        text,
        "extern \"C\" __global__ void before(const u32* slot, const u32* frames, const u32* rows, const u8* bank, u8* gathered{inputs}) {{
    const u32 step = *slot, row = rows[step * gridDim.x + blockIdx.x];
    const u8* from = bank + (size_t)(row & 0x7fffffffu) * {bytes}u;
    u8* to = gathered + (size_t)blockIdx.x * {bytes}u;
    for (u32 i = threadIdx.x; i < {bytes}u; i += {BLOCK}u) {{
        u32 place = i / {element}u, x = place % {axis}u;
        to[i] = from[row >> 31 ? (place - x + {axis}u - 1u - x) * {element}u + i % {element}u : i];
    }}
    if (blockIdx.x != 0) return;
    const u32* words = frames + step * {words}u;\n"
    );
    let mut at = 0;
    for (i, input) in small.iter().enumerate() {
        let len = size(input);
        let _ = writeln!(
            text,
            "    for (u32 i = threadIdx.x; i < {len}u; i += {BLOCK}u) i{i}[i] = words[{at}u + i];"
        );
        at += len;
    }
    text += "}\n";
    let pointers: String = (0..outputs.len())
        .map(|i| format!(", const u32* o{i}"))
        .collect();
    let _ = write!(
        text,
        "extern \"C\" __global__ void after(u32* slot, u32* results{pointers}) {{
    const u32 step = *slot;
    u32* out = results + step * {floats}u;\n"
    );
    let mut at = 0;
    for (i, output) in outputs.iter().enumerate() {
        let len = size(output);
        let _ = writeln!(
            text,
            "    for (u32 i = threadIdx.x; i < {len}u; i += {BLOCK}u) out[{at}u + i] = o{i}[i];"
        );
        at += len;
    }
    text += "    __syncthreads();\n    if (threadIdx.x == 0) *slot = step + 1u;\n}\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Base, compile};
    use crate::device::cuda::library;
    use crate::graph::Graph;

    #[test]
    fn both_kernels_compile_for_every_gpu() {
        let g = Graph::new();
        let images = g.input("images", &[2, 4, 3, 3], DType::U8).to_f32();
        let scales = g.input("scales", &[3], DType::F32);
        let rows = (images * scales).reshape(&[2, 36]).sum_last();
        let noise = g.noise(crate::rng::Distribution::Uniform, &[2, 1]);
        let outputs = [("sum", rows.sum()), ("rows", rows + noise)];
        let plan = compile(&g, &g.layout(), &outputs).unwrap();
        let small: Vec<&Named> = small(&plan, "images").collect();
        let names: Vec<&str> = small.iter().map(|i| i.name.as_str()).collect();
        assert!(names.len() == 2 && names.contains(&"counter") && names.contains(&"scales"));
        let outputs: Vec<&Named> = plan.outputs.iter().collect();
        assert!(outputs.iter().all(|o| o.place.base == Base::Arena));
        let layout = RowLayout {
            bytes: 36,
            axis: 3,
            element: 3,
        };
        let source = source(layout, &small, &outputs);
        // Seven words in, three floats out; an axis of three elements is reversed around its middle.
        assert!(source.contains("frames + step * 7u") && source.contains("results + step * 3u"));
        assert!(source.contains("(place - x + 3u - 1u - x) * 3u"));
        if let Err(missing) = library::nvrtc() {
            println!("skipped: {missing}");
            return;
        }
        for arch in ["sm_80", "sm_90"] {
            let cubin = nvrtc::compile(&source, "feed", arch).unwrap_or_else(|e| panic!("{e}"));
            assert!(cubin.starts_with(b"\x7fELF"));
        }
    }
}
