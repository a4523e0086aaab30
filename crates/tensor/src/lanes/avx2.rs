//! Sixteen lanes as two 256-bit registers: AVX2 and FMA.
//!
//! The types stay inside [`dispatch!`](super::dispatch), which hands them to kernels only on machines
//! that have the instructions; that is what makes the `unsafe` blocks below sound.

use super::{Lanes, WIDTH, Words};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub struct F(__m256, __m256);

#[derive(Clone, Copy)]
pub struct W(__m256i, __m256i);

macro_rules! both {
    ($wrap:ident, $f:expr, $a:expr) => {{
        let a = $a;
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { $wrap($f(a.0), $f(a.1)) }
    }};
    ($wrap:ident, $f:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { $wrap($f(a.0, b.0), $f(a.1, b.1)) }
    }};
    ($wrap:ident, $f:expr, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { $wrap($f(a.0, b.0, c.0), $f(a.1, b.1, c.1)) }
    }};
}

/// -1 in the first `n` of 16 lanes.
#[inline(always)]
fn prefix(n: usize) -> (__m256i, __m256i) {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let n = _mm256_set1_epi32(n as i32);
        let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
        (_mm256_cmpgt_epi32(n, low), _mm256_cmpgt_epi32(n, high))
    }
}

/// The lower half of the fixed tree, from eight lanes on.
#[inline(always)]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
}

#[inline(always)]
pub(super) unsafe fn max8(v: __m256) -> f32 {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
    }
}

#[inline(always)]
unsafe fn power_of_two(n: __m256i) -> __m256 {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
    }
}

#[inline(always)]
unsafe fn scale8(x: __m256, n: __m256) -> __m256 {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        // In two steps: the first is exact, so only the second rounds.
        let n = _mm256_cvtps_epi32(n);
        let half = _mm256_srai_epi32::<1>(n);
        let rest = _mm256_sub_epi32(n, half);
        _mm256_mul_ps(_mm256_mul_ps(x, power_of_two(half)), power_of_two(rest))
    }
}

impl Lanes for F {
    type Words = W;
    type Mask = F;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { F(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load_ptr(p: *const f32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe { F(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32) {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe {
            _mm256_storeu_ps(p, self.0);
            _mm256_storeu_ps(p.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn load_prefix_ptr(p: *const f32, n: usize) -> Self {
        let (low, high) = prefix(n);
        // Masked-off lanes are never touched, so the second address may lie past the end.
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe {
            F(
                _mm256_maskload_ps(p, low),
                _mm256_maskload_ps(p.wrapping_add(8), high),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_prefix_ptr(self, p: *mut f32, n: usize) {
        let (low, high) = prefix(n);
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe {
            _mm256_maskstore_ps(p, low, self.0);
            _mm256_maskstore_ps(p.wrapping_add(8), high, self.1);
        }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a hint that may point anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        both!(F, _mm256_add_ps, self, o)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        both!(F, _mm256_sub_ps, self, o)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        both!(F, _mm256_mul_ps, self, o)
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        both!(F, _mm256_div_ps, self, o)
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        both!(F, _mm256_fmadd_ps, self, a, b)
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        both!(F, _mm256_min_ps, self, o)
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        both!(F, _mm256_max_ps, self, o)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        both!(F, _mm256_andnot_ps, Self::splat(-0.0), self)
    }
    #[inline(always)]
    fn neg(self) -> Self {
        both!(F, _mm256_xor_ps, Self::splat(-0.0), self)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        both!(F, _mm256_floor_ps, self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        both!(F, _mm256_sqrt_ps, self)
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        both!(F, scale8, self, n)
    }
    #[inline(always)]
    fn lt(self, o: Self) -> F {
        both!(F, _mm256_cmp_ps::<_CMP_LT_OQ>, self, o)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> F {
        both!(F, _mm256_cmp_ps::<_CMP_EQ_OQ>, self, o)
    }
    #[inline(always)]
    fn is_nan(self) -> F {
        both!(F, _mm256_cmp_ps::<_CMP_UNORD_Q>, self, self)
    }
    #[inline(always)]
    fn select(m: F, yes: Self, no: Self) -> Self {
        both!(F, _mm256_blendv_ps, no, yes, m)
    }
    #[inline(always)]
    fn or(a: F, b: F) -> F {
        both!(F, _mm256_or_ps, a, b)
    }
    #[inline(always)]
    fn bits(self) -> W {
        both!(W, _mm256_castps_si256, self)
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { sum8(_mm256_add_ps(self.0, self.1)) }
    }
    #[inline(always)]
    fn max_lane(self) -> f32 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { max8(_mm256_max_ps(self.0, self.1)) }
    }
}

#[inline(always)]
unsafe fn mul_wide8(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let even = _mm256_mul_epu32(a, b);
        let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
        let high = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd);
        let low = _mm256_blend_epi32::<0xaa>(even, _mm256_slli_epi64::<32>(odd));
        (high, low)
    }
}

impl Words for W {
    type Floats = F;
    type Mask = F;

    #[inline(always)]
    fn splat(x: u32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { W(_mm256_set1_epi32(x as i32), _mm256_set1_epi32(x as i32)) }
    }
    #[inline(always)]
    fn from_array(a: [u32; WIDTH]) -> Self {
        let p = a.as_ptr().cast::<__m256i>();
        // SAFETY: the array is two registers long.
        unsafe { W(_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))) }
    }
    #[inline(always)]
    fn to_array(self) -> [u32; WIDTH] {
        let mut a = [0; WIDTH];
        let p = a.as_mut_ptr().cast::<__m256i>();
        // SAFETY: the array is two registers long.
        unsafe {
            _mm256_storeu_si256(p, self.0);
            _mm256_storeu_si256(p.add(1), self.1);
        }
        a
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        both!(W, _mm256_add_epi32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        both!(W, _mm256_sub_epi32, self, o)
    }
    #[inline(always)]
    fn and(self, o: Self) -> Self {
        both!(W, _mm256_and_si256, self, o)
    }
    #[inline(always)]
    fn xor(self, o: Self) -> Self {
        both!(W, _mm256_xor_si256, self, o)
    }
    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        both!(W, _mm256_sll_epi32, self, count(N))
    }
    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        both!(W, _mm256_srl_epi32, self, count(N))
    }
    #[inline(always)]
    fn sar<const N: u32>(self) -> Self {
        both!(W, _mm256_sra_epi32, self, count(N))
    }
    #[inline(always)]
    fn mul_wide(self, o: Self) -> (Self, Self) {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe {
            let (h0, l0) = mul_wide8(self.0, o.0);
            let (h1, l1) = mul_wide8(self.1, o.1);
            (W(h0, h1), W(l0, l1))
        }
    }
    #[inline(always)]
    fn mul_lo(self, o: Self) -> Self {
        both!(W, _mm256_mullo_epi32, self, o)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> F {
        let m = both!(W, _mm256_cmpeq_epi32, self, o);
        m.as_floats()
    }
    #[inline(always)]
    fn select(m: F, yes: Self, no: Self) -> Self {
        both!(W, _mm256_blendv_epi8, no, yes, m.bits())
    }
    #[inline(always)]
    fn as_floats(self) -> F {
        both!(F, _mm256_castsi256_ps, self)
    }
    #[inline(always)]
    fn to_floats(self) -> F {
        both!(F, _mm256_cvtepi32_ps, self)
    }
}

/// A shift count as the register the shift wants; a constant after inlining.
#[inline(always)]
fn count(n: u32) -> (__m128i, __m128i) {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe {
        let c = _mm_cvtsi32_si128(n as i32);
        (c, c)
    }
}
