//! Which vector instructions the CPU's kernels use: the machine's best, or what `RRVQ_SIMD` asks for. They change
//! speed and never bits.

use std::sync::OnceLock;

/// The instruction sets a kernel exists for, poorest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Arrays that the compiler vectorises for the target's baseline, such as NEON on 64-bit ARM.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, DQ, BW and VL.
    Avx512,
}

impl Isa {
    /// The richest instruction set of this machine.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// This one, or the richest below it that the machine has: running the result is always sound.
    pub fn clamp_to_machine(self) -> Isa {
        self.min(Isa::best())
    }

    /// Every instruction set of this machine, for tests that compare them.
    pub fn all() -> Vec<Isa> {
        let known = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        known.into_iter().filter(|i| *i <= Isa::best()).collect()
    }
}

fn detect() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma");
        let wide = has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl");
        if avx2 && wide {
            return Isa::Avx512;
        }
        if avx2 {
            return Isa::Avx2;
        }
    }
    Isa::Portable
}

/// The instruction set to use: the machine's best, unless `RRVQ_SIMD` (`portable`, `avx2`, `avx512`)
/// asks for a poorer one.
pub fn isa() -> Isa {
    static CHOSEN: OnceLock<Isa> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let asked = match std::env::var("RRVQ_SIMD").as_deref() {
            Ok("portable") => Isa::Portable,
            Ok("avx2") => Isa::Avx2,
            _ => Isa::Avx512,
        };
        asked.clamp_to_machine()
    })
}

/// Does plain work with the instructions of [`isa`]: the compiler may use them for what is inlined into it. Rust never
/// joins a product and a sum by itself, so floats come out the same with all of them.
#[inline(always)]
pub fn with_instructions<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2,avx512f,avx512dq,avx512bw,avx512vl")]
        fn avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        match isa() {
            // SAFETY: the chosen set is one that the machine was found to have.
            Isa::Avx512 => return unsafe { avx512(work) },
            // SAFETY: the chosen set is one that the machine was found to have.
            Isa::Avx2 => return unsafe { avx2(work) },
            Isa::Portable => {}
        }
    }
    work()
}
