//! The headers of a column's pages, checked before the crate `parquet` unpacks them.
//!
//! That crate makes room for as many bytes and values as a header claims. Here no page may unpack to more than its
//! compression can, all together not to more than the memory that may be used, and every value of a dictionary takes
//! bytes of it.

use super::super::mapped::Shared;
use super::thrift::{I32, Result, STRUCT, Walk};
use parquet::basic::Compression;
use rrvq::limits::{Limits, unpacks_to_more};

/// Bytes of a header that are read at first; statistics make some longer.
const FIRST: u64 = 512;
/// Bytes that a value of a dictionary takes: a number, or the length of a string.
const LEAST_OF_VALUE: u64 = 4;

/// Numbers of fields: of a header, and of a dictionary's.
const UNPACKED: i64 = 2;
const PACKED: i64 = 3;
const DICTIONARY: i64 = 7;
const VALUES: i64 = 1;

/// What a header says of its page.
#[derive(Debug, Default, PartialEq)]
struct Header {
    /// Bytes of the header itself.
    len: u64,
    unpacked: u64,
    packed: u64,
    /// Values of a dictionary.
    values: u64,
}

/// Refuses a column, `len` bytes from `start` on, whose pages cannot be what their headers claim.
pub(super) fn check(source: &Shared, [start, len]: [u64; 2], packing: Compression) -> Result<()> {
    let (mut at, end, mut sum) = (start, start.saturating_add(len), 0u64);
    while at < end {
        let header = header_at(source, at, end)?;
        let Header {
            unpacked, packed, ..
        } = header;
        if unpacked > most(packing, packed) || header.values > unpacked / LEAST_OF_VALUE {
            return Err(format!(
                "the page at byte {at} claims {unpacked} bytes and {} values of a dictionary in {packed} bytes",
                header.values
            ));
        }
        sum = sum.saturating_add(unpacked);
        if sum > Limits::current().memory as u64 {
            return Err(unpacks_to_more());
        }
        at = at.saturating_add(header.len).saturating_add(packed);
    }
    Ok(())
}

/// What so many bytes can unpack to at most: in snappy three bytes repeat 64, in gzip a bit gives 129 bytes and in zstd four
/// bytes 128 KiB.
fn most(packing: Compression, packed: u64) -> u64 {
    let ratio = match packing {
        Compression::UNCOMPRESSED => 1,
        Compression::SNAPPY => 22,
        Compression::GZIP(_) => 1_040,
        _ => 1 << 15,
    };
    packed.saturating_mul(ratio).saturating_add(64)
}

fn header_at(source: &Shared, at: u64, end: u64) -> Result<Header> {
    let mut window = FIRST.min(end - at);
    loop {
        let bytes = source
            .part(at, window as usize)
            .map_err(|error| error.to_string())?;
        match header(&bytes) {
            Err(_) if window < end - at => window = (8 * window).min(end - at),
            Err(problem) => {
                return Err(format!("the page at byte {at} is damaged: {problem}"));
            }
            Ok(header) => return Ok(header),
        }
    }
}

fn header(bytes: &[u8]) -> Result<Header> {
    let mut found = Header::default();
    let mut walk = Walk(bytes);
    walk.structure(0, &mut |walk, field, kind| {
        match (field, kind) {
            (UNPACKED, I32) => found.unpacked = size(walk)?,
            (PACKED, I32) => found.packed = size(walk)?,
            (DICTIONARY, STRUCT) => walk.structure(1, &mut |walk, field, kind| {
                if (field, kind) != (VALUES, I32) {
                    return Ok(false);
                }
                found.values = size(walk)?;
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    found.len = (bytes.len() - walk.0.len()) as u64;
    Ok(found)
}

fn size(walk: &mut Walk<'_>) -> Result<u64> {
    let number = walk.signed()?;
    u64::try_from(number).map_err(|_| format!("it has a size of {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dictionary of three values: 24 bytes, packed into 22.
    const PAGE: [u8; 13] = [
        0x15, 0x04, 0x15, 0x30, 0x15, 0x2c, 0x4c, 0x15, 0x06, 0x15, 0x00, 0x12, 0x00,
    ];

    #[test]
    fn sizes_and_values_are_read() {
        let bytes = [&PAGE[..], &[0, 9, 9]].concat();
        let wanted = Header {
            len: 14,
            unpacked: 24,
            packed: 22,
            values: 3,
        };
        assert_eq!(header(&bytes).unwrap(), wanted);
        assert!(header(&PAGE).is_err(), "its end is missing");
        // 0x2f is −24.
        let below = [0x15, 0x04, 0x15, 0x2f, 0x00];
        assert!(header(&below).unwrap_err().contains("-24"));
    }

    #[test]
    fn a_page_cannot_unpack_to_more_than_its_compression_can() {
        assert!(most(Compression::UNCOMPRESSED, 100) < 200);
        assert!(most(Compression::SNAPPY, 100) < 2_300);
        assert_eq!(
            most(Compression::ZSTD(Default::default()), u64::MAX),
            u64::MAX
        );
    }
}
