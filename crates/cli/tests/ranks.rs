//! Several processes that train one model: the bits of one process, and no process left behind when one of them fails.
//!
//! Processes find each other through the variables that launchers set. Those of `mpirun` are run where there is one.

mod common;

use common::{Said, Scratch, wait_for};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// All that crosses shards: free bits, splits of codes, data-dependent starts, evaluations; and codebooks that follow
/// averages, with codes that start again.
const SETTINGS: [&[&str]; 2] = [
    &["model.free_bits=0.05", "train.split_every=8"],
    &[
        "model.latent=nearest",
        "model.codebook=ema",
        "model.codebook_revive=0.2",
    ],
];

fn train<'a>(out: &'a str, steps: &'a str, settings: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "--preset", "tiny-swatches", "--out", out];
    args.extend(["--steps", steps, "--threads", "1"]);
    let fixed = ["train.shards=4", "train.batch=16", "train.eval_every=10"];
    for setting in fixed.iter().chain(settings) {
        args.extend(["--set", setting]);
    }
    args
}

fn resume<'a>(out: &'a str, steps: &'a str) -> [&'a str; 8] {
    [
        "train",
        "--resume",
        "--out",
        out,
        "--steps",
        steps,
        "--threads",
        "1",
    ]
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// One rank of `world`, as torchrun would start it.
fn rank(scratch: &Scratch, rank: usize, world: usize, port: u16, args: &[&str]) -> Child {
    let mut command = scratch.command(args);
    for (name, value) in [
        ("RANK", rank),
        ("WORLD_SIZE", world),
        ("LOCAL_RANK", rank),
        ("MASTER_PORT", port.into()),
    ] {
        command.env(name, value.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn start(scratch: &Scratch, world: usize, args: &[&str]) -> Vec<Child> {
    let port = free_port();
    let start = |number| rank(scratch, number, world, port, args);
    (0..world).map(start).collect()
}

/// What each has said once all have ended, which must be soon.
fn ended(children: Vec<Child>) -> Vec<Said> {
    let end = Instant::now() + Duration::from_secs(30);
    let wait = |mut child: Child| {
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = child.try_wait().unwrap().is_none();
        let _ = child.kill();
        let said = Said::from(child.wait_with_output().unwrap());
        assert!(!left, "a rank was left behind: {said:?}");
        said
    };
    children.into_iter().map(wait).collect()
}

fn together(scratch: &Scratch, world: usize, args: &[&str]) {
    let children = start(scratch, world, args);
    for (rank, child) in children.into_iter().enumerate() {
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.out.is_empty(), rank > 0, "the first rank alone speaks");
        assert!(said.err.is_empty(), "{said:?}");
    }
}

/// `mpirun` with so many processes; nothing where there is none.
fn mpirun(scratch: &Scratch, world: usize, args: &[&str]) -> Option<Command> {
    let asked = Command::new("mpirun").arg("--version").output().ok()?;
    let open = String::from_utf8_lossy(&asked.stdout).contains("Open MPI");
    let mut command = Command::new("mpirun");
    command.args(["-n", &world.to_string()]);
    if open {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
        // Containers may forbid what it would copy memory between processes with.
        command.args(["--mca", "btl_vader_single_copy_mechanism", "none"]);
    }
    let program = scratch.command(args);
    command.arg(program.get_program()).args(program.get_args());
    command.current_dir(scratch.path(".")).stdin(Stdio::null());
    Some(command)
}

fn model(scratch: &Scratch, run: &str) -> Vec<u8> {
    scratch.read(&format!("{run}/model.safetensors"))
}

#[test]
fn any_number_of_ranks_writes_the_bits_of_one_process() {
    for settings in SETTINGS {
        let scratch = Scratch::new();
        scratch.run(&train("one", "30", settings)).done();
        for (world, out) in [(2, "two"), (4, "four")] {
            together(&scratch, world, &train(out, "30", settings));
            assert!(model(&scratch, out) == model(&scratch, "one"), "{out}");
            assert_eq!(scratch.logged(out, "eval"), [10, 20, 30]);
            let bits = |run: &str| {
                let evaluations = scratch.records(run).into_iter();
                let evaluations = evaluations.filter(|record| record["kind"] == "eval");
                evaluations.map(|record| record["bits_per_dim"].to_string())
            };
            assert!(bits(out).eq(bits("one")));
        }
    }
}

#[test]
fn mpirun_writes_the_bits_of_one_process() {
    for settings in SETTINGS {
        let scratch = Scratch::new();
        if mpirun(&scratch, 1, &[]).is_none() {
            println!("skipped: there is no mpirun (Debian and Ubuntu: openmpi-bin)");
            return;
        }
        scratch.run(&train("one", "30", settings)).done();
        for (world, out) in [(1, "mpi1"), (2, "mpi2"), (4, "mpi4")] {
            let mut command = mpirun(&scratch, world, &train(out, "30", settings)).unwrap();
            Said::from(command.output().unwrap()).done();
            assert!(model(&scratch, out) == model(&scratch, "one"), "{out}");
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let scratch = Scratch::new();
    let settings = SETTINGS[0];
    together(&scratch, 4, &train("many", "15", settings));
    together(&scratch, 2, &resume("many", "22"));
    scratch.run(&resume("many", "30")).done();
    scratch.run(&train("one", "15", settings)).done();
    scratch.run(&resume("one", "22")).done();
    scratch.run(&resume("one", "30")).done();
    assert!(model(&scratch, "many") == model(&scratch, "one"));
}

#[test]
fn ranks_evaluate_together() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let args = ["eval", "run", "--json", "--samples", "2", "--threads", "1"];
    let one = scratch.run(&args).json();
    let said = ended(start(&scratch, 2, &args));
    assert!(said[1].out.is_empty(), "{said:?}");
    let two: serde_json::Value = serde_json::from_str(&said[0].out).unwrap();
    for field in ["images", "usage", "importance_bound"] {
        assert_eq!(two[field], one[field], "{field}");
    }
    let bits = |found: &serde_json::Value| found["bits_per_dim"].as_f64().unwrap();
    assert!((bits(&two) - bits(&one)).abs() < 1e-9, "{two} and {one}");
    let said = ended(start(&scratch, 3, &args));
    said[0].refused(&["3 processes", "--batch"]);
}

#[test]
fn ranks_sample_together() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let args = |out| {
        [
            "sample", "run", "--count", "150", "--seed", "3", "--out", out,
        ]
    };
    scratch.run(&args("one.png")).done();
    let said = ended(start(&scratch, 2, &args("two.png")));
    assert!(said.iter().all(|said| said.code == Some(0)), "{said:?}");
    assert!(said[1].out.is_empty() && said[1].err.is_empty(), "{said:?}");
    assert_eq!(scratch.read("two.png"), scratch.read("one.png"));
    // More ranks than batches of pictures: some have nothing to do.
    let said = ended(start(&scratch, 4, &args("four.png")));
    assert!(said.iter().all(|said| said.code == Some(0)), "{said:?}");
    assert_eq!(scratch.read("four.png"), scratch.read("one.png"));
    let said = ended(start(&scratch, 2, &args("two.png")));
    said[0].refused(&["two.png", "--force"]);
}

#[test]
fn ranks_compare_codecs_together() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let args = [
        "codec",
        "eval",
        "run",
        "--images",
        "6",
        "--json",
        "--threads",
        "1",
    ];
    // Everything but times, and the places of files.
    let tables = |mut found: serde_json::Value| {
        for table in ["lossless", "lossy"] {
            for row in found[table].as_array_mut().unwrap() {
                row.as_object_mut()
                    .unwrap()
                    .retain(|key, _| !key.ends_with("seconds"));
            }
        }
        found
    };
    let one = tables(scratch.run(&args).json());
    let said = ended(start(&scratch, 3, &args));
    assert!(said[1].out.is_empty() && said[2].out.is_empty(), "{said:?}");
    assert_eq!(tables(serde_json::from_str(&said[0].out).unwrap()), one);
    assert!(one["lossy"].as_array().unwrap().len() > 3, "{one}");
}

/// Steps of a run's last checkpoint.
fn saved(scratch: &Scratch, run: &str) -> u64 {
    let info = scratch.run(&["info", run, "--json"]).json();
    info["step"].as_u64().unwrap()
}

/// Kills one of `world` ranks in the middle; the others end by themselves, and the run goes on to the same bits.
fn killed(whole: &[u8], world: usize, victim: usize, after: Duration) {
    let scratch = Scratch::new();
    let settings = ["train.save_every=20", "train.eval_every=0"];
    let mut children = start(&scratch, world, &train("run", STEPS, &settings));
    wait_for(&scratch.path("run/state.safetensors"));
    std::thread::sleep(after);
    children[victim].kill().unwrap();
    let begin = Instant::now();
    let said = ended(children);
    assert!(begin.elapsed() < Duration::from_secs(30));
    for (rank, said) in said.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        assert_eq!(said.code, Some(2), "rank {rank}: {said:?}");
    }
    let speaker = if victim == 0 { 1 } else { 0 };
    said[speaker].refused(&[&format!("rank {victim} "), "--resume"]);
    together(&scratch, world, &resume("run", STEPS));
    assert!(model(&scratch, "run") == *whole, "rank {victim} killed");
}

/// Long enough to be killed in the middle.
const STEPS: &str = "400";

fn whole() -> Vec<u8> {
    let scratch = Scratch::new();
    scratch
        .run(&train("whole", STEPS, &["train.eval_every=0"]))
        .done();
    model(&scratch, "whole")
}

#[test]
fn a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bits() {
    let whole = whole();
    killed(&whole, 2, 1, Duration::ZERO);
    killed(&whole, 4, 2, Duration::from_millis(37));
    killed(&whole, 2, 0, Duration::from_millis(90));
}

/// Twenty times, for those who have the minutes.
#[test]
#[ignore = "takes minutes"]
fn twenty_kills() {
    let whole = whole();
    for round in 0..20u64 {
        let (world, after) = (
            [2, 4][round as usize % 2],
            Duration::from_millis(round * 53 % 400),
        );
        killed(&whole, world, (round * 7 % world as u64) as usize, after);
        println!("killed and gone on: {} of 20", round + 1);
    }
}

#[cfg(unix)]
#[test]
fn one_interrupt_stops_all_ranks_after_the_same_step() {
    let scratch = Scratch::new();
    let children = start(
        &scratch,
        2,
        &train("run", "100000", &["train.save_every=50"]),
    );
    wait_for(&scratch.path("run/state.safetensors"));
    let other = children[1].id().to_string();
    let asked = Command::new("kill")
        .args(["-INT", &other])
        .status()
        .unwrap();
    assert!(asked.success());
    let said = ended(children);
    assert!(said.iter().all(|said| said.code == Some(0)), "{said:?}");
    assert!(
        said[0].out.contains("stopped and saved at step"),
        "{said:?}"
    );
    let next = (saved(&scratch, "run") + 2).to_string();
    together(&scratch, 4, &resume("run", &next));
}

#[test]
fn a_rank_that_stops_answering_ends_all() {
    let scratch = Scratch::new();
    let children = start(
        &scratch,
        2,
        &train("run", "100000", &["train.save_every=5"]),
    );
    wait_for(&scratch.path("run/state.safetensors"));
    let other = children[1].id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &other]).status();
    if !signal("-STOP").is_ok_and(|status| status.success()) {
        println!("skipped: no process can be stopped here");
        return;
    }
    let mut children = children.into_iter();
    let first = ended(children.by_ref().take(1).collect());
    let _ = signal("-CONT");
    first[0].refused(&["rank 1 has said nothing for 20 s"]);
    assert_eq!(ended(children.collect())[0].code, Some(2));
}

#[test]
fn ranks_that_differ_are_refused_with_the_difference() {
    let scratch = Scratch::new();
    let differ = |other: &[&str], words: &[&str]| {
        let port = free_port();
        let args = train("run", "10", &[]);
        let children = vec![
            rank(&scratch, 0, 2, port, &args),
            rank(&scratch, 1, 2, port, &[&args, other].concat()),
        ];
        let said = ended(children);
        said[0].refused(words);
        assert_eq!(said[1].code, Some(2), "{said:?}");
        assert!(!scratch.path("run").exists(), "nothing was begun");
    };
    differ(
        &["--set", "train.lr=0.5"],
        &["rank 0 has train.lr = 0.004", "rank 1 has train.lr = 0.5"],
    );
    differ(
        &["--set", "data.train_images=1000"],
        &["rank 1 has images of data set swatches (train) = 1000"],
    );
}

#[test]
fn ranks_that_do_not_fit_the_shards_are_refused() {
    let scratch = Scratch::new();
    let said = ended(start(&scratch, 3, &train("run", "10", &[])));
    said[0].refused(&["train.shards = 4", "3 processes"]);
    assert!(said.iter().all(|said| said.code == Some(2)), "{said:?}");
    let said = scratch.run(&train("run", "10", &["train.batch=18"]));
    said.refused(&["train.batch = 18", "4 equal parts"]);
    let said = scratch.run(&train(
        "run",
        "10",
        &["train.estimator=vimco", "model.free_bits=0"],
    ));
    said.refused(&["vimco", "train.shards = 1"]);
}

#[test]
fn a_port_in_use_is_named() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let child = rank(&scratch, 0, 2, port, &train("run", "10", &[]));
    ended(vec![child])[0].refused(&[&format!("port {port}"), "MASTER_PORT"]);
}

#[test]
fn a_missing_library_is_named() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&train("run", "10", &[]));
    command.env("OMPI_COMM_WORLD_RANK", "0");
    command.env("OMPI_COMM_WORLD_SIZE", "2");
    command.env("RRVQ_MPI_LIB", "no/such/library.so");
    let said = Said::from(command.output().unwrap());
    said.refused(&["no/such/library.so", "libopenmpi3"]);
}

#[test]
fn gpus_that_are_not_there_are_named() {
    let scratch = Scratch::new();
    if Path::new("/proc/driver/nvidia/gpus").exists() {
        println!("skipped: this machine has GPUs");
        return;
    }
    for asked in [["--gpus", "2"], ["--device", "cuda:0-7"]] {
        let args = [&train("run", "10", &[]), &asked[..]].concat();
        scratch.run(&args).refused(&["GPUs cannot be used"]);
    }
    let args = [
        &train("run", "10", &[]),
        &["--gpus", "2", "--device", "cuda:1"][..],
    ]
    .concat();
    scratch.run(&args).refused(&["--gpus", "--device cuda:1"]);
    let said = scratch.run(&["eval", "run", "--device", "cuda:0-1"]);
    said.refused(&["one GPU"]);
}
