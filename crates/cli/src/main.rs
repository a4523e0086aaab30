//! The program `rrvq`: arguments, progress, printing. What it does is in the library.

mod args;
mod bench;
mod codec;
mod codes;
mod commands;
mod compare;
mod data;
mod device;
mod doctor;
mod lossy;
mod prior;
mod serve;
mod shell;
mod terminal;

use args::{Args, Command};
use clap::Parser;
use rrvq::{Config, Error, Remedy};
use std::time::Instant;

fn main() {
    let begun = Instant::now();
    let args = Args::parse();
    let outcome = set_threads(args.threads.into()).and_then(|()| match &args.command {
        Command::Demo(demo) => commands::demo(demo),
        Command::Train(train) => commands::train(train),
        Command::Prior(args) => prior::prior(args),
        Command::Eval(eval) => commands::eval(eval),
        Command::Sample(sample) => commands::sample(sample),
        Command::Reconstruct(reconstruct) => commands::reconstruct(reconstruct),
        Command::Codes(args) => codes::codes(args),
        Command::Decode(args) => codes::decode(args),
        Command::Models(args) => codes::models(args),
        Command::Compress(compress) => codec::compress(compress),
        Command::Decompress(decompress) => codec::decompress(decompress),
        Command::Pack(pack) => codec::pack(pack),
        Command::Codec {
            what: args::Codec::Eval(eval),
        } => compare::eval(eval),
        Command::Info(info) => commands::info(info),
        Command::Report(report) => commands::report(report),
        Command::Serve(args) => serve::serve(args),
        Command::Presets(presets) => commands::presets(presets),
        Command::Data { what } => match what {
            args::Data::Info(info) => data::info(info),
            args::Data::Fetch(fetch) => data::fetch(fetch),
        },
        Command::Bench { what } => bench::bench(what, begun),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Completions(args) => {
            shell::completions(args);
            Ok(())
        }
        Command::Man(args) => shell::man(args),
    });
    if let Err(error) = outcome {
        terminal::complain(error.tell(flag));
        std::process::exit(2);
    }
}

/// What to do about an error, by this program's flags.
fn flag(remedy: Remedy) -> String {
    match remedy {
        Remedy::DataFolder => "name the right folder with --data DIR",
        Remedy::Overwrite => "or start again with --overwrite",
        Remedy::TrainPrior => {
            "train it again with `rrvq prior --overwrite`, or sample with --uniform"
        }
        Remedy::Model => "name its run folder with --model RUN",
        Remedy::Neighbours => "give --neighbours a number above 0",
        Remedy::Prune => "pack it without --prune",
        Remedy::Destination => "or fetch into another folder with --out",
        Remedy::Source => "or try another place with --from",
        other => return other.to_string(),
    }
    .into()
}

/// Changes settings as `--set` asks.
fn set(config: &mut Config, assignments: &[String]) -> rrvq::Result<()> {
    for assignment in assignments {
        let named = |error: Error| Error::new(format!("--set {error}"));
        config.set(assignment).map_err(named)?;
    }
    Ok(())
}

/// 0 leaves the choice to the machine. Results do not depend on it.
fn set_threads(threads: usize) -> rrvq::Result<()> {
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global();
    built.map_err(|e| {
        rrvq::Error::new(format!(
            "cannot start {threads} threads: {e}; ask for fewer with --threads"
        ))
    })
}
