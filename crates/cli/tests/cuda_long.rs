//! Minutes of training on a GPU with real images: what only time shows. `tools/gpu-check.sh --long` runs them, with the
//! folder of CIFAR-10 in `RRVQ_CIFAR10`; `RRVQ_KEEP` names a folder that their logs are copied to.

mod common;
use common::Scratch;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Seconds the long training takes.
const LONG: u64 = 300;
/// Largest difference of bf16 and f32, in bits a dimension.
const APART: f64 = 0.03;

fn images() -> String {
    std::env::var("RRVQ_CIFAR10").expect("RRVQ_CIFAR10 names the folder of CIFAR-10")
}

/// The records of a run's log that have `key`.
fn records(scratch: &Scratch, run: &str, key: &str) -> Vec<Value> {
    if let Some(folder) = std::env::var_os("RRVQ_KEEP") {
        let log = scratch.read(&format!("{run}/log.jsonl"));
        let name = format!("{run}.jsonl");
        std::fs::write(std::path::Path::new(&folder).join(name), log).unwrap();
    }
    let records = scratch.records(run).into_iter();
    records.filter(|r| r.get(key).is_some()).collect()
}

fn numbers(records: &[Value], key: &str) -> Vec<f64> {
    records.iter().map(|r| r[key].as_f64().unwrap()).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// How much slower the last quarter is than the second: 0 is not at all.
fn falling_off(speeds: &[f64]) -> f64 {
    let quarter = speeds.len() / 4;
    let (early, late) = (&speeds[quarter..2 * quarter], &speeds[3 * quarter..]);
    1.0 - median(late) / median(early)
}

#[test]
fn falling_off_is_seen() {
    let steady: Vec<f64> = (0..40).map(|i| 100.0 + (i % 3) as f64).collect();
    assert!(falling_off(&steady).abs() < 0.02);
    let tired: Vec<f64> = (0..40).map(|i| 100.0 - i as f64).collect();
    assert!(falling_off(&tired) > 0.1);
}

#[test]
#[ignore = "minutes on a GPU, with CIFAR-10"]
fn bf16_ends_where_f32_ends() {
    let scratch = Scratch::new();
    let bits = ["bf16", "f32"].map(|precision| {
        let data = images();
        let set = ["train.eval_every=2000", "train.save_every=2000"];
        let mut args = vec!["train", "--preset", "l16-cifar10", "--data", &data];
        args.extend([
            "--device",
            "cuda",
            "--precision",
            precision,
            "--out",
            precision,
        ]);
        args.extend(["--steps", "2000", "--set", set[0], "--set", set[1]]);
        let begin = Instant::now();
        scratch.run(&args).done();
        let last = records(&scratch, precision, "split").pop().unwrap();
        let bits = last["bits_per_dim"].as_f64().unwrap();
        println!(
            "{precision}: {bits:.4} test bits per dim after 2,000 steps, {:.0} s",
            begin.elapsed().as_secs_f64()
        );
        bits
    });
    assert!((bits[0] - bits[1]).abs() < APART, "{bits:?}");
}

#[test]
#[ignore = "five minutes on a GPU, with CIFAR-10"]
fn five_minutes_keep_their_speed_and_their_memory() {
    let scratch = Scratch::new();
    let data = images();
    let args = [
        "train",
        "--preset",
        "l32-cifar10",
        "--data",
        &data,
        "--device",
        "cuda",
        "--out",
        "l32",
        "--steps",
        "1000000",
    ];
    let more = [
        "train.schedule=constant",
        "train.warmup=200",
        "train.eval_every=1000",
        "train.save_every=0",
        "train.log_every=100",
    ];
    let more = more.iter().flat_map(|set| ["--set", set]);
    let mut command = scratch.command(&args.into_iter().chain(more).collect::<Vec<_>>());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let mut resident: Vec<f64> = Vec::new();
    while begin.elapsed() < Duration::from_secs(LONG + 30) {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(Duration::from_secs(5));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
        resident.push(line.split_whitespace().nth(1).unwrap().parse().unwrap());
    }
    let asked = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(asked.unwrap().success());
    assert!(child.wait().unwrap().code().is_some(), "it saves and ends");

    let trained = records(&scratch, "l32", "images_per_second");
    let speeds = numbers(&trained, "images_per_second");
    let seconds = trained.last().unwrap()["seconds"].as_f64().unwrap();
    let bits = numbers(&records(&scratch, "l32", "split"), "bits_per_dim");
    let grown = resident[resident.len() - 1] / resident[resident.len() / 2];
    println!(
        "{seconds:.0} s of training, {:.0} images a second, falling off {:.3}; memory × {grown:.3} in the second half; test bits per dim {bits:.3?}",
        median(&speeds),
        falling_off(&speeds)
    );
    assert!(seconds >= LONG as f64 * 0.9, "{seconds} s of training");
    assert!(falling_off(&speeds) < 0.03, "{speeds:?}");
    assert!(grown < 1.02, "{resident:?} KiB");
    assert!(bits.last() < bits.first(), "it learns: {bits:?}");
}
