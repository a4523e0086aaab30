//! Snappy, unpacked: the compression that parquet files have unless somebody chose another.
//!
//! The length of what comes out stands first; then come pieces: bytes as they are, or a copy of bytes that came out
//! before, so far back and so many.

use super::thrift::varint;

/// What was packed, if it is `len` bytes long; otherwise the byte that does not fit.
pub(super) fn unpack(packed: &[u8], len: usize) -> Result<Vec<u8>, usize> {
    let mut at = 0;
    if varint(packed, &mut at)? != len as u64 {
        return Err(0);
    }
    let mut out = Vec::new();
    // A piece of three bytes makes at most 64: a length beyond that is no length.
    if len / 64 > packed.len() || out.try_reserve_exact(len).is_err() {
        return Err(0);
    }
    while at < packed.len() {
        let start = at;
        let tag = packed[at];
        at += 1;
        let mut number = |bytes: usize| -> Result<usize, usize> {
            let taken = packed.get(at..at + bytes).ok_or(start)?;
            at += bytes;
            Ok(taken.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
        };
        let (count, back) = match tag & 3 {
            0 => {
                // Up to 60 in the tag; beyond, in so many bytes behind it.
                let count = 1 + match tag >> 2 {
                    count @ 0..60 => usize::from(count),
                    more => number(usize::from(more) - 59)?,
                };
                let literal = packed.get(at..).and_then(|rest| rest.get(..count));
                out.extend(literal.ok_or(start)?);
                at += count;
                continue;
            }
            1 => {
                let count = 4 + usize::from(tag >> 2 & 7);
                (count, usize::from(tag >> 5) << 8 | number(1)?)
            }
            2 => (1 + usize::from(tag >> 2), number(2)?),
            _ => (1 + usize::from(tag >> 2), number(4)?),
        };
        if back == 0 || back > out.len() || out.len() + count > len {
            return Err(start);
        }
        // A copy may reach into itself: that is how a run is written.
        for _ in 0..count {
            out.push(out[out.len() - back]);
        }
    }
    match out.len() == len {
        true => Ok(out),
        false => Err(packed.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::unpack;

    #[test]
    fn literals_and_copies_come_out() {
        // "ab", a run of it to ten letters, a literal with its length behind the tag, a copy from far back.
        let packed = [
            &[17, 1 << 2, b'a', b'b', 1 | 4 << 2, 2, 60 << 2, 4][..],
            b"cdefg",
            &[2 | 1 << 2, 15, 0],
        ]
        .concat();
        let said = unpack(&packed, 17).map(|out| String::from_utf8(out).unwrap());
        assert_eq!(said.unwrap(), "ababababab\u{63}defgab");
        assert_eq!(unpack(&[0], 0), Ok(vec![]));
    }

    #[test]
    fn damage_is_told_with_its_byte() {
        let packed = [4, 1 << 2, b'a', b'b', 2 | 1 << 2, 2, 0];
        assert_eq!(unpack(&packed, 4).unwrap(), b"abab");
        assert_eq!(unpack(&packed, 5), Err(0), "another length");
        assert_eq!(unpack(&packed[..3], 4), Err(1), "cut in a literal");
        assert_eq!(unpack(&packed[..6], 4), Err(4), "cut in a copy");
        assert_eq!(unpack(&packed[..4], 4), Err(4), "too short");
        let mut far = packed;
        far[5] = 3;
        assert_eq!(unpack(&far, 4), Err(4), "from before the start");
        let mut long = packed;
        long[4] = 2 | 2 << 2;
        assert_eq!(unpack(&long, 4), Err(4), "beyond the end");
        assert_eq!(unpack(&[0xff; 12], 1 << 40), Err(10));
        assert_eq!(
            unpack(&[0x80, 0x80, 0x80, 0x80, 0x40, 0], 1 << 34),
            Err(0),
            "no such length"
        );
    }
}
