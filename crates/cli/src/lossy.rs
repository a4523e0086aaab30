//! `rrvq compress --lossy`, and `rrvq decompress` of what it wrote.

use crate::args::{Compress, Decompress, PictureQuality};
use crate::codec::{Source, count, into, model, named, open, prepare, save, size, sizes};
use crate::output::{self, is_stream, tell, tell_json};
use crate::terminal::{bar, complain, grouped};
use rrvq::{Error, Result, Trained, interrupt, models};
use rrvq_codec::lossy::{Keep, Options, Reader, Summary, Tiles, Writer};
use rrvq_codec::{CodingModel, Image, built_in_of};
use serde_json::json;
use std::cell::{Cell, OnceCell};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The models that may write a file, with what to call them: the one that is named, or the built-in one of a quality; with a
/// budget of bits all of these, best first.
fn models(args: &Compress) -> Result<Vec<(Option<&'static str>, Trained)>> {
    let built_in = |quality: PictureQuality| {
        let name = models::LOSSY[quality as usize];
        Ok((Some(name), Trained::open(name)?))
    };
    let all = [
        PictureQuality::High,
        PictureQuality::Medium,
        PictureQuality::Low,
    ];
    match (&args.model, args.quality, args.bits) {
        (Some(named), ..) => Ok(vec![(None, Trained::open(named)?)]),
        (None, Some(quality), _) => Ok(vec![built_in(quality)?]),
        (None, None, None) => Ok(vec![built_in(PictureQuality::Medium)?]),
        (None, None, Some(_)) => all.into_iter().map(built_in).collect(),
    }
}

fn options(args: &Compress) -> Options {
    Options {
        keep: match (args.drop, args.bits) {
            (_, Some(bits)) => Keep::Bits(bits),
            (dropped, None) => Keep::Drop(dropped.unwrap_or(0)),
        },
        tiles: args.tile.map_or(Tiles::Suiting, Tiles::Side),
        search: args.search,
        bit_worth: args.bit_worth,
    }
}

/// The compressed file, in a sentence.
fn named_out(out: &Path) -> String {
    match is_stream(out) {
        true => "the compressed file".into(),
        false => out.display().to_string(),
    }
}

pub fn compress(args: &Compress) -> Result<()> {
    let start = Instant::now();
    let out = &args.out;
    let models = models(args)?;
    let progress = bar("compressing", 0);
    // Standard input can be read once, and several models may write.
    let (given, stdin) = (Cell::new(0), OnceCell::new());
    let open = |path: &PathBuf| -> Result<Image> {
        interrupt::check()?;
        let image = match (is_stream(path), stdin.get()) {
            (true, Some(image)) => Image::clone(image),
            _ => open(path, &given)?,
        };
        if is_stream(path) && models.len() > 1 {
            let _ = stdin.set(image.clone());
        }
        progress.inc_length(image.colour.len() as u64);
        Ok(image)
    };
    // With each model by itself: images are opened as they are needed, and the best file is kept.
    let with = |trained: &Trained, file: &mut dyn Write| -> Result<Summary> {
        let (mut workers, identity) = trained.workers()?;
        let mut writer = Writer {
            workers: &mut workers,
            identity,
            options: options(args),
            watch: &|samples| progress.inc(samples as u64),
        };
        writer.write(
            args.images.iter().map(open),
            args.images.len(),
            file,
            &mut |_| {},
        )
    };
    // Which model wrote, what, and from how many bytes of files.
    let written = output::write(out, |file| {
        if let [(_, one)] = &models[..] {
            return Ok((0, with(one, file)?, given.get()));
        }
        let (mut best, mut input) = (None, 0);
        for (which, (_, trained)) in models.iter().enumerate() {
            given.set(0);
            let mut bytes = Vec::new();
            let summary = with(trained, &mut bytes)?;
            input = input.max(given.get());
            let better =
                |(_, best, _): &(_, Summary, _)| summary.squared_error < best.squared_error;
            if best.as_ref().is_none_or(better) {
                best = Some((which, summary, bytes));
            }
        }
        let (which, summary, bytes) = best.unwrap_or_default();
        let failed = |error| Error::io("write", "the compressed file", error);
        file.write_all(&bytes).map_err(failed)?;
        Ok((which, summary, input))
    });
    progress.finish_and_clear();
    let (which, summary, given) = written?;
    let (name, trained) = &models[which];
    let identity = trained.identity()?;
    let layers = trained.config().model.layers();
    if let (Some(most), Some((_, dropped))) = (args.bits, summary.dropped)
        && dropped == layers
    {
        complain(format!(
            "{}: not one layer of codes of some images fits into {most} bits a pixel, so that nothing of them is kept; give --bits more",
            named_out(out)
        ));
    }
    if given > 0 && summary.bytes >= given {
        complain(format!(
            "{}: no smaller than the images were; --lossy is for photographs, without it drawings and text take less",
            named_out(out)
        ));
    }
    let seconds = start.elapsed().as_secs_f64();
    let bits = summary.bytes as f64 * 8.0 / summary.pixels as f64;
    let (least, most) = summary.dropped.unwrap_or_default();
    if args.json {
        let told = json!({
            "file": out, "images": summary.images, "pixels": summary.pixels, "samples": summary.samples,
            "input_bytes": given, "bytes": summary.bytes, "code_bytes": summary.codes, "alpha_bytes": summary.alpha,
            "bits_per_pixel": bits, "psnr": summary.psnr(), "dropped": [least, most],
            "model": format!("{identity:?}"), "built_in": name, "seconds": seconds,
        });
        tell_json(out, &told);
        return Ok(());
    }
    let header = summary.bytes - summary.codes - summary.alpha;
    let sizes = sizes(summary.images, given, summary.samples, summary.bytes);
    tell(
        out,
        format!("{sizes}, with loss, {bits:.3} bits a pixel ({seconds:.1} s)"),
    );
    let left_out = match (least, most) {
        (0, 0) => "all layers kept".to_string(),
        (a, b) if a == b => format!("{a} of {layers} layers left out"),
        (a, b) => format!("{a} to {b} of {layers} layers left out"),
    };
    let quality = match summary.psnr() {
        Some(psnr) => format!("{psnr:.2} dB (PSNR)"),
        None => "nothing lost".into(),
    };
    let header = size(header);
    let by = name.map_or(String::new(), |name| format!(", by {name}"));
    tell(
        out,
        format!(
            "{quality}, {header} around the codes, {left_out}{by}{}",
            named(out)
        ),
    );
    Ok(())
}

pub fn decompress(args: &Decompress, source: &Source<'_>) -> Result<()> {
    let file = &args.file;
    let bytes = source.bytes()?;
    let named = |said: Error| Error::new(format!("{}: {said}", file.display()));
    let mut reader = Reader::new(&bytes).map_err(named)?;
    let found = match &args.model {
        Some(_) => None,
        None => built_in_of(|identity| reader.header.fits(identity))?,
    };
    let trained = match found {
        Some(trained) => trained,
        None => model(args.model.as_deref())?,
    };
    let (mut workers, identity) = trained.workers()?;
    if !reader.header.fits(identity) {
        let wanted = reader.header.model();
        let known = match &args.model {
            Some(named) => format!("the one of {} is {identity}", named.display()),
            None => "none of the built-in ones is it".into(),
        };
        return Err(Error::new(format!(
            "{} was compressed with the model {wanted}, and {known}; name the run it was made with: --model RUN",
            file.display()
        )));
    }
    if !args.partial && !args.keep_going {
        let whole = Reader::new(&bytes).and_then(|r| r.check(&workers.model().config));
        whole.map_err(|said| {
            Error::new(format!(
                "{} is not whole: {said}; fetch it again, show what there is with --partial, or get the images that \
                 are whole with --keep-going",
                file.display()
            ))
        })?;
    }
    let announced = reader.header.images;
    prepare(args, announced)?;
    let progress = bar("decompressing", announced);
    let mut told = Told::default();
    loop {
        let outcomes = match reader.segment(&mut workers, &|_| {}) {
            Ok(Some(outcomes)) => outcomes,
            Ok(None) => break,
            // Images that were never listed are missing, too; without any list there is nothing to show.
            Err(said) if args.partial && told.done > 0 && reader.is_cut_off() => {
                told.missing.push(said.to_string());
                break;
            }
            Err(Error::Interrupted) => {
                told.lost.push("stopped before the end".into());
                break;
            }
            Err(said) => {
                told.lost.push(said.to_string());
                break;
            }
        };
        for outcome in outcomes {
            progress.inc(1);
            let missing = outcome.missing();
            let name = outcome.name.display();
            if let Some(missing) = missing {
                let said = format!("{name}: {missing}");
                let list = match args.partial && !outcome.damaged {
                    true => &mut told.missing,
                    false => &mut told.lost,
                };
                list.push(said);
                if !args.partial {
                    continue;
                }
            }
            match outcome.image.and_then(|image| save(args, &image)) {
                Ok(()) => told.done += 1,
                Err(said) => told.lost.push(format!("{name}: {said}")),
            }
        }
    }
    if told.lost.is_empty() && told.missing.is_empty() {
        reader.end().map_err(named)?;
    }
    progress.finish_and_clear();
    told.say(args, announced)
}

/// What became of a file's images.
#[derive(Default)]
struct Told {
    done: usize,
    /// What a cut file lacks, and its pictures without it.
    missing: Vec<String>,
    /// What is wrong.
    lost: Vec<String>,
}

impl Told {
    fn say(self, args: &Decompress, announced: usize) -> Result<()> {
        if args.json {
            let told = json!({
                "file": args.file, "images": self.done, "announced": announced,
                "missing": self.missing, "lost": self.lost,
            });
            tell_json(&args.out, &told);
        } else {
            let shown = match self.done == announced {
                true => count(announced),
                false => format!("{} of {}", grouped(self.done), count(announced)),
            };
            tell(&args.out, format!("{shown}{}", into(&args.out)));
        }
        let file = args.file.display();
        if let Some((first, others)) = self.missing.split_first() {
            let more = match others.len() {
                0 => String::new(),
                1 => format!("; {}", others[0]),
                more => format!("; and {} more", grouped(more)),
            };
            complain(format!("{file} is cut off; {first}{more}"));
        }
        match self.lost.split_last() {
            None => Ok(()),
            Some((last, others)) => {
                others.iter().for_each(complain);
                Err(Error::new(format!(
                    "{file}: {last}; {} of {} images could be had",
                    grouped(self.done),
                    grouped(announced)
                )))
            }
        }
    }
}
