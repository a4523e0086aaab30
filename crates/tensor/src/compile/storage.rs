//! Which tensors a plan keeps in bf16.
//!
//! Whatever a convolution reads must be; maps between convolutions are as well, since they are most of what
//! moves, and so are weight gradients on their way to the normalisation. Embeddings, likelihoods, sums and everything of the parameters' size stays f32.

use super::layout::Live;
use crate::graph::{DType, NodeId};
use crate::op::Op;
use std::collections::HashMap;

/// The types of what is not f32. Maps are converted only where their channels are a multiple of `channels`.
pub(crate) fn bf16(
    live: &Live<'_>,
    outputs: &[(String, NodeId)],
    channels: usize,
) -> HashMap<NodeId, DType> {
    let mut convolved = vec![false; live.count()];
    let mut wanted_exact = vec![false; live.count()];
    for id in live.ids().filter(|&id| !live.is_view(id)) {
        let node = live.node(id);
        let marks = match node.op {
            Op::Conv { .. } | Op::ConvGradInput { .. } | Op::ConvGradWeight { .. } => {
                &mut convolved
            }
            // Channels are padded and joined for convolutions alone.
            Op::Pad { axis: 3, .. } | Op::Concat { axis: 3 } => &mut convolved,
            Op::Responsibility(_) | Op::ResponsibilityGrad(_) => &mut wanted_exact,
            Op::Pack { .. } | Op::Matmul { .. } | Op::ArgMax | Op::AllSum { .. } => {
                &mut wanted_exact
            }
            Op::Gather | Op::ScatterAdd { .. } | Op::Assign { .. } => &mut wanted_exact,
            _ => continue,
        };
        for &input in &node.inputs {
            marks[live.resolve(input).0.index()] = true;
        }
    }
    for (_, id) in outputs {
        wanted_exact[live.resolve(*id).0.index()] = true;
    }
    let is_map = |id: NodeId| {
        let node = live.node(id);
        let full = node.shape.last().unwrap_or(&1).is_multiple_of(channels);
        let moves = matches!(
            node.op,
            Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Conv { .. }
                | Op::ConvGradInput { .. }
                | Op::Upsample { .. }
                | Op::SumPool { .. }
                | Op::EdgePad { .. }
                | Op::EdgeFold { .. }
                | Op::Concat { .. }
                | Op::Slice { .. }
                | Op::Pad { .. }
                | Op::Broadcast { .. }
        );
        moves && node.shape.len() == 4 && full
    };
    let outside = |id: NodeId| {
        matches!(
            live.node(id).op,
            Op::Input { .. } | Op::Param { .. } | Op::State { .. }
        )
    };
    live.ids()
        .filter(|&id| !live.is_view(id) && !outside(id) && live.node(id).dtype == DType::F32)
        .filter(|&id| {
            let i = id.index();
            // A weight gradient is summed in f32 but stored in bf16: the engines that store f32 are slow.
            let gradient = matches!(live.node(id).op, Op::ConvGradWeight { .. });
            convolved[i] || (!wanted_exact[i] && (gradient || is_map(id)))
        })
        .map(|id| (id, DType::Bf16))
        .collect()
}
