//! `rrvq codec eval`, as a person uses it. The path is that of the test alone, so that what is installed changes nothing.

mod common;
use common::{Said, Scratch};
use image::{DynamicImage, GrayImage, RgbImage, RgbaImage};
use serde_json::Value;

fn samples(len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 5) as u8 ^ (i * i % 7) as u8)
        .collect()
}

/// A folder of images of several kinds and sizes.
fn images(scratch: &Scratch) {
    std::fs::create_dir(scratch.path("images")).unwrap();
    let save =
        |name: &str, image: DynamicImage| image.save(scratch.path("images").join(name)).unwrap();
    save(
        "a.png",
        RgbImage::from_raw(40, 30, samples(3600)).unwrap().into(),
    );
    save(
        "b.png",
        GrayImage::from_raw(24, 17, samples(408)).unwrap().into(),
    );
    save(
        "c.webp",
        RgbaImage::from_raw(16, 16, samples(1024)).unwrap().into(),
    );
}

/// Programs are looked for in `programs` alone.
fn eval(scratch: &Scratch, more: &[&str]) -> Said {
    let mut command = scratch.command(&[&["codec", "eval"], more].concat());
    command.env("PATH", scratch.path("programs"));
    Said::from(command.output().unwrap())
}

fn find<'a>(rows: &'a Value, codec: &str) -> Vec<&'a Value> {
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["codec"] == codec).collect()
}

#[test]
fn tiles_have_the_side_that_is_asked_for() {
    let scratch = Scratch::new();
    scratch.trained("run");
    images(&scratch);
    let bytes = |tile: &[&str]| {
        let all = ["run", "images", "--lossy", "--images", "1", "--json"];
        let told = eval(&scratch, &[&all, tile].concat()).json();
        let rows = find(&told["lossy"], "rrvq, one file");
        rows[0]["bytes"].as_u64().unwrap()
    };
    assert_ne!(bytes(&[]), bytes(&["--tile", "16"]));
    eval(&scratch, &["run", "images", "--tile", "33"])
        .refused(&["tiles of side 33", "choose one of"]);
    let both = eval(&scratch, &["run", "images", "--tile", "16", "--lossless"]);
    assert_eq!(both.code, Some(2));
}

#[test]
fn codecs_are_compared_on_a_folder() {
    let scratch = Scratch::new();
    scratch.trained("run");
    images(&scratch);
    let told = eval(
        &scratch,
        &["run", "images", "--search", "--out", "out", "--json"],
    )
    .json();
    assert_eq!(
        (&told["images"], &told["pixels"]),
        (&3.into(), &(1200 + 408 + 256).into())
    );
    assert_eq!(told["samples"], 3600 + 408 + 1024);
    for (codec, count) in [
        ("rrvq, one file", 2),
        ("rrvq, a file an image", 1),
        ("PNG", 1),
    ] {
        let rows = find(&told["lossless"], codec);
        assert_eq!(rows.len(), count, "{codec}");
        assert_eq!(rows[0]["images_equal"], 3, "{codec}");
        let (bytes, header) = (
            rows[0]["bytes"].as_u64().unwrap(),
            rows[0]["header_bytes"].as_u64().unwrap(),
        );
        assert!(0 < header && header < bytes, "{codec}");
        let bits = rows[0]["bits_per_pixel"].as_f64().unwrap();
        assert!((bits - 8.0 * bytes as f64 / 1864.0).abs() < 1e-9, "{codec}");
    }
    // Every layer is a point; what is kept is never smaller with one more.
    let layers = find(&told["lossy"], "rrvq, one file");
    assert!(layers.len() > 1);
    let sizes: Vec<u64> = layers
        .iter()
        .map(|row| row["bytes"].as_u64().unwrap())
        .collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!(
        find(&told["lossy"], "rrvq, a file an image").len(),
        layers.len()
    );
    assert_eq!(
        find(&told["lossy"], "rrvq, one file, searched").len(),
        layers.len()
    );
    let jpeg = find(&told["lossy"], "JPEG");
    let quality = |row: &Value| row["psnr"].as_f64().unwrap();
    assert_eq!(jpeg.len(), 11);
    assert!(quality(jpeg[0]) < quality(jpeg[10]));
    let missing: Vec<&str> = told["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["why"].as_str().unwrap())
        .collect();
    assert!(find(&told["lossless"], "WebP lossless").is_empty());
    assert_eq!(told["prefixes"].as_array().unwrap().len(), 21);
    for program in ["cjxl", "avifenc", "cjpeg", "cwebp"] {
        assert!(
            missing.iter().any(|why| why.contains(program)),
            "{program}: {missing:?}"
        );
    }
    let page = String::from_utf8(scratch.read("out/report.html")).unwrap();
    assert!(page.contains("WebP lossless") && page.contains("cwebp was not found"));
    for chart in [
        "psnr.svg",
        "psnr-without-headers.svg",
        "ms-ssim.svg",
        "prefixes.svg",
    ] {
        let svg = String::from_utf8(scratch.read(&format!("out/{chart}"))).unwrap();
        assert!(svg.contains("rrvq, ") && !svg.contains("NaN"), "{chart}");
    }
    // Four rows of three pictures, as large as the smallest image's sides.
    let (width, height) = common::png_size(&scratch.read("out/pictures.png"));
    assert_eq!((width, height), (3 * 16 * 6 + 8, 4 * 16 * 6 + 12));
}

#[test]
fn a_run_has_images_of_its_own() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let said = eval(&scratch, &["run", "--images", "4"]).done();
    assert!(
        said.starts_with("run on the first 4 test images of swatches\n"),
        "{said}"
    );
    for words in [
        "PNG, one sheet",
        "left out: WebP (cwebp was not found on PATH)",
        "over images, 1 scale",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

#[test]
fn what_has_a_loss_can_be_left_out() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let told = eval(&scratch, &["run", "--images", "4", "--lossless", "--json"]).json();
    assert_eq!(told["lossy"], serde_json::json!([]));
    // The model, then plain prediction alone: neither is above the other's choice.
    let ours = find(&told["lossless"], "rrvq, one file");
    let bytes = |row: &Value| row["bytes"].as_u64().unwrap();
    assert!(bytes(ours[0]) <= bytes(ours[1]), "{ours:?}");
    assert_eq!(ours[1]["encoder"], "plain prediction alone");
}

#[test]
fn so_can_what_has_none() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let args = ["run", "--images", "4", "--lossy"];
    let told = eval(&scratch, &[&args[..], &["--json"]].concat()).json();
    assert_eq!(told["lossless"], serde_json::json!([]));
    assert!(!told["lossy"].as_array().unwrap().is_empty(), "{told}");
    let said = eval(&scratch, &args).done();
    assert!(!said.contains("plain prediction"), "{said}");
    let both = eval(&scratch, &[&args[..], &["--lossless"]].concat());
    assert_eq!(both.code, Some(2));
}

/// A program that fails is named with what it said, and the others go on.
#[cfg(unix)]
#[test]
fn a_program_that_fails_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    scratch.trained("run");
    std::fs::create_dir(scratch.path("programs")).unwrap();
    scratch.write(
        "programs/cwebp",
        "#!/bin/sh\necho out of order >&2\nexit 1\n",
    );
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path("programs/cwebp"), mode).unwrap();
    let told = eval(&scratch, &["run", "--images", "2", "--json"]).json();
    let left = find(&told["left_out"], "WebP");
    assert_eq!(left.len(), 1);
    assert!(
        left[0]["why"].as_str().unwrap().contains("out of order"),
        "{left:?}"
    );
    assert!(find(&told["lossy"], "WebP").is_empty());
    assert_eq!(find(&told["lossy"], "JPEG").len(), 11);
}

#[test]
fn mistakes_end_in_a_sentence() {
    let scratch = Scratch::new();
    scratch.trained("run");
    std::fs::create_dir(scratch.path("empty")).unwrap();
    eval(&scratch, &["run", "none"]).refused(&["none", "no such file"]);
    eval(&scratch, &["run", "empty"]).refused(&["empty", "no data set"]);
    eval(&scratch, &["empty"]).refused(&["empty"]);
    scratch.write("file", "x");
    eval(&scratch, &["run", "--images", "2", "--out", "file/below"]).refused(&["file/below"]);
}
