//! Every variant compiles for the GPUs it is meant for, within its registers; launches are shaped as promised.
//!
//! `RRVQ_KERNEL_FOLDER` names a folder that gets all sources and launches, for programs that run them, such as
//! `tools/kernels_on_cpu.py`.

use super::*;
use crate::compile::Base;
use crate::device::cuda::launch::Launch;
use SampleMode::{ReinMax, Relaxed, StraightThrough};
use cudarc::nvrtc::{result, sys};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fmt::Write;

const NAMES: [&str; 16] = [
    "counter", "tau", "scale", "e_q", "mu", "logvar", "e_p", "dz", "dkl", "z", "index", "kl",
    "de_q", "dmu", "dlogvar", "de_p",
];

/// A call of both directions.
#[derive(Clone, Copy, Debug)]
struct Call {
    rows: usize,
    dim: usize,
    codes: usize,
    prior: bool,
    mode: SampleMode,
    half: bool,
    exact: bool,
    plain: bool,
}

fn place(name: &str, dtype: DType) -> Place {
    let input = NAMES.iter().position(|n| *n == name).expect("a known name");
    Place {
        base: Base::Input(input),
        offset: 0,
        dtype,
    }
}

impl Call {
    fn launches(&self) -> [Launches; 2] {
        let op = ResponsibilityOp {
            sharded: false,
            mode: self.mode,
            stream: 3,
            prior: self.prior,
        };
        let f = DType::F32;
        let map = if self.half { DType::Bf16 } else { f };
        let mut inputs = vec![
            place("counter", DType::U32),
            place("tau", f),
            place("scale", f),
            place("e_q", map),
            place("mu", f),
            place("logvar", f),
        ];
        inputs.extend(self.prior.then(|| place("e_p", map)));
        let mut with_flow = inputs.clone();
        with_flow.extend([place("dz", map), place("dkl", f)]);
        let z = place("z", map);
        let (index, kl) = (Some(place("index", DType::U32)), Some(place("kl", f)));
        let outputs = [
            Some(place("de_q", map)),
            Some(place("dmu", f)),
            Some(place("dlogvar", f)),
            self.prior.then(|| place("de_p", map)),
        ];
        let (rows, dim, codes) = (self.rows, self.dim, self.codes);
        if !self.plain {
            return [
                forward(&op, rows, dim, codes, &inputs, z, index, kl, self.exact),
                backward(&op, rows, dim, codes, &with_flow, &outputs, self.exact),
            ];
        }
        let case = |inputs| Case {
            op: &op,
            rows,
            dim,
            codes,
            inputs,
            exact: self.exact,
        };
        [
            plain::forward(&case(&inputs), z, index, kl),
            plain::backward(&case(&with_flow), &outputs),
        ]
    }

    fn mode_name(&self) -> &'static str {
        match self.mode {
            StraightThrough => "straight-through",
            Relaxed => "relaxed",
            ReinMax => "reinmax",
        }
    }

    fn name(&self) -> String {
        let word = |yes, word: &str| {
            if yes {
                format!("-{word}")
            } else {
                String::new()
            }
        };
        format!(
            "r{}-d{}-k{}{}{}{}{}{}",
            self.rows,
            self.dim,
            self.codes,
            word(self.prior, "prior"),
            word(self.mode != StraightThrough, self.mode_name()),
            word(self.half, "bf16"),
            word(self.exact, "exact"),
            word(self.plain, "plain"),
        )
    }
}

const TRAINING: Call = Call {
    rows: 4096,
    dim: 32,
    codes: 256,
    prior: true,
    mode: StraightThrough,
    half: true,
    exact: false,
    plain: false,
};

/// The paper's five layers: embeddings are f32 whatever else is bf16.
const WIDE: Call = Call {
    dim: 128,
    half: false,
    ..TRAINING
};

/// All choices of one size.
fn variants(size: Call) -> Vec<Call> {
    let flags = (0..8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0));
    let modes = [StraightThrough, Relaxed, ReinMax];
    flags
        .flat_map(|flags| modes.map(|mode| (flags, mode)))
        .map(|([prior, half, exact], mode)| Call {
            prior,
            mode,
            half,
            exact,
            ..size
        })
        .collect()
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for rows in [65536, 16384, 4096, 1024] {
        calls.push(Call { rows, ..TRAINING });
        let plain = true;
        calls.push(Call {
            rows,
            plain,
            ..TRAINING
        });
        let (half, exact) = (false, true);
        calls.push(Call {
            rows,
            half,
            exact,
            ..TRAINING
        });
        for mode in [Relaxed, ReinMax] {
            calls.push(Call {
                rows,
                mode,
                ..TRAINING
            });
        }
    }
    calls.extend(variants(Call {
        rows: 333,
        ..TRAINING
    }));
    let (dim, codes) = (16, 64);
    calls.extend(variants(Call {
        rows: 50,
        dim,
        codes,
        ..TRAINING
    }));
    calls.push(Call {
        rows: 90,
        dim: 16,
        codes: 128,
        half: false,
        ..TRAINING
    });
    for rows in [65536, 16384, 4096, 1024, 256, 333, 40960] {
        calls.push(Call { rows, ..WIDE });
    }
    for (prior, mode) in [
        (true, Relaxed),
        (true, ReinMax),
        (false, StraightThrough),
        (false, Relaxed),
        (false, ReinMax),
    ] {
        calls.push(Call {
            rows: 333,
            prior,
            mode,
            ..WIDE
        });
    }
    for prior in [true, false] {
        calls.push(Call {
            rows: 17001,
            dim: 64,
            codes: 64,
            prior,
            ..WIDE
        });
    }
    for (dim, codes, mode) in [
        (32, 1024, StraightThrough),
        (64, 128, Relaxed),
        (96, 64, StraightThrough),
        (32, 1024, ReinMax),
        (96, 64, ReinMax),
    ] {
        calls.push(Call {
            rows: 70,
            dim,
            codes,
            mode,
            half: codes == 64,
            ..WIDE
        });
    }
    for (dim, codes) in [(32, 64), (16, 256)] {
        calls.push(Call {
            rows: 60,
            dim,
            codes,
            ..TRAINING
        });
    }
    for (rows, dim, codes) in [
        (70, 5, 19),
        (40, 32, 16),
        (33, 100, 300),
        (12, 256, 70),
        (9, 3, 2),
    ] {
        let (half, exact) = (false, true);
        for (prior, mode) in [
            (true, StraightThrough),
            (false, Relaxed),
            (true, ReinMax),
            (false, ReinMax),
        ] {
            calls.push(Call {
                rows,
                dim,
                codes,
                prior,
                mode,
                half,
                exact,
                plain: true,
            });
        }
    }
    calls
}

/// Bytes: what a function may spill a tile of rows without showing in its time.
const MOST_SPILT: usize = 256;

/// Compiles for one GPU; the assembler's words on registers and spills.
fn compile(source: &str, arch: &str) -> Result<String, String> {
    let text = CString::new(source).expect("no zero in a source");
    let program = result::create_program(&text, None).map_err(|e| e.to_string())?;
    let options = [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".into(),
        "--ptxas-options=-v".into(),
    ];
    // SAFETY: a live program.
    let done = unsafe { result::compile_program(program, &options) };
    // SAFETY: a live program.
    let log = unsafe { result::get_program_log(program) }.map_err(|e| e.to_string())?;
    // SAFETY: the log ends in a zero.
    let log = unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy();
    // SAFETY: made above, destroyed once.
    unsafe { result::destroy_program(program) }.map_err(|e| e.to_string())?;
    match done {
        Ok(()) => Ok(log.into_owned()),
        Err(_) => Err(log.into_owned()),
    }
}

/// Bytes of registers each function of a log keeps in memory for want of room.
fn spills(log: &str) -> Vec<usize> {
    let before = |line: &str| {
        line.split(" bytes spill stores")
            .next()?
            .rsplit(' ')
            .next()?
            .parse()
            .ok()
    };
    let lines = log.lines().filter(|l| l.contains("bytes spill stores"));
    lines.filter_map(before).collect()
}

fn has_compiler() -> bool {
    // SAFETY: only looks for the library.
    let has = unsafe { sys::is_culib_present() };
    if !has {
        println!("skipped: no NVRTC here");
    }
    has
}

fn compile_all(calls: &[Call], arch: &str) {
    let mut seen = HashSet::new();
    for call in calls {
        for launch in call.launches().iter().flat_map(|l| &l.list) {
            if !seen.insert(launch.function.source.clone()) {
                continue;
            }
            match compile(&launch.function.source, arch) {
                Ok(log) => {
                    for spilt in spills(&log) {
                        assert!(spilt <= MOST_SPILT, "{} on {arch}:\n{log}", call.name());
                    }
                    if std::env::var_os("RRVQ_KERNEL_FOLDER").is_some() {
                        println!("{} on {arch}:\n{log}", call.name());
                    }
                }
                Err(log) => panic!("{} on {arch}:\n{log}", call.name()),
            }
        }
    }
}

#[test]
fn training_compiles_for_both_gpus_within_its_registers() {
    if !has_compiler() {
        return;
    }
    let mut calls = vec![TRAINING, WIDE];
    let (mode, half, exact) = (ReinMax, false, true);
    calls.extend([TRAINING, WIDE].map(|call| Call { mode, ..call }));
    for plain in [false, true] {
        calls.push(Call {
            mode,
            half,
            exact,
            plain,
            ..TRAINING
        });
    }
    for arch in ["sm_80", "sm_90"] {
        compile_all(&calls, arch);
    }
}

/// Minutes: asked for by name.
#[test]
#[ignore = "compiles every variant, which takes minutes"]
fn all_variants_compile_for_both_gpus() {
    if !has_compiler() {
        return;
    }
    for arch in ["sm_80", "sm_90"] {
        compile_all(&calls(), arch);
    }
}

#[test]
fn sizes_choose_the_road() {
    let names = |call: Call| {
        let [forward, backward] = call.launches();
        let first = |l: &Launches| l.list[0].function.name.clone();
        [first(&forward), first(&backward)]
    };
    assert_eq!(
        names(TRAINING),
        ["responsibility_forward", "responsibility_quick"]
    );
    let odd = Call {
        dim: 31,
        ..TRAINING
    };
    assert_eq!(names(odd), ["responsibility_tables"; 2]);
    let many = Call {
        codes: 512,
        ..TRAINING
    };
    assert_eq!(names(many), ["responsibility_wide_tables"; 2]);
    assert_eq!(names(WIDE), ["responsibility_wide_tables"; 2]);
    let precise = Call {
        exact: true,
        half: false,
        ..WIDE
    };
    assert_eq!(names(precise), ["responsibility_tables"; 2]);
}

#[test]
fn scratch_is_aligned_and_counted() {
    for call in calls() {
        for launches in call.launches() {
            for arg in launches.list.iter().flat_map(|l| &l.args) {
                if let Arg::Scratch(at) = arg {
                    assert!(at % 256 == 0 && *at < launches.scratch, "{call:?}");
                }
            }
            for launch in &launches.list {
                assert!(launch.grid.iter().all(|n| *n > 0) && launch.block > 0);
                assert!(launch.shared <= 163 * 1024, "{call:?}");
            }
        }
    }
}

/// All rows of the four sizes are some block's, and small layers still spread over the GPU.
#[test]
fn grids_cover_the_rows() {
    for (rows, forward_warps) in [(65536, 4096), (16384, 2048), (4096, 2048), (1024, 512)] {
        let [forward, backward] = Call { rows, ..TRAINING }.launches();
        let launch = &forward.list[0];
        let Some(Arg::U32(parts)) = launch.args.last() else {
            panic!("the last argument is the number of parts");
        };
        assert_eq!(rows / 16 * *parts as usize, forward_warps, "{rows}");
        assert!(launch.grid[0] <= 264 && backward.list[0].grid[0] <= 132);
    }
}

fn describe(launches: &Launches, sources: &mut Vec<String>) -> String {
    let mut text = format!("{{\"scratch\": {}, \"launches\": [", launches.scratch);
    for (i, launch) in launches.list.iter().enumerate() {
        let Launch {
            function,
            grid,
            block,
            shared,
            args,
        } = launch;
        let known = sources.iter().position(|s| *s == function.source);
        let source = known.unwrap_or_else(|| {
            sources.push(function.source.clone());
            sources.len() - 1
        });
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg {
                Arg::Place(Place {
                    base: Base::Input(i),
                    ..
                }) => format!("\"{}\"", NAMES[*i]),
                Arg::Scratch(at) => format!("[\"scratch\", {at}]"),
                Arg::U32(v) => v.to_string(),
                Arg::Null => "null".into(),
                other => panic!("{other:?} is no argument of these kernels"),
            })
            .collect();
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(
            text,
            "{comma}{{\"source\": {source}, \"name\": \"{}\", \"grid\": {grid:?}, \"block\": {block}, \"shared\": {shared}, \"args\": [{}]}}",
            function.name,
            args.join(", ")
        );
    }
    text + "]}"
}

#[test]
fn sources_and_launches_can_be_taken_away() {
    let (mut sources, mut lines) = (Vec::new(), Vec::new());
    for call in calls() {
        let [forward, backward] = call.launches();
        let Call {
            rows,
            dim,
            codes,
            prior,
            half,
            exact,
            plain,
            ..
        } = call;
        lines.push(format!(
            "{{\"name\": \"{}\", \"rows\": {rows}, \"dim\": {dim}, \"codes\": {codes}, \"prior\": {prior}, \"mode\": \"{}\", \"half\": {half}, \"exact\": {exact}, \"plain\": {plain}, \"forward\": {}, \"backward\": {}}}",
            call.name(),
            call.mode_name(),
            describe(&forward, &mut sources),
            describe(&backward, &mut sources)
        ));
    }
    assert!(sources.iter().all(|s| !s.contains("#include")));
    let Some(folder) = std::env::var_os("RRVQ_KERNEL_FOLDER") else {
        return;
    };
    let folder = std::path::Path::new(&folder);
    std::fs::create_dir_all(folder).expect("a folder");
    for (i, source) in sources.iter().enumerate() {
        std::fs::write(folder.join(format!("{i}.cu")), source).expect("a source file");
    }
    let all = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(folder.join("calls.json"), all).expect("the list of calls");
}
