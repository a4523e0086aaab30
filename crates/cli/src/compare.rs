//! `rrvq codec eval`: the codec beside others, as tables, as JSON, as pictures.

use crate::args::CodecEval;
use crate::device::Compute;
use crate::launch::{together, with_others};
use crate::output::check_free;
use crate::terminal::{self, STOPPING, bar, line, table, watch_for_interrupts};
use rrvq::cluster::Cluster;
use rrvq::{Result, Trained, interrupt};
use rrvq_codec::CodingModel;
use rrvq_codec::lossy::Tiles;
use rrvq_study::compare::{
    Comparison, Contest, LeftOut, Prefix, Row, Verdict, figure, pages, quality, source,
};
use serde_json::{Value, json};
use std::path::PathBuf;

pub fn eval(args: &CodecEval) -> Result<()> {
    with_others(Compute::CPU, |_, cluster| eval_as(args, cluster))
}

fn eval_as(args: &CodecEval, cluster: Option<&Cluster>) -> Result<()> {
    let (collective, silent) = together(cluster);
    if let Some(dir) = &args.out {
        check_free(&dir.join("report.html"))?;
    }
    let trained = Trained::open(&args.run)?;
    let tiles = args.tile.map_or(Tiles::Suiting, Tiles::Side);
    tiles.check(&trained.config().model)?;
    let source = source::images(trained.config(), args.data.as_deref(), args.images)?;
    let (mut workers, identity) = trained.workers()?;
    watch_for_interrupts(STOPPING)?;
    let progress = bar("comparing", 0);
    let mut contest = Contest {
        workers: &mut workers,
        identity,
        images: &source.images,
        lossless: !args.lossy,
        lossy: !args.lossless,
        search: args.search,
        tiles,
        watch: &|images| progress.inc(images as u64),
        together: collective.as_deref(),
    };
    progress.set_length(contest.length() as u64);
    let compared = contest.run();
    let drawn = match (&compared, &args.out) {
        (Ok(_), Some(_)) if !silent => Some(figure::draw(&mut contest)),
        _ => None,
    };
    progress.finish_and_clear();
    interrupt::check()?;
    let mut comparison = compared?;
    if silent {
        return Ok(());
    }
    // A model that cannot show these images still has the rest to tell.
    let drawn = match drawn {
        Some(Ok(drawn)) => Some(drawn),
        Some(Err(why)) => {
            comparison.leave_out("pictures", why);
            None
        }
        None => None,
    };
    let title = format!("{} on {}", args.run.display(), source.what);
    let files = match &args.out {
        Some(dir) => pages::write(dir, &title, &comparison, drawn.as_ref())?,
        None => Vec::new(),
    };
    if args.json {
        terminal::json(&told(args, &source.what, &comparison, &files));
        return Ok(());
    }
    line(title);
    line("");
    if !args.lossy {
        let (titles, rows) = pages::lossless_table(&comparison);
        table(&titles, &rows);
        line("");
    }
    if !args.lossless {
        let (titles, rows) = pages::lossy_table(&comparison);
        table(&titles, &rows);
        line("");
    }
    pages::notes(&comparison).iter().for_each(line);
    files
        .iter()
        .for_each(|file| line(file.display().to_string()));
    Ok(())
}

fn told(args: &CodecEval, what: &str, comparison: &Comparison, files: &[PathBuf]) -> Value {
    let row = |row: &Row| {
        let mut told = json!({
            "codec": row.codec, "encoder": row.encoder, "setting": row.setting, "files": row.size.files, "bytes": row.size.bytes,
            "header_bytes": row.size.header, "bits_per_pixel": comparison.bits_per_pixel(row),
            "bits_per_sample": comparison.bits_per_sample(row),
            "encode_core_seconds": row.encode.as_secs_f64(), "decode_core_seconds": row.decode.as_secs_f64(),
        });
        match row.verdict {
            Verdict::Equal(images) => told["images_equal"] = json!(images),
            Verdict::Close {
                squared_error,
                ms_ssim,
            } => {
                told["squared_error"] = json!(squared_error);
                told["psnr"] = json!(quality::psnr(squared_error));
                told["ms_ssim"] = json!(ms_ssim);
            }
        }
        told
    };
    let rows = |rows: &[Row]| rows.iter().map(row).collect::<Vec<_>>();
    let missing = |left: &LeftOut| json!({"codec": left.name, "why": left.why});
    let prefix = |prefix: &Prefix| {
        json!({
            "share": prefix.share, "bits_per_pixel": prefix.bits_per_pixel,
            "psnr": quality::psnr(prefix.squared_error),
        })
    };
    json!({
        "run": args.run, "data": what, "images": comparison.images, "pixels": comparison.pixels,
        "samples": comparison.samples, "threads": comparison.threads,
        "ms_ssim_scales": [comparison.scales.0, comparison.scales.1],
        "lossless": rows(&comparison.lossless), "by_model": comparison.by_model,
        "lossy": rows(&comparison.lossy), "prefixes": comparison.prefixes.iter().map(prefix).collect::<Vec<_>>(),
        "left_out": comparison.left_out.iter().map(missing).collect::<Vec<_>>(), "files": files,
    })
}
