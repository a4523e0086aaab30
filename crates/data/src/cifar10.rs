//! CIFAR-10: 50,000 training and 10,000 test images of 32×32 pixels.
//!
//! It is handed out in two forms, and both are read as they come, packed as a tar.gz or not: binary batches (a label
//! byte, then red, green and blue planes) and Python pickles (a dictionary whose `data` is the same planes in one
//! string). Images are kept rows first, channels last. The names of the classes are in a file beside the batches, and need
//! not be there.

use super::archive::{gunzip, members};
use super::labels::{Labelled, Labels};
use super::pickle;
use super::{Dataset, folder_of};
use crate::Images;
use rayon::prelude::*;
use rrvq::config::DataConfig;
use rrvq::error::{Error, Remedy, Result};
use rrvq::limits::read_file;
use std::path::{Path, PathBuf};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const IMAGE: usize = 3 * PLANE;
/// Images in one file.
const RECORDS: usize = 10_000;
const LABELS: u8 = 10;
/// Names of the batches without an ending: five to train on, one to test with.
const BATCHES: [&str; 6] = [
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
];

pub(super) fn open(config: &DataConfig, _: usize, _: usize) -> Result<Box<dyn Dataset>> {
    let holding =
        "its batches (data_batch_1.bin … test_batch.bin, or the Python ones) or its tar.gz";
    Ok(Box::new(load(folder_of(config, holding)?, RECORDS)?))
}

/// Whether `dir` has the batches, or is or has their archive.
pub(super) fn is_there(dir: &Path) -> bool {
    find(dir).is_ok()
}

/// How the batches are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Binary,
    Pickle,
}

impl Form {
    const ALL: [Form; 2] = [Form::Binary, Form::Pickle];

    fn ending(self) -> &'static str {
        match self {
            Form::Binary => ".bin",
            Form::Pickle => "",
        }
    }

    /// The file with the names of the classes.
    fn meta(self) -> &'static str {
        match self {
            Form::Binary => "batches.meta.txt",
            Form::Pickle => "batches.meta",
        }
    }

    /// The names of the classes in such a file.
    fn classes(self, meta: &[u8]) -> Vec<String> {
        match self {
            Form::Binary => {
                let text = String::from_utf8_lossy(meta);
                let names = text.lines().map(str::trim).filter(|name| !name.is_empty());
                names.map(str::to_string).collect()
            }
            Form::Pickle => pickle::strings(meta, "label_names"),
        }
    }

    /// The folder the batches are packed in.
    fn folder(self) -> &'static str {
        match self {
            Form::Binary => "cifar-10-batches-bin",
            Form::Pickle => "cifar-10-batches-py",
        }
    }
}

/// Where the batches are.
enum Place {
    Folder(PathBuf, Form),
    Archive(PathBuf),
}

/// The pixels and the labels of a batch.
type Batch = (Vec<u8>, Vec<Option<u32>>);

/// Reads the batches in `dir`, in the folder that the archive makes there, or in the archive; each holds `records`
/// images.
fn load(dir: &Path, records: usize) -> Result<Labelled> {
    let (read, classes) = match find(dir)? {
        Place::Folder(dir, form) => {
            let meta = read_file(dir.join(form.meta())).unwrap_or_default();
            (in_folder(&dir, form, records), form.classes(&meta))
        }
        Place::Archive(file) => in_archive(&file, records)?,
    };
    // Of several bad batches the first is told of, whichever was read first.
    let batches: Vec<Batch> = read.into_iter().collect::<Result<_>>()?;
    let (mut pixels, mut labels): (Vec<_>, Vec<_>) = batches.into_iter().unzip();
    let (test, test_labels) = (pixels.pop(), labels.pop());
    Ok(Labelled {
        left_out: vec![],
        images: Images {
            name: "cifar10".into(),
            shape: [SIDE, SIDE, 3],
            train: pixels.concat().into(),
            test: test.expect("six batches").into(),
            flip: true,
        },
        labels: Labels {
            train: labels.concat(),
            test: test_labels.expect("six batches"),
            classes,
        },
    })
}

fn find(dir: &Path) -> Result<Place> {
    let packed = |path: &Path, start: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && (name.ends_with(".tar.gz") || name.ends_with(".tgz"))
    };
    if dir.is_file() {
        return match packed(dir, "") {
            true => Ok(Place::Archive(dir.to_path_buf())),
            false => Err(Error::new(format!(
                "{} is a file; expected the folder of CIFAR-10's batches, or its tar.gz",
                dir.display()
            ))),
        };
    }
    let entries = std::fs::read_dir(dir).map_err(|error| Error::io("open", dir, error))?;
    for form in Form::ALL {
        let first = format!("{}{}", BATCHES[0], form.ending());
        for place in [dir.to_path_buf(), dir.join(form.folder())] {
            if place.join(&first).exists() {
                return Ok(Place::Folder(place, form));
            }
        }
    }
    let archives = entries.flatten().map(|entry| entry.path());
    // Either archive holds the same images; the first by name is as good as the other.
    if let Some(archive) = archives.filter(|path| packed(path, "cifar-10-")).min() {
        return Ok(Place::Archive(archive));
    }
    let said = format!(
        "{} has no CIFAR-10 in it: looked for {first}.bin and {first}, there and in {} and {}, and for \
         cifar-10-….tar.gz",
        dir.display(),
        Form::Binary.folder(),
        Form::Pickle.folder(),
        first = BATCHES[0],
    );
    Err(Error::with_remedy(said, Remedy::DataFolder))
}

fn in_folder(dir: &Path, form: Form, records: usize) -> Vec<Result<Batch>> {
    let read = |name: &&str| {
        let path = dir.join(format!("{name}{}", form.ending()));
        let bytes = read_file(&path)?;
        read_batch(&path.display().to_string(), &bytes, form, records)
    };
    BATCHES.par_iter().map(read).collect()
}

/// The batches and the names of the classes.
fn in_archive(file: &Path, records: usize) -> Result<(Vec<Result<Batch>>, Vec<String>)> {
    let bytes = read_file(file)?;
    let file = file.display();
    let bad = |problem: String| {
        Error::new(format!(
            "{file} is not CIFAR-10's archive: {problem}; fetch it again"
        ))
    };
    let unpacked = gunzip(&bytes).map_err(bad)?;
    drop(bytes);
    let members = members(&unpacked).map_err(bad)?;
    let named = |wanted: &str| {
        let fits = |path: &str| path.rsplit('/').next() == Some(wanted);
        members.iter().find(|(path, _)| fits(path))
    };
    let member = |name: &str, form: Form| named(&format!("{name}{}", form.ending()));
    let form = Form::ALL
        .into_iter()
        .find(|form| member(BATCHES[0], *form).is_some());
    let form = form.ok_or_else(|| bad(format!("there is no {} in it", BATCHES[0])))?;
    let read = |name: &&str| {
        let found = member(name, form);
        let (path, bytes) = found.ok_or_else(|| bad(format!("there is no {name} in it")))?;
        read_batch(&format!("{path} in {file}"), bytes, form, records)
    };
    let classes = named(form.meta()).map_or(vec![], |(_, meta)| form.classes(meta));
    Ok((BATCHES.par_iter().map(read).collect(), classes))
}

fn read_batch(path: &str, bytes: &[u8], form: Form, records: usize) -> Result<Batch> {
    let mut images = Vec::with_capacity(records * IMAGE);
    let labels = match form {
        Form::Binary => {
            check_binary(path, bytes, records)?;
            let planes = bytes.chunks_exact(1 + IMAGE).map(|record| &record[1..]);
            planes.for_each(|planes| push_pixels(planes, &mut images));
            let labels = bytes.iter().step_by(1 + IMAGE);
            labels.map(|label| Some(u32::from(*label))).collect()
        }
        Form::Pickle => {
            let batch = pickle::batch(bytes, records * IMAGE).map_err(|problem| {
                Error::new(format!(
                    "{path} is not one of CIFAR-10's Python batches: {problem}; fetch it again"
                ))
            })?;
            let planes = batch.data.chunks_exact(IMAGE);
            planes.for_each(|planes| push_pixels(planes, &mut images));
            match batch.labels.len() == records {
                true => batch.labels.into_iter().map(Some).collect(),
                false => vec![None; records],
            }
        }
    };
    Ok((images, labels))
}

/// A batch has an exact length, and every record begins with a label.
fn check_binary(path: &str, bytes: &[u8], records: usize) -> Result<()> {
    let (record, whole) = (1 + IMAGE, records * (1 + IMAGE));
    if bytes.len() != whole {
        let have = bytes.len();
        let ends = match bytes.len() < whole {
            true => format!("ends at byte {have}"),
            false => format!("goes on to byte {have}"),
        };
        return Err(Error::new(format!(
            "{path} {ends}; expected {whole} bytes ({records} images of {record}); fetch it again"
        )));
    }
    let foreign = bytes
        .iter()
        .step_by(record)
        .position(|label| *label >= LABELS);
    match foreign {
        None => Ok(()),
        Some(index) => {
            let at = index * record;
            let found = bytes[at];
            Err(Error::new(format!(
                "{path} is not one of CIFAR-10's binary batches: byte {at} is {found} where a label of 0 to 9 is \
                 expected; fetch it again"
            )))
        }
    }
}

/// Red, green and blue planes, pixel by pixel.
fn push_pixels(planes: &[u8], out: &mut Vec<u8>) {
    let (red, rest) = planes.split_at(PLANE);
    let (green, blue) = rest.split_at(PLANE);
    for ((r, g), b) in red.iter().zip(green).zip(blue) {
        out.extend([*r, *g, *b]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::{gzip, tar};
    use super::*;
    use rrvq::dataset::Split;

    /// The planes of an image: each byte says its batch, image, channel and place.
    fn planes(batch: usize, image: usize) -> Vec<u8> {
        let byte = |i: usize| (batch * 50 + image * 20 + i / PLANE * 7 + i % PLANE) as u8;
        (0..IMAGE).map(byte).collect()
    }

    fn binary(batch: usize) -> Vec<u8> {
        let record = |image| [vec![image as u8], planes(batch, image)].concat();
        (0..2).flat_map(record).collect()
    }

    /// The dictionary Python 2 wrote, without its file names.
    fn pickle(batch: usize) -> Vec<u8> {
        let data: Vec<u8> = (0..2).flat_map(|image| planes(batch, image)).collect();
        [
            &b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(K\x06K\x09e"[..],
            b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09",
            b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xff",
            b"J\xff\xff\xff\xffK\x00tb\x89T",
            &(data.len() as u32).to_le_bytes(),
            &data,
            b"tbu.",
        ]
        .concat()
    }

    fn meta(form: Form) -> &'static [u8] {
        match form {
            Form::Binary => b"airplane\nfrog\n\n",
            Form::Pickle => b"\x80\x02}(U\x0blabel_namesq\x02]q\x03(U\x08airplaneU\x04froge(U\x07num_visM\x00\x0cu.",
        }
    }

    fn write(dir: &Path, form: Form, mut damage: impl FnMut(usize, &mut Vec<u8>)) {
        std::fs::create_dir_all(dir).unwrap();
        for (batch, name) in BATCHES.iter().enumerate() {
            let mut bytes = match form {
                Form::Binary => binary(batch),
                Form::Pickle => pickle(batch),
            };
            damage(batch, &mut bytes);
            std::fs::write(dir.join(format!("{name}{}", form.ending())), bytes).unwrap();
        }
    }

    fn said(dir: &Path) -> String {
        load(dir, 2).unwrap_err().to_string()
    }

    #[test]
    fn both_forms_give_the_same_images_channels_last() {
        for form in Form::ALL {
            let scratch = tempfile::tempdir().unwrap();
            write(&scratch.path().join(form.folder()), form, |_, _| {});
            for dir in [scratch.path().join(""), scratch.path().join(form.folder())] {
                let data = load(&dir, 2).unwrap();
                assert_eq!((data.len(Split::Train), data.len(Split::Test)), (10, 2));
                let mut image = vec![0; IMAGE];
                data.read(Split::Train, 3, &mut image);
                let expected = planes(1, 1);
                for place in [0, 1, 33, PLANE - 1] {
                    let pixel = [0, 1, 2].map(|c| expected[c * PLANE + place]);
                    assert_eq!(image[place * 3..][..3], pixel, "{form:?}, pixel {place}");
                }
                data.read(Split::Test, 0, &mut image);
                assert_eq!(image[0], planes(5, 0)[0]);
                let labels = |split| (0..2).map(move |i| (split, i));
                let labels = labels(Split::Train).chain(labels(Split::Test));
                let labels = labels.map(|(split, i)| data.label(split, i).unwrap());
                let expected = match form {
                    Form::Binary => [0, 1, 0, 1],
                    Form::Pickle => [6, 9, 6, 9],
                };
                assert_eq!(labels.collect::<Vec<u32>>(), expected);
                assert!(data.classes().is_empty(), "there is no file of names");
                std::fs::write(
                    scratch.path().join(form.folder()).join(form.meta()),
                    meta(form),
                )
                .unwrap();
                assert_eq!(load(&dir, 2).unwrap().classes(), ["airplane", "frog"]);
                std::fs::remove_file(scratch.path().join(form.folder()).join(form.meta())).unwrap();
            }
        }
    }

    #[test]
    fn short_and_foreign_files_are_named_with_the_byte() {
        let scratch = tempfile::tempdir().unwrap();
        write(&scratch.path().join(""), Form::Binary, |batch, bytes| {
            if batch == 3 {
                bytes.truncate(5000)
            }
        });
        let short = said(&scratch.path().join(""));
        assert!(
            short.contains("data_batch_4.bin ends at byte 5000; expected 6146 bytes"),
            "{short}"
        );
        write(&scratch.path().join(""), Form::Binary, |batch, bytes| {
            if batch == 5 {
                bytes[3073] = 77
            }
        });
        let foreign = said(&scratch.path().join(""));
        assert!(
            foreign.contains("test_batch.bin") && foreign.contains("byte 3073 is 77"),
            "{foreign}"
        );
        write(&scratch.path().join(""), Form::Binary, |_, bytes| {
            bytes.push(0)
        });
        assert!(said(&scratch.path().join("")).contains("goes on to byte 6147"));
    }

    #[test]
    fn damaged_pickles_are_named_with_the_byte() {
        for cut in [0, 1, 40, 200, 300, 4000] {
            let scratch = tempfile::tempdir().unwrap();
            write(&scratch.path().join(""), Form::Pickle, |_, bytes| {
                bytes.truncate(cut)
            });
            let said = said(&scratch.path().join(""));
            assert!(
                said.contains("data_batch_1") && said.contains(&format!("ends at byte {cut}")),
                "{said}"
            );
        }
        let scratch = tempfile::tempdir().unwrap();
        write(&scratch.path().join(""), Form::Pickle, |_, bytes| {
            bytes[2] = 0xfe
        });
        assert!(said(&scratch.path().join("")).contains("byte 2 is"));
    }

    #[test]
    fn what_is_missing_is_said() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(said(&scratch.path().join("none")).contains("no such file or folder"));
        assert!(said(&scratch.path().join("")).contains("looked for data_batch_1.bin"));
        write(&scratch.path().join(""), Form::Binary, |_, _| {});
        std::fs::remove_file(scratch.path().join("data_batch_2.bin")).unwrap();
        assert!(said(&scratch.path().join("")).contains("data_batch_2.bin: there is no such file"));
        let config = DataConfig::default();
        let unnamed = open(&config, 32, 3).err().unwrap().to_string();
        assert!(unnamed.contains("data.dir"), "{unnamed}");
    }

    #[test]
    fn archives_of_both_forms_give_the_images_of_the_folder() {
        for (form, name) in [
            (Form::Binary, "cifar-10-binary.tar.gz"),
            (Form::Pickle, "cifar-10-python.tar.gz"),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let batch = |(i, batch): (usize, &&str)| {
                let content = match form {
                    Form::Binary => binary(i),
                    Form::Pickle => pickle(i),
                };
                let path = format!("{}/{batch}{}", form.folder(), form.ending());
                (path, content)
            };
            let mut files: Vec<_> = BATCHES.iter().enumerate().map(batch).collect();
            files.push((format!("x/{}", form.meta()), meta(form).to_vec()));
            std::fs::write(scratch.path().join(name), gzip(&tar(&files))).unwrap();
            let packed = load(&scratch.path().join(""), 2).unwrap();
            assert_eq!(packed.classes(), ["airplane", "frog"]);
            let again = load(&scratch.path().join(name), 2).unwrap();
            assert_eq!(again.images.train, packed.images.train);
            files.pop();
            write(&scratch.path().join("plain"), form, |_, _| {});
            let plain = load(&scratch.path().join("plain"), 2).unwrap();
            let (packed, plain) = ((packed.images, packed.labels), (plain.images, plain.labels));
            assert_eq!(
                (packed.0.train, packed.0.test),
                (plain.0.train, plain.0.test)
            );
            assert_eq!(
                (packed.1.train, packed.1.test),
                (plain.1.train, plain.1.test)
            );

            files[2].1.truncate(100);
            std::fs::write(scratch.path().join(name), gzip(&tar(&files))).unwrap();
            let short = said(&scratch.path().join(""));
            assert!(
                short.contains("data_batch_3") && short.contains(name),
                "{short}"
            );
            assert!(short.contains("ends at byte 100"), "{short}");
            files.pop();
            files[2].1 = batch((2, &BATCHES[2])).1;
            std::fs::write(scratch.path().join(name), gzip(&tar(&files))).unwrap();
            assert!(said(&scratch.path().join("")).contains("no test_batch in it"));
            std::fs::write(scratch.path().join(name), &gzip(&tar(&files))[..50]).unwrap();
            assert!(said(&scratch.path().join("")).contains("ends at byte 50"));
        }
    }
}
