//! Settings of training, as the program shows what they do.

mod common;
use common::Scratch;

fn train(scratch: &Scratch, out: &str, settings: &[&str]) -> String {
    let base = format!("train --preset tiny-swatches --set train.steps=20 --out {out}");
    let mut args: Vec<&str> = base.split(' ').collect();
    settings.iter().for_each(|s| args.extend(["--set", s]));
    scratch.run(&args).done()
}

#[test]
fn held_out_images_are_what_training_is_judged_by() {
    let scratch = Scratch::new();
    let said = train(&scratch, "run", &["data.holdout=0.125"]);
    assert!(said.contains("validation bits/dim"), "{said}");
    let records = scratch.records("run");
    let last = records.iter().rfind(|r| r["kind"] == "eval").unwrap();
    assert_eq!(
        (&last["split"], &last["images"]),
        (&"validation".into(), &64.into())
    );
    for (split, images) in [("validation", 64), ("train", 448), ("test", 64)] {
        let found = scratch
            .run(&["eval", "run", "--json", "--split", split])
            .json();
        assert_eq!(
            (&found["split"], &found["images"]),
            (&split.into(), &images.into())
        );
    }
    // The same images and noise: what the log has is what the command finds.
    let again = [
        "eval",
        "run",
        "--json",
        "--split",
        "validation",
        "--batch",
        "16",
    ];
    let again = scratch.run(&again).json();
    assert_eq!(again["bits_per_dim"], last["bits_per_dim"]);
    scratch.run(&["report", "run"]).done();
    let page = String::from_utf8(scratch.read("report.html")).unwrap();
    assert!(page.contains("Bits per dim of validation images"));
    let said = scratch.run(&["info", "run"]).done();
    assert!(said.contains("on 64 validation images"), "{said}");
}

#[test]
fn a_run_without_a_hold_out_has_no_validation_images() {
    let scratch = Scratch::new();
    let said = train(&scratch, "run", &[]);
    assert!(said.contains("test bits/dim"), "{said}");
    scratch
        .run(&["eval", "run", "--split", "validation"])
        .refused(&["no validation images", "data.holdout"]);
    scratch
        .run(&["eval", "run", "--split", "valid"])
        .refused(&["train, validation or test"]);
    let too_few = [
        "train",
        "--preset",
        "tiny-swatches",
        "--set",
        "data.holdout=0.0001",
    ];
    scratch
        .run(&too_few)
        .refused(&["data.holdout = 0.0001", "512"]);
}

#[test]
fn a_layer_whose_embeddings_run_away_is_named_once() {
    let scratch = Scratch::new();
    let run = |out: &str, settings: &[&str]| {
        let base = format!("train --preset tiny-swatches --seed 0 --steps 200 --out {out}");
        let mut args: Vec<&str> = base.split(' ').collect();
        let reinmax = ["model.sample=reinmax", "train.eval_every=50"];
        let settings = reinmax.iter().chain(settings);
        settings.for_each(|s| args.extend(["--set", s]));
        let said = scratch.run(&args);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.err
    };
    let high = ["train.lr=1", "train.warmup=0"];
    let warned = run("high", &high);
    assert_eq!(warned.matches("far from all codes").count(), 1, "{warned}");
    assert!(warned.contains("high: layers 1 (") && warned.contains("train.norm_penalty=0.1"));
    let last = scratch.run(&["eval", "high", "--json"]).json();
    for layer in 0..2 {
        let size = last["embedding_size"][layer].as_f64().unwrap();
        assert!(size > 4.0, "{last}");
    }
    assert!(!run("fine", &[]).contains("far from all codes"));
    let table = scratch.run(&["eval", "fine"]).done();
    assert!(table.contains("embedding RMS"), "{table}");
}

#[test]
fn the_use_of_codes_is_seen_early() {
    let scratch = Scratch::new();
    let said = train(&scratch, "run", &["train.steps=120", "train.eval_every=0"]);
    assert!(said.contains("step 100:") && said.contains("train bits/dim"));
    assert!(said.contains("codes in use ") && said.contains(" of 32, "));
    assert_eq!(scratch.logged("run", "early"), [100]);
    assert_eq!(scratch.logged("run", "eval"), [120]);
    let records = scratch.records("run");
    let early = records.iter().find(|r| r["kind"] == "early").unwrap();
    // The data set has 512 training images.
    assert_eq!(
        (&early["split"], &early["images"]),
        (&"train".into(), &512.into())
    );
    assert_eq!(early["usage"].as_array().unwrap().len(), 2);
    for layer in 0..2 {
        let bits = |key: &str| early[key][layer].as_f64().unwrap();
        let positions = [16.0, 4.0][layer];
        assert!((bits("position_bits") * positions - bits("kl") * 192.0).abs() < 1e-9);
    }
    scratch.run(&["report", "run"]).done();
    let page = String::from_utf8(scratch.read("report.html")).unwrap();
    for there in [
        "Live codes",
        "Perplexity of codes",
        "KL in bits a position",
        "Embeddings, root mean square",
        "layer 2, step 100, 512 train images",
    ] {
        assert!(page.contains(there), "{there} is missing");
    }

    // An evaluation at the same step tells as much, and there may be none.
    train(&scratch, "due", &["train.steps=100"]);
    let none = ["train.early_images=0", "train.eval_every=0"];
    train(
        &scratch,
        "none",
        &[&["train.steps=100"], &none[..]].concat(),
    );
    for run in ["due", "none"] {
        assert_eq!(scratch.logged(run, "early"), [0; 0], "{run}");
    }
}

#[test]
fn skipped_steps_are_counted_and_too_many_end_the_run() {
    let scratch = Scratch::new();
    train(&scratch, "run", &["train.skip_norm=1e-6"]);
    let records = scratch.records("run");
    let skipped = records.iter().filter_map(|r| r["skipped"].as_u64());
    assert_eq!(skipped.sum::<u64>(), 20);
    train(&scratch, "free", &["train.skip_norm=1e6"]);
    let records = scratch.records("free");
    assert!(
        records
            .iter()
            .all(|r| r["skipped"].as_u64().unwrap_or(0) == 0)
    );
    let stuck = [
        "train",
        "--preset",
        "tiny-swatches",
        "--set",
        "train.skip_norm=1e-6",
    ];
    scratch
        .run(&stuck)
        .refused(&["100 steps in a row", "train.skip_norm = 0.000001"]);
}

/// The preset's own 200 steps, on the same bits everywhere.
#[test]
fn reinmax_trains_a_preset() {
    let scratch = Scratch::new();
    let settings = [
        "train.steps=200",
        "model.sample=reinmax",
        "model.temperature={start=1.5, end=1.5}",
    ];
    train(&scratch, "run", &settings);
    let bits = |kind: &str| -> Vec<f64> {
        let records = scratch.records("run").into_iter();
        let of_kind = records.filter(|record| record["kind"] == kind);
        of_kind
            .map(|r| r["bits_per_dim"].as_f64().unwrap())
            .collect()
    };
    let (seen, evaluated) = (bits("train"), bits("eval"));
    let fell = |all: &[f64]| all[0] - all[all.len() - 1];
    assert!(fell(&seen) > 1.0, "{seen:?}");
    assert!(fell(&evaluated) > 0.3, "{evaluated:?}");
}

/// However many steps fit in, and with a stop in between: the rate is down when the time is over.
#[test]
fn a_schedule_ends_with_its_minutes() {
    let scratch = Scratch::new();
    let minutes = 0.05;
    let settings = [
        // Far too many and far too few to begin with.
        ("many", "train.steps=1000000"),
        ("few", "train.steps=3"),
    ];
    for (run, steps) in settings {
        let base = [
            "train",
            "--preset",
            "tiny-swatches",
            "--set",
            "train.minutes=0.05",
            "--set",
            "train.schedule=cosine",
            "--set",
            "train.lr_floor=0",
            "--set",
            "train.eval_every=0",
            "--set",
            "train.log_every=1",
            "--set",
            steps,
            "--out",
            run,
        ];
        // A stop half way, and on from there.
        scratch
            .run(&[&base[..], &["--minutes", "0.02"]].concat())
            .done();
        scratch.run(&["train", "--resume", "--out", run]).done();
        let records = scratch.records(run);
        let last = records.iter().rfind(|r| r["kind"] == "train").unwrap();
        let eval = records.iter().rfind(|r| r["kind"] == "eval").unwrap();
        let seconds = last["seconds"].as_f64().unwrap();
        assert!(
            (seconds / 60.0 / minutes - 1.0).abs() < 0.3,
            "{run}: {seconds} s"
        );
        let config = String::from_utf8(scratch.read(&format!("{run}/config.toml"))).unwrap();
        let made = last["step"].as_u64().unwrap();
        assert!(config.contains(&format!("\nsteps = {made}\n")), "{config}");
        assert_eq!(eval["step"], last["step"], "{run}");
        let rates: Vec<f64> = records.iter().filter_map(|r| r["lr"].as_f64()).collect();
        let most = rates.iter().fold(0.0, |a: f64, b| a.max(*b));
        assert!(rates[rates.len() - 1] < 0.2 * most, "{run}: {rates:?}");
        // Done is done.
        scratch.run(&["train", "--resume", "--out", run]).done();
        assert_eq!(scratch.records(run).len(), records.len());
    }
}

#[test]
fn blocks_that_see_no_image_are_named() {
    let scratch = Scratch::new();
    let said = |out: &str, settings: &[&str]| {
        let base = format!("train --preset tiny-swatches --steps 1 --out {out}");
        let mut args: Vec<&str> = base.split(' ').collect();
        let one_layer = ["model.maps=[4]", "model.repeat=1", "model.codes=8"];
        one_layer
            .iter()
            .chain(settings)
            .for_each(|s| args.extend(["--set", s]));
        let told = scratch.run(&args);
        let err = told.err.clone();
        told.done();
        err.contains("model.data_blocks puts blocks between image and latents")
    };
    assert!(said("two", &["model.blocks=2"]));
    assert!(!said("one", &["model.blocks=1"]));
    assert!(!said("between", &["model.blocks=2", "model.data_blocks=1"]));
    assert!(!said("layers", &["model.blocks=2", "model.maps=[4,2]"]));
}
