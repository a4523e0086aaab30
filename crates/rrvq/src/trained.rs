//! A trained model, wherever it comes from: images to codes, codes to images, samples, bits per dim.

use crate::codes::{CodeMap, Codes};
use crate::config::{Config, ModelConfig};
use crate::dataset::{Dataset, Split};
use crate::error::{Error, Result};
use crate::evaluate::{EvalRecord, Evaluator, Extent};
use crate::files::write_atomic;
use crate::interrupt;
use crate::latent;
use crate::likelihood::{self, PixelValues};
use crate::models;
use crate::picture::Picture;
use crate::prior::{self, Prior};
use crate::programs::{Decoder, Encoder, Model};
use crate::run::Run;
use crate::sample::{bytes_of, reconstructions, samples};
use crate::weights::load_weights;
use rrvq_tensor::params::{from_safetensors, to_safetensors_bf16};
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Collective, Device, Store};
use std::collections::BTreeMap;
use std::path::Path;

/// Images a program works on at once.
const BATCH: usize = 64;

/// Images of a data set that are read at once.
const READ: usize = 512;

/// A tensor by its name, with its shape.
pub type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// A model with its weights.
///
/// ```
/// use rrvq::{SampleOptions, Trained};
///
/// let model = Trained::open("tiles-2")?;
/// let pictures = model.sample(2, SampleOptions::default())?;
/// let codes = model.encode(&pictures)?;
/// assert_eq!(codes.layers.len(), 9);
/// let back = model.decode(&codes)?;
/// assert_eq!(back.len(), 2);
/// # Ok::<(), rrvq::Error>(())
/// ```
#[derive(Clone)]
pub struct Trained {
    config: Config,
    model: Model,
    theta: Vec<f32>,
    step: u64,
    run: Option<Run>,
    /// What a packed file holds besides the model's parameters.
    extras: Vec<NamedTensor>,
    device: Device,
}

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleOptions {
    /// The same seed gives the same samples.
    pub seed: u64,
    /// 1 samples the prior as it is, 0 takes its most likely codes.
    pub temperature: f32,
    /// What is shown of pixels; none for what suits the likelihood ([`Likelihood::shows`](crate::likelihood::Likelihood::shows)).
    pub pixels: Option<PixelValues>,
    /// Where pixels are drawn from mixtures: components whose weight is below this share of the largest are left out; 0
    /// leaves out none, and is what the model says.
    pub min_p: f32,
}

impl SampleOptions {
    /// What is shown of pixels of a model.
    pub fn shown(&self, config: &ModelConfig) -> PixelValues {
        self.pixels.unwrap_or(likelihood::of(config).shows())
    }
}

/// What decoding takes where codes are missing.
const MOST_LIKELY: SampleOptions = SampleOptions {
    seed: 0,
    temperature: 0.0,
    pixels: Some(PixelValues::Means),
    min_p: 0.0,
};

impl Default for SampleOptions {
    fn default() -> Self {
        SampleOptions {
            seed: 0,
            temperature: 1.0,
            pixels: None,
            min_p: 0.0,
        }
    }
}

impl Trained {
    /// A model of these parameters, in the order of its layout.
    pub fn new(config: Config, theta: Vec<f32>, step: u64, run: Option<Run>) -> Result<Trained> {
        config.validate()?;
        Ok(Trained {
            model: Model::new(&config.model),
            config,
            theta,
            step,
            run,
            extras: Vec::new(),
            device: Device::Cpu,
        })
    }

    /// The model of this name: a built-in one ([`models::BUILT_IN`]), a run folder, or a packed file.
    pub fn open(name: impl AsRef<Path>) -> Result<Trained> {
        let path = name.as_ref();
        if let Some(model) = path.to_str().and_then(models::find) {
            return Trained::read(model.bytes, model.name);
        }
        if path.is_file() {
            let bytes = crate::limits::read_file(path)?;
            return Trained::read(&bytes, &path.display().to_string());
        }
        Trained::of_run(Run::open(path).map_err(|error| {
            if matches!(error, Error::Io { .. }) {
                return error;
            }
            let names: Vec<&str> = models::BUILT_IN.iter().map(|m| m.name).collect();
            let names = names.join(", ");
            Error::new(format!(
                "{error}, a packed model, or a built-in one ({names})"
            ))
        })?)
    }

    /// The model of a run.
    pub fn of_run(run: Run) -> Result<Trained> {
        let config = Config::load(run.config())?;
        config.validate()?;
        let weights = load_weights(&run, &Model::new(&config.model).layout)?;
        let theta = weights.store.get("theta").to_vec();
        Trained::new(config, theta, weights.step, Some(run))
    }

    /// The model in the bytes of a packed file; `name` is what to call it in messages.
    pub fn read(bytes: &[u8], name: &str) -> Result<Trained> {
        let wrong = |said: String| {
            Error::new(format!(
                "{name} is not a packed model: {said}; expected a file written by `rrvq pack`, or a run folder"
            ))
        };
        let tensors = from_safetensors(bytes).map_err(|e| wrong(e.to_string()))?;
        let Some(text) = tensors.metadata.get("config") else {
            return Err(wrong("it holds no settings".into()));
        };
        let config = Config::read(text, name)?;
        config.validate()?;
        let layout = Model::new(&config.model).layout;
        let theta = layout.flatten(&tensors, "");
        let theta = theta.map_err(|e| wrong(e.to_string()))?;
        let step = tensors.metadata.get("step").and_then(|s| s.parse().ok());
        let mut trained = Trained::new(config, theta, step.unwrap_or(0), None)?;
        let extras = tensors.map.into_iter();
        trained.extras = extras
            .filter(|(name, _)| layout.get(name).is_none())
            .map(|(name, (shape, values))| (name, shape, values))
            .collect();
        Ok(trained)
    }

    /// The file of the model: averaged weights, kernels rounded to bf16, its settings, and what was added to it.
    ///
    /// Kernels are nearly the whole of a model, and each of their values is one of hundreds in a sum: they are rounded.
    /// Biases, gains and codes stay as they are: rounded, they cost 0.3 % in bits and saved 2 % in size.
    pub fn pack(&self) -> Result<Vec<u8>> {
        if let Some(strange) = self.theta.iter().find(|v| !v.is_finite()) {
            return Err(Error::new(format!(
                "the model has a weight of {strange}; train it again"
            )));
        }
        let mut config = self.config.clone();
        // Where the images lay is nobody's business.
        config.data.dir = None;
        let metadata = BTreeMap::from([("config".to_string(), config.to_toml()?)]);
        let mut tensors = self.model.layout.tensors(&self.theta, "");
        let extras = self.extras.iter();
        tensors.extend(extras.map(|(name, shape, v)| (name.clone(), shape.clone(), &v[..])));
        let is_kernel = |name: &str| name.ends_with(".v");
        Ok(to_safetensors_bf16(&tensors, &metadata, is_kernel)?)
    }

    /// Writes [`Trained::pack`] to a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.pack()?;
        write_atomic(path, |file| file.write_all(&bytes))
    }

    /// The same model, computing on another device.
    pub fn on(mut self, device: Device) -> Trained {
        self.device = device;
        self
    }

    /// The same model with other tensors beside its parameters.
    pub fn with_extras(mut self, extras: Vec<NamedTensor>) -> Trained {
        self.extras = extras;
        self
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The same, to say where its data set lies now.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The places of its parameters.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its parameters, in the order of the layout.
    pub fn theta(&self) -> &[f32] {
        &self.theta
    }

    /// Its weights, as programs take them.
    pub fn store(&self) -> Store {
        Store::with("theta", self.theta.clone())
    }

    /// Steps it was trained; 0 where a packed file does not say.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The run it is of.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// What computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What a packed file held besides its parameters.
    pub fn extras(&self) -> &[NamedTensor] {
        &self.extras
    }

    /// The prior that was trained over its codes, if its run has one.
    pub fn prior(&self) -> Result<Option<Prior>> {
        self.run.as_ref().map_or(Ok(None), prior::load)
    }

    /// The most likely codes of images, layer by layer from the top down.
    pub fn encode(&self, images: &[Picture]) -> Result<Codes> {
        self.check_pictures(images)?;
        let bytes: Vec<u8> = images
            .iter()
            .flat_map(|p| p.pixels().iter().copied())
            .collect();
        self.encode_bytes(&bytes)
    }

    /// The same of images one after another, rows first, channels last.
    pub fn encode_bytes(&self, images: &[u8]) -> Result<Codes> {
        let count = images.len() / self.model.image_len();
        let mut encoder = self.encoder(count.clamp(1, BATCH))?;
        encoder.add(images)?;
        Ok(encoder.finish())
    }

    /// Encodes images that come a few at a time, `batch` of them at once.
    pub fn encoder(&self, batch: usize) -> Result<StreamEncoder> {
        Ok(StreamEncoder {
            encoder: Encoder::new(&self.device, &self.model, batch.clamp(1, BATCH))?,
            store: self.store(),
            codes: self.no_codes(),
            each: self.model.image_len(),
        })
    }

    /// The most likely codes of images of a data set, with labels where it has them: of the first `most`, or of all
    /// where that is 0. `watch` is told how many are done.
    pub fn encode_data(
        &self,
        data: &dyn Dataset,
        split: Split,
        most: usize,
        mut watch: impl FnMut(usize, usize),
    ) -> Result<Codes> {
        let len = data.len(split);
        let count = if most == 0 { len } else { len.min(most) };
        if count == 0 {
            return Err(Error::new(format!(
                "data set {} has no {split} images; choose another split",
                data.name()
            )));
        }
        let each = self.model.image_len();
        let mut encoder = self.encoder(READ.min(count))?;
        let mut bytes = vec![0; READ.min(count) * each];
        for first in (0..count).step_by(READ) {
            let here = READ.min(count - first);
            for (i, image) in bytes[..here * each].chunks_exact_mut(each).enumerate() {
                data.read(split, first + i, image);
            }
            encoder.add(&bytes[..here * each])?;
            watch(first + here, count);
        }
        let labels = (0..count).map(|i| data.label(split, i)).collect();
        Ok(Codes {
            labels,
            ..encoder.finish()
        })
    }

    /// No image's codes: the shape of this model's.
    fn no_codes(&self) -> Codes {
        let config = &self.config.model;
        let sides = config.sides().into_iter().enumerate();
        let map = |(layer, side)| {
            Some(CodeMap {
                layer,
                side,
                codes: latent::codes(config, layer)?,
                values: Vec::new(),
            })
        };
        Codes {
            images: 0,
            layers: sides.filter_map(map).collect(),
            labels: None,
        }
    }

    /// The pictures of codes. Where the lowest layers are missing, the most likely codes of the prior take their place.
    pub fn decode(&self, codes: &Codes) -> Result<Vec<Picture>> {
        self.show(codes, MOST_LIKELY)
    }

    /// The same where the prior draws the missing layers, and pixels are what the options say.
    pub fn show(&self, codes: &Codes, options: SampleOptions) -> Result<Vec<Picture>> {
        let mut bytes = Vec::new();
        self.fill(codes, options, |values, batch| {
            bytes.extend(bytes_of(&self.model, values, options, batch)?);
            Ok(())
        })?;
        let model = &self.model.config;
        Picture::batch([model.size, model.size, model.image_channels], &bytes)
    }

    /// The same before rounding: means of the pixels, 0 … 255, image by image, rows first, channels last.
    pub fn decode_means(&self, codes: &Codes) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        self.fill(codes, MOST_LIKELY, |means, _| {
            all.extend_from_slice(means);
            Ok(())
        })?;
        Ok(all)
    }

    /// The codes of all layers, where those of the top layers are given ([`Codes::top`]) and the prior draws the rest.
    pub fn complete(&self, codes: &Codes, options: SampleOptions) -> Result<Codes> {
        let means = SampleOptions {
            pixels: Some(PixelValues::Means),
            ..options
        };
        self.fill(codes, means, |_, _| Ok(()))
    }

    /// The codes of all layers; `watch` sees what programs give for the pixels of each batch, and its number.
    fn fill(
        &self,
        codes: &Codes,
        options: SampleOptions,
        mut watch: impl FnMut(&[f32], u64) -> Result<()>,
    ) -> Result<Codes> {
        codes.check_fits(&self.no_codes())?;
        let given = codes.layers.len();
        let batch = codes.images.clamp(1, BATCH);
        let mut decoder = Decoder::new(
            &self.device,
            &self.model,
            batch,
            given,
            options.shown(&self.model.config),
        )?;
        let mut store = self.store();
        let mut all = self.no_codes();
        for (number, first) in (0..codes.images).step_by(batch).enumerate() {
            interrupt::check()?;
            let here = batch.min(codes.images - first);
            // A last batch that is not full is filled up with code 0.
            let some: Vec<Vec<u32>> = codes
                .layers
                .iter()
                .map(|map| {
                    let mut values = map.of_images(first, here).to_vec();
                    values.resize(batch * map.positions(), 0);
                    values
                })
                .collect();
            let slices: Vec<&[u32]> = some.iter().map(Vec::as_slice).collect();
            let noise = counter(options.seed, number as u64);
            let values = decoder.run(&mut store, &slices, noise, options.temperature)?;
            let mut found = decoder.drawn()?;
            found.extend(some);
            all.append(here, found);
            watch(&values[..values.len() / batch * here], number as u64)?;
        }
        all.labels.clone_from(&codes.labels);
        Ok(all)
    }

    /// `count` samples of the model's own prior; [`Trained::prior`] has those of a PixelCNN.
    pub fn sample(&self, count: usize, options: SampleOptions) -> Result<Vec<Picture>> {
        self.sample_together(count, options, None)
    }

    /// The same pictures, drawn by several processes; each gets all of them.
    pub fn sample_together(
        &self,
        count: usize,
        options: SampleOptions,
        together: Option<&dyn Collective>,
    ) -> Result<Vec<Picture>> {
        let (device, model) = (&self.device, &self.model);
        samples(device, model, &mut self.store(), count, options, together)
    }

    /// What is left of images after the most likely codes.
    pub fn reconstruct(&self, images: &[Picture]) -> Result<Vec<Picture>> {
        self.check_pictures(images)?;
        reconstructions(&self.device, &self.model, &mut self.store(), images)
    }

    /// Bits per dim and use of the codes over images of a data set, with hard samples.
    pub fn evaluate(&self, data: &dyn Dataset, extent: Extent) -> Result<EvalRecord> {
        let objective = self.config.train.objective;
        let mut evaluator =
            Evaluator::for_objective(&self.device, &self.model, data, BATCH, objective, None)?;
        let mut record = evaluator.evaluate(&mut self.store(), extent)?;
        record.step = self.step as usize;
        Ok(record)
    }

    fn check_pictures(&self, images: &[Picture]) -> Result<()> {
        let config = &self.config.model;
        let want = [config.size, config.size, config.image_channels];
        match images.iter().map(Picture::shape).find(|s| *s != want) {
            None => Ok(()),
            Some([h, w, c]) => Err(Error::new(format!(
                "an image is {h}×{w}×{c}, but the model is made for {0}×{0}×{1}; resize it first",
                config.size, config.image_channels
            ))),
        }
    }
}

/// Encodes images that come a few at a time; see [`Trained::encoder`].
pub struct StreamEncoder {
    encoder: Encoder,
    store: Store,
    codes: Codes,
    each: usize,
}

impl StreamEncoder {
    /// Adds whole images, one after another.
    pub fn add(&mut self, images: &[u8]) -> Result<()> {
        for some in images.chunks(self.encoder.batch * self.each) {
            interrupt::check()?;
            let (store, noise) = (&mut self.store, counter(0, 0));
            let found = self.encoder.run(store, some, noise, 0.0)?;
            self.codes.append(some.len() / self.each, found);
        }
        Ok(())
    }

    /// The codes of all of them.
    pub fn finish(self) -> Codes {
        self.codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(changes: &[&str]) -> Trained {
        let mut config = Config::preset("tiny-swatches").unwrap();
        changes.iter().for_each(|c| config.set(c).unwrap());
        let theta = Model::new(&config.model).layout.initial(5);
        Trained::new(config, theta, 0, None).unwrap()
    }

    fn pictures(count: usize) -> Vec<Picture> {
        let one =
            |i: usize| Picture::new([8, 8, 3], (0..192).map(|j| (i * 37 + j) as u8).collect());
        (0..count).map(one).collect::<Result<_>>().unwrap()
    }

    #[test]
    fn decoding_the_most_likely_codes_is_reconstructing() {
        for changes in [&[][..], &["model.prior=direct"], &["model.latent=nearest"]] {
            let (model, images) = (tiny(changes), pictures(70));
            let codes = model.encode(&images).unwrap();
            assert_eq!((codes.images, codes.layers.len()), (70, 2));
            let back = model.decode(&codes).unwrap();
            assert_eq!(back, model.reconstruct(&images).unwrap(), "{changes:?}");
            assert_ne!(back[0], back[69]);
        }
    }

    #[test]
    fn given_layers_stay_and_the_others_are_drawn() {
        let model = tiny(&[]);
        let codes = model.encode(&pictures(3)).unwrap();
        let options = |seed| SampleOptions {
            seed,
            ..SampleOptions::default()
        };
        let drawn = model.complete(&codes.top(1), options(1)).unwrap();
        assert_eq!(drawn.layers[1], codes.layers[1]);
        assert_ne!(drawn.layers[0], codes.layers[0]);
        assert_eq!(drawn, model.complete(&codes.top(1), options(1)).unwrap());
        assert_ne!(drawn, model.complete(&codes.top(1), options(2)).unwrap());
        assert_eq!(model.complete(&codes, options(1)).unwrap(), codes);
    }

    /// Drawn pixels lie around the means, by which they are the same codes' pictures.
    #[test]
    fn pixels_are_drawn_around_their_means() {
        const BATCHES: u64 = 6;
        for latent in ["code", "gaussian"] {
            let model = tiny(&["model.log_scale=-4", &format!("model.latent={latent}")]);
            // All of the most likely latents: what is left of a sample is the noise of its pixels.
            let options = |seed, pixels| SampleOptions {
                seed,
                temperature: 0.0,
                pixels: Some(pixels),
                min_p: 0.0,
            };
            let means = model.sample(1, options(0, PixelValues::Means)).unwrap();
            let drawn = |seed| model.sample(64, options(seed, PixelValues::Drawn)).unwrap();
            assert_eq!(drawn(1), drawn(1));
            let all: Vec<Picture> = (0..BATCHES).flat_map(drawn).collect();
            assert!(all.iter().enumerate().all(|(i, p)| !all[..i].contains(p)));
            // The spread of a logistic is π / √3 scales, of which there are 256 bytes.
            let log_scale = model.config.model.log_scale;
            let spread = 256.0 * log_scale.exp() * std::f64::consts::PI / 3f64.sqrt();
            let far = 5.0 * spread / (all.len() as f64).sqrt();
            // Nearer to black and white, drawn pixels are cut off.
            let inner = means[0].pixels().iter().enumerate();
            let inner = inner.filter(|(_, mean)| (64..192).contains(*mean));
            assert!(inner.clone().count() > 48);
            for (i, &mean) in inner {
                let values = all.iter().map(|p| p.pixels()[i] as f64);
                let average = values.sum::<f64>() / all.len() as f64;
                assert!((average - mean as f64).abs() < far, "{i}: {average} {mean}");
            }
        }
    }

    #[test]
    fn drawn_pixels_of_given_codes_are_noisy_reconstructions() {
        let model = tiny(&["model.likelihood=mixture-causal", "model.mixtures=3"]);
        let codes = model.encode(&pictures(3)).unwrap();
        let options = |seed| SampleOptions {
            seed,
            pixels: Some(PixelValues::Drawn),
            ..SampleOptions::default()
        };
        let one = model.show(&codes, options(1)).unwrap();
        // Nobody has to ask: the means of such a likelihood are no pictures.
        let unasked = SampleOptions {
            pixels: None,
            ..options(1)
        };
        assert_eq!(one, model.show(&codes, unasked).unwrap());
        assert_eq!(one, model.show(&codes, options(1)).unwrap());
        assert_ne!(one, model.show(&codes, options(2)).unwrap());
        assert_ne!(one, model.decode(&codes).unwrap());
        assert_eq!(
            model.show(&codes, MOST_LIKELY).unwrap(),
            model.decode(&codes).unwrap()
        );
    }

    #[test]
    fn what_is_not_codes_says_so() {
        let gaussian = tiny(&["model.latent=gaussian"]);
        let said = gaussian.encode(&pictures(1)).unwrap_err().to_string();
        assert!(said.contains("\"gaussian\" has no codes"), "{said}");
        let small = Picture::new([4, 4, 3], vec![0; 48]).unwrap();
        let said = tiny(&[]).encode(&[small]).unwrap_err().to_string();
        assert!(said.contains("4×4×3") && said.contains("8×8×3"), "{said}");
        let said = Trained::open("no/such").err().unwrap().to_string();
        assert!(
            said.contains("no/such") && said.contains("tiles-2"),
            "{said}"
        );
    }
}
