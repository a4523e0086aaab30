//! Compression in memory, for programs that have no files.

use super::{Coding, CodingModel, Image, Reader, Workers, Writer, built_in_of, lossy};
use rrvq::Trained;
use rrvq::error::{Error, Result};

/// The file that `rrvq compress` would write of these images with this model.
///
/// ```
/// use rrvq::Trained;
/// use rrvq_codec::{Image, compress, decompress};
///
/// let grey = Image::new("grey", 40, 30, vec![128; 40 * 30])?;
/// let model = Trained::open("tiles-2")?;
/// let file = compress(&model, std::slice::from_ref(&grey))?;
/// assert_eq!(decompress(&file, None)?, [grey]);
/// # Ok::<(), rrvq::Error>(())
/// ```
pub fn compress(model: &Trained, images: &[Image]) -> Result<Vec<u8>> {
    let (mut workers, identity) = model.workers()?;
    let mut file = Vec::new();
    let mut writer = Writer {
        workers: &mut workers,
        identity,
        coding: Coding::Smaller,
        check: true,
        watch: &|_| {},
    };
    writer.write(images.iter().cloned().map(Ok), images.len(), &mut file)?;
    Ok(file)
}

/// The file that `rrvq compress --lossy` would write of these images with this model; [`lossy::encode`] tells more about it.
///
/// ```
/// use rrvq::{Trained, models};
/// use rrvq_codec::{Image, compress_lossy, decompress, lossy::Options};
///
/// let grey = Image::new("grey", 90, 60, vec![128; 90 * 60])?;
/// let model = Trained::open(models::LOSSY[1])?; // medium quality
/// let file = compress_lossy(&model, &[grey], &Options::default())?;
/// let shown = decompress(&file, None)?;
/// assert_eq!((shown[0].width, shown[0].height), (90, 60));
/// # Ok::<(), rrvq::Error>(())
/// ```
pub fn compress_lossy(
    model: &Trained,
    images: &[Image],
    options: &lossy::Options,
) -> Result<Vec<u8>> {
    let (mut workers, identity) = model.workers()?;
    Ok(lossy::encode(&mut workers, identity, images, options)?.bytes)
}

/// The images of a file of either kind. Without a model, the built-in one that the file names is taken.
pub fn decompress(file: &[u8], model: Option<&Trained>) -> Result<Vec<Image>> {
    if let Some(model) = model {
        return decompress_with(file, model);
    }
    if lossy::is_lossy(file) {
        let header = lossy::Reader::new(file)?.header;
        let built_in = built_in_of(|identity| header.fits(identity))?;
        let missing = || {
            let model = header.model();
            Error::new(format!(
                "it was compressed with the model {model}, which is not built in; give that one"
            ))
        };
        return decompress_with(file, &built_in.ok_or_else(missing)?);
    }
    let wanted = Reader::new(&mut &*file)?.header.identity;
    let built_in = built_in_of(|identity| identity == wanted)?;
    let workers = built_in.map(|model| model.workers()).transpose()?;
    images(file, workers.map(|(workers, _)| workers))
}

/// The same with one model and no other: a program that never asks for the built-in ones does not contain them.
pub fn decompress_with(file: &[u8], model: &Trained) -> Result<Vec<Image>> {
    if lossy::is_lossy(file) {
        let (mut workers, identity) = model.workers()?;
        return lossy::decode(&mut workers, identity, file);
    }
    let wanted = Reader::new(&mut &*file)?.header.identity;
    let (workers, identity) = model.workers()?;
    if identity != wanted {
        return Err(Error::new(format!(
            "the file was compressed with the model {wanted}, and this one is {identity}; open the one it names"
        )));
    }
    images(file, Some(workers))
}

fn images(mut file: &[u8], mut workers: Option<Workers>) -> Result<Vec<Image>> {
    let mut reader = Reader::new(&mut file)?;
    let mut images = Vec::new();
    while let Some(outcomes) = reader.segment(workers.as_mut(), &|_| {})? {
        for outcome in outcomes {
            images.push(outcome.image?);
        }
    }
    Ok(images)
}
