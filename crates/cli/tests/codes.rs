//! `rrvq codes`, `rrvq decode`, `rrvq models`, and built-in models where a run is expected.

mod common;
use common::{Scratch, png_size};
use safetensors::SafeTensors;

#[test]
fn codes_go_out_and_come_back() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let said = scratch.run(&[
        "codes",
        "run",
        "--data",
        ".",
        "--split",
        "train",
        "--count",
        "70",
        "--out",
        "codes.safetensors",
    ]);
    let said = said.done();
    assert!(said.contains("codes of 70 images in 2 layers"), "{said}");
    let bytes = scratch.read("codes.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("layer.1").unwrap().shape(), [70, 4, 4]);
    assert_eq!(file.tensor("layer.2").unwrap().shape(), [70, 2, 2]);

    scratch
        .run(&["decode", "run", "codes.safetensors", "--out", "all.png"])
        .done();
    scratch
        .run(&["decode", "run", "codes.safetensors", "--out", "each"])
        .done();
    assert_eq!(std::fs::read_dir(scratch.path("each")).unwrap().count(), 70);
    assert!(png_size(&scratch.read("all.png")).0 > 0);

    // What the prior fills in depends on the temperature and the seed alone.
    let top = |out: &str, more: &[&str]| {
        let args = [
            "decode",
            "--force",
            "run",
            "codes.safetensors",
            "--top",
            "1",
            "--out",
            out,
        ];
        scratch.run(&[&args[..], more].concat()).done();
        scratch.read(out)
    };
    let warm = ["--temperature", "1", "--seed", "3"];
    assert_eq!(top("a.png", &warm), top("b.png", &warm));
    assert_ne!(top("a.png", &warm), top("c.png", &["--temperature", "1"]));
}

/// The class of an image of the CIFAR-10 made here.
fn class(batch: usize, image: usize) -> u8 {
    ((image * 7 + batch) % 10) as u8
}

#[test]
fn labels_of_the_data_go_with_the_codes() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("cifar")).unwrap();
    for batch in 1..=6 {
        // The files have a fixed size; every image is of one grey.
        let mut bytes = vec![0; 10_000 * 3073];
        for (image, record) in bytes.chunks_exact_mut(3073).enumerate() {
            record[1..].fill(class(batch, image) * 20);
            record[0] = class(batch, image);
        }
        let name = match batch {
            6 => "test_batch.bin".into(),
            _ => format!("data_batch_{batch}.bin"),
        };
        scratch.write(&format!("cifar/{name}"), bytes);
    }
    let mut train = vec!["train", "--preset", "tiny-swatches", "--steps", "1"];
    train.extend(["--data", "cifar", "--out", "run"]);
    let sets = ["data.name=cifar10", "model.size=32", "train.eval_every=0"];
    sets.iter().for_each(|set| train.extend(["--set", set]));
    scratch.run(&train).done();
    for (split, batch) in [("train", 1), ("test", 6)] {
        let mut codes = vec!["codes", "run", "--data", "cifar", "--count", "12"];
        codes.extend(["--split", split, "--out", "codes.safetensors", "--force"]);
        let said = scratch.run(&codes).done();
        assert!(said.contains("with labels"), "{said}");
        let bytes = scratch.read("codes.safetensors");
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let labels = file.tensor("labels").unwrap();
        let labels = labels.data().as_chunks::<4>().0.iter();
        let labels: Vec<u32> = labels.map(|four| u32::from_le_bytes(*four)).collect();
        let expected: Vec<u32> = (0..12).map(|i| class(batch, i).into()).collect();
        assert_eq!(labels, expected, "{split}");
    }
}

#[test]
fn arrays_for_numpy_are_one_a_layer() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&["sample", "run", "--count", "1", "--out", "image.png"])
        .done();
    scratch
        .run(&["codes", "run", "image.png", "--out", "tokens.npy"])
        .done();
    for (name, values) in [("tokens.layer-01.npy", 16), ("tokens.layer-02.npy", 4)] {
        let bytes = scratch.read(name);
        assert!(bytes.starts_with(b"\x93NUMPY"), "{name}");
        assert_eq!(bytes.len() % 64, 4 * values % 64, "{name}");
    }
}

#[test]
fn samples_of_an_image_hold_the_layers_above() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let sample = |out: &str, more: &[&str]| {
        let args = ["sample", "run", "--out", out, "--count", "3"];
        scratch.run(&[&args[..], more].concat())
    };
    sample("one.png", &[]).done();
    let given = ["--given", "one.png", "--from-layer"];
    let said = sample("low.png", &[&given[..], &["1"]].concat()).done();
    assert!(said.contains("3 samples, the image first"), "{said}");
    sample("high.png", &[&given[..], &["2"]].concat()).done();
    assert_ne!(scratch.read("low.png"), scratch.read("high.png"));
    // Nothing above the top layer is held; with no noise all draws are the prior's modes.
    let modes = [&given[..], &["2", "--temperature", "0"]].concat();
    sample("modes.png", &modes).done();
    let drawn = image::open(scratch.path("modes.png")).unwrap().to_rgb8();
    let cell = |row: u32, column: u32| {
        let at = |n: u32| n * (8 * 12 + 2) + 40;
        *drawn.get_pixel(at(column), at(row))
    };
    assert_eq!(cell(0, 1), cell(1, 0), "both draws are the same");
    sample("x.png", &[&given[..], &["3"]].concat()).refused(&["--from-layer 3", "1", "2"]);
    let said = sample("x.png", &["--from-layer", "1"]);
    assert!(
        said.code == Some(2) && said.err.contains("--given"),
        "{said:?}"
    );
}

#[test]
fn pixels_are_drawn_where_asked_for() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let sample = |out: &str, more: &[&str]| {
        let args = ["sample", "run", "--count", "2", "--out", out];
        scratch.run(&[&args[..], more].concat()).done();
        scratch.read(out)
    };
    let means = sample("means.png", &[]);
    let drawn = sample("drawn.png", &["--pixels", "drawn"]);
    assert_ne!(drawn, means);
    assert_eq!(drawn, sample("again.png", &["--pixels", "drawn"]));
    assert_ne!(
        drawn,
        sample("other.png", &["--pixels", "drawn", "--seed", "1"])
    );
    scratch
        .run(&["codes", "run", "again.png", "--out", "tokens.safetensors"])
        .done();
    let decode = |out: &str, more: &[&str]| {
        let args = ["decode", "run", "tokens.safetensors", "--out", out];
        scratch.run(&[&args[..], more].concat()).done();
        scratch.read(out)
    };
    assert_ne!(
        decode("shown.png", &[]),
        decode("noisy.png", &["--pixels", "drawn"])
    );
    // Of mixtures rare components can be left out.
    let tile = |out: &str, more: &[&str]| {
        let args = ["sample", "tiles-2", "--count", "1", "--out", out];
        scratch.run(&[&args[..], more].concat())
    };
    for (out, more) in [("all.png", &[][..]), ("large.png", &["--min-p", "0.5"])] {
        tile(out, &[&["--pixels", "drawn"], more].concat()).done();
    }
    assert_ne!(scratch.read("all.png"), scratch.read("large.png"));
    tile("x.png", &["--min-p", "0.5"]).refused(&["--min-p 0.5", "--pixels drawn"]);
    let said = tile("x.png", &["--pixels", "drawn", "--min-p", "2"]);
    assert!(
        said.code == Some(2) && said.err.contains("from 0 to 1"),
        "{said:?}"
    );
}

#[test]
fn samples_are_shown_beside_their_nearest_training_images() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let args = ["neighbours", "run", "--out", "near.png", "--count", "2"];
    let said = scratch
        .run(&[&args[..], &["--nearest", "3"]].concat())
        .done();
    assert!(said.contains("samples to the nearest"), "{said}");
    // Every test image of the swatches is among the training images.
    assert!(
        said.contains("test images to theirs: 0.0 levels in the middle"),
        "{said}"
    );
    // One colour is its own mirror image, and counts as the image itself.
    assert!(said.contains("as training flips them: 0 of 6"), "{said}");
    let (width, height) = common::png_size(&scratch.read("near.png"));
    assert_eq!((width, height), (4 * 98 - 2, 2 * 98 - 2));
}

#[test]
fn mirrored_training_images_are_found_and_named() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pair")).unwrap();
    // Of two images one is for testing; each is the other's mirror image.
    let ramp = |x: usize| [(8 * x) as u8; 3];
    for (name, mirrored) in [("a", false), ("b", true)] {
        let column = |x: usize| ramp(if mirrored { 31 - x } else { x });
        let pixels = (0..32 * 32).flat_map(|i| column(i % 32)).collect();
        let picture = rrvq::picture::Picture::new([32, 32, 3], pixels).unwrap();
        picture
            .save(scratch.path(&format!("pair/{name}.png")))
            .unwrap();
    }
    for (flip, run) in [("true", "flips"), ("false", "plain")] {
        let train = format!(
            "train --preset tiny-swatches --set data.name=folder --data pair --steps 1 --out {run} \
             --set train.batch=1 --set data.flip={flip}"
        );
        let train: Vec<&str> = train.split_whitespace().collect();
        scratch.run(&train).done();
        let near = format!("neighbours {run} --out {run}.png --count 1 --nearest 1 --json");
        let found = scratch.run(&near.split(' ').collect::<Vec<_>>()).json();
        let of_test = &found["test_images"][0][0];
        assert_eq!(found["flips"], flip == "true", "{found}");
        assert_eq!(of_test["mirrored"], flip == "true", "{found}");
        assert_eq!(of_test["distance"] == 0.0, flip == "true", "{found}");
        assert_eq!(of_test["index"], 0, "{found}");
        assert!(found["samples"][0][0]["mirrored"].is_boolean(), "{found}");
    }
}

#[test]
fn mistakes_are_told() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch.write("no.safetensors", "nothing");
    scratch
        .run(&["codes", "run", "--data", ".", "--out", "codes.txt"])
        .refused(&["codes.txt", ".safetensors", ".npy"]);
    scratch
        .run(&["decode", "run", "no.safetensors", "--out", "x.png"])
        .refused(&["no.safetensors holds no codes"]);
    scratch
        .run(&[
            "codes",
            "tiles-2",
            "--data",
            ".",
            "--count",
            "2",
            "--out",
            "c.safetensors",
        ])
        .refused(&["data"]);
    scratch
        .run(&["models", "nothing"])
        .refused(&["there is no built-in model \"nothing\"", "tiles-2"]);
}

#[test]
fn built_in_models_are_taken_wherever_a_run_is() {
    let scratch = Scratch::new();
    let said = scratch.run(&["models"]).done();
    assert!(said.contains("tiles-2"), "{said}");
    scratch
        .run(&["sample", "tiles-2", "--count", "2", "--out", "s.png"])
        .done();
    let said = scratch.run(&["info", "tiles-2"]).done();
    assert!(said.contains("9 layers"), "{said}");
    scratch
        .run(&["reconstruct", "tiles-2", "s.png", "--out", "r.png"])
        .done();
    let said = scratch.run(&["models", "tiles-2"]).done();
    assert!(said.contains("identity"), "{said}");
}
