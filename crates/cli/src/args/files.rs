//! Arguments of the commands for compressed files and packed models.

use clap::{Args as Arguments, Subcommand, ValueEnum};
use std::path::PathBuf;

/// How good lossy pictures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PictureQuality {
    /// Small files
    Low,
    Medium,
    /// Fine grain is kept
    High,
}

#[derive(Arguments)]
#[command(
    after_help = "Examples:\n  rrvq compress photos/*.png -o photos.rrvq\n  rrvq compress photos/*.png -o small.rrvq --lossy --quality high\n  rrvq compress photos/*.png -o small.rrvq --lossy --bits 1"
)]
pub struct Compress {
    /// Images (PNG, JPEG, WebP) of 8 bits a sample and of any size; - is standard input
    #[arg(required = true)]
    pub images: Vec<PathBuf>,
    /// Where the compressed file goes; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Run folder or packed file of the model, which is needed again to decompress [default: a built-in one]
    #[arg(long, value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// Store the model's codes alone: a far smaller file, and pictures that only resemble the images
    #[arg(long)]
    pub lossy: bool,
    /// With --lossy: how good pictures are, by the built-in model that writes them [default: medium; with --bits what is best
    /// within them]
    #[arg(long, value_enum, requires = "lossy", conflicts_with = "model")]
    pub quality: Option<PictureQuality>,
    /// With --lossy: leave out the lowest N layers of codes; the model guesses them
    #[arg(long, value_name = "N", requires = "lossy", conflicts_with = "bits")]
    pub drop: Option<usize>,
    /// With --lossy: at most B bits a pixel for each image, by leaving out as few layers as that takes
    #[arg(long, value_name = "B", requires = "lossy")]
    pub bits: Option<f64>,
    /// With --lossy: the side of tiles: that of the model's images, a half or a quarter of it, or two or four times as much
    /// [default: what suits each image, where the model was trained on pieces of pictures; else the model's own]
    #[arg(long, value_name = "N", requires = "lossy")]
    pub tile: Option<usize>,
    /// With --lossy: look for codes that are worth their bits; many times slower to write, as quick to read
    #[arg(long, requires = "lossy")]
    pub search: bool,
    /// With --search: the squared error (in steps of a byte) a bit is worth; more gives smaller files. Else each
    /// image's own
    #[arg(long, value_name = "X", requires = "search")]
    pub bit_worth: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "Examples:\n  rrvq decompress photos.rrvq -o photos\n  cat photo.png | rrvq compress - -o - | rrvq decompress - -o - > copy.png"
)]
pub struct Decompress {
    /// Compressed file; - is standard input
    pub file: PathBuf,
    /// Folder for the images; each keeps its name and becomes a PNG file. - writes the one image to standard output
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Run folder or packed file of the model the file was compressed with [default: the built-in one that it names]
    #[arg(long, value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// Get what can be had out of a damaged file
    #[arg(long)]
    pub keep_going: bool,
    /// Show what there is of a lossy file that was cut off; the model guesses the rest
    #[arg(long, conflicts_with = "keep_going")]
    pub partial: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Codec {
    /// What the codec is worth beside PNG, WebP, JPEG, JPEG XL and AVIF: size, quality, speed
    Eval(CodecEval),
    /// What is in a compressed file, without decoding it
    List(CodecList),
}

#[derive(Arguments)]
pub struct CodecList {
    /// Compressed file; - is standard input
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "WebP, JPEG XL and AVIF are those of the programs cwebp, cjxl and djxl, avifenc and avifdec, and JPEG also \
                  cjpeg's, where they are on PATH; what is not is named.\n\n\
                  Example: rrvq codec eval built-in photos --out comparison"
)]
pub struct CodecEval {
    /// Run folder or packed file of the model, or built-in
    pub run: PathBuf,
    /// A data set, whose test images are taken, or a folder of images of any size [default: the run's own data set]
    pub data: Option<PathBuf>,
    /// At most this many images; 0 takes all
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub images: usize,
    /// Compare without loss alone, which takes a tenth of the time
    #[arg(long, conflicts_with_all = ["search", "out"])]
    pub lossless: bool,
    /// Compare with loss alone
    #[arg(long, conflicts_with = "lossless")]
    pub lossy: bool,
    /// Also a curve of codes chosen for rate and distortion, which takes longer
    #[arg(long)]
    pub search: bool,
    /// The side of tiles of our files with loss, as `rrvq compress --lossy --tile` [default: what suits each image, as there]
    #[arg(long, value_name = "N", conflicts_with = "lossless")]
    pub tile: Option<usize>,
    /// Folder for charts, pictures and a page with all of it
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Arguments)]
#[command(
    after_help = "Example: rrvq pack runs/best --out best.safetensors\n         rrvq pack runs/best --out best.safetensors --prune 10000 --neighbours 2000"
)]
pub struct Pack {
    /// Run folder, or a packed file to pack again
    pub run: PathBuf,
    /// Where the file goes: kernels rounded to bf16, settings beside them
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Leave out codes that none of the first N training images uses: quicker, and next to nothing in bits
    #[arg(long, value_name = "N")]
    pub prune: Option<usize>,
    /// Learn from the first N training images how far pixels follow their neighbours: smaller files without loss
    #[arg(long, value_name = "N")]
    pub neighbours: Option<usize>,
    /// Folder of the data set for --prune and --neighbours, if not the one the run was trained on
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}
