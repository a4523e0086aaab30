//! `rrvq data`: what is in a folder, before anything is trained on it.

use crate::args::DataInfo;
use crate::commands::{columns, save_sheet};
use crate::terminal::{grouped, line, table};
use rrvq::Result;
use rrvq::config::Config;
use rrvq::data::survey;
use serde_json::json;

/// Images on a contact sheet.
const SHOWN: usize = 64;

pub fn info(args: &DataInfo) -> Result<()> {
    let mut config = Config::default();
    for assignment in &args.set {
        config.set(assignment)?;
    }
    config.validate()?;
    let shown = if args.sheet.is_some() { SHOWN } else { 0 };
    let found = survey(&args.dir, &config.data, args.size as usize, shown)?;
    let [height, width, channels] = found.shape;
    if let Some(sheet) = &args.sheet {
        save_sheet(sheet, &found.shown, columns(found.shown.len()), height)?;
    }
    if args.json {
        let out = json!({
            "dir": args.dir, "name": found.name, "train": found.train, "test": found.test, "shape": found.shape,
            "sheet": args.sheet,
        });
        line(out.to_string());
        return Ok(());
    }
    line(format!(
        "{}: data.name = {:?}, images of {height}×{width}×{channels}",
        args.dir.display(),
        found.name
    ));
    table(
        &["split", "images"],
        &[("train", found.train), ("test", found.test)]
            .map(|(split, count)| vec![split.into(), grouped(count)]),
    );
    if let Some(sheet) = &args.sheet {
        line(format!(
            "the first {} training images: {}",
            found.shown.len(),
            sheet.display()
        ));
    }
    Ok(())
}
