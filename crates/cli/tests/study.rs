//! Studies of the paper at the smoke scale: seconds each, through training, figures, numbers, claims and the page.

mod common;
use common::{Said, Scratch, png_size};
use serde_json::Value;

/// An array of bytes as MATLAB writes it.
fn array(name: &str, sides: &[u32], content: &[u8]) -> Vec<u8> {
    let element = |kind: u32, content: &[u8]| {
        let mut bytes = [kind.to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let sides: Vec<u8> = sides.iter().flat_map(|side| side.to_le_bytes()).collect();
    let parts = [
        element(6, &[9, 0, 0, 0, 0, 0, 0, 0]),
        element(5, &sides),
        element(1, name.as_bytes()),
        element(2, content),
    ];
    element(14, &parts.concat())
}

/// A small data set in SVHN's files: slopes in the colour of their digit.
fn write_svhn(scratch: &Scratch, dir: &str) {
    std::fs::create_dir_all(scratch.path(dir)).unwrap();
    for (name, count) in [("train_32x32.mat", 200), ("test_32x32.mat", 80)] {
        let digit = |image: usize| (image * 7 % 10) as u8;
        let byte = |i: usize| {
            let (image, channel, place) = (i / 3072, i % 3072 / 1024, i % 1024);
            (digit(image) * 20).wrapping_mul(channel as u8 + 1) / 2 + (place / 16) as u8
        };
        let images: Vec<u8> = (0..count * 3072).map(byte).collect();
        let labels: Vec<u8> = (0..count).map(|i| digit(i) + 1).collect();
        let mut bytes = b"MATLAB 5.0 MAT-file, made for a test".to_vec();
        bytes.resize(124, b' ');
        bytes.extend(b"\x00\x01IM");
        bytes.extend(array("X", &[32, 32, 3, count as u32], &images));
        bytes.extend(array("y", &[count as u32, 1], &labels));
        scratch.write(&format!("{dir}/{name}"), bytes);
    }
}

/// A small picture of few colours, another for each number.
fn picture(number: usize, width: usize, height: usize) -> rrvq::picture::Picture {
    let byte = |i: usize| {
        let (place, channel) = (i / 3, i % 3);
        let (x, y) = (place % width, place / width);
        (number * 37 * (channel + 1) + x + 2 * y) as u8
    };
    let pixels = (0..width * height * 3).map(byte).collect();
    rrvq::picture::Picture::new([height, width, 3], pixels).unwrap()
}

/// CIFAR-10's files, which have 10,000 images each whatever is in them.
fn write_cifar10(scratch: &Scratch, dir: &str) {
    std::fs::create_dir_all(scratch.path(dir)).unwrap();
    let record = |number: usize| {
        let pixels = picture(number, 32, 32).pixels().to_vec();
        let planes = (0..3).flat_map(|c| pixels.iter().copied().skip(c).step_by(3));
        let label = [(number % 10) as u8];
        label.into_iter().chain(planes).collect::<Vec<u8>>()
    };
    let batch: Vec<u8> = (0..50).flat_map(record).collect::<Vec<u8>>().repeat(200);
    let names = (1..6).map(|i| format!("data_batch_{i}.bin"));
    for name in names.chain(["test_batch.bin".into()]) {
        scratch.write(&format!("{dir}/{name}"), &batch);
    }
}

/// Some of CelebA's files, by the numbers of the official split.
fn write_celeba(scratch: &Scratch, dir: &str) {
    let folder = scratch.path(&format!("{dir}/img_align_celeba"));
    std::fs::create_dir_all(&folder).unwrap();
    for number in (1..=40).chain(182_638..=182_657) {
        let face = picture(number, 178, 218);
        face.save(folder.join(format!("{number:06}.png"))).unwrap();
    }
}

#[test]
fn studies_take_all_of_their_data_sets_and_several_seeds() {
    let scratch = Scratch::new();
    write_cifar10(&scratch, "cifar10");
    write_celeba(&scratch, "celeba");
    let study = |name: &str, more: &[&str]| {
        let args = ["study", name, "--scale", "smoke", "--out", "out", "--data"];
        let mut command =
            scratch.command(&[&args[..], &["cifar10", "--data", "celeba"], more].concat());
        command.env("RRVQ_CACHE", scratch.path("cache"));
        Said::from(command.output().unwrap())
    };
    study("table1", &["--seeds", "2", "--jobs", "2"]).done();
    let table1 = section(&scratch, "table1");
    let claims = table1["claims"].as_array().unwrap();
    let told: Vec<&str> = claims
        .iter()
        .map(|c| c["claim"].as_str().unwrap())
        .collect();
    for wanted in [
        "cifar10",
        "celeba",
        "VIMCO",
        "FouST, L = 1",
        "continuous twin",
    ] {
        assert!(told.iter().any(|claim| claim.contains(wanted)), "{told:?}");
    }
    for claim in claims {
        let ours = claim["ours"].as_str().unwrap();
        assert_eq!(ours.matches(" ± ").count(), 2, "{claim}");
        assert!(!ours.contains("NaN"), "{claim}");
    }
    assert_eq!(table1["seeds"], 2);
    // What the processes that trained have judged is not judged again, and what is changed by hand is taken: so it was read.
    let judged = "out/runs/smoke/small-rvq-cifar10-seed1/judged.jsonl";
    let lines = String::from_utf8(scratch.read(judged)).unwrap();
    assert_eq!(
        lines.lines().count(),
        2,
        "test and training images: {lines}"
    );
    let numbers = |scratch: &Scratch| scratch.read("out/table1/numbers.csv");
    let before = numbers(&scratch);
    study("table1", &["--seeds", "2"]).done();
    assert_eq!(String::from_utf8(scratch.read(judged)).unwrap(), lines);
    assert_eq!(numbers(&scratch), before);
    let other = lines.replace("\"bits_per_dim\":", "\"bits_per_dim\":1");
    scratch.write(judged, other);
    study("table1", &["--seeds", "2"]).done();
    assert_ne!(numbers(&scratch), before);
    for name in ["table3", "depth"] {
        study(name, &["--seeds", "2"]).done();
        assert_eq!(section(&scratch, name)["seeds"], 2);
    }
    for name in ["codes", "compression"] {
        study(name, &[]).done();
        let html = section(&scratch, name)["claims"].to_string();
        assert!(html.contains("celeba"), "{name}: {html}");
    }
    study("codes", &["--seeds", "2"]).refused(&["codes", "one seed", "table1", "swatches"]);
}

fn section(scratch: &Scratch, study: &str) -> Value {
    serde_json::from_slice(&scratch.read(&format!("out/{study}/section.json"))).unwrap()
}

#[test]
fn every_study_writes_figures_numbers_claims_and_its_section() {
    let scratch = Scratch::new();
    write_svhn(&scratch, "svhn");
    let list = scratch.run(&["study"]).done();
    let names: Vec<&str> = list.lines().filter_map(|l| l.split(' ').next()).collect();
    assert!(names.contains(&"table1") && names.len() >= 13, "{list}");
    let args = ["study", "all", "--data", "svhn", "--scale", "smoke"];
    let mut command = scratch.command(&[&args[..], &["--out", "out"]].concat());
    command.env("RRVQ_CACHE", scratch.path("cache"));
    let said = Said::from(command.output().unwrap()).done();
    assert!(
        said.contains("left in all") && said.contains("out/index.html"),
        "{said}"
    );
    let page = String::from_utf8(scratch.read("out/index.html")).unwrap();
    // With the colon: four letters stand in a megabyte of base64 by chance.
    assert!(!page.contains("http:") && !page.contains("https:"));
    assert!(page.contains("src=\"data:image/png;base64,"));
    for name in names {
        let stored = section(&scratch, name);
        let claims = stored["claims"].as_array().unwrap();
        assert!(!claims.is_empty(), "{name}");
        for claim in claims {
            // Nothing is decided by four steps.
            assert_eq!(claim["verdict"], "NotDecided", "{name}");
            assert!(
                !claim["ours"].as_str().unwrap().contains("NaN"),
                "{name}: {claim}"
            );
        }
        assert!(page.contains(&format!("<h2>{name}: ")), "{name}");
        let files: Vec<String> = std::fs::read_dir(scratch.path(&format!("out/{name}")))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let of = |ending: &str| files.iter().filter(|f| f.ends_with(ending)).count();
        assert!(of(".csv") > 0, "{name}: {files:?}");
        assert!(of(".png") > 0, "{name}: {files:?}");
        assert_eq!(of(".png"), of(".svg"), "{name}: {files:?}");
        for picture in files.iter().filter(|f| f.ends_with(".png")) {
            let size = png_size(&scratch.read(&format!("out/{name}/{picture}")));
            assert!(size.0 >= 100 && size.1 >= 16, "{name}/{picture}: {size:?}");
        }
    }
}

#[test]
fn sections_stay_runs_are_used_again_and_interrupted_ones_resumed() {
    let scratch = Scratch::new();
    let study = |name: &str| {
        let args = [
            "study", name, "--scale", "smoke", "--seeds", "1", "--out", "out",
        ];
        scratch.run(&args).done()
    };
    study("entropy");
    // A run that was stopped after its first step of four.
    let run = "out/runs/smoke/mlp-swatches-seed0";
    std::fs::create_dir_all(scratch.path("out/runs/smoke")).unwrap();
    let train = ["train", "--preset", "mlp-swatches", "--minutes", "0"];
    let said = scratch
        .run(&[&train[..], &["--steps", "4", "--out", run]].concat())
        .done();
    assert!(said.contains("saved at step 1 of 4"), "{said}");
    let plan = |more: &[&str]| {
        let args = ["study", "mlp", "--seeds", "1", "--out", "out", "--plan"];
        scratch.run(&[&args[..], more].concat()).done()
    };
    let said = plan(&["--scale", "smoke"]);
    assert!(
        said.contains("at step 1 of 4") && said.contains("1 model to train"),
        "{said}"
    );
    study("mlp");
    let said = plan(&["--scale", "smoke"]);
    assert!(
        said.contains("finished") && said.contains("0 models to train"),
        "{said}"
    );
    let said = plan(&["--scale", "full", "--minutes", "6"]);
    assert!(
        said.contains("to be trained") && said.contains("for 6 minutes in all"),
        "{said}"
    );
    assert!(
        !scratch.path("out/runs/full").exists(),
        "a plan trains nothing"
    );
    let model = format!("{run}/model.safetensors");
    let first = scratch.read(&model);
    assert_eq!(scratch.logged(run, "eval"), [1, 4]);
    let state = scratch.path(&format!("{run}/state.safetensors"));
    assert!(!state.exists(), "nobody trains on from a finished run");
    let page = String::from_utf8(scratch.read("out/index.html")).unwrap();
    assert!(page.contains("<h2>entropy: ") && page.contains("<h2>mlp: "));
    study("mlp");
    assert_eq!(scratch.read(&model), first);
    assert_eq!(
        scratch.logged(run, "eval"),
        [1, 4],
        "nothing was trained again"
    );
    // A run of another model is not taken for this one.
    let config = String::from_utf8(scratch.read(&format!("{run}/config.toml"))).unwrap();
    scratch.write(
        &format!("{run}/config.toml"),
        config.replace("codes = 16", "codes = 17"),
    );
    let args = ["study", "mlp", "--scale", "smoke", "--out", "out"];
    scratch.run(&args).refused(&[run, "other settings"]);
}

#[test]
fn minutes_settle_the_steps_of_a_study() {
    let scratch = Scratch::new();
    let args = [
        "study",
        "mlp",
        "--scale",
        "smoke",
        "--minutes",
        "0.02",
        "--seeds",
        "2",
    ];
    scratch.run(&[&args[..], &["--out", "out"]].concat()).done();
    let stored = section(&scratch, "mlp");
    assert_eq!(stored["seeds"], 2);
    assert!(
        stored["command"]
            .as_str()
            .unwrap()
            .contains("--minutes 0.02 --seeds 2")
    );
    for seed in 0..2 {
        let steps = scratch.logged(&format!("out/runs/smoke/mlp-swatches-seed{seed}"), "eval");
        assert!(steps.last().unwrap() > &4, "{steps:?}");
    }
}

#[test]
fn studies_at_the_same_time_train_what_they_share_once() {
    let scratch = Scratch::new();
    write_svhn(&scratch, "svhn");
    let start = |name: &str| {
        let args = ["study", name, "--scale", "smoke", "--data", "svhn"];
        scratch.start(&[&args[..], &["--jobs", "2", "--out", "out"]].concat())
    };
    let started = ["codes", "fig3", "table2"].map(start);
    let said: Vec<String> = started
        .into_iter()
        .map(|child| Said::from(child.wait_with_output().unwrap()).done())
        .collect();
    for name in ["codes", "fig3", "table2"] {
        assert_eq!(section(&scratch, name)["study"], name);
    }
    let run = "out/runs/smoke/small-l5-svhn-seed0";
    assert_eq!(scratch.logged(run, "eval").last(), Some(&4), "{said:?}");
    let records = scratch.logged(run, "train");
    assert!(records.is_sorted(), "trained once: {records:?}");
    let left = std::fs::read_dir(scratch.path("out/runs/smoke")).unwrap();
    for name in left.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(name.ends_with("-seed0"), "{name} is left");
    }
}

#[test]
fn a_budget_multiplies_the_steps_of_a_scale() {
    let scratch = Scratch::new();
    write_svhn(&scratch, "svhn");
    let plan = |scale: &str, budget: &[&str]| {
        let args = [
            "study", "table1", "--data", "svhn", "--plan", "--out", "out",
        ];
        let said = scratch.run(&[&args[..], &["--scale", scale], budget].concat());
        said.done()
    };
    let steps = |said: &str, run: &str| {
        let line = said.lines().find(|l| l.contains(run)).unwrap().to_string();
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "steps").unwrap();
        words[at - 1].replace(',', "").parse::<f64>().unwrap()
    };
    for (scale, run) in [("quick", "small-rvq-svhn"), ("full", "l32-svhn")] {
        let whole = steps(&plan(scale, &[]), run);
        assert_eq!(steps(&plan(scale, &["--budget", "0.25"]), run), whole / 4.0);
    }
    let args = ["study", "table1", "--budget", "0", "--out", "out"];
    let said = scratch.run(&args);
    assert!(
        said.code == Some(2) && said.err.contains("a number above 0"),
        "{said:?}"
    );
    let args = ["study", "mlp", "--scale", "smoke", "--budget", "0.5"];
    scratch
        .run(&[&args[..], &["--seeds", "1", "--out", "out"]].concat())
        .done();
    let command = section(&scratch, "mlp")["command"].clone();
    assert!(
        command.as_str().unwrap().contains("--budget 0.5"),
        "{command}"
    );
}

#[test]
fn models_trained_side_by_side_are_those_trained_in_turn() {
    let scratch = Scratch::new();
    let study = |jobs: &str, out: &str| {
        let args = ["study", "mlp", "--scale", "smoke", "--seeds", "3"];
        scratch.run(&[&args[..], &["--jobs", jobs, "--out", out]].concat())
    };
    study("1", "turn").done();
    let said = study("2", "side").done();
    assert!(
        said.contains("mlp-swatches-seed2: training, 3 of 3"),
        "{said}"
    );
    assert!(said.contains("mlp-swatches-seed1: done"), "{said}");
    for seed in 0..3 {
        let run = |out: &str| format!("{out}/runs/smoke/mlp-swatches-seed{seed}");
        let model = |out: &str| scratch.read(&format!("{}/model.safetensors", run(out)));
        assert!(model("side") == model("turn"), "seed {seed}");
    }
    let names = std::fs::read_dir(scratch.path("side/runs/smoke")).unwrap();
    assert_eq!(names.count(), 3, "only run folders are left");
    // A model that cannot be trained is told in its own words, and the others' runs stay.
    let config = "side/runs/smoke/mlp-swatches-seed1/config.toml";
    let text = String::from_utf8(scratch.read(config)).unwrap();
    scratch.write(
        config,
        text.replace("steps = 4", "steps = 9")
            .replace("codes = 16", "codes = 17"),
    );
    let other = "side/runs/smoke/mlp-swatches-seed2";
    std::fs::remove_dir_all(scratch.path(other)).unwrap();
    study("2", "side").refused(&["mlp-swatches-seed1 could not be trained", "other settings"]);
    assert!(scratch.path(other).join("config.toml").is_file());
    assert!(
        !scratch
            .path("side/runs/smoke/mlp-swatches-seed1.job")
            .exists()
    );
}

#[test]
fn a_run_trained_by_hand_stands_in_for_a_studys_own() {
    let scratch = Scratch::new();
    let train = ["train", "--preset", "mlp-swatches", "--steps", "5"];
    scratch
        .run(&[&train[..], &["--set", "train.lr=1e-3", "--out", "hand"]].concat())
        .done();
    let before = scratch.checkpoint("hand");
    let study = |run: &str| {
        let args = ["study", "mlp", "--scale", "smoke", "--seeds", "1"];
        scratch.run(&[&args[..], &["--run", run, "--out", "out"]].concat())
    };
    study("mlp-swatches=hand").done();
    assert!(!scratch.path("out/runs/smoke/mlp-swatches-seed0").exists());
    assert_eq!(scratch.checkpoint("hand"), before);
    let stored = section(&scratch, "mlp");
    let html = stored["html"].as_str().unwrap();
    assert!(
        html.contains("was trained by itself") && html.contains("train.lr = 0.001"),
        "{html}"
    );
    assert!(
        stored["command"]
            .as_str()
            .unwrap()
            .contains("--run mlp-swatches=MODEL")
    );
    let before = section(&scratch, "mlp");
    study("swatches=hand").refused(&["no study asks for a run called swatches", "--plan"]);
    assert_eq!(
        section(&scratch, "mlp"),
        before,
        "told before anything is done"
    );
    study("mlp-swatches=none").refused(&["none"]);
    // A packed model stands in like a run; what is built in has other images.
    scratch
        .run(&["pack", "hand", "--out", "packed.safetensors"])
        .done();
    study("mlp-swatches=packed.safetensors").done();
    let packed = section(&scratch, "mlp");
    assert!(
        packed["html"]
            .as_str()
            .unwrap()
            .contains("train.lr = 0.001")
    );
    study("mlp-swatches=cifar10").refused(&["cifar10", "32×32", "swatches"]);
    let other = [
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "2",
        "--out",
        "small",
    ];
    scratch.run(&other).done();
    study("mlp-swatches=small").refused(&["small", "8×8", "32×32"]);
    let wrong = study("hand");
    assert!(
        wrong.code == Some(2) && wrong.err.contains("NAME=MODEL"),
        "{wrong:?}"
    );
}

#[test]
fn mistakes_are_told() {
    let scratch = Scratch::new();
    let study = |args: &[&str]| scratch.run(&[&["study"], args].concat());
    study(&["fig7", "--out", "o"]).refused(&["\"fig7\"", "all", "entropy"]);
    study(&["entropy"]).refused(&["entropy", "--out DIR"]);
    study(&["table2", "--out", "o"]).refused(&["table2", "svhn", "--data DIR"]);
    std::fs::create_dir_all(scratch.path("empty")).unwrap();
    study(&["entropy", "--data", "empty", "--out", "o"]).refused(&["empty", "no data set"]);
    write_svhn(&scratch, "a");
    write_svhn(&scratch, "b");
    let both = ["table2", "--data", "a", "--data", "b", "--out", "o"];
    study(&both).refused(&["a and b both hold svhn"]);
    scratch.write("file", "x");
    study(&["entropy", "--out", "file"]).refused(&["file"]);
}

#[cfg(unix)]
#[test]
fn studies_beside_each_other_are_looked_at_and_packed() {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/studies.sh");
    let scratch = Scratch::new();
    let flags = "--scale smoke --seeds 1";
    let start = format!(
        "bash {SCRIPT} start --out out --rrvq \"$rrvq\" --flags \"{flags}\" entropy 'mlp --jobs 2' table2"
    );
    scratch.shell(&start).done();
    let look = format!("bash {SCRIPT} look out 60 packed");
    let said = scratch.shell(&look).done();
    assert!(
        said.contains("entropy exit 0") && said.contains("mlp exit 0"),
        "{said}"
    );
    // It has no data, was tried twice, and says why.
    assert!(said.contains("table2 exit 2"), "{said}");
    let told = String::from_utf8(scratch.read("out/said/table2.txt")).unwrap();
    assert_eq!(told.matches("it needs svhn").count(), 2, "{told}");
    assert!(
        said.contains("mlp-swatches-seed0: step 4 of 4, ") && said.contains("codes "),
        "{said}"
    );
    for (archive, holds) in [
        ("entropy", "entropy/section.json"),
        ("logs", "runs/smoke/mlp-swatches-seed0/log.jsonl"),
        ("said", "said/table2.txt"),
    ] {
        let list = format!("cat packed/{archive}.tgz.* | tar tz");
        let listed = scratch.shell(&list).done();
        assert!(listed.lines().any(|line| line == holds), "{listed}");
    }
    let begin = format!("bash {SCRIPT} begin");
    let said = scratch.shell(&begin);
    assert!(
        said.code == Some(2) && said.err.contains("no command begin"),
        "{said:?}"
    );
    let look = format!("bash {SCRIPT} look nothing 1");
    let said = scratch.shell(&look);
    assert!(said.code == Some(2), "{said:?}");
}
