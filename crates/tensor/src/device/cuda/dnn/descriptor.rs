//! cuDNN's backend descriptors, owned and checked.
//!
//! Everything of cuDNN's graph interface is a descriptor: made by kind, filled attribute by attribute, finalized,
//! and then linked to or asked. This file is the only one that passes raw memory to those calls; the others
//! write `Descriptor::new(kind)?.ints(name, &[…])?.finalize()?`.

use super::plan::Handle;
use crate::{Error, Result};
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_void};
use std::ptr;

pub use sys::cudnnBackendAttributeName_t as Name;
pub use sys::cudnnBackendAttributeType_t as Type;
pub use sys::cudnnBackendDescriptorType_t as Kind;

/// What cuDNN compiles a graph for: the GPU of a handle, or, as in tests without one, a GPU of given properties.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub handle: Option<&'a Handle>,
    pub properties: Option<&'a Descriptor>,
}

impl<'a> Target<'a> {
    pub fn of(handle: &'a Handle) -> Self {
        Target {
            handle: Some(handle),
            properties: None,
        }
    }

    /// Gives a descriptor the handle and the properties that there are, each under its name.
    pub fn apply(
        self,
        mut to: Descriptor,
        handle: Option<Name>,
        properties: Option<Name>,
    ) -> Result<Descriptor> {
        if let (Some(name), Some(handle)) = (handle, self.handle) {
            to = to.handle(name, handle)?;
        }
        if let (Some(name), Some(properties)) = (properties, self.properties) {
            to = to.link(name, properties)?;
        }
        Ok(to)
    }
}

/// An error when cuDNN did not do what `action` names.
pub fn check(status: sys::cudnnStatus_t, action: &str) -> Result<()> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0 as std::ffi::c_char; 1024];
    // SAFETY: the error string is static; the buffer is ours and zero-terminated even if cuDNN writes nothing.
    let (name, more) = unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len() - 1);
        (
            CStr::from_ptr(sys::cudnnGetErrorString(status)).to_string_lossy(),
            CStr::from_ptr(text.as_ptr()).to_string_lossy(),
        )
    };
    let more = more.trim();
    let why = if more.is_empty() {
        String::new()
    } else {
        format!(" ({more})")
    };
    Err(Error::new(format!("cuDNN could not {action}: {name}{why}")))
}

/// One backend descriptor, destroyed when dropped.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

// SAFETY: cuDNN binds descriptors to no thread, and a finalized one is only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Descriptor {
    pub fn new(kind: Kind) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(
            // SAFETY: `raw` outlives the call.
            unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut raw) },
            "make a descriptor",
        )?;
        Ok(Descriptor(raw))
    }

    pub fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }

    fn set<T>(self, name: Name, ty: Type, values: &[T]) -> Result<Self> {
        // SAFETY: callers pair each Rust type with cuDNN's name for it; cuDNN copies the values.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(
                self.0,
                name,
                ty,
                values.len() as i64,
                values.as_ptr().cast::<c_void>(),
            )
        };
        check(status, &format!("set {name:?}"))?;
        Ok(self)
    }

    pub fn ints(self, name: Name, values: &[i64]) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_INT64, values)
    }

    pub fn float(self, name: Name, value: f32) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_FLOAT, &[value])
    }

    pub fn flag(self, name: Name, value: bool) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_BOOLEAN, &[value])
    }

    /// A value of one of cuDNN's enums.
    pub fn code(self, name: Name, ty: Type, value: u32) -> Result<Self> {
        self.set(name, ty, &[value])
    }

    pub fn text(self, name: Name, bytes: &[u8]) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_CHAR, bytes)
    }

    pub fn handle(self, name: Name, handle: &Handle) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_HANDLE, &[handle.raw])
    }

    pub fn addresses(self, name: Name, values: &[*mut c_void]) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_VOID_PTR, values)
    }

    pub fn link(self, name: Name, to: &Descriptor) -> Result<Self> {
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[to.0])
    }

    pub fn links(self, name: Name, to: &[Descriptor]) -> Result<Self> {
        let raw: Vec<_> = to.iter().map(|d| d.0).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    pub fn finalize(self) -> Result<Self> {
        check(
            // SAFETY: a live descriptor.
            unsafe { sys::cudnnBackendFinalize(self.0) },
            "finalize a descriptor",
        )?;
        Ok(self)
    }

    /// Reads up to `values.len()` elements and says how many there are.
    fn get<T>(&self, name: Name, ty: Type, values: &mut [T]) -> Result<usize> {
        let mut count = 0i64;
        let to = match values.is_empty() {
            true => ptr::null_mut(),
            false => values.as_mut_ptr().cast::<c_void>(),
        };
        // SAFETY: cuDNN writes at most as many elements as it is told there is room for.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, ty, values.len() as i64, &mut count, to)
        };
        check(status, &format!("read {name:?}"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub fn get_int(&self, name: Name) -> Result<i64> {
        let mut value = [0i64];
        self.get(name, Type::CUDNN_TYPE_INT64, &mut value)?;
        Ok(value[0])
    }

    /// The one value of an enum, as a number: a newer library may know values the bindings do not.
    pub fn get_code(&self, name: Name, ty: Type) -> Result<u32> {
        let mut value = [0u32];
        self.get(name, ty, &mut value)?;
        Ok(value[0])
    }

    /// All values of an attribute that has any number of them.
    pub fn get_codes(&self, name: Name, ty: Type) -> Result<Vec<u32>> {
        let mut values = [0u32; 64];
        let count = self.get(name, ty, &mut values)?;
        Ok(values[..count.min(64)].to_vec())
    }

    pub fn get_text(&self, name: Name) -> Result<Vec<u8>> {
        let size = self.get::<u8>(name, Type::CUDNN_TYPE_CHAR, &mut [])?;
        let mut bytes = vec![0u8; size];
        let size = self.get(name, Type::CUDNN_TYPE_CHAR, &mut bytes)?;
        bytes.truncate(size);
        Ok(bytes)
    }

    /// The descriptors an attribute holds, at most `most`.
    pub fn get_links(&self, name: Name, kind: Kind, most: usize) -> Result<Vec<Descriptor>> {
        // cuDNN fills descriptors that exist; the ones left over are dropped.
        let mut made: Vec<_> = (0..most)
            .map(|_| Descriptor::new(kind))
            .collect::<Result<_>>()?;
        let mut raw: Vec<_> = made.iter().map(|d| d.0).collect();
        let count = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)?;
        made.truncate(count);
        Ok(made)
    }

    pub fn count_links(&self, name: Name) -> Result<usize> {
        self.get::<sys::cudnnBackendDescriptor_t>(
            name,
            Type::CUDNN_TYPE_BACKEND_DESCRIPTOR,
            &mut [],
        )
    }
}
