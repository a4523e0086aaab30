//! The program on a GPU, from training to pictures. The same words are tried on the CPU everywhere; on a GPU, where
//! there is one.

mod common;
use common::{Scratch, png_size};

/// Trains, stops, goes on, evaluates here and there, samples. `limit` is in bits a dimension.
fn check(device: &[&str], limit: f64) {
    let scratch = Scratch::new();
    let run = |args: &[&str], more: &[&str]| scratch.run(&[args, more].concat());
    // Codes so far apart that some are never used: those are given to others on the way.
    let train = "train --preset tiny-swatches --out run --steps 20 \
        --set model.codes=64 --set model.code_scale=3 --set train.split_every=5";
    let train: Vec<&str> = train.split_whitespace().collect();
    run(&train, device).done();
    let on = ["train", "--resume", "--out", "run", "--steps", "30"];
    run(&on, device).done();
    assert_eq!(scratch.logged("run", "train"), [10, 20, 30]);
    assert_eq!(scratch.logged("run", "split"), [5, 10, 15]);

    let bits = |device: &[&str]| {
        // The noise of an image depends on the batch it is in, whose size a device would choose.
        let eval = ["eval", "run", "--json", "--samples", "2", "--batch", "16"];
        let found = run(&eval, device).json();
        assert_eq!((&found["step"], &found["images"]), (&30.into(), &64.into()));
        ["bits_per_dim", "importance_bound"].map(|key| found[key].as_f64().unwrap())
    };
    let (here, there) = (bits(&["--device", "cpu"]), bits(device));
    for (here, there) in here.iter().zip(&there) {
        println!("{device:?}: {there} bits per dim, {here} on the CPU");
        assert!((here - there).abs() <= limit, "{device:?}: {there}, {here}");
    }
    run(&["sample", "run", "--out", "grid.png"], device).done();
    let picture = scratch.read("run/samples/step-00000030.png");
    assert!(png_size(&picture).0 > 64 && png_size(&scratch.read("grid.png")).0 > 64);

    let bench =
        "bench step --layers 4 --channels 16 --embed 16 --codes 64 --batch 8 --steps 5 --json";
    let bench: Vec<&str> = bench.split(' ').collect();
    let found = run(&bench, device).json();
    assert_eq!(found["device"], device[1]);
    assert!(found["images_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_whole_way_here() {
    check(&["--device", "cpu"], 0.0);
}

#[test]
fn the_whole_way_on_a_gpu() {
    let scratch = Scratch::new();
    let seen = scratch.run(&["doctor", "--json"]).json();
    if seen["cuda"]["ready"] != true {
        println!("skipped: {}", seen["cuda"]["reason"]);
        return;
    }
    check(&["--device", "cuda", "--precision", "f32"], 1e-4);
    check(&["--device", "cuda", "--precision", "bf16"], 3e-2);
}
