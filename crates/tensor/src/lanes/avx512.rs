//! Sixteen lanes as one 512-bit register: AVX-512 F, DQ, BW and VL.
//!
//! The types stay inside [`dispatch!`](super::dispatch), which hands them to kernels only on machines
//! that have the instructions; that is what makes the `unsafe` blocks below sound.

use super::avx2::{max8, sum8};
use super::{Lanes, WIDTH, Words};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub struct F(__m512);

#[derive(Clone, Copy)]
pub struct W(__m512i);

#[inline(always)]
fn prefix(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

macro_rules! one {
    ($wrap:ident, $f:expr $(, $a:expr)*) => {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { $wrap($f($($a.0),*)) }
    };
}

impl Lanes for F {
    type Words = W;
    type Mask = __mmask16;
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { F(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load_ptr(p: *const f32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe { F(_mm512_loadu_ps(p)) }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32) {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn load_prefix_ptr(p: *const f32, n: usize) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe { F(_mm512_maskz_loadu_ps(prefix(n), p)) }
    }
    #[inline(always)]
    unsafe fn store_prefix_ptr(self, p: *mut f32, n: usize) {
        // SAFETY: the instructions are there, as `dispatch!` saw, and so is the memory, as the caller says.
        unsafe { _mm512_mask_storeu_ps(p, prefix(n), self.0) }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a hint that may point anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        one!(F, _mm512_add_ps, self, o)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        one!(F, _mm512_sub_ps, self, o)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        one!(F, _mm512_mul_ps, self, o)
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        one!(F, _mm512_div_ps, self, o)
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        one!(F, _mm512_fmadd_ps, self, a, b)
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        one!(F, _mm512_min_ps, self, o)
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        one!(F, _mm512_max_ps, self, o)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        one!(F, _mm512_andnot_ps, Self::splat(-0.0), self)
    }
    #[inline(always)]
    fn neg(self) -> Self {
        one!(F, _mm512_xor_ps, Self::splat(-0.0), self)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        one!(F, _mm512_roundscale_ps::<0x09>, self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        one!(F, _mm512_sqrt_ps, self)
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        one!(F, _mm512_scalef_ps, self, n)
    }
    #[inline(always)]
    fn lt(self, o: Self) -> __mmask16 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, o.0) }
    }
    #[inline(always)]
    fn eq(self, o: Self) -> __mmask16 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, o.0) }
    }
    #[inline(always)]
    fn is_nan(self) -> __mmask16 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0) }
    }
    #[inline(always)]
    fn select(m: __mmask16, yes: Self, no: Self) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { F(_mm512_mask_blend_ps(m, no.0, yes.0)) }
    }
    #[inline(always)]
    fn or(a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn bits(self) -> W {
        one!(W, _mm512_castps_si512, self)
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe {
            let high = _mm512_extractf32x8_ps::<1>(self.0);
            sum8(_mm256_add_ps(_mm512_castps512_ps256(self.0), high))
        }
    }
    #[inline(always)]
    fn max_lane(self) -> f32 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe {
            let high = _mm512_extractf32x8_ps::<1>(self.0);
            max8(_mm256_max_ps(_mm512_castps512_ps256(self.0), high))
        }
    }
}

/// Each odd lane into the even lane before it.
#[inline(always)]
unsafe fn odd_to_even(v: __m512i) -> __m512i {
    // SAFETY: the instructions are there, as `dispatch!` saw.
    unsafe { _mm512_shuffle_epi32::<_MM_PERM_DDBB>(v) }
}

impl Words for W {
    type Floats = F;
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(x: u32) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { W(_mm512_set1_epi32(x as i32)) }
    }
    #[inline(always)]
    fn from_array(a: [u32; WIDTH]) -> Self {
        // SAFETY: the array is one register long.
        unsafe { W(_mm512_loadu_si512(a.as_ptr().cast())) }
    }
    #[inline(always)]
    fn to_array(self) -> [u32; WIDTH] {
        let mut a = [0; WIDTH];
        // SAFETY: the array is one register long.
        unsafe { _mm512_storeu_si512(a.as_mut_ptr().cast(), self.0) };
        a
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        one!(W, _mm512_add_epi32, self, o)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        one!(W, _mm512_sub_epi32, self, o)
    }
    #[inline(always)]
    fn and(self, o: Self) -> Self {
        one!(W, _mm512_and_si512, self, o)
    }
    #[inline(always)]
    fn xor(self, o: Self) -> Self {
        one!(W, _mm512_xor_si512, self, o)
    }
    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        one!(W, _mm512_slli_epi32::<N>, self)
    }
    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        one!(W, _mm512_srli_epi32::<N>, self)
    }
    #[inline(always)]
    fn sar<const N: u32>(self) -> Self {
        one!(W, _mm512_srai_epi32::<N>, self)
    }
    #[inline(always)]
    fn mul_wide(self, o: Self) -> (Self, Self) {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe {
            // Shuffles where shifts would do: they run on a port the multiplications leave free.
            let (a, b) = (self.0, o.0);
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(odd_to_even(a), odd_to_even(b));
            let high = _mm512_mask_blend_epi32(0xaaaa, odd_to_even(even), odd);
            let low = _mm512_mask_shuffle_epi32::<_MM_PERM_CCAA>(even, 0xaaaa, odd);
            (W(high), W(low))
        }
    }
    #[inline(always)]
    fn mul_lo(self, o: Self) -> Self {
        one!(W, _mm512_mullo_epi32, self, o)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> __mmask16 {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { _mm512_cmpeq_epi32_mask(self.0, o.0) }
    }
    #[inline(always)]
    fn select(m: __mmask16, yes: Self, no: Self) -> Self {
        // SAFETY: the instructions are there, as `dispatch!` saw.
        unsafe { W(_mm512_mask_blend_epi32(m, no.0, yes.0)) }
    }
    #[inline(always)]
    fn as_floats(self) -> F {
        one!(F, _mm512_castsi512_ps, self)
    }
    #[inline(always)]
    fn to_floats(self) -> F {
        one!(F, _mm512_cvtepi32_ps, self)
    }
}
