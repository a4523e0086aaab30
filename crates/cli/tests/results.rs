//! What the looking commands print and draw.

mod common;
use common::{Scratch, png_size};
use rrvq::config::Config;
use serde_json::Value;

/// 96 / 8: at this scale the 8×8 images of the small preset are drawn.
const CELL: u32 = 8 * 12;
const GAP: u32 = 2;

fn sheet(columns: u32, rows: u32) -> (u32, u32) {
    (columns * (CELL + GAP) - GAP, rows * (CELL + GAP) - GAP)
}

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {key} in {value}"))
}

#[test]
fn bits_per_dim_are_the_sum_of_their_parts() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let found = scratch.run(&["eval", "run", "--json"]).json();
    let kl: Vec<f64> = found["kl"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect();
    assert_eq!(kl.len(), 2);
    assert!(kl.iter().all(|v| *v >= 0.0), "{kl:?}");
    let total = number(&found, "reconstruction") + kl.iter().sum::<f64>();
    assert!(
        (number(&found, "bits_per_dim") - total).abs() < 1e-9,
        "{found}"
    );
    assert_eq!(
        (&found["step"], &found["images"], &found["samples"]),
        (&10.into(), &64.into(), &1.into())
    );
    assert_eq!(found["split"], "test");
    assert!(number(&found, "seconds") > 0.0 && found["importance_bound"].is_null());
    for usage in found["usage"].as_array().unwrap() {
        assert_eq!(number(usage, "used") + number(usage, "dead"), 16.0);
        assert!(
            (1.0..=16.0).contains(&number(usage, "perplexity")),
            "{usage}"
        );
    }
    let records = scratch.records("run");
    let logged = records.last().unwrap();
    assert!(
        (number(logged, "bits_per_dim") - number(&found, "bits_per_dim")).abs() < 1e-9,
        "{logged}"
    );
}

#[test]
fn more_samples_tighten_the_bound() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let with = |samples: &str| {
        scratch
            .run(&["eval", "run", "--json", "--samples", samples])
            .json()
    };
    let (few, many) = (with("2"), with("32"));
    assert_eq!(many["samples"], 32);
    // Monte Carlo noise over 64 images is far below a tenth of a bit.
    assert!(
        number(&few, "importance_bound") < number(&few, "bits_per_dim") + 0.1,
        "{few}"
    );
    assert!(
        number(&many, "importance_bound") < number(&few, "importance_bound") + 0.1,
        "{few} {many}"
    );
    assert!(
        number(&many, "importance_bound") < number(&many, "bits_per_dim"),
        "{many}"
    );
}

#[test]
fn an_evaluation_can_be_smaller_or_of_the_other_split() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let few = scratch
        .run(&["eval", "run", "--json", "--images", "5"])
        .json();
    assert_eq!(few["images"], 5);
    let train = scratch
        .run(&["eval", "run", "--json", "--split", "train"])
        .json();
    assert_eq!(
        (&train["images"], &train["split"]),
        (&512.into(), &"train".into())
    );
    let text = scratch.run(&["eval", "run", "--samples", "3"]).done();
    for word in [
        "bits/dim on 64 test images (step 10",
        "importance bound with 3 samples",
        "KL bits/dim",
        "4x4",
        "2x2",
        "of 16",
    ] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

#[test]
fn samples_are_drawn_in_a_grid_and_the_seed_decides() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let draw = |name: &str, more: &[&str]| {
        scratch
            .run(&[&["sample", "run", "--out", name], more].concat())
            .done();
        scratch.read(name)
    };
    let first = draw("a.png", &["--count", "10"]);
    assert_eq!(png_size(&first), sheet(4, 3));
    assert!(
        draw("b.png", &["--count", "10"]) == first,
        "the same seed, the same picture"
    );
    assert!(
        draw("c.png", &["--count", "10", "--seed", "1"]) != first,
        "another seed, another picture"
    );
    let mode = draw("d.png", &["--temperature", "0", "--count", "4"]);
    assert!(
        draw(
            "e.png",
            &["--temperature", "0", "--count", "4", "--seed", "9"]
        ) == mode,
        "modes need no noise"
    );
    assert_eq!(png_size(&draw("f.png", &[])), sheet(8, 8));
    let more_than_a_batch = draw("g.png", &["--count", "300"]);
    assert_eq!(png_size(&more_than_a_batch), sheet(16, 19));
}

#[test]
fn reconstructions_stand_below_their_images() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&["reconstruct", "run", "--out", "test.png", "--count", "8"])
        .done();
    assert_eq!(png_size(&scratch.read("test.png")), sheet(4, 4));

    // A photograph's shapes and sizes, and a picture with holes.
    image::RgbImage::from_pixel(40, 30, image::Rgb([220, 30, 40]))
        .save(scratch.path("red.jpg"))
        .unwrap();
    image::GrayImage::from_pixel(8, 8, image::Luma([0]))
        .save(scratch.path("black.png"))
        .unwrap();
    image::RgbaImage::from_pixel(3, 9, image::Rgba([0, 0, 0, 0]))
        .save(scratch.path("clear.png"))
        .unwrap();
    let said = scratch
        .run(&[
            "reconstruct",
            "run",
            "red.jpg",
            "black.png",
            "clear.png",
            "--out",
            "mine.png",
        ])
        .done();
    assert!(said.contains("3 images"), "{said}");
    let drawn = image::open(scratch.path("mine.png")).unwrap().to_rgb8();
    assert_eq!(drawn.dimensions(), sheet(3, 2));
    let original = |column: u32| {
        drawn
            .get_pixel(column * (CELL + GAP) + CELL / 2, CELL / 2)
            .0
    };
    let near = |a: [u8; 3], b: [u8; 3]| a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 6);
    assert!(near(original(0), [220, 30, 40]), "{:?}", original(0));
    assert_eq!(original(1), [0, 0, 0]);
    assert_eq!(original(2), [255, 255, 255], "what is transparent is white");
}

#[test]
fn a_run_is_described() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let text = scratch.run(&["info", "run"]).done();
    for word in [
        "trained 10 of 10 steps on swatches",
        "2 layers, 8 channels, embeddings of 8 dimensions",
        "an image is at most 80 bits of latents",
        "last evaluation, step 10",
    ] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    let found = scratch.run(&["info", "run", "--json"]).json();
    assert_eq!(
        (&found["layers"], &found["step"], &found["steps"]),
        (&2.into(), &10.into(), &10.into())
    );
    assert_eq!(found["last_evaluation"]["step"], 10);
    assert!(number(&found, "parameters") > 1000.0);
}

#[test]
fn every_preset_is_listed_and_can_be_loaded() {
    let scratch = Scratch::new();
    let list = scratch.run(&["presets"]).done();
    let names: Vec<&str> = list
        .lines()
        // Presets are indented below the title of their group.
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert_eq!(names.len(), rrvq::config::presets().len(), "{list}");
    assert!(names.contains(&"tiny-swatches"), "{list}");
    for name in names {
        scratch.write("preset.toml", scratch.run(&["presets", name]).done());
        let loaded = Config::load(scratch.path("preset.toml")).unwrap();
        loaded.validate().unwrap();
        assert_eq!(loaded, Config::preset(name).unwrap());
    }
    let keys = scratch.run(&["presets", "--keys"]).done();
    for key in [
        "model.maps = ",
        "data.name = ",
        "train.lr = 0.002\n    Learning rate",
    ] {
        assert!(keys.contains(key), "{key:?} is not in {keys}");
    }
}

#[test]
fn a_printed_preset_trains_like_the_preset() {
    let scratch = Scratch::new();
    scratch.write(
        "mine.toml",
        scratch.run(&["presets", "tiny-swatches"]).done(),
    );
    scratch
        .run(&["train", "--config", "mine.toml", "--steps", "2"])
        .done();
    scratch
        .run(&["train", "--preset", "tiny-swatches", "--steps", "2"])
        .done();
    let model = |run: &str| scratch.read(&format!("runs/{run}/model.safetensors"));
    assert!(model("mine") == model("tiny-swatches"));
    scratch
        .run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "2",
            "--seed",
            "1",
            "--out",
            "other",
        ])
        .done();
    assert!(
        scratch.read("other/model.safetensors") != model("mine"),
        "the seed decides"
    );
}

#[test]
fn the_smallest_sizes_train() {
    let scratch = Scratch::new();
    let settings = [
        "train.batch=1",
        "data.train_images=1",
        "data.test_images=1",
        "model.maps=[1]",
        "model.size=2",
        "model.channels=1",
        "model.embed=1",
        "model.codes=2",
        "train.log_every=0",
    ];
    let mut args = vec![
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "3",
        "--out",
        "run",
    ];
    settings
        .iter()
        .for_each(|setting| args.extend(["--set", *setting]));
    scratch.run(&args).done();
    scratch.run(&["eval", "run"]).done();
    scratch
        .run(&["sample", "run", "--count", "1", "--out", "x.png"])
        .done();
}

#[test]
fn speed_is_measured() {
    let scratch = Scratch::new();
    let sizes = [
        "--layers",
        "4",
        "--channels",
        "4",
        "--embed",
        "4",
        "--codes",
        "8",
        "--batch",
        "2",
        "--steps",
        "2",
    ];
    let found = scratch
        .run(&[&["bench", "step", "--json", "--threads", "2"], &sizes[..]].concat())
        .json();
    for key in [
        "ms_per_step",
        "images_per_second",
        "first_step_seconds",
        "parameters",
        "arena_mib",
        "kernels",
        "gflops",
        "loss",
    ] {
        assert!(number(&found, key) > 0.0, "{key} in {found}");
    }
    assert_eq!(
        (&found["device"], &found["layers"], &found["threads"]),
        (&"cpu".into(), &4.into(), &2.into())
    );
    assert!(number(&found["ms_by_kind"], "convolution") > 0.0, "{found}");
    assert!(found["ms_by_kind"]["matrix product"].is_null(), "{found}");
    let muon = ["bench", "step", "--json", "--optimiser", "muon"];
    let turned = scratch.run(&[&muon[..], &sizes].concat()).json();
    let products = number(&turned["ms_by_kind"], "matrix product");
    assert!(products > 0.0, "{turned}");
    let text = scratch
        .run(&[&["bench", "step"], &sizes[..]].concat())
        .done();
    assert!(
        text.contains("ms/step") && text.contains("convolution"),
        "{text}"
    );
    let scored = scratch
        .run(&[&["bench", "eval", "--json"], &sizes[..]].concat())
        .json();
    for key in ["images_per_second", "plan_bytes", "loss"] {
        assert!(number(&scored, key) > 0.0, "{key} in {scored}");
    }
    assert!(number(&scored, "plan_bytes") < number(&found, "plan_bytes"));
    let text = scratch
        .run(&[&["bench", "eval"], &sizes[..]].concat())
        .done();
    assert!(text.contains("ms/batch"), "{text}");
    let profile = scratch
        .run(&[&["bench", "profile", "--json"], &sizes[..]].concat())
        .json();
    let kinds = profile["kinds"].as_array().unwrap();
    let sum = |key: &str| kinds.iter().map(|kind| number(kind, key)).sum::<f64>();
    assert!((sum("share") - 1.0).abs() < 1e-9, "{profile}");
    assert!((sum("ms") - number(&profile, "ms")).abs() < 1e-9);
    assert_eq!(sum("launches"), number(&found, "kernels"));
    let text = scratch
        .run(&[&["bench", "profile"], &sizes[..]].concat())
        .done();
    assert!(
        text.contains("GB/s") && text.contains("responsibility, gradient"),
        "{text}"
    );
}

#[test]
fn tensorboard_gets_its_file_when_asked() {
    let scratch = Scratch::new();
    let events = |run: &str| -> Vec<u64> {
        let entries = std::fs::read_dir(scratch.path(run))
            .unwrap()
            .map(|entry| entry.unwrap());
        let events = entries.filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("events.out.tfevents.")
        });
        events
            .map(|entry| entry.metadata().unwrap().len())
            .collect()
    };
    scratch.trained("without");
    assert!(events("without").is_empty());
    scratch
        .run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "10",
            "--tensorboard",
            "--out",
            "with",
        ])
        .done();
    let found = events("with");
    assert!(found.len() == 1 && found[0] > 500, "{found:?}");
    assert_eq!(
        png_size(&scratch.read("with/samples/step-00000010.png")),
        sheet(8, 8)
    );
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_mistake() {
    let scratch = Scratch::new();
    let said = scratch.shell("($rrvq presets --keys; echo ended with $? >&2) | head -n 1");
    assert!(said.out.starts_with("model.maps = "), "{said:?}");
    assert_eq!(said.err, "ended with 0\n");
    let said = scratch.shell("($rrvq presets --keys; echo ended with $? >&2) | true");
    assert_eq!(said.err, "ended with 0\n");
}
