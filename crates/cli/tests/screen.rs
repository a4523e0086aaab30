//! The script that runs many short trainings and makes a table of them.

#![cfg(unix)]

mod common;
use common::Scratch;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/screen.sh");

/// The cells of a run's row.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("| {name} | ");
    let row = table.lines().find(|line| line.starts_with(&begin));
    let row = row.unwrap_or_else(|| panic!("no row of {name} in {table}"));
    row.split('|').map(str::trim).collect()
}

#[test]
fn a_screen_has_a_row_for_each_run_and_keeps_what_is_done() {
    let scratch = Scratch::new();
    let list = "# baselines\n\nbase |\none | --set model.sigma=one\nbad | --set model.codes=1\nseed | --seed 1\n";
    scratch.write("list", list);
    let run = format!(
        "bash {SCRIPT} --rrvq \"$rrvq\" --list list --steps 20 --jobs 2 --preset tiny-swatches"
    );
    let said = scratch.shell(&run).done();
    let last = |name: &str| {
        let records = scratch.records(&format!("screen/{name}"));
        records.into_iter().rfind(|r| r["kind"] == "eval").unwrap()
    };
    for (name, flags) in [
        ("base", ""),
        ("one", "--set model.sigma=one"),
        ("seed", "--seed 1"),
    ] {
        let (cells, record) = (row(&said, name), last(name));
        assert_eq!(record["split"], "validation");
        assert_eq!((cells[2], cells[9]), ("20", flags));
        let number = |cell: usize| cells[cell].parse::<f64>().unwrap();
        let bits = |key: &str| record[key].as_f64().unwrap();
        assert!((number(4) - bits("bits_per_dim")).abs() < 1e-4);
        assert!((number(5) + number(6) - number(4)).abs() < 2e-4);
        let count = |layer: usize, key: &str| record["usage"][layer][key].as_u64().unwrap();
        let (used, dead) = (
            count(0, "used") + count(1, "used"),
            count(0, "dead") + count(1, "dead"),
        );
        assert_eq!(cells[7], format!("{used} of {}", used + dead));
        assert_eq!(cells[8].split(' ').count(), 2, "a perplexity a layer");
    }
    assert!(row(&said, "bad")[9].contains("failed: rrvq: model.codes is 1"));

    // Again: what ended well is only told, what failed is tried; a stopped run shows how far it was.
    scratch.write("list", list.replace("codes=1", "codes=8"));
    std::fs::remove_dir_all(scratch.path("screen/base")).unwrap();
    let again = scratch.shell(&run).done();
    assert_eq!(row(&again, "base"), row(&said, "base"));
    assert!(!scratch.path("screen/base").exists());
    assert!(row(&again, "bad")[7].ends_with(" of 16"));
    std::fs::remove_file(scratch.path("screen/results.md")).unwrap();
    let table = scratch
        .shell(&format!("bash {SCRIPT} --table screen"))
        .done();
    assert!(row(&table, "one")[9].ends_with("(unfinished)"));
    assert!(row(&table, "base")[9].ends_with("(unfinished)"));
}

#[test]
fn mistakes_are_told() {
    let scratch = Scratch::new();
    scratch.write("list", "base |\n");
    for (args, said) in [
        ("--list none --rrvq \"$rrvq\"", "there is no list none"),
        (
            "--list list --rrvq /no/program",
            "there is no program /no/program",
        ),
        ("--list list --rrvq \"$rrvq\" --steps many", "not many"),
        ("--lost list", "no option --lost"),
        ("--table none", "not the folder of a screen"),
    ] {
        let script = format!("bash {SCRIPT} {args} 2>&1; test $? = 2 && echo refused");
        let out = scratch.shell(&script).done();
        assert!(
            out.contains(said) && out.contains("refused"),
            "{args}: {out}"
        );
    }
}
