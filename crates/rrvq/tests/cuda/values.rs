//! Losses, gradients and ten training steps of the golden models.

use crate::common::golden::{CASES, F32, Golden, Limits};
use crate::common::gpu;
use rrvq_tensor::Device;

/// Where maps and kernels are rounded to 8 bits of fraction (2⁻⁹ each time). PyTorch with the same tensors rounded
/// is off by 3e-4 in values, 4e-3 in KLs, 3e-2 in single gradients, 5e-3 in the whole one, 3e-3 in losses and 5e-3
/// in norms; these are a few times that. Norms of the mixture are off by 4.4e-2: what its components are made of comes
/// out of a convolution, and is rounded as well.
const BF16: Limits = Limits {
    values: 2e-3,
    kl: 2e-2,
    gradients: 1e-1,
    whole: 2e-2,
    losses: 1e-2,
    norms: 8e-2,
    moves: None,
};

fn check(device: &Device, limits: Limits) {
    for case in CASES {
        let golden = Golden::read(case);
        golden.check_gradients(device, limits);
        golden.check_training(device, limits);
    }
}

#[test]
fn golden_models_here() {
    check(&Device::Cpu, F32);
}

#[test]
fn golden_models_in_f32() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.f32(), F32);
}

#[test]
fn golden_models_in_bf16() {
    let Some(gpu) = gpu() else { return };
    check(&gpu.bf16(), BF16);
}
