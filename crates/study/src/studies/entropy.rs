//! Appendix D: the least entropy of rVQ and of a softmax, exactly and to first order, and that of random codebooks.
//!
//! One code is at distance d of the embedding and K − 1 at d + δ, along one line; or one logit is ℓ above the others. Both
//! are two-point distributions: with g = δ²/2 + δd, or g = ℓ, and u = (K − 1) e^−g, the first has probability 1 / (1 + u), and
//! H = ln(1 + u) + g u / (1 + u), which is (K − 1)(1 + g) e^−g to first order in e^−g.

use crate::framework::{Context, Scale, Section, Study, Verdict};
use crate::report::{Chart, Series};
use rayon::prelude::*;
use rrvq::Result;
use rrvq_tensor::rng::{Distribution, Noise, fill};
use rrvq_tensor::simd::isa;

/// Appendix D.
pub struct Entropy;

const CODES: usize = 256;
const DIMENSIONS: usize = 32;
const RADIUS: f64 = 0.5;
const DELTA: f64 = 1.0;
/// The largest distance that is drawn.
const FARTHEST: f64 = 30.0;
/// The paper's distance, and its error beyond it.
const PAPER_DISTANCE: f64 = 10.0;
const PAPER_ERROR: f64 = 1e-6;

/// A distribution with one code ahead of all others, whose score is g above theirs.
#[derive(Clone, Copy)]
struct WorstCase {
    codes: usize,
    g: f64,
}

impl WorstCase {
    /// rVQ: the nearest code at distance d, the others δ farther.
    fn rvq(codes: usize, d: f64, delta: f64) -> WorstCase {
        let g = delta * delta / 2.0 + delta * d;
        WorstCase { codes, g }
    }

    /// A softmax with one logit `l` above the others.
    fn softmax(codes: usize, l: f64) -> WorstCase {
        WorstCase { codes, g: l }
    }

    fn others(self) -> f64 {
        (self.codes - 1) as f64 * (-self.g).exp()
    }

    fn exact(self) -> f64 {
        let u = self.others();
        u.ln_1p() + self.g * u / (1.0 + u)
    }

    fn first_order(self) -> f64 {
        self.others() * (1.0 + self.g)
    }

    /// Of the exact value.
    fn error(self) -> f64 {
        (self.first_order() / self.exact() - 1.0).abs()
    }
}

/// The distance from which `case` has an error of at most `limit`, by halving: the error falls with distance.
fn reached(limit: f64, case: impl Fn(f64) -> WorstCase) -> f64 {
    let (mut low, mut high) = (0.0, 200.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match case(middle).error() > limit {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Entropy of the responsibilities of codes with variance 1 for an embedding, from the codes' places along the line to it.
fn entropy(along: &[f64], distance: f64) -> f64 {
    // |e − μ|² = |e|² + |μ|² − 2 |e| (μ along e), and the first two are the same for all codes.
    let scores = along.iter().map(|t| distance * t);
    let best = scores.clone().fold(f64::MIN, f64::max);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for score in scores {
        let w = (score - best).exp();
        sum += w;
        weighted += w * (score - best);
    }
    sum.ln() - weighted / sum
}

/// Mean and least entropy over random codebooks at each distance, and the largest spread of a codebook along the line.
fn simulated(codebooks: usize, distances: &[f64]) -> Vec<(f64, f64)> {
    let each = |book: usize| -> Vec<f64> {
        let noise = Noise {
            seed: 0xe27,
            stream: 0,
            step: book as u64,
        };
        let mut values = vec![0.0f32; CODES * DIMENSIONS];
        fill(isa(), noise, Distribution::Normal, 0, &mut values);
        // Normal numbers over their length are a direction; only its part along the embedding's matters.
        let place = |code: &[f32]| {
            let length = code.iter().map(|&v| (v as f64).powi(2)).sum::<f64>().sqrt();
            RADIUS * code[0] as f64 / length
        };
        let along: Vec<f64> = values.chunks_exact(DIMENSIONS).map(place).collect();
        // The nearest point of the sphere is at distance d.
        let of = |d: &f64| entropy(&along, d + RADIUS);
        distances.iter().map(of).collect()
    };
    let start = || vec![(0.0, f64::MAX); distances.len()];
    let add = |mut all: Vec<(f64, f64)>, one: Vec<(f64, f64)>| {
        for ((sum, least), (s, l)) in all.iter_mut().zip(one) {
            (*sum, *least) = (*sum + s, least.min(l));
        }
        all
    };
    let found = (0..codebooks)
        .into_par_iter()
        .map(|book| each(book).into_iter().map(|h| (h, h)).collect())
        .reduce(start, add);
    let mean = |(sum, least): (f64, f64)| (sum / codebooks as f64, least);
    found.into_iter().map(mean).collect()
}

impl Study for Entropy {
    fn name(&self) -> &'static str {
        "entropy"
    }

    fn about(&self) -> &'static str {
        "worst-case entropy of rVQ and of a softmax, exact against first order, and of random codebooks (App. D)"
    }

    fn paper(&self) -> &'static str {
        "three logarithmic plots: the worst case of rVQ (δ = 1) and of the softmax (c = 0), exactly and to first order, over each other; and rVQ's beside the mean and the least entropy of 20,000 random codebooks at each distance. \"Highly accurate for inputs > 10, with proportional error ≈ 1e-6 for each.\""
    }

    fn minutes(&self, scale: Scale) -> f64 {
        match scale {
            Scale::Smoke => 0.02,
            Scale::Quick | Scale::Full => 0.1,
        }
    }

    fn run(&self, context: &mut Context<'_>, section: &mut Section) -> Result<()> {
        let codebooks = context.by_scale(50, 20_000, 20_000);
        let rvq = |d: f64| WorstCase::rvq(CODES, d, DELTA);
        let softmax = |l: f64| WorstCase::softmax(CODES, l);
        let steps = (FARTHEST * 4.0) as usize;
        let distances: Vec<f64> = (0..=steps).map(|i| i as f64 / 4.0).collect();
        let coarse: Vec<f64> = (0..=FARTHEST as usize).map(|d| d as f64).collect();
        let random = simulated(codebooks, &coarse);
        let line = |name: &str, of: &dyn Fn(f64) -> f64| {
            Series::new(name, distances.iter().map(|&d| (d, of(d))).collect())
        };
        let chart = |title: &str, x: &str, y: &str, series: Vec<Series>| Chart {
            title: title.into(),
            x_label: x.into(),
            y_label: y.into(),
            log_y: true,
            series,
            ..Chart::default()
        };
        section.chart(
            "rvq",
            &chart(
                "rVQ: entropy in the worst case, K = 256, δ = 1",
                "distance d to the nearest code",
                "nats",
                vec![
                    line("exact", &|d| rvq(d).exact()),
                    line("first order", &|d| rvq(d).first_order()),
                ],
            ),
        )?;
        section.chart(
            "softmax",
            &chart(
                "Softmax: entropy in the worst case, K = 256",
                "logit above the others",
                "nats",
                vec![
                    line("exact", &|d| softmax(d).exact()),
                    line("first order", &|d| softmax(d).first_order()),
                ],
            ),
        )?;
        let of_random = |name: &str, pick: fn(&(f64, f64)) -> f64| {
            let points = coarse.iter().zip(&random).map(|(d, r)| (*d, pick(r)));
            Series::new(name, points.collect())
        };
        section.chart(
            "random-codebooks",
            &chart(
                &format!("rVQ: {codebooks} random codebooks on a sphere of radius 0.5, d_e = 32"),
                "distance d to the sphere",
                "nats",
                vec![
                    of_random("mean", |r| r.0),
                    of_random("least", |r| r.1),
                    line("worst case, exact", &|d| rvq(d).exact()),
                    line("worst case, first order", &|d| rvq(d).first_order()),
                ],
            ),
        )?;
        section.chart(
            "error",
            &chart(
                "Error of the first order, of the exact entropy",
                "distance d, or logit",
                "error",
                vec![
                    line("rVQ", &|d| rvq(d).error()),
                    line("softmax", &|d| softmax(d).error()),
                    line("the paper's 1e-6", &|_| PAPER_ERROR),
                ],
            ),
        )?;
        let number = |v: f64| format!("{v:.6e}");
        let rows: Vec<Vec<String>> = coarse
            .iter()
            .zip(&random)
            .map(|(&d, &(mean, least))| {
                let (r, s) = (rvq(d), softmax(d));
                let numbers = [
                    r.exact(),
                    r.first_order(),
                    r.error(),
                    s.exact(),
                    s.first_order(),
                    s.error(),
                    mean,
                    least,
                ];
                let mut row = vec![format!("{d}")];
                row.extend(numbers.map(number));
                row
            })
            .collect();
        section.numbers(
            "numbers",
            &[
                "d",
                "rvq exact",
                "rvq first order",
                "rvq error",
                "softmax exact",
                "softmax first order",
                "softmax error",
                "random mean",
                "random least",
            ],
            &rows,
        )?;
        let at = |case: WorstCase| case.error();
        let (r10, s10) = (at(rvq(PAPER_DISTANCE)), at(softmax(PAPER_DISTANCE)));
        let (r_at, s_at) = (reached(PAPER_ERROR, rvq), reached(PAPER_ERROR, softmax));
        section.claim(
            "The first-order formulas are the exact entropy for large inputs (Theorems 1 and 2).",
            "agreement at large d",
            format!(
                "errors of {:.0e} and {:.0e} at {FARTHEST}",
                at(rvq(FARTHEST)),
                at(softmax(FARTHEST))
            ),
            Verdict::of(at(rvq(FARTHEST)).max(at(softmax(FARTHEST))) < 1e-9),
        );
        section.claim(
            "Beyond 10 the first order has a proportional error of about 1e-6.",
            "≈ 1e-6 for inputs > 10",
            format!(
                "{r10:.1e} (rVQ) and {s10:.1e} (softmax) at 10; 1e-6 from {r_at:.1} and {s_at:.1} on"
            ),
            Verdict::of(r10.max(s10) <= 3.0 * PAPER_ERROR),
        );
        let two = at(WorstCase::rvq(2, PAPER_DISTANCE, DELTA));
        let absolute = rvq(PAPER_DISTANCE);
        let absolute = (absolute.exact() - absolute.first_order()).abs();
        section.paragraph(&format!(
            "Nothing in the text changes this: for K = 2, the smallest there is, rVQ's error at 10 is {two:.1e}, and the absolute error for K = 256 is {absolute:.1e} nats. The error is about (K − 1) e^−g, so 1e-6 needs g = ln 255 + 13.8 = 19.4: a distance of 18.9 for rVQ and a logit of 19.4."
        ));
        let held = [0.25, 0.5, 0.75, 0.9, 0.99].iter().all(|&delta| {
            // g = δ²/2 + δd is below d from δ² / (2 (1 − δ)) on; twice that, so that entropies are not yet zero.
            let d = 5.0 + delta * delta / (1.0 - delta);
            WorstCase::rvq(CODES, d, delta).exact() > softmax(d).exact()
        });
        let not = [1.1, 1.5, 2.0]
            .iter()
            .all(|&delta| WorstCase::rvq(CODES, 20.0, delta).exact() < softmax(20.0).exact());
        section.claim(
            "For large inputs rVQ has the higher entropy if δ < 1 (Corollary).",
            "if δ < 1",
            format!(
                "five values of δ below 1: {}; three above 1: {}",
                if held {
                    "rVQ higher in all"
                } else {
                    "not in all"
                },
                if not {
                    "softmax higher in all"
                } else {
                    "not in all"
                }
            ),
            Verdict::of(held),
        );
        let last = random.len() - 1;
        let (mean, least) = random[last];
        section.claim(
            "Random codebooks are on a different trend from the worst case.",
            "mean and least far above it",
            format!(
                "at {FARTHEST}: mean {mean:.2} and least {least:.3} nats of {codebooks}, worst case {:.0e}",
                rvq(FARTHEST).exact()
            ),
            Verdict::of(least > 1e3 * rvq(FARTHEST).exact()),
        );
        section.paragraph("The nearest point of the sphere is at distance d of the embedding, so that a code there and the others at its far end would be the worst case with δ = 1. The same codebooks are measured at every distance.");
        section.seeds = 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// −Σ p ln p, without any rearranging.
    fn plain(scores: &[f64]) -> f64 {
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        let p = scores.iter().map(|s| s.exp() / sum);
        -p.map(|p| p * p.ln()).sum::<f64>()
    }

    #[test]
    fn worst_cases_are_their_definition() {
        for d in [0.0, 0.7, 3.0, 10.0] {
            let mut scores = vec![-0.5 * (d + DELTA) * (d + DELTA); CODES];
            scores[0] = -0.5 * d * d;
            let exact = WorstCase::rvq(CODES, d, DELTA).exact();
            assert!((plain(&scores) - exact).abs() < 1e-12, "{d}");
            let mut scores = vec![0.0; CODES];
            scores[0] = d;
            let exact = WorstCase::softmax(CODES, d).exact();
            assert!((plain(&scores) - exact).abs() < 1e-12, "{d}");
        }
    }

    #[test]
    fn a_codebook_has_the_entropy_of_its_distances() {
        // Codes on a circle, an embedding on the x axis.
        let (e, angles) = (3.0, [0.1f64, 1.0, 2.0, 4.0]);
        let along: Vec<f64> = angles.iter().map(|a| RADIUS * a.cos()).collect();
        let square = |a: &f64| (e - RADIUS * a.cos()).powi(2) + (RADIUS * a.sin()).powi(2);
        let scores: Vec<f64> = angles.iter().map(|a| -0.5 * square(a)).collect();
        assert!((entropy(&along, e) - plain(&scores)).abs() < 1e-12);
    }

    #[test]
    fn the_error_falls_to_a_limit_where_it_is_reached() {
        let case = |d| WorstCase::rvq(CODES, d, DELTA);
        let d = reached(1e-6, case);
        assert!(case(d).error() <= 1e-6 && case(d - 0.01).error() > 1e-6);
    }
}
