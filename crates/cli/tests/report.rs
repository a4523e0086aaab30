//! Runs on one page.

mod common;
use common::Scratch;

fn train(scratch: &Scratch, out: &str, more: &[&str]) {
    let train = "train --preset tiny-swatches --steps 20 --set train.eval_every=10 --set train.log_every=5 --out";
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
        "Bits per dim of training batches",
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
    assert!(!page.contains("What differs") && !page.contains("training batches"));

    scratch.run(&["report", "nowhere"]).refused(&["nowhere"]);
    std::fs::create_dir(scratch.path("run/samples")).unwrap();
    std::fs::write(scratch.path("run/samples/step-00000020.png"), b"no picture").unwrap();
    scratch
        .run(&["report", "run"])
        .refused(&["step-00000020.png", "as an image"]);
}

/// Prints what is wider than the room it has, and the width of the page.
const MEASURE: &str = r#"<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("*")].filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1
    && getComputedStyle(e).overflowX != "visible").map(e => `${e.tagName}.${e.className} is clipped`);
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) wide.push("the page is clipped");
  document.body.innerHTML = `<pre>measured ${wide.join(", ")}</pre>`;
});</script></body>"#;

#[test]
fn nothing_is_clipped_at_1200_pixels() {
    let scratch = Scratch::new();
    let mut args = vec!["report".to_string()];
    for number in 1..=3 {
        let run = format!("a-rather-long-name-of-a-run-{number}");
        let changes = [
            format!("train.lr=0.00{number}"),
            format!("model.repeat={number}"),
        ];
        let train = ["train", "--preset", "tiny-swatches", "--steps", "4"];
        let rest = ["--set", &changes[0], "--set", &changes[1], "--out", &run];
        scratch.run(&[&train[..], &rest].concat()).done();
        args.push(run);
    }
    args.extend(["--out", "report.html"].map(String::from));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    scratch.run(&args).done();
    let page = String::from_utf8(scratch.read("report.html")).unwrap();
    assert!(page.contains("</body>"));
    scratch.write("measured.html", page.replace("</body>", MEASURE));
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let said = browsers.iter().find_map(|browser| {
        let mut command = std::process::Command::new(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu"]);
        command.args(["--window-size=1200,2000", "--virtual-time-budget=2000"]);
        let page = scratch.path("measured.html");
        command
            .arg("--dump-dom")
            .arg(format!("file://{}", page.display()));
        command.env("HOME", scratch.path("")).output().ok()
    });
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match said.filter(|said| said.contains("measured")) {
        Some(said) => assert!(!said.contains("is clipped"), "{said}"),
        None => println!("skipped: no browser that can be run without a screen"),
    }
}
