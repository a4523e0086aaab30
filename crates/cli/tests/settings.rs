//! Settings of training, as the program shows what they do.

mod common;
use common::Scratch;

fn train(scratch: &Scratch, out: &str, settings: &[&str]) -> String {
    let base = format!("train --preset tiny-swatches --steps 20 --out {out}");
    let mut args: Vec<&str> = base.split(' ').collect();
    settings.iter().for_each(|s| args.extend(["--set", s]));
    scratch.run(&args).done()
}

#[test]
fn held_out_images_are_what_training_is_judged_by() {
    let scratch = Scratch::new();
    let said = train(&scratch, "run", &["data.holdout=0.125"]);
    assert!(said.contains("validation bits/dim"), "{said}");
    let records = scratch.records("run");
    let last = records.iter().rfind(|r| r["kind"] == "eval").unwrap();
    assert_eq!(
        (&last["split"], &last["images"]),
        (&"validation".into(), &64.into())
    );
    for (split, images) in [("validation", 64), ("train", 448), ("test", 64)] {
        let found = scratch
            .run(&["eval", "run", "--json", "--split", split])
            .json();
        assert_eq!(
            (&found["split"], &found["images"]),
            (&split.into(), &images.into())
        );
    }
    // The same images and noise: what the log has is what the command finds.
    let again = [
        "eval",
        "run",
        "--json",
        "--split",
        "validation",
        "--batch",
        "16",
    ];
    let again = scratch.run(&again).json();
    assert_eq!(again["bits_per_dim"], last["bits_per_dim"]);
    scratch.run(&["report", "run"]).done();
    let page = String::from_utf8(scratch.read("report.html")).unwrap();
    assert!(page.contains("Bits per dim of validation images"));
    let said = scratch.run(&["info", "run"]).done();
    assert!(said.contains("on 64 validation images"), "{said}");
}

#[test]
fn a_run_without_a_hold_out_has_no_validation_images() {
    let scratch = Scratch::new();
    let said = train(&scratch, "run", &[]);
    assert!(said.contains("test bits/dim"), "{said}");
    scratch
        .run(&["eval", "run", "--split", "validation"])
        .refused(&["no validation images", "data.holdout"]);
    scratch
        .run(&["eval", "run", "--split", "valid"])
        .refused(&["train, validation or test"]);
    let too_few = [
        "train",
        "--preset",
        "tiny-swatches",
        "--set",
        "data.holdout=0.0001",
    ];
    scratch
        .run(&too_few)
        .refused(&["data.holdout = 0.0001", "512"]);
}
