//! Runs on one page.

mod common;
use common::Scratch;

fn train(scratch: &Scratch, out: &str, more: &[&str]) {
    let train = "train --preset tiny-swatches --steps 20 --set train.eval_every=10 --out";
    let train: Vec<&str> = train.split(' ').chain([out]).collect();
    scratch.run(&[&train[..], more].concat()).done();
}

#[test]
fn runs_stand_side_by_side() {
    let scratch = Scratch::new();
    train(&scratch, "runs/one", &[]);
    train(&scratch, "runs/two", &["--set", "model.sigma=one"]);
    train(&scratch, "runs/three", &["--set", "model.latent=gaussian"]);
    let said = scratch
        .run(&["report", "runs/one", "runs/two", "runs/three"])
        .done();
    assert!(said.contains("report.html"), "{said}");
    let page = String::from_utf8(scratch.read("report.html")).unwrap();
    for there in [
        "<h1>3 runs</h1>",
        "<td>two</td>",
        "codes in 2 layers, embedding prior, variances 1",
        "Gaussians in 2 layers",
        "<td>model.sigma</td>",
        "seconds of training",
        "Codes in use",
        "Samples of the prior, step 20",
        "data:image/png;base64,",
    ] {
        assert!(page.contains(there), "{there} is missing");
    }
    // What is the same in all of them, or decides nothing, is not a difference.
    for absent in ["<td>model.channels</td>", "<td>train.log_every</td>"] {
        assert!(!page.contains(absent), "{absent} is there");
    }
    let eval = scratch.logged("runs/one", "eval");
    assert_eq!(eval, [10, 20]);
}

#[test]
fn one_run_has_a_page_before_it_is_evaluated() {
    let scratch = Scratch::new();
    train(&scratch, "run", &[]);
    std::fs::remove_file(scratch.path("run/log.jsonl")).unwrap();
    std::fs::remove_dir_all(scratch.path("run/samples")).unwrap();
    scratch.run(&["report", "run", "--out", "page.html"]).done();
    let page = String::from_utf8(scratch.read("page.html")).unwrap();
    assert!(page.contains("<h1>run</h1>") && page.contains("evaluated yet"));
    assert!(!page.contains("What differs"));

    scratch.run(&["report", "nowhere"]).refused(&["nowhere"]);
    std::fs::create_dir(scratch.path("run/samples")).unwrap();
    std::fs::write(scratch.path("run/samples/step-00000020.png"), b"no picture").unwrap();
    scratch
        .run(&["report", "run"])
        .refused(&["step-00000020.png", "as an image"]);
}
