//! `rrvq codes` and `rrvq decode`: images to integer maps and back. `rrvq models`: what is built in.

use crate::args;
use crate::commands::{check_min_p, check_temperature, columns, open_data, save_sheet};
use crate::output::check_free;
use crate::terminal::{bar, line, note};
use rrvq::models;
use rrvq::picture::Picture;
use rrvq::{Codes, Error, PixelValues, Result, SampleOptions, Split, Trained};
use std::path::Path;

pub fn codes(args: &args::Codes) -> Result<()> {
    check_free(&args.out)?;
    check_free(&args.out.with_extension("layer-01.npy"))?;
    let mut trained = Trained::open(&args.run)?.on(args.compute.open()?);
    let codes = match &args.data {
        None => {
            let model = &trained.config().model;
            let (size, channels) = (model.size, model.image_channels);
            let load = |path| Picture::load(path, size, channels);
            let images: Result<Vec<Picture>> = args.images.iter().map(load).collect();
            trained.encode(&images?)?
        }
        Some(dir) => {
            let split: Split = args.split.parse()?;
            trained.config_mut().data.dir = Some(dir.clone());
            of_data(&trained, split, args.count)?
        }
    };
    let written = codes.save(&args.out)?;
    let files: Vec<String> = written.iter().map(|f| f.display().to_string()).collect();
    let labels = codes.labels.as_ref().map_or("", |_| ", with labels");
    note(format!(
        "codes of {} in {} layers{labels}: {}",
        crate::codec::count(codes.images),
        codes.layers.len(),
        files.join(", ")
    ));
    Ok(())
}

fn of_data(trained: &Trained, split: Split, most: usize) -> Result<Codes> {
    let data = open_data(trained.config())?;
    let mut shown = None;
    let codes = trained.encode_data(data.as_ref(), split, most, |done, total| {
        let bar = shown.get_or_insert_with(|| bar("encoding", total));
        bar.set_position(done as u64);
    });
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    codes
}

pub fn decode(args: &args::Decode) -> Result<()> {
    let trained = Trained::open(&args.run)?.on(args.compute.open()?);
    check_temperature(args.temperature)?;
    check_free(&args.out)?;
    check_free(&args.out.join("000001.png"))?;
    let mut codes = Codes::load(&args.codes)?;
    if let Some(top) = args.top {
        codes = codes.top(top);
    }
    let options = SampleOptions {
        seed: args.seed,
        temperature: args.temperature,
        pixels: args.pixels.or(Some(PixelValues::Means)),
        min_p: args.min_p,
    };
    check_min_p(&options, &trained)?;
    let pictures = trained.show(&codes, options)?;
    let size = trained.config().model.size;
    if args.out.extension().is_some_and(|e| e == "png") {
        save_sheet(&args.out, &pictures, columns(pictures.len()), size)?;
    } else {
        save_each(&args.out, &pictures)?;
    }
    note(format!(
        "{} pictures: {}",
        pictures.len(),
        args.out.display()
    ));
    Ok(())
}

fn save_each(folder: &Path, pictures: &[Picture]) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
    for (i, picture) in pictures.iter().enumerate() {
        picture.save(folder.join(format!("{:06}.png", i + 1)))?;
    }
    Ok(())
}

pub fn models(args: &args::Models) -> Result<()> {
    let Some(name) = &args.name else {
        let width = models::BUILT_IN.iter().map(|m| m.name.len()).max();
        for model in models::BUILT_IN {
            let width = width.unwrap_or(0);
            line(format!("{:width$}  {}", model.name, model.about));
        }
        return Ok(());
    };
    match models::find(name) {
        Some(model) => line(model.card.trim_end()),
        None => {
            let names: Vec<&str> = models::BUILT_IN.iter().map(|m| m.name).collect();
            return Err(Error::new(format!(
                "there is no built-in model {name:?}; there are {}",
                names.join(", ")
            )));
        }
    }
    Ok(())
}
