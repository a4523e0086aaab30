//! The description at the end of a parquet file, checked before the crate `parquet` reads it.
//!
//! That crate follows nested groups of columns with the stack and believes how many children a group has, and it skips
//! lists of booleans without reading bytes for them: a description of a few kilobytes could end the process or keep it
//! busy for hours. Here it is walked once, by the compact form of Thrift: no structure, list or group may be deeper than
//! real files are, and no list longer than the bytes that are left.

use super::thrift::{I32, LIST, Result, STRUCT, Walk};

/// Groups of columns inside each other.
const DEEPEST_GROUP: usize = 100;
/// Columns and groups in all.
const MOST_COLUMNS: usize = 100_000;

/// The number of the field with the schema, and of that with the number of a group's children.
const SCHEMA: i64 = 2;
const CHILDREN: i64 = 5;

/// Refuses a description that cannot be read within bounds.
pub(super) fn check(description: &[u8]) -> Result<()> {
    let mut walk = Walk(description);
    walk.structure(0, &mut |walk, field, kind| match (field, kind) {
        (SCHEMA, LIST) => schema(walk).map(|()| true),
        _ => Ok(false),
    })
}

/// The list of columns and groups, each group before its children.
fn schema(walk: &mut Walk<'_>) -> Result<()> {
    let (kind, count) = walk.list()?;
    if kind != STRUCT || count > MOST_COLUMNS as u64 {
        return Err(format!("its schema has {count} columns and groups"));
    }
    // Children that are still to come, of each group that is open.
    let mut open: Vec<u64> = Vec::new();
    for left in (0..count).rev() {
        let mut children = 0;
        walk.structure(2, &mut |walk, field, kind| {
            if (field, kind) != (CHILDREN, I32) {
                return Ok(false);
            }
            let found = walk.signed()?;
            children = u64::try_from(found).unwrap_or(u64::MAX);
            Ok(true)
        })?;
        if children > left {
            return Err(format!(
                "a group in its schema claims {children} columns and {left} follow"
            ));
        }
        while let Some(0) = open.last() {
            open.pop();
        }
        if let Some(siblings) = open.last_mut() {
            *siblings -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() > DEEPEST_GROUP {
            return Err(format!(
                "its schema has more than {DEEPEST_GROUP} groups inside each other"
            ));
        }
    }
    Ok(())
}
