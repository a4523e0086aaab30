//! The command line, as typed.

mod files;
mod tools;

pub use files::*;
pub use tools::*;

use crate::device::Compute;
use clap::{ArgGroup, Args as Arguments, Parser, Subcommand};
use rrvq::PixelValues;
use std::path::PathBuf;

/// Hierarchical discrete VAEs with relaxed responsibilities: train, judge, sample, look.
#[derive(Parser)]
#[command(name = "rrvq", version, about, arg_required_else_help = true)]
#[command(
    after_help = "Start with `rrvq demo`: two small models, two minutes, nothing to download."
)]
// Flags of every command stand apart from a command's own.
#[command(next_help_heading = "General options")]
pub struct Args {
    /// Threads to use; 0 takes all cores. Results are the same bits for any number
    #[arg(long, global = true, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub threads: u16,
    /// Most memory that a model or a file may ask for, such as 512MiB or 16GiB
    #[arg(long, global = true, default_value = "8GiB", value_name = "SIZE", value_parser = memory)]
    pub max_memory: usize,
    /// Most pixels of an image, and of images that are decoded together
    #[arg(long, global = true, default_value_t = 1 << 26, value_name = "N")]
    pub max_pixels: usize,
    /// Replace files that are there already
    #[arg(long, global = true)]
    pub force: bool,
    /// Say nothing but results and what is wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more, on standard error: what is used, how long it took, how much memory
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Train two small models on colour swatches and show why a hierarchy is needed
    Demo(Demo),
    /// Train a model
    Train(Train),
    /// Train a PixelCNN prior over the codes of a finished VQ-VAE
    Prior(Prior),
    /// Bits per dim of a trained model: total, reconstruction, KL of each layer
    Eval(Eval),
    /// Draw pictures from a trained model's prior
    Sample(Sample),
    /// Show samples beside the training images that are nearest to them: they are not copies
    Neighbours(Neighbours),
    /// Go from one image to another through their codes, the top layer first
    Interpolate(Interpolate),
    /// How good samples are, as numbers: a Fréchet distance, precision and recall on features learnt from the data
    Quality(Quality),
    /// Show images beside what a trained model keeps of them
    Reconstruct(Reconstruct),
    /// The codes of images: integer maps of every layer, as safetensors or .npy, for another model to work on
    Codes(Codes),
    /// The pictures of codes that `rrvq codes` wrote
    Decode(Decode),
    /// Compress images into one file, without loss or in a few hundred bytes each
    Compress(Compress),
    /// Get the images of a compressed file back, as PNG files
    Decompress(Decompress),
    /// Make one small file of a run's model, to compress with
    Pack(Pack),
    /// Judge the codec, and look into its files
    Codec {
        #[command(subcommand)]
        what: Codec,
    },
    /// The paper's tables, figures and theorems, measured, on one page
    Study(Study),
    /// What a run is and how far it got
    Info(Info),
    /// One page about one run or several: bits per dim by step and time, codes in use, samples, what differs
    Report(Report),
    /// Show a model in a browser: draw, redraw layers, look at codes, compress; on this machine only
    Serve(Serve),
    /// The configurations built into the program
    Presets(Presets),
    /// The trained models built into the program
    Models(Models),
    /// Fetch data sets and look at them
    Data {
        #[command(subcommand)]
        what: Data,
    },
    /// Measure speed
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// What this machine can compute with, and what is missing for a GPU
    Doctor(Doctor),
    /// Print a script that completes commands and flags in a shell
    Completions(Completions),
    /// Print the man page, or write the man pages of all commands into a folder
    Man(Man),
}

#[derive(Arguments)]
pub struct Demo {
    /// Folder for the report, the pictures and both runs; an earlier demo in it is replaced
    #[arg(long, default_value = "rrvq-demo", value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Arguments)]
#[command(group = ArgGroup::new("what").args(["preset", "config", "resume"]).required(true).multiple(true))]
#[command(
    after_help = "Example: rrvq train --preset tiny-swatches --set train.lr=1e-3 --out runs/first"
)]
pub struct Train {
    /// A configuration built into the program; `rrvq presets` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub preset: Option<String>,
    /// A configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the data set
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Run folder [default: runs/ and the preset's or file's name]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub compute: Compute,
    /// Train on the first N GPUs of this machine, one process each; --device cuda:2-5 names others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub gpus: Option<u16>,
    /// Change a setting, e.g. train.lr=1e-3; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Leave out images in files of their own that cannot be decoded, and say how many; the same as data.skip_damaged
    #[arg(long)]
    pub skip_damaged: bool,
    /// Steps in all
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Minutes of steps after which it evaluates, saves and ends; --resume goes on
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Go on with the run in the run folder, with its own settings; later --set and --steps apply on top
    #[arg(long)]
    pub resume: bool,
    /// Replace the run that is in the run folder
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Seed of everything random
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Also write TensorBoard event files
    #[arg(long)]
    pub tensorboard: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "The prior goes to the folder prior of the run. `rrvq eval` then reports the bits with it, and \
`rrvq sample` draws codes from it, position by position.\n\nExample: rrvq prior runs/small-vq-cifar10 --set prior.layers=8"
)]
pub struct Prior {
    /// Run folder of a model with one layer of nearest codes
    pub run: PathBuf,
    /// Folder of the data set, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub compute: Compute,
    /// Change a setting of the prior, e.g. prior.lr=1e-3; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Steps in all
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Write TensorBoard events too
    #[arg(long)]
    pub tensorboard: bool,
    /// Minutes of steps after which it evaluates, saves and ends; --resume goes on
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Go on with the run's prior, with its own settings; later --set and --steps apply on top
    #[arg(long)]
    pub resume: bool,
    /// Replace the run's prior
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Seed of everything random
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

#[derive(Arguments)]
pub struct Eval {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Which images: test, train, or validation (those that data.holdout kept out of training)
    #[arg(long, default_value = "test")]
    pub split: String,
    /// Samples an image; more than one also gives the importance bound
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub samples: u32,
    /// At most this many images; 0 takes all
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub images: usize,
    /// Images a batch [default: suits the device]. An image's noise depends on the batch it is in: compare devices with
    /// the same number
    #[arg(long, value_name = "N", value_parser = batch_size)]
    pub batch: Option<usize>,
    /// Folder of the data set, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
pub struct Sample {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Where the picture goes (PNG)
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How many samples
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// The same seed gives the same picture
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub seed: u64,
    /// 1 samples the model as it is, less is sharper, 0 takes every layer's mode
    #[arg(long, default_value_t = 1.0, value_name = "T")]
    pub temperature: f32,
    /// What is shown of pixels: means, or drawn from their distributions, with the noise that the model leaves to them
    /// [default: means, but drawn where the likelihood follows earlier pixels]
    #[arg(long, value_name = "means|drawn", value_parser = pixels)]
    pub pixels: Option<PixelValues>,
    /// Draw pixels from the larger components of their mixtures alone, of at least P times the largest one's weight: with 0.2
    /// the spots of colour are gone that rare components leave; 0 draws from all
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = part)]
    pub min_p: f32,
    /// Draw codes all alike, also where the run has a PixelCNN prior (`rrvq prior`)
    #[arg(long)]
    pub uniform: bool,
    /// An image (PNG, JPEG, WebP) whose codes above --from-layer are held, and the others drawn; it is shown first
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "from_layer",
        conflicts_with = "uniform"
    )]
    pub given: Option<PathBuf>,
    /// The highest layer that is drawn anew, counted from 1 at the bottom
    #[arg(long, value_name = "L", requires = "given")]
    pub from_layer: Option<usize>,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
pub struct Neighbours {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Where the picture goes (PNG): a row for each sample, and beside it its nearest training images,
    /// mirrored where the model was trained with flips and that is nearer
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How many samples
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
    /// How many training images beside each
    #[arg(long, default_value_t = 7, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub nearest: u32,
    /// The same seed gives the same samples
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub seed: u64,
    /// Folder of the data set, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print one JSON object: index, distance and orientation of each training image
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
#[command(after_help = "Example: rrvq interpolate cat.png dog.png --model runs/best --out way.png")]
pub struct Interpolate {
    /// The first image (PNG, JPEG, WebP), cropped to a square and resized to the model's size
    pub first: PathBuf,
    /// The second image
    pub second: PathBuf,
    /// Where the picture goes (PNG): a strip from the first image's codes to the second's
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    #[arg(long, default_value = "cifar10", value_name = "RUN")]
    pub model: PathBuf,
    /// How many pictures, the ends included
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub count: u32,
    /// Let the prior fill in the layers below those that change, instead of keeping the first image's
    #[arg(long)]
    pub fill: bool,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
#[command(
    after_help = "The features are those of a small network that is trained on the data set itself: to tell its labels, or \
where it has none, to code and decode its images. The numbers compare models on one data set and one feature network; they are \
not FID, and do not compare with published figures. The network is kept in the cache folder.\n\nExample: rrvq quality runs/best --data data/cifar10"
)]
pub struct Quality {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Folder of the data set, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How many samples, and how many test images they are compared with
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(128..=100_000))]
    pub count: u32,
    /// The same seed gives the same samples
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub seed: u64,
    /// 1 samples the model as it is, less is sharper, 0 takes every layer's mode
    #[arg(long, default_value_t = 1.0, value_name = "T")]
    pub temperature: f32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
#[command(group = ArgGroup::new("from").args(["images", "data"]).required(true))]
pub struct Codes {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Images (PNG, JPEG, WebP), cropped to a square and resized to the model's size
    pub images: Vec<PathBuf>,
    /// Folder of a data set; labels are written where it has some
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which images of the data set: train, validation or test
    #[arg(long, default_value = "test", requires = "data")]
    pub split: String,
    /// At most this many images of the data set; 0 takes all
    #[arg(long, default_value_t = 0, value_name = "N", requires = "data")]
    pub count: usize,
    /// Where the codes go: FILE.safetensors holds all layers, as `rrvq decode` reads them; FILE.npy becomes one array a layer,
    /// FILE.layer-01.npy and so on, for other programs
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
pub struct Decode {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`): the one the codes are of
    pub run: PathBuf,
    /// What `rrvq codes` wrote, a .safetensors file
    pub codes: PathBuf,
    /// Where the pictures go: a PNG file for one sheet, or a folder for one file each
    #[arg(long, value_name = "FILE|DIR")]
    pub out: PathBuf,
    /// Keep the codes of the topmost N layers only; the prior draws the others
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// How the prior draws them: 0 takes the most likely codes, 1 samples
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    pub temperature: f32,
    /// The same seed draws the same codes
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub seed: u64,
    /// What is shown of pixels: means, or drawn from their distributions, with the noise that the model leaves to them
    /// [default: means]
    #[arg(long, value_name = "means|drawn", value_parser = pixels)]
    pub pixels: Option<PixelValues>,
    /// Draw pixels from the larger components of their mixtures alone, of at least P times the largest one's weight: with 0.2
    /// the spots of colour are gone that rare components leave; 0 draws from all
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = part)]
    pub min_p: f32,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
pub struct Models {
    /// Print the model card of one
    pub name: Option<String>,
}

#[derive(Arguments)]
pub struct Reconstruct {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Images (PNG, JPEG, WebP), cropped to a square and resized to the model's size; without any, test images
    pub images: Vec<PathBuf>,
    /// Where the picture goes (PNG): originals in odd rows, reconstructions below each
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How many test images, when no image is given
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub count: u32,
    #[command(flatten)]
    pub compute: Compute,
}

#[derive(Arguments)]
#[command(
    after_help = "Runs go to DIR/runs: finished ones are used again by every study that needs them, interrupted ones are \
resumed. Each study has a folder with its figures and numbers, and its section of DIR/index.html.\n\n\
Examples:\n  rrvq study entropy --out study\n  rrvq study all --data data/cifar10 --data data/svhn --out study"
)]
pub struct Study {
    /// The study to run, or all; without one, they are listed
    pub name: Option<String>,
    /// Folder of a data set; repeatable, and which is which is found out. Studies without theirs are left out of all
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// quick: small models, minutes on two CPU cores; full: the paper's, for a large GPU; smoke: seconds, to see that
    /// everything runs
    #[arg(long, default_value = "quick", value_name = "SCALE", value_parser = scale)]
    pub scale: rrvq_study::framework::Scale,
    #[command(flatten)]
    pub compute: Compute,
    /// Minutes of training for each study, shared by its runs, instead of what the scale has
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Multiply the steps and minutes that the scale has for each model: 0.25 for a first look, 4 for a long night
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub budget: f64,
    /// Seeds of each model, for the studies that can have several (table1, table3, depth, swatches, mlp, estimators)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: Option<u16>,
    /// Use MODEL (a run folder trained by hand, a packed file, or a built-in model) for the run that a study calls NAME
    /// (its folder in OUT/runs/SCALE, with the seed or without); repeatable
    #[arg(long, value_name = "NAME=MODEL", value_parser = named_run)]
    pub run: Vec<(String, PathBuf)>,
    /// Train N models of a study at a time, each in a process of its own: small models leave most of a large GPU idle
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Say what would be trained, how long, and what there is of it already; train nothing
    #[arg(long)]
    pub plan: bool,
    /// Train the model of this file, as one of the processes of --jobs
    #[arg(long, value_name = "FILE", hide = true)]
    pub job: Option<PathBuf>,
    /// Folder for the page, the studies and their runs
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// NAME=DIR.
fn named_run(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok((name.into(), dir.into())),
        _ => Err("expected NAME=MODEL, such as l32-cifar10=runs/l32".into()),
    }
}

#[derive(Arguments)]
pub struct Info {
    /// Run folder, packed file, or name of a built-in model (`rrvq models`)
    pub run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
pub struct Report {
    /// Run folders, finished or not
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Page to write (HTML, with everything inside)
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

#[derive(Arguments)]
#[command(after_help = "Example: rrvq serve runs/first --port 0")]
pub struct Serve {
    /// Run folder, packed model, or the name of a built-in model
    #[arg(value_name = "RUN")]
    pub model: PathBuf,
    /// Port of 127.0.0.1 to listen on; 0 takes any that is free
    #[arg(long, value_name = "N", default_value_t = 8017)]
    pub port: u16,
    /// Folder of the page's WebAssembly modules, which tools/web.sh builds
    #[arg(long, value_name = "DIR", default_value = "web/dist")]
    pub modules: PathBuf,
}

#[derive(Arguments)]
pub struct Presets {
    /// Print this preset with every setting, ready to be changed and given to `train --config`
    pub name: Option<String>,
    /// List every setting with its meaning and default
    #[arg(long, conflicts_with = "name")]
    pub keys: bool,
}

/// A number of images that a batch may have.
fn batch_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=65_536) => Ok(n),
        _ => Err("expected a number from 1 to 65536".into()),
    }
}

/// A time that steps may take.
fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(m) if (0.0..=1e6).contains(&m) => Ok(m),
        _ => Err("expected a number of minutes, such as 5 or 0.5".into()),
    }
}

/// What budgets are multiplied by.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if s > 0.0 && s <= 1e3 => Ok(s),
        _ => Err("expected a number above 0, such as 0.25 or 2".into()),
    }
}

/// What is shown of pixels.
fn pixels(text: &str) -> Result<PixelValues, String> {
    text.parse().map_err(|_| "expected means or drawn".into())
}

/// A share of something.
fn part(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("expected a number from 0 to 1, such as 0.2".into()),
    }
}

/// How much a study may cost.
fn scale(text: &str) -> Result<rrvq_study::framework::Scale, String> {
    let all = rrvq_study::framework::Scale::ALL;
    let found = all.into_iter().find(|scale| scale.name() == text);
    found.ok_or_else(|| "expected quick, full or smoke".into())
}

/// Bytes, or a number with KiB, MiB, GiB or TiB behind it.
fn memory(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim().to_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    let count = digits.parse::<usize>().ok();
    let bytes = count
        .zip(shift)
        .and_then(|(n, shift)| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a size such as 512MiB or 16GiB".into())
}
