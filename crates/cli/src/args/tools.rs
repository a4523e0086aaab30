//! Arguments of the commands beside models: data sets, speed, this machine, the shell.

use crate::device::Compute;
use clap::{Args as Arguments, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Data {
    /// Which data set is in a folder, how many images it has and what they look like
    Info(DataInfo),
    /// Fetch a data set from where it is handed out, and check that it is whole
    Fetch(DataFetch),
}

#[derive(Arguments)]
pub struct DataInfo {
    /// Folder of the data set, or its archive (CIFAR-10's tar.gz, CelebA's zip)
    pub dir: PathBuf,
    /// Draw the first 64 training images (PNG)
    #[arg(long, value_name = "FILE")]
    pub sheet: Option<PathBuf>,
    /// Side to which images in files of their own are resized
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub size: u32,
    /// Change a setting, e.g. data.crop=random; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "Runs the system's curl. What broke off is gone on with when the command is given again."
)]
pub struct DataFetch {
    /// cifar10, svhn, svhn-extra, mnist or fashion-mnist; celeba says how to get it by hand
    pub name: String,
    /// Folder for the files [default: data/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Another place that has the same files; they are held to the same checksums
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
}

#[derive(Arguments)]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "Example: rrvq completions bash > ~/.local/share/bash-completion/completions/rrvq"
)]
pub struct Completions {
    /// The shell to print it for
    pub shell: clap_complete::Shell,
}

#[derive(Arguments)]
pub struct Man {
    /// Folder for the pages of all commands
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Bench {
    /// The whole training step: forward, backward, clipping, update, average
    Step(BenchStep),
    /// Evaluation: forward only, hard samples
    Eval(BenchStep),
    /// Where the time of a training step goes, by kind of kernel
    Profile(BenchStep),
    /// Lossless compression: speed each way, with one thread and with all
    Codec(BenchCodec),
}

#[derive(Arguments)]
pub struct BenchCodec {
    /// Images to compress (PNG, JPEG, WebP); without any, test images of the model's data set
    pub images: Vec<PathBuf>,
    /// Run folder or packed file of the model [default: the built-in one]
    #[arg(long, value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// Folder of the data set, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How many test images, when no image is given
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
pub struct BenchStep {
    #[command(flatten)]
    pub compute: Compute,
    /// Layers of latents, spread over maps of 16², 8², 4² and 2²
    #[arg(long, default_value_t = 8)]
    pub layers: usize,
    /// Channels of the backbone
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Dimensions of an embedding
    #[arg(long, default_value_t = 32)]
    pub embed: usize,
    /// Codes in a codebook
    #[arg(long, default_value_t = 256)]
    pub codes: usize,
    /// Images a step or batch
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
    /// Steps or batches to measure
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// How parameters are updated
    #[arg(long, default_value = "adamax", value_name = "NAME", value_parser = ["adamax", "adam", "muon"])]
    pub optimiser: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
