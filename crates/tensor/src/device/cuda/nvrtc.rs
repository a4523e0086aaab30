//! Our kernels' compiler: CUDA C++ in, machine code of one GPU generation out. Needs no GPU.
//!
//! A compilation costs tenths of a second before it has read a line, so sources are compiled side by side, each
//! different one once, and the results are cached in a folder under a hash of everything that went in. The folder
//! is a convenience: what is damaged in it is made anew, and where it cannot be written nothing is cached.

mod cache;

use super::library;
use crate::{Error, Result};
use cache::Cache;
use cudarc::nvrtc::sys::{self, nvrtcProgram};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;

/// The compiler recurses deeply, and the threads of a pool are given little.
const STACK: usize = 64 << 20;

/// One source, as machine code ("cubin") for `arch`, such as "sm_90". The hint names it in errors.
pub fn compile(source: &str, name_hint: &str, arch: &str) -> Result<Vec<u8>> {
    library::nvrtc()?;
    let text = |text: &str| {
        CString::new(text)
            .map_err(|_| Error::new(format!("the kernel source {name_hint} has a zero byte")))
    };
    let (source_text, name) = (text(source)?, text(name_hint)?);
    let options = options(arch)
        .iter()
        .map(|option| text(option))
        .collect::<Result<Vec<_>>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: NVRTC is there; every text ends in a zero byte and outlives the program.
    unsafe {
        let created = sys::nvrtcCreateProgram(
            &mut program.0,
            source_text.as_ptr(),
            name.as_ptr(),
            0,
            std::ptr::null(),
            std::ptr::null(),
        );
        check(created, name_hint)?;
        let compiled = sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr());
        if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
            let reason = match supported(arch) {
                false => unknown_arch(),
                true => explain(&program.log(), source),
            };
            return Err(Error::new(format!(
                "NVRTC cannot compile {name_hint} for {arch}: {reason}"
            )));
        }
        let mut size = 0;
        check(sys::nvrtcGetCUBINSize(program.0, &mut size), name_hint)?;
        let mut cubin = vec![0u8; size];
        check(
            sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()),
            name_hint,
        )?;
        Ok(cubin)
    }
}

/// Every source as machine code, in the order given; cached in `cache_dir` where there is one.
pub fn compile_all<S: AsRef<str> + Sync>(
    sources: &[S],
    arch: &str,
    cache_dir: Option<&Path>,
) -> Result<Vec<Vec<u8>>> {
    let version = library::nvrtc()?.version.to_string();
    let cache = cache_dir.map(Cache::in_folder);
    let mut first_of: HashMap<&str, usize> = HashMap::new();
    let mut different: Vec<&str> = Vec::new();
    let places: Vec<usize> = sources
        .iter()
        .map(|source| {
            *first_of.entry(source.as_ref()).or_insert_with(|| {
                different.push(source.as_ref());
                different.len() - 1
            })
        })
        .collect();
    let options = options(arch).join(" ");
    let keys: Vec<cache::Key> = different
        .iter()
        .map(|source| cache::Key::of(&[source, &options, &version]))
        .collect();
    let mut cubins: Vec<Option<Vec<u8>>> = keys
        .iter()
        .map(|key| cache.as_ref().and_then(|cache| cache.read(key)))
        .collect();
    let wanted: Vec<usize> = (0..cubins.len()).filter(|&i| cubins[i].is_none()).collect();
    let made = side_by_side(wanted.len(), |w| {
        let which = wanted[w];
        let cubin = compile(different[which], &hint(different[which]), arch)?;
        if let Some(cache) = &cache {
            cache.write(&keys[which], &cubin);
        }
        Ok(cubin)
    })?;
    for (which, cubin) in wanted.into_iter().zip(made) {
        cubins[which] = Some(cubin);
    }
    Ok(places
        .into_iter()
        .filter_map(|place| cubins[place].clone())
        .collect())
}

/// `work` on 0, 1, … `count`, on threads with stacks that suffice.
fn side_by_side(
    count: usize,
    work: impl Fn(usize) -> Result<Vec<u8>> + Sync,
) -> Result<Vec<Vec<u8>>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(count.min(rayon::current_num_threads()))
        .stack_size(STACK)
        .build()
        .map_err(|e| Error::new(format!("cannot start threads to compile kernels: {e}")))?;
    pool.install(|| (0..count).into_par_iter().map(&work).collect())
}

/// No fast-math: results stay within the tolerances that tests state.
fn options(arch: &str) -> [String; 3] {
    [
        format!("-arch={arch}"),
        "--std=c++17".into(),
        "-default-device".into(),
    ]
}

/// A name for errors: the first function that can be launched.
fn hint(source: &str) -> String {
    let rest = source.split("__global__").nth(1).unwrap_or("");
    let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words = words.filter(|word| !word.is_empty());
    let mut name = words.next();
    if name == Some("void") {
        name = words.next();
    }
    if name == Some("__launch_bounds__") {
        name = words.find(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        if name == Some("void") {
            name = words.next();
        }
    }
    name.unwrap_or("kernel").into()
}

/// The first errors of a log, and the line of the source that the first one is about.
fn explain(log: &str, source: &str) -> String {
    let errors: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| line.contains("error"))
        .collect();
    let first = match errors.as_slice() {
        [] => log.lines().find(|line| !line.trim().is_empty()),
        some => Some(some[0]),
    };
    let number: Option<usize> = first
        .and_then(|line| line.split_once('(')?.1.split_once(')'))
        .and_then(|(number, _)| number.parse().ok());
    let line = number.and_then(|n| source.lines().nth(n.checked_sub(1)?));
    let mut reason = match errors.len() {
        0 => first.unwrap_or("it does not say why").to_string(),
        count => errors[..count.min(3)].join("; "),
    };
    if let Some(line) = line {
        reason.push_str(&format!("; that line is `{}`", line.trim()));
    }
    reason
}

fn unknown_arch() -> String {
    let (version, path) = library::nvrtc().map_or_else(
        |_| (String::new(), String::new()),
        |nvrtc| (nvrtc.version.to_string(), nvrtc.path.display().to_string()),
    );
    format!("NVRTC {version} ({path}) does not know that GPU; install a version that fits it")
}

/// Whether NVRTC knows the generation, "sm_90" or "sm_90a".
fn supported(arch: &str) -> bool {
    let digits: String = arch.chars().filter(char::is_ascii_digit).collect();
    let mut count = 0;
    // SAFETY: NVRTC is there, and the list is as long as it asks for.
    let known = unsafe {
        if sys::nvrtcGetNumSupportedArchs(&mut count).result().is_err() {
            return true;
        }
        let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
        if sys::nvrtcGetSupportedArchs(list.as_mut_ptr())
            .result()
            .is_err()
        {
            return true;
        }
        list
    };
    known.iter().any(|number| number.to_string() == digits)
}

fn check(result: sys::nvrtcResult, name: &str) -> Result<()> {
    result.result().map_err(|_| {
        // SAFETY: a text of NVRTC's own that is never freed.
        let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
        let text = text.to_string_lossy();
        Error::new(format!("NVRTC cannot compile {name}: {text}"))
    })
}

/// A program of NVRTC's, given back when dropped.
struct Program(nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program exists, and the text is as long as it asks for.
        unsafe {
            if sys::nvrtcGetProgramLogSize(self.0, &mut size)
                .result()
                .is_err()
            {
                return String::new();
            }
            let mut text = vec![0u8; size];
            let told = sys::nvrtcGetProgramLog(self.0, text.as_mut_ptr().cast());
            if told.result().is_err() {
                return String::new();
            }
            String::from_utf8_lossy(&text)
                .trim_end_matches('\0')
                .to_string()
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: ours, destroyed once.
            let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
        }
    }
}

#[cfg(test)]
mod tests;
