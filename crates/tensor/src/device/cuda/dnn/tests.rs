//! What can be said about plans without a GPU: cuDNN makes them for one it is told the properties of.

use super::descriptor::{Descriptor, Kind, Name, Target};
use super::engines::{self, Limits};
use super::epilogue::*;
use super::gpu_tests::reference::conv;
use super::operation::{self, Form, Slot};
use super::problem::{Direction, Problem};
use crate::compile::{Access, Base, Chain, Load, Operand, Place, Step, StepOp, StorePlace};
use crate::graph::DType;
use crate::op::{BinaryOp, UnaryOp};
use cudarc::cudnn::sys;

const H200: &str = r#"{"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"cudnnVersion":91900,
"deviceName":"NVIDIA H200","maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"smClockRateKHz":1980000,"memClockRateKHz":3201000,
"l2CacheSize":62914560,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150000000000}"#;

fn load(offset: usize, dtype: DType, access: Access) -> Load {
    let place = Place {
        base: Base::Arena,
        offset,
        dtype,
    };
    Load {
        place,
        dtype,
        access,
    }
}

const BIAS: Access = Access::Rows {
    div: 1,
    modulo: 1,
    stride: 0,
    spread: true,
};

fn step(op: StepOp, args: &[Operand], to: Operand) -> Step {
    Step {
        op,
        args: args.to_vec(),
        to,
        row_wise: false,
    }
}

/// Over 128 × 64 elements.
fn chain(loads: Vec<Load>, steps: Vec<Step>, stores: &[DType]) -> Chain {
    let store = |&dtype: &DType| StorePlace {
        place: load(0, dtype, Access::Flat).place,
        row_wise: false,
    };
    Chain {
        rows: 128,
        cols: 64,
        flat: false,
        loads,
        stores: stores.iter().map(store).collect(),
        steps,
        regs: 2,
        row_regs: 0,
        result: None,
    }
}

/// 0.1 · (convolution + bias) + a map, ELU of it beside it, and a step for nobody.
fn residual() -> Chain {
    use Operand::{Anchor, Const, Load as From, Reg, Store};
    let add = StepOp::Binary(BinaryOp::Add);
    chain(
        vec![
            load(8, DType::Bf16, Access::Flat),
            load(0, DType::F32, Access::Scalar),
            load(3, DType::F32, BIAS),
        ],
        vec![
            step(StepOp::Unary(UnaryOp::Neg), &[From(1)], Reg(1)),
            step(add, &[From(2), Anchor], Reg(0)),
            step(StepOp::Binary(BinaryOp::Mul), &[Const(0.1), Reg(0)], Reg(0)),
            step(add, &[Reg(0), From(0)], Store(0)),
            step(StepOp::Unary(UnaryOp::Elu), &[Store(0)], Store(1)),
        ],
        &[DType::F32, DType::Bf16],
    )
}

/// Convolution · ELU's slope at a map, taken from a constant.
fn slope() -> Chain {
    use Operand::{Anchor, Const, Load as From, Reg, Store};
    chain(
        vec![load(0, DType::Bf16, Access::Flat)],
        vec![
            step(StepOp::Unary(UnaryOp::EluSlope), &[From(0)], Reg(0)),
            step(StepOp::Binary(BinaryOp::Mul), &[Anchor, Reg(0)], Reg(0)),
            step(
                StepOp::Binary(BinaryOp::Sub),
                &[Const(2.0), Reg(0)],
                Store(0),
            ),
        ],
        &[DType::Bf16],
    )
}

#[test]
fn a_chain_becomes_an_epilogue() {
    let made = Epilogue::from_chain(&residual(), 64).expect("simple enough");
    assert_eq!(
        made.to_string(),
        "in0=full:bf16:a16 in1=channels:f32:a4 t0=Add(conv,in1) t1=Mul(t0,0.1) t2=Add(t1,in0) t3=Elu(t2) > t2:f32:a16 t3:bf16:a16"
    );
    // The scalar served only the step for nobody.
    let loads: Vec<usize> = made.inputs.iter().map(|i| i.load).collect();
    assert_eq!(loads, [0, 2]);
    let made = Epilogue::from_chain(&slope(), 64).expect("simple enough");
    assert_eq!(
        made.to_string(),
        "in0=full:bf16:a16 t0=Min(in0,0) t1=Add(t0,1) t2=Mul(conv,t1) t3=Neg(t2) t4=Add(t3,2) > t4:bf16:a16"
    );
    let problem = Problem::new(
        conv(2, 8, 64, 32, 3, 1),
        Direction::Data,
        DType::Bf16,
        DType::Bf16,
    )
    .with(made);
    let slots: Vec<Slot> = operation::slots(&problem).iter().map(|s| s.1).collect();
    let consts = [0.0, 1.0, 2.0].map(Slot::Const);
    let mut want = vec![Slot::W, Slot::Y, Slot::Input(0), Slot::Output(0)];
    want.extend(consts);
    assert_eq!(slots, want);
}

#[test]
fn what_is_more_than_an_epilogue_is_refused() {
    use Operand::{Anchor, Load as From, Store};
    let add = StepOp::Binary(BinaryOp::Add);
    // A bias of other rows than the result's channels.
    assert_eq!(Epilogue::from_chain(&residual(), 32), None);
    let with = |access, dtype, op, args: &[Operand]| {
        let loads = vec![load(0, dtype, access)];
        let steps = vec![step(op, args, Store(0))];
        Epilogue::from_chain(&chain(loads, steps, &[DType::F32]), 64)
    };
    let (flat, f32s) = (Access::Flat, DType::F32);
    assert!(with(flat, f32s, add, &[Anchor, From(0)]).is_some());
    // Numbers that are no maps, values per row, operations cuDNN is not asked for, no convolution at all.
    let rows = Access::Rows {
        div: 4,
        modulo: 8,
        stride: 1,
        spread: false,
    };
    assert_eq!(with(flat, DType::U32, add, &[Anchor, From(0)]), None);
    assert_eq!(with(rows, f32s, add, &[Anchor, From(0)]), None);
    assert_eq!(
        with(flat, f32s, StepOp::Unary(UnaryOp::Exp), &[Anchor]),
        None
    );
    assert_eq!(with(flat, f32s, add, &[From(0), From(0)]), None);
    let copy = with(flat, f32s, StepOp::Copy, &[Anchor]).expect("simple enough");
    assert!(matches!(copy.outputs[..], [out] if out.value == Value::Anchor && out.dtype == f32s));
    assert_eq!(copy.inputs.len(), 0);
    let mut reducing = residual();
    reducing.result = Some(Operand::Reg(0));
    assert_eq!(Epilogue::from_chain(&reducing, 64), None);
}

/// An H200 by its properties, or nothing where there is no cuDNN that takes them.
fn h200() -> Option<Descriptor> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        println!("no cuDNN: skipped");
        return None;
    }
    let made = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
        .and_then(|d| {
            d.text(
                Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                H200.as_bytes(),
            )
        })
        .and_then(Descriptor::finalize);
    if let Err(e) = &made {
        println!("a cuDNN that does not know GPUs by their properties: skipped ({e})");
    }
    made.ok()
}

#[test]
fn plans_are_made_again_from_recipes_and_from_text() {
    let Some(h200) = h200() else { return };
    let target = Target {
        handle: None,
        properties: Some(&h200),
    };
    let limits = Limits {
        all: 3,
        compiled: 1,
    };
    // SAFETY: only looks for the library.
    let driver = unsafe { cudarc::driver::sys::is_culib_present() };
    let (f32s, bf16s) = (DType::F32, DType::Bf16);
    let large = conv(256, 16, 256, 64, 3, 1);
    let odd = conv(3, 16, 5, 7, 3, 2);
    let mut problems = Vec::new();
    for direction in [Direction::Forward, Direction::Data, Direction::Weight] {
        problems.push(Problem::new(large, direction, bf16s, bf16s));
        problems.push(Problem::new(large, direction, f32s, f32s));
        problems.push(Problem::new(odd, direction, f32s, f32s));
    }
    // Fused kernels are compiled by parts of cuDNN that load only beside a driver.
    if driver {
        let forward = Problem::new(large, Direction::Forward, bf16s, bf16s);
        problems.extend(Epilogue::from_chain(&residual(), 64).map(|e| forward.with(e)));
        let weight = Problem::new(large, Direction::Weight, bf16s, f32s);
        problems.push(weight);
    }
    for problem in &problems {
        let key = problem.key();
        let graph = operation::graph(target, problem, Form::Direct).expect(&key);
        let found = engines::candidates(target, &graph, problem.maps, limits);
        assert!(!found.is_empty() && found.len() <= 3, "{key}");
        for candidate in &found {
            let first = engines::build(target, candidate).expect(&key);
            let again = engines::rebuild(target, &graph, &candidate.recipe).expect(&key);
            assert_eq!(first.workspace, again.workspace, "{key}");
            let text = engines::write(&first.plan).expect(&key);
            let read = engines::read(target, &text).expect(&key);
            assert_eq!(first.workspace, read.workspace, "{key}");
        }
    }
    println!("{} problems, driver: {driver}", problems.len());
}
