//! The files data sets are handed out in: where they are, how long, and their published MD5 sums.
//!
//! With the sums a download is known to be whole, and `rrvq data info` can say whether a folder holds the original or
//! something that merely looks like it. Sums of files that come out of an archive are here too.

use md5::{Digest, Md5};
use rayon::prelude::*;
use rrvq::error::{Error, Remedy, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The name of the file.
    pub name: &'static str,
    /// Places that have it, the better first; each ends in the file's name.
    pub addresses: Vec<String>,
    /// Its length.
    pub bytes: u64,
    /// Its published MD5 sum, as hexadecimal digits.
    pub md5: &'static str,
}

/// A data set that can be fetched.
struct Set {
    name: &'static str,
    /// What it is called in a sentence.
    title: &'static str,
    /// Where its files are, the better place first.
    places: &'static [&'static str],
    files: &'static [Original],
}

const CIFAR_10: &str = "CIFAR-10";
const SVHN: &str = "SVHN";
const MNIST: &str = "MNIST";
const FASHION: &str = "Fashion-MNIST";

/// Name, bytes and MD5.
type Original = (&'static str, u64, &'static str);

const SVHN_TRAIN: Original = (
    "train_32x32.mat",
    182_040_794,
    "e26dedcc434d2e4c54c9b2d4a06d8373",
);
const SVHN_TEST: Original = (
    "test_32x32.mat",
    64_275_384,
    "eb5a983be6a315427106f1b164d9cef3",
);
const STANFORD: &[&str] = &[
    "http://ufldl.stanford.edu/housenumbers",
    "https://ufldl.stanford.edu/housenumbers",
];

static SETS: [Set; 5] = [
    Set {
        name: "cifar10",
        title: CIFAR_10,
        places: &["https://www.cs.toronto.edu/~kriz"],
        files: &[(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c32a1d4ab5d03f1284b67883e8d87530",
        )],
    },
    Set {
        name: "svhn",
        title: SVHN,
        places: STANFORD,
        files: &[SVHN_TRAIN, SVHN_TEST],
    },
    Set {
        name: "svhn-extra",
        title: SVHN,
        places: STANFORD,
        files: &[
            SVHN_TRAIN,
            SVHN_TEST,
            (
                "extra_32x32.mat",
                1_329_278_602,
                "a93ce644f1a588dc4d68dda5feec44a7",
            ),
        ],
    },
    Set {
        name: "mnist",
        title: MNIST,
        places: &[
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ],
        files: &[
            (
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                28_881,
                "d53e105ee54ea40749a09fcbcd1e9432",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "9fb629c4189551a2d022fa330f9573f3",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ],
    },
    Set {
        name: "fashion-mnist",
        title: FASHION,
        places: &[
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ],
        files: &[
            (
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                29_515,
                "25c81989df183df01b3e8a0aad5dffbe",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "bef4ecab320f06d8554ea6380940ec79",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ],
    },
];

/// Files that cannot be fetched one by one: those of the other archive, those that come out of archives, CelebA's.
static OTHERS: [(&str, &str, &str); 19] = [
    (
        "cifar-10-python.tar.gz",
        CIFAR_10,
        "c58f30108f718f92721af3b95e74349a",
    ),
    (
        "data_batch_1.bin",
        CIFAR_10,
        "5dd7e06a14cb22eb9f671a540d1b7c25",
    ),
    (
        "data_batch_2.bin",
        CIFAR_10,
        "5ea93a67294ea407fff1d09f752e9692",
    ),
    (
        "data_batch_3.bin",
        CIFAR_10,
        "942cd6a4bcdd0dd3c604fbe906cb4421",
    ),
    (
        "data_batch_4.bin",
        CIFAR_10,
        "ae636b3ba5c66a11e91e8cb52e771fcb",
    ),
    (
        "data_batch_5.bin",
        CIFAR_10,
        "53f37980c15c3d472c316c40844f3f0d",
    ),
    (
        "test_batch.bin",
        CIFAR_10,
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ),
    ("data_batch_1", CIFAR_10, "c99cafc152244af753f735de768cd75f"),
    ("data_batch_2", CIFAR_10, "d4bba439e000b95fd0a9bffe97cbabec"),
    ("data_batch_3", CIFAR_10, "54ebc095f3ab1f0389bbae665268c751"),
    ("data_batch_4", CIFAR_10, "634d18415352ddfa80567beed471001a"),
    ("data_batch_5", CIFAR_10, "482c414d41f54cd18b22e5b47cb7c3cb"),
    ("test_batch", CIFAR_10, "40351d587109b95175f43aff81a1287e"),
    (
        "train-images-idx3-ubyte",
        MNIST,
        "6bbc9ace898e44ae57da46a324031adb",
    ),
    (
        "t10k-images-idx3-ubyte",
        MNIST,
        "2646ac647ad5339dbf082846283269ea",
    ),
    (
        "train-images-idx3-ubyte",
        FASHION,
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    ),
    (
        "t10k-images-idx3-ubyte",
        FASHION,
        "8181f5470baa50b63fa0f6fddb340f0a",
    ),
    (
        "img_align_celeba.zip",
        "CelebA",
        "00d2c5bc6d35e252742224ab0c1e8fcb",
    ),
    (
        "list_eval_partition.txt",
        "CelebA",
        "d32c9cbf5e040fd4025c592c306e6668",
    ),
];

/// The data sets that can be fetched.
pub fn fetchable() -> Vec<&'static str> {
    SETS.iter().map(|set| set.name).collect()
}

/// The files of the data set called `name`; `from` is another place that has them, in place of their homes.
pub fn files_of(name: &str, from: Option<&str>) -> Result<Vec<Remote>> {
    if name == "celeba" {
        return Err(Error::with_remedy(
            "CelebA is handed out from a web drive that asks a person to click: take img_align_celeba.zip and \
             list_eval_partition.txt from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (Align&Cropped Images), put \
             both into one folder, unpacked or not",
            Remedy::DataFolder,
        ));
    }
    let Some(set) = SETS.iter().find(|set| set.name == name) else {
        return Err(Error::new(format!(
            "there is no data set {name:?} to fetch; available: {}, celeba (by hand)",
            fetchable().join(", ")
        )));
    };
    let places: Vec<&str> = match from {
        Some(from) => vec![from.trim_end_matches('/')],
        None => set.places.to_vec(),
    };
    let remote = |(name, bytes, md5): &(&'static str, u64, &'static str)| Remote {
        name,
        addresses: places.iter().map(|at| format!("{at}/{name}")).collect(),
        bytes: *bytes,
        md5,
    };
    Ok(set.files.iter().map(remote).collect())
}

/// Whether a file is an original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The name of the file.
    pub file: String,
    /// Its MD5 sum, as hexadecimal digits.
    pub md5: String,
    /// The data set whose original it is, if it is one.
    pub original: Option<&'static str>,
    /// The data sets that have an original of this name.
    pub expected: Vec<&'static str>,
}

/// What the sum of the file at `path` says; nothing if no sum is known for a file of its name.
pub fn verdict(path: &Path) -> Result<Option<Verdict>> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let known = known(&file);
    if known.is_empty() {
        return Ok(None);
    }
    let md5 = md5_of_file(path)?;
    let original = known.iter().find(|(_, sum)| **sum == md5);
    let mut expected: Vec<&str> = known.iter().map(|(title, _)| *title).collect();
    expected.dedup();
    Ok(Some(Verdict {
        file: file.into_owned(),
        original: original.map(|(title, _)| *title),
        expected,
        md5,
    }))
}

/// The MD5 sum of a file, as hexadecimal digits; the published sums of these data sets are MD5 sums.
pub fn md5_of_file(path: &Path) -> Result<String> {
    let failed = |error| Error::io("read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut sum, mut piece) = (Md5::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => return Ok(hex(sum)),
            count => sum.update(&piece[..count]),
        }
    }
}

/// A sum as hexadecimal digits.
pub(crate) fn hex(sum: Md5) -> String {
    format!("{:032x}", u128::from_be_bytes(sum.finalize().into()))
}

/// Where the files of a data set may be, below its folder.
const PLACES: [&str; 5] = [
    "",
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    "Img",
    "Eval",
];

/// What the sums say of all files in `dir`, or of the file `dir`, whose names are known.
pub fn verdicts(dir: &Path) -> Result<Vec<Verdict>> {
    let fetched = SETS.iter().flat_map(|set| set.files.iter());
    let mut names: Vec<&str> = fetched.map(|(name, ..)| *name).collect();
    names.extend(OTHERS.iter().map(|(name, ..)| *name));
    names.sort();
    names.dedup();
    let below = PLACES.iter().map(|place| dir.join(place));
    let mut files: Vec<PathBuf> = below
        .flat_map(|place| {
            names
                .iter()
                .map(move |name| place.join(name))
                .collect::<Vec<_>>()
        })
        .filter(|path| path.is_file())
        .collect();
    if dir.is_file() {
        files.push(dir.to_path_buf());
    }
    let found: Vec<Option<Verdict>> = files
        .par_iter()
        .map(|path| verdict(path))
        .collect::<Result<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The data sets with an original called `name`, and its sums.
fn known(name: &str) -> Vec<(&'static str, &'static str)> {
    let fetched = SETS.iter().flat_map(|set| {
        let files = set.files.iter();
        files.map(|(name, _, md5)| (*name, set.title, *md5))
    });
    let mut known: Vec<_> = fetched
        .chain(OTHERS)
        .filter(|(file, ..)| *file == name)
        .map(|(_, title, md5)| (title, md5))
        .collect();
    known.dedup();
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_set_has_files_with_a_place_and_a_sum() {
        for name in fetchable() {
            let files = files_of(name, None).unwrap();
            assert!(!files.is_empty());
            for file in files {
                let least = if file.name.contains("labels") {
                    1_000
                } else {
                    1_000_000
                };
                assert!(file.bytes > least && file.md5.len() == 32, "{file:?}");
                assert!(file.addresses.iter().all(|at| at.ends_with(file.name)));
            }
        }
        let elsewhere = files_of("svhn", Some("http://localhost/svhn/")).unwrap();
        assert_eq!(
            elsewhere[0].addresses,
            ["http://localhost/svhn/train_32x32.mat"]
        );
        let said = files_of("celeba", None).unwrap_err().to_string();
        assert!(said.contains("img_align_celeba.zip") && said.contains("https://"));
        let said = files_of("imagenet", None).unwrap_err().to_string();
        assert!(said.contains("cifar10, svhn"), "{said}");
    }

    #[test]
    fn sums_are_written_as_sums_are_shown() {
        for (name, _, md5) in OTHERS {
            let digits = md5.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
            assert!(digits && md5.len() == 32, "{name}");
        }
    }

    #[test]
    fn a_foreign_file_of_a_known_name_is_told_apart() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("train-images-idx3-ubyte");
        std::fs::write(&path, "abc").unwrap();
        let found = verdict(&path).unwrap().unwrap();
        assert_eq!(found.original, None);
        assert_eq!(found.expected, [MNIST, FASHION]);
        assert_eq!(found.md5, "900150983cd24fb0d6963f7d28e17f72");
        std::fs::write(scratch.path().join("notes"), "abc").unwrap();
        assert_eq!(
            verdicts(&scratch.path().join("")).unwrap(),
            verdicts(&path).unwrap()
        );
        assert_eq!(verdicts(&path).unwrap(), [found]);
        assert_eq!(verdict(&scratch.path().join("notes")).unwrap(), None);
        // Both sets of SVHN have the same file.
        assert_eq!(known("train_32x32.mat").len(), 1);
    }
}
