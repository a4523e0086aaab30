//! Finite scalar quantisation (Mentzer et al. 2024): a position is a few numbers, each rounded to one of some levels that
//! are evenly spaced in [−1, 1]. There is no codebook to learn and none to lose: the codes are all combinations of levels.
//!
//! The posterior is certain: e = tanh(qladder + qstrap), rounded, with the gradient straight through. The prior has a
//! mean m and a precision w for each number and is a Gaussian restricted to the levels,
//! p(z) ∝ exp(−Σ_d w_d (z_d − m_d)²). Its logarithm has a slope in z, so the encoder learns to be predictable, and the KL
//! of a position is −log p(z).

use super::codebook::{any_code, gumbel};
use super::nearest::Nearest;
use super::{Coded, Drawn, Latent, LayerInputs, Weight};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use rrvq_tensor::{Graph, Var};

/// Levels of each number where `model.options.levels` is not set: 256 codes.
const LEVELS: [usize; 3] = [8, 8, 4];

/// Most codes of a layer.
const MOST_CODES: usize = 65_536;

/// Bound of the precisions' logarithms: at e⁶, two neighbours of 16 levels are 7 nats apart.
const LOG_PRECISION: f32 = 6.0;

/// Levels of each number of a position.
fn levels(config: &ModelConfig) -> Result<Vec<usize>> {
    Ok(config
        .options
        .numbers("levels")?
        .unwrap_or_else(|| LEVELS.to_vec()))
}

/// The same of settings that were checked.
fn checked(config: &ModelConfig) -> Vec<usize> {
    levels(config).unwrap_or_else(|error| panic!("{error}"))
}

/// All combinations of levels, [K, d], the last number the fastest.
fn grid<'g>(g: &'g Graph, levels: &[usize]) -> Var<'g> {
    let codes: usize = levels.iter().product();
    let mut slower = 1;
    let columns: Vec<Var<'g>> = levels
        .iter()
        .map(|&count| {
            let value = |level: usize| 2.0 * level as f32 / (count - 1) as f32 - 1.0;
            let values: Vec<Var<'g>> = (0..count).map(|l| g.full(value(l), &[1, 1])).collect();
            let faster = codes / (slower * count);
            let column = g.concat(&values, 1).reshape(&[1, count, 1]);
            let column = column.broadcast(&[slower, count, faster]);
            slower *= count;
            column.reshape(&[codes, 1])
        })
        .collect();
    g.concat(&columns, 1)
}

/// A Gaussian restricted to the levels: means and precisions, [rows, d] each.
struct Prior<'g> {
    mean: Var<'g>,
    precision: Var<'g>,
}

impl<'g> Prior<'g> {
    /// −Σ_d w_d (z_d − m_d)² without what all codes share, [rows, K].
    fn logits(&self, grid: Var<'g>) -> Var<'g> {
        let linear = (self.mean * self.precision * 2.0).matmul(grid, false, true);
        linear - self.precision.matmul(grid.square(), false, true)
    }

    /// −log p(z) of each row, [rows, 1], with a gradient to z.
    fn nats(&self, z: Var<'g>, grid: Var<'g>) -> Var<'g> {
        let logits = self.logits(grid);
        let log_total = (logits - logits.log_softmax()).slice(1, 0, 1);
        let of_z = self.precision * z * (z - self.mean * 2.0);
        of_z.sum_last() + log_total
    }
}

/// `model.latent = "fsq"`.
pub struct Kind;

impl Kind {
    fn grid<'g>(&self, at: &LayerInputs<'_, 'g>) -> Nearest<'g> {
        Nearest {
            mu: grid(at.builder.graph, &checked(at.config())),
        }
    }

    fn prior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Option<Prior<'g>> {
        let d = self.width(at.config());
        let numbers = at.prior(2 * d)?;
        let log_precision = numbers.slice(1, d, d).clamp(-LOG_PRECISION, LOG_PRECISION);
        Some(Prior {
            mean: numbers.slice(1, 0, d),
            precision: log_precision.exp(),
        })
    }

    fn posterior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Option<Var<'g>> {
        Some(at.posterior(self.width(at.config()))?.tanh())
    }
}

impl Latent for Kind {
    fn name(&self) -> &'static str {
        "fsq"
    }

    fn about(&self) -> &'static str {
        "a few numbers rounded to levels (finite scalar quantisation)"
    }

    fn describe(&self, config: &ModelConfig, layers: &str) -> String {
        let levels: Vec<String> = checked(config).iter().map(usize::to_string).collect();
        format!("scalars of {} levels in {layers}", levels.join(" × "))
    }

    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[(
            "levels",
            "levels of each number of a position, such as [8, 8, 4], the default; model.embed and model.codes follow",
        )]
    }

    fn check(&self, config: &ModelConfig) -> Result<()> {
        let levels = levels(config)?;
        let codes = levels.iter().try_fold(1, |all: usize, &one| {
            all.checked_mul(one).filter(|&all| all <= MOST_CODES)
        });
        match codes.is_some() && !levels.is_empty() && levels.iter().all(|&count| count >= 2) {
            true => Ok(()),
            false => Err(Error::new(format!(
                "model.options.levels is {levels:?}; expected at least 2 levels for each number and at most {MOST_CODES} \
                 combinations, such as [8, 8, 4]"
            ))),
        }
    }

    fn bits(&self, config: &ModelConfig, layer: usize) -> Option<f64> {
        Some((self.codes(config, layer) as f64).log2())
    }

    fn coded(&self) -> Option<&dyn Coded> {
        Some(self)
    }

    fn draw<'g>(&self, at: &LayerInputs<'_, 'g>) -> Drawn<'g> {
        let (grid, p, how) = (self.grid(at), self.prior(at), at.sampling);
        let Some(e) = self.posterior(at) else {
            let index = match p {
                None => any_code(grid.mu, at.rows(), how.stream),
                Some(p) => {
                    let noise = gumbel(grid.mu, at.rows(), how.stream);
                    (p.logits(grid.mu) + noise * how.noise_scale).argmax_last()
                }
            };
            return Drawn::generated(grid.mu.gather(index), Some(index));
        };
        let index = grid.closeness(e).argmax_last();
        let z = e + (grid.mu.gather(index) - e).detach();
        let kl = match p {
            None => {
                let codes = grid.mu.dim(0) as f32;
                at.builder.graph.full(codes.ln(), &[at.rows(), 1])
            }
            Some(p) => p.nats(z, grid.mu),
        };
        Drawn {
            code: Some(index),
            weight: at.mode.weighs().then(|| Weight {
                log_p: -kl,
                log_q: kl * 0.0,
            }),
            ..Drawn::new(z, kl)
        }
    }
}

impl Coded for Kind {
    fn codes(&self, config: &ModelConfig, _layer: usize) -> usize {
        checked(config).iter().product()
    }

    fn certain(&self) -> bool {
        true
    }

    fn has_codebook(&self) -> bool {
        false
    }

    fn width(&self, config: &ModelConfig) -> usize {
        checked(config).len()
    }

    fn log_prior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Option<Var<'g>> {
        Some(self.prior(at)?.logits(self.grid(at).mu).log_softmax())
    }

    fn log_posterior<'g>(&self, at: &LayerInputs<'_, 'g>) -> Var<'g> {
        let e = self.posterior(at).expect("an image is given");
        self.grid(at).closeness(e)
    }

    fn embed<'g>(&self, at: &LayerInputs<'_, 'g>, index: Var<'g>) -> Var<'g> {
        self.grid(at).mu.gather(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use rrvq_tensor::testing::{CpuProgram as Program, compile};
    use rrvq_tensor::{DType, Data, Layout, Store, grad};

    /// The prior of a row is a distribution over all combinations, its slope in z that of the definition.
    #[test]
    fn nats_are_those_of_the_definition() {
        let (levels, rows) = ([3, 2], 2);
        let g = Graph::new();
        let var = |name: &str| g.input(name, &[rows, 2], DType::F32);
        let (grid, z) = (grid(&g, &levels), var("z"));
        let prior = Prior {
            mean: var("mean"),
            precision: var("precision"),
        };
        let nats = prior.nats(z, grid);
        let slope = grad(nats.sum(), &[z])[0];
        let log_p = prior.logits(grid).log_softmax();
        let outputs = [("nats", nats), ("slope", slope), ("log_p", log_p)];
        let mut program = Program::new(compile(&g, &Layout::default(), &outputs).unwrap());
        let (mean, precision) = ([0.3f32, -0.8, 1.4, 0.1], [0.5f32, 4.0, 2.0, 0.7]);
        let z = [0.0f32, 1.0, -1.0, -1.0];
        let inputs = [
            ("z", Data::F32(&z)),
            ("mean", Data::F32(&mean)),
            ("precision", Data::F32(&precision)),
        ];
        program.run(&mut Store::default(), &inputs).unwrap();
        for row in 0..rows {
            let at = |d: usize, z: f32| {
                let i = row * 2 + d;
                -(precision[i] as f64) * (z as f64 - mean[i] as f64).powi(2)
            };
            let codes = [-1.0, 0.0, 1.0].map(|a| [-1.0, 1.0].map(|b| at(0, a) + at(1, b)));
            let codes = codes.concat();
            let total = codes.iter().map(|score| score.exp()).sum::<f64>().ln();
            for (code, score) in codes.iter().enumerate() {
                let found = program.output("log_p")[row * 6 + code] as f64;
                assert!((found - (score - total)).abs() < 1e-5, "{found} {score}");
            }
            let exact = total - at(0, z[row * 2]) - at(1, z[row * 2 + 1]);
            let found = program.output("nats")[row] as f64;
            assert!((found - exact).abs() < 1e-5, "{found} {exact}");
            for i in row * 2..row * 2 + 2 {
                let exact = 2.0 * precision[i] * (z[i] - mean[i]);
                let found = program.output("slope")[i];
                assert!((found - exact).abs() < 1e-5, "{found} {exact}");
            }
        }
    }

    #[test]
    fn levels_are_checked() {
        let said = |levels: &str| {
            let mut config = Config::preset("small-fsq-cifar10").unwrap();
            config
                .set(&format!("model.options.levels={levels}"))
                .unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        assert_eq!(said("[5, 5, 3]"), Ok(()));
        for levels in ["[]", "[8, 1]", "[1000, 1000]", "[4294967296, 4294967296]"] {
            let error = said(levels).unwrap_err();
            assert!(error.contains("at least 2 levels"), "{error}");
        }
        let error = said("[\"many\"]").unwrap_err();
        assert!(error.starts_with("model.options.levels is"), "{error}");
    }
}
