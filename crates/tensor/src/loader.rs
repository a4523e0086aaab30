//! The system's dynamic loader, as far as it is needed: open for good, find functions, say where it was.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

/// A library that stays open until the program ends.
pub struct Handle(#[cfg_attr(not(target_os = "linux"), allow(dead_code))] *mut c_void);

impl Handle {
    /// A function of the library.
    ///
    /// # Safety
    /// `F` is the type of a function pointer with this function's own signature.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: an address is as large as a function pointer, which this one is, as the caller says.
        let turn = |address: *mut c_void| unsafe { std::mem::transmute_copy(&address) };
        self.symbol(name).map(turn)
    }
}

// SAFETY: the loader's functions may be called from any thread, and a library stays open.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

#[cfg(target_os = "linux")]
mod system {
    use super::*;
    use std::ffi::{CString, OsStr, c_char, c_int};
    use std::os::unix::ffi::OsStrExt;

    const NOW: c_int = 2;
    const GLOBAL: c_int = 0x100;
    const LINK_MAP: c_int = 2;

    /// The start of the loader's own record of a library.
    #[repr(C)]
    struct LinkMap {
        address: usize,
        name: *const c_char,
    }

    unsafe extern "C" {
        fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
        fn dlerror() -> *const c_char;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlinfo(handle: *mut c_void, request: c_int, answer: *mut c_void) -> c_int;
    }

    impl Handle {
        /// By path, or by bare name for what the loader finds itself. The error is the loader's sentence.
        pub fn open(file: &Path) -> Result<Handle, String> {
            let name = CString::new(file.as_os_str().as_bytes())
                .map_err(|_| format!("{} has a zero byte in its name", file.display()))?;
            // SAFETY: the name ends in a zero byte and lives through the call; the error is copied at once.
            unsafe {
                let handle = dlopen(name.as_ptr(), NOW | GLOBAL);
                if !handle.is_null() {
                    return Ok(Handle(handle));
                }
                let error = dlerror();
                Err(match error.is_null() {
                    true => format!("{} cannot be opened", file.display()),
                    false => CStr::from_ptr(error).to_string_lossy().into_owned(),
                })
            }
        }

        /// The address of a function or variable.
        pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
            // SAFETY: the handle is never closed; the name lives through the call.
            let found = unsafe { dlsym(self.0, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        }

        /// The file it was opened from.
        pub fn path(&self) -> Option<PathBuf> {
            let mut map: *const LinkMap = std::ptr::null();
            // SAFETY: the handle is never closed, so its record and the name in it stay.
            unsafe {
                let failed = dlinfo(self.0, LINK_MAP, (&raw mut map).cast());
                if failed != 0 || map.is_null() || (*map).name.is_null() {
                    return None;
                }
                let name = CStr::from_ptr((*map).name).to_bytes();
                (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Handle {
    /// Never opens anything.
    pub fn open(file: &Path) -> Result<Handle, String> {
        Err(format!(
            "{} is not opened: CUDA and MPI are used on Linux alone",
            file.display()
        ))
    }

    /// Never called: nothing was opened.
    pub fn symbol(&self, _name: &CStr) -> Option<*mut c_void> {
        None
    }

    /// Never called: nothing was opened.
    pub fn path(&self) -> Option<PathBuf> {
        None
    }
}
