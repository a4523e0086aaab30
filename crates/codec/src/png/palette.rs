//! Coloured pixels as numbers of at most 256 colours.

use std::collections::HashMap;

/// Colours of a palette, and their transparency.
pub type Entries = (Vec<u8>, Option<Vec<u8>>);

/// Colours in the order they are met in.
#[derive(Default)]
pub struct Palette {
    numbers: HashMap<[u8; 4], u8>,
    found: Vec<[u8; 4]>,
}

impl Palette {
    /// The numbers of pixels, colours that are new among them; none once there are too many colours.
    pub fn learn(&mut self, colour: &[u8], alpha: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut indices = Vec::with_capacity(colour.len() / 3);
        for (at, colour) in colour.chunks_exact(3).enumerate() {
            let alpha = alpha.map_or(255, |alpha| alpha[at]);
            let pixel = [colour[0], colour[1], colour[2], alpha];
            let number = *self.numbers.entry(pixel).or_insert_with(|| {
                self.found.push(pixel);
                (self.found.len() - 1) as u8
            });
            if self.found.len() > 256 {
                return None;
            }
            indices.push(number);
        }
        Some(indices)
    }

    /// Bits of a number.
    pub fn depth(&self) -> usize {
        match self.found.len() {
            0..=2 => 1,
            3..=4 => 2,
            5..=16 => 4,
            _ => 8,
        }
    }

    pub fn row_bytes(&self, width: usize) -> usize {
        (width * self.depth()).div_ceil(8)
    }

    /// Rows of numbers in as few bits as they need.
    pub fn pack(&self, width: usize, indices: &[u8]) -> Vec<u8> {
        let depth = self.depth();
        let mut rows = Vec::with_capacity(indices.len() / width * self.row_bytes(width));
        for row in indices.chunks_exact(width) {
            for byte in row.chunks(8 / depth) {
                let shifts = (0..8).step_by(depth).rev();
                let numbers = byte.iter().zip(shifts);
                rows.push(numbers.fold(0, |all, (index, shift)| all | index << shift));
            }
        }
        rows
    }

    /// What a file says of the colours.
    pub fn entries(&self, alpha: bool) -> Entries {
        let colours = self.found.iter().flat_map(|colour| &colour[..3]).copied();
        let transparency = || self.found.iter().map(|colour| colour[3]).collect();
        (colours.collect(), alpha.then(transparency))
    }
}
