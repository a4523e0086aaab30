//! Pictures of a model: the way between two images, the quality of samples, and models trained for lossy files.

mod common;
use common::{Said, Scratch, png_size};

#[test]
fn a_strip_leads_from_one_image_to_another() {
    let scratch = Scratch::new();
    scratch.trained("run");
    for (out, seed) in [("a.png", "1"), ("b.png", "2")] {
        let args = [
            "sample", "run", "--count", "1", "--seed", seed, "--out", out,
        ];
        scratch.run(&args).done();
    }
    let go = |out: &str, more: &[&str]| {
        let args = [
            "interpolate",
            "a.png",
            "b.png",
            "--model",
            "run",
            "--out",
            out,
        ];
        scratch.run(&[&args[..], more].concat())
    };
    let said = go("way.png", &["--count", "5"]).done();
    assert!(said.contains("5 pictures from a.png to b.png"), "{said}");
    assert_eq!(png_size(&scratch.read("way.png")), (5 * 98 - 2, 98 - 2));
    // The ends are what the model keeps of the images.
    let args = ["reconstruct", "run", "b.png", "--out", "end.png"];
    scratch.run(&args).done();
    let (way, end) = (
        image::open(scratch.path("way.png")).unwrap().to_rgb8(),
        image::open(scratch.path("end.png")).unwrap().to_rgb8(),
    );
    for at in [3, 40, 90] {
        assert_eq!(way.get_pixel(4 * 98 + at, at), end.get_pixel(at, 98 + at));
    }
    go("filled.png", &["--fill"]).done();
    go("way.png", &[]).refused(&["way.png"]);
    let args = ["interpolate", "a.png", "none.png", "--out", "x.png"];
    scratch.run(&args).refused(&["none.png"]);
}

#[test]
fn samples_have_a_quality() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let quality = |more: &[&str]| {
        let args = ["quality", "run", "--count", "256"];
        let mut command = scratch.command(&[&args[..], more].concat());
        command.env("RRVQ_CACHE", scratch.path("cache"));
        Said::from(command.output().unwrap())
    };
    let said = quality(&[]).done();
    assert!(said.contains("samples: Fréchet distance "), "{said}");
    assert!(said.contains("learnt from the data set's "), "{said}");
    let told = quality(&["--json"]).json();
    let of = |what: &str, number: &str| told[what][number].as_f64().unwrap();
    // Training images are images of the set; a model of a few steps draws others.
    let distance = "frechet_distance";
    assert!(of("samples", distance) > 2.0 * of("training_images", distance));
    assert!(of("training_images", "precision") > 0.5, "{told}");
    for share in ["precision", "recall"] {
        assert!((0.0..=1.0).contains(&of("samples", share)), "{told}");
    }
    // The network is kept, and made again where its file is damaged: the numbers stay.
    let kept: Vec<_> = std::fs::read_dir(scratch.path("cache/features"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1);
    let bytes = std::fs::read(&kept[0]).unwrap();
    std::fs::write(&kept[0], "nothing").unwrap();
    assert_eq!(quality(&["--json"]).json(), told);
    assert_eq!(std::fs::read(&kept[0]).unwrap(), bytes);
    quality(&["--temperature", "nan"]).refused(&["--temperature"]);
}

#[test]
fn a_model_trained_for_rate_and_distortion_writes_lossy_files() {
    let scratch = Scratch::new();
    let objective = "train.objective=rate-distortion";
    let args = ["train", "--preset", "tiny-swatches", "--out", "rd"];
    let more = [
        "--steps",
        "60",
        "--set",
        objective,
        "--set",
        "train.bit_worth=20",
    ];
    let said = scratch.run(&[&args[..], &more].concat()).done();
    assert!(said.contains("dB (PSNR)"), "{said}");
    let said = scratch.run(&["eval", "rd", "--images", "64"]).done();
    assert!(
        said.contains("bits a pixel") && said.contains("at 20 squared error a bit"),
        "{said}"
    );
    let told = scratch
        .run(&["eval", "rd", "--images", "64", "--json"])
        .json();
    assert!(told["squared_error"].as_f64().unwrap() > 0.0, "{told}");
    scratch.run(&["report", "rd", "--out", "rd.html"]).done();
    let page = String::from_utf8(scratch.read("rd.html")).unwrap();
    assert!(page.contains("Rate and distortion"));
    // Resuming and packing keep the objective, and files come back.
    let args = ["train", "--resume", "--out", "rd", "--steps", "70"];
    scratch.run(&args).done();
    scratch
        .run(&["pack", "rd", "--out", "rd.safetensors"])
        .done();
    let args = ["sample", "rd", "--count", "1", "--out", "one.png"];
    scratch.run(&args).done();
    for model in ["rd", "rd.safetensors"] {
        let file = format!("{model}.rrvq");
        let args = [
            "compress", "one.png", "--lossy", "--model", model, "-o", &file,
        ];
        scratch.run(&args).done();
        let out = format!("{model}.out");
        let args = ["decompress", &file, "--model", model, "-o", &out];
        scratch.run(&args).done();
        let (was, is) = ("one.png".to_string(), format!("{out}/one.png"));
        assert_eq!(png_size(&scratch.read(&was)), png_size(&scratch.read(&is)));
    }
    let args = ["train", "--preset", "tiny-swatches", "--set", objective];
    let more = ["--set", "model.likelihood=mixture", "--out", "no"];
    scratch
        .run(&[&args[..], &more].concat())
        .refused(&["train.objective", "model.likelihood"]);
}
