//! Damaged files are recognised, and disks that cannot be written to cost nothing that was saved before.

mod common;
use common::Scratch;
use std::fs;

/// A trained run and one of another model beside it.
fn two_runs() -> Scratch {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--set",
            "model.channels=4",
            "--steps",
            "1",
            "--out",
            "other",
        ])
        .done();
    scratch
}

/// Ways to spoil a checkpoint file, and what is said of each.
fn spoilt(whole: &[u8], other: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let mut longer = whole.to_vec();
    longer.extend([0; 7]);
    let mut lying = whole.to_vec();
    lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    vec![
        (whole[..whole.len() / 2].to_vec(), "is damaged"),
        (whole[..whole.len() - 1].to_vec(), "is damaged"),
        (whole[..5].to_vec(), "is damaged"),
        (Vec::new(), "is damaged"),
        (b"these are not tensors at all".to_vec(), "is damaged"),
        (longer, "is damaged"),
        (lying, "is damaged"),
        (other.to_vec(), "belongs to another model"),
    ]
}

#[test]
fn a_spoilt_model_is_recognised() {
    let scratch = two_runs();
    let (whole, other) = (
        scratch.read("run/model.safetensors"),
        scratch.read("other/model.safetensors"),
    );
    for (bytes, said) in spoilt(&whole, &other) {
        scratch.write("run/model.safetensors", bytes);
        for args in [
            vec!["eval", "run"],
            vec!["info", "run"],
            vec!["sample", "run", "--out", "x.png"],
            vec!["reconstruct", "run", "--out", "x.png"],
        ] {
            scratch.run(&args).refused(&["run/model.safetensors", said]);
        }
    }
    fs::remove_file(scratch.path("run/model.safetensors")).unwrap();
    scratch
        .run(&["eval", "run"])
        .refused(&["cannot read run/model.safetensors", "no such file"]);
    assert!(!scratch.path("x.png").exists());
}

#[test]
fn a_spoilt_state_is_recognised_and_nothing_is_touched() {
    let scratch = two_runs();
    let (whole, other) = (
        scratch.read("run/state.safetensors"),
        scratch.read("other/state.safetensors"),
    );
    let kept = ["run/model.safetensors", "run/config.toml", "run/log.jsonl"]
        .map(|name| (name, scratch.read(name)));
    let resume = ["train", "--resume", "--out", "run", "--steps", "12"];
    for (bytes, said) in spoilt(&whole, &other) {
        scratch.write("run/state.safetensors", bytes);
        scratch
            .run(&resume)
            .refused(&["run/state.safetensors", said]);
    }
    // A model's file has no optimiser in it.
    scratch.write(
        "run/state.safetensors",
        scratch.read("run/model.safetensors"),
    );
    scratch
        .run(&resume)
        .refused(&["run/state.safetensors", "another model"]);
    for (name, bytes) in kept {
        assert!(scratch.read(name) == bytes, "{name} changed");
    }
    scratch.write("run/state.safetensors", whole);
    scratch.run(&resume).done();
}

#[test]
fn a_lost_state_does_not_start_the_run_anew() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let model = scratch.read("run/model.safetensors");
    fs::remove_file(scratch.path("run/state.safetensors")).unwrap();
    scratch
        .run(&["train", "--resume", "--out", "run", "--steps", "12"])
        .refused(&["run/state.safetensors", "--overwrite"]);
    assert!(scratch.read("run/model.safetensors") == model);
}

/// A run that is killed between the two files of its first checkpoint has a state and no model.
#[test]
fn a_model_that_was_not_written_yet_is_made_from_the_state() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let model = scratch.read("run/model.safetensors");
    fs::remove_file(scratch.path("run/model.safetensors")).unwrap();
    scratch.run(&["train", "--resume", "--out", "run"]).done();
    assert!(scratch.read("run/model.safetensors") == model);
}

#[test]
fn a_lost_or_spoilt_configuration_is_named() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let commands = [
        vec!["eval", "run"],
        vec!["info", "run"],
        vec!["sample", "run", "--out", "x.png"],
        vec!["train", "--resume", "--out", "run"],
    ];
    scratch.write(
        "run/config.toml",
        "[model]\nchannels = 4\nsize = 8\nmaps = [4, 2]\nembed = 8\ncodes = 16\n",
    );
    commands
        .iter()
        .for_each(|args| scratch.run(args).refused(&["safetensors", "another model"]));
    scratch.write("run/config.toml", "[model]\nchannels = \"four\"\n");
    commands.iter().for_each(|args| {
        scratch
            .run(args)
            .refused(&["run/config.toml, line 2", "model.channels"])
    });
    fs::remove_file(scratch.path("run/config.toml")).unwrap();
    commands
        .iter()
        .for_each(|args| scratch.run(args).refused(&["run has no config.toml"]));
}

#[test]
fn a_torn_log_is_read_and_a_broken_one_is_named() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let log = String::from_utf8(scratch.read("run/log.jsonl")).unwrap();
    scratch.write("run/log.jsonl", format!("{log}{{\"kind\":\"tra"));
    assert!(
        scratch
            .run(&["info", "run"])
            .done()
            .contains("last evaluation, step 10")
    );
    scratch.write("run/log.jsonl", format!("oops\n{log}"));
    scratch
        .run(&["info", "run"])
        .refused(&["run/log.jsonl, line 1", "remove the line"]);
    scratch.write("run/log.jsonl", "");
    assert!(
        scratch
            .run(&["info", "run"])
            .done()
            .contains("not evaluated yet")
    );
}

#[test]
fn places_that_cannot_be_written_to_are_named() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch.write("file", "x");
    let train = |out: &str| {
        scratch.run(&[
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "1",
            "--out",
            out,
        ])
    };
    train("file").refused(&["file is a file", "choose another name"]);
    train("file/run").refused(&["file/run", "a part of the path is a file"]);
    let sample = |out: &str| scratch.run(&["sample", "run", "--count", "1", "--out", out]);
    sample("file/x.png").refused(&["cannot write file/x.png"]);
    sample("none/x.png").refused(&["cannot write none/x.png", "there is no folder none"]);
    sample("run").refused(&["cannot write run"]);
    sample("..").refused(&["cannot write .."]);
    scratch.run(&["demo", "--out", "file"]).refused(&["file"]);
    assert_eq!(scratch.read("file"), b"x");
}

#[test]
fn a_state_that_cannot_be_replaced_ends_the_run() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("run/state.safetensors/in-the-way")).unwrap();
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "1",
        "--out",
        "run",
        "--overwrite",
    ];
    scratch.run(&train).refused(&["run/state.safetensors"]);
}

#[cfg(target_os = "linux")]
mod full {
    use super::*;

    /// Through links of our own, so that a program that replaces what it should write to harms no machine.
    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let scratch = Scratch::new();
        scratch.trained("run");
        let link = |device: &str, name: &str| {
            std::os::unix::fs::symlink(device, scratch.path(name)).unwrap();
        };
        link("/dev/full", "full.png");
        link("/dev/null", "null.png");
        scratch
            .run(&["sample", "run", "--count", "1", "--out", "full.png"])
            .refused(&["cannot write full.png", "the disk is full"]);
        for args in [vec!["sample", "run"], vec!["reconstruct", "run"]] {
            scratch
                .run(&[&args[..], &["--count", "1", "--out", "null.png"]].concat())
                .done();
        }
        for name in ["full.png", "null.png"] {
            assert!(
                fs::symlink_metadata(scratch.path(name))
                    .unwrap()
                    .is_symlink()
            );
        }
    }

    #[test]
    fn a_log_that_cannot_grow_ends_the_run_and_keeps_the_checkpoint() {
        let scratch = Scratch::new();
        let train = "train --preset tiny-swatches --out run --steps 2000 --set train.log_every=1";
        // Checkpoints end before the limit bites: the log is the one file that outgrows it.
        let said = scratch.shell(&format!(
            "trap '' XFSZ; ulimit -f 400; exec $rrvq {train} --set train.save_every=5"
        ));
        said.refused(&["cannot write run/log.jsonl"]);
        scratch.run(&["eval", "run"]).done();
        let said = scratch
            .run(&["train", "--resume", "--out", "run", "--steps", "1"])
            .done();
        assert!(said.contains("going on from step"), "{said}");
    }

    #[test]
    fn a_log_that_cannot_be_made_is_named() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("run")).unwrap();
        std::os::unix::fs::symlink("none/log.jsonl", scratch.path("run/log.jsonl")).unwrap();
        let train = [
            "train",
            "--preset",
            "tiny-swatches",
            "--steps",
            "1",
            "--out",
            "run",
        ];
        scratch
            .run(&train)
            .refused(&["cannot create run/log.jsonl", "no such file or folder"]);
    }

    #[test]
    fn results_on_a_full_disk_are_not_lost_silently() {
        let scratch = Scratch::new();
        scratch.trained("run");
        let said = scratch.shell("$rrvq eval run --json > /dev/full");
        said.refused(&["cannot print to standard output", "the disk is full"]);
        let said = scratch.shell("$rrvq eval none 2> /dev/full");
        assert_eq!(
            said.code,
            Some(2),
            "nobody can hear the sentence, but it is still a mistake: {said:?}"
        );
    }

    /// A limit on the size of files stands in for a full disk: it needs no rights and hits where it should.
    #[test]
    fn a_checkpoint_that_does_not_fit_leaves_the_one_before() {
        let scratch = Scratch::new();
        scratch.trained("run");
        let before = scratch.checkpoint("run");
        let limited = |blocks: u64| {
            scratch.shell(&format!(
                "trap '' XFSZ; ulimit -f {blocks}; exec $rrvq train --resume --out run --steps 30"
            ))
        };
        let blocks = before.each_ref().map(|bytes| bytes.len() as u64 / 512);
        limited(blocks[0] / 2).refused(&["cannot write run/model.safetensors"]);
        assert!(scratch.checkpoint("run") == before);
        limited((blocks[0] + blocks[1]) / 2).refused(&["cannot write run/state.safetensors"]);
        assert!(scratch.read("run/state.safetensors") == before[1]);
        let litter = fs::read_dir(scratch.path("run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let litter: Vec<_> = litter
            .filter(|name| name.to_string_lossy().contains("rrvq-tmp"))
            .collect();
        assert!(litter.is_empty(), "{litter:?}");
        scratch.run(&["eval", "run"]).done();
        // With room again, the run ends where it would have ended.
        scratch.run(&["train", "--resume", "--out", "run"]).done();
        scratch
            .run(&[
                "train",
                "--preset",
                "tiny-swatches",
                "--steps",
                "30",
                "--set",
                "train.save_every=5",
                "--out",
                "whole",
            ])
            .done();
        assert!(scratch.read("run/model.safetensors") == scratch.read("whole/model.safetensors"));
    }
}
