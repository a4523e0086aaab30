//! Data sets through the real program: what is in a folder is recognised, drawn and trained on.

mod common;
use common::Scratch;

/// A folder of 30 images of one colour each, 6×4 pixels.
fn photos(scratch: &Scratch) {
    std::fs::create_dir_all(scratch.path("photos/more")).unwrap();
    for i in 0..30u8 {
        let image = image::RgbImage::from_pixel(6, 4, image::Rgb([i * 8, 40, 200]));
        let folder = if i % 2 == 0 { "photos" } else { "photos/more" };
        image
            .save(scratch.path(&format!("{folder}/{i}.png")))
            .unwrap();
    }
}

/// Grey images of 4×4 pixels in idx files.
fn digits(scratch: &Scratch) {
    std::fs::create_dir_all(scratch.path("digits")).unwrap();
    for (name, count) in [("train-images", 40u8), ("t10k-images", 8)] {
        let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 4];
        bytes.extend((0..count as usize * 16).map(|i| (i * 7) as u8));
        scratch.write(&format!("digits/{name}-idx3-ubyte"), bytes);
    }
}

fn info(scratch: &Scratch, args: &[&str]) -> serde_json::Value {
    let all = [&["data", "info", "--json"], args].concat();
    serde_json::from_str(&scratch.run(&all).done()).unwrap()
}

#[test]
fn damaged_images_end_a_training_or_are_left_out_with_a_word() {
    let scratch = Scratch::new();
    photos(&scratch);
    scratch.write("photos/4.png", b"no picture");
    let train =
        "train --preset tiny-swatches --set data.name=folder --data photos --steps 1 --out run";
    let train: Vec<&str> = train.split(' ').collect();
    scratch.run(&train).refused(&["photos/4.png"]);
    let said = scratch.run(&[&train[..], &["--skip-damaged"]].concat());
    assert!(
        said.err.contains("1 damaged images are left out"),
        "{said:?}"
    );
    assert!(said.err.contains("photos/4.png"), "{said:?}");
    said.done();
    // The run knows it, so that later commands see the same images.
    scratch.run(&["eval", "run"]).done();
}

/// Opening a pipe would wait for ever.
#[cfg(unix)]
#[test]
fn a_pipe_in_a_folder_of_images_is_named() {
    let scratch = Scratch::new();
    photos(&scratch);
    let made = scratch.shell("mkfifo photos/pipe.png");
    assert_eq!(made.code, Some(0), "{made:?}");
    let train =
        "train --preset tiny-swatches --steps 1 --out run --data photos --set data.name=folder";
    let said = scratch.run(&train.split(' ').collect::<Vec<_>>());
    said.refused(&["photos/pipe.png", "a pipe or a device"]);
}

#[test]
fn a_folder_of_images_is_recognised_and_drawn() {
    let scratch = Scratch::new();
    photos(&scratch);
    let found = info(
        &scratch,
        &["photos", "--size", "16", "--sheet", "sheet.png"],
    );
    assert_eq!(found["name"], "folder");
    assert_eq!(found["shape"], serde_json::json!([16, 16, 3]));
    let (train, test) = (
        found["train"].as_u64().unwrap(),
        found["test"].as_u64().unwrap(),
    );
    assert!(train + test == 30 && test > 0 && train > 20, "{found}");
    let sheet = image::open(scratch.path("sheet.png")).unwrap().to_rgb8();
    // The first training image by path; those of the folder itself come before the folder below.
    let [red, green, blue] = sheet.get_pixel(3, 3).0;
    assert!(
        red.is_multiple_of(16) && (green, blue) == (40, 200),
        "{red}"
    );
    let said = scratch.run(&["data", "info", "photos"]).done();
    assert!(
        said.contains("data.name = \"folder\"") && said.contains(&train.to_string()),
        "{said}"
    );
}

#[test]
fn grey_digits_are_recognised_and_trained_on() {
    let scratch = Scratch::new();
    digits(&scratch);
    let found = info(&scratch, &["digits"]);
    assert_eq!(
        (&found["name"], &found["train"], &found["test"]),
        (&"idx".into(), &40.into(), &8.into())
    );
    assert_eq!(found["shape"], serde_json::json!([4, 4, 1]));
    let train = |settings: &[&str], data: &str, out: &str| {
        let mut args = vec!["train", "--preset", "tiny-swatches", "--steps", "2"];
        args.extend(["--data", data, "--out", out]);
        settings.iter().for_each(|s| args.extend(["--set", *s]));
        scratch.run(&args)
    };
    let grey = [
        "data.name=idx",
        "model.size=4",
        "model.maps=[2,1]",
        "model.image_channels=1",
    ];
    train(&grey, "digits", "grey").done();
    scratch
        .run(&["sample", "grey", "--out", "grey.png", "--count", "4"])
        .done();
    train(&grey[..3], "digits", "colour").refused(&["4×4×1", "model.image_channels"]);
    photos(&scratch);
    train(&["data.name=folder"], "photos", "photographs").done();
}

#[test]
fn labels_are_counted_where_there_are_some() {
    let scratch = Scratch::new();
    digits(&scratch);
    assert_eq!(info(&scratch, &["digits"])["labels"], serde_json::json!({}));
    let said = scratch.run(&["data", "info", "digits"]).done();
    assert!(!said.contains("label"), "{said}");
    for (name, count) in [("train-labels", 40u8), ("t10k-labels", 8)] {
        let mut bytes = vec![0, 0, 8, 1, 0, 0, 0, count];
        bytes.extend((0..count).map(|i| 3 * (i % 3)));
        scratch.write(&format!("digits/{name}-idx1-ubyte"), bytes);
    }
    assert_eq!(
        info(&scratch, &["digits"])["labels"],
        serde_json::json!({"0": [14, 3], "3": [13, 3], "6": [13, 2]})
    );
    let said = scratch.run(&["data", "info", "digits"]).done();
    let row = |words: [&str; 3]| {
        let is = |line: &str| line.split_whitespace().eq(words);
        assert!(said.lines().any(is), "{words:?} is not in {said}");
    };
    row(["label", "train", "test"]);
    row(["0", "14", "3"]);
    row(["6", "13", "2"]);
}

#[test]
fn what_is_not_recognised_or_unreadable_is_refused() {
    let scratch = Scratch::new();
    let look = |dir: &str| scratch.run(&["data", "info", dir, "--sheet", "sheet.png"]);
    look("nowhere").refused(&["nowhere", "there is no such file or folder"]);
    std::fs::create_dir_all(scratch.path("notes")).unwrap();
    scratch.write("notes/readme.txt", "nothing to see");
    look("notes").refused(&["notes", "no data set that is known", "train_32x32.mat"]);
    look("notes/readme.txt").refused(&["readme.txt", "no data set that is known"]);
    scratch.write("notes/train_32x32.mat", "MATLAB 5.0 MAT-file, cut short");
    look("notes").refused(&["train_32x32.mat", "ends at byte 30"]);
    digits(&scratch);
    scratch.write("digits/t10k-images-idx3-ubyte", [0, 0, 8, 3, 0]);
    look("digits").refused(&["t10k-images-idx3-ubyte", "ends at byte 5"]);
    photos(&scratch);
    for i in 0..30 {
        scratch.write(&format!("photos/{i}.jpg"), "not a picture");
    }
    look("photos").refused(&[".jpg as an image", "expected a PNG"]);
    assert!(!scratch.path("sheet.png").exists());
}

#[test]
fn crops_are_settings_and_mistakes_in_them_are_refused() {
    let scratch = Scratch::new();
    photos(&scratch);
    let plain = info(&scratch, &["photos"]);
    let random = [
        "photos",
        "--set",
        "data.crop=random",
        "--set",
        "data.crops=3",
    ];
    let several = info(&scratch, &random);
    for split in ["train", "test"] {
        let count = |found: &serde_json::Value| found[split].as_u64().unwrap();
        assert_eq!(count(&several), 3 * count(&plain), "{split}");
    }
    let look = |dir: &str, set: &str| {
        scratch.run(&[
            "data", "info", dir, "--sheet", "s.png", "--force", "--set", set,
        ])
    };
    look("photos", "data.crop=[0,0,4,4]").done();
    look("photos", "data.crop=[0,0,4,3]").refused(&["data.crop", "a square"]);
    look("photos", "data.crop=[2,0,8,6]").refused(&["6×4 pixels", "(2, 0) to (8, 6)"]);
    look("photos", "data.crop=middle").refused(&["data.crop", "\"random\""]);
    look("photos", "data.crops=3").refused(&["data.crops", "data.crop = \"random\""]);
    digits(&scratch);
    look("digits", "data.crop=centre").refused(&["data.crop", "idx"]);
}

#[test]
fn parquet_files_are_recognised_and_trained_on() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("hub/data")).unwrap();
    let sample = include_bytes!("../../data/src/parquet/samples/hub.parquet");
    for split in ["train", "test"] {
        scratch.write(&format!("hub/data/{split}-00000-of-00001.parquet"), sample);
    }
    let found = info(&scratch, &["hub", "--size", "8", "--sheet", "sheet.png"]);
    assert_eq!(
        (&found["name"], &found["train"], &found["test"]),
        (&"parquet".into(), &7.into(), &7.into())
    );
    let sheet = image::open(scratch.path("sheet.png")).unwrap().to_rgb8();
    assert_eq!(sheet.get_pixel(3, 3).0, [0, 100, 200]);
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "2",
        "--data",
        "hub",
        "--out",
        "run",
    ];
    let all = [&train[..], &["--set", "data.name=parquet"]].concat();
    scratch.run(&all).done();
    let cut = &sample[..sample.len() - 20];
    scratch.write("hub/data/test-00000-of-00001.parquet", cut);
    let said = scratch.run(&["data", "info", "hub"]);
    said.refused(&[
        "test-00000-of-00001.parquet",
        &format!("byte {}", cut.len()),
    ]);
}

#[test]
fn a_large_set_is_decoded_once_and_a_damaged_copy_is_not_trusted() {
    let scratch = Scratch::new();
    photos(&scratch);
    let train = |out: &str, cache: &str| {
        let mut args = vec![
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "2",
            "--data",
            "photos",
        ];
        // Enough crops to be worth keeping.
        for set in [
            "data.name=folder",
            "data.crop=random",
            "data.crops=200",
            "model.size=32",
        ] {
            args.extend(["--set", set]);
        }
        args.extend(["--out", out]);
        let run = scratch.command(&args).env("RRVQ_CACHE", cache).output();
        common::Said::from(run.unwrap()).done();
        scratch.read(&format!("{out}/model.safetensors"))
    };
    let kept = || {
        let entries = std::fs::read_dir(scratch.path("cache/images")).unwrap();
        let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    };
    let without = train("without", "");
    assert!(train("first", "cache") == without);
    let (file, whole) = (kept(), std::fs::read(kept()).unwrap());
    assert!(whole.len() > 30 * 200 * 32 * 32 * 3);
    let written = || std::fs::metadata(kept()).unwrap().modified().unwrap();
    let before = written();
    assert!(train("second", "cache") == without);
    assert_eq!(written(), before, "it was only read");
    let mut wrong = whole.clone();
    wrong[5_000_000] ^= 1;
    for damaged in [&wrong[..], &whole[..1_000_000], b""] {
        std::fs::write(&file, damaged).unwrap();
        assert!(train(&format!("after-{}", damaged.len()), "cache") == without);
        assert!(std::fs::read(&file).unwrap() == whole, "it was made anew");
    }
}

#[test]
fn originals_are_told_from_what_only_looks_like_them() {
    let scratch = Scratch::new();
    digits(&scratch);
    let found = info(&scratch, &["digits"]);
    let files = found["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    for file in files {
        assert!(file["original"].is_null(), "{file}");
        assert_eq!(
            file["expected"],
            serde_json::json!(["MNIST", "Fashion-MNIST"])
        );
        assert_eq!(file["md5"].as_str().unwrap().len(), 32);
    }
    let said = scratch.run(&["data", "info", "digits"]).done();
    assert!(
        said.contains("train-images-idx3-ubyte: not the original of MNIST or of Fashion-MNIST"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_fetched_is_said_and_nothing_is_left() {
    let scratch = Scratch::new();
    let fetch = |args: &[&str]| scratch.run(&[&["data", "fetch"], args].concat());
    fetch(&["cats"]).refused(&["\"cats\"", "cifar10, svhn", "celeba"]);
    fetch(&["celeba"]).refused(&["img_align_celeba.zip", "https://", "--data"]);
    let mut alone = scratch.command(&["data", "fetch", "mnist", "--out", "digits"]);
    let said = common::Said::from(alone.env("PATH", "nowhere").output().unwrap());
    said.refused(&["curl is not there", "train-images-idx3-ubyte.gz", "digits"]);
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    // Without curl the sentence is another, and still one.
    fetch(&["mnist", "--from", &nobody]).refused(&["train-images-idx3-ubyte.gz"]);
    assert!(
        !scratch
            .path("data/mnist/train-images-idx3-ubyte.gz")
            .exists()
    );
    std::fs::create_dir_all(scratch.path("mine")).unwrap();
    scratch.write("mine/cifar-10-binary.tar.gz", "something else");
    let said = fetch(&["cifar10", "--out", "mine", "--from", &nobody]);
    said.refused(&[
        "mine/cifar-10-binary.tar.gz",
        "is not the original",
        "--out",
    ]);
    assert_eq!(
        scratch.read("mine/cifar-10-binary.tar.gz"),
        b"something else"
    );
}
