//! What a page can ask.

use crate::view::{Plan, View};
use crate::{Answer, Error, Result};
use rrvq::picture::{Part, Picture};
use rrvq_codec::lossy::{self, Keep};
use rrvq_codec::{CodingModel, Image, compress, decompress_with};
use serde::Deserialize;
use serde_json::json;

/// A question; its bytes are those of the file it is about.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// Opens a packed model.
    Open {
        /// What to call it in messages.
        name: String,
    },
    /// The codes and the picture of a plan.
    Draw {
        /// Where each layer's codes come from.
        plan: Plan,
    },
    /// The likeliest codes at a position of the last picture.
    Prior {
        /// Counted from 0 at the bottom.
        layer: usize,
        /// Row by row.
        position: usize,
        /// How many codes to list.
        most: usize,
    },
    /// An image's codes, and what they cost, position by position.
    Encode {
        /// What the file is called.
        name: String,
    },
    /// An image as a `.rrvq` file.
    Compress {
        /// What the file is called.
        name: String,
        /// The layers to leave out; without it nothing is lost.
        drop: Option<usize>,
    },
    /// The images of a `.rrvq` file.
    Decompress {
        /// What the file is called.
        name: String,
    },
}

impl Ask {
    /// Answers with the model of a view.
    pub fn answer(&self, view: &mut View, bytes: &[u8]) -> Result<Answer> {
        match self {
            Ask::Open { .. } => view.describe(),
            Ask::Draw { plan } => view.draw(plan),
            Ask::Prior {
                layer,
                position,
                most,
            } => view.prior(*layer, *position, *most),
            Ask::Encode { name } => encode(view, name, bytes),
            Ask::Compress { name, drop } => pack(view, name, *drop, bytes),
            Ask::Decompress { name } => unpack(view, name, bytes),
        }
    }
}

fn encode(view: &mut View, name: &str, bytes: &[u8]) -> Result<Answer> {
    let config = &view.trained().config().model;
    let (size, channels) = (config.size, config.image_channels);
    let parts = Picture::cut(bytes, &name, &[Part::Centre], size, channels)?;
    let picture = parts.into_iter().next();
    view.encode(&picture.ok_or_else(|| Error::new("one part makes one picture"))?)
}

fn pack(view: &View, name: &str, drop: Option<usize>, bytes: &[u8]) -> Result<Answer> {
    let image = Image::from_file(name.as_ref(), bytes)?;
    let samples = image.bytes();
    let trained = view.trained();
    let (file, shown) = match drop {
        None => (compress(trained, &[image])?, None),
        Some(layers) => {
            let (mut workers, identity) = trained.workers()?;
            let options = lossy::Options {
                keep: Keep::Drop(layers),
                ..lossy::Options::default()
            };
            let mut made = lossy::encode(&mut workers, identity, &[image], &options)?;
            (made.bytes, made.parts.pop())
        }
    };
    let told = json!({
        "bytes": file.len(), "samples": samples,
        "squared_error": shown.map(|part| part.squared_error),
    });
    Ok(Answer::new(told, file))
}

fn unpack(view: &View, name: &str, file: &[u8]) -> Result<Answer> {
    let named = |said: Error| {
        Error::new(format!(
            "{name} cannot be decompressed: {said}; expected a whole file that was written with this model"
        ))
    };
    let images = decompress_with(file, view.trained());
    let (mut told, mut bytes) = (Vec::new(), Vec::new());
    for image in images.map_err(named)? {
        let png = image.to_png();
        told.push(json!({
            "name": image.name.to_string_lossy(), "width": image.width, "height": image.height, "png": png.len(),
        }));
        bytes.extend(png);
    }
    Ok(Answer::new(json!({ "images": told }), bytes))
}
