//! Images through the codec and back: every colour, size and kind of model; the price against the ELBO; damage.

#[path = "common/coding.rs"]
mod coding;
use coding::{bent, image, model, mutations, numbers, picture, settings, workers};
use rrvq::config::Config;
use rrvq::dataset::{Dataset, Split, Swatches};
use rrvq::device::Device;
use rrvq::programs::Model;
use rrvq::programs::Scorer;
use rrvq::{Error, Result};
use rrvq_codec::neighbours::{self, Neighbours};
use rrvq_codec::networks::Networks;
use rrvq_codec::read::{Made, check};
use rrvq_codec::{Coding, Identity, Image, Reader, Summary, Workers, Writer, png};
use rrvq_tensor::Store;
use rrvq_tensor::rng::counter;
use std::path::Path;

/// By the model, which knows nothing yet: prediction would have everything.
fn write(codec: &mut (Workers, Identity), images: &[Image]) -> (Vec<u8>, Summary) {
    write_by(codec, images, Coding::Model)
}

fn write_by(
    (workers, identity): &mut (Workers, Identity),
    images: &[Image],
    coding: Coding,
) -> (Vec<u8>, Summary) {
    let mut file = Vec::new();
    let mut writer = Writer {
        workers,
        identity: *identity,
        coding,
        check: true,
        watch: &|_| {},
    };
    let images_here = images.iter().cloned().map(Ok);
    let summary = writer.write(images_here, images.len(), &mut file).unwrap();
    assert_eq!(summary.bytes, file.len());
    (file, summary)
}

/// All outcomes, and how the file ended.
fn read(workers: Option<&mut Workers>, file: &[u8]) -> (Vec<Result<Image>>, Result<()>) {
    let mut input = file;
    let mut reader = match Reader::new(&mut input) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut out = Vec::new();
    let mut workers = workers;
    loop {
        match reader.segment(workers.as_deref_mut(), &|_| {}) {
            Ok(Some(outcomes)) => out.extend(outcomes.into_iter().map(|o| o.image)),
            Ok(None) => return (out, Ok(())),
            Err(error) => return (out, Err(error)),
        }
    }
}

/// The images of a file by way of PNG files that are written a few rows at a time, as large ones are.
fn by_rows(workers: &mut Workers, file: &[u8]) -> Vec<Image> {
    let mut input = file;
    let mut reader = Reader::new(&mut input).unwrap();
    let mut out = Vec::new();
    while let Some(outcomes) = reader.segment_by_rows(Some(workers), &|_| {}, 0).unwrap() {
        for outcome in outcomes {
            let Made::Large(image) = outcome.image.unwrap() else {
                panic!("no image has less than one sample")
            };
            let mut png = Vec::new();
            let rows = &mut |take: &mut png::Take<'_>| image.rows(Some(workers), take);
            png::write(&image.record, rows, &mut png).unwrap();
            out.push(Image::from_file(Path::new("x.png"), &png).unwrap());
        }
    }
    out
}

fn come_back(codec: &mut (Workers, Identity), images: &[Image]) -> Summary {
    let (file, summary) = write(codec, images);
    for (found, image) in by_rows(&mut codec.0, &file).iter().zip(images) {
        assert!(found.colour == image.colour && found.alpha == image.alpha);
        assert_eq!(
            (found.width, found.profile.clone()),
            (image.width, image.profile.clone())
        );
    }
    let (found, end) = read(Some(&mut codec.0), &file);
    end.unwrap();
    assert_eq!(found.len(), images.len());
    for (found, image) in found.into_iter().zip(images) {
        assert_eq!(found.as_ref(), Ok(image));
    }
    summary
}

/// Many strips of colours and of transparency, which do not begin at the same rows; pictures of few colours.
#[test]
fn predicted_images_are_written_a_few_rows_at_a_time() {
    let mut codec = workers(&settings(&[]));
    let mut images: Vec<Image> = [(1, false), (1, true), (3, false), (3, true)]
        .map(|(channels, alpha)| image("large", 700, 500, channels, alpha))
        .into();
    for colours in [2, 3, 16, 200] {
        let mut few = image("few", 301, 40, 3, colours == 3);
        few.colour.iter_mut().for_each(|sample| *sample = 7);
        let pixels = few.colour.chunks_exact_mut(3).enumerate();
        pixels.for_each(|(at, pixel)| pixel[1] = (at / 5 % colours) as u8);
        if let Some(alpha) = &mut few.alpha {
            alpha.fill(99);
        }
        images.push(few);
    }
    let (file, _) = write_by(&mut codec, &images, Coding::Prediction);
    let found = by_rows(&mut codec.0, &file);
    assert_eq!(found.len(), images.len());
    for (found, image) in found.iter().zip(&images) {
        assert!(found.colour == image.colour && found.alpha == image.alpha);
    }
}

const KINDS: [&[&str]; 10] = [
    &[],
    &["model.likelihood=mixture", "model.mixtures=3"],
    &["model.likelihood=mixture-causal", "model.mixtures=9"],
    &["model.likelihood=logistic-channel", "model.top=uniform"],
    &[
        "model.prior=direct",
        "model.sigma=one",
        "model.codes=[7, 19]",
    ],
    &["model.latent=nearest", "model.maps=[4]"],
    &["model.latent=fsq", "model.options.levels=[3, 4]"],
    &[
        "model.maps=[4]",
        "model.top=uniform",
        "model.sigma=isotropic",
    ],
    &["model.image_channels=1"],
    &["model.backbone=mlp"],
];

#[test]
fn every_kind_of_model_brings_images_back() {
    for kind in KINDS {
        let mut codec = workers(&settings(kind));
        let images = [
            image("colour", 40, 25, 3, false),
            image("grey", 17, 9, 1, false),
            image("both", 11, 30, 3, true),
        ];
        come_back(&mut codec, &images);
    }
}

fn some_neighbours(channels: usize) -> Neighbours {
    Neighbours {
        pull: vec![[0.4, 0.5, -0.2, -0.1, -0.1, 0.3]; channels],
        narrowing: vec![[1.2, 1.3, 1.4, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8]; channels],
    }
}

/// With neighbours as well, whatever they say, wrong numbers included.
#[test]
fn neighbours_bring_images_back() {
    for (kind, odd) in KINDS
        .iter()
        .zip([0.0f32, 1e30, f32::NAN, -5.0].iter().cycle())
    {
        let config = settings(kind);
        let (workers, identity) = workers(&config);
        let channels = config.image_channels;
        let mut neighbours = some_neighbours(channels);
        let images = [
            image("colour", 40, 25, 3, false),
            image("grey", 17, 9, 1, false),
            image("dot", 1, 1, 3, false),
        ];
        let mut codec = (workers.with_neighbours(Some(neighbours.clone())), identity);
        come_back(&mut codec, &images);
        let (plain, _) = write(&mut (coding::workers(&config).0, identity), &images);
        let (moved, _) = write(&mut codec, &images);
        // A causal likelihood has learnt what to make of its neighbours.
        let causal = config.likelihood == "mixture-causal";
        assert_eq!(plain == moved, causal, "{kind:?}: have they an effect?");
        neighbours.pull[channels - 1][2] = *odd;
        neighbours.narrowing[0][3] = *odd;
        let mut codec = (codec.0.with_neighbours(Some(neighbours)), identity);
        come_back(&mut codec, &images);
    }
}

/// A likelihood that follows its neighbours by itself is not corrected a second time.
#[test]
fn neighbours_are_not_fitted_to_a_causal_likelihood() {
    let config = settings(&["model.likelihood=mixture-causal", "model.mixtures=3"]);
    let (model, theta) = model(&config);
    let mut networks = Networks::new(&model, &theta).unwrap();
    let data = Swatches::new(config.size, 8, 8);
    let error = neighbours::fit(&mut networks, &data, 8, |_| ()).unwrap_err();
    assert!(error.to_string().contains("mixture-causal"), "{error}");
}

/// What is fitted makes files of other images smaller, and has its part in the model's name.
#[test]
fn fitted_neighbours_save_bits() {
    let mut config = Config::preset("tiny-swatches").unwrap();
    config.set("model.likelihood=mixture").unwrap();
    config.set("model.mixtures=3").unwrap();
    let data = Swatches::new(8, config.data.train_images, config.data.test_images);
    let (model, theta) = model(&config.model);
    let mut networks = Networks::new(&model, &theta).unwrap();
    let mut watched = 0;
    let fitted = neighbours::fit(&mut networks, &data, 40, |n| watched += n).unwrap();
    assert_eq!(watched, 80);
    // One colour an image: an untrained model errs the same way everywhere.
    assert!(fitted.pull.iter().all(|p| p[0] + p[1] > 0.3), "{fitted:?}");
    let tile = |number: usize| {
        let mut out = image(&number.to_string(), 8, 8, 3, false);
        data.read(Split::Test, number, &mut out.colour);
        out
    };
    let images: Vec<Image> = (0..20).map(tile).collect();
    let plain = Identity::of(&model, &theta, None).unwrap();
    let named = Identity::of(&model, &theta, Some(&fitted)).unwrap();
    assert_ne!(plain, named);
    let workers = Workers::new(&model, &theta).unwrap();
    let before = come_back(&mut (workers, plain), &images);
    let workers = Workers::new(&model, &theta).unwrap();
    let after = come_back(&mut (workers.with_neighbours(Some(fitted)), named), &images);
    assert!(
        after.bytes < before.bytes * 19 / 20,
        "{} {}",
        after.bytes,
        before.bytes
    );
}

#[test]
fn latents_without_codes_are_refused() {
    for latent in ["gaussian", "bernoulli"] {
        let model = Model::new(&settings(&[&format!("model.latent={latent}")]));
        let theta = model.layout.initial(1);
        let said = Networks::new(&model, &theta).err().unwrap().to_string();
        assert!(said.contains(latent) && said.contains("\"code\""), "{said}");
    }
}

#[test]
fn every_size_and_colour_comes_back() {
    let mut codec = workers(&settings(&["model.likelihood=mixture", "model.mixtures=2"]));
    let mut images = Vec::new();
    for (width, height) in [
        (1, 1),
        (7, 8),
        (8, 8),
        (9, 8),
        (8, 9),
        (1, 60),
        (61, 1),
        (33, 31),
    ] {
        for (channels, alpha) in [(1, false), (1, true), (3, false), (3, true)] {
            let name = format!("{width}x{height}x{channels}{alpha}");
            images.push(image(&name, width, height, channels, alpha));
        }
    }
    let summary = come_back(&mut codec, &images);
    assert_eq!(summary.images, images.len());
    come_back(&mut codec, &[]);
    let mut codec = workers(&settings(&["model.size=32", "model.maps=[8, 4]"]));
    come_back(&mut codec, &[image("large", 1000, 700, 3, false)]);
}

#[test]
fn one_pixel_costs_next_to_nothing() {
    let mut codec = workers(&settings(&[]));
    let dot = [image("dot", 1, 1, 3, false)];
    let (file, summary) = write_by(&mut codec, &dot, Coding::Smaller);
    assert!(file.len() < 160, "{}", file.len());
    assert_eq!(summary.by_model, 0);
    let (larger, summary) = write(&mut codec, &dot);
    assert!(larger.len() > file.len() && summary.by_model == 1);
    // No images at all are a file, too.
    let (file, summary) = write_by(&mut codec, &[], Coding::Smaller);
    assert!(file.len() < 80 && summary.images == 0);
}

/// A file does not depend on how many threads wrote it, and any number can read it.
#[test]
fn threads_change_nothing() {
    let images: Vec<Image> = (0..3)
        .map(|i| image(&i.to_string(), 150 + i, 130, 3, false))
        .collect();
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let mut codec = workers(&settings(&["model.likelihood=mixture"]));
            let file = write(&mut codec, &images).0;
            (codec, file)
        })
    };
    let (mut one, four) = (with(1), with(4));
    assert!(one.1 == four.1);
    assert!(read(Some(&mut one.0.0), &four.1).1.is_ok());
}

/// What the networks give for a tile depends neither on its neighbours nor on the size of the batch.
#[test]
fn a_tile_does_not_see_its_neighbours() {
    for kind in KINDS {
        let config = settings(kind);
        let (model, theta) = model(&config);
        let mut networks = Networks::new(&model, &theta).unwrap();
        let len = model.image_len();
        let tiles = picture(config.size, config.size * 16, config.image_channels, 9);
        let top = config.layers() - 1;
        let mut numbers = |tiles: &[u8], size: usize| -> Vec<Vec<f32>> {
            let ladders = networks.ladders(size, tiles).unwrap();
            let codes: Vec<u32> = (0..size * networks.positions(top))
                .map(|i| (i % networks.positions(top)) as u32 % 4)
                .collect();
            let mut out = ladders.clone();
            let features = match top {
                0 => Vec::new(),
                _ => networks.prior(size, top - 1, &[], &codes).unwrap().features,
            };
            if top > 0 {
                let below = networks.posterior(size, top - 1, &features, &ladders[top - 1]);
                out.push(below.unwrap());
            } else {
                out.push(networks.pixels(size, &[], &codes).unwrap());
            }
            out.push(features);
            out
        };
        let all = numbers(&tiles, 16);
        let one = numbers(&tiles[5 * len..6 * len], 1);
        let two = numbers(&tiles[4 * len..6 * len], 2);
        for ((all, one), two) in all.iter().zip(&one).zip(&two) {
            let each = one.len();
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&all[5 * each..6 * each]), bits(one));
            assert_eq!(bits(&two[each..]), bits(one));
        }
    }
}

/// A chunk costs what the ELBO says, and the first tile's bits are all that comes on top.
#[test]
fn the_price_is_the_elbo() {
    for likelihood in ["mixture", "mixture-causal"] {
        price_of(&format!("model.likelihood={likelihood}"));
    }
}

fn price_of(likelihood: &str) {
    let config = settings(&[likelihood, "model.mixtures=3"]);
    let (model, theta) = model(&config);
    let identity = Identity::of(&model, &theta, None).unwrap();
    let workers = Workers::new(&model, &theta).unwrap();
    let (side, count) = (config.size, 160);
    let whole = picture(side, side * count, 3, 4);
    let images: Vec<Image> = whole
        .chunks_exact(model.image_len())
        .map(|colour| Image {
            colour: colour.to_vec(),
            profile: Vec::new(),
            ..image("x", side, side, 3, false)
        })
        .enumerate()
        .map(|(number, image)| Image {
            name: number.to_string().into(),
            ..image
        })
        .collect();
    let mut store = Store::with("theta", theta);
    let mut scorer = Scorer::new(&Device::Cpu, &model, count).unwrap();
    let scores = scorer.run(&mut store, &whole, &counter(1, 1)).unwrap();
    let likelihood: f32 = scores.log_likelihood.iter().sum();
    let kl: f32 = scores.kl.iter().flatten().sum();
    let elbo_bits = (kl - likelihood) as f64 / std::f64::consts::LN_2;
    // With the model alone: prediction would take some of them.
    let tiles: Vec<_> = images
        .iter()
        .map(|i| {
            rrvq_codec::tiles::Tiling {
                width: side,
                height: side,
                channels: 3,
                side,
            }
            .cut(&i.colour, 0, 3)
        })
        .collect();
    let mut networks = Networks::new(&model, store.get("theta")).unwrap();
    let written = rrvq_codec::chunk::write(&mut networks, &tiles).unwrap();
    assert!(written.back[1..].iter().all(|back| *back) && !written.back[0]);
    let bytes: usize = written.stacks.iter().map(|stack| stack.len()).sum();
    let bits = bytes as f64 * 8.0;
    let over = bits / elbo_bits - 1.0;
    assert!(over.abs() < 0.01, "{bits} against {elbo_bits}: {over}");
    // Every stack begins with 32 bits.
    let told = written.costs.iter().sum::<i64>() as f64 / 65536.0;
    let told = told + 32.0 * written.stacks.len() as f64;
    assert!((told / bits - 1.0).abs() < 0.002, "{told} against {bits}");
    // Two chunks through the whole writer are not far from it either.
    let mut codec = (workers, identity);
    let summary = come_back(&mut codec, &images);
    assert!((summary.tile_bytes as f64) * 8.0 < elbo_bits * 1.02);
}

fn example() -> ((Workers, Identity), Vec<Image>, Vec<u8>) {
    let (plain, identity) = workers(&settings(&["model.likelihood=mixture", "model.mixtures=2"]));
    let mut codec = (plain.with_neighbours(Some(some_neighbours(3))), identity);
    let images = vec![
        image("first", 30, 20, 3, true),
        image("second", 12, 20, 1, false),
        image("third", 3, 3, 3, false),
    ];
    let file = write(&mut codec, &images).0;
    (codec, images, file)
}

/// Whatever is done to a file, reading it ends, without a panic, in the images or in a sentence.
#[test]
fn mutated_files_end_in_a_sentence() {
    let (mut codec, images, file) = example();
    let mut number = numbers(17);
    for round in 0..mutations() {
        let mut bent = bent(&file, &mut number);
        // Half of the time the checksums are made to fit, so that what lies behind them is tried as well.
        if round % 2 == 0 {
            mend(&mut bent);
        }
        let _ = check(&mut &bent[..]);
        let (found, end) = read(Some(&mut codec.0), &bent);
        let same = found.len() == images.len()
            && found.iter().zip(&images).all(|(f, i)| f.as_ref() == Ok(i));
        if round % 2 == 1 && bent != file {
            assert!(!same || end.is_err(), "a change went unnoticed");
        }
        let sentences = found.iter().filter_map(|f| f.as_ref().err());
        sentences
            .chain(end.as_ref().err())
            .for_each(|said: &Error| assert!(!said.to_string().is_empty()));
    }
}

/// Makes the checksums of the blocks fit, as far as they can be followed.
fn mend(file: &mut [u8]) {
    let mut at = 8;
    while at + 9 <= file.len() {
        let len = u32::from_le_bytes(file[at + 1..at + 5].try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(5 + len).filter(|end| end + 4 <= file.len()) else {
            return;
        };
        let mut crc = flate2::Crc::new();
        crc.update(&file[at..end]);
        file[end..end + 4].copy_from_slice(&crc.sum().to_le_bytes());
        at = end + 4;
    }
}

#[test]
fn every_cut_off_file_is_noticed_and_whole_images_stay() {
    let (mut codec, images, file) = example();
    for len in (0..file.len()).step_by(37).chain([file.len() - 1]) {
        assert!(check(&mut &file[..len]).is_err());
        let (found, end) = read(Some(&mut codec.0), &file[..len]);
        assert!(end.is_err());
        let whole = found.iter().zip(&images);
        whole.for_each(|(f, i)| assert!(f.is_err() || f.as_ref() == Ok(i)));
    }
    assert!(check(&mut &file[..]).is_ok());
}

/// A bit flipped anywhere in a file of 200 images costs a chain and its pool at most, and nothing that comes back is wrong.
#[test]
fn one_flipped_bit_costs_one_chain() {
    let (mut codec, ..) = example();
    let images: Vec<Image> = (0..200)
        .map(|i| Image {
            profile: Vec::new(),
            colour: picture(8, 8, 3, i),
            ..image(&i.to_string(), 8, 8, 3, false)
        })
        .collect();
    let (file, _) = write(&mut codec, &images);
    let mut flip = |bit: usize| {
        let mut bent = file.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&mut &bent[..]).is_err(), "{bit}");
        let (mut input, mut again) = (&bent[..], &bent[..]);
        let mut reader = Reader::new(&mut input).or_else(|_| Reader::rescue(&mut again));
        let reader = reader.as_mut().unwrap();
        let mut found = Vec::new();
        let end = loop {
            match reader.segment(Some(&mut codec.0), &|_| {}) {
                Ok(Some(outcomes)) => found.extend(outcomes),
                Ok(None) => break Ok(()),
                Err(said) => break Err(said),
            }
        };
        assert!(
            end.is_err() || found.iter().any(|o| o.image.is_err()),
            "{bit} went unnoticed"
        );
        let same = |image: &&Image| {
            let mut had = found.iter().filter_map(|o| o.image.as_ref().ok());
            had.any(|found| found == *image)
        };
        let had = found.iter().filter(|outcome| outcome.image.is_ok()).count();
        assert_eq!(
            had,
            images.iter().filter(same).count(),
            "{bit}: something else came back"
        );
        images.len() - had
    };
    let beginnings = (0..59 * 8).step_by(29);
    let all = (0..8 * file.len()).step_by(8 * file.len() / 120);
    let ends = (8 * file.len() - 60 * 8..8 * file.len()).step_by(41);
    let lost: Vec<usize> = beginnings.chain(all).chain(ends).map(&mut flip).collect();
    let most = lost.iter().max();
    assert!(most.is_some_and(|most| (1..=16).contains(most)), "{lost:?}");
}

/// Damage to one segment leaves the images of the others.
#[test]
fn damage_stays_where_it_is() {
    let (mut codec, ..) = example();
    // Large enough for two segments: more than 4096 tiles of 8×8.
    let images = [
        image("large", 520, 512, 3, false),
        image("after", 40, 40, 3, true),
    ];
    let (mut file, _) = write(&mut codec, &images);
    let middle = file.len() / 2;
    file[middle] ^= 1;
    assert!(check(&mut &file[..]).is_err());
    let (found, end) = read(Some(&mut codec.0), &file);
    assert!(end.is_ok() && found.len() == 2);
    assert!(found[0].is_err());
    assert_eq!(found[1].as_ref(), Ok(&images[1]));
    let said = read(None, &file).1.unwrap_err().to_string();
    assert!(said.contains("need the model"), "{said}");
}
