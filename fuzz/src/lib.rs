//! What is done with bytes from anywhere: one function for each way into the program.
//!
//! Each returns, whatever the bytes are, within the budget that [`budget`] sets. The fuzz targets call them, and so do the
//! tests of the program that replay and change the inputs in `corpus` (`crates/cli/tests/mutations.rs`).

use rrvq::config::{Config, DataConfig};
use rrvq::limits::Limits;
use rrvq::picture::{Part, Picture};
use rrvq::programs::Model;
use rrvq::{Trained, config};
use rrvq_codec::lossy;
use rrvq_codec::plane::{self, Shape};
use rrvq_codec::{CodingModel, Identity, Reader, Workers, read};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A way in: its name and what is done.
pub type Target = (&'static str, fn(&[u8]));

/// All of them. `fuzz_targets` has one program for each.
pub const TARGETS: [Target; 12] = [
    ("container", container),
    ("lossy", lossy_container),
    ("coder", coder),
    ("model", model),
    ("configuration", configuration),
    ("image", image),
    ("idx", idx),
    ("mat", mat),
    ("cifar_archive", cifar_archive),
    ("cifar_pickle", cifar_pickle),
    ("zip", zip),
    ("parquet", parquet),
];

/// Less than a user's limits, so that what goes beyond shows at once.
pub fn budget() {
    Limits {
        memory: 256 << 20,
        pixels: 1 << 20,
    }
    .set();
}

/// A model of two small layers with its first weights, as it comes back from a packed file, which rounds them.
pub fn tiny() -> Trained {
    let config = Config::preset("tiny-swatches").expect("built in");
    let theta = Model::new(&config.model).layout.initial(5);
    let first = Trained::new(config, theta, 0, None).expect("a valid model");
    let packed = first.pack().expect("finite weights");
    Trained::read(&packed, "tiny").expect("what was packed can be read")
}

thread_local! {
    static WORKERS: RefCell<Option<(Workers, Identity)>> = const { RefCell::new(None) };
}

fn with_workers<R>(work: impl FnOnce(&mut Workers) -> R) -> R {
    WORKERS.with_borrow_mut(|made| {
        let made = made.get_or_insert_with(|| tiny().workers().expect("it has codes"));
        work(&mut made.0)
    })
}

/// A file without loss, with the model at hand and without.
pub fn container(bytes: &[u8]) {
    budget();
    let _ = read::check(&mut &bytes[..]);
    let mut input = bytes;
    if let Ok(mut reader) = Reader::new(&mut input) {
        while let Ok(Some(_)) = reader.segment(None, &|_| {}) {}
    }
    let mut input = bytes;
    if let Ok(mut reader) = Reader::new(&mut input) {
        with_workers(|workers| while let Ok(Some(_)) = reader.segment(Some(workers), &|_| {}) {});
    }
}

/// A file with loss, whole or cut.
pub fn lossy_container(bytes: &[u8]) {
    budget();
    let model = &tiny_config().model;
    if let Ok(reader) = lossy::Reader::new(bytes) {
        let _ = reader.check(model);
    }
    if let Ok(mut reader) = lossy::Reader::new(bytes) {
        with_workers(|workers| while let Ok(Some(_)) = reader.segment(workers, &|_| {}) {});
    }
}

fn tiny_config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| Config::preset("tiny-swatches").expect("built in"))
}

/// An image to be coded by prediction and brought back, and strips to be read.
pub fn coder(bytes: &[u8]) {
    let Some((&[width, channels], samples)) = bytes.split_first_chunk() else {
        return;
    };
    let (width, channels) = (width as usize + 1, channels as usize % 4 + 1);
    let height = samples.len() / (width * channels);
    if height == 0 {
        return;
    }
    let shape = Shape {
        width,
        height,
        channels,
    };
    let samples = &samples[..shape.bytes()];
    let strips = plane::write(shape, samples).expect("writing always works");
    assert_eq!(plane::read(shape, &strips).as_deref(), Ok(samples));
    let _ = plane::read(shape, &[bytes.to_vec()]);
}

/// A packed model.
pub fn model(bytes: &[u8]) {
    budget();
    if let Ok(trained) = Trained::read(bytes, "model") {
        let _ = trained.pack();
    }
}

/// A configuration; those that are valid and small are drawn.
pub fn configuration(bytes: &[u8]) {
    budget();
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(config) = Config::read(text, "fuzz") else {
        return;
    };
    let written = config.to_toml().expect("what was read can be written");
    assert!(config::Config::read(&written, "again").is_ok());
    let blocks = config.model.layers() * (1 + config.model.blocks + config.model.ladder_blocks);
    if config.validate().is_ok() && blocks < 64 {
        Model::new(&config.model);
    }
}

/// An image in a file.
pub fn image(bytes: &[u8]) {
    budget();
    let _ = Picture::cut(bytes, &"image", &[Part::Centre], 8, 3);
    let path = scratch().join(format!("image-{:?}", std::thread::current().id()));
    std::fs::write(&path, bytes).expect("a scratch folder");
    let _ = rrvq_codec::Image::open(&path);
}

/// A folder of this process, for readers that want files.
fn scratch() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a temporary folder"))
        .path()
}

/// Opens the data set `name` in a folder of this thread with these files.
fn data_set(name: &str, files: &[(&str, &[u8])]) {
    budget();
    let thread = format!("{name}-{:?}", std::thread::current().id());
    let folder: PathBuf = scratch().join(thread);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    for (file, bytes) in files {
        std::fs::write(folder.join(file), bytes).expect("a scratch folder");
    }
    let config = DataConfig {
        name: name.into(),
        dir: Some(folder),
        ..DataConfig::default()
    };
    let _ = rrvq_data::open(&config, 8, 3, &mut |_, _| {});
}

/// Training images and labels in idx files, gzipped or not.
pub fn idx(bytes: &[u8]) {
    let test = [
        &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2][..],
        &[9; 4],
    ]
    .concat();
    let files = [
        ("train-images-idx3-ubyte", bytes),
        ("t10k-images-idx3-ubyte", &test),
        ("t10k-labels-idx1-ubyte", bytes),
    ];
    data_set("idx", &files);
}

/// A MATLAB file.
pub fn mat(bytes: &[u8]) {
    data_set(
        "svhn",
        &[("train_32x32.mat", bytes), ("test_32x32.mat", bytes)],
    );
}

/// The archive of CIFAR-10.
pub fn cifar_archive(bytes: &[u8]) {
    let name = "cifar-10-python.tar.gz";
    data_set("cifar10", &[(name, bytes)]);
}

/// One of its Python batches, packed as an archive would be.
pub fn cifar_pickle(bytes: &[u8]) {
    budget();
    let folder = scratch().join(format!("pickle-{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    for name in ["data_batch_1", "batches.meta"] {
        std::fs::write(folder.join(name), bytes).expect("a scratch folder");
    }
    let config = DataConfig {
        name: "cifar10".into(),
        dir: Some(folder),
        ..DataConfig::default()
    };
    let _ = rrvq_data::open(&config, 32, 3, &mut |_, _| {});
}

/// A zip archive of images.
pub fn zip(bytes: &[u8]) {
    data_set("celeba", &[("img_align_celeba.zip", bytes)]);
}

/// A parquet file of images.
pub fn parquet(bytes: &[u8]) {
    data_set("parquet", &[("train.parquet", bytes)]);
}
