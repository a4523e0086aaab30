//! The settings themselves: one line of documentation and one default each.

use super::keys::{choice, section};
use super::values::{BlockScale, BlockScaleWord, Codes, Crop, Options};
use crate::dataset::Split;
use rrvq_tensor::SampleMode;
use std::path::PathBuf;

section! {
    /// What the model is.
    pub struct ModelConfig {
        /// Side of each layer's map of codes, bottom (largest) first.
        maps: Vec<usize> = vec![16, 8, 4, 2, 1],
        /// Layers for each entry of `maps`.
        repeat: usize = 1,
        /// Side of the images.
        size: usize = 32,
        /// Channels of the images: 3 for colour, 1 for grey.
        image_channels: usize = 3,
        /// Channels of the backbone.
        channels: usize = 64,
        /// What the networks are made of: "convolution", or "mlp" (fully connected: no place is nearer than another).
        backbone: Backbone = Backbone::Convolution,
        /// What a latent is: a "code" by responsibilities, the "nearest" code (VQ-VAE), a "gaussian" (Spatial-VAE) or "bernoulli" bits (FouST).
        latent: String = "code".into(),
        #[serde(skip_serializing_if = "Options::is_empty")]
        /// Settings of the latent's own kind, where it has some.
        options: Options = Options::default(),
        /// Dimensions of an embedding and of a code's mean; bits a position, for "bernoulli".
        embed: usize = 32,
        /// Codes in a codebook: one number for all layers, or a list with one for each layer, bottom first.
        codes: Codes = Codes::Same(64),
        /// Residual blocks between two latents.
        blocks: usize = 1,
        /// Residual blocks between the image's own convolutions and the lowest latents, on the way in and on the way out: `blocks` of a model with one layer are on neither.
        data_blocks: usize = 0,
        /// Residual blocks in front of each ladder and strap.
        ladder_blocks: usize = 0,
        /// What a residual block's last convolution is multiplied by: a number, or "depth" (1/√N, N being the layers times `blocks`).
        block_scale: BlockScale = BlockScale::Constant(0.1),
        /// Standard deviation of the kernels' directions at the start. Only their ratio to the learning rate matters: larger ones turn more slowly at first.
        kernel_scale: f64 = 0.05,
        /// Prior of the top layer: "learnt" or "uniform".
        top: Top = Top::Learnt,
        /// What the prior makes of the features above: "embedding" (its responsibilities) or "direct" (logits of codes).
        prior: PriorKind = PriorKind::Embedding,
        /// Variances of the codes: "diagonal" (one per dimension), "isotropic" (one per code), "printed" (the same, under the root as the paper prints it: counted once, not for each dimension) or "one" (fixed at 1).
        sigma: Sigma = Sigma::Diagonal,
        /// Sample and gradient in training: "straight-through" (the hard code), "relaxed" (a soft mixture) or "reinmax" (the hard code, second-order gradient).
        sample: Sample = Sample::StraightThrough,
        /// How far training moves a bit towards 0, at random, to find its slope: 0 not at all, 1 up to the whole way; for "bernoulli".
        bit_noise: f64 = 0.0,
        /// Temperature of `sample`: of the Gumbel-softmax, or of ReinMax's softmax (1 or more), going linearly from `start` to `end` over the run.
        temperature: Temperature = Temperature::default(),
        /// Free bits: KL below this many nats a position is not pushed down (per layer, averaged over the batch).
        free_bits: f64 = 0.02,
        /// Likelihood of a pixel: "logistic" (one learnt scale), "logistic-channel" (one per channel), "mixture", or "mixture-causal" (it follows the errors of pixels before).
        likelihood: String = "logistic".into(),
        /// Log scale of a logistic likelihood at the start; bytes span -0.5 to 0.5.
        log_scale: f64 = -3.5,
        /// Components of the mixture likelihoods.
        mixtures: usize = 10,
        /// Log scale of the mixture likelihoods' components at the start; bytes span -1 to 1.
        mixture_log_scale: f64 = -1.75,
        /// Pixels before that "mixture-causal" follows, the nearest first, 4 to 12.
        neighbours: usize = 6,
        /// Bound of how far the means of "mixture-causal" follow the errors around them, below 1; 0 sets none.
        causal_gain: f64 = 0.0,
        /// How a map grows on the way down: "transposed" convolution or "nearest" neighbour and a convolution.
        grow: Grow = Grow::Transposed,
        /// How the lowest map grows to the image where that is more than twofold: at "once", by one convolution, or by "steps" of two.
        grow_last: GrowLast = GrowLast::Once,
        /// What the picture's own convolution sees around its map: "zero", or the map's "edge" repeated.
        border: Border = Border::Zero,
        /// Standard deviation of the codes' means at the start.
        code_scale: f64 = 0.3,
        /// Where codes of responsibilities start: "normal" noise, or "embeddings" of the first batch, scaled down.
        code_start: CodeStart = CodeStart::Normal,
        /// Weight of the commitment loss, for the nearest code.
        commitment: f64 = 0.25,
        /// How nearest codes follow the encoder: by a "loss", or as running means of what they stand for ("ema").
        codebook: CodebookRule = CodebookRule::Loss,
        /// Decay a step of the averages that "ema" codes follow.
        codebook_decay: f64 = 0.99,
        /// "ema" codes used less than this share of even use start again at an encoder output; 0 lets them be.
        codebook_revive: f64 = 0.01,
    }
}

impl ModelConfig {
    /// How many layers of latents there are.
    pub fn layers(&self) -> usize {
        self.maps.len() * self.repeat
    }

    /// Whether none of several `blocks` sees an image: those of one layer lie on its learnt top alone.
    pub fn blocks_see_no_image(&self) -> bool {
        self.layers() == 1 && self.blocks > 1 && self.data_blocks == 0
    }

    /// What the last convolution of each residual block is multiplied by.
    pub fn block_factor(&self) -> f64 {
        match self.block_scale {
            BlockScale::Constant(scale) => scale,
            BlockScale::Word(BlockScaleWord::Depth) => {
                1.0 / ((self.layers() * self.blocks) as f64).sqrt()
            }
        }
    }

    /// The side of each layer's map, bottom first.
    pub fn sides(&self) -> Vec<usize> {
        self.maps
            .iter()
            .flat_map(|side| std::iter::repeat_n(*side, self.repeat))
            .collect()
    }
}

section! {
    /// Where a temperature starts and where it ends.
    pub struct Temperature {
        /// Temperature at the first step.
        start: f64 = 0.5,
        /// Temperature at the last step.
        end: f64 = 0.5,
    }
}

section! {
    /// What the model is trained on.
    pub struct DataConfig {
        /// Name of the data set: swatches (made up), cifar10, svhn, svhn-extra, celeba, idx (MNIST and the like), parquet, folder (of images).
        name: String = "swatches".into(),
        #[serde(skip_serializing_if = "Option::is_none")]
        /// Folder of the data set, relative to the working folder; made-up data needs none.
        dir: Option<PathBuf> = None,
        /// Whether training images are mirrored at random, where the data set allows it.
        flip: bool = true,
        /// What is kept of an image in a file: "auto" (CelebA's face, else the "centre"), "random", or [left, top, right, bottom].
        crop: Crop = Crop::Word(CropWord::Auto),
        /// Random crops taken of each image.
        crops: usize = 1,
        /// Side of a random crop in the image's own pixels; 0 takes the side of the model's images, so that nothing is resized.
        crop_size: usize = 0,
        /// Seed of random crops, apart from the seed of training: runs of all seeds are judged by the same images.
        crop_seed: u64 = 0,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        /// Leave out images in files of their own that cannot be decoded, instead of ending with an error.
        skip_damaged: bool = false,
        /// Share of the training images, the last ones, held out for validation: evaluations while training are on these; 0 holds none out.
        holdout: f64 = 0.0,
        /// How many training images to make up, for made-up data.
        train_images: usize = 4096,
        /// How many test images to make up, for made-up data.
        test_images: usize = 512,
    }
}

impl DataConfig {
    /// The images that training is judged by: those held out, or else the test images.
    pub fn evaluation_split(&self) -> Split {
        match self.holdout > 0.0 {
            true => Split::Validation,
            false => Split::Test,
        }
    }
}

section! {
    /// How the model is trained.
    pub struct TrainConfig {
        /// Steps in all.
        steps: usize = 5000,
        /// Minutes of steps that the run takes: `steps` follows the pace, so that schedules end with the time; 0 leaves `steps` as it is.
        minutes: f64 = 0.0,
        /// Images a step.
        batch: usize = 64,
        /// Parts of a batch on the CPU, which several processes can share: the result depends on this number, not on theirs. On GPUs every process has one part.
        shards: usize = 1,
        /// How GPUs tell each other gradients: "f32" or "bf16" (half the bytes, rounded).
        reduce: Reduce = Reduce::F32,
        /// Gradient of the posterior: "pathwise" (through the sample) or "vimco" (weights of many samples; no free bits).
        estimator: Estimator = Estimator::Pathwise,
        /// Samples an image in training, for "vimco".
        particles: usize = 5,
        /// What training lowers: the negative "elbo", or the "rate-distortion" of lossy files: bits of codes and squared error, weighed by `bit_worth`.
        objective: Objective = Objective::Elbo,
        /// Squared error (in steps of a byte) that a bit is worth, under "rate-distortion": more gives smaller files and worse pictures.
        bit_worth: f64 = 50.0,
        /// Share of the posterior's entropy that counts as bits, under "rate-distortion": 0 counts the KL alone, 1 what the codes cost in a lossy file.
        entropy_share: f64 = 0.0,
        /// The optimiser: "adamax", "adam", or "muon" (kernels turn in all directions equally; the rest follows AdaMax).
        optimiser: Optimiser = Optimiser::AdaMax,
        /// Learning rate, after the warm-up and before the schedule lowers it.
        lr: f64 = 2e-3,
        /// Learning rate of the kernels, as a multiple of `lr`.
        kernel_lr: f64 = 1.0,
        /// Learning rate of the codes' means, as a multiple of `lr`.
        code_lr: f64 = 1.0,
        /// Learning rate of the codes' log-variances, as a multiple of `lr`.
        logvar_lr: f64 = 1.0,
        /// Decay of the running mean of the gradient.
        beta1: f64 = 0.9,
        /// Decay of the running size of the gradient.
        beta2: f64 = 0.999,
        /// Smallest divisor of an update.
        epsilon: f64 = 1e-8,
        /// Gradients with a larger global norm are scaled down to it; 0 turns this off.
        clip: f64 = 200.0,
        /// A step whose gradient has a global norm of this or more, or one that is not finite, is skipped: it changes nothing; 0 skips none.
        skip_norm: f64 = 0.0,
        /// Decay a step of the averaged weights that are evaluated and saved.
        ema: f64 = 0.999,
        /// Steps over which the learning rate rises from zero.
        warmup: usize = 0,
        /// Steps over which the weight of the KL in the loss (with `entropy_share`, of all bits) rises from zero to one.
        kl_warmup: usize = 0,
        /// Share of the likelihood in training that is the decoder's without the pixels before, so that latents carry the picture; for "mixture-causal".
        decoder_share: f64 = 0.0,
        /// Weight of the penalty on posterior embeddings that run away from their codes, in bits a dimension for a layer whose embeddings are twice too long; 0 sets none, 0.1 suits.
        norm_penalty: f64 = 0.0,
        /// Root mean square of an embedding's numbers from which on it is penalised, by its distance from there.
        norm_limit: f64 = 4.0,
        /// Steps between looks at the codes, in the first three quarters of a run: those that hardly any image uses become halves of those that many use; 0 lets them be.
        split_every: usize = 0,
        /// Learning rate over the run: "constant", "cosine" or "linear" (down to `lr_floor`), or "plateau" (lowered when stuck).
        schedule: Schedule = Schedule::Constant,
        /// The learning rate never goes below this under "cosine", "linear" and "plateau".
        lr_floor: f64 = 5e-5,
        /// The learning rate is multiplied by this when stuck, under "plateau".
        plateau_factor: f64 = 0.8,
        /// Evaluations without improvement that count as stuck, under "plateau".
        plateau_patience: usize = 20,
        /// Steps between evaluations, on the test images or those of `data.holdout`; 0 evaluates at the end only.
        eval_every: usize = 500,
        /// Images in an evaluation; 0 takes all of the split.
        eval_images: usize = 0,
        /// Training images on which the log has each layer's codes, KL and bits after 100, 200, 500, 1000, 2000 … steps; 0 for none.
        early_images: usize = 1024,
        /// Steps between records of training in the log.
        log_every: usize = 10,
        /// Steps between saves; 0 saves at the end only.
        save_every: usize = 500,
        /// Steps between pictures of samples; 0 draws them at evaluations.
        sample_every: usize = 0,
        /// Seed of everything random.
        seed: u64 = 0,
    }
}

section! {
    /// The autoregressive prior that `rrvq prior` trains over the codes of a finished run.
    pub struct PriorConfig {
        /// Channels of the PixelCNN's two stacks.
        channels: usize = 128,
        /// Gated layers; each lets a code see one row and one column further.
        layers: usize = 10,
        /// Steps in all.
        steps: usize = 20000,
        /// Images a step.
        batch: usize = 64,
        /// Learning rate, after the warm-up; it falls to a hundredth along half a cosine.
        lr: f64 = 1e-3,
        /// Steps over which the learning rate rises from zero.
        warmup: usize = 100,
        /// Decay a step of the averaged weights that are evaluated and saved.
        ema: f64 = 0.999,
        /// Steps between evaluations, on the test images or those of `data.holdout`, with a picture of samples; 0 does both at the end only.
        eval_every: usize = 1000,
        /// Images in an evaluation; 0 takes all of the split.
        eval_images: usize = 0,
        /// Steps between records of training in the log.
        log_every: usize = 10,
        /// Steps between saves; 0 saves at the end only.
        save_every: usize = 1000,
        /// Seed of everything random.
        seed: u64 = 0,
    }
}

impl PriorConfig {
    /// The same as the settings of a training run, with Adam and a cosine.
    pub fn training(&self) -> TrainConfig {
        TrainConfig {
            steps: self.steps,
            batch: self.batch,
            optimiser: Optimiser::Adam,
            lr: self.lr,
            lr_floor: self.lr * 0.01,
            warmup: self.warmup,
            schedule: Schedule::Cosine,
            ema: self.ema,
            eval_every: self.eval_every,
            eval_images: self.eval_images,
            log_every: self.log_every,
            save_every: self.save_every,
            sample_every: 0,
            early_images: 0,
            seed: self.seed,
            ..TrainConfig::default()
        }
    }
}

choice! {
    /// Prior of the top layer.
    pub enum Top {
        /// From a learnt tensor, as every other layer's.
        Learnt = "learnt",
        /// All codes alike.
        Uniform = "uniform",
    }
}

choice! {
    /// What the networks are made of.
    pub enum Backbone {
        /// Convolutions over maps.
        Convolution = "convolution",
        /// Fully connected layers.
        Mlp = "mlp",
    }
}

choice! {
    /// How training finds the gradient of the posterior.
    pub enum Estimator {
        /// Through the sample, relaxed or straight.
        Pathwise = "pathwise",
        /// From the weights of several samples of an image (Mnih and Rezende 2016).
        Vimco = "vimco",
    }
}

choice! {
    /// What training lowers.
    pub enum Objective {
        /// The negative ELBO: bits per dim.
        Elbo = "elbo",
        /// KL in bits, and squared error of the means over `bit_worth`.
        RateDistortion = "rate-distortion",
    }
}

choice! {
    /// How nearest codes follow the encoder.
    pub enum CodebookRule {
        /// By the gradient of a codebook loss.
        Loss = "loss",
        /// As running means of the encoder's outputs.
        Ema = "ema",
    }
}

choice! {
    /// What the prior makes of the features above.
    pub enum PriorKind {
        /// An embedding, whose responsibilities it is.
        Embedding = "embedding",
        /// Logits of the codes, without the codebook.
        Direct = "direct",
    }
}

choice! {
    /// Variances of the codes.
    pub enum Sigma {
        /// One for each code and dimension.
        Diagonal = "diagonal",
        /// One for each code.
        Isotropic = "isotropic",
        /// One for each code, whose root is taken once and not to the power of the dimensions.
        Printed = "printed",
        /// All fixed at 1: rVQ.
        One = "one",
    }
}

choice! {
    /// Where the means of a codebook start.
    pub enum CodeStart {
        /// Normal noise of standard deviation `code_scale`.
        Normal = "normal",
        /// Embeddings of the first batch, `code_scale` times as large.
        Embeddings = "embeddings",
    }
}

choice! {
    /// What the layers below see of a latent in training.
    pub enum Sample {
        /// Forward the hard code, backward the relaxed gradient.
        StraightThrough = "straight-through",
        /// The Gumbel-softmax mixture of codes.
        Relaxed = "relaxed",
        /// Forward the hard code, backward the second-order gradient of ReinMax (Liu et al. 2023).
        ReinMax = "reinmax",
    }
}

impl Sample {
    /// The operation's mode for it.
    pub fn mode(self) -> SampleMode {
        match self {
            Sample::StraightThrough => SampleMode::StraightThrough,
            Sample::Relaxed => SampleMode::Relaxed,
            Sample::ReinMax => SampleMode::ReinMax,
        }
    }
}

choice! {
    /// How a map grows on the way down.
    pub enum Grow {
        /// Transposed convolution of stride 2.
        Transposed = "transposed",
        /// Nearest neighbour, then a convolution.
        Nearest = "nearest",
    }
}

choice! {
    /// How the lowest map grows to the image.
    pub enum GrowLast {
        /// By one convolution, whatever the factor.
        Once = "once",
        /// By convolutions that double it, as the way in halves it.
        Steps = "steps",
    }
}

choice! {
    /// What the convolution that makes the picture sees around its map.
    pub enum Border {
        /// Zeros.
        Zero = "zero",
        /// The map's own border, repeated: a constant map gives a constant picture.
        Edge = "edge",
    }
}

choice! {
    /// The optimiser.
    pub enum Optimiser {
        /// Adam with the infinity norm.
        AdaMax = "adamax",
        /// Adam.
        Adam = "adam",
        /// Muon (Jordan et al. 2024) for the kernels, AdaMax for the rest.
        Muon = "muon",
    }
}

choice! {
    /// How GPUs tell each other gradients.
    pub enum Reduce {
        /// As they are.
        F32 = "f32",
        /// Rounded to half the bytes.
        Bf16 = "bf16",
    }
}

choice! {
    /// Learning rate over the run.
    pub enum Schedule {
        /// The same at every step.
        Constant = "constant",
        /// Half a cosine down to the floor.
        Cosine = "cosine",
        /// Falls along a line to `lr_floor`, reached at the last step.
        Linear = "linear",
        /// Multiplied by a factor when the evaluation no longer improves.
        Plateau = "plateau",
    }
}

choice! {
    /// A part of an image, by a word.
    pub enum CropWord {
        /// The part that is usual for the data set.
        Auto = "auto",
        /// The largest square in the middle.
        Centre = "centre",
        /// Squares at random places.
        Random = "random",
    }
}
