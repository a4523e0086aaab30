//! Every command explains itself, and what is not a command is refused.

mod common;
use common::Scratch;

/// Flags of every command.
const ALL: [&str; 7] = [
    "--threads",
    "--max-memory",
    "--max-pixels",
    "--force",
    "--quiet",
    "--verbose",
    "--help",
];

const COMMANDS: [(&str, &[&str]); 34] = [
    ("demo", &["--out"]),
    (
        "train",
        &[
            "--preset",
            "--config",
            "--data",
            "--out",
            "--device",
            "--precision",
            "--gpus",
            "--set",
            "--steps",
            "--minutes",
            "--resume",
            "--overwrite",
            "--seed",
            "--skip-damaged",
            "--tensorboard",
        ],
    ),
    (
        "prior",
        &[
            "<RUN>",
            "--data",
            "--device",
            "--precision",
            "--set",
            "--steps",
            "--minutes",
            "--tensorboard",
            "--resume",
            "--overwrite",
            "--seed",
        ],
    ),
    (
        "eval",
        &[
            "<RUN>",
            "--split",
            "--samples",
            "--images",
            "--batch",
            "--data",
            "--device",
            "--precision",
            "--json",
        ],
    ),
    (
        "sample",
        &[
            "<RUN>",
            "--out",
            "--count",
            "--seed",
            "--temperature",
            "--pixels",
            "--min-p",
            "--uniform",
            "--given",
            "--from-layer",
            "--device",
            "--precision",
        ],
    ),
    (
        "neighbours",
        &[
            "<RUN>",
            "--out",
            "--count",
            "--nearest",
            "--seed",
            "--data",
            "--json",
            "--device",
            "--precision",
        ],
    ),
    (
        "interpolate",
        &[
            "<FIRST>",
            "<SECOND>",
            "--out",
            "--model",
            "--count",
            "--fill",
            "--device",
            "--precision",
        ],
    ),
    (
        "quality",
        &[
            "<RUN>",
            "--data",
            "--count",
            "--seed",
            "--temperature",
            "--json",
            "--device",
            "--precision",
        ],
    ),
    (
        "reconstruct",
        &[
            "<RUN>",
            "[IMAGES]...",
            "--out",
            "--count",
            "--device",
            "--precision",
        ],
    ),
    (
        "codes",
        &[
            "<RUN>",
            "[IMAGES]...",
            "--data",
            "--split",
            "--count",
            "--out",
            "--device",
            "--precision",
        ],
    ),
    (
        "decode",
        &[
            "<RUN>",
            "<CODES>",
            "--out",
            "--top",
            "--temperature",
            "--seed",
            "--pixels",
            "--min-p",
            "--device",
            "--precision",
        ],
    ),
    (
        "compress",
        &[
            "<IMAGES>...",
            "--out",
            "--model",
            "--lossy",
            "--quality",
            "--drop",
            "--bits",
            "--tile",
            "--search",
            "--bit-worth",
            "--json",
        ],
    ),
    (
        "decompress",
        &[
            "<FILE>",
            "--out",
            "--model",
            "--keep-going",
            "--partial",
            "--json",
        ],
    ),
    (
        "pack",
        &["<RUN>", "--out", "--prune", "--neighbours", "--data"],
    ),
    ("codec", &["eval", "list"]),
    (
        "codec eval",
        &[
            "<RUN>",
            "[DATA]",
            "--images",
            "--lossless",
            "--lossy",
            "--search",
            "--tile",
            "--out",
            "--json",
        ],
    ),
    (
        "study",
        &[
            "[NAME]",
            "--data",
            "--scale",
            "--device",
            "--precision",
            "--minutes",
            "--budget",
            "--seeds",
            "--jobs",
            "--plan",
            "--run",
            "--out",
        ],
    ),
    ("codec list", &["<FILE>", "--json"]),
    ("info", &["<RUN>", "--json"]),
    ("report", &["<RUNS>...", "--out"]),
    ("serve", &["<RUN>", "--port", "--modules"]),
    ("presets", &["[NAME]", "--keys"]),
    ("models", &["[NAME]"]),
    ("data", &["info", "fetch"]),
    (
        "data info",
        &["<DIR>", "--sheet", "--size", "--set", "--json"],
    ),
    ("data fetch", &["<NAME>", "--out", "--from"]),
    ("bench", &["step", "eval", "profile", "codec"]),
    (
        "bench codec",
        &["[IMAGES]...", "--model", "--data", "--count", "--json"],
    ),
    (
        "bench step",
        &[
            "--device",
            "--precision",
            "--layers",
            "--channels",
            "--embed",
            "--codes",
            "--batch",
            "--steps",
            "--optimiser",
            "--json",
        ],
    ),
    (
        "bench eval",
        &[
            "--device",
            "--precision",
            "--layers",
            "--channels",
            "--embed",
            "--codes",
            "--batch",
            "--steps",
            "--optimiser",
            "--json",
        ],
    ),
    (
        "bench profile",
        &[
            "--device",
            "--precision",
            "--layers",
            "--channels",
            "--embed",
            "--codes",
            "--batch",
            "--steps",
            "--optimiser",
            "--json",
        ],
    ),
    ("doctor", &["--json"]),
    ("completions", &["<SHELL>"]),
    ("man", &["--out"]),
];

#[test]
fn every_command_names_its_flags() {
    let scratch = Scratch::new();
    for (command, flags) in COMMANDS {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.push("--help");
        let help = scratch.run(&args).done();
        for flag in flags.iter().chain(&ALL) {
            assert!(help.contains(flag), "{command}: {flag} is not in\n{help}");
        }
    }
}

#[test]
fn the_list_above_is_complete() {
    let scratch = Scratch::new();
    for (command, flags) in COMMANDS {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.push("--help");
        let help = scratch.run(&args).done();
        let listed = help.lines().filter_map(|line| {
            let word = line
                .trim_start()
                .trim_start_matches("-h, ")
                .split_whitespace()
                .next()?;
            (line.starts_with(' ') && word.starts_with("--")).then_some(word)
        });
        for flag in listed.filter(|flag| !ALL.contains(flag)) {
            assert!(flags.contains(&flag), "{command}: {flag} is not expected");
        }
    }
    let help = scratch.run(&["--help"]).done();
    let section = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let names: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    let expected: Vec<&str> = COMMANDS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !name.contains(' '))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn the_first_page_says_where_to_start() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["--help"]).done().contains("rrvq demo"));
    assert!(scratch.run(&["--version"]).done().starts_with("rrvq "));
    let bare = scratch.run(&[]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.err.contains("Usage: rrvq"), "{bare:?}");
}

#[test]
fn what_is_not_a_command_is_refused() {
    let scratch = Scratch::new();
    for (args, words) in [
        (vec!["trian"], vec!["trian", "train"]),
        (vec!["train"], vec!["--preset", "--config", "--resume"]),
        (
            vec!["train", "--preset", "a", "--config", "b"],
            vec!["--preset", "--config", "cannot be used"],
        ),
        (
            vec!["train", "--preset", "a", "--resume", "--overwrite"],
            vec!["--resume", "--overwrite"],
        ),
        (
            vec!["train", "--preset", "a", "--steps", "many"],
            vec!["many", "--steps"],
        ),
        (
            vec!["train", "--preset", "a", "--device", "abacus"],
            vec!["abacus", "cpu, cuda, or cuda:N"],
        ),
        (
            vec!["eval", "r", "--device", "cuda:first"],
            vec!["cuda:first", "counted from 0"],
        ),
        (
            vec!["bench", "step", "--precision", "f64"],
            vec!["f64", "bf16", "f32"],
        ),
        (vec!["eval"], vec!["<RUN>"]),
        (vec!["eval", "r", "--samples", "0"], vec!["--samples", "0"]),
        (vec!["sample", "r"], vec!["--out"]),
        (
            vec!["sample", "r", "--out", "x.png", "--count", "0"],
            vec!["--count"],
        ),
        (vec!["bench"], vec!["Usage: rrvq bench"]),
        (
            vec!["--threads", "100000", "presets"],
            vec!["--threads", "1024"],
        ),
        (vec!["presets", "tiny-swatches", "--keys"], vec!["--keys"]),
    ] {
        let said = scratch.run(&args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        for word in words {
            assert!(
                said.err.contains(word),
                "{args:?}: {word:?} is not in {:?}",
                said.err
            );
        }
    }
}

#[test]
fn shells_and_man_learn_every_command() {
    let scratch = Scratch::new();
    let scripts = ["bash", "zsh", "fish", "powershell", "elvish"]
        .map(|shell| scratch.run(&["completions", shell]).done());
    let page = scratch.run(&["man"]).done();
    assert!(page.contains(".TH rrvq 1"), "{page}");
    scratch.run(&["man", "--out", "pages"]).done();
    for (command, flags) in COMMANDS {
        let name = command.split(' ').next_back().unwrap();
        assert!(scripts.iter().all(|script| script.contains(name)), "{name}");
        let file = format!("pages/rrvq-{}.1", command.replace(' ', "-"));
        let page = String::from_utf8(scratch.read(&file)).unwrap();
        for flag in flags.iter().filter(|flag| flag.starts_with("--")) {
            let flag = flag.replace('-', "\\-");
            assert!(page.contains(&flag), "{flag} is not in {file}");
        }
    }
    let said = scratch.run(&["completions", "dos"]);
    assert!(
        said.err.contains("bash") && said.code == Some(2),
        "{said:?}"
    );
}

#[test]
fn the_studies_of_several_seeds_are_named_where_seeds_are() {
    let help = Scratch::new().run(&["study", "--help"]).done();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let several = rrvq_study::studies::STUDIES.iter().copied();
    let several = several.filter(|study| study.takes_seeds());
    let mut named: Vec<&str> = several.map(|study| study.name()).collect();
    let (_, told) = help.split_once("can have several (").unwrap();
    let (told, _) = told.split_once(')').unwrap();
    let mut told: Vec<&str> = told.split(", ").collect();
    named.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, named);
}
