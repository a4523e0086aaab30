//! A trial of everything CUDA is used for, small enough to be done whenever someone asks.
//!
//! Libraries that load may still not work together (a driver older than the compiler, a GPU newer than both), and
//! nothing tells but using them: a kernel is compiled, recorded and launched, and cuDNN and cuBLASLt are opened.

use super::driver::{Capture, Gpu, Module};
use super::{library, nvrtc};
use crate::{Error, Result};
use cudarc::{cublaslt, cudnn};

const SOURCE: &str =
    "extern \"C\" __global__ void add(unsigned* x, unsigned by) { x[threadIdx.x] += by; }\n";

/// Whether a GPU computes; the error says which part does not.
pub fn run(gpu: &Gpu) -> Result<()> {
    let cubin = nvrtc::compile(SOURCE, "add", &gpu.arch())?;
    let kernel = Module::load(gpu, &cubin)?.function("add")?;
    let buffer = gpu.alloc(4 * 32)?;
    buffer.fill_zero()?;
    let capture = Capture::begin(gpu, gpu.stream())?;
    // SAFETY: 32 threads, a word of the buffer each.
    unsafe { kernel.launch(gpu.stream(), [1, 1, 1], 32, 0, &[buffer.address(), 7])? };
    let graph = capture.end()?;
    for _ in 0..2 {
        // SAFETY: the buffer is still there.
        unsafe { graph.launch(gpu.stream())? };
    }
    let mut bytes = [0; 4 * 32];
    buffer.download(&mut bytes)?;
    if bytes.chunks_exact(4).any(|word| word != [14, 0, 0, 0]) {
        return Err(Error::new(format!(
            "{} computes wrongly: 7 + 7 is not 14 there; check the GPU with its maker's tools",
            gpu.info()
        )));
    }
    library::cublaslt()?;
    cublaslt::result::create_handle()
        .and_then(|handle| {
            // SAFETY: just created, and used nowhere else.
            unsafe { cublaslt::result::destroy_handle(handle) }
        })
        .map_err(|e| Error::new(format!("cuBLASLt does not start on {}: {e}", gpu.info())))?;
    library::cudnn()?;
    cudnn::result::create_handle()
        .and_then(|handle| {
            // SAFETY: just created, and used nowhere else.
            unsafe { cudnn::result::destroy_handle(handle) }
        })
        .map_err(|e| Error::new(format!("cuDNN does not start on {}: {e}", gpu.info())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_its_libraries_passes() {
        let complete = library::missing_sentence(library::find()).is_none();
        match Gpu::open(0) {
            Ok(gpu) if complete => run(&gpu).unwrap(),
            _ => println!("skipped: there is no GPU, or not every library"),
        }
    }
}
