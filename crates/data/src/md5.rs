//! MD5: the sum that data sets are handed out with.
//!
//! It no longer protects against malice, but the published sums of the old data sets are MD5s, and against a download
//! that broke off or a disk that forgot a bit it is as good as ever.

use rrvq::error::{Error, Result};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The sum of some bytes; shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Md5([u8; 16]);

const BLOCK: usize = 64;

/// How far each step of a round turns its result; every round repeats its four numbers.
const TURNS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The whole parts of 2³² · |sin(i)|, i from 1 to 64: numbers in which nobody can have hidden anything.
const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
];

impl Md5 {
    /// The sum of `bytes`.
    pub fn of(bytes: &[u8]) -> Md5 {
        let mut sum = Summing::new();
        sum.add(bytes);
        sum.finish()
    }

    /// The sum as bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The sum of a file, read piece by piece.
    pub fn of_file(path: &Path) -> Result<Md5> {
        let failed = |error| Error::io("read", path, error);
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let (mut sum, mut piece) = (Summing::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut piece).map_err(failed)? {
                0 => return Ok(sum.finish()),
                count => sum.add(&piece[..count]),
            }
        }
    }
}

/// A sum that is not at its end.
pub struct Summing {
    state: [u32; 4],
    /// What came in since the last whole block, and all that came in.
    rest: Vec<u8>,
    len: u64,
}

impl Default for Summing {
    fn default() -> Summing {
        Summing {
            state: [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476],
            rest: Vec::with_capacity(BLOCK),
            len: 0,
        }
    }
}

impl Summing {
    pub fn new() -> Summing {
        Summing::default()
    }

    pub fn add(&mut self, mut bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if !self.rest.is_empty() {
            let (first, others) = bytes.split_at(bytes.len().min(BLOCK - self.rest.len()));
            self.rest.extend(first);
            bytes = others;
            if self.rest.len() < BLOCK {
                return;
            }
            let block = std::mem::take(&mut self.rest);
            self.block(&block);
        }
        let whole = bytes.chunks_exact(BLOCK);
        self.rest.extend(whole.remainder());
        whole.for_each(|block| self.block(block));
    }

    pub fn finish(mut self) -> Md5 {
        let bits = self.len.wrapping_mul(8);
        // A one, zeros up to eight bytes before the end of a block, then the length.
        let zeros = (2 * BLOCK - 9 - self.rest.len()) % BLOCK;
        self.add(&[0x80]);
        self.add(&[0; BLOCK][..zeros]);
        self.add(&bits.to_le_bytes());
        let mut sum = [0; 16];
        for (word, out) in self.state.iter().zip(sum.chunks_exact_mut(4)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        Md5(sum)
    }

    fn block(&mut self, block: &[u8]) {
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = self.state;
        for step in 0..64 {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), 7 * step % 16),
            };
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(SINES[step])
                .wrapping_add(words[word]);
            let turned = sum.rotate_left(TURNS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (state, more) in self.state.iter_mut().zip([a, b, c, d]) {
            *state = state.wrapping_add(more);
        }
    }
}

impl fmt::Display for Md5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Md5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_the_published_ones() {
        // The examples of RFC 1321.
        for (text, sum) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "abcdefghijklmnopqrstuvwxyz",
                "c3fcd3d76192e4007dfb496cca67e13b",
            ),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(Md5::of(text.as_bytes()).to_string(), sum, "{text:?}");
        }
    }

    #[test]
    fn pieces_of_any_length_give_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 31) as u8).collect();
        let whole = Md5::of(&bytes);
        for piece in [1, 7, 55, 56, 63, 64, 65, 129] {
            let mut sum = Summing::new();
            bytes.chunks(piece).for_each(|part| sum.add(part));
            assert_eq!(sum.finish(), whole, "pieces of {piece}");
        }
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("file"), &bytes).unwrap();
        assert_eq!(Md5::of_file(&scratch.path().join("file")).unwrap(), whole);
        assert!(Md5::of_file(&scratch.path().join("none")).is_err());
    }
}
