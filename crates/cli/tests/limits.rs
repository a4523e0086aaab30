//! Files of a few bytes that ask for gigabytes or hours: each is refused with a sentence, in an address space that what it
//! asks for would not fit in.
#![cfg(target_os = "linux")]

mod common;
use common::{Said, Scratch};
use flate2::write::{GzEncoder, ZlibEncoder};
use safetensors::tensor::{SafeTensors, serialize};
use std::io::Write;
use std::time::{Duration, Instant};

/// Runs the program with `mib` MiB of address space; a refusal takes no time.
#[track_caller]
fn within(scratch: &Scratch, mib: usize, args: &str) -> Said {
    let start = Instant::now();
    let kib = mib << 10;
    let said = scratch.shell(&format!("ulimit -v {kib}; exec $rrvq {args}"));
    assert!(start.elapsed() < Duration::from_secs(60), "{args}");
    said
}

/// It ended with exit code 2, and one of its sentences has this word.
#[track_caller]
fn told(said: &Said, word: &str) {
    assert!(said.code == Some(2) && said.err.contains(word), "{said:?}");
}

/// The same model with other settings beside its weights.
fn with_settings(model: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (_, about) = SafeTensors::read_metadata(model).unwrap();
    let mut notes = about.metadata().clone().unwrap();
    let config = notes.get_mut("config").unwrap();
    assert!(config.contains(from), "{config}");
    *config = config.replace(from, to);
    let tensors = SafeTensors::deserialize(model).unwrap();
    serialize(tensors.tensors(), Some(notes)).unwrap()
}

#[test]
fn settings_that_ask_for_terabytes_or_hours_are_refused_by_every_command() {
    let scratch = Scratch::new();
    scratch.trained("run");
    scratch
        .run(&["pack", "run", "--out", "model.safetensors"])
        .done();
    let packed = scratch.read("model.safetensors");
    let config = String::from_utf8(scratch.read("run/config.toml")).unwrap();
    let wide = [("\nchannels = 8\n", "\nchannels = 65536\n")];
    let deep = [
        ("repeat = 1", "repeat = 1024"),
        ("\nblocks = 1\n", "\nblocks = 256\n"),
    ];
    let blocks = [
        ("repeat = 1", "repeat = 200"),
        ("\nblocks = 1\n", "\nblocks = 256\n"),
    ];
    let maps = |to| [("maps = [4, 2]", to)];
    for (changes, said) in [
        (&wide[..], "max-memory"),
        (&deep, "2048 layers in all"),
        (&blocks, "204800 residual blocks"),
        (&maps("maps = []"), "model.maps is empty"),
        (&maps("maps = [100000]"), "begins with 100000"),
        (&maps("maps = [4, 2, 1, 0]"), "from 1 to 0"),
    ] {
        let (mut changed, mut model) = (config.clone(), packed.clone());
        for (from, to) in changes {
            changed = changed.replace(from, to);
            model = with_settings(&model, from, to);
        }
        scratch.write("run/config.toml", &changed);
        scratch.write("model.safetensors", model);
        for args in [
            "report run --out x.html",
            "eval run",
            "info run",
            "sample run --out x.png",
            "train --resume --out run --steps 20",
            "train --config run/config.toml --steps 1 --out other",
            "sample model.safetensors --out x.png",
        ] {
            within(&scratch, 1500, args).refused(&[said]);
        }
    }
    assert!(!scratch.path("other").exists() && !scratch.path("x.png").exists());
}

#[test]
fn a_program_that_does_not_fit_is_refused_with_both_numbers() {
    let scratch = Scratch::new();
    let train = "train --preset tiny-swatches --steps 1 --out run";
    within(&scratch, 3000, &format!("{train} --max-memory 64KiB"))
        .refused(&["64 KiB", "max-memory"]);
    within(
        &scratch,
        3000,
        &format!("{train} --overwrite --set train.batch=65536 --set model.channels=512"),
    )
    .refused(&["GiB of memory", "8 GiB"]);
    let said = within(&scratch, 3000, &format!("{train} --max-memory lots"));
    assert!(said.err.contains("512MiB"), "{said:?}");
}

/// A PNG of one colour: `width` × `height` pixels of three bytes.
fn flat_png(width: u32, height: u32) -> Vec<u8> {
    let mut rows = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let row = vec![0; 1 + 3 * width as usize];
    (0..height).for_each(|_| rows.write_all(&row).unwrap());
    let header = [
        &width.to_be_bytes()[..],
        &height.to_be_bytes(),
        &[8, 2, 0, 0, 0],
    ]
    .concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [
        (b"IHDR", header),
        (b"IDAT", rows.finish().unwrap()),
        (b"IEND", vec![]),
    ] {
        let mut sum = flate2::Crc::new();
        sum.update(kind);
        sum.update(&data);
        png.extend((data.len() as u32).to_be_bytes());
        png.extend(kind);
        png.extend(data);
        png.extend(sum.sum().to_be_bytes());
    }
    png
}

#[test]
fn an_image_of_too_many_pixels_is_refused_everywhere() {
    let scratch = Scratch::new();
    scratch.trained("run");
    std::fs::create_dir(scratch.path("photos")).unwrap();
    for name in ["a.png", "b.png"] {
        scratch.write(&format!("photos/{name}"), flat_png(20_000, 20_000));
    }
    for args in [
        "reconstruct run photos/a.png --out x.png",
        "codes run photos/a.png --out x.safetensors",
        "compress photos/a.png -o x.rrvq --model run",
        "data info photos --size 8 --sheet x.png",
        "train --preset tiny-swatches --set data.name=folder --data photos --out other",
    ] {
        within(&scratch, 900, args).refused(&["a.png", "20000×20000 pixels"]);
    }
    // The limit is the user's to change.
    scratch.write("small.png", flat_png(40, 30));
    let small = "reconstruct run small.png --out x.png --max-pixels";
    within(&scratch, 900, &format!("{small} 1000")).refused(&["40×30", "at most 1000"]);
    within(&scratch, 900, &format!("{small} 1200")).done();
}

#[test]
fn a_part_of_a_webp_file_cannot_claim_more_than_the_file() {
    let scratch = Scratch::new();
    scratch.trained("run");
    let mut webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x20\0\0\0\x07\0\0\x07\0\0".to_vec();
    webp.extend(b"ICCP\xf0\xff\xff\xff");
    let len = webp.len() as u32 - 8;
    webp[4..8].copy_from_slice(&len.to_le_bytes());
    scratch.write("a.webp", webp);
    for args in [
        "reconstruct run a.webp --out x.png",
        "compress a.webp -o x.rrvq --model run",
    ] {
        within(&scratch, 900, args).refused(&["a.webp", "ICCP", "4294967280"]);
    }
}

#[test]
fn what_unpacks_to_more_than_the_limit_is_refused() {
    let scratch = Scratch::new();
    let zeros = vec![0; 64 << 20];
    let gzip = |bytes: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    std::fs::create_dir(scratch.path("idx")).unwrap();
    let packed = gzip(&zeros);
    for name in ["train-images", "t10k-images"] {
        scratch.write(&format!("idx/{name}-idx3-ubyte.gz"), &packed);
    }
    std::fs::create_dir(scratch.path("cifar")).unwrap();
    scratch.write("cifar/cifar-10-binary.tar.gz", &packed);
    std::fs::create_dir(scratch.path("svhn")).unwrap();
    for name in ["train_32x32.mat", "test_32x32.mat"] {
        scratch.write(&format!("svhn/{name}"), matlab(&zeros));
    }
    let limits = "--max-memory 16MiB";
    for (folder, word) in [("idx", "idx3"), ("cifar", "tar.gz"), ("svhn", ".mat")] {
        let args = format!("data info {folder} {limits}");
        within(&scratch, 400, &args).refused(&[word, "unpacks to more than 16 MiB"]);
    }
    // A file that is larger than the limit as it is.
    scratch.write("idx/train-images-idx3-ubyte.gz", &zeros);
    within(&scratch, 400, &format!("data info idx {limits}")).refused(&["needs 64 MiB"]);
}

/// A MATLAB file with the packed array X of these bytes, as images of 32 × 32 × 3.
fn matlab(content: &[u8]) -> Vec<u8> {
    let element = |kind: u32, content: &[u8]| {
        let mut bytes = [kind.to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let count = content.len() / 3072;
    let content = &content[..count * 3072];
    let sides = [32, 32, 3, count as u32].map(u32::to_le_bytes).concat();
    let parts = [
        element(6, &[9, 0, 0, 0, 0, 0, 0, 0]),
        element(5, &sides),
        vec![1, 0, 1, 0, b'X', 0, 0, 0],
        element(2, content),
    ];
    let mut packer = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&element(14, &parts.concat())).unwrap();
    let packed = packer.finish().unwrap();
    let mut file = b"MATLAB 5.0 MAT-file".to_vec();
    file.resize(124, b' ');
    file.extend(b"\0\x01IM");
    file.extend(15u32.to_le_bytes());
    file.extend((packed.len() as u32).to_le_bytes());
    file.extend(packed);
    file
}

/// A block of a compressed file: its letter, its length and the checksum of both and of what it may share a sum with.
fn block(before: &[u8], head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = [head, payload].concat();
    let mut sum = flate2::Crc::new();
    sum.update(before);
    sum.update(&bytes);
    bytes.extend(sum.sum().to_le_bytes());
    bytes
}

/// A file without loss, in the first version of the format, that lists `count` images of this side and has none.
fn listing(count: u32, side: u32) -> Vec<u8> {
    let mut records = Vec::new();
    for number in 0..count {
        let name = format!("image-{number}");
        records.extend((name.len() as u16).to_le_bytes());
        records.extend(name.as_bytes());
        records.extend([side.to_le_bytes(), side.to_le_bytes()].concat());
        // Colour, transparency, by prediction, upright, and no profile.
        records.extend([3, 1, 0, 1, 0, 0, 0, 0]);
    }
    let mut list = [count, records.len() as u32].map(u32::to_le_bytes).concat();
    let mut packer = flate2::write::DeflateEncoder::new(&mut list, flate2::Compression::best());
    packer.write_all(&records).unwrap();
    packer.finish().unwrap();
    let header = [
        &1u16.to_le_bytes()[..],
        &[7; 32],
        &[32, 0, 0, 0],
        &count.to_le_bytes(),
    ];
    let mut bytes = b"\x89RRVQ\r\n\x1a".to_vec();
    for (letter, payload) in [
        (b'H', header.concat()),
        (b'I', list),
        (b'E', count.to_le_bytes().to_vec()),
    ] {
        let head = [&[letter][..], &(payload.len() as u32).to_le_bytes()].concat();
        bytes.extend(block(&[], &head, &payload));
    }
    bytes
}

#[test]
fn compressed_files_cannot_claim_more_pixels_than_the_limit() {
    let scratch = Scratch::new();
    for (count, side) in [(1, 1 << 14), (16, 1 << 12)] {
        scratch.write("a.rrvq", listing(count, side));
        for more in ["", "--keep-going"] {
            let args = format!("decompress a.rrvq -o out {more}");
            told(&within(&scratch, 900, &args), "max-pixels");
        }
    }
    scratch.write("a.rrvq", listing(1, 32));
    told(
        &within(&scratch, 900, "decompress a.rrvq -o out"),
        "image-0",
    );
}

#[test]
fn a_lossy_file_that_lists_and_holds_nothing_takes_no_memory() {
    let scratch = Scratch::new();
    scratch.write("small.png", flat_png(32, 32));
    scratch
        .run(&["compress", "small.png", "--lossy", "-o", "small.rrvq"])
        .done();
    // The first bytes name the format and the model; one image; 8192 × 8192 in colour with transparency.
    let mut bytes = scratch.read("small.rrvq")[..12].to_vec();
    bytes[5] = 2;
    bytes.push(1);
    let list = [1, 1, b'a', 128, 64, 128, 64, 3, 0];
    let list = block(&bytes, &[b'I', list.len() as u8], &list);
    bytes.extend(list);
    assert!(bytes.len() < 32);
    scratch.write("a.rrvq", &bytes);
    let args = "decompress a.rrvq -o out --partial";
    told(&within(&scratch, 600, args), "too few of its codes");
}

/// Devices without an end, within an address space they would fill.
#[cfg(target_os = "linux")]
#[test]
fn what_never_ends_is_refused() {
    let scratch = Scratch::new();
    for args in [
        "compress /dev/zero -o out.rrvq",
        "compress --lossy /dev/zero -o out.rrvq",
        "compress - -o out.rrvq </dev/zero",
        "decompress /dev/zero -o out",
        "decompress --keep-going /dev/zero -o out",
        "decompress - -o out </dev/zero",
        "codec list /dev/zero",
        "codec list - </dev/zero",
        "reconstruct tiles-2 /dev/zero --out out.png",
        "codes tiles-2 /dev/zero --out out.npy",
        "info /dev/zero",
        "train --config /dev/zero",
        "decode tiles-2 /dev/zero --out out.png",
    ] {
        let said = within(&scratch, 1024, &format!("--max-memory 64MiB {args}"));
        assert_eq!(said.code, Some(2), "{args}: {said:?}");
        assert!(said.err.starts_with("rrvq: "), "{args}: {said:?}");
        assert!(!scratch.path("out.rrvq").exists());
    }
}
