//! Just enough of Thrift's compact protocol to read what describes a parquet file.
//!
//! Everything is read into a tree of values, and fields are then asked for by their number: descriptions are short, and
//! a tree needs no code for the many fields nobody asks about. Lengths are believed only as far as there are bytes.

/// A value, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Truth(bool),
    Whole(i64),
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Fields(Vec<(i64, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// The field of this number.
    pub fn field(&self, number: i64) -> Option<&Value<'a>> {
        match self {
            Value::Fields(fields) => fields
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The number in a field, if it is one that counts or measures.
    pub fn count(&self, number: i64) -> Option<usize> {
        match self.field(number)? {
            Value::Whole(count) => usize::try_from(*count).ok(),
            _ => None,
        }
    }

    /// Whether a field is true; none says what it is when it is left out.
    pub fn truth(&self, number: i64) -> Option<bool> {
        match self.field(number)? {
            Value::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The text in a field.
    pub fn text(&self, number: i64) -> Option<String> {
        self.field(number)?.as_text()
    }

    /// This value as text.
    pub fn as_text(&self) -> Option<String> {
        match self {
            Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The list in a field; empty where there is none.
    pub fn list(&self, number: i64) -> &[Value<'a>] {
        match self.field(number) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }
}

/// Kinds of values, as they are written.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INT_16: u8 = 4;
const INT_64: u8 = 6;
const DOUBLE: u8 = 7;
const BYTES: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const FIELDS: u8 = 12;

/// No description is deeper.
const DEEPEST: usize = 32;

/// The structure at `at`, which is left behind it; or the byte that does not fit.
pub(super) fn fields<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Value<'a>, usize> {
    structure(bytes, at, 0)
}

fn structure<'a>(bytes: &'a [u8], at: &mut usize, depth: usize) -> Result<Value<'a>, usize> {
    if depth > DEEPEST {
        return Err(*at);
    }
    let (mut found, mut number) = (Vec::new(), 0i64);
    loop {
        let head = byte(bytes, at)?;
        if head == 0 {
            return Ok(Value::Fields(found));
        }
        // Fields mostly follow each other closely, so that the step from the last fits in four bits.
        number = match head >> 4 {
            0 => signed(bytes, at)?,
            step => number.saturating_add(step.into()),
        };
        let value = match head & 15 {
            TRUE => Value::Truth(true),
            FALSE => Value::Truth(false),
            kind => value(bytes, at, kind, depth)?,
        };
        found.push((number, value));
    }
}

fn value<'a>(bytes: &'a [u8], at: &mut usize, kind: u8, depth: usize) -> Result<Value<'a>, usize> {
    match kind {
        // Inside a list, true and false take a byte of their own.
        TRUE | FALSE => Ok(Value::Truth(byte(bytes, at)? == TRUE)),
        BYTE => Ok(Value::Whole(byte(bytes, at)?.into())),
        INT_16..=INT_64 => Ok(Value::Whole(signed(bytes, at)?)),
        // No description that matters here has one.
        DOUBLE => Ok(Value::Bytes(take(bytes, at, 8)?)),
        BYTES => {
            let len = varint(bytes, at)?;
            Ok(Value::Bytes(take(bytes, at, len as usize)?))
        }
        LIST | SET => {
            let head = byte(bytes, at)?;
            let len = match head >> 4 {
                15 => varint(bytes, at)?,
                len => len.into(),
            };
            let mut list = Vec::new();
            for _ in 0..len {
                list.push(match head & 15 {
                    FIELDS => structure(bytes, at, depth + 1)?,
                    kind => value(bytes, at, kind, depth + 1)?,
                });
            }
            Ok(Value::List(list))
        }
        FIELDS => structure(bytes, at, depth + 1),
        _ => Err(*at),
    }
}

/// A number in groups of seven bits, the lowest first; the top bit of a byte says that more follow.
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, usize> {
    let mut number = 0;
    for place in 0..10 {
        let byte = byte(bytes, at)?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(*at)
}

/// Numbers of either sign are written 0, −1, 1, −2, …
fn signed(bytes: &[u8], at: &mut usize) -> Result<i64, usize> {
    let number = varint(bytes, at)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn byte(bytes: &[u8], at: &mut usize) -> Result<u8, usize> {
    Ok(take(bytes, at, 1)?[0])
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8], usize> {
    let taken = bytes.get(*at..).and_then(|rest| rest.get(..count));
    let taken = taken.ok_or(*at)?;
    *at += count;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_number() {
        // 1: 150; 2: true; 20 (too far for a step): "ab"; 21: [1, −1]; 22: { 1: false }.
        let bytes = [
            0x15, 0xac, 0x02, 0x11, 0x08, 0x28, 0x02, b'a', b'b', 0x19, 0x25, 0x02, 0x01, 0x1c,
            0x12, 0, 0,
        ];
        let mut at = 0;
        let found = fields(&bytes, &mut at).unwrap();
        assert_eq!(at, bytes.len());
        assert_eq!(found.count(1), Some(150));
        assert_eq!(found.truth(2), Some(true));
        assert_eq!(found.text(20).unwrap(), "ab");
        assert_eq!(found.list(21), [Value::Whole(1), Value::Whole(-1)]);
        assert_eq!(found.field(22).unwrap().truth(1), Some(false));
        assert_eq!((found.count(3), found.count(20)), (None, None));
        for cut in 0..bytes.len() {
            assert!(fields(&bytes[..cut], &mut 0).unwrap_err() <= cut);
        }
    }

    #[test]
    fn nonsense_ends() {
        // Structures in structures, a list longer than the file, a number without end, a kind there is not.
        for bytes in [
            vec![0x1c; 1000],
            vec![0x19, 0xf5, 0xff, 0xff, 0xff, 0x7f, 1],
            vec![0x15; 20],
            [vec![0x15], vec![0xff; 20]].concat(),
            vec![0x1e, 0],
        ] {
            assert!(fields(&bytes, &mut 0).is_err());
        }
    }
}
