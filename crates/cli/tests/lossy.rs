//! `rrvq compress --lossy` and what can be had of its files, as a person uses them.

mod common;
use common::{Said, Scratch};
use image::{GrayImage, RgbImage, RgbaImage};
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

/// A trained model and three images.
fn scene() -> Scratch {
    let scratch = Scratch::new();
    scratch.trained("run");
    let photo = RgbImage::from_raw(41, 30, samples(41 * 30 * 3)).unwrap();
    photo.save(scratch.path("photo.png")).unwrap();
    let grey = GrayImage::from_raw(20, 9, samples(180)).unwrap();
    grey.save(scratch.path("grey.png")).unwrap();
    let clear = RgbaImage::from_raw(17, 8, samples(17 * 8 * 4)).unwrap();
    clear.save(scratch.path("clear.png")).unwrap();
    scratch
}

fn compress(scratch: &Scratch, out: &str, more: &[&str]) -> Said {
    let fixed = ["compress", "photo.png", "grey.png", "clear.png", "--lossy"];
    scratch.run(&[&fixed[..], &["--model", "run", "-o", out], more].concat())
}

fn decompress(scratch: &Scratch, file: &str, out: &str, more: &[&str]) -> Said {
    let fixed = ["decompress", file, "-o", out, "--model", "run"];
    scratch.run(&[&fixed[..], more].concat())
}

#[test]
fn images_go_into_a_small_file_and_can_be_looked_at() {
    let scratch = scene();
    let told = compress(&scratch, "all.rrvq", &["--json"]).json();
    assert_eq!(told["bytes"], scratch.read("all.rrvq").len());
    assert!(told["psnr"].as_f64().unwrap() > 3.0, "{told}");
    assert_eq!(told["dropped"], serde_json::json!([0, 0]));
    let said = decompress(&scratch, "all.rrvq", "out", &[]).done();
    assert!(said.contains("3 images in out"), "{said}");
    for name in ["photo.png", "grey.png", "clear.png"] {
        let back = image::open(scratch.path("out").join(name)).unwrap();
        let original = image::open(scratch.path(name)).unwrap();
        assert_eq!(back.color(), original.color());
        assert_eq!(back.width(), original.width());
    }
    let alpha = |path: &str| {
        let image = image::open(scratch.path(path)).unwrap().into_rgba8();
        image.pixels().map(|pixel| pixel[3]).collect::<Vec<u8>>()
    };
    assert_eq!(alpha("out/clear.png"), alpha("clear.png"));
    // Fewer layers, fewer bytes; and a budget is kept.
    let less = compress(&scratch, "less.rrvq", &["--drop", "1", "--json"]).json();
    assert!(less["code_bytes"].as_u64() < told["code_bytes"].as_u64());
    let budget = compress(&scratch, "b.rrvq", &["--bits", "0.5", "--json"]).json();
    assert!(
        budget["code_bytes"].as_f64().unwrap() * 8.0 <= 0.5 * budget["pixels"].as_f64().unwrap()
    );
    let searched = compress(&scratch, "s.rrvq", &["--search"]).done();
    assert!(
        searched.contains("dB") && searched.contains("all layers kept"),
        "{searched}"
    );
    compress(&scratch, "all.rrvq", &[]).refused(&["all.rrvq", "--force"]);
}

/// Without --model, a built-in one of the quality that is asked for writes, and no model need be named to read.
#[test]
fn three_qualities_are_built_in() {
    let scratch = scene();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-codec/photo.png");
    std::fs::copy(golden, scratch.path("real.png")).unwrap();
    let run = |out: &str, more: &[&str]| {
        let fixed = ["compress", "real.png", "clear.png", "--lossy", "-o", out];
        scratch.run(&[&fixed[..], more].concat())
    };
    let number = |told: &serde_json::Value, key: &str| told[key].as_f64().unwrap();
    let told = ["low", "medium", "high"].map(|quality| {
        let out = format!("{quality}.rrvq");
        let told = run(&out, &["--quality", quality, "--json"]).json();
        let shown = format!("{quality}-shown");
        scratch.run(&["decompress", &out, "-o", &shown]).done();
        assert!(scratch.path(&shown).join("real.png").exists());
        told
    });
    for pair in told.windows(2) {
        assert!(
            number(&pair[0], "bytes") < number(&pair[1], "bytes"),
            "{told:?}"
        );
        assert!(
            number(&pair[0], "psnr") < number(&pair[1], "psnr"),
            "{told:?}"
        );
        assert!(pair[0]["model"] != pair[1]["model"]);
    }
    let plain = run("plain.rrvq", &["--json"]).json();
    assert_eq!(plain["model"], told[1]["model"]);
    // A budget takes whichever is best within it.
    let high = number(&told[2], "bits_per_pixel");
    let roomy = run(
        "roomy.rrvq",
        &["--bits", &format!("{}", 4.0 * high), "--json"],
    )
    .json();
    assert_eq!(roomy["model"], told[2]["model"]);
    let tight = run("tight.rrvq", &["--bits", "0.9", "--json"]).json();
    let codes = 8.0 * number(&tight, "code_bytes") / number(&tight, "pixels");
    assert!(
        codes <= 0.9 && number(&tight, "psnr") < number(&told[2], "psnr"),
        "{tight}"
    );
    // Sides of tiles: those that fit the model.
    let larger = run("large.rrvq", &["--tile", "128", "--json"]).json();
    assert_eq!(larger["model"], plain["model"]);
    scratch
        .run(&["decompress", "large.rrvq", "-o", "large"])
        .done();
    let listed = scratch
        .run(&["codec", "list", "large.rrvq", "--json"])
        .json();
    assert_eq!(listed["images"][0]["tile"], 128, "{listed}");
    let table = scratch.run(&["codec", "list", "large.rrvq"]).done();
    assert!(table.contains("all layers, tiles of 128×128"), "{table}");
    run("x.rrvq", &["--tile", "33"])
        .refused(&["tiles of side 33", "choose one of 16, 32, 64, 128, 256"]);
    for wrong in [["--quality", "best"], ["--quality", "1"]] {
        assert_eq!(run("x.rrvq", &wrong).code, Some(2));
    }
    let both = run("x.rrvq", &["--quality", "low", "--model", "run"]);
    assert!(
        both.code == Some(2) && both.err.contains("--model"),
        "{both:?}"
    );
    assert!(!scratch.path("x.rrvq").exists());
}

/// The blocks of a file of up to 127 images: their kinds, and where what is in them begins.
fn blocks(file: &[u8]) -> Vec<(u8, usize)> {
    let (mut at, mut found) = (13, Vec::new());
    while at < file.len() {
        let kind = file[at];
        let (mut len, mut shift) = (0, 0);
        loop {
            at += 1;
            len |= (file[at] as usize & 127) << shift;
            shift += 7;
            if file[at] < 128 {
                break;
            }
        }
        found.push((kind, at + 1));
        at += 1 + len + 4;
    }
    found
}

/// Damage is told with an exit code whatever was asked for, and a missing end only where it was not: also where it is in a list of
/// images behind the first.
#[test]
fn a_damaged_list_is_not_taken_for_a_missing_end() {
    let scratch = Scratch::new();
    let names: Vec<String> = (0..4).map(|i| format!("{i}.png")).collect();
    // Tiles of two sides, so two lists.
    for (name, (width, height)) in names
        .iter()
        .zip([(32, 32), (30, 32), (256, 250), (250, 256)])
    {
        let picture = RgbImage::from_raw(width, height, samples((width * height * 3) as usize));
        picture.unwrap().save(scratch.path(name)).unwrap();
    }
    let mut args: Vec<&str> = names.iter().map(String::as_str).collect();
    args.splice(0..0, ["compress"]);
    args.extend(["--lossy", "--quality", "low", "-o", "all.rrvq"]);
    scratch.run(&args).done();
    let whole = scratch.read("all.rrvq");
    let lists = blocks(&whole).into_iter();
    let lists: Vec<(u8, usize)> = lists.filter(|(kind, _)| b"Ii".contains(kind)).collect();
    assert_eq!(lists.len(), 2);
    let inside = lists[1].1;
    let read = |name: &str, bytes: &[u8]| {
        scratch.write(&format!("{name}.rrvq"), bytes);
        let file = format!("{name}.rrvq");
        scratch.run(&["decompress", &file, "-o", name, "--partial"])
    };
    let mut damaged = whole.clone();
    damaged[inside] ^= 4;
    let said = read("damaged", &damaged);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("a list of images is damaged"), "{said:?}");
    assert!(said.err.contains("2 of 4 images could be had"), "{said:?}");
    let said = read("cut", &whole[..inside]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("2 of 4 images in cut"), "{said:?}");
    assert!(
        said.err.contains("the list of its 2 remaining images"),
        "{said:?}"
    );
}

#[test]
fn what_is_no_use_is_told() {
    let scratch = scene();
    let run = |out: &str, more: &[&str]| {
        let fixed = ["compress", "photo.png", "--lossy", "-o", out];
        scratch.run(&[&fixed[..], more].concat())
    };
    for (bits, none) in [("1e-6", true), ("2", false)] {
        let said = run(&format!("{bits}.rrvq"), &["--bits", bits]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(
            said.err.contains("nothing of them is kept"),
            none,
            "{said:?}"
        );
    }
    let flat = RgbImage::from_pixel(64, 64, image::Rgb([9, 9, 9]));
    flat.save(scratch.path("flat.png")).unwrap();
    let said = scratch.run(&["compress", "flat.png", "--lossy", "-o", "flat.rrvq"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let given = std::fs::metadata(scratch.path("flat.png")).unwrap().len();
    let told = said.err.contains("no smaller than the images were");
    assert_eq!(
        told,
        scratch.read("flat.rrvq").len() as u64 >= given,
        "{said:?}"
    );
}

#[test]
fn a_cut_file_shows_what_there_is_when_asked_to() {
    let scratch = scene();
    compress(&scratch, "all.rrvq", &[]).done();
    let whole = scratch.read("all.rrvq");
    scratch.write("cut.rrvq", &whole[..whole.len() / 2]);
    decompress(&scratch, "cut.rrvq", "no", &[]).refused(&["cut.rrvq", "--partial", "--keep-going"]);
    assert!(!scratch.path("no").exists());
    let said = decompress(&scratch, "cut.rrvq", "part", &["--partial"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("cut.rrvq is cut off"), "{said:?}");
    assert!(said.err.contains("% of its codes are there"), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    for name in ["photo", "grey", "clear"] {
        assert!(scratch.path(&format!("part/{name}.png")).exists());
    }
    // Whole images only, with --keep-going.
    scratch.write("end.rrvq", &whole[..whole.len() - 1]);
    let said = decompress(&scratch, "end.rrvq", "some", &["--keep-going"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("2 of 3 images could be had"), "{said:?}");
    // Before the list there is nothing to show.
    scratch.write("start.rrvq", &whole[..20]);
    decompress(&scratch, "start.rrvq", "none", &["--partial"])
        .refused(&["start.rrvq", "ends before"]);
    // Damage is another matter.
    let mut bent = whole.clone();
    let middle = whole.len() / 2;
    bent[middle] ^= 1;
    scratch.write("bent.rrvq", &bent);
    decompress(&scratch, "bent.rrvq", "no", &[]).refused(&["bent.rrvq", "damaged"]);
    let said = decompress(&scratch, "bent.rrvq", "bent", &["--partial"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("damaged"), "{said:?}");
}

#[test]
fn mistakes_end_in_a_sentence() {
    let scratch = scene();
    compress(&scratch, "x.rrvq", &["--drop", "9"]).refused(&["9 layers", "has 2"]);
    compress(&scratch, "x.rrvq", &["--bits", "0"]).refused(&["bits a pixel"]);
    compress(&scratch, "x.rrvq", &["--search", "--bit-worth", "nan"]).refused(&["worth"]);
    assert!(!scratch.path("x.rrvq").exists());
    let both = compress(&scratch, "x.rrvq", &["--bits", "1", "--drop", "1"]);
    assert_eq!(both.code, Some(2));
    let alone = ["compress", "photo.png", "-o", "l.rrvq", "--model", "run"];
    let said = scratch.run(&[&alone[..], &["--drop", "1"]].concat());
    assert!(
        said.code == Some(2) && said.err.contains("--lossy"),
        "{said:?}"
    );
    scratch.run(&alone).done();
    decompress(&scratch, "l.rrvq", "out", &["--partial"]).refused(&["l.rrvq", "--keep-going"]);
    compress(&scratch, "x.rrvq", &[]).done();
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
    scratch
        .run(&["decompress", "x.rrvq", "-o", "out", "--model", "other"])
        .refused(&["x.rrvq", "model", "name the run"]);
    scratch
        .run(&["decompress", "x.rrvq", "-o", "out"])
        .refused(&["--model RUN"]);
}

/// The same file on every path, and the same picture.
#[test]
fn instruction_sets_and_threads_change_nothing() {
    let scratch = scene();
    let run = |args: &[&str], simd: &str| {
        let mut command = scratch.command(args);
        command.env("RRVQ_SIMD", simd);
        Said::from(command.output().unwrap()).done()
    };
    let write = |out: &str, threads: &str, simd: &str| {
        let fixed = [
            "compress",
            "photo.png",
            "--lossy",
            "--search",
            "--model",
            "run",
        ];
        run(
            &[&fixed[..], &["-o", out, "--threads", threads]].concat(),
            simd,
        );
        let folder = format!("{out}-shown");
        run(&["decompress", out, "-o", &folder, "--model", "run"], simd);
        (
            scratch.read(out),
            scratch.read(&format!("{folder}/photo.png")),
        )
    };
    let first = write("a.rrvq", "1", "portable");
    assert!(write("b.rrvq", "4", "avx2") == first);
    assert!(write("c.rrvq", "2", "avx512") == first);
}

/// A file of an earlier day, with its model, must show the pixels it showed then. Never make it anew: it is there so that
/// a change of the arithmetic or of the format cannot go unnoticed.
#[test]
fn the_golden_file_shows_what_it_showed() {
    let scratch = Scratch::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-codec");
    let path = |name: &str| here.join(name).to_str().unwrap().to_string();
    for (version, names) in [
        ("lossy", &["photo", "grey", "drawing"][..]),
        ("version-4", &["wide", "drawing"]),
        ("version-5", &["photo", "grey", "drawing"]),
    ] {
        let (file, model) = (path(&format!("{version}/golden.rrvq")), path("run"));
        let args = ["decompress", &file, "-o", version, "--model", &model];
        scratch.run(&args).done();
        for name in names {
            let name = format!("{version}/{name}.png");
            common::same_pictures(&scratch.path(&name), &here.join(&name));
        }
    }
}

/// Files of each built-in model find it by themselves and show what they showed on their day. Never make them anew.
#[test]
fn every_built_in_model_still_reads_its_files() {
    let scratch = Scratch::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-codec/built-in");
    for name in [
        "tiles",
        "tiles-2",
        "photos-low",
        "photos-medium",
        "photos-high",
    ] {
        let file = here.join(format!("{name}.rrvq"));
        let args = ["decompress", file.to_str().unwrap(), "-o", name];
        scratch.run(&args).done();
        let back = scratch.path(&format!("{name}/photo.png"));
        common::same_pictures(&back, &here.join(format!("{name}.png")));
    }
}
