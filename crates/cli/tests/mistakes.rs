//! Mistakes in settings and arguments end in one sentence that says what to do.

mod common;
use common::{Said, Scratch};

/// Tries to train with these settings; nothing may be written.
#[track_caller]
fn with_settings(settings: &[&str]) -> Said {
    let scratch = Scratch::new();
    let mut args = vec!["train", "--preset", "tiny-swatches", "--out", "run"];
    settings
        .iter()
        .for_each(|setting| args.extend(["--set", *setting]));
    let said = scratch.run(&args);
    assert!(
        !scratch.path("run").exists(),
        "a refused run leaves nothing"
    );
    said
}

/// Tries to train with this configuration file.
fn with_file(text: impl AsRef<[u8]>) -> Said {
    let scratch = Scratch::new();
    scratch.write("my.toml", text);
    scratch.run(&["train", "--config", "my.toml", "--out", "run"])
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    with_settings(&["train.learning_rat=1"]).refused(&[
        "--set train.learning_rat=1",
        "there is no key train.learning_rat",
    ]);
    with_settings(&["train.bach=8"]).refused(&["train.bach", "did you mean train.batch?"]);
    with_settings(&["chanels=8"]).refused(&["did you mean model.channels?"]);
    with_settings(&["nowhere.zzzzzz=8"])
        .refused(&["the sections are model, data, train and prior"]);
    with_file("[model]\nsize = 8\nchanels = 8\n").refused(&[
        "my.toml, line 3",
        "there is no key model.chanels",
        "did you mean model.channels?",
    ]);
}

#[test]
fn a_value_of_the_wrong_kind_says_what_is_expected() {
    with_settings(&["train.batch=lots"]).refused(&["train.batch", "a whole number", "\"lots\""]);
    with_settings(&["train.steps=-3"]).refused(&["train.steps", "at least 0", "-3"]);
    with_settings(&["model.sigma=wide"]).refused(&["model.sigma", "\"diagonal\"", "\"one\""]);
    with_settings(&["model=5"]).refused(&["model", "a table of settings", "the number 5"]);
    with_settings(&["train.lr"]).refused(&["--set train.lr", "expected key=value"]);
    with_file("[train]\nsteps = 10\nlr = \"fast\"\n").refused(&[
        "my.toml, line 3",
        "train.lr",
        "a number",
        "\"fast\"",
    ]);
}

#[test]
fn values_that_cannot_work_name_their_key() {
    for (setting, words) in [
        ("train.batch=0", vec!["train.batch is 0"]),
        ("train.lr=nan", vec!["train.lr"]),
        (
            "model.maps=[4,1]",
            vec!["model.maps goes from 4 to 1", "use 4 or 2"],
        ),
        ("model.maps=[]", vec!["model.maps is empty"]),
        (
            "model.codes=[4,4,4]",
            vec!["model.codes lists 3 numbers", "2 layers"],
        ),
        (
            "model.image_channels=1",
            vec!["8×8×3", "model.image_channels"],
        ),
    ] {
        with_settings(&[setting]).refused(&words);
    }
    let scratch = Scratch::new();
    scratch
        .run(&["train", "--preset", "tiny-swatches", "--steps", "0"])
        .refused(&["train.steps is 0"]);
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let scratch = Scratch::new();
    scratch
        .run(&["train", "--config", "none.toml"])
        .refused(&["cannot read none.toml", "no such file"]);
    scratch
        .run(&["train", "--config", "."])
        .refused(&["cannot read .", "it is a folder"]);
    with_file("[model\nsize = 8").refused(&["my.toml, line 1", "not TOML"]);
    with_file("size = = 8").refused(&["my.toml, line 1", "not TOML"]);
    with_file([0xff, 0xfe, 0x00]).refused(&["my.toml is not a text file"]);
    scratch
        .run(&["train", "--preset", "tiny-swatch"])
        .refused(&["no preset \"tiny-swatch\"", "did you mean tiny-swatches?"]);
    scratch
        .run(&["presets", "zzzz"])
        .refused(&["no preset \"zzzz\"", "`rrvq presets` lists"]);
}

#[test]
fn data_that_is_not_there_is_named() {
    with_settings(&["data.name=cifar10"]).refused(&["cifar10", "--data"]);
    with_settings(&["data.name=svhn"]).refused(&["svhn", "train_32x32.mat", "--data"]);
    with_settings(&["data.name=cats"]).refused(&["\"cats\"", "data.name", "swatches"]);
}

#[test]
fn a_run_is_not_replaced_unless_asked() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let before = scratch.checkpoint("run");
    let again = [
        "train",
        "--preset",
        "tiny-swatches",
        "--out",
        "run",
        "--steps",
        "3",
    ];
    scratch.run(&again).refused(&["run already holds a run"]);
    assert!(
        scratch.checkpoint("run") == before,
        "a refused run changes nothing"
    );
    scratch.write("run/notes.txt", "mine");
    scratch.run(&[&again[..], &["--overwrite"]].concat()).done();
    assert!(scratch.checkpoint("run") != before);
    assert_eq!(
        scratch.read("run/notes.txt"),
        b"mine",
        "what a run did not write stays"
    );
    assert_eq!(scratch.logged("run", "eval"), [3], "the old log is gone");
    assert!(!scratch.path("run/samples/step-00000010.png").exists());
}

#[test]
fn a_folder_without_a_run_is_named() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("empty")).unwrap();
    scratch.write("file", "x");
    for (run, words) in [
        ("none", ["none is not a folder", "the folder of a run"]),
        ("empty", ["empty has no config.toml", "the folder of a run"]),
        ("file", ["file is not a folder", "the folder of a run"]),
    ] {
        // A file could be a packed model.
        let of_model = match run {
            "file" => ["file is not a packed model", "or a run folder"],
            _ => words,
        };
        scratch.run(&["eval", run]).refused(&of_model);
        scratch.run(&["info", run]).refused(&of_model);
        scratch
            .run(&["sample", run, "--out", "x.png"])
            .refused(&of_model);
        scratch
            .run(&["reconstruct", run, "--out", "x.png"])
            .refused(&of_model);
        scratch
            .run(&["train", "--resume", "--out", run])
            .refused(&words);
    }
    scratch
        .run(&["train", "--resume"])
        .refused(&["--resume needs the run folder", "--out"]);
}

#[test]
fn arguments_of_the_looking_commands_are_checked() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&["eval", "run", "--split", "valid"])
        .refused(&["\"valid\"", "train, validation or test"]);
    for temperature in ["-1", "nan", "inf"] {
        let temperature = format!("--temperature={temperature}");
        scratch
            .run(&["sample", "run", "--out", "x.png", &temperature])
            .refused(&["--temperature", "0 or more"]);
    }
    scratch.write("text.png", "not a picture");
    scratch
        .run(&["reconstruct", "run", "text.png", "--out", "x.png"])
        .refused(&["text.png", "PNG, JPEG or WebP"]);
    scratch
        .run(&["reconstruct", "run", "none.png", "--out", "x.png"])
        .refused(&["cannot read none.png", "no such file"]);
    assert!(!scratch.path("x.png").exists());
    scratch
        .run(&["bench", "step", "--layers", "0"])
        .refused(&["model.maps is empty"]);
}

#[test]
fn advice_names_what_the_command_takes() {
    let scratch = Scratch::new();
    let run = |args: &[&str]| scratch.run(args);
    run(&["codec", "eval", "cifar10"]).refused(&["cifar10 needs a folder", "behind the model"]);
    run(&["reconstruct", "cifar10", "--out", "x.png"]).refused(&["images", "behind the model"]);
    scratch.write("empty.rrvq", "");
    scratch.write("text.rrvq", "no picture at all");
    for flags in [&[][..], &["--partial"]] {
        let of = |file: &str| run(&[&["decompress", file, "-o", "out"], flags].concat());
        of("empty.rrvq").refused(&["empty.rrvq is empty"]);
        of("text.rrvq").refused(&["text.rrvq is not a file that `rrvq compress` wrote"]);
        assert!(!scratch.path("out").exists());
    }
    // A number below zero is a number, which is wrong in its own way.
    for (args, word) in [
        (
            &["sample", "cifar10", "--out", "x.png", "--temperature", "-1"][..],
            "--temperature",
        ),
        (
            &["study", "mlp", "--out", "x", "--budget", "-1"],
            "--budget",
        ),
        (
            &["compress", "a.png", "-o", "x", "--lossy", "--bits", "-1"],
            "-1 is no number of bits",
        ),
    ] {
        let said = run(args);
        assert!(said.code == Some(2) && said.err.contains(word), "{said:?}");
        assert!(!said.err.contains("unexpected argument"), "{said:?}");
    }
    let said = run(&["sample", "cifar10", "--out", "nowhere/x.png"]);
    said.refused(&[
        "cannot write nowhere/x.png",
        "there is no folder nowhere; make it first",
    ]);
}

#[test]
fn pictures_are_png_and_flags_fit_the_model() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&["sample", "run", "--out", "x.jpg"])
        .refused(&["x.jpg", "as PNG", ".png"]);
    scratch
        .run(&["sample", "run", "--out", "x.png", "--uniform"])
        .refused(&["--uniform", "2 layers", "leave it out"]);
    assert!(!scratch.path("x.jpg").exists() && !scratch.path("x.png").exists());
}

#[test]
fn a_report_refuses_settings_that_are_no_model() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let config = String::from_utf8(scratch.read("run/config.toml")).unwrap();
    for maps in ["[]", "[100000]", "[4, 2, 1, 0]"] {
        let line = config
            .lines()
            .find(|line| line.starts_with("maps"))
            .unwrap();
        scratch.write(
            "run/config.toml",
            config.replace(line, &format!("maps = {maps}")),
        );
        scratch.run(&["report", "run"]).refused(&["model.maps"]);
    }
}

#[test]
fn a_run_in_use_is_not_trained_on() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let lock = std::fs::File::create(scratch.path("run/.lock")).unwrap();
    lock.lock().unwrap();
    for how in ["--resume", "--overwrite"] {
        let mut train = vec!["train", "--out", "run", "--steps", "500", how];
        if how == "--overwrite" {
            train.extend(["--preset", "tiny-swatches"]);
        }
        scratch.run(&train).refused(&["run is in use by"]);
    }
    drop(lock);
    scratch
        .run(&["train", "--resume", "--out", "run", "--steps", "12"])
        .done();
    assert!(!scratch.path("run/.lock").exists());
}
