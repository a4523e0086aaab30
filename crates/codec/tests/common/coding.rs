//! What the tests of the codec share: tiny models, and pictures to code with them.
#![allow(dead_code)] // every test program uses a part

use rrvq::config::{Config, ModelConfig};
use rrvq::device::Device;
use rrvq::programs::Model;
use rrvq_codec::{Identity, Image, Workers};

/// Settings of a model that is small enough to draw and run in no time.
pub fn settings(changes: &[&str]) -> ModelConfig {
    let mut config = Config::preset("tiny-swatches").unwrap();
    for change in changes {
        config.set(change).unwrap();
    }
    config.validate().unwrap();
    config.model
}

/// Numbers that look random, the same every time.
pub fn numbers(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    }
}

/// How many files to bend: a few, or as many as asked for.
pub fn mutations() -> usize {
    match std::env::var("RRVQ_MUTATIONS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => 2000,
    }
}

/// A file with one to three accidents: bits turned, bytes changed, lost, added or copied elsewhere, the end cut off.
pub fn bent(file: &[u8], number: &mut impl FnMut() -> u32) -> Vec<u8> {
    let mut bent = file.to_vec();
    let mut number = || number() as usize;
    for _ in 0..1 + number() % 3 {
        let at = number() % bent.len();
        match number() % 6 {
            0 => bent[at] ^= 1 << (number() % 8),
            1 => bent[at] = number() as u8,
            2 => bent.truncate(at.max(1)),
            3 => bent.insert(at, number() as u8),
            4 if bent.len() > 1 => drop(bent.remove(at)),
            4 => {}
            _ => {
                let from = number() % bent.len();
                let len = (number() % 64).min(bent.len() - from.max(at));
                bent.copy_within(from..from + len, at);
            }
        }
    }
    bent
}

/// A picture with slopes, edges and some noise, like a photograph's.
pub fn picture(width: usize, height: usize, channels: usize, seed: u32) -> Vec<u8> {
    let mut number = numbers(seed);
    let mut out = Vec::with_capacity(width * height * channels);
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                let edge = if (x / 9 + y / 7 + seed as usize).is_multiple_of(3) {
                    60
                } else {
                    0
                };
                out.push((x * 2 + y + c * 30 + edge + number() as usize % 12) as u8);
            }
        }
    }
    out
}

pub fn image(name: &str, width: usize, height: usize, channels: usize, alpha: bool) -> Image {
    Image {
        name: name.into(),
        width,
        height,
        colour: picture(width, height, channels, (width * 31 + height) as u32),
        alpha: alpha.then(|| picture(width, height, 1, 5)),
        profile: vec![3; width % 5],
        orientation: 1 + (height % 8) as u8,
        metadata: vec![(*b"tEXt", b"Title\0x".to_vec()); width % 2],
    }
}

/// A model with its first weights, set by a few pictures, and the codec around it.
pub fn model(config: &ModelConfig) -> (Model, Vec<f32>) {
    let model = Model::new(config);
    let images = picture(config.size, config.size * 16, config.image_channels, 1);
    let store = model.initial(&Device::Cpu, 3, &images).unwrap();
    let theta = store.get("theta").to_vec();
    (model, theta)
}

pub fn workers(config: &ModelConfig) -> (Workers, Identity) {
    let (model, theta) = model(config);
    let identity = Identity::of(&model, &theta, None).unwrap();
    (Workers::new(&model, &theta).unwrap(), identity)
}
