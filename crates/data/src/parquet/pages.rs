//! The pages of a column, checked before their values are decoded.
//!
//! The decoders of the crate `parquet` panic where a damaged page refers to a dictionary that is not there or ends inside
//! the length of a value. Such pages, and encodings that no writer of images uses, are refused here with an error.

use bytes::Bytes;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;
use rrvq::limits::{Limits, unpacks_to_more};

type Result<T> = std::result::Result<T, ParquetError>;

/// The pages of a column that is not repeated.
pub(super) struct Checked {
    inner: Box<dyn PageReader>,
    /// Whether values are bytes behind their length.
    strings: bool,
    has_levels: bool,
    has_dictionary: bool,
    /// Bytes of all pages so far, unpacked.
    unpacked: usize,
}

impl Checked {
    pub fn new(inner: Box<dyn PageReader>, column: &ColumnDescriptor) -> Checked {
        Checked {
            inner,
            strings: column.physical_type() == Type::BYTE_ARRAY,
            has_levels: column.max_def_level() > 0,
            has_dictionary: false,
            unpacked: 0,
        }
    }

    fn check(&mut self, mut page: Page) -> Result<Page> {
        self.unpacked = self.unpacked.saturating_add(page.buffer().len());
        if self.unpacked > Limits::current().memory {
            return Err(damaged(&unpacks_to_more()));
        }
        match &mut page {
            Page::DictionaryPage { buf, .. } => {
                self.has_dictionary = true;
                self.seal(buf, 0)?;
            }
            Page::DataPage {
                buf,
                encoding,
                def_level_encoding,
                ..
            } => {
                let start = match (self.has_levels, *def_level_encoding, buf.first_chunk()) {
                    (false, ..) => 0,
                    (true, Encoding::RLE, Some(len)) => {
                        4usize.saturating_add(u32::from_le_bytes(*len) as usize)
                    }
                    _ => return Err(damaged("its levels cannot be read")),
                };
                self.check_values(*encoding, buf, start)?;
            }
            Page::DataPageV2 {
                buf,
                encoding,
                def_levels_byte_len: levels,
                rep_levels_byte_len: repeats,
                ..
            } => {
                let start = (*levels as usize).saturating_add(*repeats as usize);
                self.check_values(*encoding, buf, start)?;
            }
        }
        Ok(page)
    }

    fn check_values(&self, encoding: Encoding, buf: &mut Bytes, start: usize) -> Result<()> {
        match encoding {
            Encoding::PLAIN => self.seal(buf, start),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY if self.has_dictionary => Ok(()),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                Err(damaged("its dictionary is missing"))
            }
            other => Err(damaged(&format!(
                "its values are written as {other}, which is not supported; write the file anew with pyarrow's defaults"
            ))),
        }
    }

    /// Refuses strings that do not end where the page ends, and puts a length behind the last that no string has: asked
    /// for more values than there are, the decoder then returns an error.
    fn seal(&self, buf: &mut Bytes, start: usize) -> Result<()> {
        if !self.strings {
            return Ok(());
        }
        let mut rest = buf.get(start..);
        while let Some((len, behind)) = rest.and_then(|rest| rest.split_first_chunk()) {
            rest = behind.get(u32::from_le_bytes(*len) as usize..);
        }
        if rest.is_none_or(|rest| !rest.is_empty()) {
            return Err(damaged("a value does not end inside its page"));
        }
        *buf = [&buf[..], &[0xff; 4]].concat().into();
        Ok(())
    }
}

fn damaged(problem: &str) -> ParquetError {
    ParquetError::General(problem.into())
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.map(|page| self.check(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }
}
