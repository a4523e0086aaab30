//! The compact form of Thrift, walked without building anything: no structure or list may be deeper than real files have
//! them, and no list longer than the bytes that are left.

/// Structures and lists inside each other; real descriptions have five.
const DEEPEST_VALUE: usize = 24;

/// Kinds of values.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
pub(super) const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;

pub(super) type Result<T> = std::result::Result<T, String>;

/// What is left to walk.
pub(super) struct Walk<'a>(pub &'a [u8]);

/// Takes a field itself, and says so, or leaves it to be skipped.
pub(super) type Visit<'v, 'a> = &'v mut dyn FnMut(&mut Walk<'a>, i64, u8) -> Result<bool>;

impl<'a> Walk<'a> {
    fn skip(&mut self, count: u64) -> Result<()> {
        let count = usize::try_from(count).ok();
        let rest = count.and_then(|count| self.0.get(count..));
        self.0 = rest.ok_or("it ends in the middle of a value")?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.0.first().ok_or("it ends in the middle of a value")?;
        self.0 = &self.0[1..];
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err("a number in it does not end".into())
    }

    /// A number whose lowest bit is its sign.
    pub fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The kind and the number of a list's elements; each takes a byte or more.
    pub fn list(&mut self) -> Result<(u8, u64)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.number()?,
            count => count.into(),
        };
        match head & 15 {
            TRUE | FALSE => Err("it has a list of booleans, which no description has".into()),
            _ if count > self.0.len() as u64 => {
                let left = self.0.len();
                Err(format!("a list claims {count} elements in {left} bytes"))
            }
            kind => Ok((kind, count)),
        }
    }

    pub fn structure(&mut self, depth: usize, visit: Visit<'_, 'a>) -> Result<()> {
        let mut field = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.signed()?,
                more => field + i64::from(more),
            };
            let kind = head & 15;
            if !visit(self, field, kind)? && !matches!(kind, TRUE | FALSE) {
                self.value(kind, depth + 1)?;
            }
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Result<()> {
        if depth > DEEPEST_VALUE {
            return Err(format!(
                "it has more than {DEEPEST_VALUE} values inside each other"
            ));
        }
        match kind {
            TRUE | FALSE | BYTE => self.skip(1),
            I16 | I32 | I64 => self.number().map(|_| ()),
            DOUBLE => self.skip(8),
            BINARY => {
                let len = self.number()?;
                self.skip(len)
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.value(kind, depth + 1))
            }
            MAP => Err("it has a map, which no description has".into()),
            STRUCT => self.structure(depth, &mut |_, _, _| Ok(false)),
            other => Err(format!(
                "it has a value of kind {other}, which there is not"
            )),
        }
    }
}
