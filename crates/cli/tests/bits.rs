//! The same bits for any number of threads and any instruction set.

mod common;
use common::Scratch;

/// Ten steps, an evaluation and a picture: everything that must not depend on the machine.
fn results(setting: &[&str], threads: &str, simd: Option<&str>) -> (Vec<u8>, Vec<u8>, String) {
    let scratch = Scratch::new();
    let run = |args: &[&str]| {
        let mut command = scratch.command(&[args, &["--threads", threads]].concat());
        simd.map(|name| command.env("RRVQ_SIMD", name));
        common::Said::from(command.output().unwrap()).done()
    };
    let mut train = vec![
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "10",
        "--out",
        "run",
    ];
    setting
        .iter()
        .for_each(|change| train.extend(["--set", *change]));
    run(&train);
    run(&["sample", "run", "--count", "9", "--out", "x.png"]);
    let mut found: serde_json::Value =
        serde_json::from_str(&run(&["eval", "run", "--json", "--samples", "2"])).unwrap();
    found["seconds"] = 0.into();
    (
        scratch.read("run/model.safetensors"),
        scratch.read("x.png"),
        found.to_string(),
    )
}

fn holds(setting: &[&str]) {
    let (model, picture, found) = results(setting, "1", None);
    for (threads, simd) in [
        ("2", None),
        ("3", None),
        ("1", Some("portable")),
        ("2", Some("avx2")),
        ("3", Some("avx512")),
    ] {
        let other = results(setting, threads, simd);
        assert!(
            other.0 == model,
            "the model differs with {threads} threads, {simd:?}"
        );
        assert!(
            other.1 == picture,
            "the picture differs with {threads} threads, {simd:?}"
        );
        assert_eq!(
            other.2, found,
            "the evaluation differs with {threads} threads, {simd:?}"
        );
    }
}

#[test]
fn sizes_that_fill_registers() {
    holds(&["model.channels=16", "model.embed=16"]);
}

#[test]
fn sizes_that_fill_nothing() {
    holds(&[
        "model.channels=13",
        "model.embed=5",
        "model.codes=[7, 19]",
        "train.batch=3",
        "model.sample=relaxed",
    ]);
}

#[test]
fn reinmax_on_odd_sizes() {
    holds(&[
        "model.embed=5",
        "model.codes=[7, 19]",
        "model.sample=reinmax",
        "model.temperature={start=1.5, end=1}",
    ]);
}
