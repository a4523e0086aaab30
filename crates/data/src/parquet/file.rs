//! A parquet file: which column has the images, and the images of one group of its rows.
//!
//! A file ends in a description of its columns and of its groups of rows; each group has each column in one piece. Only
//! the column of images is ever read, one group at a time, so that a file may be larger than memory. Images are in a
//! column of bytes: alone, or beside their file names in a structure, as Hugging Face writes them.

use super::page;
use super::thrift::{self, Value};

/// What begins and ends every file.
const MAGIC: &[u8] = b"PAR1";
/// Kinds of columns, and how often a value occurs in a row.
const BYTE_ARRAY: usize = 6;
const OPTIONAL: usize = 1;
const REPEATED: usize = 2;

/// The groups of a file.
#[derive(Debug)]
pub(super) struct Layout {
    pub groups: Vec<Group>,
    /// How many parents of a value, itself counted, may be missing.
    depth: usize,
}

/// A group of rows, and where its images are.
#[derive(Debug)]
pub(super) struct Group {
    pub rows: usize,
    start: usize,
    len: usize,
    codec: usize,
}

/// A column of single values.
struct Column {
    path: Vec<String>,
    kind: Option<usize>,
    depth: usize,
    repeated: bool,
    is_text: bool,
}

/// Reads the description of a file, or says what is wrong and at which byte.
pub(super) fn layout(file: &[u8]) -> Result<Layout, String> {
    let whole = file.len();
    if !file.starts_with(MAGIC) {
        return Err("byte 0 does not begin a parquet file (PAR1)".into());
    }
    let size = whole.checked_sub(12).map(|_| &file[whole - 8..]);
    let size = size.filter(|size| size.ends_with(MAGIC));
    let Some(size) = size else {
        return Err(format!(
            "it ends at byte {whole} without the mark PAR1, so a part of it is missing"
        ));
    };
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    let Some(start) = (whole - 8).checked_sub(size) else {
        return Err(format!(
            "byte {} says that its description has {size} bytes, more than the file",
            whole - 8
        ));
    };
    let unlike = |at| format!("byte {at} does not fit in its description");
    let description =
        thrift::fields(&file[start..whole - 8], &mut 0).map_err(|at| unlike(start + at))?;
    let columns = columns(description.list(2)).ok_or_else(|| unlike(start))?;
    let column = image_column(&columns)?;
    let group = |group: &Value| -> Option<Group> {
        let chunks = group.list(1).iter().filter_map(|chunk| chunk.field(3));
        let named = |chunk: &Value| {
            let path: Vec<String> = chunk.list(3).iter().filter_map(Value::as_text).collect();
            path == column.path
        };
        let chunk = chunks.into_iter().find(|chunk| named(chunk))?;
        let data = chunk.count(9)?;
        // The dictionary stands first, where there is one; some writers say 0 where there is none.
        let dictionary = chunk.count(11).filter(|at| *at > 0);
        Some(Group {
            rows: group.count(3)?,
            start: dictionary.map_or(data, |at| at.min(data)),
            len: chunk.count(7)?,
            codec: chunk.count(4)?,
        })
    };
    let groups: Option<Vec<Group>> = description.list(4).iter().map(group).collect();
    let groups = groups.ok_or_else(|| unlike(start))?;
    for group in &groups {
        page::check_codec(group.codec)?;
        let end = group.start.checked_add(group.len);
        if end.is_none_or(|end| end > start) || group.rows > group.len.saturating_mul(64) {
            return Err(format!(
                "its description at byte {start} places images at byte {} that are not there",
                group.start
            ));
        }
    }
    Ok(Layout {
        groups,
        depth: column.depth,
    })
}

/// The images of a group of rows; those that are missing are none.
pub(super) fn images(
    file: &[u8],
    layout: &Layout,
    group: usize,
) -> Result<Vec<Option<Vec<u8>>>, String> {
    let group = &layout.groups[group];
    let chunk = &file[group.start..][..group.len];
    page::values(chunk, group.codec, layout.depth, group.rows)
        .map_err(|problem| problem.tell(group.start))
}

/// The columns of single values, from the schema's tree written in a row, parents first.
fn columns(schema: &[Value]) -> Option<Vec<Column>> {
    let mut found = Vec::new();
    // Parents that still have children to come: how many, the path, the depth, whether repeated.
    let mut parents: Vec<(usize, Vec<String>, usize, bool)> = Vec::new();
    for (i, element) in schema.iter().enumerate() {
        let (mut path, mut depth, mut repeated) = match parents.last_mut() {
            Some((left, path, depth, repeated)) => {
                *left -= 1;
                (path.clone(), *depth, *repeated)
            }
            None if i == 0 => (Vec::new(), 0, false),
            None => return None,
        };
        if i > 0 {
            path.push(element.text(4)?);
            let often = element.count(3);
            depth += usize::from(often == Some(OPTIONAL) || often == Some(REPEATED));
            repeated |= often == Some(REPEATED);
        }
        while parents.last().is_some_and(|(left, ..)| *left == 0) {
            parents.pop();
        }
        match element.count(5).filter(|children| *children > 0) {
            Some(children) => parents.push((children, path, depth, repeated)),
            None => found.push(Column {
                path,
                kind: element.count(1),
                depth,
                repeated,
                // Marked as text in the old way or in the new one.
                is_text: element.count(6) == Some(0)
                    || element
                        .field(10)
                        .is_some_and(|kind| kind.field(1).is_some()),
            }),
        }
    }
    Some(found)
}

/// The column `bytes` of a structure, or else the first column of bytes that are not text.
fn image_column(columns: &[Column]) -> Result<&Column, String> {
    let fits =
        |column: &&Column| column.kind == Some(BYTE_ARRAY) && !column.repeated && !column.is_text;
    let is_part = |column: &&Column| {
        column.path.len() > 1 && column.path.last().is_some_and(|name| name == "bytes")
    };
    let candidates = || columns.iter().filter(fits);
    let found = candidates().find(is_part).or_else(|| candidates().next());
    found.ok_or_else(|| {
        let names: Vec<String> = columns.iter().map(|column| column.path.join(".")).collect();
        format!(
            "none of its columns ({}) has images, as bytes or as a structure with bytes",
            names.join(", ")
        )
    })
}
