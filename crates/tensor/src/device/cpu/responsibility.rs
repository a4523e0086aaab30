use super::simd::Isa;
use crate::rng::Noise;
pub struct Responsibility {
    pub rows: usize,
    pub dim: usize,
    pub codes: usize,
    pub relaxed: bool,
    pub tau: f32,
    pub noise_scale: f32,
    pub noise: Noise,
}
#[allow(clippy::too_many_arguments)]
pub fn forward(
    _isa: Isa,
    _r: &Responsibility,
    _e_q: &[f32],
    _e_p: Option<&[f32]>,
    _mu: &[f32],
    _logvar: &[f32],
    _z: &mut [f32],
    _index: &mut [u32],
    _kl: &mut [f32],
) {
}
#[allow(clippy::too_many_arguments)]
pub fn backward(
    _isa: Isa,
    _r: &Responsibility,
    _e_q: &[f32],
    _e_p: Option<&[f32]>,
    _mu: &[f32],
    _logvar: &[f32],
    _dz: &[f32],
    _dkl: &[f32],
    _de_q: &mut [f32],
    _de_p: Option<&mut [f32]>,
    _dmu: &mut [f32],
    _dlogvar: &mut [f32],
) {
}
