//! Choosing what computes: refused with one sentence where it cannot be, explained by the doctor.

mod common;
use common::{Said, Scratch};

/// Every command that computes, with enough arguments to get as far as the device.
const COMPUTING: [&[&str]; 7] = [
    &["train", "--preset", "tiny-swatches", "--out", "new"],
    &["eval", "run"],
    &["sample", "run", "--out", "x.png"],
    &["reconstruct", "run", "--out", "x.png"],
    &["bench", "step"],
    &["bench", "eval"],
    &["bench", "profile"],
];

/// As on a machine without a GPU, also where there is one.
fn without_gpu(scratch: &Scratch, args: &[&str]) -> Said {
    let mut command = scratch.command(args);
    command.env("CUDA_VISIBLE_DEVICES", "-1");
    Said::from(command.output().unwrap())
}

#[test]
fn a_missing_gpu_is_the_same_clear_sentence_everywhere() {
    let scratch = Scratch::new();
    let mut sentences = Vec::new();
    for command in COMPUTING {
        let said = without_gpu(&scratch, &[command, &["--device", "cuda"]].concat());
        said.refused(&[
            "--device cuda cannot be used",
            "rrvq doctor",
            "--device cpu",
        ]);
        sentences.push(said.err);
    }
    sentences.dedup();
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    assert!(!scratch.path("new").exists() && !scratch.path("x.png").exists());
    let far = without_gpu(&scratch, &["bench", "step", "--device", "cuda:99"]);
    far.refused(&["--device cuda:99 cannot be used"]);
}

#[test]
fn the_cpu_computes_in_f32_alone() {
    let scratch = Scratch::new();
    for command in COMPUTING {
        let half = [command, &["--precision", "bf16"]].concat();
        scratch.run(&half).refused(&[
            "--precision bf16 needs --device cuda",
            "the CPU computes in f32",
        ]);
    }
    assert!(!scratch.path("new").exists());
    let small = [
        "bench",
        "step",
        "--layers",
        "1",
        "--channels",
        "8",
        "--embed",
        "4",
        "--codes",
        "4",
        "--batch",
        "1",
        "--steps",
        "1",
        "--device",
        "cpu",
        "--precision",
        "f32",
        "--json",
    ];
    assert_eq!(scratch.run(&small).json()["device"], "cpu");
}

#[test]
fn the_doctor_says_what_works_in_the_last_line() {
    let scratch = Scratch::new();
    let out = without_gpu(&scratch, &["doctor"]).done();
    for title in [
        "CPU", "GPU", "driver", "NVRTC", "cuBLASLt", "cuDNN", "cache",
    ] {
        let lines = out.lines().filter(|line| line.starts_with(title));
        assert_eq!(lines.count(), 1, "{title}: {out}");
    }
    let last = out.lines().last().unwrap();
    let start = "--device cpu is ready; --device cuda is not ready: ";
    let reason = last.strip_prefix(start).unwrap_or_else(|| panic!("{out}"));
    let refused = without_gpu(&scratch, &["bench", "step", "--device", "cuda"]);
    assert!(refused.err.contains(reason), "{reason}: {refused:?}");
}

#[test]
fn the_doctor_tells_machines_too() {
    let scratch = Scratch::new();
    scratch.write("kernel", [0; 100]);
    let look = |simd: &str| {
        let mut command = scratch.command(&["--threads", "1", "doctor", "--json"]);
        command
            .env("CUDA_VISIBLE_DEVICES", "-1")
            .env("RRVQ_SIMD", simd)
            .env("RRVQ_CACHE", ".")
            .env("RRVQ_CUDA_LIBS", "nowhere");
        Said::from(command.output().unwrap()).json()
    };
    let seen = look("portable");
    assert_eq!(seen["cpu"]["simd"], "portable");
    assert_eq!(seen["cpu"]["threads"], 1);
    assert_eq!(seen["cuda"]["ready"], false);
    assert!(seen["cuda"]["reason"].is_string());
    assert_eq!(seen["gpus"].as_array().map(Vec::len), Some(0));
    assert_eq!(seen["cache"]["files"], 1);
    assert_eq!(seen["cache"]["bytes"], 100);
    let refused = seen["libraries"]["refused"].to_string();
    assert!(refused.contains("nowhere, which is not a folder"), "{seen}");
}

#[test]
fn a_library_that_is_none_is_shown_with_its_reason() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("nvidia/cudnn/lib")).unwrap();
    scratch.write("nvidia/cudnn/lib/libcudnn.so.9", "not a library");
    let mut command = scratch.command(&["doctor"]);
    command.env("RRVQ_CUDA_LIBS", "nvidia");
    let out = Said::from(command.output().unwrap()).done();
    let cudnn = out.lines().find(|line| line.starts_with("cuDNN")).unwrap();
    match cudnn.contains("not found") {
        true => assert!(
            out.lines()
                .any(|line| line.starts_with("refused") && line.contains("libcudnn.so.9")),
            "{out}"
        ),
        false => println!("skipped: this machine has a cuDNN of its own: {cudnn}"),
    }
}
