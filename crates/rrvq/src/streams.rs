//! Every stream of the random generator that this project draws from.
//!
//! Noise is a function of (seed, stream, step, element). Two uses of one stream at one step would be the same noise, and
//! a stream that changes its number changes every run and every golden file: this list is a contract of bit-exactness.
//!
//! | stream | what | step |
//! |---|---|---|
//! | 0, 1, … | samples of layer ℓ, counted from 0 at the bottom; the PixelCNN's samples use 0 | of training, or the batch |
//! | 2¹⁶ + ℓ | noise that moves the bits of layer ℓ ([`bit_noise`]) | of training |
//! | 0x7000_0000 + 2 ℓ, and the next | where codes of layer ℓ start, and start again ([`code_start`]) | of training |
//! | 0x7100_0000 + ℓ | how far apart the halves of a split code of layer ℓ begin ([`code_split`]) | of training |
//! | 0xffff_0001 | order of the training images ([`SHUFFLE`]) | epoch |
//! | 0xffff_0002 | which training images are mirrored ([`MIRROR`]) | of training |
//! | 0xffff_0003 | where random crops lie ([`CROP`]), by the image's name | |
//! | 0xffff_0004, 0xffff_0005 | pixels that are drawn: which component ([`COMPONENT`]), and where in it ([`PIXEL`]) | the batch |
//! | hash of a parameter's name | its first values (`rrvq_tensor::params`) | 2⁶⁴ − 1 |

/// The noise that moves the bits of the layer whose samples are drawn from `stream`.
pub fn bit_noise(stream: u32) -> u32 {
    (1 << 16) + stream
}

/// Where the codes of a layer start; the stream after it is used too.
pub fn code_start(layer: usize) -> u32 {
    0x7000_0000 + 2 * layer as u32
}

/// How far apart the two halves of a split code of a layer begin.
pub fn code_split(layer: usize) -> u32 {
    0x7100_0000 + layer as u32
}

/// The order of the training images of an epoch.
pub const SHUFFLE: u32 = 0xffff_0001;

/// Which training images are mirrored.
pub const MIRROR: u32 = 0xffff_0002;

/// Where random crops lie.
pub const CROP: u32 = 0xffff_0003;

/// Which component of its mixture a drawn pixel is of.
pub const COMPONENT: u32 = 0xffff_0004;

/// Where in its component a drawn pixel lies.
pub const PIXEL: u32 = 0xffff_0005;
