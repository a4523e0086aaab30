//! What changes over a run: the learning rate and the temperature, by step.
//!
//! Pure functions of the configuration and the step, so that a resumed run needs no history. The one thing that has a
//! memory is the plateau rule, and its memory is three numbers.

use crate::config::{Schedule, Temperature, TrainConfig};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// The memory of the "plateau" schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// The best value so far; lower is better.
    pub best: Option<f64>,
    /// Evaluations since the best value, or since the learning rate last fell.
    pub since: usize,
    /// What the learning rate is multiplied by.
    pub factor: f64,
}

impl Default for Plateau {
    fn default() -> Self {
        Plateau {
            best: None,
            since: 0,
            factor: 1.0,
        }
    }
}

impl Plateau {
    /// Takes note of an evaluation, lower being better; true when the learning rate falls.
    pub fn observe(&mut self, train: &TrainConfig, value: f64) -> bool {
        // A value that is not a number improves on nothing.
        if !value.is_nan() && self.best.is_none_or(|best| value < best) {
            (self.best, self.since) = (Some(value), 0);
            return false;
        }
        self.since += 1;
        if self.since < train.plateau_patience || train.schedule != Schedule::Plateau {
            return false;
        }
        self.since = 0;
        let at_floor = train.lr * self.factor <= train.lr_floor;
        if !at_floor {
            self.factor *= train.plateau_factor;
        }
        !at_floor
    }
}

/// The learning rate of `step`, counted from 0.
pub fn learning_rate(train: &TrainConfig, plateau: &Plateau, step: usize) -> f64 {
    if step < train.warmup {
        return train.lr * (step + 1) as f64 / train.warmup as f64;
    }
    let done = progress(
        step - train.warmup,
        train.steps.saturating_sub(train.warmup),
    );
    let down = |left: f64| train.lr_floor + (train.lr - train.lr_floor) * left;
    match train.schedule {
        Schedule::Constant => train.lr,
        Schedule::Cosine => down(0.5 * (1.0 + (PI * done).cos())),
        Schedule::Linear => down(1.0 - done),
        Schedule::Plateau => (train.lr * plateau.factor).max(train.lr_floor),
    }
}

/// How often the KL counts in the loss of `step`, counted from 0.
pub fn kl_weight(train: &TrainConfig, step: usize) -> f64 {
    match train.kl_warmup {
        0 => 1.0,
        warmup => ((step + 1) as f64 / warmup as f64).min(1.0),
    }
}

/// The temperature of `step`, counted from 0, in a run of `steps`.
pub fn temperature(temperature: &Temperature, steps: usize, step: usize) -> f64 {
    temperature.start + (temperature.end - temperature.start) * progress(step, steps)
}

/// 0 at the first step, 1 at the last and beyond.
fn progress(step: usize, steps: usize) -> f64 {
    match steps {
        0 | 1 => 1.0,
        _ => (step as f64 / (steps - 1) as f64).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(schedule: Schedule) -> TrainConfig {
        TrainConfig {
            schedule,
            lr: 1.0,
            lr_floor: 0.1,
            steps: 111,
            warmup: 10,
            ..Default::default()
        }
    }

    #[test]
    fn warm_up_rises_to_the_full_rate() {
        for schedule in [
            Schedule::Constant,
            Schedule::Cosine,
            Schedule::Linear,
            Schedule::Plateau,
        ] {
            let rate = |step| learning_rate(&train(schedule), &Plateau::default(), step);
            assert_eq!(rate(0), 0.1);
            assert_eq!(rate(9), 1.0);
            assert_eq!(rate(10), 1.0);
        }
    }

    #[test]
    fn a_line_falls_to_the_floor_and_stays() {
        let rate = |step| learning_rate(&train(Schedule::Linear), &Plateau::default(), step);
        assert!((rate(35) - 0.775).abs() < 1e-12);
        assert!((rate(60) - 0.55).abs() < 1e-12);
        assert!((rate(110) - 0.1).abs() < 1e-12);
        assert!((rate(500) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn cosine_falls_to_the_floor_and_stays() {
        let rate = |step| learning_rate(&train(Schedule::Cosine), &Plateau::default(), step);
        assert!((rate(60) - 0.55).abs() < 1e-12);
        assert!((rate(110) - 0.1).abs() < 1e-12);
        assert!((rate(500) - 0.1).abs() < 1e-12);
        assert!((10..110).all(|step| rate(step + 1) < rate(step)));
    }

    #[test]
    fn plateau_falls_after_its_patience_and_stops_at_the_floor() {
        let train = TrainConfig {
            plateau_patience: 3,
            plateau_factor: 0.5,
            ..train(Schedule::Plateau)
        };
        let mut plateau = Plateau::default();
        let fell: Vec<bool> = [5.0, 4.0, 4.0, 4.1, f64::NAN, 3.9, 4.0]
            .map(|v| plateau.observe(&train, v))
            .into();
        assert_eq!(fell, [false, false, false, false, true, false, false]);
        assert_eq!(
            plateau,
            Plateau {
                best: Some(3.9),
                since: 1,
                factor: 0.5
            }
        );
        assert_eq!(learning_rate(&train, &plateau, 50), 0.5);
        let falls = (0..100).filter(|_| plateau.observe(&train, 9.0)).count();
        assert_eq!(falls, 3, "0.25, 0.125, and then the floor");
        assert_eq!(learning_rate(&train, &plateau, 50), 0.1);
    }

    #[test]
    fn the_memory_survives_writing() {
        let plateau = Plateau {
            best: Some(0.1 + 0.2),
            since: 4,
            factor: 0.64,
        };
        for plateau in [plateau, Plateau::default()] {
            let text = serde_json::to_string(&plateau).unwrap();
            assert_eq!(serde_json::from_str::<Plateau>(&text).unwrap(), plateau);
        }
    }

    #[test]
    fn the_weight_of_the_kl_rises_to_one_and_stays() {
        let train = TrainConfig {
            kl_warmup: 4,
            ..TrainConfig::default()
        };
        let weights: Vec<f64> = (0..6).map(|step| kl_weight(&train, step)).collect();
        assert_eq!(weights, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(kl_weight(&TrainConfig::default(), 0), 1.0);
    }

    #[test]
    fn temperature_goes_linearly() {
        let range = Temperature {
            start: 1.0,
            end: 0.5,
        };
        assert_eq!(temperature(&range, 101, 0), 1.0);
        assert_eq!(temperature(&range, 101, 50), 0.75);
        assert_eq!(temperature(&range, 101, 100), 0.5);
        assert_eq!(temperature(&range, 1, 0), 0.5);
    }
}
