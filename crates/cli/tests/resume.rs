//! A run that was stopped, by a signal or by numbers that are no numbers, goes on as if nothing had happened.

mod common;
use common::{Said, Scratch, wait_for, wait_for_text};
use safetensors::SafeTensors;
#[cfg(unix)]
use std::process::Command;

/// Steps slow enough to be hit by a signal: some milliseconds each.
const SLOW: [&str; 10] = [
    "--preset",
    "tiny-swatches",
    "--steps",
    "40",
    "--set",
    "model.channels=32",
    "--set",
    "train.batch=64",
    "--set",
    "train.log_every=5",
];

fn train<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "--out", out], &SLOW[..], more].concat()
}

/// Tensors, and what else decides how a run goes on; seconds are not part of it.
fn essence(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut all: Vec<(String, Vec<u8>)> = file
        .iter()
        .map(|(name, view)| (name.into(), view.data().to_vec()))
        .collect();
    let metadata = header.metadata().as_ref().unwrap();
    for key in ["step", "plateau", "due"] {
        all.extend(
            metadata
                .get(key)
                .map(|text| (format!("metadata {key}"), text.clone().into_bytes())),
        );
    }
    all.sort();
    all
}

/// Both runs ended in the same numbers, and their logs tell the same story once.
#[track_caller]
fn assert_same(scratch: &Scratch, a: &str, b: &str) {
    let [(model_a, state_a), (model_b, state_b)] = [a, b].map(|run| {
        let [model, state] = scratch.checkpoint(run);
        (model, essence(&state))
    });
    assert!(model_a == model_b, "the models differ");
    assert!(state_a.len() > 4 && state_a == state_b, "the states differ");
    let losses = |run: &str| -> Vec<(u64, String)> {
        let told = scratch.records(run).into_iter().map(|r| {
            (
                r["step"].as_u64().unwrap(),
                format!("{} {}", r["kind"], r["bits_per_dim"]),
            )
        });
        told.collect()
    };
    assert_eq!(losses(a), losses(b));
    assert_eq!(scratch.logged(b, "train"), [5, 10, 15, 20, 25, 30, 35, 40]);
    assert_eq!(scratch.logged(b, "eval"), [40]);
}

#[test]
fn a_killed_run_goes_on_to_the_same_bytes() {
    let scratch = Scratch::new();
    let save = ["--set", "train.save_every=20"];
    scratch.run(&train("whole", &save)).done();
    let mut child = scratch.start(&train("killed", &save));
    wait_for(&scratch.path("killed/state.safetensors"));
    child.kill().unwrap();
    let killed = Said::from(child.wait_with_output().unwrap());
    assert_eq!(killed.code, None, "killed in the middle: {killed:?}");
    let said = scratch
        .run(&["train", "--resume", "--out", "killed"])
        .done();
    assert!(said.contains("going on from step 20"), "{said}");
    assert_same(&scratch, "whole", "killed");
}

/// Codes are split as a function of the weights and the step, so a run that was stopped splits the same ones.
#[test]
fn codes_are_split_alike_in_a_run_that_goes_on() {
    let scratch = Scratch::new();
    // Codes so far apart that many are never used.
    let splits = [
        "train.split_every=10",
        "train.save_every=0",
        "model.codes=64",
        "model.code_scale=3",
    ];
    let splits = splits.map(|s| ["--set", s]).concat();
    scratch.run(&train("whole", &splits)).done();
    let short = [&splits[..], &["--minutes", "0"]].concat();
    scratch.run(&train("short", &short)).done();
    scratch.run(&["train", "--resume", "--out", "short"]).done();
    let told = |run: &str| -> Vec<serde_json::Value> {
        let records = scratch.records(run).into_iter();
        let split = records.filter(|r| r["kind"] == "split");
        split.map(|r| r["codes"].clone()).collect()
    };
    let whole = told("whole");
    assert_eq!(scratch.logged("whole", "split"), [10, 20, 30]);
    let all = whole.iter().flat_map(|codes| codes.as_array().unwrap());
    assert!(
        all.map(|n| n.as_u64().unwrap()).sum::<u64>() > 0,
        "{whole:?}"
    );
    assert_eq!(whole, told("short"));
    let models = ["whole", "short"].map(|run| scratch.checkpoint(run)[0].clone());
    assert!(models[0] == models[1], "the models differ");
}

#[test]
fn a_run_killed_before_its_first_checkpoint_starts_again() {
    let scratch = Scratch::new();
    scratch.run(&train("whole", &[])).done();
    let mut child = scratch.start(&train("killed", &[]));
    wait_for(&scratch.path("killed/log.jsonl"));
    child.kill().unwrap();
    child.wait_with_output().unwrap();
    scratch
        .run(&["train", "--resume", "--out", "killed"])
        .done();
    assert_same(&scratch, "whole", "killed");
}

#[test]
fn a_run_whose_minutes_are_over_evaluates_saves_and_can_go_on() {
    let scratch = Scratch::new();
    scratch.run(&train("whole", &[])).done();
    let said = scratch.run(&train("short", &["--minutes", "0"])).done();
    assert!(said.contains("stopped and saved at step 1 of 40"), "{said}");
    assert_eq!(scratch.logged("short", "eval"), [1]);
    scratch.checkpoint("short");
    scratch.run(&["train", "--resume", "--out", "short"]).done();
    assert_eq!(scratch.logged("short", "eval"), [1, 40]);
    let models = ["whole", "short"].map(|run| scratch.checkpoint(run)[0].clone());
    assert!(models[0] == models[1], "the models differ");
    let said = scratch.run(&train("wrong", &["--minutes", "soon"]));
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("expected a number of minutes"),
        "{said:?}"
    );
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_saves_and_says_how_to_go_on() {
    let scratch = Scratch::new();
    let save = ["--set", "train.save_every=0"];
    scratch.run(&train("whole", &save)).done();
    for (signal, out) in [("-INT", "int"), ("-TERM", "it's $HOME")] {
        let child = scratch.start(&train(out, &save));
        // The log appears just before the first step.
        wait_for(&scratch.path(&format!("{out}/log.jsonl")));
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        let said = Said::from(child.wait_with_output().unwrap());
        assert!(
            said.err.contains("finishing this step and saving"),
            "{said:?}"
        );
        let said = said.done();
        assert!(
            said.contains("stopped and saved at step ") && said.contains(" of 40"),
            "{said}"
        );
        // The printed command is run as it stands.
        let advice = said.split("go on with: rrvq ").nth(1).unwrap();
        let said = scratch.shell(&format!("$rrvq {advice}")).done();
        assert!(said.contains("40 steps done"), "{said}");
        assert_same(&scratch, "whole", out);
    }
}

/// Evaluations of seconds, so that a signal meets one.
const LONG_EVALUATIONS: [&str; 12] = [
    "--preset",
    "tiny-swatches",
    "--steps",
    "4",
    "--set",
    "train.eval_every=2",
    "--set",
    "train.log_every=2",
    "--set",
    "train.schedule=plateau",
    "--set",
    "data.test_images=20000",
];

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
}

#[cfg(unix)]
#[test]
fn an_interrupted_evaluation_ends_the_run_and_is_made_when_it_goes_on() {
    let scratch = Scratch::new();
    let train = |out| [&["train", "--out", out], &LONG_EVALUATIONS[..]].concat();
    scratch.run(&train("whole")).done();
    let state = |run: &str| essence(&scratch.checkpoint(run)[1]);
    let child = scratch.start(&train("int"));
    // The record of a step is written just before its evaluation.
    wait_for_text(&scratch.path("int/log.jsonl"), "\"step\":2");
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap()).done();
    assert!(said.contains("stopped and saved at step 2 of 4"), "{said}");
    assert!(scratch.logged("int", "eval").is_empty());
    // Stopped in its first evaluation, and in its last one.
    let child = scratch.start(&["train", "--resume", "--out", "int"]);
    wait_for_text(&scratch.path("int/log.jsonl"), "\"step\":4");
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap()).done();
    assert!(said.contains("stopped and saved at step 4 of 4"), "{said}");
    assert_eq!(scratch.logged("int", "eval"), [2]);
    let said = scratch.run(&["train", "--resume", "--out", "int"]).done();
    assert!(said.contains("4 steps done"), "{said}");
    assert_eq!(scratch.logged("int", "eval"), [2, 4]);
    assert_eq!(scratch.logged("int", "train"), [2, 4]);
    assert!(scratch.checkpoint("int")[0] == scratch.checkpoint("whole")[0]);
    assert!(state("int") == state("whole"), "the states differ");
    for picture in ["samples/step-00000002.png", "samples/step-00000004.png"] {
        let [a, b] = ["int", "whole"].map(|run| scratch.read(&format!("{run}/{picture}")));
        assert!(a == b, "{picture}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_evaluation_can_be_interrupted() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let text = String::from_utf8(scratch.read("run/config.toml")).unwrap();
    let more = text.replace("test_images = 64", "test_images = 400000");
    assert_ne!(more, text);
    scratch.write("run/config.toml", more);
    let child = scratch.start(&["eval", "run"]);
    // It listens once it evaluates: SIGINT is the second bit of the signals that it catches.
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 2 > 0
    };
    while !caught() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(
        said.err.contains("stopping") && said.out.is_empty(),
        "{said:?}"
    );
}

/// `rrvq train 2>&1 | tee log`: Ctrl-C ends `tee` first, and then nobody hears the program.
#[cfg(unix)]
#[test]
fn an_interrupted_run_saves_even_if_nobody_listens() {
    let scratch = Scratch::new();
    let mut child = scratch.start(&train("run", &["--set", "train.eval_every=1"]));
    drop((child.stdout.take(), child.stderr.take()));
    wait_for(&scratch.path("run/samples/step-00000002.png"));
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let said = scratch.run(&["info", "run"]).done();
    assert!(
        said.contains("of 40 steps") && !said.contains("trained 40 "),
        "{said}"
    );
    assert!(scratch.path("run/state.safetensors").exists());
}

#[test]
fn a_finished_run_can_be_lengthened() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let before = scratch.checkpoint("run");
    let resume = ["train", "--resume", "--out", "run"];
    assert!(scratch.run(&resume).done().contains("10 steps done"));
    assert!(
        scratch.checkpoint("run") == before,
        "nothing to do, nothing done"
    );
    let said = scratch
        .run(&[&resume[..], &["--steps", "15"]].concat())
        .done();
    assert!(
        said.contains("going on from step 10") && said.contains("15 steps done"),
        "{said}"
    );
    scratch
        .run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "15",
            "--out",
            "whole",
        ])
        .done();
    assert!(scratch.read("run/model.safetensors") == scratch.read("whole/model.safetensors"));
}

#[test]
fn numbers_that_are_not_finite_end_the_run_and_keep_the_checkpoint() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let before = scratch.checkpoint("run");
    let resume = [
        "train", "--resume", "--out", "run", "--steps", "30", "--set",
    ];
    for lr in ["train.lr=1e30", "train.lr=1e38", "train.lr=1e300"] {
        // A checkpoint after every step is where ruined weights would be saved.
        let said = scratch.run(&[&resume[..], &[lr, "--set", "train.save_every=1"]].concat());
        said.refused(&[
            "at step 11",
            "checkpoint of step 10 in run/state.safetensors",
            "lower train.lr",
        ]);
        let places = [
            "non-finite KL in layer",
            "non-finite likelihood",
            "non-finite loss",
            "non-finite gradient",
        ];
        assert!(
            places.iter().any(|place| said.err.contains(place)),
            "{said:?}"
        );
        assert!(scratch.checkpoint("run") == before);
    }
    scratch
        .run(&[&resume[..], &["train.lr=1e-3"]].concat())
        .done();
    scratch.run(&["eval", "run"]).done();
}

#[test]
fn an_unstable_ablation_ends_in_words_in_the_log_too() {
    let scratch = Scratch::new();
    let train = ["train", "--preset", "tiny-swatches", "--out", "run"];
    let ablation = ["--set", "model.prior=direct", "--set", "train.save_every=5"];
    let first = [&train[..], &ablation, &["--steps", "5"]].concat();
    scratch.run(&first).done();
    let before = scratch.checkpoint("run");
    let resume = ["train", "--resume", "--out", "run", "--steps", "40"];
    let said = scratch.run(&[&resume[..], &["--set", "train.lr=1e25"]].concat());
    said.refused(&[
        "training diverged at step",
        "checkpoint of step 5 in run/state.safetensors",
        "a direct prior with learnt variances is known to be unstable",
    ]);
    assert!(scratch.checkpoint("run") == before);
    let records = scratch.records("run");
    let last = records.last().unwrap();
    assert_eq!(last["kind"], "diverged");
    assert!(said.err.contains(last["said"].as_str().unwrap()), "{last}");
    assert!(said.err.contains(last["place"].as_str().unwrap()), "{last}");
    let log = String::from_utf8(scratch.read("run/log.jsonl")).unwrap();
    assert!(!log.contains("null"), "no record without numbers: {log}");
    assert!(
        scratch
            .run(&["info", "run"])
            .done()
            .contains("it stopped: training diverged")
    );
    scratch
        .run(&[&resume[..], &["--set", "train.lr=1e-3"]].concat())
        .done();
    assert!(scratch.logged("run", "diverged").is_empty());
}

#[test]
fn a_run_that_is_lost_from_the_start_says_so() {
    let scratch = Scratch::new();
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--out",
        "run",
        "--set",
        "train.lr=1e30",
    ];
    scratch
        .run(&train)
        .refused(&["at step 2", "no checkpoint had been written yet"]);
    assert!(!scratch.path("run/model.safetensors").exists());
    // The last step's weights are saved without a next step to test them.
    let said = scratch.run(&[&train[..], &["--overwrite", "--steps", "1"]].concat());
    said.refused(&["at step 1", "no checkpoint had been written yet"]);
    assert!(!scratch.path("run/model.safetensors").exists());
}
