//! Sixteen lanes on every machine.
//!
//! A kernel is written once, generic over [`Lanes`], a logical vector of 16 `f32`. What carries the
//! vector (one 512-bit register, two of 256 bits, an array the compiler vectorises) changes speed and
//! never bits: every operation here is exact or correctly rounded, and the one operation that mixes
//! lanes by rounding, [`Lanes::sum`], has one fixed tree.
//!
//! A kernel enters a vector type through [`dispatch!`], which declares the function that callers see:
//!
//! ```ignore
//! dispatch! {
//!     /// y += a x
//!     pub fn axpy(isa, a: f32, x: &[f32], y: &mut [f32]) => axpy_lanes;
//! }
//!
//! #[inline(always)]
//! fn axpy_lanes<L: Lanes>(a: f32, x: &[f32], y: &mut [f32]) {
//!     for (x, y) in x.chunks(WIDTH).zip(y.chunks_mut(WIDTH)) {
//!         L::splat(a).fma(L::load_prefix(x), L::load_prefix(y)).store_prefix(y);
//!     }
//! }
//!
//! axpy(simd::isa(), 2.0, &x, &mut y);
//! ```
//!
//! Everything generic over `Lanes` must be `#[inline(always)]` and free of closures that touch lanes:
//! a closure or a plain function does not take over the instruction set of its caller, and each
//! operation in it would become a call.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(any(target_arch = "wasm32", test))]
mod fused;
pub mod portable;

/// Lanes of a vector.
pub const WIDTH: usize = 16;

/// Sixteen `f32`. Comparisons are false where an operand is NaN.
pub trait Lanes: Copy {
    /// Sixteen `u32` in the same kind of register.
    type Words: Words<Floats = Self, Mask = Self::Mask>;
    type Mask: Copy;
    /// Whether 32 registers hold one vector each; decides the tile sizes of matrix products.
    const WIDE: bool;

    fn splat(x: f32) -> Self;
    /// # Safety
    /// `p` must be valid for reads of 16 floats.
    unsafe fn load_ptr(p: *const f32) -> Self;
    /// # Safety
    /// `p` must be valid for writes of 16 floats.
    unsafe fn store_ptr(self, p: *mut f32);
    /// The first `n` lanes from memory (n ≤ 16), zero in the others.
    /// # Safety
    /// `p` must be valid for reads of `n` floats.
    unsafe fn load_prefix_ptr(p: *const f32, n: usize) -> Self;
    /// # Safety
    /// `p` must be valid for writes of `n` floats, n ≤ 16.
    unsafe fn store_prefix_ptr(self, p: *mut f32, n: usize);

    /// Asks for the cache line at `p`, which need not be a valid address.
    #[inline(always)]
    fn prefetch(_p: *const f32) {}

    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    /// self·a + b, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    /// `if self < o { self } else { o }`: the second operand where one is NaN.
    fn min(self, o: Self) -> Self;
    /// `if self > o { self } else { o }`: the second operand where one is NaN.
    fn max(self, o: Self) -> Self;
    fn abs(self) -> Self;
    fn neg(self) -> Self;
    fn floor(self) -> Self;
    fn sqrt(self) -> Self;
    /// self·2^n for integral n in [-250, 250], rounded once.
    fn scale(self, n: Self) -> Self;

    fn lt(self, o: Self) -> Self::Mask;
    fn eq(self, o: Self) -> Self::Mask;
    fn is_nan(self) -> Self::Mask;
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    fn or(a: Self::Mask, b: Self::Mask) -> Self::Mask;

    /// The bit patterns.
    fn bits(self) -> Self::Words;

    /// Lanes i and i+8, then i+4, i+2, i+1: the same tree on every machine.
    fn sum(self) -> f32;
    /// The same tree with `max`.
    fn max_lane(self) -> f32;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }
    #[inline(always)]
    fn gt(self, o: Self) -> Self::Mask {
        o.lt(self)
    }
    /// The first 16 floats of a slice that has them.
    #[inline(always)]
    fn load(s: &[f32]) -> Self {
        let s = &s[..WIDTH];
        // SAFETY: the slice has 16 floats.
        unsafe { Self::load_ptr(s.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, s: &mut [f32]) {
        let s = &mut s[..WIDTH];
        // SAFETY: the slice has 16 floats.
        unsafe { self.store_ptr(s.as_mut_ptr()) }
    }
    /// As many floats as the slice has, at most 16; zero in the other lanes.
    #[inline(always)]
    fn load_prefix(s: &[f32]) -> Self {
        // SAFETY: no more floats than the slice has.
        unsafe {
            if s.len() >= WIDTH {
                Self::load_ptr(s.as_ptr())
            } else {
                Self::load_prefix_ptr(s.as_ptr(), s.len())
            }
        }
    }
    #[inline(always)]
    fn store_prefix(self, s: &mut [f32]) {
        // SAFETY: no more floats than the slice has.
        unsafe {
            if s.len() >= WIDTH {
                self.store_ptr(s.as_mut_ptr())
            } else {
                self.store_prefix_ptr(s.as_mut_ptr(), s.len())
            }
        }
    }
    #[inline(always)]
    fn to_array(self) -> [f32; WIDTH] {
        let mut a = [0.0; WIDTH];
        self.store(&mut a);
        a
    }
}

/// Sixteen `u32`; arithmetic wraps.
pub trait Words: Copy {
    type Floats;
    type Mask: Copy;

    fn splat(x: u32) -> Self;
    fn from_array(a: [u32; WIDTH]) -> Self;
    fn to_array(self) -> [u32; WIDTH];
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    fn shl<const N: u32>(self) -> Self;
    fn shr<const N: u32>(self) -> Self;
    /// Shift right, keeping the sign.
    fn sar<const N: u32>(self) -> Self;
    /// (high, low) halves of the 64-bit products.
    fn mul_wide(self, o: Self) -> (Self, Self);
    fn mul_lo(self, o: Self) -> Self;
    fn eq(self, o: Self) -> Self::Mask;
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// The lanes as bit patterns of floats.
    fn as_floats(self) -> Self::Floats;
    /// The lanes as signed integers, converted (rounded to nearest).
    fn to_floats(self) -> Self::Floats;

    /// first, first + 1, …
    #[inline(always)]
    fn count_from(first: u32) -> Self {
        let steps = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        Self::splat(first).add(Self::from_array(steps))
    }
}

/// Declares a function whose first argument is the [`Isa`] to run on; the rest go to a function
/// generic over [`Lanes`]. An instruction set the machine lacks falls back to one it has.
macro_rules! dispatch {
    ($(#[$doc:meta])* $vis:vis unsafe fn $name:ident $($rest:tt)*) => {
        $crate::lanes::dispatch! { @make [unsafe] $(#[$doc])* $vis fn $name $($rest)* }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident $($rest:tt)*) => {
        $crate::lanes::dispatch! { @make [] $(#[$doc])* $vis fn $name $($rest)* }
    };
    (@make [$($unsafe:tt)?] $(#[$doc:meta])* $vis:vis fn $name:ident(isa $(, $arg:ident: $ty:ty)* $(,)?) $(-> $out:ty)? => $kernel:ident;) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, unused_unsafe)]
        $vis $($unsafe)? fn $name(isa: $crate::simd::Isa $(, $arg: $ty)*) $(-> $out)? {
            #[allow(unused_imports)]
            use $crate::{lanes, simd::Isa};
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                $($unsafe)? fn avx2($($arg: $ty),*) $(-> $out)? {
                    // SAFETY: what an unsafe kernel asks for, its caller has promised.
                    unsafe { $kernel::<lanes::avx2::F>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")]
                $($unsafe)? fn avx512($($arg: $ty),*) $(-> $out)? {
                    // SAFETY: what an unsafe kernel asks for, its caller has promised.
                    unsafe { $kernel::<lanes::avx512::F>($($arg),*) }
                }
                match isa.clamp_to_machine() {
                    // SAFETY: clamped to what the machine was found to have.
                    Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: clamped to what the machine was found to have.
                    Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    Isa::Portable => {}
                }
            }
            let _ = isa;
            // SAFETY: what an unsafe kernel asks for, its caller has promised.
            unsafe { $kernel::<lanes::portable::F>($($arg),*) }
        }
    };
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests;
