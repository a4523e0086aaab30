//! Lossless compression in memory, for programs that have no files.

use super::{Coding, CodingModel, Image, Reader, Workers, Writer, built_in_of};
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

/// The images of such a file. Without a model, the built-in one that the file names is taken.
pub fn decompress(file: &[u8], model: Option<&Trained>) -> Result<Vec<Image>> {
    if let Some(model) = model {
        return decompress_with(file, model);
    }
    let wanted = Reader::new(&mut &*file)?.header.identity;
    let built_in = built_in_of(|identity| identity == wanted)?;
    let workers = built_in.map(|model| model.workers()).transpose()?;
    images(file, workers.map(|(workers, _)| workers))
}

/// The same with one model and no other: a program that never asks for the built-in ones does not contain them.
pub fn decompress_with(file: &[u8], model: &Trained) -> Result<Vec<Image>> {
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
