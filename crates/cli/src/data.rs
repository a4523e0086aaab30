//! `rrvq data`: what is in a folder, before anything is trained on it, and how it gets there.

use crate::args::{DataFetch, DataInfo};
use crate::commands::{columns, save_sheet};
use crate::output::check_free;
use crate::terminal::{self, bytes_bar, grouped, line, note, table};
use crate::train::as_typed;
use rrvq::config::Config;
use rrvq::{Error, Remedy, Result};
use rrvq_data::checksums::{Verdict, files_of, verdicts};
use rrvq_data::fetch::{Outcome, fetch as bring};
use rrvq_data::summarise;
use serde_json::json;
use std::path::Path;

/// Images on a contact sheet.
const SHOWN: usize = 64;

pub fn info(args: &DataInfo) -> Result<()> {
    let mut config = Config::default();
    crate::set(&mut config, &args.set)?;
    config.validate()?;
    args.sheet.iter().try_for_each(|sheet| check_free(sheet))?;
    let shown = if args.sheet.is_some() { SHOWN } else { 0 };
    let found = summarise(&args.dir, &config.data, args.size as usize, shown)?;
    let [height, width, channels] = found.shape;
    if let Some(sheet) = &args.sheet {
        save_sheet(sheet, &found.shown, columns(found.shown.len()), height)?;
    }
    let sums = verdicts(&args.dir)?;
    if args.json {
        let sum = |sum: &Verdict| {
            json!({
                "file": sum.file, "md5": sum.md5, "original": sum.original, "expected": sum.expected,
            })
        };
        let files: Vec<_> = sums.iter().map(sum).collect();
        let out = json!({
            "dir": args.dir, "name": found.name, "train": found.train, "test": found.test, "shape": found.shape,
            "sheet": args.sheet, "files": files, "labels": found.labels, "classes": found.classes,
        });
        terminal::json(&out);
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
    if !found.labels.is_empty() {
        let row = |(label, [train, test]): (&u32, &[usize; 2])| {
            let name = found.classes.get(*label as usize);
            let name = name.filter(|name| **name != label.to_string());
            let label = name.map_or(label.to_string(), |name| format!("{label} {name}"));
            vec![label, grouped(*train), grouped(*test)]
        };
        let rows: Vec<Vec<String>> = found.labels.iter().map(row).collect();
        table(&["label", "train", "test"], &rows);
    }
    for sum in &sums {
        line(format!("{}: {}", sum.file, said(sum)));
    }
    if let Some(sheet) = &args.sheet {
        line(format!(
            "the first {} training images: {}",
            found.shown.len(),
            sheet.display()
        ));
    }
    Ok(())
}

fn said(sum: &Verdict) -> String {
    match sum.original {
        Some(set) => format!("{set}'s original, by its checksum"),
        None => format!(
            "not the original of {} (MD5 {}); results do not compare with published ones",
            sum.expected.join(" or of "),
            sum.md5
        ),
    }
}

pub fn fetch(args: &DataFetch) -> Result<()> {
    let files = files_of(&args.name, args.from.as_deref())?;
    // The extra images lie beside the others.
    let folder = args.name.trim_end_matches("-extra");
    let out = args.out.clone().unwrap_or(Path::new("data").join(folder));
    let new: Vec<&Path> = out.ancestors().take_while(|dir| !dir.exists()).collect();
    for file in &files {
        let bar = bytes_bar(file.name, file.bytes);
        let outcome = bring(file, &out, &mut |bytes, _| bar.set_position(bytes));
        bar.finish_and_clear();
        let outcome = outcome.map_err(|said| {
            // What was made for nothing goes again; a part that came stays, and the folder with it.
            let part = out.join(format!("{}.part", file.name));
            if std::fs::metadata(&part).is_ok_and(|found| found.len() == 0) {
                drop(std::fs::remove_file(&part));
            }
            new.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
            match said.remedy() {
                Some(_) => said,
                None => Error::with_remedy(said.to_string(), Remedy::Source),
            }
        });
        let how = match outcome? {
            Outcome::There => "was there".to_string(),
            Outcome::Fetched { resumed_at: 0 } => "fetched".to_string(),
            Outcome::Fetched { resumed_at } => {
                format!(
                    "fetched, going on from byte {}",
                    grouped(resumed_at as usize)
                )
            }
        };
        note(format!(
            "{}: {how}; {} bytes, checksum right",
            file.name,
            grouped(file.bytes as usize)
        ));
    }
    note(format!("look at it: rrvq data info {}", as_typed(&out)));
    Ok(())
}
