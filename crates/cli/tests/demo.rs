//! The promise of the README: within two minutes, one layer draws patchworks and the hierarchy whole pictures.

mod common;
use common::Scratch;
use std::time::{Duration, Instant};

/// The recipe of the demo is no matter of luck.
#[test]
#[ignore = "trains ten small models in full: some two minutes"]
fn whole_swatches_come_from_each_of_five_seeds() {
    let scratch = Scratch::new();
    let args = [
        "study", "swatches", "--seeds", "5", "--jobs", "2", "--out", "out",
    ];
    scratch.run(&args).done();
    let numbers = String::from_utf8(scratch.read("out/swatches/numbers.csv")).unwrap();
    let mut rows = numbers.lines();
    let titles: Vec<&str> = rows.next().unwrap().split(',').collect();
    let column = |name: &str| {
        titles
            .iter()
            .position(|title| title.contains(name))
            .unwrap()
    };
    let (model, whole) = (column("model"), column("one colour"));
    let mut seen = [0; 2];
    for row in rows {
        let cells: Vec<&str> = row.split(',').collect();
        let count: u32 = cells[whole].split(' ').next().unwrap().parse().unwrap();
        let hierarchy = cells[model].contains("l5");
        seen[usize::from(hierarchy)] += 1;
        match hierarchy {
            true => assert!(count >= 56, "{row}"),
            false => assert!(count <= 6, "{row}"),
        }
    }
    assert_eq!(seen, [5, 5], "{numbers}");
}

#[test]
#[ignore = "trains both models in full: up to two minutes"]
fn one_layer_draws_patchworks_and_a_hierarchy_does_not() {
    let scratch = Scratch::new();
    let begin = Instant::now();
    let said = scratch.run(&["demo", "--out", "demo"]).done();
    let took = begin.elapsed();
    println!("{said}");
    let uniform = |model: &str| -> u32 {
        let line = said
            .lines()
            .find(|line| line.contains(model) && line.contains(" of 64"))
            .unwrap_or_else(|| panic!("no {model} in {said}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = words
            .windows(2)
            .position(|pair| pair == ["of", "64"])
            .unwrap();
        words[of - 1].parse().unwrap()
    };
    let (one, five) = (uniform("one layer"), uniform("five layers"));
    assert!(
        one <= 6,
        "{one} of 64 samples of one layer have one colour; expected at most 6"
    );
    assert!(
        five >= 56,
        "{five} of 64 samples of five layers have one colour; expected at least 56"
    );
    assert!(took < Duration::from_secs(120), "{took:?}");
    let report = String::from_utf8(scratch.read("demo/report.html")).unwrap();
    for count in [one, five] {
        assert!(
            report.contains(&format!("{count} of 64")),
            "the report tells the same"
        );
    }
    assert!(
        !report.contains("http://") && !report.contains("https://"),
        "the page needs no network"
    );
    for picture in [
        "originals",
        "one-layer-samples",
        "one-layer-reconstructions",
        "hierarchy-samples",
        "hierarchy-reconstructions",
    ] {
        common::png_size(&scratch.read(&format!("demo/{picture}.png")));
    }
}
