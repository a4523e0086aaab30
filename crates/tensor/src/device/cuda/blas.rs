//! Matrix products in f32: cuBLASLt.
//!
//! Tensors here are row by row and cuBLASLt's matrices are column by column, so it is asked for the transposed
//! product of the transposed factors, which lie in memory exactly as ours do. Sums are f32, factors are rounded to TF32 only
//! where the program says so, and the heuristics' first choice is taken: the same one every time, so the same bits.

use super::dnn::measure::Memory;
use super::driver::StreamRef;
use crate::op::MatrixProduct;
use crate::{Error, Result};
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::{result, sys};
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;

/// Scratch memory for products whose sums are split.
const WORKSPACE: usize = 32 << 20;

/// cuBLASLt on the current GPU. Products share scratch memory, so they belong on one stream.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: Memory,
}

// SAFETY: the handle is bound to a context, not to a thread.
unsafe impl Send for Blas {}
// SAFETY: cuBLASLt's handles may be shared by threads; whoever multiplies sees to it that the one workspace is used in turn.
unsafe impl Sync for Blas {}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

fn check<T>(result: std::result::Result<T, CublasError>, action: &str) -> Result<T> {
    result.map_err(|e| Error::new(format!("cuBLASLt could not {action}: {:?}", e.0)))
}

/// The descriptors of one product; those that were made are destroyed.
struct Descriptors {
    product: sys::cublasLtMatmulDesc_t,
    preference: sys::cublasLtMatmulPreference_t,
    /// Of the first factor, the second and the result, as cuBLASLt sees them.
    layouts: Vec<sys::cublasLtMatrixLayout_t>,
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: made by `Descriptors::new`, destroyed once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            let _ = result::destroy_matmul_pref(self.preference);
            for &layout in &self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Descriptors {
    fn new(p: MatrixProduct, tf32: bool) -> std::result::Result<Descriptors, CublasError> {
        let float = sys::cudaDataType_t::CUDA_R_32F;
        let compute = match tf32 {
            true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let product = result::create_matmul_desc(compute, float)?;
        let preference = match result::create_matmul_pref() {
            Ok(preference) => preference,
            Err(e) => {
                // SAFETY: just made, used by nobody.
                let _ = unsafe { result::destroy_matmul_desc(product) };
                return Err(e);
            }
        };
        let mut made = Descriptors {
            product,
            preference,
            layouts: Vec::with_capacity(3),
        };
        // Our b comes first there, our a second: (a b)ᵀ = bᵀ aᵀ.
        let (m, k, n) = (p.m as u64, p.k as u64, p.n as u64);
        let stored_b = if p.tb { (k, n) } else { (n, k) };
        let stored_a = if p.ta { (m, k) } else { (k, m) };
        for (rows, cols) in [stored_b, stored_a, (n, m)] {
            let layout = result::create_matrix_layout(float, rows, cols, rows as i64)?;
            made.layouts.push(layout);
            if p.count > 1 {
                use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
                let between = (rows * cols) as i64;
                set_layout(
                    layout,
                    Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    p.count as i32,
                )?;
                set_layout(
                    layout,
                    Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    between,
                )?;
            }
        }
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        made.transpose(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, p.tb)?;
        made.transpose(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, p.ta)?;
        Ok(made)
    }

    fn transpose(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        yes: bool,
    ) -> std::result::Result<(), CublasError> {
        // CUBLAS_OP_T and CUBLAS_OP_N, which the bindings of cuBLASLt leave to cuBLAS.
        let value = u32::from(yes);
        // SAFETY: the attribute is a 32-bit number, copied by the call.
        unsafe {
            result::set_matmul_desc_attribute(
                self.product,
                attribute,
                std::ptr::from_ref(&value).cast(),
                size_of::<u32>(),
            )
        }
    }

    fn prefer<T>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> std::result::Result<(), CublasError> {
        // SAFETY: callers pass the type the attribute has; the call copies it.
        unsafe {
            result::set_matmul_pref_attribute(
                self.preference,
                attribute,
                std::ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        }
    }
}

fn set_layout<T>(
    layout: sys::cublasLtMatrixLayout_t,
    attribute: sys::cublasLtMatrixLayoutAttribute_t,
    value: T,
) -> std::result::Result<(), CublasError> {
    // SAFETY: callers pass the type the attribute has; the call copies it.
    unsafe {
        result::set_matrix_layout_attribute(
            layout,
            attribute,
            std::ptr::from_ref(&value).cast(),
            size_of::<T>(),
        )
    }
}

impl Blas {
    /// cuBLASLt for the current context.
    pub fn new() -> Result<Blas> {
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(
                "cuBLASLt was not found: the CUDA toolkit's libraries are expected where the system looks for libraries; install them or run on the CPU",
            ));
        }
        let workspace = Memory::new(WORKSPACE, "for matrix products")?;
        Ok(Blas {
            handle: check(result::create_handle(), "start on this GPU")?,
            workspace,
        })
    }

    /// Runs the product on `stream`; may be captured.
    ///
    /// # Safety
    /// The addresses are those of whole factors and of a whole result, and no other product of this
    /// handle may run at the same time: they share scratch memory.
    pub unsafe fn matmul(
        &self,
        product: MatrixProduct,
        tf32: bool,
        a: CUdeviceptr,
        b: CUdeviceptr,
        c: CUdeviceptr,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let action = || {
            let MatrixProduct { count, m, k, n, .. } = product;
            let times = if count > 1 {
                format!(" {count} times")
            } else {
                String::new()
            };
            format!("multiply [{m}, {k}] by [{k}, {n}]{times}")
        };
        let descriptors = check(Descriptors::new(product, tf32), &action())?;
        let d = &descriptors;
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preferences = || {
            d.prefer(
                Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                WORKSPACE as u64,
            )?;
            for (attribute, address) in [
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
            ] {
                d.prefer(attribute, 1u32 << address.trailing_zeros().clamp(2, 8))?;
            }
            Ok(())
        };
        check(preferences(), &action())?;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: descriptors and handle are live; the caller vouches for the addresses.
        let done = unsafe {
            let [first, second, result_layout] = [d.layouts[0], d.layouts[1], d.layouts[2]];
            result::get_matmul_algo_heuristic(
                self.handle,
                d.product,
                first,
                second,
                result_layout,
                result_layout,
                d.preference,
            )
            .and_then(|found| {
                result::matmul(
                    self.handle,
                    d.product,
                    std::ptr::from_ref(&one).cast(),
                    std::ptr::from_ref(&zero).cast(),
                    b as *const c_void,
                    first,
                    a as *const c_void,
                    second,
                    c as *const c_void,
                    result_layout,
                    c as *mut c_void,
                    result_layout,
                    &found.algo,
                    self.workspace.0 as *mut c_void,
                    WORKSPACE,
                    stream.raw().cast(),
                )
            })
        };
        check(done, &action())
    }
}
