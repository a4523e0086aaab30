//! Whether the settings of a configuration make sense together.

use crate::config::{
    Backbone, Codes, Config, Crop, CropWord, DataConfig, Estimator, ModelConfig, Objective,
    PriorConfig, Schedule, TrainConfig,
};
use crate::error::{Error, Result};
use crate::latent;
use crate::likelihood::{self, causal};
use crate::limits::{MOST_BLOCKS, MOST_LAYERS, check_bytes};

impl Config {
    /// Refuses, in one sentence that names the key, what cannot be trained.
    pub fn validate(&self) -> Result<()> {
        let (model, data, train) = (&self.model, &self.data, &self.train);
        check_model(model)?;
        check_parameters(model)?;
        check_prior(&self.prior)?;
        check_features(model, train)?;

        within("data.train_images", data.train_images, 1, 100_000_000)?;
        within("data.test_images", data.test_images, 1, 100_000_000)?;
        below_one("data.holdout", data.holdout)?;
        check_crop(data)?;

        within("train.steps", train.steps, 1, 1_000_000_000)?;
        if !(0.0..=1e6).contains(&train.minutes) {
            return Err(Error::new(format!(
                "train.minutes is {}; expected a number of minutes, or 0 for as many steps as train.steps says",
                train.minutes
            )));
        }
        within("train.batch", train.batch, 1, 65_536)?;
        within("train.shards", train.shards, 1, 65_536)?;
        check_shards(train, train.shards)?;
        within(
            "train.plateau_patience",
            train.plateau_patience,
            1,
            1_000_000,
        )?;
        check_estimator(model, train)?;
        check_split(model, train)?;
        check_decoder_share(model, train)?;
        check_norm_penalty(model, train)?;
        check_objective(model, train)?;
        above_zero("train.lr", train.lr)?;
        at_least_zero("train.kernel_lr", train.kernel_lr)?;
        at_least_zero("train.code_lr", train.code_lr)?;
        at_least_zero("train.logvar_lr", train.logvar_lr)?;
        above_zero("train.epsilon", train.epsilon)?;
        at_least_zero("train.clip", train.clip)?;
        at_least_zero("train.skip_norm", train.skip_norm)?;
        at_least_zero("train.lr_floor", train.lr_floor)?;
        below_one("train.beta1", train.beta1)?;
        below_one("train.beta2", train.beta2)?;
        below_one("train.ema", train.ema)?;
        above_zero("train.plateau_factor", train.plateau_factor)?;
        below_one("train.plateau_factor", train.plateau_factor)?;
        check_seed("train.seed", train.seed)?;
        if train.schedule != Schedule::Constant && train.lr_floor > train.lr {
            return Err(Error::new(format!(
                "train.lr_floor is {}, above train.lr = {}; lower the floor or raise the learning rate",
                train.lr_floor, train.lr
            )));
        }
        if train.schedule == Schedule::Plateau && train.eval_every == 0 {
            return Err(Error::new(
                "train.schedule is \"plateau\" but train.eval_every is 0; evaluations decide when the learning rate falls",
            ));
        }
        Ok(())
    }
}

/// Images are square, so is what they are cut from; only random crops can be several, or of a size.
fn check_crop(data: &DataConfig) -> Result<()> {
    within("data.crops", data.crops, 1, 10_000)?;
    within("data.crop_size", data.crop_size, 0, 65_536)?;
    if let Crop::Square([left, top, right, bottom]) = data.crop {
        let is_square = right > left && bottom > top && right - left == bottom - top;
        if !is_square || right.max(bottom) > 65_536 {
            return Err(Error::new(format!(
                "data.crop is [{left}, {top}, {right}, {bottom}]; expected left, top, right and bottom of a square"
            )));
        }
    }
    let random = data.crop == Crop::Word(CropWord::Random);
    if !random && (data.crops, data.crop_size) != (1, 0) {
        return Err(Error::new(
            "data.crops and data.crop_size are for random crops; set data.crop = \"random\", or leave them at 1 and 0",
        ));
    }
    if data.crop_seed > i64::MAX as u64 {
        return Err(Error::new(format!(
            "data.crop_seed is {}; expected at most {}",
            data.crop_seed,
            i64::MAX
        )));
    }
    Ok(())
}

/// Shards are parts of a batch, all of one size, and VIMCO's samples of an image do not lie side by side in a batch.
pub(crate) fn check_shards(train: &TrainConfig, shards: usize) -> Result<()> {
    if !train.batch.is_multiple_of(shards) {
        return Err(Error::new(format!(
            "train.batch = {} cannot be cut into {shards} equal parts; make it a multiple of {shards}",
            train.batch
        )));
    }
    match train.estimator == Estimator::Vimco && shards > 1 {
        true => Err(Error::new(
            "train.estimator = \"vimco\" works on whole batches only; set train.shards = 1 and train with one process",
        )),
        false => Ok(()),
    }
}

/// What is split are codes with variances of their own; nearest codes are revived by their averages.
fn check_split(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    if train.split_every == 0 || latent::find(&model.latent)?.can_split() {
        return Ok(());
    }
    Err(Error::new(format!(
        "train.split_every is set, but model.latent is \"{}\"; only codes of model.latent = \"code\" are split, so set it to 0",
        model.latent
    )))
}

/// A likelihood of pixels apart from each other is the decoder's own already, and VIMCO weighs samples by one likelihood.
fn check_decoder_share(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    let share = train.decoder_share;
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::new(format!(
            "train.decoder_share is {share}; expected a number from 0 to 1"
        )));
    }
    let bins = likelihood::find(&model.likelihood)?.bins(model);
    let causal = bins.is_some_and(|bins| bins.neighbours > 0);
    if share == 0.0 || causal && train.estimator != Estimator::Vimco {
        return Ok(());
    }
    Err(Error::new(format!(
        "train.decoder_share is {share}, which needs model.likelihood = \"mixture-causal\" and train.estimator = \"pathwise\"; \
         set these, or set it to 0"
    )))
}

/// Embeddings can be far from codes only where there are both.
fn check_norm_penalty(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    at_least_zero("train.norm_penalty", train.norm_penalty)?;
    above_zero("train.norm_limit", train.norm_limit)?;
    let fits = latent::find(&model.latent)?.has_embeddings();
    if train.norm_penalty == 0.0 || fits && train.estimator != Estimator::Vimco {
        return Ok(());
    }
    Err(Error::new(format!(
        "train.norm_penalty is {}, which needs model.latent = \"code\" and train.estimator = \"pathwise\"; set these, or set it to 0",
        train.norm_penalty
    )))
}

/// VIMCO weighs samples by their probabilities, so there must be some, and more than one sample.
fn check_estimator(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    if train.estimator != Estimator::Vimco {
        return Ok(());
    }
    within("train.particles", train.particles, 2, 1024)?;
    if !latent::find(&model.latent)?.has_scores() {
        return Err(Error::new(format!(
            "train.estimator is \"vimco\", which needs samples with probabilities, but model.latent is \"{}\"; \
             set model.latent to \"code\" or \"bernoulli\"",
            model.latent
        )));
    }
    if train.kl_warmup > 0 {
        return Err(Error::new(
            "train.kl_warmup is set, but train.estimator is \"vimco\", whose bound has no KL of its own to warm up; set it to 0",
        ));
    }
    Ok(())
}

/// Squared error is of means, so there must be one for each pixel; VIMCO weighs by a likelihood.
fn check_objective(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    above_zero("train.bit_worth", train.bit_worth)?;
    if !(0.0..=1.0).contains(&train.entropy_share) {
        return Err(Error::new(format!(
            "train.entropy_share is {}; expected between 0 and 1",
            train.entropy_share
        )));
    }
    if train.entropy_share > 0.0 && model.latent != "code" {
        return Err(Error::new(format!(
            "train.entropy_share is set, but model.latent is \"{}\"; only codes of model.latent = \"code\" tell the entropy of \
             their posterior, so set it to 0",
            model.latent
        )));
    }
    if train.objective != Objective::RateDistortion {
        return Ok(());
    }
    if !likelihood::find(&model.likelihood)?.has_plain_means() {
        return Err(Error::new(format!(
            "train.objective is \"rate-distortion\", which needs one mean for each pixel, but model.likelihood is \"{}\"; \
             set it to \"logistic\" or \"logistic-channel\"",
            model.likelihood
        )));
    }
    if train.estimator == Estimator::Vimco {
        return Err(Error::new(
            "train.objective is \"rate-distortion\", but train.estimator is \"vimco\", which weighs samples by their \
             likelihood; set the estimator to \"pathwise\"",
        ));
    }
    Ok(())
}

/// A kind of latent that exists, with settings that it knows.
fn check_latent(model: &ModelConfig) -> Result<()> {
    let kind = latent::find(&model.latent)?;
    let known = kind.options();
    let unknown = |name: &&str| !known.iter().any(|(option, _)| option == name);
    if let Some(name) = model.options.names().find(unknown) {
        let has = match known {
            [] => "it has none".to_string(),
            _ => {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                format!("it has {}", names.join(", "))
            }
        };
        return Err(Error::new(format!(
            "model.options.{name} is set, but model.latent = \"{}\" has no such option; {has}",
            model.latent
        )));
    }
    kind.check(model)
}

fn check_model(model: &ModelConfig) -> Result<()> {
    likelihood::find(&model.likelihood)?;
    within("model.size", model.size, 2, 4096)?;
    within("model.repeat", model.repeat, 1, 1024)?;
    within("model.channels", model.channels, 1, 65_536)?;
    within("model.embed", model.embed, 1, 65_536)?;
    within("model.blocks", model.blocks, 1, 256)?;
    within("model.data_blocks", model.data_blocks, 0, 256)?;
    within("model.ladder_blocks", model.ladder_blocks, 0, 256)?;
    if ![1, 3].contains(&model.image_channels) {
        let found = model.image_channels;
        return Err(Error::new(format!(
            "model.image_channels is {found}; expected 3 (colour) or 1 (grey)"
        )));
    }
    above_zero("model.block_scale", model.block_factor())?;
    above_zero("model.kernel_scale", model.kernel_scale)?;
    check_maps(model)?;
    check_extent(model)?;
    match &model.codes {
        Codes::Same(codes) => within("model.codes", *codes, 2, 65_536)?,
        Codes::Each(codes) if codes.len() != model.layers() => {
            return Err(Error::new(format!(
                "model.codes lists {} numbers but the model has {} layers (entries of model.maps × model.repeat); \
                 give one for each layer, or a single number for all",
                codes.len(),
                model.layers()
            )));
        }
        Codes::Each(codes) => codes
            .iter()
            .try_for_each(|codes| within("model.codes", *codes, 2, 65_536))?,
    }
    above_zero("model.temperature.start", model.temperature.start)?;
    above_zero("model.temperature.end", model.temperature.end)?;
    at_least_zero("model.free_bits", model.free_bits)?;
    above_zero("model.code_scale", model.code_scale)?;
    at_least_zero("model.commitment", model.commitment)?;
    below_one("model.codebook_decay", model.codebook_decay)?;
    below_one("model.codebook_revive", model.codebook_revive)?;
    if !(0.0..=1.0).contains(&model.bit_noise) {
        return Err(Error::new(format!(
            "model.bit_noise is {}; expected between 0 and 1",
            model.bit_noise
        )));
    }
    if !(-12.0..=4.0).contains(&model.log_scale) {
        return Err(Error::new(format!(
            "model.log_scale is {}; expected between -12 and 4",
            model.log_scale
        )));
    }
    check_latent(model)?;
    within("model.mixtures", model.mixtures, 1, 256)?;
    within(
        "model.neighbours",
        model.neighbours,
        causal::NEAR,
        causal::PLACES.len(),
    )?;
    // Scales are bounded at e^−7 from below, so that none can start there.
    if !(0.0..1.0).contains(&model.causal_gain) {
        return Err(Error::new(format!(
            "model.causal_gain is {}; expected a number from 0 to less than 1",
            model.causal_gain
        )));
    }
    if !(-6.5..=4.0).contains(&model.mixture_log_scale) {
        return Err(Error::new(format!(
            "model.mixture_log_scale is {}; expected between -6.5 and 4",
            model.mixture_log_scale
        )));
    }
    Ok(())
}

fn check_prior(prior: &PriorConfig) -> Result<()> {
    within("prior.channels", prior.channels, 1, 65_536)?;
    within("prior.layers", prior.layers, 1, 1024)?;
    within("prior.steps", prior.steps, 1, 1_000_000_000)?;
    within("prior.batch", prior.batch, 1, 65_536)?;
    above_zero("prior.lr", prior.lr)?;
    below_one("prior.ema", prior.ema)?;
    check_seed("prior.seed", prior.seed)
}

/// TOML has no larger numbers.
fn check_seed(key: &str, seed: u64) -> Result<()> {
    let most = i64::MAX;
    match seed > most as u64 {
        true => Err(Error::new(format!(
            "{key} is {seed}; expected at most {most}"
        ))),
        false => Ok(()),
    }
}

/// Layers and blocks in all: every one of them is drawn and planned, whatever its size.
fn check_extent(model: &ModelConfig) -> Result<()> {
    let layers = model.layers();
    if layers > MOST_LAYERS {
        return Err(Error::new(format!(
            "model.maps has {} entries and model.repeat is {}, {layers} layers in all; expected at most {MOST_LAYERS}",
            model.maps.len(),
            model.repeat
        )));
    }
    // Of each layer: the up pass and the down pass, and three ladders and straps.
    let blocks = layers * (2 * model.blocks + 3 * model.ladder_blocks);
    if blocks > MOST_BLOCKS {
        return Err(Error::new(format!(
            "the model has {blocks} residual blocks in its {layers} layers; expected at most {MOST_BLOCKS}, so lower \
             model.repeat, model.blocks or model.ladder_blocks"
        )));
    }
    Ok(())
}

/// The largest number of values one place of a map has.
fn widest(model: &ModelConfig) -> f64 {
    let codes = match &model.codes {
        Codes::Same(codes) => *codes,
        Codes::Each(codes) => codes.iter().copied().max().unwrap_or(0),
    };
    model.channels.max(model.embed).max(codes) as f64
}

/// Parameters of the convolutions and codebooks, the bulk of a model: an estimate from below, before anything is drawn.
fn check_parameters(model: &ModelConfig) -> Result<()> {
    let (layers, channels) = (model.layers() as f64, model.channels as f64);
    let embed = model.embed as f64;
    let blocks = layers * (2 * model.blocks + 3 * model.ladder_blocks) as f64;
    let (kernel, positions) = match model.backbone {
        Backbone::Convolution => (9.0, 1.0),
        Backbone::Mlp => (1.0, (model.maps[0] * model.maps[0]) as f64),
    };
    let (size, codes) = (model.size as f64, widest(model).min(65_536.0));
    let picture = match model.backbone {
        Backbone::Convolution => 0.0,
        Backbone::Mlp => 2.0 * size * size * channels,
    };
    let parameters = blocks * 2.0 * kernel * channels * channels
        + 3.0 * kernel * positions * channels * embed
        + codes * embed
        + picture;
    check_bytes(
        "holding the model's parameters",
        (4.0 * parameters) as usize,
    )
}

/// Values of the largest map, for a whole batch: what the compiler counts must stay far from overflowing.
fn check_features(model: &ModelConfig, train: &TrainConfig) -> Result<()> {
    let particles = match train.estimator {
        Estimator::Vimco => train.particles,
        _ => 1,
    };
    let images = train.batch.max(64) as f64 * particles as f64;
    let values = images * (model.size * model.size) as f64 * widest(model);
    let most = 2f64.powi(44);
    match values <= most {
        true => Ok(()),
        false => Err(Error::new(format!(
            "a map of {images} images of side {} with {} channels has {values:.0} values; expected at most {most:.0}, so \
             lower model.size, train.batch or model.channels",
            model.size,
            widest(model)
        ))),
    }
}

/// The bottom map is the image halved once or more; each next is the same size or half.
fn check_maps(model: &ModelConfig) -> Result<()> {
    let (size, maps) = (model.size, &model.maps);
    let Some(bottom) = maps.first() else {
        return Err(Error::new(
            "model.maps is empty; give the side of at least one layer's map, such as [16]",
        ));
    };
    within("model.maps", maps.len(), 1, 1024)?;
    let halved: Vec<usize> = std::iter::successors(Some(size), |side| {
        side.is_multiple_of(2).then_some(side / 2)
    })
    .skip(1)
    .take_while(|side| *side > 0)
    .collect();
    if halved.is_empty() {
        return Err(Error::new(format!(
            "model.size is {size}, which cannot be halved; expected an even number"
        )));
    }
    if !halved.contains(bottom) {
        return Err(Error::new(format!(
            "model.maps begins with {bottom}, but images of side {size} can only be halved to {}; begin with one of these",
            halved
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    for (layer, pair) in maps.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        if to == from || (to > 0 && to * 2 == from) {
            continue;
        }
        let advice = match from % 2 {
            0 => format!("use {from} or {}", from / 2),
            _ => format!("{from} is odd and cannot be halved; stop there or choose other sides"),
        };
        return Err(Error::new(format!(
            "model.maps goes from {from} to {to} at entry {}; each map must have the side of the one before it or half \
             of it: {advice}",
            layer + 2
        )));
    }
    Ok(())
}

fn within(key: &str, value: usize, low: usize, high: usize) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::new(format!(
        "{key} is {value}; expected between {low} and {high}"
    )))
}

fn above_zero(key: &str, value: f64) -> Result<()> {
    // Steps compute in f32, where a smaller number is zero.
    if value.is_finite() && value as f32 > 0.0 {
        return Ok(());
    }
    Err(Error::new(format!(
        "{key} is {value}; expected a number above 0"
    )))
}

fn at_least_zero(key: &str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::new(format!(
        "{key} is {value}; expected a number of at least 0"
    )))
}

fn below_one(key: &str, value: f64) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::new(format!(
        "{key} is {value}; expected a number of at least 0 and below 1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(changes: &[&str]) -> String {
        let mut config = Config::default();
        changes
            .iter()
            .for_each(|change| config.set(change).unwrap());
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn maps_must_halve() {
        assert!(
            said(&["model.size=6", "model.maps=[3,1]"]).contains("goes from 3 to 1 at entry 2")
        );
        assert!(
            said(&["model.size=6", "model.maps=[3,1]"]).contains("3 is odd and cannot be halved")
        );
        assert!(said(&["model.maps=[16,4]"]).contains("use 16 or 8"));
        assert!(said(&["model.maps=[8,16]"]).contains("goes from 8 to 16"));
        assert!(said(&["model.maps=[32,16]"]).contains("halved to 16, 8, 4, 2, 1"));
        assert!(said(&["model.maps=[]"]).contains("empty"));
        assert!(said(&["model.maps=[16,8,4,2,1,0]"]).contains("goes from 1 to 0"));
        assert!(said(&["model.size=7"]).contains("cannot be halved"));
    }

    #[test]
    fn the_paper_sizes_pass() {
        for changes in [
            [
                "model.maps=[16,8,4,2]",
                "model.repeat=8",
                "model.size=32",
                "model.codes=256",
            ],
            [
                "model.maps=[32,16,8,4]",
                "model.repeat=8",
                "model.size=64",
                "model.codes=256",
            ],
            [
                "model.maps=[16,8,4,2,1]",
                "model.repeat=1",
                "model.size=64",
                "model.codes=[128,64,32,16,8]",
            ],
        ] {
            let mut config = Config::default();
            changes
                .iter()
                .for_each(|change| config.set(change).unwrap());
            config.validate().unwrap();
            assert_eq!(config.model.sides().len(), config.model.layers());
        }
    }

    #[test]
    fn what_would_take_terabytes_or_hours_is_refused_before_it_is_drawn() {
        assert!(said(&["model.channels=65536"]).contains("max-memory"));
        assert!(said(&["model.repeat=1024"]).contains("5120 layers in all"));
        assert!(said(&["model.repeat=100", "model.blocks=256"]).contains("256000 residual blocks"));
        assert!(said(&["model.ladder_blocks=256", "model.repeat=100"]).contains("ladder_blocks"));
        let wide = ["model.backbone=mlp", "model.size=4096", "model.maps=[2048]"];
        assert!(said(&[&wide[..], &["model.embed=65536"]].concat()).contains("max-memory"));
        let many = ["model.size=4096", "model.maps=[2048]", "train.batch=65536"];
        assert!(said(&[&many[..], &["model.codes=65536"]].concat()).contains("train.batch"));
    }

    #[test]
    fn numbers_must_make_sense() {
        for (change, key) in [
            ("model.codes=1", "model.codes"),
            (
                "model.codes=[4,4]",
                "lists 2 numbers but the model has 5 layers",
            ),
            ("train.batch=0", "train.batch"),
            ("prior.layers=0", "prior.layers"),
            ("prior.lr=0", "prior.lr"),
            ("prior.ema=1", "prior.ema"),
            ("train.lr=nan", "train.lr"),
            ("train.lr=-1", "train.lr"),
            ("train.skip_norm=-1", "train.skip_norm"),
            ("train.kernel_lr=-1", "train.kernel_lr"),
            ("train.code_lr=-1", "train.code_lr"),
            ("train.bit_worth=0", "train.bit_worth"),
            ("train.entropy_share=1.5", "train.entropy_share"),
            ("train.logvar_lr=nan", "train.logvar_lr"),
            ("train.ema=1", "train.ema"),
            ("train.plateau_factor=1.5", "train.plateau_factor"),
            ("train.decoder_share=0.5", "mixture-causal"),
            ("train.decoder_share=-1", "from 0 to 1"),
            ("train.norm_penalty=-1", "train.norm_penalty"),
            ("train.norm_limit=0", "train.norm_limit"),
            ("model.temperature.end=0", "model.temperature.end"),
            ("model.image_channels=2", "model.image_channels"),
            ("model.log_scale=inf", "model.log_scale"),
            ("model.mixtures=0", "model.mixtures"),
            ("model.block_scale=0", "model.block_scale"),
            ("model.kernel_scale=0", "model.kernel_scale"),
            ("model.kernel_scale=inf", "model.kernel_scale"),
            ("model.commitment=-1", "model.commitment"),
            ("model.codebook_decay=1", "model.codebook_decay"),
            ("model.codebook_revive=nan", "model.codebook_revive"),
            ("model.bit_noise=1.5", "model.bit_noise"),
            ("model.mixture_log_scale=-7", "model.mixture_log_scale"),
            ("model.mixture_log_scale=nan", "model.mixture_log_scale"),
            ("train.minutes=-1", "train.minutes"),
            ("model.neighbours=3", "model.neighbours"),
            ("model.neighbours=13", "model.neighbours"),
            ("model.causal_gain=1", "model.causal_gain"),
            ("model.causal_gain=nan", "model.causal_gain"),
            ("data.test_images=0", "data.test_images"),
            ("data.holdout=1", "data.holdout"),
            ("data.holdout=-0.1", "data.holdout"),
            ("data.crops=0", "data.crops"),
            ("data.crops=2", "data.crop = \"random\""),
            ("data.crop_size=64", "data.crop = \"random\""),
            ("data.crop=[9, 0, 3, 6]", "of a square"),
            ("data.crop=[0, 0, 3, 6]", "of a square"),
        ] {
            assert!(said(&[change]).contains(key), "{change}");
        }
        assert!(
            said(&["train.split_every=9", "model.latent=gaussian"]).contains("train.split_every")
        );
        assert!(said(&["train.schedule=cosine", "train.lr_floor=1"]).contains("train.lr_floor"));
        assert!(
            said(&["train.schedule=plateau", "train.eval_every=0"]).contains("train.eval_every")
        );
    }

    #[test]
    fn vimco_needs_probabilities_and_samples() {
        let vimco = "train.estimator=vimco";
        assert!(said(&[vimco, "train.particles=1"]).contains("train.particles"));
        assert!(said(&[vimco, "model.latent=gaussian"]).contains("model.latent is \"gaussian\""));
        assert!(said(&[vimco, "train.kl_warmup=3"]).contains("train.kl_warmup"));
    }

    #[test]
    fn rate_and_distortion_need_a_mean_for_each_pixel() {
        let wanted = "train.objective=rate-distortion";
        assert!(said(&[wanted, "model.likelihood=mixture"]).contains("model.likelihood"));
        assert!(said(&[wanted, "train.estimator=vimco"]).contains("train.estimator"));
        let share = "train.entropy_share=1";
        assert!(said(&[wanted, share, "model.latent=gaussian"]).contains("model.latent"));
        let mut config = Config::default();
        for change in [wanted, "model.likelihood=logistic-channel"] {
            config.set(change).unwrap();
        }
        config.validate().unwrap();
    }
}
