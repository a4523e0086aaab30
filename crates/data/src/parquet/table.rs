//! One parquet file: which columns have the images and the labels, and the images of one group of its rows.
//!
//! Only the columns that are needed are read, one group of rows at a time, so that a file may be larger than memory. Images are in a column of bytes: alone, or beside their file names in a structure, as Hugging Face
//! writes them.

use super::super::mapped::Shared;
use super::pages::Checked;
use super::{footer, headers};
use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use rrvq::error::{Error, Result};
use rrvq::limits::check_bytes;
use std::fmt;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// What begins and ends every file.
const MAGIC: &[u8] = b"PAR1";
/// No more rows than this in a byte: what claims more is damaged, and would fill the memory with rows.
const ROWS_A_BYTE: u64 = 64;
/// Memory that one row takes: its item with its name, and its place in the split.
const BYTES_A_ROW: usize = 256;

/// A parquet file with images.
pub(crate) struct Table {
    path: PathBuf,
    source: Shared,
    file: SerializedFileReader<Source>,
    /// The numbers of the columns with the images and with the labels.
    images: usize,
    labels: Option<usize>,
}

impl Table {
    pub fn open(path: &Path) -> Result<Table> {
        let source = Shared::open(path)?;
        read(path, source).map_err(|problem| {
            let path = path.display();
            Error::new(format!(
                "{path} cannot be read as a parquet file of images: {problem}"
            ))
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many rows each group has.
    pub fn rows(&self) -> Vec<usize> {
        let groups = self.file.metadata().row_groups();
        groups.iter().map(|g| g.num_rows() as usize).collect()
    }

    /// The encoded images of a group of rows; those that are missing are none.
    pub fn images(&self, group: usize) -> Result<Vec<Option<Bytes>>> {
        let images = self.column(group, self.images, |reader, rows, depth| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => values(reader, rows, depth),
            _ => Err(ParquetError::General("it does not hold bytes".into())),
        })?;
        // Rows that share a value of a dictionary share its bytes.
        let bytes = |image: Option<ByteArray>| image.map(Bytes::from_owner);
        Ok(images.into_iter().map(bytes).collect())
    }

    /// The labels of all rows; none where there is no column of them. Numbers below 0 stand for no label.
    pub fn labels(&self) -> Result<Vec<Option<u32>>> {
        let Some(column) = self.labels else {
            return Ok(vec![]);
        };
        let mut labels = Vec::new();
        for group in 0..self.rows().len() {
            let more = self.column(group, column, |reader, rows, depth| match reader {
                ColumnReader::Int32ColumnReader(reader) => {
                    let found = values(reader, rows, depth)?.into_iter();
                    Ok(found.map(|label| label?.try_into().ok()).collect())
                }
                ColumnReader::Int64ColumnReader(reader) => {
                    let found = values(reader, rows, depth)?.into_iter();
                    Ok(found.map(|label| label?.try_into().ok()).collect())
                }
                _ => Ok(vec![None; rows]),
            })?;
            labels.extend(more);
        }
        Ok(labels)
    }

    /// The names of the classes, where Hugging Face's library wrote them into the file.
    pub fn classes(&self) -> Vec<String> {
        let notes = self.file.metadata().file_metadata().key_value_metadata();
        let note = notes.and_then(|notes| notes.iter().find(|note| note.key == "huggingface"));
        let note = note.and_then(|note| serde_json::from_str(note.value.as_deref()?).ok());
        let note: serde_json::Value = note.unwrap_or_default();
        let names = note.pointer("/info/features/label/names");
        let names = names.and_then(|names| names.as_array());
        let name = |name: &serde_json::Value| name.as_str().map(str::to_string);
        let names: Option<Vec<String>> = names.and_then(|names| names.iter().map(name).collect());
        names.unwrap_or_default()
    }

    /// Reads one column of one group.
    fn column<T>(
        &self,
        group: usize,
        column: usize,
        read: impl Fn(ColumnReader, usize, i16) -> std::result::Result<T, ParquetError>,
    ) -> Result<T> {
        let about = self.file.metadata().row_group(group);
        let depth = about.schema_descr().column(column).max_def_level();
        let chunk = about.column(column);
        let checked = match place(chunk) {
            Some(place) => headers::check(&self.source, place, chunk.compression()),
            None => Err("it has a size below 0".into()),
        };
        let reader = checked.map_err(ParquetError::General);
        let reader = reader.and_then(|()| self.file.get_row_group(group));
        let reader = reader.and_then(|group| group.get_column_page_reader(column));
        let reader = reader.map(|pages| {
            let column = about.schema_descr().column(column);
            let pages = Checked::new(pages, &column);
            get_column_reader(column, Box::new(pages))
        });
        let found = reader.and_then(|reader| read(reader, about.num_rows() as usize, depth));
        found.map_err(|error| {
            let (path, start) = (self.path.display(), about.column(column).byte_range().0);
            Error::new(format!(
                "{path} is damaged: the column that begins at byte {start} cannot be read ({error}); fetch it again"
            ))
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// Reads the description of a file, or says what is wrong and at which byte.
fn read(path: &Path, source: Shared) -> std::result::Result<Table, String> {
    let whole = source.len();
    let part = |start: u64, len: usize| source.part(start, len).unwrap_or_default();
    if part(0, 4) != MAGIC {
        return Err("byte 0 does not begin a parquet file (PAR1)".into());
    }
    if whole < 12 || part(whole - 4, 4) != MAGIC {
        return Err(format!(
            "it ends at byte {whole} without the mark PAR1, so a part of it is missing"
        ));
    }
    let description = whole - 8;
    let len = part(description, 4)
        .try_into()
        .map_or(0, u32::from_le_bytes);
    let start = description.checked_sub(len.into());
    let checked = match start.filter(|start| *start >= 4) {
        Some(start) => footer::check(&part(start, len as usize)),
        None => Err(format!("it claims {len} bytes")),
    };
    checked.map_err(|problem| {
        format!("its description, which ends at byte {description}, is damaged ({problem})")
    })?;
    let file = SerializedFileReader::new(Source(source.from(0))).map_err(|error| {
        format!("its description, which ends at byte {description}, is damaged ({error})")
    })?;
    let about = file.metadata();
    let columns = about.file_metadata().schema_descr().columns();
    let (images, labels) = (image_column(columns)?, label_column(columns));
    let needed = || std::iter::once(images).chain(labels);
    let places = about.row_groups().iter();
    for (group, column) in places.flat_map(|group| needed().map(move |i| (group, i))) {
        let column = group.columns().get(column);
        let column = column.ok_or("its description has a group without the column of images")?;
        check_codec(column)?;
        let [start, len] = place(column).ok_or("its description has a size below 0")?;
        let inside = start.checked_add(len).is_some_and(|end| end <= whole);
        let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        if !inside || rows > len.saturating_mul(ROWS_A_BYTE) {
            return Err(format!(
                "its description, which ends at byte {description}, places a column at byte {start} that is not there"
            ));
        }
    }
    let rows = about.row_groups().iter().map(|group| group.num_rows());
    let rows = rows.fold(0, |sum: usize, rows| sum.saturating_add(rows as usize));
    check_bytes("listing its rows", rows.saturating_mul(BYTES_A_ROW))
        .map_err(|error| error.to_string())?;
    Ok(Table {
        path: path.to_path_buf(),
        source,
        file,
        images,
        labels,
    })
}

/// Where a column of a group begins, and its bytes.
fn place(column: &ColumnChunkMetaData) -> Option<[u64; 2]> {
    let start = column.dictionary_page_offset();
    let start = start.unwrap_or(column.data_page_offset());
    Some([
        start.try_into().ok()?,
        column.compressed_size().try_into().ok()?,
    ])
}

/// Refuses what cannot be unpacked here.
fn check_codec(column: &ColumnChunkMetaData) -> std::result::Result<(), String> {
    match column.compression() {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::ZSTD(_) => Ok(()),
        other => Err(format!(
            "its images are compressed with {other}; expected snappy, gzip, zstd or no compression, so write it anew with \
             one of these"
        )),
    }
}

/// The column `bytes` of a structure, or else the first column of bytes that are not text.
fn image_column(columns: &[ColumnDescPtr]) -> std::result::Result<usize, String> {
    let is_text = |column: &ColumnDescriptor| {
        column.converted_type() == ConvertedType::UTF8
            || matches!(column.logical_type_ref(), Some(LogicalType::String))
    };
    let fits = |i: &usize| {
        let column = &columns[*i];
        column.physical_type() == Type::BYTE_ARRAY
            && column.max_rep_level() == 0
            && !is_text(column)
    };
    let is_part = |i: &usize| {
        let path = columns[*i].path().parts();
        path.len() > 1 && path.last().is_some_and(|name| name == "bytes")
    };
    let candidates = || (0..columns.len()).filter(fits);
    let found = candidates().find(is_part).or_else(|| candidates().next());
    found.ok_or_else(|| {
        let names: Vec<String> = columns.iter().map(|c| c.path().string()).collect();
        format!(
            "none of its columns ({}) has images, as bytes or as a structure with bytes",
            names.join(", ")
        )
    })
}

/// The column of integers called `label`.
fn label_column(columns: &[ColumnDescPtr]) -> Option<usize> {
    columns.iter().position(|column| {
        let whole = matches!(column.physical_type(), Type::INT32 | Type::INT64);
        whole && column.max_rep_level() == 0 && column.path().parts() == ["label"]
    })
}

/// The values of all rows of a column; `depth` is that of a value that is there.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    depth: i16,
) -> std::result::Result<Vec<Option<T::T>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (found, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if found != rows {
        let problem = format!("it has {found} of {rows} rows");
        return Err(ParquetError::EOF(problem));
    }
    let mut values = values.into_iter();
    Ok(match depth {
        0 => values.map(Some).collect(),
        _ => levels
            .iter()
            .map(|level| (*level == depth).then(|| values.next()).flatten())
            .collect(),
    })
}

/// The file as the crate reads it.
struct Source(Shared);

impl Length for Source {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Source {
    type T = BufReader<Shared>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        // Headers of pages are read byte by byte, and are short.
        Ok(BufReader::with_capacity(512, self.0.from(start)))
    }

    fn get_bytes(&self, start: u64, len: usize) -> std::result::Result<Bytes, ParquetError> {
        let part = self.0.part(start, len).map_err(|error| {
            let end = self.0.len();
            let problem = format!("{len} bytes from byte {start} of {end} cannot be read: {error}");
            ParquetError::EOF(problem)
        })?;
        Ok(part.into())
    }
}
