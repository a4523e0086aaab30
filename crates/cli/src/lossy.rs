//! `rrvq compress --lossy`, and `rrvq decompress` of what it wrote.

use crate::args::{Compress, Decompress};
use crate::codec::{Source, count, into, model, named, open, prepare, save, size, sizes};
use crate::output::{self, tell, tell_json};
use crate::terminal::{bar, complain, grouped};
use rrvq::{Error, Result};
use rrvq_codec::lossy::{Keep, Options, Reader, Writer};
use rrvq_codec::{CodingModel, Identity, Image, Workers, built_in_of};
use serde_json::json;
use std::cell::Cell;
use std::time::Instant;

pub fn compress(args: &Compress, mut workers: Workers, identity: Identity) -> Result<()> {
    let start = Instant::now();
    let out = &args.out;
    let progress = bar("compressing", 0);
    let mut writer = Writer {
        workers: &mut workers,
        identity,
        options: Options {
            keep: match (args.drop, args.bits) {
                (_, Some(bits)) => Keep::Bits(bits),
                (dropped, None) => Keep::Drop(dropped.unwrap_or(0)),
            },
            search: args.search,
            bit_worth: args.bit_worth,
        },
        watch: &|samples| progress.inc(samples as u64),
    };
    let opened = |image: &Image| progress.inc_length(image.colour.len() as u64);
    let given = Cell::new(0);
    let images = args
        .images
        .iter()
        .map(|path| open(path, &given).inspect(opened));
    let summary = output::write(out, |file| {
        writer.write(images, args.images.len(), file, &mut |_| {})
    });
    progress.finish_and_clear();
    let summary = summary?;
    let seconds = start.elapsed().as_secs_f64();
    let bits = summary.bytes as f64 * 8.0 / summary.pixels as f64;
    let (least, most) = summary.dropped.unwrap_or_default();
    if args.json {
        let told = json!({
            "file": out, "images": summary.images, "pixels": summary.pixels, "samples": summary.samples,
            "input_bytes": given.get(), "bytes": summary.bytes, "code_bytes": summary.codes, "alpha_bytes": summary.alpha,
            "bits_per_pixel": bits, "psnr": summary.psnr(), "dropped": [least, most],
            "model": format!("{identity:?}"), "seconds": seconds,
        });
        tell_json(out, &told);
        return Ok(());
    }
    let header = summary.bytes - summary.codes - summary.alpha;
    let sizes = sizes(summary.images, given.get(), summary.samples, summary.bytes);
    tell(
        out,
        format!("{sizes}, with loss, {bits:.3} bits a pixel ({seconds:.1} s)"),
    );
    let layers = workers.model().config.layers();
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
    tell(
        out,
        format!(
            "{quality}, {header} around the codes, {left_out}{}",
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
        let digits: String = reader.header.identity.map(|b| format!("{b:02x}")).concat();
        return Err(Error::new(format!(
            "{} was compressed with the model {digits}, and the one {} is {identity}; name the run it was made with: --model RUN",
            file.display(),
            if args.model.is_some() {
                "named"
            } else {
                "built in"
            },
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
            Err(said) if args.partial && told.done > 0 && said != Error::Interrupted => {
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
            tell(
                &args.out,
                format!("{}{}", count(self.done), into(&args.out)),
            );
        }
        let file = args.file.display();
        if let Some((first, others)) = self.missing.split_first() {
            let more = match others.len() {
                0 => String::new(),
                more => format!(", and {} more are not whole", grouped(more)),
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
