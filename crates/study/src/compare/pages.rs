//! What was measured, to look at: curves of rate against quality, pictures, and a page that holds all of it.

use super::figure::Shown;
use super::{Comparison, Row, Verdict, quality};
use crate::report::{Chart, Figure, Report, Series};
use rrvq::error::{Error, Result};
use rrvq::files::write_atomic;
use rrvq::picture::Picture;
use std::path::{Path, PathBuf};

/// The rows of the figure and the picture they make.
pub type Drawn = (Vec<Shown>, Picture);

/// PSNR over bits a pixel, the same without headers, and MS-SSIM over bits a pixel.
pub fn charts(comparison: &Comparison) -> [Chart; 4] {
    let whole = |row: &Row| Some(comparison.bits_per_pixel(row));
    let bare = |row: &Row| comparison.bare_bits_per_pixel(row);
    let decibels = |error: f64, _| quality::psnr(error);
    let alike = |_, ms_ssim: f64| ms_ssim;
    let named = |y: &str| format!("{y} over bits a pixel, {} images", comparison.images);
    let similarity = format!("MS-SSIM ({})", scales(comparison));
    [
        chart(comparison, named("PSNR"), "PSNR, dB", &whole, &decibels),
        chart(
            comparison,
            named("PSNR") + ", headers left out",
            "PSNR, dB",
            &bare,
            &decibels,
        ),
        chart(comparison, named("MS-SSIM"), &similarity, &whole, &alike),
        prefixes(comparison),
    ]
}

/// PSNR over how much of a lossy file has arrived.
fn prefixes(comparison: &Comparison) -> Chart {
    let points = comparison.prefixes.iter();
    let points = points.map(|p| (100.0 * p.share, quality::psnr(p.squared_error)));
    Chart {
        title: "What the first part of a file with loss shows".into(),
        x_label: "bytes that have arrived, %".into(),
        y_label: "PSNR, dB".into(),
        log_x: false,
        log_y: false,
        dots: true,
        series: vec![Series::new(
            "rrvq, a file an image, all layers",
            points.collect(),
        )],
    }
}

/// How many scales MS-SSIM had, in words.
pub fn scales(comparison: &Comparison) -> String {
    match comparison.scales {
        (1, 1) => "1 scale".into(),
        (low, high) if low == high => format!("{low} scales"),
        (low, high) => format!("{low} to {high} scales, by the image's size"),
    }
}

fn chart(
    comparison: &Comparison,
    title: String,
    y_label: &str,
    rate: &dyn Fn(&Row) -> Option<f64>,
    quality: &dyn Fn(f64, f64) -> f64,
) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for row in &comparison.lossy {
        let Verdict::Close {
            squared_error,
            ms_ssim,
        } = row.verdict
        else {
            continue;
        };
        let Some(rate) = rate(row) else { continue };
        let point = (rate, quality(squared_error, ms_ssim));
        match series.iter_mut().find(|series| series.name == row.codec) {
            Some(series) => series.points.push(point),
            None => series.push(Series::new(row.codec.clone(), vec![point])),
        }
    }
    Chart {
        title,
        x_label: "bits a pixel".into(),
        y_label: y_label.into(),
        log_x: true,
        log_y: false,
        dots: true,
        series,
    }
}

/// Titles and cells of the table of lossless codecs.
pub fn lossless_table(comparison: &Comparison) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |row: &Row| {
        let equal = match row.verdict {
            Verdict::Equal(all) if all == comparison.images => "yes".into(),
            Verdict::Equal(some) => format!("{some} of {}", comparison.images),
            Verdict::Close { .. } => String::new(),
        };
        vec![
            row.codec.clone(),
            row.encoder.clone(),
            format!("{:.3}", comparison.bits_per_pixel(row)),
            format!("{:.3}", comparison.bits_per_sample(row)),
            header_cell(row),
            speed(comparison.samples, row.encode),
            speed(comparison.samples, row.decode),
            equal,
        ]
    };
    let titles = vec![
        "lossless",
        "encoder",
        "bits/pixel",
        "bits/sample",
        "header bytes/file",
        "write MB/s",
        "read MB/s",
        "came back",
    ];
    (titles, comparison.lossless.iter().map(row).collect())
}

/// Titles and cells of the table of lossy codecs.
pub fn lossy_table(comparison: &Comparison) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |row: &Row| {
        let (decibels, alike) = match row.verdict {
            Verdict::Close {
                squared_error,
                ms_ssim,
            } => (
                format!("{:.2}", quality::psnr(squared_error)),
                format!("{ms_ssim:.4}"),
            ),
            Verdict::Equal(_) => Default::default(),
        };
        let bare = comparison.bare_bits_per_pixel(row);
        vec![
            row.codec.clone(),
            row.encoder.clone(),
            row.setting.clone(),
            format!("{:.3}", comparison.bits_per_pixel(row)),
            bare.map_or("–".into(), |bits| format!("{bits:.3}")),
            header_cell(row),
            decibels,
            alike,
            speed(comparison.colours, row.encode),
            speed(comparison.colours, row.decode),
        ]
    };
    let titles = vec![
        "lossy",
        "encoder",
        "setting",
        "bits/pixel",
        "no header",
        "header bytes/file",
        "PSNR dB",
        "MS-SSIM",
        "write MB/s",
        "read MB/s",
    ];
    (titles, comparison.lossy.iter().map(row).collect())
}

fn header_cell(row: &Row) -> String {
    let each = |header: usize| header as f64 / row.size.files.max(1) as f64;
    row.size
        .header
        .map_or("–".into(), |h| format!("{:.0}", each(h)))
}

/// Megabytes of samples a second of one core.
fn speed(samples: usize, time: std::time::Duration) -> String {
    format!("{:.2}", samples as f64 / 1e6 / time.as_secs_f64().max(1e-9))
}

/// How the tables are to be read.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let by_model = (!comparison.lossless.is_empty()).then(|| {
        format!(
            "the model codes {} of {} images in one file for all; the others are smaller by plain prediction",
            comparison.by_model, comparison.images
        )
    });
    let mut notes = vec![format!(
        "speed is that of one core (time times the {} threads); other programs' includes their start and a PNG file",
        comparison.threads
    )];
    notes.extend(by_model);
    notes.push(format!(
        "PSNR is of the mean squared error of all colour samples; MS-SSIM is the mean over images, {}",
        scales(comparison)
    ));
    notes.extend(
        comparison
            .left_out
            .iter()
            .map(|left| format!("left out: {} ({})", left.name, left.why)),
    );
    notes
}

/// Words below a row of the figure.
pub fn caption(row: &Shown) -> String {
    match row.bytes {
        None => row.what.clone(),
        Some((bytes, coded)) => {
            let each = |bytes: usize| bytes as f64 / row.colours.len().max(1) as f64;
            format!(
                "{}: {:.0} bytes an image, {:.0} of them coded data",
                row.what,
                each(bytes),
                each(coded)
            )
        }
    }
}

/// Writes charts, pictures and the page to a folder; gives the files' paths.
pub fn write(
    dir: &Path,
    title: &str,
    comparison: &Comparison,
    drawn: Option<&Drawn>,
) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
    let mut paths = Vec::new();
    let charts = charts(comparison);
    let names = [
        "psnr.svg",
        "psnr-without-headers.svg",
        "ms-ssim.svg",
        "prefixes.svg",
    ];
    for (chart, name) in charts.iter().zip(names) {
        let path = dir.join(name);
        write_atomic(&path, |out| out.write_all(chart.to_svg().as_bytes()))?;
        paths.push(path);
    }
    let (titles, cells) = lossless_table(comparison);
    let mut page = Report::new(title);
    if !cells.is_empty() {
        page = page.heading("Without loss").table(&titles, &cells);
    }
    page = page.heading("With loss");
    for chart in &charts {
        page = page.chart(chart);
    }
    if let Some((rows, picture)) = drawn {
        let path = dir.join("pictures.png");
        picture.save(&path)?;
        paths.push(path);
        let captions: Vec<String> = rows.iter().map(caption).collect();
        page = page.figure(&Figure {
            picture,
            caption: format!("From above: {}.", captions.join("; ")),
            alt: "Images, what this codec keeps of them, and JPEG files of the same size".into(),
        })?;
    }
    let (titles, cells) = lossy_table(comparison);
    page = page.table(&titles, &cells);
    for note in notes(comparison) {
        page = page.paragraph(&capital(&note));
    }
    let path = dir.join("report.html");
    page.write(&path)?;
    paths.push(path);
    Ok(paths)
}

/// A note as a sentence.
fn capital(note: &str) -> String {
    let mut letters = note.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
