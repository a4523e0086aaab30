//! An autoregressive prior over the codes of a finished VQ-VAE: the paper's second stage.
//!
//! Nearest codes come with a uniform prior, which charges ln K for every position, however well its neighbours tell
//! it, and whose samples are patchworks. A PixelCNN ([`network`]) learns, after the model and without changing it, which
//! codes follow which: −log p(codes) takes the place of M ln K, and sampling goes position by position.
//!
//! It lives in the run's folder `prior`, in files like the run's own. It is worth nothing for other codes than those it
//! was trained on, so it notes which those were, and says so when the run has moved on.

pub mod network;
pub mod programs;
mod train;

pub use programs::PriorModel;

use crate::cluster::shared;
use crate::config::Config;
use crate::dataset::Dataset;
use crate::error::{Error, Remedy, Result};
use crate::evaluate::{Extent, each_batch};
use crate::fingerprint::of_weights;
use crate::latent;
use crate::model::hierarchy::nats_per_dim;
use crate::picture::Picture;
use crate::programs::{Decoder, Encoder, Model};
use crate::run::Run;
use crate::sample::{bytes_of, first_pictures};
use crate::trained::SampleOptions;
use crate::weights::load_weights;
use programs::{PriorSampler, PriorScorer};
use rrvq_tensor::{Collective, Device, Store};

/// A trained prior.
pub struct Prior {
    /// The run's configuration, with the prior's settings as it was trained.
    pub config: Config,
    /// The network that was trained.
    pub model: PriorModel,
    /// Averaged weights, as `theta`.
    pub store: Store,
    /// Steps made.
    pub step: u64,
    folder: Run,
    /// [`fingerprint`] of the weights whose codes it knows.
    codes_of: String,
}

/// The note that says whose codes a prior knows.
const CODES_OF: &str = "codes_of";

/// The prior of a run, if it has one that was saved.
pub fn load(run: &Run) -> Result<Option<Prior>> {
    let folder = run.prior();
    if !folder.config().is_file() || !folder.model().is_file() {
        return Ok(None);
    }
    let config = Config::load(folder.config())?;
    config.validate()?;
    check_kind(run, &config)?;
    let model = PriorModel::new(&config.model, &config.prior);
    let weights = load_weights(&folder, &model.layout)?;
    let Some(codes_of) = weights.notes.get(CODES_OF) else {
        let path = folder.model();
        return Err(Error::with_remedy(
            format!("{} does not say whose codes it knows", path.display()),
            Remedy::TrainPrior,
        ));
    };
    Ok(Some(Prior {
        codes_of: codes_of.clone(),
        config,
        model,
        store: weights.store,
        step: weights.step,
        folder,
    }))
}

/// Refuses runs whose codes are not one map of nearest ones.
pub fn check_kind(run: &Run, config: &Config) -> Result<()> {
    let (kind, layers) = (latent::of(&config.model), config.model.layers());
    if layers == 1 && kind.coded().is_some_and(|coded| coded.certain()) {
        return Ok(());
    }
    let latent = kind.name();
    let s = if layers == 1 { "" } else { "s" };
    Err(Error::new(format!(
        "{} has {layers} layer{s} of the latent \"{latent}\"; a PixelCNN prior is for one layer of \"nearest\" codes: \
         train with model.latent = \"nearest\" and one entry in model.maps, as the preset small-vq-cifar10 does",
        run.dir().display()
    )))
}

/// A short word for weights.
fn fingerprint(weights: &[f32]) -> String {
    format!("{:016x}", of_weights(weights))
}

impl Prior {
    /// Refuses when the model in `store` is not the one this prior was trained after.
    pub fn check(&self, store: &Store) -> Result<()> {
        if fingerprint(store.get("theta")) == self.codes_of {
            return Ok(());
        }
        Err(Error::with_remedy(
            format!(
                "{} was trained on the codes of other weights than the run has now",
                self.folder.dir().display()
            ),
            Remedy::TrainPrior,
        ))
    }

    /// −log p of the codes of a data set's images, in bits a dimension of the image. `watch` hears how many are done.
    pub fn evaluate(
        &mut self,
        device: &Device,
        (model, store): (&Model, &mut Store),
        data: &dyn Dataset,
        extent: Extent,
        batch: usize,
        watch: &mut dyn FnMut(usize),
    ) -> Result<f64> {
        let mut encoder = Encoder::new(device, model, batch)?;
        let mut scorer = PriorScorer::new(device, &self.model, batch)?;
        let (mut nats, mut images) = (0.0, 0);
        each_batch(data, extent, batch, |_, bytes| {
            let codes = encoder.bottom(store, bytes)?;
            let found = scorer.run(&mut self.store, &codes)?;
            images += found.len();
            nats += found.iter().map(|&v| v as f64).sum::<f64>();
            watch(images);
            Ok(())
        })?;
        Ok(nats / (images as f64 * nats_per_dim(&model.config)))
    }

    /// `count` pictures of the model with codes of this prior; the same seed gives the same, to one process and to each of
    /// several. `watch` hears how many rows of codes are done, of [`rows`](Self::rows).
    pub fn samples(
        &mut self,
        device: &Device,
        (model, store): (&Model, &mut Store),
        count: usize,
        options: SampleOptions,
        together: Option<&dyn Collective>,
        watch: &mut dyn FnMut(usize),
    ) -> Result<Vec<Picture>> {
        let SampleOptions {
            seed, temperature, ..
        } = options;
        let batch = count.clamp(1, SAMPLES_AT_ONCE);
        let mut sampler = PriorSampler::new(device, &self.model, batch)?;
        let mut decoder = Decoder::new(device, model, batch, 1, options.shown(&model.config))?;
        let drawn = shared(together, count.div_ceil(batch), |number| {
            let before = number * self.model.map.side;
            let mut here = |rows| watch(before + rows);
            let theta = &mut self.store;
            let codes = sampler.run(theta, seed, number as u64, temperature, &mut here)?;
            let values = decoder.run(store, &[&codes], [0; 4], 1.0)?;
            bytes_of(model, &values, options, number as u64)
        })?;
        first_pictures(model, count, &drawn)
    }

    /// Rows of codes in `count` samples, a batch of samples counting once.
    pub fn rows(&self, count: usize) -> usize {
        count.div_ceil(SAMPLES_AT_ONCE) * self.model.map.side
    }
}

/// Pictures that go through the positions together.
const SAMPLES_AT_ONCE: usize = 64;
