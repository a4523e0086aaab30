//! Maps of codes: what a discrete model makes of images, for another model to work on.

use crate::error::{Error, Result};
use crate::files::write_atomic;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The codes of some images, layer by layer, bottom first.
///
/// ```
/// use rrvq::{Codes, SampleOptions, Trained};
///
/// let model = Trained::open("built-in")?;
/// let images = model.sample(2, SampleOptions::default())?;
/// let codes = model.encode(&images)?;
/// let top = &codes.layers[8]; // 2 × 2 positions of each image
/// assert_eq!(top.of_images(0, 1).len(), top.positions());
///
/// // The prior draws what is missing below the two highest layers.
/// let filled: Codes = model.complete(&codes.top(2), SampleOptions::default())?;
/// assert_eq!(filled.layers[8], codes.layers[8]);
/// # Ok::<(), rrvq::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    /// How many images.
    pub images: usize,
    /// Of each layer. Where layers are missing, they are the lowest ones.
    pub layers: Vec<CodeMap>,
    /// The class of each image, where it is known.
    pub labels: Option<Vec<u32>>,
}

/// The codes of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMap {
    /// Counted from 0 at the bottom.
    pub layer: usize,
    /// Rows, and positions of a row.
    pub side: usize,
    /// How many codes there are.
    pub codes: usize,
    /// Image by image, row by row.
    pub values: Vec<u32>,
}

impl CodeMap {
    /// Positions of an image.
    pub fn positions(&self) -> usize {
        self.side * self.side
    }

    /// The codes of some images.
    pub fn of_images(&self, first: usize, count: usize) -> &[u32] {
        &self.values[first * self.positions()..][..count * self.positions()]
    }
}

impl Codes {
    /// The `count` topmost layers, for [`crate::Trained::complete`] to draw the others.
    pub fn top(&self, count: usize) -> Codes {
        let from = self.layers.len().saturating_sub(count);
        Codes {
            layers: self.layers[from..].to_vec(),
            ..self.clone()
        }
    }

    /// The codes of each image `times` over, for as many draws of what is missing.
    pub fn repeated(&self, times: usize) -> Codes {
        let layer = |map: &CodeMap| CodeMap {
            values: map
                .values
                .chunks(map.positions())
                .flat_map(|one| one.repeat(times))
                .collect(),
            ..map.clone()
        };
        let labels = self.labels.iter().flatten();
        let labels = labels.flat_map(|label| std::iter::repeat_n(*label, times));
        Codes {
            images: self.images * times,
            layers: self.layers.iter().map(layer).collect(),
            labels: self.labels.as_ref().map(|_| labels.collect()),
        }
    }

    /// Adds the codes of `count` images; each layer may have more, which are left out.
    pub(crate) fn append(&mut self, count: usize, found: Vec<Vec<u32>>) {
        self.images += count;
        for (map, values) in self.layers.iter_mut().zip(found) {
            let len = count * map.positions();
            map.values.extend_from_slice(&values[..len]);
        }
    }

    /// Refuses codes that are not those of a model whose codes have the shape of `model`.
    pub(crate) fn check_fits(&self, model: &Codes) -> Result<()> {
        let wrong = |said: String| Error::new(format!("these codes are not of this model: {said}"));
        let (has, wants) = (self.layers.len(), model.layers.len());
        if has > wants {
            return Err(wrong(format!(
                "they have {has} layers, the model has {wants}"
            )));
        }
        for (map, want) in self.layers.iter().zip(&model.layers[wants - has..]) {
            let number = want.layer + 1;
            if (map.layer, map.side) != (want.layer, want.side) {
                return Err(wrong(format!(
                    "layer {} of {}×{} stands where layer {number} of {}×{} is expected",
                    map.layer + 1,
                    map.side,
                    map.side,
                    want.side,
                    want.side
                )));
            }
            if map.values.len() != self.images * map.positions() {
                return Err(wrong(format!(
                    "layer {number} has {} codes where {} images have {}",
                    map.values.len(),
                    self.images,
                    self.images * map.positions()
                )));
            }
            if let Some(code) = map.values.iter().find(|&&code| code as usize >= want.codes) {
                return Err(wrong(format!(
                    "layer {number} holds code {code}, but has {} codes, counted from 0",
                    want.codes
                )));
            }
        }
        Ok(())
    }

    /// Writes the codes to a `.safetensors` file (tensors `layer.1`, `layer.2`, …, each [images, side, side], and
    /// `labels`), or, where the name ends in `.npy`, one such array a layer into `NAME.layer-01.npy` and so on.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let path = path.as_ref();
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => self.save_npy(path),
            Some("safetensors") => {
                let bytes = self.to_safetensors()?;
                write_atomic(path, |file| file.write_all(&bytes))?;
                Ok(vec![path.to_path_buf()])
            }
            _ => Err(Error::new(format!(
                "{} ends in neither .safetensors nor .npy; expected one of these for codes",
                path.display()
            ))),
        }
    }

    fn arrays(&self) -> Vec<(String, Vec<usize>, &[u32])> {
        let of_layer = |map: &CodeMap| [self.images, map.side, map.side].to_vec();
        let layers = self.layers.iter().map(|map| {
            let name = format!("layer.{}", map.layer + 1);
            (name, of_layer(map), map.values.as_slice())
        });
        let labels = self.labels.iter();
        let labels = labels.map(|l| ("labels".to_string(), vec![l.len()], l.as_slice()));
        layers.chain(labels).collect()
    }

    fn to_safetensors(&self) -> Result<Vec<u8>> {
        let failed =
            |e: safetensors::SafeTensorError| Error::new(format!("cannot write codes: {e}"));
        let arrays = self.arrays();
        let bytes: Vec<Vec<u8>> = arrays.iter().map(|(.., values)| le_bytes(values)).collect();
        let views: Result<Vec<_>> = arrays
            .iter()
            .zip(&bytes)
            .map(|((name, shape, _), bytes)| {
                let view = TensorView::new(Dtype::U32, shape.clone(), bytes);
                Ok((name.as_str(), view.map_err(failed)?))
            })
            .collect();
        let sizes = self.layers.iter();
        let sizes: HashMap<String, String> = sizes
            .map(|map| (format!("codes.{}", map.layer + 1), map.codes.to_string()))
            .collect();
        serialize(views?, Some(sizes)).map_err(failed)
    }

    fn save_npy(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for (name, shape, values) in self.arrays() {
            let suffix = match name.strip_prefix("layer.").map(str::parse::<usize>) {
                Some(Ok(layer)) => format!("layer-{layer:02}.npy"),
                _ => format!("{name}.npy"),
            };
            let file = path.with_extension(suffix);
            let bytes = npy(&shape, values);
            write_atomic(&file, |out| out.write_all(&bytes))?;
            written.push(file);
        }
        Ok(written)
    }

    /// Reads what [`Codes::save`] wrote to a `.safetensors` file.
    pub fn load(path: impl AsRef<Path>) -> Result<Codes> {
        let path = path.as_ref();
        let bytes = crate::limits::read_file(path)?;
        let wrong = |said: String| {
            let path = path.display();
            Error::new(format!(
                "{path} holds no codes: {said}; expected a file of `rrvq codes`"
            ))
        };
        let file = SafeTensors::deserialize(&bytes).map_err(|e| wrong(e.to_string()))?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| wrong(e.to_string()))?;
        let sizes = metadata.metadata().clone().unwrap_or_default();
        let mut codes = Codes {
            images: 0,
            layers: Vec::new(),
            labels: None,
        };
        let mut images = None;
        for (name, view) in file.tensors() {
            if view.dtype() != Dtype::U32 {
                return Err(wrong(format!("{name} is not of 32-bit whole numbers")));
            }
            let values = view.data().chunks_exact(4);
            let values: Vec<u32> = values
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let layer = name
                .strip_prefix("layer.")
                .and_then(|n| n.parse::<usize>().ok());
            match (layer, view.shape()) {
                (Some(layer @ 1..), &[count, side, width]) if side == width => {
                    let size = sizes.get(&format!("codes.{layer}"));
                    let Some(size) = size.and_then(|s| s.parse().ok()) else {
                        return Err(wrong(format!("it does not say how many codes {name} has")));
                    };
                    if *images.get_or_insert(count) != count {
                        return Err(wrong(
                            "its layers are of different numbers of images".into(),
                        ));
                    }
                    codes.layers.push(CodeMap {
                        layer: layer - 1,
                        side,
                        codes: size,
                        values,
                    });
                }
                (None, &[_]) if name == "labels" => codes.labels = Some(values),
                (_, shape) => return Err(wrong(format!("unexpected {name} of shape {shape:?}"))),
            }
        }
        codes.layers.sort_by_key(|map| map.layer);
        codes.images = images.ok_or_else(|| wrong("it has no layers".into()))?;
        Ok(codes)
    }
}

fn le_bytes(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// NumPy's format, version 1.0: a magic string, the length of a header, a Python dictionary, and the values.
fn npy(shape: &[usize], values: &[u32]) -> Vec<u8> {
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let header = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': ({sides}), }}");
    // The values begin at a multiple of 64 bytes, after a line feed.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded as u16).to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
    bytes.extend(le_bytes(values));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Codes {
        let map = |layer: usize, side: usize, codes: usize| CodeMap {
            layer,
            side,
            codes,
            values: (0..3 * side * side).map(|i| (i % codes) as u32).collect(),
        };
        Codes {
            images: 3,
            layers: vec![map(0, 4, 16), map(1, 2, 8)],
            labels: Some(vec![7, 0, 2]),
        }
    }

    #[test]
    fn codes_come_back_from_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("codes.safetensors");
        let codes = some();
        assert_eq!(codes.save(&path).unwrap(), std::slice::from_ref(&path));
        assert_eq!(Codes::load(&path).unwrap(), codes);
        std::fs::write(&path, b"nothing").unwrap();
        let said = Codes::load(&path).unwrap_err().to_string();
        assert!(said.contains("holds no codes"), "{said}");
        assert!(codes.save(folder.path().join("codes.txt")).is_err());
    }

    #[test]
    fn arrays_are_numpy_s() {
        let folder = tempfile::tempdir().unwrap();
        let written = some().save(folder.path().join("c.npy")).unwrap();
        let names = ["c.layer-01.npy", "c.layer-02.npy", "c.labels.npy"];
        assert_eq!(written, names.map(|n| folder.path().join(n)));
        let bytes = std::fs::read(&written[1]).unwrap();
        let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!((10 + header) % 64, 0);
        let text = String::from_utf8(bytes[10..10 + header].to_vec()).unwrap();
        assert!(
            text.contains("'shape': (3, 2, 2, )") && text.ends_with('\n'),
            "{text}"
        );
        assert_eq!(bytes.len(), 10 + header + 4 * 12);
    }

    #[test]
    fn codes_of_another_model_are_refused() {
        let model = some();
        model.check_fits(&model).unwrap();
        model.top(1).check_fits(&model).unwrap();
        let mut other = model.clone();
        other.layers[1].values[3] = 8;
        let said = other.check_fits(&model).unwrap_err().to_string();
        assert!(said.contains("layer 2 holds code 8"), "{said}");
        other = model.clone();
        other.layers[0].side = 2;
        assert!(other.check_fits(&model).is_err());
        let fewer = model.top(1);
        assert!(model.check_fits(&fewer).is_err());
    }

    #[test]
    fn each_image_is_repeated_before_the_next() {
        let map = CodeMap {
            layer: 1,
            side: 1,
            codes: 9,
            values: vec![3, 5],
        };
        let codes = Codes {
            images: 2,
            layers: vec![map],
            labels: Some(vec![8, 9]),
        };
        let twice = codes.repeated(2);
        assert_eq!((twice.images, twice.labels), (4, Some(vec![8, 8, 9, 9])));
        assert_eq!(twice.layers[0].values, [3, 3, 5, 5]);
    }
}
