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

/// A file whose description is these bytes.
fn described(description: &[u8]) -> Vec<u8> {
    let len = (description.len() as u32).to_le_bytes();
    [b"PAR1", description, &len, b"PAR1"].concat()
}

/// A field of Thrift's compact form: kind and number, then its value.
fn field(step: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[step << 4 | kind], value].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A list of this many elements of a kind.
fn list_of(kind: u8, count: u64) -> Vec<u8> {
    [vec![0xf0 | kind], varint(count)].concat()
}

/// A group of columns called "a" with one child, or with so many.
fn group(children: u64) -> Vec<u8> {
    let repeated = field(3, 5, &[0]);
    let name = field(1, 8, &[1, b'a']);
    let children = field(1, 5, &varint(2 * children));
    [repeated, name, children, vec![0]].concat()
}

#[test]
fn descriptions_that_nest_or_claim_without_end_are_refused_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |description: &[u8], word: &str| {
        write(&scratch, &[("a.parquet", &described(description))]);
        let start = std::time::Instant::now();
        let said = open(scratch.path()).unwrap_err().to_string();
        assert!(said.contains("a.parquet") && said.contains(word), "{said}");
        assert!(start.elapsed().as_secs() < 5, "{word}");
    };
    let version = field(1, 5, &[2]);
    // Groups inside each other, as deep as the list is long.
    let groups = |count: usize| -> Vec<u8> {
        let groups = group(1).repeat(count - 1);
        let list = list_of(12, count as u64);
        let leaf = [
            field(1, 5, &[12]),
            field(2, 5, &[0]),
            field(1, 8, &[1, b'b']),
            vec![0],
        ];
        let schema = field(1, 9, &[list, groups, leaf.concat()].concat());
        [version.clone(), schema, vec![0]].concat()
    };
    refused(&groups(100_000), "groups inside each other");
    let said = |count| {
        write(&scratch, &[("a.parquet", &described(&groups(count)))]);
        open(scratch.path()).unwrap_err().to_string()
    };
    assert!(!said(50).contains("inside each other"), "{}", said(50));
    // A group of two thousand million columns, and a list of as many.
    let claims = [list_of(12, 1), group(0x7fff_ffff)].concat();
    let claims = [version.clone(), field(1, 9, &claims), vec![0]].concat();
    refused(&claims, "claims 2147483647 columns");
    let list = [version.clone(), field(1, 9, &list_of(12, 0x7fff_ffff))].concat();
    refused(&list, "claims 2147483647 elements");
    // Lists in lists, and booleans that take no bytes.
    let lists = [version.clone(), field(8, 9, &[0x19].repeat(48_000))].concat();
    refused(&lists, "inside each other");
    let booleans = [version, field(8, 9, &list_of(1, 0x7fff_ffff)), vec![0]].concat();
    refused(&booleans, "list of booleans");
}

#[test]
fn rows_of_one_value_share_it() {
    let image = vec![7; 1 << 14];
    let scratch = tempfile::tempdir().unwrap();
    let images = vec![image.clone(); 2000];
    let bytes = written(Compression::ZSTD(Default::default()), &images);
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    write(&scratch, &[("a.parquet", &bytes)]);
    let table = Table::open(&scratch.path().join("a.parquet")).unwrap();
    let found = table.images(0).unwrap();
    assert_eq!(found.len(), 2000);
    let first = found[0].as_ref().unwrap();
    assert!(first[..] == image[..]);
    let same = |row: &Option<bytes::Bytes>| row.as_ref().unwrap().as_ptr() == first.as_ptr();
    assert!(
        found.iter().all(same),
        "values of the dictionary are copied"
    );
}

#[test]
fn more_rows_than_can_be_listed_are_refused() {
    let bytes = written(Compression::UNCOMPRESSED, &[vec![1], vec![2]]);
    // The group's rows: two, in zigzag, in front of the stop of the description's last group.
    let scratch = tempfile::tempdir().unwrap();
    let mut found = 0;
    for at in 0..bytes.len() {
        if bytes[at] != 4 {
            continue;
        }
        let mut wrong = bytes.clone();
        wrong.splice(at..=at, varint(2 * 100_000_000));
        let len = wrong.len();
        let description = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap());
        wrong[len - 8..len - 4].copy_from_slice(&(description + 3).to_le_bytes());
        write(&scratch, &[("a.parquet", &wrong)]);
        if let Err(error) = open(scratch.path()) {
            found += usize::from(error.to_string().contains("that is not there"));
        }
    }
    assert!(found > 0, "no field is the number of rows");
}
