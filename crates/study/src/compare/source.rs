//! The images to compare on: test images of a data set, or the files of a folder as they are.

use rrvq::config::{Config, DataConfig};
use rrvq::dataset::Split;
use rrvq::error::{Error, Result};
use rrvq_codec::Image;
use std::path::Path;

/// Images, and what they are, in words.
pub struct Source {
    pub images: Vec<Image>,
    pub what: String,
}

/// The first `most` test images (0: all) of the data set in `dir`, or of the one a model was trained on. A folder of image
/// files is taken file by file, each whole and of its own size.
pub fn images(config: &Config, dir: Option<&Path>, most: usize) -> Result<Source> {
    let most = if most == 0 { usize::MAX } else { most };
    let data = match dir {
        None => config.data.clone(),
        Some(dir) => {
            let name = rrvq_data::kind_in(dir)?;
            if name == "folder" {
                return files(dir, most);
            }
            DataConfig {
                name: name.into(),
                dir: Some(dir.into()),
                ..DataConfig::default()
            }
        }
    };
    let model = &config.model;
    let set = rrvq_data::open(&data, model.size, model.image_channels, &mut |_, _| {})?;
    let [height, width, channels] = set.shape();
    let one = |number: usize| {
        let mut colour = vec![0; height * width * channels];
        set.read(Split::Test, number, &mut colour);
        Image::new(&number.to_string(), width, height, colour)
    };
    let count = most.min(set.len(Split::Test));
    Ok(Source {
        images: (0..count).map(one).collect::<Result<_>>()?,
        what: format!("the first {count} test images of {}", set.name()),
    })
}

fn files(dir: &Path, most: usize) -> Result<Source> {
    let mut paths = rrvq_data::image_files(dir)?;
    paths.truncate(most);
    let open = |path| {
        Ok(Image {
            profile: Vec::new(),
            orientation: 1,
            metadata: Vec::new(),
            ..Image::open(path)?
        })
    };
    let images: Vec<Image> = paths.iter().map(open).collect::<Result<_>>()?;
    if images.is_empty() {
        let dir = dir.display();
        return Err(Error::new(format!("{dir} has no images to compare on")));
    }
    Ok(Source {
        what: format!("{} images of {}", images.len(), dir.display()),
        images,
    })
}
