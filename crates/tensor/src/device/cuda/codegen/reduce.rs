//! Sums and maxima over long axes, after an element-wise program.
//!
//! [outer, len, inner] → [outer, inner]. `len` is cut over blocks; each writes its part to scratch memory, and the
//! last block of an output to finish (a counter tells) adds the parts in their order. The result is the same
//! every time, whichever block comes last.

use super::Draft;
use super::elementwise::{Elements, reduction, width};
use crate::compile::{Chain, Place, gcd};
use crate::device::cuda::launch::Arg;
use crate::op::ReduceOp;
use std::fmt::Write;

const BLOCK: usize = 1024;
/// Blocks a reduction is cut into: one for each multiprocessor of a large GPU.
const BLOCKS: usize = 132;
/// Threads side by side, so that a block reads whole rows of maps one after another.
const ACROSS: usize = 32;

pub fn reduce(chain: &Chain, op: ReduceOp, [outer, len, inner]: [usize; 3], out: Place) -> Draft {
    let result = chain.result.expect("a closing reduction has summands");
    let kind = reduction(op);
    let run = if inner == 1 { len } else { inner };
    // Neighbours must lie in one row of the chain, and in one run of the reduction.
    let width = width(
        chain,
        None,
        gcd(run, if chain.flat { run } else { chain.cols }),
    );
    let columns = if inner == 1 { 1 } else { inner / width };
    // Threads side by side over the columns, the others over `len`.
    let across = columns.next_power_of_two().min(ACROSS);
    let down = BLOCK / across;
    let lines = if inner == 1 { len / width } else { len };
    let tiles = columns.div_ceil(across);
    let splits = (BLOCKS / (outer * tiles)).min(lines / (down * 4)).max(1);
    let chunk = lines.div_ceil(splits);
    let splits = lines.div_ceil(chunk);
    let kept = if inner == 1 { 1 } else { width };
    let mut draft = Draft::new(BLOCK as u32);
    draft.grid = [tiles as u32, (outer * splits) as u32];
    let elements = Elements::new(chain, None, width);
    let p = elements.pointers(&mut draft);
    let to = draft.pointer(out);
    let mut s = String::new();
    let _ = write!(
        s,
        "    const u32 tx = threadIdx.x % {across}u, ty = threadIdx.x / {across}u;
    const u32 o = blockIdx.y / {splits}u, part = blockIdx.y % {splits}u, column = blockIdx.x * {across}u + tx;
    const u32 first = part * {chunk}u, last = min(first + {chunk}u, {lines}u);
    float acc[{kept}];
    _Pragma(\"unroll\") for (int j = 0; j < {kept}; j++) acc[j] = {kind}::start();
    if (column < {columns}u) {{
        _Pragma(\"unroll 1\") for (u32 l = first + ty; l < last; l += {down}u) {{\n"
    );
    let index = match inner {
        1 => format!("(size_t)o * {len}u + (size_t)l * {width}u"),
        _ => format!("((size_t)o * {len}u + l) * {inner}u + column * {width}u"),
    };
    let _ = writeln!(s, "            const size_t e = {index};");
    s.push_str(&elements.code(&p, "            "));
    let slot = if inner == 1 { "0" } else { "j" };
    let value = elements.operand(result);
    let _ = write!(
        s,
        "            _Pragma(\"unroll\") for (int j = 0; j < {width}; j++) acc[{slot}] = {kind}::join(acc[{slot}], {value});
        }}
    }}
    __shared__ float parts[{down}][{across} * {kept}];
    _Pragma(\"unroll\") for (int j = 0; j < {kept}; j++) parts[ty][tx * {kept} + j] = acc[j];
    __syncthreads();
    for (u32 half = {down}u / 2u; half > 0u; half /= 2u) {{
        if (ty < half) {{
            _Pragma(\"unroll\") for (int j = 0; j < {kept}; j++)
                parts[ty][tx * {kept} + j] = {kind}::join(parts[ty][tx * {kept} + j], parts[ty + half][tx * {kept} + j]);
        }}
        __syncthreads();
    }}\n"
    );
    let outputs = outer * inner;
    if splits == 1 {
        let _ = write!(
            s,
            "    for (u32 i = threadIdx.x; i < {across}u * {kept}u; i += {BLOCK}u) {{
        u32 at = blockIdx.x * {across}u * {kept}u + i;
        if (at < {inner}u) store1({to} + o * {inner}u + at, parts[0][i]);
    }}\n"
        );
    } else {
        let scratch = draft.argument("float", Arg::Scratch(0));
        let counter = draft.argument("u32", Arg::Counter(0));
        draft.scratch = (splits * outputs * 4).next_multiple_of(256);
        draft.counters = (outer * tiles * 4).next_multiple_of(256);
        // The last block sums: threads side by side over outputs, the rest over the parts.
        let wide = across * kept;
        let deep = BLOCK / wide.min(BLOCK);
        let _ = write!(
            s,
            "    for (u32 i = threadIdx.x; i < {wide}u; i += {BLOCK}u) {{
        u32 at = blockIdx.x * {wide}u + i;
        if (at < {inner}u) {scratch}[(size_t)part * {outputs}u + o * {inner}u + at] = parts[0][i];
    }}
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd({counter} + o * {tiles}u + blockIdx.x, 1u) == {splits}u - 1u;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    __shared__ float sums[{deep}][{wide}];
    const u32 i = threadIdx.x % {wide}u, k = threadIdx.x / {wide}u, at = blockIdx.x * {wide}u + i;
    float total = {kind}::start();
    if (at < {inner}u && k < {deep}u)
        _Pragma(\"unroll 8\") for (u32 q = k; q < {splits}u; q += {deep}u)
            total = {kind}::join(total, __ldcg({scratch} + (size_t)q * {outputs}u + o * {inner}u + at));
    if (k < {deep}u) sums[k][i] = total;
    __syncthreads();
    for (u32 half = {deep}u / 2u; half > 0u; half /= 2u) {{
        if (k < half) sums[k][i] = {kind}::join(sums[k][i], sums[k + half][i]);
        __syncthreads();
    }}
    if (k == 0 && at < {inner}u) store1({to} + o * {inner}u + at, sums[0][i]);
    if (threadIdx.x == 0) {counter}[o * {tiles}u + blockIdx.x] = 0u;\n"
        );
    }
    draft.body = s;
    draft
}
