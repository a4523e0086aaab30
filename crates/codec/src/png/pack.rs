//! DEFLATE with a say in which matches are taken: of filtered samples short ones are not worth their bits.

use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output,
    create_comp_flags_from_zip_params,
};

/// Which matches are taken.
#[derive(Clone, Copy)]
pub enum Matches {
    All,
    /// None of five bytes or fewer.
    Long,
    /// Runs of one byte.
    Runs,
}

impl Matches {
    pub const KINDS: [Matches; 3] = [Matches::All, Matches::Long, Matches::Runs];
}

pub const FAST: i32 = 1;
pub const BEST: i32 = 9;

/// Packs bytes as they come, as zlib does.
pub struct Packer(Box<CompressorOxide>);

impl Packer {
    pub fn new(level: i32, matches: Matches) -> Packer {
        let strategy = match matches {
            Matches::All => CompressionStrategy::Default,
            Matches::Long => CompressionStrategy::Filtered,
            Matches::Runs => CompressionStrategy::RLE,
        };
        // A window of 2¹⁵ bytes, and zlib's header.
        let flags = create_comp_flags_from_zip_params(level, 15, strategy as i32);
        Packer(Box::new(CompressorOxide::new(flags)))
    }

    /// Takes more; what is packed of it goes to `out`.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.run(bytes, TDEFLFlush::None, out);
    }

    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.run(&[], TDEFLFlush::Finish, out);
    }

    fn run(&mut self, mut bytes: &[u8], flush: TDEFLFlush, out: &mut Vec<u8>) {
        loop {
            let (status, used) = compress_to_output(&mut self.0, bytes, flush, |packed| {
                out.extend_from_slice(packed);
                true
            });
            bytes = &bytes[used..];
            if bytes.is_empty() || status != TDEFLStatus::Okay {
                break;
            }
        }
    }
}

/// All of it at once.
pub fn zlib(bytes: &[u8], level: i32, matches: Matches) -> Vec<u8> {
    let (mut packer, mut out) = (Packer::new(level, matches), Vec::new());
    packer.take(bytes, &mut out);
    packer.finish(&mut out);
    out
}
