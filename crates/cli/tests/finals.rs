//! The script that trains finals side by side.
#![cfg(unix)]

mod common;

use common::Scratch;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/finals.sh");

#[test]
fn finals_are_judged_stopped_and_packed() {
    let scratch = Scratch::new();
    let start = |run: &str| {
        let flags = "--rrvq \"$rrvq\" --flags \"--threads 1\"";
        scratch.shell(&format!(
            "bash {SCRIPT} start --out out {flags} {run} --set train.save_every=0"
        ))
    };
    start("short --preset tiny-swatches --steps 20").done();
    start("long --preset tiny-swatches --steps 100000000").done();
    start("wrong --preset tiny-swatches --set train.lr=-1").done();
    let begin = Instant::now();
    while !scratch.path("out/runs/long/log.jsonl").is_file() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let stop = format!("bash {SCRIPT} stop out long");
    scratch.shell(&stop).done();
    let look = format!("bash {SCRIPT} look out 60 packed");
    let said = scratch.shell(&look).done();
    for end in ["short exit 0", "long exit 0", "wrong exit 2"] {
        assert!(said.contains(end), "{said}");
    }
    assert!(
        said.contains("short: step 20 of 20, ") && said.contains("at step 20 "),
        "{said}"
    );
    // What is to be known of a run that ended; nothing of one that was stopped, which can go on.
    for made in ["test.json", "train.json"] {
        let judged = scratch.read(&format!("out/said/short.{made}"));
        let judged: serde_json::Value = serde_json::from_slice(&judged).unwrap();
        assert!(judged["bits_per_dim"].as_f64().unwrap() > 0.0);
        assert!(!scratch.path(&format!("out/said/long.{made}")).exists());
    }
    for picture in ["samples", "reconstructions"] {
        assert!(
            scratch
                .path(&format!("out/said/short-{picture}.png"))
                .is_file()
        );
    }
    assert!(scratch.path("out/runs/long/state.safetensors").is_file());
    let told = String::from_utf8(scratch.read("out/said/wrong.txt")).unwrap();
    assert!(told.contains("train.lr"), "{told}");
    let listed = scratch.shell("cat packed/finals.tgz.* | tar tz").done();
    for packed in [
        "runs/short/log.jsonl",
        "runs/long/config.toml",
        "said/short.txt",
    ] {
        assert!(listed.lines().any(|line| line == packed), "{listed}");
    }
    for (wrong, told) in [
        ("stop out long", "no run called long is being trained"),
        (
            "start --out out --rrvq true short --preset tiny-swatches",
            "there is a run called short",
        ),
        ("start --out out other", "a run needs a name and flags"),
        (
            "start --out out --priority high --rrvq true other --preset tiny-swatches",
            "there is no priority high",
        ),
        ("begin", "no command begin"),
        ("look nothing 1", "no runs were started"),
    ] {
        let said = scratch.shell(&format!("bash {SCRIPT} {wrong}"));
        assert!(
            said.code == Some(2) && said.err.contains(told),
            "{wrong}: {said:?}"
        );
    }
}
