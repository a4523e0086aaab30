//! Files that pyarrow wrote (`tools/parquet_samples.py`), whole and damaged.

use super::super::crop::Cropping;
use super::*;
use crate::labels::Labelled;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rrvq::config::DataConfig;
use rrvq::dataset::{Dataset, Split};
use rrvq::picture::Picture;

const HUB: &[u8] = include_bytes!("samples/hub.parquet");
const PLAIN: &[u8] = include_bytes!("samples/plain.parquet");
const RAW: &[u8] = include_bytes!("samples/raw.parquet");
const MISSING: &[u8] = include_bytes!("samples/missing.parquet");
const ZSTD: &[u8] = include_bytes!("samples/zstd.parquet");
const WORDS: &[u8] = include_bytes!("samples/words.parquet");

fn open(dir: &Path) -> Result<Labelled> {
    let crop = Cropping::new(&DataConfig::default(), Part::Centre, 4, 3);
    list(dir)?.open(&crop, &mut |_, _| {})
}

fn reds(data: &Labelled, split: Split) -> Vec<u8> {
    let mut image = [0; 48];
    let red = |i| {
        data.read(split, i, &mut image);
        assert_eq!(image[45..], [image[0], 100, 200], "image {i}");
        image[0]
    };
    (0..data.len(split)).map(red).collect()
}

fn write(scratch: &tempfile::TempDir, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn files_of_every_form_give_their_images_in_order() {
    let scratch = tempfile::tempdir().unwrap();
    assert!(!is_there(&scratch.path().join("")));
    write(
        &scratch,
        &[
            ("data/train-00000-of-00002.parquet", HUB),
            ("data/train-00001-of-00002.parquet", PLAIN),
            ("data/validation-00000-of-00001.parquet", HUB),
            ("default/test/0000.parquet", RAW),
        ],
    );
    assert!(is_there(&scratch.path().join("")));
    let data = open(&scratch.path().join("")).unwrap();
    assert_eq!(
        reds(&data, Split::Train),
        [0, 20, 40, 20, 0, 60, 80, 0, 20, 40, 60, 80, 100, 120]
    );
    let labels = [0, 6, 7].map(|i| data.label(Split::Train, i));
    assert_eq!(labels, [Some(0), Some(6), None], "the second file has none");
    assert_eq!(
        reds(&data, Split::Test),
        [0, 20, 40, 60, 80, 100, 120],
        "validation images are in neither split"
    );
}

#[test]
fn without_test_files_validation_or_a_tenth_is_for_testing() {
    let scratch = tempfile::tempdir().unwrap();
    write(&scratch, &[("train.parquet", HUB), ("val.parquet", RAW)]);
    let data = open(&scratch.path().join("")).unwrap();
    assert_eq!((data.len(Split::Train), data.len(Split::Test)), (7, 7));
    for name in ["only/train.parquet", "unnamed/0000.parquet"] {
        write(&scratch, &[(name, RAW)]);
        let data = open(scratch.path().join(name).parent().unwrap()).unwrap();
        let mut all = reds(&data, Split::Train);
        assert!(all.len() > 3 && all.len() < 7, "{all:?}");
        all.extend(reds(&data, Split::Test));
        all.sort();
        assert_eq!(all, [0, 20, 40, 60, 80, 100, 120]);
    }
}

#[test]
fn names_tell_the_split() {
    for (below, split) in [
        ("train-00000-of-00001.parquet", Some("train")),
        ("data/test.parquet", Some("test")),
        ("default/validation/0000.parquet", Some("valid")),
        ("train/test-0.parquet", Some("test")),
        ("values.parquet", None),
        ("0000.parquet", None),
    ] {
        assert_eq!(split_of(below), split, "{below}");
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let refused = |name: &str, bytes: &[u8], words: &[&str]| {
        let scratch = tempfile::tempdir().unwrap();
        write(&scratch, &[(name, bytes)]);
        let said = open(&scratch.path().join("")).unwrap_err().to_string();
        for word in words.iter().chain(&[name]) {
            assert!(said.contains(word), "{word:?} is not in {said:?}");
        }
    };
    refused("a.parquet", WORDS, &["columns (name)", "images"]);
    refused("a.parquet", MISSING, &["row 1 of", "no image"]);
    refused("a.parquet", b"PK\x03\x04", &["byte 0"]);
    refused("a.parquet", b"", &["byte 0"]);
    let cut = HUB.len() - 9;
    refused("a.parquet", &HUB[..cut], &[&format!("byte {cut}")]);
    let mut long = HUB.to_vec();
    let at = long.len() - 8;
    long[at..at + 4].fill(0xff);
    refused("a.parquet", &long, &[&format!("byte {at}")]);
}

#[test]
fn no_damage_is_a_panic_and_most_is_told_with_a_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.parquet");
    for file in [HUB, PLAIN, ZSTD, RAW] {
        let mut told = 0;
        for at in (4..file.len() - 8).step_by(3) {
            let mut wrong = file.to_vec();
            wrong[at] ^= 0x55;
            std::fs::write(&path, &wrong).unwrap();
            let said = match Table::open(&path) {
                Err(said) => Some(said),
                Ok(table) => (0..table.rows().len())
                    .find_map(|group| table.images(group).err())
                    .or(table.labels().err()),
            };
            told += usize::from(said.is_some_and(|said| said.to_string().contains("byte")));
        }
        assert!(told > 20, "{told}");
    }
}

/// A file of two columns, compressed, as the crate writes it.
fn written(compression: Compression, images: &[Vec<u8>]) -> Vec<u8> {
    let schema = "message set { required binary image; required int64 label; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let names = r#"{"info": {"features": {"label": {"names": ["none", "one"]}}}}"#;
    let names = KeyValue::new("huggingface".into(), names.to_string());
    let settings = WriterProperties::builder().set_compression(compression);
    let settings = settings.set_key_value_metadata(Some(vec![names]));
    let settings = Arc::new(settings.build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, settings).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let images: Vec<ByteArray> = images.iter().map(|i| i.clone().into()).collect();
    let labels: Vec<i64> = (0..images.len() as i64).collect();
    let mut column = group.next_column().unwrap().unwrap();
    let values = column.typed::<ByteArrayType>();
    values.write_batch(&images, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values = column.typed::<Int64Type>();
    values.write_batch(&labels, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn every_compression_is_read_or_named() {
    let scratch = tempfile::tempdir().unwrap();
    let image = |i: u8| {
        let pixels = [20 * i, 100, 200].repeat(16);
        let path = scratch.path().join("image.png");
        Picture::new([4, 4, 3], pixels)
            .unwrap()
            .save(&path)
            .unwrap();
        std::fs::read(path).unwrap()
    };
    let images: Vec<Vec<u8>> = (0..7).map(image).collect();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
    ] {
        let bytes = written(compression, &images);
        write(
            &scratch,
            &[("train.parquet", &bytes), ("test.parquet", ZSTD)],
        );
        let data = open(scratch.path()).unwrap();
        for split in [Split::Train, Split::Test] {
            assert_eq!(reds(&data, split), [0, 20, 40, 60, 80, 100, 120]);
        }
        let labels: Vec<Option<u32>> = (0..7).map(|i| data.label(Split::Train, i)).collect();
        assert_eq!(labels, (0..7).map(Some).collect::<Vec<_>>());
        assert_eq!(data.classes(), ["none", "one"]);
        assert_eq!(data.label(Split::Test, 0), None, "no column of labels");
    }
    // The description names the compression behind the column's name; 4 is Brotli.
    let mut other = written(Compression::ZSTD(Default::default()), &images);
    let place = b"image\x15\x0c";
    let at = other.windows(7).position(|w| w == place).unwrap();
    other[at + 6] = 4 << 1;
    write(&scratch, &[("train.parquet", &other)]);
    let said = open(scratch.path()).unwrap_err().to_string();
    assert!(said.contains("BROTLI") && said.contains("zstd"), "{said}");
}
