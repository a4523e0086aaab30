//! What can be said about plans without a GPU: cuDNN makes them for one it is told the properties of.

use super::descriptor::{Descriptor, Kind, Name, Target};
use super::engines::{self, Limits};
use super::epilogue::*;
use super::operation::{self, Form};
use super::problem::{Direction, Problem};
use crate::compile::ConvGeometry;
use crate::graph::DType;
use cudarc::cudnn::sys;

const H200: &str = r#"{"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"cudnnVersion":91900,
"deviceName":"NVIDIA H200","maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"smClockRateKHz":1980000,"memClockRateKHz":3201000,
"l2CacheSize":62914560,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150000000000}"#;

fn conv(n: usize, size: usize, ci: usize, co: usize, k: usize, stride: usize) -> ConvGeometry {
    let pad = k / 2;
    let out = (size + 2 * pad - k) / stride + 1;
    ConvGeometry {
        n,
        h: size,
        w: size,
        ci,
        oh: out,
        ow: out,
        co,
        kh: k,
        kw: k,
        stride,
        pad,
            filter: crate::op::Filter::Ohwi,
    }
}

#[test]
fn explore() {
    if !unsafe { sys::is_culib_present() } {
        println!("no cuDNN: skipped");
        return;
    }
    let h200 = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
        .unwrap()
        .text(
            Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
            H200.as_bytes(),
        )
        .unwrap()
        .finalize()
        .unwrap();
    let target = Target::Properties(&h200);
    let bias = Epilogue {
        inputs: vec![Input {
            load: 0,
            extent: Extent::Channels,
            dtype: DType::F32,
            align: 4,
        }],
        steps: vec![PointStep {
            op: PointOp::Add,
            a: Value::Anchor,
            b: Some(Value::Input(0)),
        }],
        outputs: vec![Output {
            value: Value::Step(0),
            dtype: DType::Bf16,
            align: 16,
        }],
    };
    let mut bias_elu = bias.clone();
    bias_elu.steps.push(PointStep {
        op: PointOp::Elu,
        a: Value::Step(0),
        b: None,
    });
    bias_elu.outputs[0].value = Value::Step(1);
    let full = |dtype| Input {
        load: 0,
        extent: Extent::Full,
        dtype,
        align: 16,
    };
    let mut residual = bias.clone();
    residual.inputs.push(full(DType::Bf16));
    residual.steps.push(PointStep {
        op: PointOp::Mul,
        a: Value::Step(0),
        b: Some(Value::Const(0.1)),
    });
    residual.steps.push(PointStep {
        op: PointOp::Add,
        a: Value::Step(1),
        b: Some(Value::Input(1)),
    });
    residual.outputs[0].value = Value::Step(2);
    let mut two = residual.clone();
    two.steps.push(PointStep {
        op: PointOp::Elu,
        a: Value::Step(2),
        b: None,
    });
    two.outputs.push(Output {
        value: Value::Step(3),
        dtype: DType::Bf16,
        align: 16,
    });
    let mut twof = two.clone();
    twof.outputs[0].dtype = DType::F32;
    let slope = Epilogue {
        inputs: vec![full(DType::Bf16)],
        steps: vec![
            PointStep {
                op: PointOp::Min,
                a: Value::Input(0),
                b: Some(Value::Const(0.0)),
            },
            PointStep {
                op: PointOp::Add,
                a: Value::Step(0),
                b: Some(Value::Const(1.0)),
            },
            PointStep {
                op: PointOp::Mul,
                a: Value::Anchor,
                b: Some(Value::Step(1)),
            },
        ],
        outputs: vec![Output {
            value: Value::Step(2),
            dtype: DType::Bf16,
            align: 16,
        }],
    };
    let mut slope_other = slope.clone();
    slope_other.inputs.push(full(DType::Bf16));
    slope_other.steps.push(PointStep {
        op: PointOp::Add,
        a: Value::Step(2),
        b: Some(Value::Input(1)),
    });
    slope_other.outputs[0].value = Value::Step(3);
    use DType::*;
    let g = conv(256, 16, 256, 256, 3, 1);
    let odd = conv(4, 8, 7, 5, 3, 1);
    let mut problems = vec![];
    for d in [Direction::Forward, Direction::Data, Direction::Weight] {
        problems.push(Problem::new(g, d, Bf16, Bf16));
        problems.push(Problem::new(g, d, F32, F32));
        problems.push(Problem::new(g, d, Bf16, F32));
        problems.push(Problem::new(odd, d, F32, F32));
        problems.push(Problem::new(odd, d, Bf16, Bf16));
    }
    for e in [&bias, &bias_elu, &residual, &two, &twof] {
        problems.push(Problem::new(g, Direction::Forward, Bf16, Bf16).with(e.clone()));
    }
    for e in [&slope, &slope_other] {
        problems.push(Problem::new(g, Direction::Data, Bf16, Bf16).with(e.clone()));
    }
    let filter = std::env::var("ONLY").unwrap_or_default();
    for p in &problems {
        if !p.key().contains(&filter) {
            continue;
        }
        for form in [Form::Direct, Form::Identity] {
            let start = std::time::Instant::now();
            let graph = match operation::draw(target, p, form) {
                Ok(g) => g,
                Err(e) => {
                    println!("{} {form:?}: draw: {e}", p.key());
                    continue;
                }
            };
            let found = engines::candidates(
                target,
                &graph,
                p.maps,
                Limits {
                    all: 8,
                    compiled: 3,
                },
            );
            match found {
                Err(e) => println!("{} {form:?}: candidates: {e}", p.key()),
                Ok(found) => {
                    println!(
                        "{} {form:?}: {} in {:?}",
                        p.key(),
                        found.len(),
                        start.elapsed()
                    );
                    for c in &found {
                        let start = std::time::Instant::now();
                        let made = engines::build(target, c);
                        let t = start.elapsed();
                        match made {
                            Ok(r) => {
                                let text = engines::write(&r.plan);
                                let n = text.as_ref().map(|t| t.len()).map_err(|e| e.to_string());
                                println!(
                                    "   engine {} compiled {} workspace {} in {t:?} json {n:?}",
                                    c.recipe.engine, c.compiled, r.workspace
                                );
                            }
                            Err(e) => println!(
                                "   engine {} compiled {}: {e}",
                                c.recipe.engine, c.compiled
                            ),
                        }
                    }
                }
            }
        }
    }
}
