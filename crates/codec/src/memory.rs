//! Lossless compression in memory, for programs that have no files.

use super::{Coding, CodingModel, Image, Reader, Writer, built_in_of};
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
    let mut input = file;
    let mut reader = Reader::new(&mut input)?;
    let wanted = reader.header.identity;
    let built_in = match model {
        Some(_) => None,
        None => built_in_of(|identity| identity == wanted)?,
    };
    let mut workers = match model.or(built_in.as_ref()) {
        None => None,
        Some(model) => {
            let (workers, identity) = model.workers()?;
            if identity != wanted {
                return Err(Error::new(format!(
                    "the file was compressed with the model {wanted}, and this one is {identity}; open the one it names"
                )));
            }
            Some(workers)
        }
    };
    let mut images = Vec::new();
    while let Some(outcomes) = reader.segment(workers.as_mut(), &|_| {})? {
        for outcome in outcomes {
            images.push(outcome.image?);
        }
    }
    Ok(images)
}
