//! MPI, loaded when `mpirun` has started this process: OpenMPI or MPICH, as distributions package them.
//!
//! Seven functions of the standard are used, on bytes. The two libraries differ in what a communicator and a type are:
//! addresses of variables in OpenMPI, numbers in MPICH. Both fit a machine word.

use super::launch::Launch;
use crate::error::{Error, Result};
use rrvq_tensor::Collective;
use rrvq_tensor::loader::Handle;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

type Word = usize;
type Gather =
    unsafe extern "C" fn(*const c_void, c_int, Word, *mut c_void, c_int, Word, Word) -> c_int;
type Init = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
type Ask = unsafe extern "C" fn(Word, *mut c_int) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// Names of the library, OpenMPI's first and MPICH's after them.
const OPENMPI: [&str; 2] = ["libmpi.so.40", "libmpi.so"];
const MPICH: [&str; 4] = ["libmpich.so.12", "libmpi.so.12", "libmpich.so", "libmpi.so"];

/// MPICH's numbers of all processes and of bytes.
const MPICH_WORLD: Word = 0x4400_0000;
const MPICH_BYTE: Word = 0x4c00_010d;
/// Threads may call, one at a time.
const SERIALIZED: c_int = 2;

/// MPI, begun.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    world: usize,
    functions: Mutex<Functions>,
}

#[derive(Debug)]
struct Functions {
    all: Word,
    byte: Word,
    gather: Gather,
    exchange: Gather,
    finalize: unsafe extern "C" fn() -> c_int,
}

/// Where MPI is and what it calls itself, if it is there.
pub fn found() -> Option<(PathBuf, String)> {
    let handle = open(&OPENMPI).or_else(|_| open(&MPICH)).ok()?;
    let version = version(&handle)?;
    Some((handle.path().unwrap_or_default(), version))
}

/// What the library calls itself, which may be asked before it is begun.
fn version(handle: &Handle) -> Option<String> {
    let mut text = vec![0u8; 1 << 14];
    let mut len: c_int = 0;
    // SAFETY: the standard's signature; the text is longer than any library's longest (8192 bytes).
    unsafe {
        let get: Version = handle.function(c"MPI_Get_library_version")?;
        get(text.as_mut_ptr().cast(), &mut len);
    }
    text.truncate(len.clamp(0, 1 << 14) as usize);
    let text = String::from_utf8_lossy(&text).into_owned();
    let first = text.split([',', '\n']).next().unwrap_or_default();
    Some(
        first
            .replace('\t', " ")
            .trim_end_matches('\0')
            .trim()
            .to_string(),
    )
}

/// The first library of these names, or the one that RRVQ_MPI_LIB names.
fn open(names: &[&str]) -> std::result::Result<Handle, String> {
    if let Some(named) = std::env::var_os("RRVQ_MPI_LIB") {
        return Handle::open(Path::new(&named));
    }
    let mut said = String::new();
    for name in names {
        match Handle::open(Path::new(name)) {
            Ok(handle) => return Ok(handle),
            Err(reason) => said = reason,
        }
    }
    Err(said)
}

impl Mpi {
    /// Begins MPI, as `mpirun` wants of each process it has started.
    pub(super) fn start(launch: &Launch) -> Result<Mpi> {
        let names = match std::env::var_os("OMPI_COMM_WORLD_SIZE") {
            Some(_) => &OPENMPI[..],
            None => &MPICH[..],
        };
        let handle = open(names).map_err(|reason| {
            Error::new(format!(
                "mpirun has started this process, but MPI's library was not found ({reason}); install it (Debian and Ubuntu: \
                 libopenmpi3 or libmpich12), or name its file in RRVQ_MPI_LIB"
            ))
        })?;
        let missing = |name: &CStr| {
            let path = handle.path().unwrap_or_default();
            let (path, name) = (path.display(), name.to_string_lossy());
            Error::new(format!("{path} has no {name}; it is no MPI library"))
        };
        macro_rules! function {
            ($name:literal) => {
                handle.function($name).ok_or_else(|| missing($name))?
            };
        }
        let (all, byte) = match handle.symbol(c"ompi_mpi_comm_world") {
            Some(all) => {
                let byte = handle.symbol(c"ompi_mpi_byte");
                let byte = byte.ok_or_else(|| missing(c"ompi_mpi_byte"))?;
                (all as Word, byte as Word)
            }
            None => (MPICH_WORLD, MPICH_BYTE),
        };
        // SAFETY: functions of MPI's standard with its signatures; handles are words in both libraries, and a number in the
        // low half of a word is passed as the number.
        let (functions, rank, world) = unsafe {
            let init: Init = function!(c"MPI_Init_thread");
            let ask: [Ask; 2] = [function!(c"MPI_Comm_rank"), function!(c"MPI_Comm_size")];
            let functions = Functions {
                all,
                byte,
                gather: function!(c"MPI_Allgather"),
                exchange: function!(c"MPI_Alltoall"),
                finalize: function!(c"MPI_Finalize"),
            };
            let (none, mut provided) = (std::ptr::null_mut(), 0);
            if init(none, none, SERIALIZED, &mut provided) != 0 {
                return Err(Error::new(
                    "MPI cannot be begun (MPI_Init_thread failed); start the program with mpirun",
                ));
            }
            let [rank, world] = ask.map(|ask| {
                let mut number = 0;
                ask(all, &mut number);
                number as usize
            });
            (functions, rank, world)
        };
        if (rank, world) != (launch.rank, launch.world) {
            return Err(Error::new(format!(
                "mpirun says rank {} of {} and MPI's library rank {rank} of {world}: they are of different kinds; install the \
                 library that belongs to mpirun, or name its file in RRVQ_MPI_LIB",
                launch.rank, launch.world
            )));
        }
        Ok(Mpi {
            rank,
            world,
            functions: Mutex::new(functions),
        })
    }

    /// Ends MPI; `mpirun` takes a process that does not for one that failed.
    pub(super) fn finish(&self) {
        let functions = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: begun in `start`, and ended once: a cluster is used up by ending.
        unsafe { (functions.finalize)() };
    }

    /// One block of `len` bytes from or for each rank.
    fn call(
        &self,
        which: impl Fn(&Functions) -> Gather,
        mine: &[u8],
        len: usize,
    ) -> rrvq_tensor::Result<Vec<u8>> {
        let functions = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        let mut all = vec![0; len * self.world];
        let count = c_int::try_from(len).map_err(|_| {
            rrvq_tensor::Error::new("more than 2 GiB would be sent at once through MPI")
        })?;
        // SAFETY: both buffers have the length that the counts say: `len` for each rank, or `len` in all to be gathered.
        let failed = unsafe {
            which(&functions)(
                mine.as_ptr().cast(),
                count,
                functions.byte,
                all.as_mut_ptr().cast(),
                count,
                functions.byte,
                functions.all,
            )
        };
        match failed {
            0 => Ok(all),
            code => Err(rrvq_tensor::Error::new(format!(
                "MPI failed with code {code}"
            ))),
        }
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn gather(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<Vec<u8>>> {
        let lengths = self.call(|f| f.gather, &(mine.len() as u64).to_le_bytes(), 8)?;
        let length =
            |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize;
        let lengths: Vec<usize> = lengths.chunks_exact(8).map(length).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.world]);
        }
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let all = self.call(|f| f.gather, &padded, longest)?;
        let found = all.chunks_exact(longest).zip(lengths);
        Ok(found.map(|(bytes, len)| bytes[..len].to_vec()).collect())
    }

    fn exchange(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<u8>> {
        self.call(|f| f.exchange, mine, mine.len() / self.world)
    }
}
