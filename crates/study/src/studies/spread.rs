//! What a model comes to from one seed or from several.

use crate::framework::{Context, Wanted};
use rrvq::evaluate::EvalRecord;
use std::fmt;

/// A mean, and how far single values lie from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// The standard deviation of a sample; 0 of a single value.
    pub deviation: f64,
    pub count: usize,
}

impl Spread {
    /// Of a number that each of several runs has.
    pub fn over<T>(runs: &[T], number: impl Fn(&T) -> f64) -> Spread {
        Spread::of(&runs.iter().map(number).collect::<Vec<f64>>())
    }

    pub fn of(values: &[f64]) -> Spread {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Spread {
            mean,
            deviation: (square / (count as f64 - 1.0).max(1.0)).sqrt(),
            count,
        }
    }

    /// Twice the standard error of the difference of two means.
    pub fn noise(&self, other: &Spread) -> f64 {
        let error = |spread: &Spread| spread.deviation.powi(2) / spread.count as f64;
        2.0 * (error(self) + error(other)).sqrt()
    }
}

/// Three digits; with several values the deviation behind them.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.mean)?;
        match self.count {
            0 | 1 => Ok(()),
            _ => write!(f, " ± {:.3}", self.deviation),
        }
    }
}

/// Bits per dim of evaluations.
pub fn bits(records: &[EvalRecord]) -> Spread {
    Spread::over(records, |record| record.bits_per_dim)
}

/// Codes chosen by a test image, of how many; the mean of several runs.
pub fn codes_in_use(records: &[EvalRecord]) -> String {
    let of_each: Vec<(usize, usize)> = records.iter().filter_map(|r| r.codes_in_use()).collect();
    match of_each[..] {
        [] => "–".into(),
        [(_, all), ..] => {
            let used: usize = of_each.iter().map(|(used, _)| used).sum();
            format!("{} of {all}", used / of_each.len())
        }
    }
}

/// "one seed", or how many.
pub fn seeds_told(count: usize) -> String {
    match count {
        1 => "one seed".into(),
        n => format!("{n} seeds"),
    }
}

/// A model from each of the command's seeds; from one where it names none.
pub fn from_each_seed(context: &Context<'_>, wanted: &Wanted) -> Vec<Wanted> {
    let seeds = context.seeds(1, 1).into_iter();
    seeds.map(|seed| wanted.clone().seed(seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample_and_is_told_where_there_is_one() {
        let two = Spread::of(&[1.0, 3.0]);
        assert_eq!((two.mean, two.deviation), (2.0, 2f64.sqrt()));
        assert_eq!(two.to_string(), "2.000 ± 1.414");
        let one = Spread::of(&[5.0]);
        assert_eq!((one.deviation, one.to_string().as_str()), (0.0, "5.000"));
        assert_eq!(one.noise(&one), 0.0);
        assert!((two.noise(&two) - 2.0 * 2f64.sqrt()).abs() < 1e-12);
    }
}
