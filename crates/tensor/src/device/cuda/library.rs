//! NVIDIA's libraries, looked for when they are first needed and never before.
//!
//! People get them in three ways: with the system, with a CUDA toolkit, or as Python packages that no dynamic
//! loader knows of. A library found in a folder is opened here by its full path and stays open, so that whoever
//! asks for it later by its bare name (`libcudnn.so.9`) is given the same one; that is how the bindings ask,
//! and how cuDNN asks for NVRTC and cuBLASLt. The bindings end the program when a library is missing,
//! so nothing of theirs is called before this file has seen it.

mod folders;

use crate::loader::Handle;
use cudarc::{cublaslt, cudnn, driver, nvrtc};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What was found. Nothing here means that CUDA cannot be used.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The driver's own library, `libcuda`.
    pub cuda: Option<Library>,
    /// Compiles our kernels.
    pub nvrtc: Option<Library>,
    /// Convolutions.
    pub cudnn: Option<Library>,
    /// Matrix products.
    pub cublaslt: Option<Library>,
    /// Files that looked right and could not be used, each with the reason.
    pub refused: Vec<String>,
}

/// A library that is needed, found or not.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub found: Option<&'a Library>,
    /// What brings it.
    pub packages: &'static str,
}

impl Found {
    /// All that is needed, in the order in which it is used.
    pub fn parts(&self) -> [Part<'_>; 4] {
        KINDS.map(|kind| Part {
            found: self.of(kind),
            packages: kind.packages(),
        })
    }

    fn of(&self, kind: Kind) -> Option<&Library> {
        match kind {
            Kind::Cuda => self.cuda.as_ref(),
            Kind::Nvrtc => self.nvrtc.as_ref(),
            Kind::CublasLt => self.cublaslt.as_ref(),
            Kind::Cudnn => self.cudnn.as_ref(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    pub path: PathBuf,
    pub version: Version,
}

/// For the driver, the newest CUDA it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: Option<u32>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// The oldest CUDA a driver must run: the bindings ask for functions that came with it.
const LEAST_DRIVER: (u32, u32) = (12, 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cuda,
    Nvrtc,
    CublasLt,
    Cudnn,
}

const KINDS: [Kind; 4] = [Kind::Cuda, Kind::Nvrtc, Kind::CublasLt, Kind::Cudnn];

impl Kind {
    /// The name between `lib` and `.so`.
    fn name(self) -> &'static str {
        match self {
            Kind::Cuda => "cuda",
            Kind::Nvrtc => "nvrtc",
            Kind::CublasLt => "cublasLt",
            Kind::Cudnn => "cudnn",
        }
    }

    /// What people call it.
    fn title(self) -> &'static str {
        match self {
            Kind::Cuda => "the NVIDIA driver",
            Kind::Nvrtc => "NVRTC",
            Kind::CublasLt => "cuBLASLt",
            Kind::Cudnn => "cuDNN 9",
        }
    }

    /// What brings it.
    fn packages(self) -> &'static str {
        match self {
            Kind::Cuda => "Debian and Ubuntu: nvidia-driver",
            Kind::Nvrtc => "pip: nvidia-cuda-nvrtc; Debian and Ubuntu: cuda-nvrtc-13-0",
            Kind::CublasLt => "pip: nvidia-cublas; Debian and Ubuntu: libcublas-13-0",
            Kind::Cudnn => "pip: nvidia-cudnn-cu13; Debian and Ubuntu: libcudnn9-cuda-13",
        }
    }

    /// Starts of the names of files beside it that it opens by itself, and that must be open before it.
    fn before(self) -> &'static [&'static str] {
        match self {
            Kind::Nvrtc => &["libnvrtc-builtins.so"],
            _ => &[],
        }
    }

    /// The same, for files it can find but whose absence would end the program instead of giving an error.
    fn after(self) -> &'static [&'static str] {
        match self {
            Kind::Cudnn => &["libcudnn_graph.so"],
            _ => &[],
        }
    }

    /// Whether the bindings will find it.
    fn present(self) -> bool {
        // SAFETY: these open libraries of NVIDIA's that are open already, or that the loader trusts by itself.
        unsafe {
            match self {
                Kind::Cuda => driver::sys::is_culib_present(),
                Kind::Nvrtc => nvrtc::sys::is_culib_present(),
                Kind::CublasLt => cublaslt::sys::is_culib_present(),
                Kind::Cudnn => cudnn::sys::is_culib_present(),
            }
        }
    }

    /// The version the bindings are told; `None` where the library is an empty shell, as the toolkit's stubs are.
    fn version(self) -> Option<Version> {
        // SAFETY: only called when `present`, with places for the numbers that live through the call.
        unsafe {
            match self {
                Kind::Cuda => {
                    let mut number = 0;
                    let told = driver::sys::cuDriverGetVersion(&mut number).result();
                    told.ok().map(|()| Version {
                        major: number as u32 / 1000,
                        minor: number as u32 % 1000 / 10,
                        patch: None,
                    })
                }
                Kind::Nvrtc => {
                    let (mut major, mut minor) = (0, 0);
                    let told = nvrtc::sys::nvrtcVersion(&mut major, &mut minor).result();
                    told.ok().map(|()| Version {
                        major: major as u32,
                        minor: minor as u32,
                        patch: None,
                    })
                }
                Kind::CublasLt => Some(decimal(cublaslt::sys::cublasLtGetVersion())),
                Kind::Cudnn => Some(decimal(cudnn::sys::cudnnGetVersion())),
            }
        }
    }
}

/// 91300 is 9.13.0.
fn decimal(number: usize) -> Version {
    let number = number as u32;
    Version {
        major: number / 10_000,
        minor: number / 100 % 100,
        patch: Some(number % 100),
    }
}

/// A library, or why files of its name could not be used.
type Search = Result<Library, Vec<String>>;

/// All four, looked for once.
pub fn find() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut refused = folders::named_in_vain();
        let [cuda, nvrtc, cublaslt, cudnn] = KINDS.map(|kind| match search(kind) {
            Ok(library) => Some(library.clone()),
            Err(reasons) => {
                refused.extend(reasons.iter().cloned());
                None
            }
        });
        Found {
            cuda,
            nvrtc,
            cudnn,
            cublaslt,
            refused,
        }
    })
}

/// The driver's library alone. The error says what brings it.
pub fn cuda() -> crate::Result<&'static Library> {
    let library = need(Kind::Cuda)?;
    match too_old(library) {
        Some(sentence) => Err(crate::Error::new(sentence)),
        None => Ok(library),
    }
}

/// NVRTC alone: compiling needs nothing else, not even a GPU.
pub fn nvrtc() -> crate::Result<&'static Library> {
    need(Kind::Nvrtc)
}

/// cuDNN alone, with what it opens itself.
pub fn cudnn() -> crate::Result<&'static Library> {
    need(Kind::Cudnn)
}

/// cuBLASLt alone.
pub fn cublaslt() -> crate::Result<&'static Library> {
    need(Kind::CublasLt)
}

/// NCCL, which only training on several GPUs needs.
pub fn nccl() -> crate::Result<&'static Handle> {
    static FOUND: OnceLock<Option<Handle>> = OnceLock::new();
    let names = ["libnccl.so.2", "libnccl.so"];
    let look = || {
        let by_name = names.iter().map(PathBuf::from);
        let folders = folders::of_this_machine();
        let files = folders
            .iter()
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .filter(|file| file.is_file());
        by_name
            .chain(files)
            .find_map(|file| Handle::open(&file).ok())
    };
    FOUND.get_or_init(look).as_ref().ok_or_else(|| {
        crate::Error::new(
            "training on several GPUs needs NCCL (pip: nvidia-nccl-cu13; Debian and Ubuntu: libnccl2), which was not found; \
             install it, or name the folder that holds it in RRVQ_CUDA_LIBS",
        )
    })
}

fn need(kind: Kind) -> crate::Result<&'static Library> {
    let library = search(kind).as_ref();
    library.map_err(|_| crate::Error::new(absent_sentence(&[kind])))
}

/// What is missing or does not fit, as one sentence with what to do; `None` when CUDA can be used.
pub fn missing_sentence(found: &Found) -> Option<String> {
    let absent: Vec<Kind> = KINDS
        .into_iter()
        .filter(|kind| found.of(*kind).is_none())
        .collect();
    if !absent.is_empty() {
        return Some(absent_sentence(&absent));
    }
    let (driver, nvrtc) = (found.cuda.as_ref()?, found.nvrtc.as_ref()?);
    let newer = driver.version.major < nvrtc.version.major;
    too_old(driver).or_else(|| {
        newer.then(|| format!(
            "the NVIDIA driver runs CUDA {} and NVRTC ({}) is {}; update the driver, or install NVRTC, cuBLASLt \
             and cuDNN for CUDA {}",
            driver.version,
            nvrtc.path.display(),
            nvrtc.version,
            driver.version.major
        ))
    })
}

fn too_old(driver: &Library) -> Option<String> {
    let (major, minor) = LEAST_DRIVER;
    let version = driver.version;
    ((version.major, version.minor) < LEAST_DRIVER).then(|| {
        format!(
            "the NVIDIA driver runs CUDA {version} at most and {major}.{minor} is needed; update the driver"
        )
    })
}

fn absent_sentence(absent: &[Kind]) -> String {
    let named = |kind: &Kind| format!("{} ({})", kind.title(), kind.packages());
    let names: Vec<String> = absent.iter().map(named).collect();
    let missing = match absent.len() {
        1 => "which was not found; install it",
        _ => "which were not found; install them",
    };
    // A driver is installed, never copied.
    let folders = match absent {
        [Kind::Cuda] => "",
        _ => ", or name the folders that hold the libraries in RRVQ_CUDA_LIBS (one:another)",
    };
    format!("CUDA needs {}, {missing}{folders}", listed(&names))
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn search(kind: Kind) -> &'static Search {
    static SEARCHES: [OnceLock<Search>; 4] = [const { OnceLock::new() }; 4];
    if kind == Kind::Cudnn {
        // cuDNN asks for both by their bare names.
        search(Kind::Nvrtc);
        search(Kind::CublasLt);
    }
    SEARCHES[kind as usize].get_or_init(|| look(kind, &folders::of_this_machine()))
}

fn look(kind: Kind, folders: &[PathBuf]) -> Search {
    let names = cudarc::get_lib_name_candidates(kind.name());
    let mut refused = Vec::new();
    // What the loader knows comes first, since the bindings would be given it whatever is opened here.
    let by_name = names
        .iter()
        .find_map(|name| Handle::open(Path::new(name)).ok());
    let handle = by_name.or_else(|| {
        let files = folders
            .iter()
            .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        files.filter(|file| file.is_file()).find_map(|file| {
            // If one of these fails, so does what follows, with a reason of its own.
            let _ = open_neighbours(kind.before(), &file);
            let opened = Handle::open(&file);
            opened.map_err(|reason| refused.push(reason)).ok()
        })
    });
    let Some(handle) = handle else {
        return Err(refused);
    };
    let path = handle.path().unwrap_or_else(|| kind.name().into());
    let complete = open_neighbours(kind.after(), &path);
    let usable = complete.and_then(|()| {
        let version = kind.present().then(|| kind.version()).flatten();
        version.ok_or_else(|| format!("{} is not a library that works", path.display()))
    });
    match usable {
        Ok(version) => Ok(Library { path, version }),
        Err(reason) => {
            refused.push(reason);
            Err(refused)
        }
    }
}

/// Opens the files beside `file` whose names go on with a version after one of `starts`.
fn open_neighbours(starts: &[&str], file: &Path) -> Result<(), String> {
    let Some(folder) = file.parent() else {
        return Ok(());
    };
    for neighbour in folders::named(folder, starts) {
        Handle::open(&neighbour)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(major: u32) -> Option<Library> {
        Some(Library {
            path: "libx.so".into(),
            version: Version {
                major,
                minor: 1,
                patch: None,
            },
        })
    }

    #[test]
    fn numbers_become_versions() {
        assert_eq!(decimal(91300).to_string(), "9.13.0");
        assert_eq!(decimal(130_002).to_string(), "13.0.2");
        let version = Version {
            major: 13,
            minor: 1,
            patch: None,
        };
        assert_eq!(version.to_string(), "13.1");
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let nothing = missing_sentence(&Found::default()).unwrap();
        for word in [
            "nvidia-driver",
            "nvidia-cuda-nvrtc",
            "nvidia-cublas",
            "nvidia-cudnn-cu13",
            "libcudnn9-cuda-13",
            "RRVQ_CUDA_LIBS",
        ] {
            assert!(nothing.contains(word), "{word} is not in {nothing}");
        }
        let mut found = Found {
            cuda: library(13),
            nvrtc: library(13),
            cudnn: None,
            cublaslt: library(13),
            refused: Vec::new(),
        };
        let sentence = missing_sentence(&found).unwrap();
        assert!(sentence.contains("cuDNN") && !sentence.contains("NVRTC"));
        found.cudnn = library(9);
        assert_eq!(missing_sentence(&found), None);
        found.cuda = library(12);
        let old = missing_sentence(&found).unwrap();
        assert!(old.contains("12.1") && old.contains("12.8 is needed"));
        found.cuda.as_mut().unwrap().version.minor = 9;
        let other = missing_sentence(&found).unwrap();
        assert!(other.contains("12.9") && other.contains("NVRTC (libx.so) is 13.1"));
        found.cuda = None;
        let driver = missing_sentence(&found).unwrap();
        assert!(driver.contains("nvidia-driver") && !driver.contains("RRVQ_CUDA_LIBS"));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_reason() {
        let folder = std::env::temp_dir().join(format!("rrvq-libraries-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcublasLt.so.9"), "not a library").unwrap();
        let looked = look(Kind::CublasLt, std::slice::from_ref(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        match looked {
            Ok(library) => println!("skipped: the loader has {}", library.path.display()),
            Err(reasons) => assert!(reasons[0].contains("libcublasLt.so.9"), "{reasons:?}"),
        }
    }

    #[test]
    fn what_is_found_says_where_and_which() {
        let found = find();
        for library in [&found.nvrtc, &found.cudnn, &found.cublaslt] {
            match library {
                Some(library) => {
                    assert!(library.path.is_file(), "{library:?}");
                    assert!(library.version.major >= 9, "{library:?}");
                }
                None => println!("skipped: not on this machine"),
            }
        }
    }
}
