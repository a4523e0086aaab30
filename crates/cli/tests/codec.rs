//! `rrvq compress` and `rrvq decompress`, as a person uses them.

mod common;
use common::Scratch;
use image::{ColorType, DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};
use std::path::Path;

/// Samples with slopes and some noise.
fn samples(len: usize) -> Vec<u8> {
    let mut seed = 9u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) % 9
    };
    (0..len).map(|i| (i / 7) as u8 ^ next() as u8).collect()
}

/// One image of each colour type, in three formats.
fn images(scratch: &Scratch) -> Vec<&'static str> {
    let save = |name: &str, image: DynamicImage| image.save(scratch.path(name)).unwrap();
    let grey = |w, h| GrayImage::from_raw(w, h, samples((w * h) as usize)).unwrap();
    let colour = |w, h| RgbImage::from_raw(w, h, samples((w * h * 3) as usize)).unwrap();
    save("grey.png", grey(33, 20).into());
    save("photo.jpg", colour(41, 30).into());
    save("lossless.webp", colour(20, 9).into());
    let both = GrayAlphaImage::from_raw(9, 9, samples(162)).unwrap();
    save("both.png", both.into());
    let clear = RgbaImage::from_raw(17, 8, samples(17 * 8 * 4)).unwrap();
    save("clear.png", clear.into());
    vec![
        "grey.png",
        "photo.jpg",
        "lossless.webp",
        "both.png",
        "clear.png",
    ]
}

fn same(scratch: &Scratch, original: &str, folder: &str) {
    let name = Path::new(original).with_extension("png");
    let back = image::open(scratch.path(folder).join(name)).unwrap();
    let original = image::open(scratch.path(original)).unwrap();
    assert_eq!(back.color(), original.color());
    assert_eq!(back.as_bytes(), original.as_bytes());
}

fn compress(scratch: &Scratch, images: &[&str], out: &str, more: &[&str]) -> common::Said {
    let rest = ["-o", out, "--model", "run"];
    scratch.run(&[&["compress"], images, &rest, more].concat())
}

#[test]
fn images_go_into_a_file_and_come_back() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let names = images(&scratch);
    let told = compress(&scratch, &names, "all.rrvq", &["--json"]).json();
    assert_eq!(told["images"], names.len());
    assert_eq!(told["bytes"], scratch.read("all.rrvq").len());
    let said = scratch
        .run(&["decompress", "all.rrvq", "-o", "out", "--model", "run"])
        .done();
    assert!(said.contains("5 images in out"), "{said}");
    names.iter().for_each(|name| same(&scratch, name, "out"));
    // Nothing is replaced unasked, on either way.
    compress(&scratch, &names, "all.rrvq", &[]).refused(&["all.rrvq", "--force"]);
    let again = ["decompress", "all.rrvq", "-o", "out", "--model", "run"];
    scratch.run(&again).refused(&["grey.png", "--force"]);
    scratch.run(&[&again[..], &["--force"]].concat()).done();
    compress(&scratch, &names, "all.rrvq", &["--force"]).done();
}

#[test]
fn names_that_meet_are_told_apart() {
    let scratch = Scratch::new();
    scratch.trained("run");
    images(&scratch);
    std::fs::create_dir(scratch.path("sub")).unwrap();
    std::fs::copy(scratch.path("clear.png"), scratch.path("sub/grey.png")).unwrap();
    compress(&scratch, &["grey.png", "sub/grey.png"], "x.rrvq", &[]).done();
    let decompress = ["decompress", "x.rrvq", "-o", "out", "--model", "run"];
    scratch.run(&decompress).done();
    same(&scratch, "grey.png", "out");
    let second = image::open(scratch.path("out/grey-2.png")).unwrap();
    assert_eq!(second.color(), ColorType::Rgba8);
}

/// The same file on every path, and every path reads it.
#[test]
fn instruction_sets_and_threads_change_nothing() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let large = RgbImage::from_raw(200, 190, samples(200 * 190 * 3)).unwrap();
    large.save(scratch.path("large.png")).unwrap();
    let small = RgbImage::from_raw(40, 20, samples(40 * 20 * 3)).unwrap();
    small.save(scratch.path("small.png")).unwrap();
    let run = |args: &[&str], simd: &str| {
        let mut command = scratch.command(args);
        command.env("RRVQ_SIMD", simd);
        common::Said::from(command.output().unwrap()).done()
    };
    let write = |out: &str, threads: &str, simd: &str| {
        let fixed = ["compress", "large.png", "--model", "run", "-o", out];
        run(&[&fixed[..], &["--threads", threads]].concat(), simd);
        scratch.read(out)
    };
    let first = write("a.rrvq", "1", "portable");
    assert!(write("b.rrvq", "4", "avx2") == first);
    assert!(write("c.rrvq", "2", "avx512") == first);
    run(
        &["decompress", "c.rrvq", "-o", "p", "--model", "run"],
        "portable",
    );
    same(&scratch, "large.png", "p");
    // By the built-in model, whatever the image: its pixels learn from each other, the run's do not.
    let told = |simd: &str| {
        let args = ["bench", "codec", "small.png", "--json"];
        let told: serde_json::Value = serde_json::from_str(&run(&args, simd)).unwrap();
        told["bytes"].as_u64().unwrap()
    };
    let bytes = told("portable");
    assert!(told("avx2") == bytes && told("avx512") == bytes);
}

#[test]
fn nothing_but_the_program_is_needed() {
    let scratch = Scratch::new();
    let names = images(&scratch);
    let args = [&["compress"], &names[..], &["-o", "all.rrvq", "--json"]].concat();
    let told = scratch.run(&args).json();
    assert_eq!(told["images"], names.len());
    scratch.run(&["decompress", "all.rrvq", "-o", "out"]).done();
    names.iter().for_each(|name| same(&scratch, name, "out"));
}

#[test]
fn a_packed_model_is_a_model_of_its_own() {
    let scratch = Scratch::new();
    scratch.trained("run");
    images(&scratch);
    let said = scratch.run(&["pack", "run", "-o", "small"]).done();
    assert!(said.contains("use it with --model"), "{said}");
    let packed = scratch.read("small").len();
    assert!(packed < scratch.read("run/model.safetensors").len() * 2 / 3);
    scratch
        .run(&["pack", "run", "-o", "small"])
        .refused(&["small is there already", "--force"]);
    let with = |model, out| {
        [
            "compress",
            "photo.jpg",
            "-o",
            out,
            "--model",
            model,
            "--json",
        ]
    };
    let packed = scratch.run(&with("small", "a.rrvq")).json();
    let whole = scratch.run(&with("run", "b.rrvq")).json();
    assert_ne!(
        packed["model"], whole["model"],
        "rounding makes another model"
    );
    let back = ["decompress", "a.rrvq", "-o", "out", "--model", "small"];
    scratch.run(&back).done();
    same(&scratch, "photo.jpg", "out");
    let told = scratch.run(&["eval", "small", "--json"]).json();
    let run = scratch.run(&["eval", "run", "--json"]).json();
    let bits = |told: &serde_json::Value| told["bits_per_dim"].as_f64().unwrap();
    assert!((bits(&told) - bits(&run)).abs() < 0.02 * bits(&run));
    let both = ["--prune", "64", "--neighbours", "16"];
    let prune = [&["pack", "run", "-o", "less"][..], &both].concat();
    let said = scratch.run(&prune).done();
    assert!(
        said.contains("codes in use, bottom layer first: "),
        "{said}"
    );
    let told = scratch.run(&with("less", "d.rrvq")).json();
    assert_eq!(told["images"], 1);
    let back = ["decompress", "d.rrvq", "-o", "less-out", "--model", "less"];
    scratch.run(&back).done();
    same(&scratch, "photo.jpg", "less-out");
    scratch.write("other", "not a model");
    scratch
        .run(&with("other", "c.rrvq"))
        .refused(&["other is not a packed model", "rrvq pack"]);
}

#[test]
fn mistakes_end_in_a_sentence() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let names = images(&scratch);
    compress(&scratch, &["none.png"], "x.rrvq", &[]).refused(&["none.png", "no such file"]);
    scratch.write("text.png", "not an image");
    compress(&scratch, &["grey.png", "text.png"], "x.rrvq", &[]).refused(&["text.png", "8 bits"]);
    assert!(!scratch.path("x.rrvq").exists());
    let deep = image::ImageBuffer::<image::Luma<u16>, _>::from_raw(2, 2, vec![7u16; 4]).unwrap();
    DynamicImage::from(deep)
        .save(scratch.path("deep.png"))
        .unwrap();
    compress(&scratch, &["deep.png"], "x.rrvq", &[]).refused(&["deep.png", "16 bits a sample"]);
    let left = scratch.shell("ls -A").done();
    assert!(!left.contains("rrvq-tmp"), "{left}");

    compress(&scratch, &names, "x.rrvq", &[]).done();
    let decompress = |file: &str, model: &str, more: &[&str]| {
        let fixed = ["decompress", file, "-o", "out", "--model", model];
        scratch.run(&[&fixed[..], more].concat())
    };
    decompress("none.rrvq", "run", &[]).refused(&["none.rrvq", "no such file"]);
    decompress("grey.png", "run", &[]).refused(&["grey.png", "rrvq compress"]);
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "3",
        "--out",
        "other",
    ];
    scratch.run(&train).done();
    decompress("x.rrvq", "other", &[]).refused(&["x.rrvq", "other", "model"]);
    scratch
        .run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "1",
            "--out",
            "bells",
            "--set",
            "model.latent=gaussian",
        ])
        .done();
    scratch
        .run(&["compress", "grey.png", "-o", "y.rrvq", "--model", "bells"])
        .refused(&["gaussian"]);
    let mut bytes = scratch.read("x.rrvq");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    scratch.write("bent.rrvq", &bytes);
    decompress("bent.rrvq", "run", &[]).refused(&["bent.rrvq", "--keep-going"]);
    assert!(!scratch.path("out").exists());
    let said = decompress("bent.rrvq", "run", &["--keep-going"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("of 5 images could be had"), "{said:?}");
    scratch.write("short.rrvq", &scratch.read("x.rrvq")[..middle]);
    decompress("short.rrvq", "run", &[]).refused(&["short.rrvq", "ends too early"]);
}

/// A file of an earlier day, with its model, must decode to the pixels it was made of. Never make it anew: it is there
/// so that a change of the arithmetic or of the format cannot go unnoticed.
#[test]
fn the_golden_file_decodes() {
    let scratch = Scratch::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-codec");
    let path = |name: &str| here.join(name).to_str().unwrap().to_string();
    let args = [
        "decompress",
        &path("golden.rrvq"),
        "-o",
        "out",
        "--model",
        &path("run"),
    ];
    scratch.run(&args).done();
    scratch
        .run(&["decompress", &path("golden.rrvq"), "-o", "bare"])
        .refused(&["need the model", "--model RUN"]);
    for name in ["photo", "grey", "drawing"] {
        let back = scratch.path(&format!("out/{name}.png"));
        common::same_pictures(&back, &here.join(format!("{name}.png")));
    }
}

/// The same for version 3: chains, a second list and a second header, metadata. Never make it anew.
#[test]
fn the_golden_file_of_version_3_decodes() {
    let scratch = Scratch::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-codec");
    let path = |name: &str| here.join(name).to_str().unwrap().to_string();
    let (file, model) = (path("version-3/golden.rrvq"), path("run"));
    let args = ["decompress", &file, "-o", "out", "--model", &model];
    scratch.run(&args).done();
    for (name, original) in [
        ("wide", "version-3/wide"),
        ("photo", "photo"),
        ("grey", "grey"),
        ("grey-16", "grey"),
        ("drawing", "drawing"),
    ] {
        let back = scratch.path(&format!("out/{name}.png"));
        common::same_pictures(&back, &here.join(format!("{original}.png")));
    }
    let wide = scratch.read("out/wide.png");
    for chunk in [
        &b"tEXtTitle\0two halves"[..],
        b"gAMA\0\0\xb1\x8f",
        b"pHYs\0\0.#\0\0.#\x01",
    ] {
        assert!(wide.windows(chunk.len()).any(|here| here == chunk));
    }
}

#[test]
fn speed_is_measured() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let told = scratch
        .run(&[
            "bench", "codec", "--model", "run", "--count", "20", "--json",
        ])
        .json();
    assert_eq!(told["images"], 20);
    for side in ["one", "all"] {
        for key in [
            "write_mb_per_second",
            "read_mb_per_second",
            "write_coder_share",
        ] {
            assert!(told[side][key].as_f64().unwrap() > 0.0, "{told}");
        }
    }
}
