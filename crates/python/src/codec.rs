//! Compression in memory.

use crate::Error;
use crate::model::Model;
use crate::work::compute;
use numpy::{IntoPyArray, PyArray3, PyArrayMethods, PyReadonlyArray3};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rrvq::{Trained, models};
use rrvq_codec::Image;
use rrvq_codec::lossy::Options;

/// The bytes of a `.rrvq` file of images, [h, w, 1 or 3] each; with loss where a quality is given, 0 to 2, which a model of
/// one's own has no choice of.
#[pyfunction]
pub fn compress<'py>(
    py: Python<'py>,
    images: Vec<PyReadonlyArray3<'py, u8>>,
    model: Option<&Model>,
    quality: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let image = |(i, array): (usize, &PyReadonlyArray3<'_, u8>)| {
        let shape = array.as_array().shape().to_vec();
        let (name, samples) = (format!("{:06}", i + 1), array.as_slice()?.to_vec());
        Image::new(&name, shape[1], shape[0], samples).map_err(crate::told)
    };
    let images: Vec<Image> = images
        .iter()
        .enumerate()
        .map(image)
        .collect::<PyResult<_>>()?;
    let file = compute(py, || {
        let built_in;
        let trained = match model {
            Some(model) => &model.trained,
            None => {
                let name = quality.map_or(models::DEFAULT, |quality| models::LOSSY[quality.min(2)]);
                built_in = Trained::open(name)?;
                &built_in
            }
        };
        match quality {
            None => rrvq_codec::compress(trained, &images),
            Some(_) => rrvq_codec::compress_lossy(trained, &images, &Options::default()),
        }
    })?;
    Ok(PyBytes::new(py, &file))
}

/// The images of such a file, transparency as a last channel where there is some.
#[pyfunction]
pub fn decompress<'py>(
    py: Python<'py>,
    file: Vec<u8>,
    model: Option<&Model>,
) -> PyResult<Vec<Bound<'py, PyArray3<u8>>>> {
    let trained = model.map(|model| &model.trained);
    let images = compute(py, || {
        rrvq_codec::decompress(&file, trained)
            .map_err(|error| rrvq::Error::new(format!("cannot decompress these bytes: {error}")))
    })?;
    let array = |image: Image| {
        if image.alpha.is_some() {
            return Err(Error::new_err(format!(
                "image {:?} has transparency, which an array of colours cannot hold; use `rrvq decompress`",
                image.name
            )));
        }
        let shape = [image.height, image.width, image.channels()];
        image.colour.into_pyarray(py).reshape(shape)
    };
    images.into_iter().map(array).collect()
}
