//! Where the ticks of an axis go, and what stands beside them.

/// An axis: the range it shows, and the values that are marked on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
    pub ticks: Vec<f64>,
}

impl Axis {
    /// An axis over `values`, widened to round numbers if `round`, with about `count` ticks.
    pub fn linear(values: impl Iterator<Item = f64>, count: usize, round: bool) -> Axis {
        let (mut low, mut high) = range(values).unwrap_or((0.0, 1.0));
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            // One value only: make room around it.
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low, high) = (low - room, high + room);
        }
        let step = round_step((high - low) / count.max(1) as f64);
        if round {
            (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        }
        let first = (low / step - 1e-6).ceil() as i64;
        let last = (high / step + 1e-6).floor() as i64;
        let ticks = (first..=last).map(|number| number as f64 * step).collect();
        Axis {
            low,
            high,
            log: false,
            ticks,
        }
    }

    /// A logarithmic axis over those of `values` that are above zero, with a tick at each power of ten.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = range(values.filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        let (low, high) = if low == high {
            (low / 2.0, high * 2.0)
        } else {
            (low, high)
        };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let within = |tick: &f64| (low * 0.999..=high * 1.001).contains(tick);
        let mut ticks: Vec<f64> = powers
            .clone()
            .map(|power| 10f64.powi(power))
            .filter(within)
            .collect();
        if ticks.len() < 3 {
            let finer =
                powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
            ticks = finer.filter(within).collect();
        }
        while ticks.len() > 8 {
            ticks = ticks.into_iter().step_by(2).collect();
        }
        Axis {
            low,
            high,
            log: true,
            ticks,
        }
    }

    /// Where `value` is, from 0 at the low end to 1 at the high end; None where it cannot be shown.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = match self.log {
            true => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
            false => (value - self.low) / (self.high - self.low),
        };
        place.is_finite().then_some(place)
    }

    /// The words beside each tick; on a linear axis all in one unit and with the same number of decimals.
    pub fn labels(&self) -> Vec<String> {
        if self.log {
            return self
                .ticks
                .iter()
                .map(|tick| label(*tick, 0.0, *tick))
                .collect();
        }
        let step = match self.ticks.as_slice() {
            [first, second, ..] => (second - first).abs(),
            _ => 0.0,
        };
        let largest = self
            .ticks
            .iter()
            .fold(0.0, |largest: f64, tick| largest.max(tick.abs()));
        // Up to four digits are read more easily than a unit and decimals.
        let sized = if largest < 1e4 { step } else { largest };
        self.ticks
            .iter()
            .map(|tick| label(*tick, step, sized))
            .collect()
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite())
        .fold(None, |range, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((value.min(low), value.max(high)))
        })
}

/// The smallest of 1, 2, 5, 10 times a power of ten that is at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|digit| digit * power >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0);
    digit * power
}

/// `value` in the unit that suits a number as large as `sized`.
fn label(value: f64, step: f64, sized: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e12).contains(&value.abs().max(step)) {
        return format!("{value:.0e}").replace('-', "−");
    }
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, letter) = units
        .into_iter()
        .find(|(unit, _)| sized >= *unit)
        .unwrap_or((1.0, ""));
    format!("{}{letter}", plain(value / unit, step / unit))
}

/// The value with as many decimals as the step needs; without a step, as many as it has.
fn plain(value: f64, step: f64) -> String {
    let text = match step > 0.0 {
        true => format!(
            "{value:.*}",
            (-step.log10() - 1e-9).ceil().max(0.0) as usize
        ),
        false => format!("{}", (value * 1e6).round() / 1e6),
    };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_inside() {
        let axis = Axis::linear([3.13, 7.9].into_iter(), 5, true);
        assert_eq!((axis.low, axis.high), (3.0, 8.0));
        assert_eq!(axis.labels(), ["3", "4", "5", "6", "7", "8"]);
        let axis = Axis::linear([0.0, 0.93].into_iter(), 5, true);
        assert_eq!(axis.labels(), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let axis = Axis::linear([0.0, 5000.0].into_iter(), 5, false);
        assert_eq!(axis.labels(), ["0", "1k", "2k", "3k", "4k", "5k"]);
        let axis = Axis::linear([0.0, 3000.0].into_iter(), 7, false);
        assert_eq!(
            axis.labels(),
            ["0", "500", "1000", "1500", "2000", "2500", "3000"]
        );
        let axis = Axis::linear([0.0, 15_000.0].into_iter(), 7, false);
        assert_eq!(axis.labels(), ["0", "5k", "10k", "15k"]);
    }

    #[test]
    fn odd_ranges_still_make_an_axis() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![0.0],
            vec![-2.5],
            vec![1e300, -1e300],
            vec![1.0, 1.0 + 1e-12],
        ] {
            let axis = Axis::linear(values.iter().copied(), 5, true);
            assert!(
                axis.low < axis.high && (1..=14).contains(&axis.ticks.len()),
                "{values:?}: {axis:?}"
            );
            let axis = Axis::logarithmic(values.iter().copied());
            assert!(
                axis.low < axis.high && axis.ticks.len() <= 14,
                "{values:?}: {axis:?}"
            );
        }
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten() {
        let axis = Axis::logarithmic([1.0, 100_000.0, 0.0].into_iter());
        assert_eq!(axis.labels(), ["1", "10", "100", "1k", "10k", "100k"]);
        assert_eq!(axis.place(0.0), None);
        assert!((axis.place(1000.0).unwrap() - 0.6).abs() < 1e-12);
        assert_eq!(
            Axis::logarithmic([20.0, 300.0].into_iter()).labels(),
            ["20", "50", "100", "200"]
        );
    }
}
