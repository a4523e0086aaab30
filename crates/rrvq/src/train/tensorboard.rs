//! Event files for TensorBoard, for those who watch their runs there.
//!
//! The format is small enough to write ourselves: a file is a sequence of records, each framed by its length and two
//! masked CRC-32C checksums, and holds one protocol-buffer message of four or five fields. That spares a
//! dependency on code generators for what is two screens of code.

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::run::EVENTS_PREFIX;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends events to a file of its own.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Begins a new event file in the folder `dir`, beside those of earlier sittings.
    pub fn create(dir: impl AsRef<Path>) -> Result<EventWriter> {
        let since = now();
        let name = format!(
            "{EVENTS_PREFIX}{:010}.{:09}.rrvq",
            since as u64,
            (since.fract() * 1e9) as u64
        );
        let path = dir.as_ref().join(name);
        let file = File::create_new(&path).map_err(|error| Error::io("create", &path, error))?;
        let mut writer = EventWriter { path, file };
        let mut event = Message::default();
        event.double(1, since);
        event.bytes(3, b"brain.Event:2");
        writer.write(event)?;
        Ok(writer)
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the values of several curves at `step`; a `/` in a tag makes a group.
    pub fn scalars<'a>(
        &mut self,
        step: usize,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<()> {
        let mut summary = Message::default();
        for (tag, number) in values {
            let mut value = Message::default();
            value.bytes(1, tag.as_bytes());
            value.float(2, number as f32);
            summary.message(1, value);
        }
        self.summary(step, summary)
    }

    /// Writes a picture at `step`.
    pub fn image(&mut self, step: usize, tag: &str, picture: &Picture) -> Result<()> {
        let [height, width, channels] = picture.shape();
        let mut image = Message::default();
        image.integer(1, height as u64);
        image.integer(2, width as u64);
        image.integer(3, channels as u64);
        image.bytes(4, &picture.to_png()?);
        let mut value = Message::default();
        value.bytes(1, tag.as_bytes());
        value.message(4, image);
        let mut summary = Message::default();
        summary.message(1, value);
        self.summary(step, summary)
    }

    fn summary(&mut self, step: usize, summary: Message) -> Result<()> {
        let mut event = Message::default();
        event.double(1, now());
        event.integer(2, step as u64);
        event.message(5, summary);
        self.write(event)
    }

    fn write(&mut self, event: Message) -> Result<()> {
        // One call a record: TensorBoard reads along while we write.
        self.file
            .write_all(&framed(&event.0))
            .map_err(|error| Error::io("write", &self.path, error))
    }
}

/// Seconds since 1970; a clock set before that counts as 1970.
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(|since| since.as_secs_f64())
        .unwrap_or(0.0)
}

/// A protocol-buffer message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn integer(&mut self, field: u8, value: u64) {
        self.0.push(field << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u8, value: f64) {
        self.0.push(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn float(&mut self, field: u8, value: f32) {
        self.0.push(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u8, value: &[u8]) {
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn message(&mut self, field: u8, value: Message) {
        self.bytes(field, &value.0);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// A record: length, its checksum, the bytes, theirs.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [
        &length,
        &masked(&length).to_le_bytes()[..],
        bytes,
        &masked(bytes).to_le_bytes(),
    ]
    .concat()
}

/// Rotated and shifted, because checksums of data that holds checksums are weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8
    })
}

/// The remainder of every byte under Castagnoli's polynomial.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_known_answers() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    /// Takes `count` bytes off the front.
    fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (head, tail) = bytes.split_at(count);
        *bytes = tail;
        head
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for place in 0.. {
            let byte = take(bytes, 1)[0];
            value |= ((byte & 0x7f) as u64) << (7 * place);
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// The fields of a message: number, and contents (of an integer, its eight bytes).
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                1 => take(&mut bytes, 8).to_vec(),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    take(&mut bytes, length).to_vec()
                }
                5 => take(&mut bytes, 4).to_vec(),
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, value));
        }
        fields
    }

    /// The records of a file, their checksums verified.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = take(&mut bytes, 8);
            assert_eq!(take(&mut bytes, 4), masked(length).to_le_bytes());
            let record = take(
                &mut bytes,
                u64::from_le_bytes(length.try_into().unwrap()) as usize,
            );
            assert_eq!(take(&mut bytes, 4), masked(record).to_le_bytes());
            records.push(record.to_vec());
        }
        records
    }

    #[test]
    fn events_parse_back() {
        let scratch = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(scratch.path().join("")).unwrap();
        writer
            .scalars(300, [("train/loss", 1.5), ("train/lr", 1e-3)])
            .unwrap();
        let picture = Picture::new([1, 2, 3], vec![9; 6]).unwrap();
        writer.image(1_000_000, "samples", &picture).unwrap();
        let events = records(&std::fs::read(writer.path()).unwrap());
        assert_eq!(events.len(), 3);
        assert_eq!(fields(&events[0])[1], (3, b"brain.Event:2".to_vec()));

        let curves = fields(&events[1]);
        assert_eq!(curves[1], (2, 300u64.to_le_bytes().to_vec()));
        let values = fields(&curves[2].1);
        assert_eq!((curves[2].0, values.len()), (5, 2));
        let loss = fields(&values[0].1);
        assert_eq!(
            loss,
            [
                (1, b"train/loss".to_vec()),
                (2, 1.5f32.to_le_bytes().to_vec())
            ]
        );

        let drawn = fields(&events[2]);
        assert_eq!(drawn[1], (2, 1_000_000u64.to_le_bytes().to_vec()));
        let value = fields(&fields(&drawn[2].1)[0].1);
        assert_eq!(value[1].0, 4);
        let image = fields(&value[1].1);
        assert_eq!(
            image.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        assert_eq!(image[3].1, picture.to_png().unwrap());
    }

    #[test]
    fn two_sittings_write_two_files() {
        let scratch = tempfile::tempdir().unwrap();
        let first = EventWriter::create(scratch.path().join("")).unwrap();
        let second = EventWriter::create(scratch.path().join("")).unwrap();
        assert_ne!(first.path(), second.path());
        assert!(EventWriter::create(scratch.path().join("none")).is_err());
    }
}
