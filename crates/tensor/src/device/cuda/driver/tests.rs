//! Needs a GPU, but for what is said where there is none.

use super::*;
use crate::device::cuda::nvrtc;

const SOURCE: &str = r#"
extern "C" __global__ void scale(float* x, float by, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
extern "C" __global__ void turn(float* x) {
    extern __shared__ float line[];
    line[threadIdx.x * 64] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = line[(blockDim.x - 1 - threadIdx.x) * 64];
}
"#;

/// The first GPU and the kernels above, where there is one and NVRTC.
fn ready() -> Option<(Gpu, Module)> {
    let opened = Gpu::open(0);
    let (gpu, cubin) = match &opened {
        Ok(gpu) if library::nvrtc().is_ok() => {
            (gpu, nvrtc::compile(SOURCE, "test", &gpu.arch()).unwrap())
        }
        _ => {
            println!("skipped: there is no GPU, or no NVRTC");
            return None;
        }
    };
    Some((gpu.clone(), Module::load(gpu, &cubin).unwrap()))
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn numbers(buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.len()];
    buffer.download(&mut bytes).unwrap();
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

#[test]
fn without_a_gpu_the_error_says_what_to_do() {
    match Gpu::list() {
        Ok(list) => println!("skipped: there are GPUs: {list:?}"),
        Err(error) => {
            let error = error.to_string();
            assert!(
                ["nvidia-driver", "CUDA_VISIBLE_DEVICES", "CUDA cannot"]
                    .iter()
                    .any(|word| error.contains(word)),
                "{error}"
            );
            assert_eq!(Gpu::open(0).err().map(|e| e.to_string()), Some(error));
        }
    }
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
    let Some((gpu, _)) = ready() else { return };
    let error = Gpu::open(99).err().unwrap().to_string();
    assert!(
        error.contains("cuda:99") && error.contains(&gpu.info().name),
        "{error}"
    );
    assert!(gpu.arch().starts_with("sm_"));
    assert!(gpu.info().memory_free.unwrap() <= gpu.info().memory_total);
}

#[test]
fn bytes_come_back_and_zero_is_zero() {
    let Some((gpu, _)) = ready() else { return };
    let buffer = gpu.alloc(16).unwrap();
    buffer.upload(&bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    buffer.upload_at(4, &bytes(&[5.0])).unwrap();
    assert_eq!(numbers(&buffer), [1.0, 5.0, 3.0, 4.0]);
    let other = gpu.alloc(32).unwrap();
    other.fill_zero().unwrap();
    other.copy_from(&buffer).unwrap();
    assert_eq!(numbers(&other), [1.0, 5.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn too_much_memory_is_refused_with_both_numbers() {
    let Some((gpu, _)) = ready() else { return };
    let error = gpu.alloc(1 << 50).err().unwrap().to_string();
    assert!(
        error.contains("1048576.0 GiB") && error.contains("free of"),
        "{error}"
    );
}

#[test]
fn kernels_run_and_graphs_run_them_again() {
    let Some((gpu, module)) = ready() else { return };
    let scale = module.function("scale").unwrap();
    assert!(module.function("absent").is_err());
    let buffer = gpu.alloc(16).unwrap();
    buffer.upload(&bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let args = [buffer.address(), u64::from(2f32.to_bits()), 3];
    let stream = gpu.stream();
    // SAFETY: three numbers of a buffer of four, which outlives the graph.
    let run = |on: StreamRef<'_>| unsafe { scale.launch(on, [1, 1, 1], 32, 0, &args) }.unwrap();
    run(stream);
    assert_eq!(numbers(&buffer), [2.0, 4.0, 6.0, 4.0]);

    let side = gpu.new_stream(true).unwrap();
    let (fork, join) = (Event::new(&gpu).unwrap(), Event::new(&gpu).unwrap());
    let capture = Capture::begin(&gpu, stream).unwrap();
    run(stream);
    fork.record(stream).unwrap();
    fork.wait(side.borrowed()).unwrap();
    run(side.borrowed());
    join.record(side.borrowed()).unwrap();
    join.wait(stream).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(numbers(&buffer), [2.0, 4.0, 6.0, 4.0], "recorded, not done");
    let (start, end) = (Event::new(&gpu).unwrap(), Event::new(&gpu).unwrap());
    start.record(stream).unwrap();
    for _ in 0..2 {
        // SAFETY: the buffer is still there.
        unsafe { graph.launch(stream).unwrap() };
    }
    end.record(stream).unwrap();
    assert!(end.elapsed_ms(&start).unwrap() > 0.0);
    assert_eq!(numbers(&buffer), [32.0, 64.0, 96.0, 4.0]);

    drop(Capture::begin(&gpu, stream).unwrap());
    run(stream);
    assert_eq!(numbers(&buffer)[0], 64.0, "a dropped recording is over");
}

#[test]
fn shared_memory_beyond_the_usual_is_given_up_to_the_limit() {
    let Some((gpu, module)) = ready() else { return };
    let turn = module.function("turn").unwrap();
    let line: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let buffer = gpu.alloc(1024).unwrap();
    buffer.upload(&bytes(&line)).unwrap();
    let args = [buffer.address()];
    let shared = 256 * 64 * 4;
    // SAFETY: a live buffer of as many numbers as the kernel is told.
    unsafe {
        turn.launch(gpu.stream(), [1, 1, 1], 256, shared, &args)
            .unwrap()
    };
    let turned: Vec<f32> = line.into_iter().rev().collect();
    assert_eq!(numbers(&buffer), turned);
    // SAFETY: as above; it is refused.
    let error = unsafe { turn.launch(gpu.stream(), [1, 1, 1], 256, 1 << 20, &args) };
    assert!(error.unwrap_err().to_string().contains("1.0 MiB"));
}

#[test]
fn other_threads_may_use_the_gpu() {
    let Some((gpu, module)) = ready() else { return };
    let kernel = module.function("scale").unwrap();
    let buffer = gpu.alloc(4).unwrap();
    buffer.upload(&bytes(&[1.0])).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let args = [buffer.address(), u64::from(3f32.to_bits()), 1];
            // SAFETY: a live buffer of as many numbers as the kernel is told.
            unsafe { kernel.launch(gpu.stream(), [1, 1, 1], 1, 0, &args).unwrap() };
        });
    });
    assert_eq!(numbers(&buffer), [3.0]);
}
