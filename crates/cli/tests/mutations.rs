//! Files that were changed at random, through every way into the program: none may panic, take long or take memory.
//!
//! The inputs are those of `fuzz/corpus`: whole files of each kind, and what fuzzing found worth keeping. A few thousand
//! changes are tried every time; for more,
//!
//! ```text
//! RRVQ_MUTATIONS=1000000 cargo test -p rrvq-cli --test mutations -- --ignored --nocapture
//! ```

mod common;
#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod ways_in;

use common::Scratch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ways_in::{TARGETS, Target};

/// No single file takes longer, on a busy machine and with debug assertions.
const LONGEST: Duration = Duration::from_secs(10);
/// More memory than this and something was believed.
#[cfg(target_os = "linux")]
const MOST_KIB: usize = 512 << 10;

fn corpus(target: &str) -> PathBuf {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    fuzz.join(target)
}

/// The inputs of a target, by name.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus(target);
    let listed = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<_> = listed
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{} is empty", folder.display());
    found
}

/// Small numbers at random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 33) as usize) % end.max(1)
    }
}

/// The file with a few changes: bits, bytes, numbers, parts taken out, repeated or put in from elsewhere, an early end.
fn changed(dice: &mut Dice, file: &[u8], other: &[u8]) -> Vec<u8> {
    const NUMBERS: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u32::MAX, 0x0100_0000];
    let mut bytes = file.to_vec();
    for _ in 0..=dice.below(4) {
        let len = bytes.len();
        let at = dice.below(len);
        let some = (1 + dice.below(40)).min(len - at);
        match dice.below(9) {
            0..3 if len > 0 => bytes[at] ^= 1 << dice.below(8),
            3 if len > 0 => bytes[at] = dice.below(256) as u8,
            4 if len >= at + 4 => {
                let number = NUMBERS[dice.below(NUMBERS.len())];
                let number = match dice.below(2) {
                    0 => number.to_le_bytes(),
                    _ => number.to_be_bytes(),
                };
                bytes[at..at + 4].copy_from_slice(&number);
            }
            5 => drop(bytes.drain(at..at + some)),
            6 => {
                let part = bytes[at..at + some].to_vec();
                bytes.splice(at..at, part);
            }
            7 => {
                let from = dice.below(other.len());
                let part = other[from..].iter().copied().take(some);
                bytes.splice(at..at, part);
            }
            _ if dice.below(4) == 0 => bytes.truncate(at),
            _ => {}
        }
    }
    repaired(dice, bytes)
}

/// Every other compressed file with its checksums made right again, so that what is behind them is tried.
fn repaired(dice: &mut Dice, mut bytes: Vec<u8>) -> Vec<u8> {
    if !bytes.starts_with(b"\x89RRVQ") || dice.below(2) == 0 {
        return bytes;
    }
    let lossless = bytes[5..].starts_with(b"\r\n\x1a");
    // What is before the first block: the name of the format; with loss also the model's and the number of images.
    let first = if lossless { 8 } else { 12 };
    let mut at = first;
    while !lossless && bytes.get(at).is_some_and(|byte| *byte >= 128) {
        at += 1;
    }
    at += usize::from(!lossless);
    let mut before = if lossless { at } else { 0 };
    loop {
        let mut len = 0usize;
        let mut payload = at + 1;
        if lossless {
            let Some(four) = bytes.get(at + 1..at + 5) else {
                return bytes;
            };
            len = u32::from_le_bytes(four.try_into().unwrap()) as usize;
            payload = at + 5;
        } else {
            for shift in (0..35).step_by(7) {
                let Some(&byte) = bytes.get(payload) else {
                    return bytes;
                };
                payload += 1;
                len |= ((byte & 127) as usize) << shift;
                if byte < 128 {
                    break;
                }
            }
        }
        let end = payload.saturating_add(len);
        if bytes.len() < 4 || end > bytes.len() - 4 {
            return bytes;
        }
        let mut sum = flate2::Crc::new();
        sum.update(&bytes[before..end]);
        bytes[end..end + 4].copy_from_slice(&sum.sum().to_le_bytes());
        at = end + 4;
        before = at;
    }
}

/// Tries `count` changed inputs of a target on all cores.
fn attack((name, run): Target, count: usize) {
    let files = inputs(name);
    let done = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = done.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    let mut dice = Dice(seed as u64);
                    let (of, file) = &files[dice.below(files.len())];
                    let (_, other) = &files[dice.below(files.len())];
                    let bytes = changed(&mut dice, file, other);
                    let start = Instant::now();
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(&bytes)));
                    let took = start.elapsed();
                    if outcome.is_err() || took > LONGEST {
                        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
                        let kept = kept.join(format!("{name}-{seed}"));
                        std::fs::write(&kept, &bytes).unwrap();
                        let kept = kept.display();
                        panic!("{name}: change {seed} of {of} took {took:?} or panicked: {kept}");
                    }
                }
            });
        }
    });
    #[cfg(target_os = "linux")]
    assert!(peak_kib() < MOST_KIB, "{name}: {} KiB", peak_kib());
}

#[cfg(target_os = "linux")]
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.unwrap().split_whitespace().nth(1);
    digits.unwrap().parse().unwrap()
}

#[test]
fn inputs_that_were_kept_are_read_or_refused() {
    for (name, run) in TARGETS {
        for (of, bytes) in inputs(name) {
            let start = Instant::now();
            run(&bytes);
            let took = start.elapsed();
            assert!(took < LONGEST, "{name}: {of} took {took:?}");
        }
        #[cfg(target_os = "linux")]
        assert!(peak_kib() < MOST_KIB, "{name}: {} KiB", peak_kib());
    }
}

#[test]
fn a_few_changes_of_every_kind_of_file_are_read_or_refused() {
    TARGETS.iter().for_each(|target| attack(*target, 200));
}

fn asked(otherwise: usize) -> usize {
    let count = std::env::var("RRVQ_MUTATIONS").ok();
    count.map_or(otherwise, |count| count.parse().expect("a number"))
}

/// `RRVQ_TARGETS=container,lossy` names some of them.
#[test]
#[ignore = "minutes to hours; RRVQ_MUTATIONS says how many"]
fn many_changes_of_every_kind_of_file_are_read_or_refused() {
    let wanted = std::env::var("RRVQ_TARGETS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    for target in TARGETS {
        if !wanted.is_empty() && !wanted.contains(&target.0) {
            continue;
        }
        let (count, start) = (asked(10_000), Instant::now());
        attack(target, count);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{}: {count} changed files in {seconds:.0} s, none failed",
            target.0
        );
    }
}

/// What the program did with changed files.
#[derive(Default)]
struct Seen {
    /// Files that gave at least one image.
    read: usize,
    most_mib: usize,
    longest: Duration,
}

/// Gives the program the changed file `seed`, in a scratch folder with the model that wrote the whole ones.
fn attack_program(
    scratch: &Scratch,
    files: &[Vec<(String, Vec<u8>)>; 2],
    seed: usize,
    seen: &mut Seen,
) {
    let mut dice = Dice(seed as u64);
    // Half of the changes start from a whole file, which a small change may leave readable: most that fuzzing kept are not.
    let of = &files[dice.below(2)];
    let file = &of[dice.below(of.len())].1;
    let other = &files[1][dice.below(files[1].len())].1;
    scratch.write("a.rrvq", changed(&mut dice, file, other));
    let mode = ["", "--keep-going", "--partial"][dice.below(3)];
    // Files that need no model are read without; those that name another are refused with one.
    let model = ["", "--model model.safetensors"][dice.below(2)];
    let begun = Instant::now();
    let said = scratch.shell(&format!(
        "ulimit -v 1048576; exec $rrvq decompress a.rrvq {model} -o out --force --verbose {mode}"
    ));
    let took = begun.elapsed();
    seen.longest = seen.longest.max(took);
    assert!(
        matches!(said.code, Some(0 | 2)) && !said.err.contains("panicked"),
        "change {seed}: {said:?}"
    );
    assert!(took < LONGEST, "change {seed} took {took:?}");
    if let Some((before, _)) = said.err.split_once(" MiB at most in memory") {
        let mib: usize = before.rsplit(' ').next().unwrap().parse().unwrap();
        seen.most_mib = seen.most_mib.max(mib);
    }
    assert!(
        seen.most_mib < 512,
        "change {seed} took {} MiB",
        seen.most_mib
    );
    let image =
        std::fs::read_dir(scratch.path("out")).is_ok_and(|mut images| images.next().is_some());
    seen.read += usize::from(image);
    let _ = std::fs::remove_dir_all(scratch.path("out"));
}

#[test]
#[ignore = "minutes; RRVQ_MUTATIONS says how many"]
fn changed_compressed_files_through_the_program() {
    let model = ways_in::tiny().pack().unwrap();
    let (found, whole) = ["container", "lossy"]
        .into_iter()
        .flat_map(inputs)
        .partition(|(name, _)| name.starts_with("found-"));
    let files = [whole, found];
    let (count, start, next) = (asked(1_000), Instant::now(), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let work = || {
            let (scratch, mut seen) = (Scratch::new(), Seen::default());
            scratch.write("model.safetensors", &model);
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    seed if seed < count => attack_program(&scratch, &files, seed, &mut seen),
                    _ => return seen,
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let read: usize = seen.iter().map(|seen| seen.read).sum();
    let most = seen.iter().map(|seen| seen.most_mib).max().unwrap();
    let longest = seen.iter().map(|seen| seen.longest).max().unwrap();
    assert!(read > count / 100, "{read} were read");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "program: {count} changed files in {seconds:.0} s, none failed, {read} gave images; at most {most} MiB and {:.1} s each",
        longest.as_secs_f64()
    );
}

/// Writes whole files of every kind to `fuzz/corpus`, where they are missing.
#[test]
#[ignore = "changes the source tree"]
fn write_the_corpus() {
    use rrvq_codec::{CodingModel, Image};
    let tiny = ways_in::tiny();
    let samples = |len: usize| -> Vec<u8> { (0..len).map(|i| (i * i / 7) as u8).collect() };
    let keep = |target: &str, name: &str, bytes: Vec<u8>| {
        std::fs::create_dir_all(corpus(target)).unwrap();
        std::fs::write(corpus(target).join(name), bytes).unwrap();
    };
    let photo = Image::new("photo", 19, 13, samples(19 * 13 * 3)).unwrap();
    let grey = Image::new("grey", 9, 30, samples(270)).unwrap();
    let flat = Image::new("flat", 40, 20, vec![7; 2400]).unwrap();
    let images = [photo, grey, flat];
    keep(
        "container",
        "three",
        rrvq_codec::compress(&tiny, &images).unwrap(),
    );
    let (mut workers, identity) = tiny.workers().unwrap();
    let mut by_model = Vec::new();
    let mut writer = rrvq_codec::Writer {
        workers: &mut workers,
        identity,
        coding: rrvq_codec::Coding::Model,
        check: true,
        watch: &|_| {},
    };
    let all = images.iter().cloned().map(Ok);
    writer.write(all, images.len(), &mut by_model).unwrap();
    keep("container", "by-model", by_model);
    let options = rrvq_codec::lossy::Options::default();
    let coded = rrvq_codec::lossy::encode(&mut workers, identity, &images, &options).unwrap();
    // Beside `three`, which is of version 4.
    keep("lossy", "version-5", coded.bytes);
    workers.of_parts = true;
    let coded = rrvq_codec::lossy::encode(&mut workers, identity, &images, &options).unwrap();
    keep("lossy", "sides", coded.bytes);
    keep("coder", "samples", samples(500));
    keep("model", "tiny", tiny.pack().unwrap());
    for preset in ["tiny-swatches", "best-cifar10", "vq-cifar10"] {
        let config = rrvq::Config::preset(preset).unwrap();
        keep("configuration", preset, config.to_toml().unwrap().into());
    }
    let picture = image::RgbImage::from_raw(24, 16, samples(24 * 16 * 3)).unwrap();
    let mut encoded = Vec::new();
    for (name, format) in [
        ("png", image::ImageFormat::Png),
        ("jpeg", image::ImageFormat::Jpeg),
        ("webp", image::ImageFormat::WebP),
    ] {
        let mut file = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut file, format).unwrap();
        keep("image", name, file.get_ref().clone());
        encoded.push((name, file.into_inner()));
    }
    let gzip = |bytes: &[u8]| {
        use std::io::Write;
        let level = flate2::Compression::fast();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    let head = [0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2];
    let digits = [&head[..], &samples(12)].concat();
    keep("idx", "gzip", gzip(&digits));
    keep("idx", "plain", digits);
    keep("idx", "labels", vec![0, 0, 8, 1, 0, 0, 0, 2, 7, 9]);
}
