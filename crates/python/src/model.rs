//! A trained model.

use crate::arrays::{self, Batch};
use crate::work::{compute, follow};
use crate::{Error, told};
use numpy::{
    IntoPyArray, PyArray3, PyArray4, PyArrayDyn, PyArrayMethods, PyReadonlyArray3, PyReadonlyArray4,
};
use pyo3::prelude::*;
use rrvq::dataset::Images;
use rrvq::evaluate::{Extent, importance_bound};
use rrvq::picture::Picture;
use rrvq::{Codes, SampleOptions, Split, Trained};
use std::path::PathBuf;

/// Images an importance bound works on at once.
const BATCH: usize = 64;

/// Maps of codes, and the class of each image.
type Tokens<'py> = (Vec<Bound<'py, PyArray3<i32>>>, Option<Vec<u32>>);

#[pyclass(frozen, module = "rrvq._native")]
pub struct Model {
    pub trained: Trained,
}

#[pymethods]
impl Model {
    #[new]
    fn open(py: Python<'_>, name: PathBuf, device: &str) -> PyResult<Model> {
        let device = arrays::device(device)?;
        let trained = compute(py, || Ok(Trained::open(&name)?.on(device)))?;
        Ok(Model { trained })
    }

    /// All settings, as JSON.
    #[getter]
    fn config(&self) -> PyResult<String> {
        json(self.trained.config())
    }

    #[getter]
    fn step(&self) -> u64 {
        self.trained.step()
    }

    #[getter]
    fn run(&self) -> Option<PathBuf> {
        self.trained.run().map(|run| run.dir().to_path_buf())
    }

    #[getter]
    fn parameters(&self) -> usize {
        self.trained.model().layout.count()
    }

    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        let config = &self.trained.config().model;
        (config.size, config.size, config.image_channels)
    }

    #[getter]
    fn layers(&self) -> Vec<(usize, Option<usize>)> {
        arrays::layers(&self.trained)
    }

    /// What the last convolution of each residual block is multiplied by.
    #[getter]
    fn block_factor(&self) -> f64 {
        self.trained.config().model.block_factor()
    }

    /// Parameters by name.
    fn tensors<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(String, Bound<'py, PyArrayDyn<f32>>)>> {
        let layout = &self.trained.model().layout;
        let tensors = layout.tensors(self.trained.theta(), "").into_iter();
        tensors
            .map(|(name, shape, values)| {
                Ok((name, values.to_vec().into_pyarray(py).reshape(shape)?))
            })
            .collect()
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        images: PyReadonlyArray4<'py, u8>,
    ) -> PyResult<Vec<Bound<'py, PyArray3<i32>>>> {
        let batch = self.batch(&images)?;
        let codes = compute(py, || self.trained.encode_bytes(&batch.bytes))?;
        arrays::maps(py, codes)
    }

    fn decode<'py>(
        &self,
        py: Python<'py>,
        maps: Vec<PyReadonlyArray3<'py, i32>>,
    ) -> PyResult<Bound<'py, PyArray4<u8>>> {
        let codes = arrays::codes(&self.trained, &maps)?;
        let pictures = compute(py, || self.trained.decode(&codes))?;
        arrays::images(py, self.shape().into(), &pictures)
    }

    fn means<'py>(
        &self,
        py: Python<'py>,
        maps: Vec<PyReadonlyArray3<'py, i32>>,
    ) -> PyResult<Bound<'py, PyArray4<f32>>> {
        let codes = arrays::codes(&self.trained, &maps)?;
        let means = compute(py, || self.trained.decode_means(&codes))?;
        let (height, width, channels) = self.shape();
        let shape = [codes.images, height, width, channels];
        means.into_pyarray(py).reshape(shape)
    }

    fn complete<'py>(
        &self,
        py: Python<'py>,
        maps: Vec<PyReadonlyArray3<'py, i32>>,
        seed: u64,
        temperature: f32,
    ) -> PyResult<Vec<Bound<'py, PyArray3<i32>>>> {
        let codes = arrays::codes(&self.trained, &maps)?;
        let options = SampleOptions {
            seed,
            temperature,
            ..SampleOptions::default()
        };
        arrays::maps(py, compute(py, || self.trained.complete(&codes, options))?)
    }

    fn sample<'py>(
        &self,
        py: Python<'py>,
        count: usize,
        seed: u64,
        temperature: f32,
        pixels: Option<&str>,
        min_p: f32,
    ) -> PyResult<Bound<'py, PyArray4<u8>>> {
        let trained = &self.trained;
        let pixels = pixels.map(str::parse).transpose().map_err(told)?;
        let options = SampleOptions {
            seed,
            temperature,
            pixels,
            min_p,
        };
        let pictures = compute(py, || match trained.prior()? {
            None => trained.sample(count, options),
            Some(mut prior) => {
                let mut store = trained.store();
                prior.check(&store)?;
                let model = (trained.model(), &mut store);
                let device = trained.device();
                prior.samples(device, model, count, options, None, &mut |_| {})
            }
        })?;
        arrays::images(py, self.shape().into(), &pictures)
    }

    /// The way from the first of two images to the second through their codes.
    fn interpolate<'py>(
        &self,
        py: Python<'py>,
        ends: PyReadonlyArray4<'py, u8>,
        count: usize,
        fill: bool,
    ) -> PyResult<Bound<'py, PyArray4<u8>>> {
        let batch = self.batch(&ends)?;
        let way = compute(py, || {
            let ends = Picture::batch(batch.shape, &batch.bytes)?;
            let [first, second] = ends.as_slice() else {
                return Err(rrvq::Error::new(format!(
                    "{} images are given; a way has two ends",
                    ends.len()
                )));
            };
            self.trained.interpolate(first, second, count, fill)
        })?;
        arrays::images(py, self.shape().into(), &way)
    }

    /// The record of an evaluation as JSON, and the importance bound where more than one sample is asked for.
    fn evaluate(
        &self,
        py: Python<'_>,
        images: PyReadonlyArray4<'_, u8>,
        samples: usize,
    ) -> PyResult<(String, Option<f64>)> {
        let batch = self.batch(&images)?;
        let data = Images {
            name: "of this array".into(),
            shape: batch.shape,
            train: Vec::new(),
            test: batch.bytes,
            flip: false,
        };
        let extent = Extent {
            split: Split::Test,
            images: 0,
        };
        let trained = &self.trained;
        let (record, bound) = compute(py, || {
            let record = trained.evaluate(&data, extent)?;
            if samples <= 1 {
                return Ok((record, None));
            }
            let (device, model) = (trained.device(), trained.model());
            let mut store = trained.store();
            let bound = importance_bound(
                device,
                model,
                &mut store,
                &data,
                extent,
                (BATCH, None),
                samples,
            )?;
            Ok((record, Some(bound)))
        })?;
        Ok((json(&record)?, bound))
    }

    /// The codes of a data set's images, and their labels; `listen` is told how many of how many are done.
    fn encode_data<'py>(
        &self,
        py: Python<'py>,
        folder: Option<PathBuf>,
        split: &str,
        most: usize,
        listen: Bound<'py, PyAny>,
    ) -> PyResult<Tokens<'py>> {
        let split: Split = split.parse().map_err(told)?;
        let mut config = self.trained.config().clone();
        if folder.is_some() {
            config.data.dir = folder;
        }
        let mut codes = follow(
            py,
            |reports, interrupt| {
                interrupt.scope(|| {
                    let data = rrvq_data::open_for(&config)?;
                    let watch = |done, total| reports.send((done, total));
                    self.trained.encode_data(data.as_ref(), split, most, watch)
                })
            },
            |_, done: (usize, usize)| listen.call1(done).map(|_| ()),
        )?;
        let labels = codes.labels.take();
        Ok((arrays::maps(py, codes)?, labels))
    }

    /// Writes maps of codes as the program does, to a file that it reads.
    fn save_codes(
        &self,
        py: Python<'_>,
        path: PathBuf,
        maps: Vec<PyReadonlyArray3<'_, i32>>,
        labels: Option<Vec<u32>>,
    ) -> PyResult<()> {
        let codes = arrays::codes(&self.trained, &maps)?;
        let codes = Codes { labels, ..codes };
        compute(py, || codes.save(&path)).map(|_| ())
    }

    /// Writes the model as a packed file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        compute(py, || self.trained.save(&path))
    }
}

impl Model {
    /// Images that the model can take.
    fn batch(&self, images: &PyReadonlyArray4<'_, u8>) -> PyResult<Batch> {
        let batch = Batch::of(images)?;
        let (height, width, channels) = self.shape();
        let [h, w, c] = batch.shape;
        match batch.shape == [height, width, channels] && batch.count > 0 {
            true => Ok(batch),
            false => Err(Error::new_err(format!(
                "there are {} images of {h}×{w}×{c}; the model takes one or more of {height}×{width}×{channels}, so \
                 resize or crop them first",
                batch.count
            ))),
        }
    }
}

/// Anything as JSON, which Python reads.
pub fn json<T: serde::Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new_err(format!("cannot write JSON: {error}")))
}
