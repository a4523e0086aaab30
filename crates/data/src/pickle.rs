//! Just enough of Python's pickle format to find one long string in a file.
//!
//! A pickle is a list of instructions for a small machine, and image batches in that form hold all their pixels in
//! one string. Walking over the instructions without obeying any finds it, and runs nothing that a file asks for.

/// The first byte string of exactly `len` bytes, or what is wrong and at which byte.
pub(super) fn long_string(bytes: &[u8], len: usize) -> Result<&[u8], String> {
    let mut at = 0;
    loop {
        let instruction = *take(bytes, &mut at, 1)?
            .first()
            .expect("one byte was taken");
        let string = match instruction {
            // Strings behind a length of one, four or eight bytes.
            b'U' | b'C' | 0x8a | 0x8c => Some(1),
            b'T' | b'B' | b'X' => Some(4),
            0x8d | 0x8e | 0x96 => Some(8),
            _ => None,
        };
        if let Some(width) = string {
            let mut little = [0; 8];
            little[..width].copy_from_slice(take(bytes, &mut at, width)?);
            let found = usize::try_from(u64::from_le_bytes(little)).unwrap_or(usize::MAX);
            let content = take(bytes, &mut at, found)?;
            if found == len {
                return Ok(content);
            }
            continue;
        }
        match instruction {
            // Two lines of text: the name of a class.
            b'c' => (0..2).try_for_each(|_| {
                let line = bytes[at..].iter().position(|b| *b == b'\n');
                let line = line.ok_or_else(|| ends(bytes))?;
                take(bytes, &mut at, line + 1).map(|_| ())
            })?,
            // A number, or a place in the memory of the machine.
            0x80 | b'K' | b'q' | b'h' => take(bytes, &mut at, 1).map(|_| ())?,
            b'M' => take(bytes, &mut at, 2).map(|_| ())?,
            b'J' | b'r' | b'j' => take(bytes, &mut at, 4).map(|_| ())?,
            b'G' | 0x95 => take(bytes, &mut at, 8).map(|_| ())?,
            b'.' => {
                return Err(format!(
                    "it ends at byte {at} without a string of {len} bytes"
                ));
            }
            // Lists, tuples, dictionaries, nothing, true and false, objects from classes.
            b'('
            | b')'
            | b']'
            | b'}'
            | b'a'
            | b'b'
            | b'd'
            | b'e'
            | b'l'
            | b'N'
            | b'R'
            | b's'
            | b't'
            | b'u'
            | b'0'
            | b'1'
            | b'2'
            | 0x81
            | 0x85..=0x89
            | 0x93
            | 0x94 => {}
            other => {
                let at = at - 1;
                return Err(format!(
                    "byte {at} is {other}, which is no instruction that such a file has"
                ));
            }
        }
    }
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8], String> {
    let end = at.checked_add(count).filter(|end| *end <= bytes.len());
    let end = end.ok_or_else(|| ends(bytes))?;
    let taken = &bytes[*at..end];
    *at = end;
    Ok(taken)
}

fn ends(bytes: &[u8]) -> String {
    format!("it ends at byte {}, in the middle", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::long_string;

    #[test]
    fn strings_of_every_kind_are_found() {
        let cases: [&[u8]; 5] = [
            b"\x80\x02U\x03abc.",
            b"\x80\x02T\x03\x00\x00\x00abc.",
            b"\x80\x04C\x03abc.",
            b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00B\x03\x00\x00\x00abc\x94.",
            b"\x80\x05\x8e\x03\x00\x00\x00\x00\x00\x00\x00abc.",
        ];
        for bytes in cases {
            assert_eq!(long_string(bytes, 3).unwrap(), b"abc");
            assert!(
                long_string(bytes, 4)
                    .unwrap_err()
                    .contains("without a string of 4 bytes")
            );
        }
    }

    #[test]
    fn a_length_beyond_the_file_is_no_panic() {
        for bytes in [
            &b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffx"[..],
            b"T\xff\xff\xff\xffx",
            b"cnumpy",
            b"",
        ] {
            let said = long_string(bytes, 3).unwrap_err();
            assert!(
                said.contains(&format!("ends at byte {}", bytes.len())),
                "{said}"
            );
        }
    }
}
