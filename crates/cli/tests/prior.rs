//! A VQ-VAE and its PixelCNN prior through every command.

mod common;
use common::{Scratch, png_size, wait_for};
use safetensors::SafeTensors;

/// A tiny VQ-VAE with an EMA codebook in `run`.
fn trained(scratch: &Scratch, more: &[&str]) {
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--out",
        "run",
        "--set",
        "train.steps=40",
        "--set",
        "model.latent=nearest",
        "--set",
        "model.codebook=ema",
        "--set",
        "model.maps=[4]",
        "--set",
        "model.top=uniform",
        "--set",
        "prior.channels=8",
        "--set",
        "prior.layers=2",
        "--set",
        "prior.steps=60",
        "--set",
        "prior.batch=16",
        "--set",
        "prior.lr=1e-2",
        "--set",
        "prior.ema=0.9",
        "--set",
        "prior.save_every=20",
    ];
    scratch.run(&[&train[..], more].concat()).done();
}

#[test]
fn a_prior_goes_the_whole_way() {
    let scratch = Scratch::new();
    trained(&scratch, &[]);
    let eval = || scratch.run(&["eval", "run", "--json"]).json();
    let picture = |more: &[&str]| {
        let sample = [
            "sample", "run", "--out", "grid.png", "--count", "6", "--force",
        ];
        let said = scratch.run(&[&sample[..], more].concat()).done();
        let bytes = scratch.read("grid.png");
        assert!(png_size(&bytes).0 > 16);
        (said.contains("PixelCNN"), bytes)
    };
    let alone = eval();
    assert!(alone["prior"].is_null() && alone["usage"][0]["perplexity"].as_f64() > Some(1.0));
    let without = picture(&[]);
    assert!(!without.0);
    assert!(!scratch.run(&["info", "run"]).done().contains("PixelCNN"));

    let said = scratch.run(&["prior", "run"]).done();
    assert!(
        said.contains("prior step 60") && said.contains("run/prior"),
        "{said}"
    );
    scratch.run(&["report", "run", "--out", "page.html"]).done();
    let page = String::from_utf8(scratch.read("page.html")).unwrap();
    assert!(page.contains("With the PixelCNN prior over its codes, trained 60 steps"));
    let both = eval();
    assert_eq!(
        both["bits_per_dim"], alone["bits_per_dim"],
        "the model is untouched"
    );
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (uniform, learnt) = (number(&both["kl"][0]), number(&both["prior"]["kl"][0]));
    // 16 positions of 16 codes, and images of one colour each.
    assert!((uniform - 16.0 * 4.0 / 192.0).abs() < 1e-5);
    assert!(
        learnt > 0.0 && learnt < 0.7 * uniform,
        "{learnt} of {uniform}"
    );
    let total = number(&both["reconstruction"]) + learnt;
    assert!((number(&both["prior"]["bits_per_dim"]) - total).abs() < 1e-9);
    let records = scratch.records("run/prior");
    let logged = records.last().unwrap();
    assert!((number(&logged["kl"][0]) - learnt).abs() < 1e-9, "{logged}");
    let printed = scratch.run(&["eval", "run"]).done();
    assert!(
        printed.contains("with the PixelCNN prior (step 60)"),
        "{printed}"
    );

    let with = picture(&[]);
    assert!(with.0 && with.1 != without.1);
    assert_eq!(with, picture(&[]), "the same seed, the same picture");
    assert_ne!(with, picture(&["--seed", "1"]));
    assert_eq!(picture(&["--uniform"]), without);
    assert!(picture(&["--temperature", "0"]).0);
    assert!(png_size(&scratch.read("run/prior/samples/step-00000060.png")).0 > 16);
    let reconstruct = ["reconstruct", "run", "--out", "both.png", "--count", "4"];
    scratch.run(&reconstruct).done();
    let info = scratch.run(&["info", "run"]).done();
    assert!(
        info.contains("PixelCNN prior: trained 60 of 60 steps"),
        "{info}"
    );
    assert_eq!(
        scratch.run(&["info", "run", "--json"]).json()["prior"]["step"],
        60
    );
}

/// The tensors of a file; how long they took, and the order of notes beside them, is not part of it.
fn tensors(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut all: Vec<(String, Vec<u8>)> = file
        .iter()
        .map(|(name, view)| (name.into(), view.data().to_vec()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_killed_prior_goes_on_to_the_same_numbers() {
    let scratch = Scratch::new();
    trained(&scratch, &[]);
    scratch.run(&["prior", "run"]).done();
    let [model, state] = scratch.checkpoint("run/prior");
    let steps = scratch.logged("run/prior", "train");
    std::fs::remove_dir_all(scratch.path("run/prior")).unwrap();
    let mut child = scratch.start(&["prior", "run"]);
    wait_for(&scratch.path("run/prior/state.safetensors"));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = scratch.run(&["prior", "run", "--resume"]).done();
    assert!(said.contains("going on from step"), "{said}");
    let [again, state_again] = scratch.checkpoint("run/prior");
    assert!(tensors(&model) == tensors(&again), "the models differ");
    assert!(
        tensors(&state) == tensors(&state_again),
        "the states differ"
    );
    assert_eq!(scratch.logged("run/prior", "train"), steps);
}

#[test]
fn an_ema_codebook_resumes_bit_for_bit() {
    let scratch = Scratch::new();
    let save = ["--set", "train.save_every=0"];
    trained(&scratch, &save);
    let [model, state] = scratch.checkpoint("run");
    let names: Vec<String> = tensors(&state).into_iter().map(|(name, _)| name).collect();
    assert!(
        names.contains(&"memory/layer.1.codes.use".to_string()),
        "{names:?}"
    );
    trained(&scratch, &["--overwrite", "--set", "train.steps=15"]);
    let resume = ["train", "--resume", "--out", "run", "--steps", "40"];
    scratch.run(&[&resume[..], &save].concat()).done();
    let [again, state_again] = scratch.checkpoint("run");
    assert!(model == again, "the models differ");
    assert!(
        tensors(&state) == tensors(&state_again),
        "the states differ"
    );
}

#[test]
fn mistakes_are_sentences() {
    let scratch = Scratch::new();
    scratch.trained("ladder");
    scratch
        .run(&["prior", "ladder"])
        .refused(&["2 layers", "nearest", "small-vq-cifar10"]);
    assert!(!scratch.path("ladder/prior").exists(), "nothing was begun");
    scratch
        .run(&["prior", "nowhere"])
        .refused(&["nowhere", "not a folder"]);

    trained(&scratch, &[]);
    let few = ["prior", "run", "--steps", "2"];
    scratch
        .run(&[&few[..], &["--resume"]].concat())
        .refused(&["no prior", "--resume"]);
    let set = |change: &'static str| scratch.run(&[&few[..], &["--set", change]].concat());
    set("model.codes=3").refused(&["model is trained", "section prior"]);
    set("prior.layers=0").refused(&["prior.layers is 0"]);
    set("prior.layer=3").refused(&["did you mean prior.layers?"]);
    scratch.run(&few).done();
    scratch
        .run(&few)
        .refused(&["already holds a prior", "--resume", "--overwrite"]);

    // Other weights have other codes.
    let more = ["train", "--resume", "--out", "run", "--steps", "42"];
    scratch.run(&more).done();
    let sample = ["sample", "run", "--out", "grid.png", "--force"];
    scratch
        .run(&sample)
        .refused(&["other weights", "--overwrite", "--uniform"]);
    assert!(!scratch.path("grid.png").exists());
    scratch.run(&[&sample[..], &["--uniform"]].concat()).done();
    let told = scratch.run(&["eval", "run"]).done();
    assert!(told.contains("other weights"), "{told}");
    assert_eq!(
        scratch.run(&["eval", "run", "--json"]).json()["prior"]["stale"],
        true
    );
    scratch
        .run(&[&few[..], &["--resume"]].concat())
        .refused(&["other weights", "--overwrite"]);
    scratch.run(&[&few[..], &["--overwrite"]].concat()).done();
    scratch.run(&sample).done();

    // Half a file is named; a new run in the folder has no prior.
    let bytes = scratch.read("run/prior/model.safetensors");
    scratch.write("run/prior/model.safetensors", &bytes[..bytes.len() / 2]);
    scratch
        .run(&sample)
        .refused(&["run/prior/model.safetensors", "damaged"]);
    trained(&scratch, &["--overwrite"]);
    assert!(scratch.run(&["eval", "run", "--json"]).json()["prior"].is_null());
}

#[test]
fn a_prior_that_leaves_the_numbers_says_so_in_its_log_too() {
    let scratch = Scratch::new();
    trained(&scratch, &[]);
    let wild = ["prior", "run", "--set", "prior.lr=1e30"];
    let said = scratch.run(&wild);
    said.refused(&["training diverged at step", "lower prior.lr"]);
    let records = scratch.records("run/prior");
    let last = records.last().unwrap();
    assert_eq!(last["kind"], "diverged");
    assert!(last["said"].as_str().unwrap().contains("lower prior.lr"));
}
