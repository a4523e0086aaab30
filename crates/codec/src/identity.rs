//! Which model a file was written with: a hash of the settings that change what it computes, and of its weights.
//!
//! Settings that only matter to training are left out, and parameters are taken by name, so that the identity of a model
//! outlives new settings and a new order of drawing. SHA-256 is written out here: a page of code instead of a tree of
//! packages.

use super::neighbours::Neighbours;
use rrvq::config::{Backbone, BlockScale};
use rrvq::error::{Error, Result};
use rrvq::programs::Model;
use serde::Serialize;
use std::fmt;

/// The identity of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 32]);

impl fmt::Display for Identity {
    /// The first digits, as people compare them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Settings of a model that its numbers depend on. A newer one is added below the loop over these, and only where it does
/// not have its default, so that older models keep their identity.
const SETTINGS: [&str; 18] = [
    "maps",
    "repeat",
    "size",
    "image_channels",
    "channels",
    "latent",
    "embed",
    "codes",
    "blocks",
    "ladder_blocks",
    "top",
    "prior",
    "sigma",
    "likelihood",
    "mixtures",
    "mixture_log_scale",
    "grow",
    "border",
];

impl Identity {
    /// `theta` are the model's parameters, in the order of its layout.
    pub fn of(model: &Model, theta: &[f32], neighbours: Option<&Neighbours>) -> Result<Identity> {
        let settings = settings(&model.config)?;
        let mut hash = Sha256::default();
        for key in SETTINGS {
            if let Some(value) = settings.get(key) {
                hash.add(format!("{key}={value}\n").as_bytes());
            }
        }
        if model.config.backbone != Backbone::Convolution {
            hash.add(format!("backbone={}\n", settings["backbone"]).as_bytes());
        }
        if model.config.block_scale != BlockScale::Constant(0.1) {
            hash.add(format!("block_scale={}\n", settings["block_scale"]).as_bytes());
        }
        let mut entries: Vec<_> = model.layout.entries().iter().collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            hash.add(format!("{} {:?}\n", entry.name, entry.shape).as_bytes());
            for value in &theta[entry.offset..entry.offset + entry.len()] {
                hash.add(&value.to_le_bytes());
            }
        }
        for (name, shape, values) in neighbours.iter().flat_map(|n| n.tensors()) {
            hash.add(format!("{name} {shape:?}\n").as_bytes());
            values.iter().for_each(|v| hash.add(&v.to_le_bytes()));
        }
        Ok(Identity(hash.finish()))
    }
}

fn settings(config: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(config)
        .map_err(|e| Error::new(format!("cannot read the model's settings: {e}")))
}

/// SHA-256, fed piece by piece.
struct Sha256 {
    state: [u32; 8],
    block: [u8; 64],
    /// Bytes fed so far.
    len: u64,
}

impl Default for Sha256 {
    fn default() -> Self {
        // The first 32 fraction bits of the square roots of the first eight primes.
        Sha256 {
            state: [
                0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                0x5be0cd19,
            ],
            block: [0; 64],
            len: 0,
        }
    }
}

/// The first 32 fraction bits of the cube roots of the first 64 primes, found by search: x³ ≤ p · 2⁹⁶ < (x + 1)³.
const ROUNDS: [u32; 64] = {
    let mut out = [0; 64];
    let (mut found, mut p) = (0, 2u128);
    while found < 64 {
        let mut divisor = 2;
        while divisor * divisor <= p && p % divisor != 0 {
            divisor += 1;
        }
        if divisor * divisor > p {
            let (mut low, mut high) = (0u128, 1 << 36);
            while high - low > 1 {
                let x = (low + high) / 2;
                if x * x * x <= p << 96 {
                    low = x;
                } else {
                    high = x;
                }
            }
            out[found] = low as u32;
            found += 1;
        }
        p += 1;
    }
    out
};

impl Sha256 {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.block[(self.len % 64) as usize] = byte;
            self.len += 1;
            if self.len.is_multiple_of(64) {
                self.mix();
            }
        }
    }

    fn finish(mut self) -> [u8; 32] {
        let bits = self.len * 8;
        self.add(&[0x80]);
        while self.len % 64 != 56 {
            self.add(&[0]);
        }
        self.add(&bits.to_be_bytes());
        let mut out = [0; 32];
        for (bytes, word) in out.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    fn mix(&mut self) {
        let mut w = [0u32; 64];
        for (word, bytes) in w.iter_mut().zip(self.block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for i in 16..64 {
            let (a, b) = (w[i - 15], w[i - 2]);
            let a = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let b = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w[i] = w[i - 16]
                .wrapping_add(a)
                .wrapping_add(w[i - 7])
                .wrapping_add(b);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = self.state;
        for i in 0..64 {
            let big = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & f) ^ (!e & g);
            let first = h
                .wrapping_add(big)
                .wrapping_add(choice)
                .wrapping_add(ROUNDS[i])
                .wrapping_add(w[i]);
            let big = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            let second = big.wrapping_add(majority);
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(second));
        }
        for (state, word) in self.state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *state = state.wrapping_add(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::config::Config;

    fn hex(bytes: &[u8]) -> String {
        let mut hash = Sha256::default();
        hash.add(bytes);
        hash.finish().iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn known_answers() {
        assert_eq!(
            hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
    }

    #[test]
    fn settings_and_weights_both_count_and_training_does_not() {
        let config = Config::preset("tiny-swatches").unwrap().model;
        let of = |config: &rrvq::config::ModelConfig, change: f32| {
            let model = Model::new(config);
            let mut theta = model.layout.initial(1);
            theta[3] += change;
            Identity::of(&model, &theta, None).unwrap()
        };
        let first = of(&config, 0.0);
        assert_eq!(of(&config, 0.0), first);
        assert_ne!(of(&config, 0.5), first);
        let mut other = config.clone();
        other.free_bits += 1.0;
        assert_eq!(of(&other, 0.0), first);
        other.border = rrvq::config::Border::Edge;
        assert_ne!(of(&other, 0.0), first);
        let scaled = rrvq::config::ModelConfig {
            block_scale: BlockScale::Constant(0.2),
            ..config.clone()
        };
        assert_ne!(of(&scaled, 0.0), first);
    }
}
