//! Between NumPy's arrays and what the library takes. The Python part hands over C-contiguous arrays of the right type.

use crate::work::compute;
use crate::{Error, told};
use numpy::{IntoPyArray, PyArray3, PyArray4, PyArrayMethods, PyReadonlyArray3, PyReadonlyArray4};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rrvq::picture::{Picture, comfortable_scale, grid};
use rrvq::{CodeMap, Codes, Trained, latent};

/// A batch of images, copied: another thread of Python may write to the array while the interpreter is released.
pub struct Batch {
    pub count: usize,
    pub shape: [usize; 3],
    pub bytes: Vec<u8>,
}

impl Batch {
    pub fn of(images: &PyReadonlyArray4<'_, u8>) -> PyResult<Batch> {
        let &[count, height, width, channels] = images.as_array().shape() else {
            return Err(Error::new_err("images need four axes"));
        };
        Ok(Batch {
            count,
            shape: [height, width, channels],
            bytes: images.as_slice()?.to_vec(),
        })
    }

    pub fn pictures(&self) -> rrvq::Result<Vec<Picture>> {
        Picture::batch(self.shape, &self.bytes)
    }
}

/// Pictures of one shape as [n, h, w, c].
pub fn images<'py>(
    py: Python<'py>,
    shape: [usize; 3],
    pictures: &[Picture],
) -> PyResult<Bound<'py, PyArray4<u8>>> {
    let bytes: Vec<u8> = pictures.iter().flat_map(|p| p.pixels()).copied().collect();
    let [height, width, channels] = shape;
    bytes
        .into_pyarray(py)
        .reshape([pictures.len(), height, width, channels])
}

/// Maps of codes as [n, side, side], bottom first.
pub fn maps<'py>(py: Python<'py>, codes: Codes) -> PyResult<Vec<Bound<'py, PyArray3<i32>>>> {
    let map = |map: CodeMap| {
        let values: Vec<i32> = map.values.iter().map(|&code| code as i32).collect();
        let shape = [codes.images, map.side, map.side];
        values.into_pyarray(py).reshape(shape)
    };
    codes.layers.into_iter().map(map).collect()
}

/// Such maps as the codes of a model's top layers.
pub fn codes(trained: &Trained, maps: &[PyReadonlyArray3<'_, i32>]) -> PyResult<Codes> {
    let config = &trained.config().model;
    let images = maps.first().map_or(0, |map| map.as_array().shape()[0]);
    let missing = config.layers().checked_sub(maps.len());
    let Some(missing) = missing.filter(|_| !maps.is_empty()) else {
        return Err(Error::new_err(format!(
            "there are {} maps of codes; expected those of all {} layers, or of the topmost few, bottom first",
            maps.len(),
            config.layers()
        )));
    };
    let layer = |(i, map): (usize, &PyReadonlyArray3<'_, i32>)| {
        let (layer, shape) = (missing + i, map.as_array().shape().to_vec());
        if shape[1] != shape[2] || shape[0] != images {
            return Err(Error::new_err(format!(
                "the codes of layer {} have the shape {shape:?}; expected [{images}, side, side], as encode gives them",
                layer + 1
            )));
        }
        let values = map.as_slice()?.iter();
        let values: Result<Vec<u32>, i32> = values
            .map(|&code| u32::try_from(code).map_err(|_| code))
            .collect();
        Ok(CodeMap {
            layer,
            side: shape[1],
            codes: latent::codes(config, layer).unwrap_or(0),
            values: values.map_err(|code| {
                let number = layer + 1;
                Error::new_err(format!(
                    "layer {number} holds code {code}; codes are counted from 0"
                ))
            })?,
        })
    };
    Ok(Codes {
        images,
        layers: maps
            .iter()
            .enumerate()
            .map(layer)
            .collect::<PyResult<_>>()?,
        labels: None,
    })
}

/// Images side by side, as the bytes of a PNG file.
#[pyfunction]
#[pyo3(signature = (images, columns, scale=None))]
pub fn sheet<'py>(
    py: Python<'py>,
    images: PyReadonlyArray4<'py, u8>,
    columns: usize,
    scale: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let batch = Batch::of(&images)?;
    let scale = scale.unwrap_or_else(|| comfortable_scale(batch.shape[0]));
    let png = compute(py, || {
        grid(&batch.pictures()?, columns.max(1), 2, scale.max(1))?.to_png()
    });
    Ok(PyBytes::new(py, &png?))
}

/// The side, and the number of codes, of each layer; none where latents are no codes.
pub fn layers(trained: &Trained) -> Vec<(usize, Option<usize>)> {
    let config = &trained.config().model;
    let sides = config.sides().into_iter().enumerate();
    sides
        .map(|(layer, side)| (side, latent::codes(config, layer)))
        .collect()
}

/// A device by its name.
pub fn device(name: &str) -> PyResult<rrvq::Device> {
    let open = |name: rrvq::device::DeviceName| name.open(None);
    name.parse().and_then(open).map_err(|error| {
        told(rrvq::Error::new(format!(
            "device {name:?} cannot be used: {error}; device=\"cpu\" works everywhere"
        )))
    })
}
