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
mod jobs;
mod launch;
mod lossy;
mod neighbours;
mod output;
mod pictures;
mod prior;
mod serve;
mod shell;
mod study;
mod terminal;
mod train;

use args::{Args, Command};
use clap::{CommandFactory, FromArgMatches};
use rrvq::limits::Limits;
use rrvq::{Config, Error, Remedy};
use std::io::IsTerminal;
use std::time::Instant;

fn main() {
    let begun = Instant::now();
    let json = std::env::args_os().any(|argument| argument == "--json");
    let args = parsed().unwrap_or_else(|said| answer(&said, json));
    let several = matches!(
        args.command,
        Command::Train(_) | Command::Eval(_) | Command::Bench { .. }
    );
    let one_of_many = several && launch::is_other_rank();
    output::set_manner(output::Manner {
        force: args.force,
        quiet: args.quiet || one_of_many,
        verbose: args.verbose,
        one_of_many,
    });
    let limits = Limits {
        memory: args.max_memory,
        pixels: args.max_pixels,
    };
    limits.set();
    let ready = check_simd().and_then(|()| set_threads(args.threads.into()));
    let outcome = ready.and_then(|()| terminal::interrupt().scope(|| run(&args.command, begun)));
    terminal::detail(|| {
        let (seconds, threads) = (begun.elapsed().as_secs_f64(), rayon::current_num_threads());
        let memory = bench::peak_memory_mib();
        let memory = memory.map_or(String::new(), |mib| {
            format!(", {mib:.0} MiB at most in memory")
        });
        let simd = doctor::simd_title();
        format!("{seconds:.2} s with {threads} threads and {simd}{memory}")
    });
    if let Err(error) = outcome {
        let said = error.tell(|remedy| flag_of(&args.command, remedy));
        if json {
            terminal::json_failure(&said);
        }
        terminal::complain(said);
        // As a shell would say it of a program that a signal ended.
        std::process::exit(if terminal::interrupt().is_set() {
            130
        } else {
            2
        });
    }
}

/// The arguments. A number below zero is a value, which is then refused in its own words, and no unknown flag.
fn parsed() -> Result<Args, clap::Error> {
    fn numbers(command: clap::Command) -> clap::Command {
        command
            .mut_args(|arg| match arg.get_action().takes_values() {
                true => arg.allow_negative_numbers(true),
                false => arg,
            })
            .mut_subcommands(numbers)
    }
    let matches = numbers(Args::command()).try_get_matches()?;
    Args::from_arg_matches(&matches)
}

/// Does what a command asks for.
fn run(command: &Command, begun: Instant) -> rrvq::Result<()> {
    match command {
        Command::Demo(demo) => commands::demo(demo),
        Command::Train(train) => train::train(train),
        Command::Prior(args) => prior::prior(args),
        Command::Eval(eval) => commands::eval(eval),
        Command::Sample(sample) => commands::sample(sample),
        Command::Neighbours(args) => neighbours::neighbours(args),
        Command::Interpolate(args) => pictures::interpolate(args),
        Command::Quality(args) => pictures::quality(args),
        Command::Reconstruct(reconstruct) => commands::reconstruct(reconstruct),
        Command::Codes(args) => codes::codes(args),
        Command::Decode(args) => codes::decode(args),
        Command::Models(args) => codes::models(args),
        Command::Compress(compress) => codec::compress(compress),
        Command::Decompress(decompress) => codec::decompress(decompress),
        Command::Pack(pack) => codec::pack(pack),
        Command::Codec { what } => match what {
            args::Codec::Eval(eval) => compare::eval(eval),
            args::Codec::List(list) => codec::list(list),
        },
        Command::Study(args) => study::study(args),
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
    }
}

/// Ends the program with what clap has to say: help and version on standard output, or what is wrong with the arguments.
fn answer(said: &clap::Error, json: bool) -> ! {
    if said.use_stderr() {
        if json {
            let text = said.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            terminal::json_failure(first.trim_start_matches("error: "));
        }
        said.exit();
    }
    let text = said.render();
    // A disk that is full is an error here too, which clap would not tell.
    match std::io::stdout().is_terminal() {
        true => terminal::line(text.ansi().to_string().trim_end()),
        false => terminal::line(text.to_string().trim_end()),
    }
    std::process::exit(0);
}

/// Refuses instructions that nobody knows, which would silently be the machine's best.
fn check_simd() -> rrvq::Result<()> {
    let known = ["portable", "avx2", "avx512"];
    match std::env::var_os("RRVQ_SIMD") {
        Some(asked) if !known.iter().any(|name| asked == *name) => Err(Error::new(format!(
            "RRVQ_SIMD is {asked:?}; set it to {}, or unset it for the best this machine has",
            known.join(", ")
        ))),
        _ => Ok(()),
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

/// The same for a command that takes its images in another way than by --data.
fn flag_of(command: &Command, remedy: Remedy) -> String {
    match (command, remedy) {
        (
            Command::Codec {
                what: args::Codec::Eval(_),
            },
            Remedy::DataFolder,
        ) => "name the right folder, or images, behind the model".into(),
        (Command::Reconstruct(_), Remedy::DataFolder) => {
            "name images to reconstruct behind the model".into()
        }
        _ => flag(remedy),
    }
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
