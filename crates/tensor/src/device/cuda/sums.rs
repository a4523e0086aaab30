//! Sums over the processes of a group, on GPUs: NCCL, loaded at run time, inside the step's CUDA graph.
//!
//! NCCL refuses two processes on one GPU. So that they can be tested there, `RRVQ_COLLECTIVE=host` has vectors copied to
//! the host, summed by the group itself and copied back, by nodes of the same graph.

use super::driver::{Gpu, StreamRef};
use super::library;
use crate::graph::DType;
use crate::group::{Group, on_abort};
use crate::{Error, Result};
use cudarc::driver::sys::{self, CUstream};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How this process sums with the others.
pub enum Sums {
    Nccl(Nccl),
    Host(Host),
}

/// Between looks at NCCL's asynchronous errors.
const LOOK: Duration = Duration::from_secs(1);

impl Sums {
    /// Those of a group on a GPU: made once, since every process has to make them at the same time.
    pub fn of(gpu: &Gpu, group: &Group) -> Result<Arc<Sums>> {
        static MADE: Mutex<Option<Arc<Sums>>> = Mutex::new(None);
        let mut made = MADE.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(sums) = &*made {
            return Ok(sums.clone());
        }
        gpu.make_current()?;
        let host = std::env::var_os("RRVQ_COLLECTIVE").is_some_and(|name| name == "host");
        let sums = match host {
            true => Sums::Host(Host {
                group: group.clone(),
                staged: Mutex::new(HashMap::new()),
            }),
            false => Sums::Nccl(Nccl::new(group)?),
        };
        Ok(made.insert(Arc::new(sums)).clone())
    }

    /// Queues the sum of `len` elements at `from` over all processes, which goes to `to`; may be captured.
    ///
    /// # Safety
    /// Both are addresses of so many elements on the stream's GPU, which are there until the stream is done.
    pub unsafe fn queue(
        &self,
        from: u64,
        to: u64,
        len: usize,
        dtype: DType,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let stream = stream.raw();
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Sums::Nccl(nccl) => nccl.queue(from, to, len, dtype, stream),
                Sums::Host(host) => host.queue(from, to, len, dtype, stream),
            }
        }
    }
}

/// NCCL's name for a group: bytes that the first process makes and all others are told.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

type Communicator = *mut c_void;
type Reduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Communicator,
    CUstream,
) -> c_int;

/// The functions of NCCL that are used, with its signatures.
#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init: unsafe extern "C" fn(*mut Communicator, c_int, UniqueId, c_int) -> c_int,
    all_reduce: Reduce,
    async_error: unsafe extern "C" fn(Communicator, *mut c_int) -> c_int,
    abort: unsafe extern "C" fn(Communicator) -> c_int,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
}

const FLOAT: c_int = 7;
const BFLOAT16: c_int = 9;
const SUM: c_int = 0;
const IN_PROGRESS: c_int = 7;

impl Functions {
    fn load() -> Result<(Functions, PathBuf)> {
        let handle = library::nccl()?;
        let path = handle.path().unwrap_or_default();
        let missing = |name: &CStr| {
            let (path, name) = (path.display(), name.to_string_lossy());
            Error::new(format!("{path} has no {name}; install NCCL 2.14 or newer"))
        };
        macro_rules! function {
            ($name:literal) => {
                handle.function($name).ok_or_else(|| missing($name))?
            };
        }
        // SAFETY: NCCL's own signatures.
        let functions = unsafe {
            Functions {
                version: function!(c"ncclGetVersion"),
                unique_id: function!(c"ncclGetUniqueId"),
                init: function!(c"ncclCommInitRank"),
                all_reduce: function!(c"ncclAllReduce"),
                async_error: function!(c"ncclCommGetAsyncError"),
                abort: function!(c"ncclCommAbort"),
                text: function!(c"ncclGetErrorString"),
            }
        };
        Ok((functions, path))
    }

    fn check(&self, code: c_int, what: &str) -> Result<()> {
        match code {
            0 => Ok(()),
            code => Err(Error::new(format!(
                "NCCL cannot {what}: {}; NCCL_DEBUG=INFO makes it say more",
                self.said(code)
            ))),
        }
    }

    fn said(&self, code: c_int) -> String {
        // SAFETY: a text of NCCL's own that is never freed.
        unsafe {
            let text = (self.text)(code);
            match text.is_null() {
                true => format!("error {code}"),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        }
    }
}

/// Where NCCL is and which version, if it is there.
pub fn found() -> Option<(PathBuf, String)> {
    let (functions, path) = Functions::load().ok()?;
    let mut number = 0;
    // SAFETY: a place for the number that lives through the call.
    let code = unsafe { (functions.version)(&mut number) };
    // 22,304 is 2.23.4; before 2.9 it was 2,804.
    let version = format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    );
    (code == 0).then_some((path, version))
}

/// A communicator of NCCL's.
pub struct Nccl {
    functions: Functions,
    communicator: Communicator,
}

// SAFETY: NCCL's calls on one communicator come from one thread at a time here, but for the two that NCCL allows beside
// them: asking for errors and aborting.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// A communicator that another thread asks or aborts.
struct Shared(Communicator);
// SAFETY: NCCL allows both from any thread.
unsafe impl Send for Shared {}

impl Nccl {
    fn new(group: &Group) -> Result<Nccl> {
        let (functions, _) = Functions::load()?;
        let mut id = UniqueId([0; 128]);
        let made = match group.rank() {
            // SAFETY: a place for the bytes that lives through the call.
            0 => unsafe { functions.check((functions.unique_id)(&mut id), "name the group") },
            _ => Ok(()),
        };
        let bytes: Vec<u8> = match (&made, group.rank()) {
            (Ok(()), 0) => id.0.to_vec(),
            _ => Vec::new(),
        };
        let told = group.gather(&bytes)?;
        made?;
        for (to, from) in id.0.iter_mut().zip(&told[0]) {
            *to = *from;
        }
        let mut communicator = std::ptr::null_mut();
        let (world, rank) = (group.world() as c_int, group.rank() as c_int);
        // SAFETY: the bytes are those of the first process's; the GPU's context is current.
        let code = unsafe { (functions.init)(&mut communicator, world, id, rank) };
        functions.check(code, "connect the GPUs")?;
        let watched = Shared(communicator);
        let (group, number) = (group.clone(), group.rank());
        std::thread::spawn(move || {
            let watched = watched;
            loop {
                std::thread::sleep(LOOK);
                let mut code = 0;
                // SAFETY: the communicator lives as long as the process.
                let asked = unsafe { (functions.async_error)(watched.0, &mut code) };
                if asked == 0 && code != 0 && code != IN_PROGRESS {
                    group.fail(&format!(
                        "NCCL failed at rank {number}: {}; the last checkpoint is whole, so go on from it with --resume",
                        functions.said(code)
                    ));
                }
            }
        });
        let aborted = Shared(communicator);
        on_abort(move || {
            let aborted = &aborted;
            // SAFETY: the process ends after this, and nobody waits for the communicator any more.
            unsafe { (functions.abort)(aborted.0) };
        });
        Ok(Nccl {
            functions,
            communicator,
        })
    }

    /// # Safety
    /// As [`Sums::queue`].
    unsafe fn queue(
        &self,
        from: u64,
        to: u64,
        len: usize,
        dtype: DType,
        stream: CUstream,
    ) -> Result<()> {
        let kind = match dtype {
            DType::Bf16 => BFLOAT16,
            _ => FLOAT,
        };
        // SAFETY: addresses of `len` elements each in the program's memory; the stream is of the same GPU.
        let code = unsafe {
            (self.functions.all_reduce)(
                from as *const c_void,
                to as *mut c_void,
                len,
                kind,
                SUM,
                self.communicator,
                stream,
            )
        };
        self.functions.check(code, "sum over the GPUs")
    }
}

/// Sums on the host, for tests.
pub struct Host {
    group: Group,
    /// Page-locked memory for each vector that is summed, by address and length. Never freed: recorded graphs use it.
    staged: Mutex<HashMap<(u64, usize), Box<Staged>>>,
}

struct Staged {
    group: Group,
    values: *mut f32,
    len: usize,
}

// SAFETY: the memory is this process's alone; a graph's nodes use it one after another.
unsafe impl Send for Staged {}

impl Host {
    /// # Safety
    /// As [`Sums::queue`].
    unsafe fn queue(
        &self,
        from: u64,
        to: u64,
        len: usize,
        dtype: DType,
        stream: CUstream,
    ) -> Result<()> {
        if dtype != DType::F32 {
            return Err(Error::new(
                "RRVQ_COLLECTIVE=host sums f32 alone; set train.reduce to \"f32\"",
            ));
        }
        let mut all = self.staged.lock().unwrap_or_else(|e| e.into_inner());
        let staged = match all.entry((to, len)) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let mut values: *mut c_void = std::ptr::null_mut();
                // SAFETY: a place for the address that lives through the call.
                let made = unsafe { sys::cuMemHostAlloc(&mut values, len * 4, 0) };
                check(made, "lock memory of the host")?;
                place.insert(Box::new(Staged {
                    group: self.group.clone(),
                    values: values.cast(),
                    len,
                }))
            }
        };
        let data: *mut c_void = std::ptr::from_mut::<Staged>(staged).cast();
        let (values, bytes) = (staged.values.cast::<c_void>(), len * 4);
        // SAFETY: addresses of `len` floats each; the staged memory is never freed, and stays where it is in its box.
        unsafe {
            check(
                sys::cuMemcpyDtoHAsync_v2(values, from, bytes, stream),
                "copy a sum to the host",
            )?;
            check(
                sys::cuLaunchHostFunc(stream, Some(sum_staged), data),
                "sum on the host",
            )?;
            check(
                sys::cuMemcpyHtoDAsync_v2(to, values, bytes, stream),
                "copy a sum from the host",
            )
        }
    }
}

fn check(code: sys::CUresult, what: &str) -> Result<()> {
    code.result()
        .map_err(|error| Error::new(format!("CUDA cannot {what}: {error:?}")))
}

/// A node of the graph that runs on a thread of the driver's.
unsafe extern "C" fn sum_staged(data: *mut c_void) {
    // SAFETY: `data` is a `Staged` that lives as long as the process, and the graph's order keeps others from its memory.
    let (staged, values) = unsafe {
        let staged = &*data.cast::<Staged>();
        (
            staged,
            std::slice::from_raw_parts_mut(staged.values, staged.len),
        )
    };
    if let Err(error) = staged.group.sum(&mut [values]) {
        staged.group.fail(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_says_where_it_is_or_how_to_get_it() {
        match found() {
            Some((path, version)) => {
                assert!(path.is_file(), "{}", path.display());
                assert!(version.starts_with("2."), "{version}");
            }
            None => {
                let said = library::nccl().map(|_| ()).unwrap_err().to_string();
                assert!(said.contains("nvidia-nccl"), "{said}");
                println!("skipped: {said}");
            }
        }
    }
}
