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
