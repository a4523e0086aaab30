//! Just enough of Python's pickle format to find the strings and numbers in CIFAR-10's files.
//!
//! Hand-written, since a pickle is a program and the crates that read it build whatever objects it describes. Walking
//! over the instructions without obeying any finds what is needed, and runs nothing that a file asks for.

/// What an instruction puts on the stack.
enum Value<'a> {
    String(&'a [u8]),
    Number(u32),
    /// The end of a part of a list.
    Appended,
    Other,
}

/// The pixels and the labels of a batch.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub data: &'a [u8],
    /// As many as the file has.
    pub labels: Vec<u32>,
}

/// The first byte string of exactly `len` bytes and the list called `labels`, or what is wrong and at which byte.
pub(super) fn batch(bytes: &[u8], len: usize) -> Result<Batch<'_>, String> {
    let (mut at, mut data, mut labels, mut in_labels) = (0, None, Vec::new(), false);
    // What stands behind the pixels is of no use but for labels.
    while data.is_none() || labels.is_empty() {
        match next(bytes, &mut at) {
            Ok(Some(Value::String(string))) => {
                in_labels = string == b"labels";
                if string.len() == len && data.is_none() {
                    data = Some(string);
                }
            }
            Ok(Some(Value::Number(label))) if in_labels => labels.push(label),
            Ok(Some(_)) => {}
            Err(problem) if data.is_none() => return Err(problem),
            Ok(None) | Err(_) => break,
        }
    }
    // The list may go on behind the pixels; its numbers end where the next string begins.
    while in_labels {
        match next(bytes, &mut at) {
            Ok(Some(Value::Number(label))) => labels.push(label),
            Ok(Some(Value::Appended | Value::Other)) => {}
            _ => in_labels = false,
        }
    }
    match data {
        Some(data) => Ok(Batch { data, labels }),
        None => Err(format!(
            "it ends at byte {at} without a string of {len} bytes"
        )),
    }
}

/// The strings of the list called `key`; none where there is no such list.
pub(super) fn strings(bytes: &[u8], key: &str) -> Vec<String> {
    let (mut at, mut found, mut inside) = (0, Vec::new(), false);
    while let Ok(Some(value)) = next(bytes, &mut at) {
        match value {
            Value::String(string) if inside => {
                found.push(String::from_utf8_lossy(string).into_owned())
            }
            Value::String(string) => inside = string == key.as_bytes(),
            Value::Appended if inside => break,
            _ => {}
        }
    }
    found
}

/// The value of the next instruction; none behind the last.
fn next<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Option<Value<'a>>, String> {
    let instruction = take(bytes, at, 1)?[0];
    let string = match instruction {
        // Strings behind a length of one, four or eight bytes.
        b'U' | b'C' | 0x8a | 0x8c => Some(1),
        b'T' | b'B' | b'X' => Some(4),
        0x8d | 0x8e | 0x96 => Some(8),
        _ => None,
    };
    if let Some(width) = string {
        let len = number(take(bytes, at, width)?);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        return Ok(Some(Value::String(take(bytes, at, len)?)));
    }
    let value = match instruction {
        // Two lines of text: the name of a class.
        b'c' => {
            for _ in 0..2 {
                let line = bytes[*at..].iter().position(|b| *b == b'\n');
                take(bytes, at, line.ok_or_else(|| ends(bytes))? + 1)?;
            }
            Value::Other
        }
        b'K' => Value::Number(number(take(bytes, at, 1)?) as u32),
        b'M' => Value::Number(number(take(bytes, at, 2)?) as u32),
        b'J' => Value::Number(number(take(bytes, at, 4)?) as u32),
        // The version, and places in the memory of the machine.
        0x80 | b'q' | b'h' => skip(bytes, at, 1)?,
        b'r' | b'j' => skip(bytes, at, 4)?,
        b'G' | 0x95 => skip(bytes, at, 8)?,
        b'.' => return Ok(None),
        b'e' => Value::Appended,
        // Lists, tuples, dictionaries, nothing, true and false, objects from classes.
        b'('
        | b')'
        | b']'
        | b'}'
        | b'a'
        | b'b'
        | b'd'
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
        | 0x94 => Value::Other,
        other => {
            let at = *at - 1;
            return Err(format!(
                "byte {at} is {other}, which is no instruction that such a file has"
            ));
        }
    };
    Ok(Some(value))
}

/// A number, the lowest byte first.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn skip<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Result<Value<'a>, String> {
    take(bytes, at, count).map(|_| Value::Other)
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
    use super::{batch, strings};

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
            assert_eq!(batch(bytes, 3).unwrap().data, b"abc");
            assert!(
                batch(bytes, 4)
                    .unwrap_err()
                    .contains("without a string of 4 bytes")
            );
        }
    }

    #[test]
    fn labels_and_names_are_found_on_either_side_of_the_pixels() {
        let labels = b"U\x06labelsq\x02]q\x03(K\x07K\x00e(M\x01\x01e";
        let data = b"U\x04dataU\x03abc";
        for parts in [[&labels[..], data], [data, &labels[..]]] {
            let bytes = [b"\x80\x02}(", parts[0], parts[1], b"u."].concat();
            let found = batch(&bytes, 3).unwrap();
            assert_eq!(
                (found.data, &found.labels[..]),
                (&b"abc"[..], &[7, 0, 257][..])
            );
        }
        let meta =
            b"\x80\x02}(U\x0blabel_names]q\x02(U\x03catq\x03U\x03doge(U\x07num_visM\x00\x0cu.";
        assert_eq!(strings(meta, "label_names"), ["cat", "dog"]);
        assert!(strings(meta, "names").is_empty());
    }

    #[test]
    fn a_length_beyond_the_file_is_no_panic() {
        for bytes in [
            &b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffx"[..],
            b"T\xff\xff\xff\xffx",
            b"cnumpy",
            b"",
        ] {
            let said = batch(bytes, 3).unwrap_err();
            assert!(
                said.contains(&format!("ends at byte {}", bytes.len())),
                "{said}"
            );
        }
    }
}
