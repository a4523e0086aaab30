//! Sixteen lanes as an array: the reference that every other path is held to, and the path of machines
//! without one of their own (the compiler vectorises these loops well on NEON).

use super::{Lanes, WIDTH, Words};

#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct F(pub [f32; WIDTH]);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct W(pub [u32; WIDTH]);

/// All ones or all zeros in a lane.
pub type Mask = [u32; WIDTH];

macro_rules! each {
    ($wrap:expr, $i:ident => $e:expr) => {{
        let mut out = [Default::default(); WIDTH];
        let mut $i = 0;
        while $i < WIDTH {
            out[$i] = $e;
            $i += 1;
        }
        $wrap(out)
    }};
}

#[inline(always)]
fn plain(m: Mask) -> Mask {
    m
}

#[inline(always)]
fn ones(b: bool) -> u32 {
    if b { u32::MAX } else { 0 }
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

macro_rules! tree {
    ($a:expr, $f:expr) => {{
        let mut a = $a;
        let mut half = WIDTH / 2;
        while half > 0 {
            let mut i = 0;
            while i < half {
                a[i] = $f(a[i], a[i + half]);
                i += 1;
            }
            half /= 2;
        }
        a[0]
    }};
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn plus(a: f32, b: f32) -> f32 {
    a + b
}

impl Lanes for F {
    type Words = W;
    type Mask = Mask;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        F([x; WIDTH])
    }
    #[inline(always)]
    unsafe fn load_ptr(p: *const f32) -> Self {
        // SAFETY: the memory is there, as the caller says.
        F(unsafe { p.cast::<[f32; WIDTH]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32) {
        // SAFETY: the memory is there, as the caller says.
        unsafe { p.cast::<[f32; WIDTH]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_prefix_ptr(p: *const f32, n: usize) -> Self {
        let mut a = [0.0; WIDTH];
        // SAFETY: the memory is there, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(p, a.as_mut_ptr(), n) };
        F(a)
    }
    #[inline(always)]
    unsafe fn store_prefix_ptr(self, p: *mut f32, n: usize) {
        // SAFETY: the memory is there, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), p, n) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        each!(F, i => self.0[i] + o.0[i])
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        each!(F, i => self.0[i] - o.0[i])
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        each!(F, i => self.0[i] * o.0[i])
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        each!(F, i => self.0[i] / o.0[i])
    }
    #[cfg(target_arch = "wasm32")]
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        F(super::fused::fma_lanes(&self.0, &a.0, &b.0))
    }
    #[cfg(not(target_arch = "wasm32"))]
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        each!(F, i => self.0[i].mul_add(a.0[i], b.0[i]))
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        each!(F, i => if self.0[i] < o.0[i] { self.0[i] } else { o.0[i] })
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        each!(F, i => larger(self.0[i], o.0[i]))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        each!(F, i => f32::from_bits(self.0[i].to_bits() & 0x7fff_ffff))
    }
    #[inline(always)]
    fn neg(self) -> Self {
        each!(F, i => f32::from_bits(self.0[i].to_bits() ^ 0x8000_0000))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        each!(F, i => self.0[i].floor())
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        each!(F, i => self.0[i].sqrt())
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // In two steps: the first is exact, so only the second rounds.
        each!(F, i => {
            let n = n.0[i] as i32;
            self.0[i] * power_of_two(n >> 1) * power_of_two(n - (n >> 1))
        })
    }
    #[inline(always)]
    fn lt(self, o: Self) -> Mask {
        each!(plain, i => ones(self.0[i] < o.0[i]))
    }
    #[inline(always)]
    fn eq(self, o: Self) -> Mask {
        each!(plain, i => ones(self.0[i] == o.0[i]))
    }
    #[inline(always)]
    fn is_nan(self) -> Mask {
        each!(plain, i => ones(self.0[i].is_nan()))
    }
    #[inline(always)]
    fn select(m: Mask, yes: Self, no: Self) -> Self {
        each!(F, i => if m[i] != 0 { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    fn or(a: Mask, b: Mask) -> Mask {
        each!(plain, i => a[i] | b[i])
    }
    #[inline(always)]
    fn bits(self) -> W {
        each!(W, i => self.0[i].to_bits())
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        tree!(self.0, plus)
    }
    #[inline(always)]
    fn max_lane(self) -> f32 {
        tree!(self.0, larger)
    }
}

impl Words for W {
    type Floats = F;
    type Mask = Mask;

    #[inline(always)]
    fn splat(x: u32) -> Self {
        W([x; WIDTH])
    }
    #[inline(always)]
    fn from_array(a: [u32; WIDTH]) -> Self {
        W(a)
    }
    #[inline(always)]
    fn to_array(self) -> [u32; WIDTH] {
        self.0
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        each!(W, i => self.0[i].wrapping_add(o.0[i]))
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        each!(W, i => self.0[i].wrapping_sub(o.0[i]))
    }
    #[inline(always)]
    fn and(self, o: Self) -> Self {
        each!(W, i => self.0[i] & o.0[i])
    }
    #[inline(always)]
    fn xor(self, o: Self) -> Self {
        each!(W, i => self.0[i] ^ o.0[i])
    }
    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        each!(W, i => self.0[i] << N)
    }
    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        each!(W, i => self.0[i] >> N)
    }
    #[inline(always)]
    fn sar<const N: u32>(self) -> Self {
        each!(W, i => (self.0[i] as i32 >> N) as u32)
    }
    #[inline(always)]
    fn mul_wide(self, o: Self) -> (Self, Self) {
        let high = each!(W, i => ((self.0[i] as u64 * o.0[i] as u64) >> 32) as u32);
        (high, self.mul_lo(o))
    }
    #[inline(always)]
    fn mul_lo(self, o: Self) -> Self {
        each!(W, i => self.0[i].wrapping_mul(o.0[i]))
    }
    #[inline(always)]
    fn eq(self, o: Self) -> Mask {
        each!(plain, i => ones(self.0[i] == o.0[i]))
    }
    #[inline(always)]
    fn select(m: Mask, yes: Self, no: Self) -> Self {
        each!(W, i => if m[i] != 0 { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    fn as_floats(self) -> F {
        each!(F, i => f32::from_bits(self.0[i]))
    }
    #[inline(always)]
    fn to_floats(self) -> F {
        each!(F, i => self.0[i] as i32 as f32)
    }
}
