//! What the compiler makes, what it says of mistakes, and that damage to the cache is repaired.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const DOUBLE: &str =
    "extern \"C\" __global__ void twice(float* x) {\n    x[threadIdx.x] *= 2.0f;\n}\n";
const HALVE: &str =
    "extern \"C\" __global__ void half(float* x) {\n    x[threadIdx.x] *= 0.5f;\n}\n";

fn here() -> bool {
    let here = library::nvrtc().is_ok();
    if !here {
        // Whoever names folders means these tests to run.
        assert!(
            std::env::var_os("RRVQ_CUDA_LIBS").is_none(),
            "there is no NVRTC in RRVQ_CUDA_LIBS"
        );
        println!("skipped: there is no NVRTC");
    }
    here
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rrvq-kernels-{}-{number}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn cached(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("kernels")).into_iter().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_kernel_becomes_machine_code_for_both_generations() {
    if !here() {
        return;
    }
    let [old, new] = ["sm_80", "sm_90"].map(|arch| compile(DOUBLE, "twice", arch).unwrap());
    for cubin in [&old, &new] {
        assert!(cubin.starts_with(b"\x7fELF"));
        assert!(cubin.windows(5).any(|bytes| bytes == b"twice"));
    }
    assert_ne!(old, new);
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    if !here() {
        return;
    }
    let source = DOUBLE.replace("threadIdx", "threadIndex");
    let error = compile(&source, "twice", "sm_90").unwrap_err().to_string();
    for word in ["twice(2)", "threadIndex", "`x[threadIndex.x] *= 2.0f;`"] {
        assert!(error.contains(word), "{word} is not in {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = compile(DOUBLE, "twice", "sm_7").unwrap_err().to_string();
    assert!(error.contains("does not know"), "{error}");
    let error = compile("\0", "twice", "sm_90").unwrap_err().to_string();
    assert!(error.contains("zero byte"), "{error}");
}

#[test]
fn cached_kernels_are_used_and_damaged_ones_compiled_again() {
    if !here() {
        return;
    }
    let folder = Folder::new();
    let sources = [DOUBLE, HALVE, DOUBLE];
    let all = || compile_all(&sources, "sm_80", Some(&folder.0)).unwrap();
    let first = all();
    assert_eq!(first.len(), 3);
    assert!(first[0] == first[2] && first[0] != first[1]);
    let cached = folder.cached();
    assert_eq!(cached.len(), 2, "equal sources are cached once: {cached:?}");
    let whole: Vec<Vec<u8>> = cached.iter().map(|file| fs::read(file).unwrap()).collect();
    for damage in [
        |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2),
        |bytes: &mut Vec<u8>| bytes.clear(),
        |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
        |bytes: &mut Vec<u8>| bytes.truncate(20),
    ] {
        let mut bytes = whole[0].clone();
        damage(&mut bytes);
        fs::write(&cached[0], bytes).unwrap();
        assert!(all() == first);
        assert!(fs::read(&cached[0]).unwrap() == whole[0], "written anew");
    }
    // What is whole is taken as it is, which shows that nothing is compiled again.
    let key = cache::Key::of(&[
        DOUBLE,
        &options("sm_80").join(" "),
        &library::nvrtc().unwrap().version.to_string(),
    ]);
    Cache::in_folder(&folder.0).write(&key, b"another");
    assert_eq!(all()[0], b"another");
    assert_ne!(
        compile_all(&[DOUBLE], "sm_90", Some(&folder.0)).unwrap()[0],
        b"another"
    );
    assert_eq!(folder.cached().len(), 3, "no unfinished file stays");
}

#[test]
fn a_folder_that_cannot_be_written_is_done_without() {
    if !here() {
        return;
    }
    let folder = Folder::new();
    fs::write(&folder.0, "a file where the folder should be").unwrap();
    let made = compile_all(&[HALVE], "sm_80", Some(&folder.0)).unwrap();
    fs::remove_file(&folder.0).unwrap();
    assert_eq!(made, compile_all(&[HALVE], "sm_80", None).unwrap());
}

#[test]
fn errors_name_the_first_kernel_of_a_source() {
    assert_eq!(hint(DOUBLE), "twice");
    assert_eq!(
        hint("__global__ void __launch_bounds__(128, 2) go(int n)"),
        "go"
    );
    assert_eq!(
        hint("__global__ __launch_bounds__(128) void go(int n)"),
        "go"
    );
    assert_eq!(hint("int x;"), "kernel");
}

#[test]
fn a_log_without_a_line_number_still_explains() {
    assert_eq!(explain("", ""), "it does not say why");
    assert_eq!(explain("\nodd words\n", "int x;"), "odd words");
    assert_eq!(
        explain("k(9): error: no\n", "int x;"),
        "k(9): error: no",
        "the source has no such line"
    );
}
