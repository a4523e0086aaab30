//! Compression with loss: codes there and back, every cut of a file, layers left out, budgets, the search, damage.

#[path = "common/coding.rs"]
mod coding;
use coding::{bent, image, mutations, numbers, settings, workers};
use rrvq::Result;
use rrvq_codec::CodingModel;
use rrvq_codec::lossy::file::{Header, Kind, put_block};
use rrvq_codec::lossy::{Encoded, Keep, Options, Outcome, Reader, Tiles, decode, encode, is_lossy};
use rrvq_codec::record::{Record, put_records};
use rrvq_codec::{Identity, Image, Workers};

type Codec = (Workers, Identity);

fn write(codec: &mut Codec, images: &[Image], options: Options) -> Encoded {
    encode(&mut codec.0, codec.1, images, &options).unwrap()
}

fn drop_layers(dropped: usize) -> Options {
    Options {
        keep: Keep::Drop(dropped),
        ..Options::default()
    }
}

/// All outcomes, and how the file ended.
fn read(codec: &mut Codec, file: &[u8]) -> (Vec<Outcome>, Result<()>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut out = Vec::new();
    loop {
        match reader.segment(&mut codec.0, &|_| {}) {
            Ok(Some(outcomes)) => out.extend(outcomes),
            Ok(None) => return (out, reader.end()),
            Err(error) => return (out, Err(error)),
        }
    }
}

fn layers(codec: &Codec) -> usize {
    codec.0.model().config.layers()
}

/// A model of four layers whose first weights at least tell bright from dark.
fn deep() -> Codec {
    workers(&settings(&[
        "model.maps=[4, 2]",
        "model.repeat=2",
        "model.likelihood=mixture",
        "model.mixtures=2",
    ]))
}

const KINDS: [&[&str]; 8] = [
    &[],
    &["model.likelihood=mixture", "model.mixtures=3"],
    &["model.likelihood=mixture-causal", "model.mixtures=3"],
    &["model.likelihood=logistic-channel", "model.top=uniform"],
    &[
        "model.prior=direct",
        "model.sigma=one",
        "model.codes=[7, 19]",
    ],
    &["model.latent=nearest", "model.maps=[4]"],
    &["model.latent=fsq", "model.options.levels=[3, 4]"],
    &["model.maps=[4]", "model.top=uniform"],
];

#[test]
fn every_kind_of_model_and_image_comes_back_as_it_was_shown() {
    for kind in KINDS {
        let mut codec = workers(&settings(kind));
        let mut images = Vec::new();
        for (width, height) in [(1, 1), (8, 8), (9, 7), (40, 25)] {
            for (channels, alpha) in [(1, false), (1, true), (3, false), (3, true)] {
                let name = format!("{width}x{height}x{channels}{alpha}");
                images.push(image(&name, width, height, channels, alpha));
            }
        }
        for dropped in 0..=layers(&codec) {
            let coded = write(&mut codec, &images, drop_layers(dropped));
            assert!(is_lossy(&coded.bytes));
            let found = decode(&mut codec.0, codec.1, &coded.bytes).unwrap();
            assert_eq!(found.len(), images.len());
            for ((found, part), image) in found.iter().zip(&coded.parts).zip(&images) {
                assert_eq!(found, &part.shown);
                assert_eq!(found.alpha, image.alpha);
                assert_eq!(part.dropped, dropped);
                let same = (&found.name, found.width, &found.profile, found.orientation);
                let wanted = (&image.name, image.width, &image.profile, image.orientation);
                assert_eq!(same, wanted);
                assert_eq!(found.channels(), image.channels());
            }
        }
    }
}

/// The same model on tiles of other sides: what is shown comes back, alone and beside images with tiles of another side,
/// and any first part of a file makes pictures.
#[test]
fn tiles_of_other_sides_come_back_as_they_were_shown() {
    let mut codec = deep();
    let images = [
        image("large", 64, 30, 3, true),
        image("small", 8, 7, 3, false),
        image("grey", 32, 15, 1, false),
    ];
    let mut shown = Vec::new();
    for tiles in [4, 8, 16, 32].map(Tiles::Side) {
        let options = Options {
            tiles,
            ..Options::default()
        };
        let coded = write(&mut codec, &images, options);
        let found = decode(&mut codec.0, codec.1, &coded.bytes).unwrap();
        let pictures: Vec<&Image> = coded.parts.iter().map(|part| &part.shown).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), pictures);
        shown.push(found[0].colour.clone());
        for len in (0..coded.bytes.len()).step_by(97) {
            let (some, end) = read(&mut codec, &coded.bytes[..len]);
            assert!(end.is_err() || some.iter().any(|outcome| outcome.missing().is_some()));
        }
    }
    shown.dedup();
    assert_eq!(shown.len(), 4, "the side changes what is seen");
    // Each image by itself has the side that suits it, and keeps it in one file with the others.
    codec.0.of_parts = true;
    let together = write(&mut codec, &images, Options::default());
    let found = decode(&mut codec.0, codec.1, &together.bytes).unwrap();
    let sides = [32, 8, 16].map(Tiles::Side);
    for ((image, found), tiles) in images.iter().zip(&found).zip(sides) {
        let one = std::slice::from_ref(image);
        let options = Options {
            tiles,
            ..Options::default()
        };
        let alone = write(&mut codec, one, options);
        assert_eq!(&alone.parts[0].shown, found, "{:?}", image.name);
    }
    for side in [0, 6, 7, 9, 64, 1 << 30] {
        let options = Options {
            tiles: Tiles::Side(side),
            ..Options::default()
        };
        let said = encode(&mut codec.0, codec.1, &images, &options);
        let said = said.err().unwrap().to_string();
        assert!(
            said.contains(&format!("tiles of side {side} do not fit")),
            "{said}"
        );
    }
}

/// A layer left out makes the file smaller; what is kept is the first part of the whole, code for code.
#[test]
fn fewer_layers_are_fewer_bytes() {
    let mut codec = deep();
    let images = [image("x", 40, 24, 3, false)];
    let sizes: Vec<usize> = (0..=layers(&codec))
        .map(|dropped| write(&mut codec, &images, drop_layers(dropped)).parts[0].codes)
        .collect();
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&0));
    let said = encode(&mut codec.0, codec.1, &images, &drop_layers(5));
    let said = said.err().unwrap().to_string();
    assert!(
        said.contains("5 layers") && said.contains("has 4"),
        "{said}"
    );
}

#[test]
fn little_is_around_a_single_image() {
    let mut codec = deep();
    let one = image("photo", 30, 20, 3, false);
    let plain = Image {
        profile: Vec::new(),
        ..one
    };
    let coded = write(&mut codec, std::slice::from_ref(&plain), Options::default());
    // Magic and identity 12, how many 1, the list 13 and the name, a block 7.
    assert!((128..1 << 14).contains(&coded.parts[0].codes));
    assert_eq!(coded.header, 33 + "photo".len());
    assert_eq!(coded.bytes.len(), coded.header + coded.parts[0].codes);
    let many: Vec<Image> = (0..50)
        .map(|i| Image {
            name: format!("photo {i}").into(),
            ..plain.clone()
        })
        .collect();
    let coded = write(&mut codec, &many, Options::default());
    assert!(coded.header < 50 * 14, "{}", coded.header);
    let none = write(&mut codec, &[], Options::default());
    assert!(none.bytes.len() < 24);
    assert_eq!(decode(&mut codec.0, codec.1, &none.bytes).unwrap(), []);
}

/// Every first part of a file that has the list gives a picture, each at least as many codes as the one before.
#[test]
fn every_cut_makes_a_picture() {
    let mut codec = deep();
    let images = [
        image("first", 21, 12, 3, false),
        image("second", 8, 9, 1, true),
    ];
    let coded = write(&mut codec, &images, Options::default());
    let file = &coded.bytes;
    let (mut shown_from, mut before) = (None, [0, 0]);
    for len in 0..file.len() {
        let config = codec.0.model().config.clone();
        assert!(
            Reader::new(&file[..len])
                .and_then(|r| r.check(&config))
                .is_err()
        );
        assert!(
            decode(&mut codec.0, codec.1, &file[..len]).is_err(),
            "{len}"
        );
        let (found, _) = read(&mut codec, &file[..len]);
        if found.is_empty() {
            assert_eq!(shown_from, None, "{len}");
            continue;
        }
        shown_from.get_or_insert(len);
        assert_eq!(found.len(), 2);
        for (number, outcome) in found.iter().enumerate() {
            assert!(!outcome.damaged, "{len}");
            let there = outcome.present;
            assert!(there >= before[number] && there <= outcome.codes);
            before[number] = there;
            let picture = outcome.image.as_ref().unwrap();
            assert_eq!(picture.width, images[number].width);
            if outcome.missing().is_none() {
                assert_eq!(picture, &coded.parts[number].shown);
            }
        }
        let whole = found.iter().all(|outcome| outcome.missing().is_none());
        // The last checksum alone may be missing, and then the last strip is.
        assert!(!whole, "{len}");
    }
    assert!(shown_from.is_some_and(|len| len < 70), "{shown_from:?}");
    let config = codec.0.model().config.clone();
    assert!(Reader::new(file).unwrap().check(&config).is_ok());
}

/// What a cut file shows for the missing layers is what a file without them shows.
#[test]
fn a_cut_is_like_layers_left_out() {
    let mut codec = deep();
    let images = [image("x", 20, 20, 3, false)];
    let whole = write(&mut codec, &images, Options::default());
    let none = drop_layers(layers(&codec));
    let top = write(&mut codec, &images, none);
    let blank = read(&mut codec, &whole.bytes[..whole.header - 6]).0;
    assert_eq!(blank[0].present, 0);
    assert_eq!(blank[0].image.as_ref().unwrap(), &top.parts[0].shown);
    // The codes of the top layer have come, and no other: found by trying.
    let upper = write(&mut codec, &images, drop_layers(3));
    let per_tile = 4;
    let cut = (whole.header..whole.bytes.len()).find_map(|len| {
        let found = read(&mut codec, &whole.bytes[..len]).0;
        (found[0].present >= 9 * per_tile).then_some(found)
    });
    let found = cut.unwrap();
    if found[0].present == 9 * per_tile {
        assert_eq!(found[0].image.as_ref().unwrap(), &upper.parts[0].shown);
    }
}

/// Large images have several groups, and steps of their own; the picture does not depend on how they are cut.
#[test]
fn large_images_have_many_blocks() {
    let mut codec = workers(&settings(&[
        "model.maps=[8, 4]",
        "model.repeat=6",
        "model.size=16",
    ]));
    let large = [image("large", 200, 180, 3, false)];
    let coded = write(&mut codec, &large, Options::default());
    let around = coded.parts[0].blocks;
    // Twelve layers of three groups.
    assert!((36 * 6..=36 * 8).contains(&around), "{around}");
    assert!(around * 20 < coded.bytes.len(), "{around}");
    let found = decode(&mut codec.0, codec.1, &coded.bytes).unwrap();
    assert_eq!(found[0], coded.parts[0].shown);
    for part in [3, 2] {
        let (found, _) = read(&mut codec, &coded.bytes[..coded.bytes.len() / part]);
        let missing = found[0].missing().unwrap();
        assert!(missing.contains("% of its codes"), "{missing}");
        assert!(!found[0].damaged);
    }
}

/// The first bytes show the whole picture, and every byte more makes it better: PSNR over the length of a prefix rises.
#[test]
fn every_prefix_shows_the_whole_picture() {
    let trained = rrvq::Trained::open("tiles-2").unwrap();
    let mut codec = trained.workers().unwrap();
    // Ten by seven tiles: two groups.
    let large = [image("large", 310, 220, 3, false)];
    let coded = write(&mut codec, &large, Options::default());
    let mut last = 0.0;
    for tenth in 0..=20 {
        let len = coded.header + tenth * (coded.bytes.len() - coded.header) / 20;
        let (found, _) = read(&mut codec, &coded.bytes[..len]);
        let shown = found[0].image.as_ref().unwrap();
        let squares = shown.colour.iter().zip(&large[0].colour);
        let error: f64 = squares.map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
        let psnr = 10.0 * (255.0f64.powi(2) * shown.colour.len() as f64 / error).log10();
        println!("{len} bytes: {psnr:.2} dB, {} codes", found[0].present);
        assert!(psnr >= last, "{psnr:.2} dB after {last:.2}");
        last = psnr;
    }
}

#[test]
fn budgets_are_kept_with_as_many_layers_as_fit() {
    let mut codec = deep();
    let images = [
        image("x", 40, 24, 3, false),
        image("y", 16, 16, 1, false),
        image("dot", 1, 1, 3, false),
    ];
    let all = layers(&codec);
    for bits in [0.01, 0.5, 1.0, 2.0, 4.0, 100.0] {
        for search in [false, true] {
            let keep = Keep::Bits(bits);
            let options = Options {
                keep,
                search,
                bit_worth: None,
                ..Options::default()
            };
            let coded = write(&mut codec, &images, options);
            for (part, image) in coded.parts.iter().zip(&images) {
                let room = bits * (image.width * image.height) as f64;
                let size = |part: &rrvq_codec::lossy::Part| 8.0 * (part.codes + part.blocks) as f64;
                assert!(size(part) <= room, "{bits} {} {}", size(part), part.dropped);
                if part.dropped > 0 && !search {
                    let more = [image.clone()];
                    let more = write(&mut codec, &more, drop_layers(part.dropped - 1));
                    assert!(size(&more.parts[0]) > room);
                }
                assert!(part.dropped <= all);
            }
            decode(&mut codec.0, codec.1, &coded.bytes).unwrap();
        }
    }
    let nonsense = Options {
        keep: Keep::Bits(-1.0),
        ..Options::default()
    };
    assert!(encode(&mut codec.0, codec.1, &images, &nonsense).is_err());
}

/// Searched codes never cost more than the likeliest, in error and bits together.
#[test]
fn the_search_is_never_worse() {
    let mut codec = deep();
    let images = [image("x", 40, 24, 3, false), image("y", 17, 16, 1, false)];
    let mut better = 0;
    for dropped in 0..layers(&codec) {
        let modes = write(&mut codec, &images, drop_layers(dropped));
        for worth in [1.0, 30.0, 1000.0] {
            let options = Options {
                keep: Keep::Drop(dropped),
                search: true,
                bit_worth: Some(worth),
                ..Options::default()
            };
            let searched = write(&mut codec, &images, options);
            let price = |part: &rrvq_codec::lossy::Part| {
                part.squared_error as f64 + worth * 8.0 * part.codes as f64
            };
            for (found, mode) in searched.parts.iter().zip(&modes.parts) {
                assert!(price(found) <= price(mode));
                better += (price(found) < price(mode)) as usize;
            }
            let found = decode(&mut codec.0, codec.1, &searched.bytes).unwrap();
            assert_eq!(found[0], searched.parts[0].shown);
        }
    }
    assert!(better > 6, "{better}");
}

/// A file does not depend on how many threads wrote it, and any number can read it.
#[test]
fn threads_change_nothing() {
    let images = [
        image("x", 150, 130, 3, false),
        image("y", 9, 9, 3, true),
        image("z", 80, 30, 1, false),
    ];
    for search in [false, true] {
        let images = if search { &images[1..] } else { &images[..] };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let mut codec = deep();
                let options = Options {
                    search,
                    ..Options::default()
                };
                let file = write(&mut codec, images, options).bytes;
                let found = decode(&mut codec.0, codec.1, &file).unwrap();
                (file, found)
            })
        };
        assert!(with(1) == with(4));
    }
}

/// Images do not depend on what else is in the file.
#[test]
fn neighbours_change_nothing() {
    let mut codec = deep();
    let images = [
        image("x", 30, 13, 3, false),
        image("y", 9, 9, 3, false),
        image("z", 70, 60, 1, false),
    ];
    let together = write(&mut codec, &images, Options::default());
    for (image, part) in images.iter().zip(together.parts) {
        let alone = write(&mut codec, std::slice::from_ref(image), Options::default());
        assert_eq!(alone.parts[0].shown, part.shown);
        assert_eq!(alone.parts[0].codes, part.codes);
    }
}

/// Whatever is done to a file, reading it ends, without a panic, in pictures or in a sentence.
#[test]
fn mutated_files_end_in_a_sentence() {
    let mut codec = deep();
    let images = [
        image("first", 30, 20, 3, true),
        image("second", 12, 20, 1, false),
    ];
    let coded = write(&mut codec, &images, Options::default());
    let file = &coded.bytes;
    let mut number = numbers(23);
    for round in 0..mutations() {
        let mut bent = bent(file, &mut number);
        // Half of the time the checksums are made to fit, so that what lies behind them is tried as well.
        if round % 2 == 0 {
            mend(&mut bent);
        }
        let config = codec.0.model().config.clone();
        let checked = Reader::new(&bent).and_then(|reader| reader.check(&config));
        let (found, end) = read(&mut codec, &bent);
        let whole = |outcome: &Outcome| outcome.missing().is_none() && outcome.image.is_ok();
        if round % 2 == 1 && bent != *file {
            // Six bytes of the identity and a checksum over all: no change is taken for the file.
            assert!(checked.is_err() || !found.iter().all(whole) || end.is_err());
        }
    }
}

/// A few bytes cannot claim all memory.
#[test]
fn nothing_large_is_made_of_nothing() {
    let mut codec = deep();
    let record = |width, height| Record {
        name: format!("{width}").into(),
        width,
        height,
        channels: 3,
        alpha: false,
        orientation: 1,
        coding: 0,
        profile: Vec::new(),
        metadata: Vec::new(),
    };
    for (sizes, shown) in [
        (vec![(1000, 1000)], 1),
        (vec![(1 << 16, 1 << 12)], 0),
        (vec![(2000, 1000), (2001, 1000), (2002, 1000)], 2),
    ] {
        let records: Vec<Record> = sizes.iter().map(|(w, h)| record(*w, *h)).collect();
        let mut file = Header::new(codec.1, sizes.len()).put();
        let before = file.clone();
        let (packed, payload) = put_records(&records).unwrap();
        let list = [&[8u8][..], &payload].concat(); // the side of the tiles
        put_block(&mut file, &before, Kind::of_list(packed), &list);
        let (found, _) = read(&mut codec, &file);
        let had = found.iter().filter(|outcome| outcome.image.is_ok());
        assert_eq!(had.count(), shown);
    }
}

/// Makes the checksums of the blocks fit, as far as they can be followed.
fn mend(file: &mut [u8]) {
    let (mut at, mut before) = (13, 0..13);
    while at + 6 <= file.len() {
        let (mut len, mut after) = (0, at + 1);
        for shift in [0, 7, 14, 21] {
            let Some(&byte) = file.get(after) else { return };
            len |= ((byte & 127) as usize) << shift;
            after += 1;
            if byte < 128 {
                break;
            }
        }
        let end = after + len;
        if end + 4 > file.len() {
            return;
        }
        let mut crc = flate2::Crc::new();
        crc.update(&file[before]);
        crc.update(&file[at..end]);
        file[end..end + 4].copy_from_slice(&crc.sum().to_le_bytes());
        (at, before) = (end + 4, 0..0);
    }
}
