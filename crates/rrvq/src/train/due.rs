//! After which steps something other than a step follows.

use crate::config::TrainConfig;

/// Steps between pictures of samples; 0 draws none before the end.
pub(super) fn sample_every(train: &TrainConfig) -> usize {
    match train.sample_every {
        0 => train.eval_every,
        every => every,
    }
}

/// The steps after which codes are counted on a few training images, evenly spaced in their logarithm: what happens to
/// codes happens early.
fn early_steps() -> impl Iterator<Item = u64> {
    (2..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)))
}

/// Whether `step` is one of those.
pub(super) fn is_early(train: &TrainConfig, step: u64) -> bool {
    next_early(train, step.saturating_sub(1)) == Some(step)
}

/// The first of those after `step`.
fn next_early(train: &TrainConfig, step: u64) -> Option<u64> {
    let asked = train.early_images > 0;
    early_steps().find(|early| asked && *early > step)
}

/// The first step after `step` that something follows: a record, an evaluation, pictures, a save.
pub(super) fn next_stop(train: &TrainConfig, step: u64) -> u64 {
    let every = [
        train.split_every,
        train.log_every,
        train.eval_every,
        train.save_every,
        sample_every(train),
    ];
    let after = |every: &u64| (step / every + 1) * every;
    let stops = every.iter().map(|n| *n as u64).filter(|n| *n > 0);
    let last = train.steps as u64;
    let stops = stops.map(|n| after(&n)).chain(next_early(train, step));
    stops.fold(last, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(train: &TrainConfig) -> Vec<u64> {
        let mut stops = vec![0];
        while stops[stops.len() - 1] < train.steps as u64 {
            stops.push(next_stop(train, stops[stops.len() - 1]));
        }
        stops
    }

    #[test]
    fn bursts_stop_where_something_is_due() {
        let train = TrainConfig {
            steps: 100,
            log_every: 30,
            eval_every: 40,
            save_every: 0,
            sample_every: 45,
            ..Default::default()
        };
        assert_eq!(stops(&train), [0, 30, 40, 45, 60, 80, 90, 100]);
        assert_eq!(next_stop(&train, 31), 40);
    }

    #[test]
    fn codes_are_counted_early_and_then_less_and_less_often() {
        let train = TrainConfig {
            steps: 6000,
            log_every: 0,
            eval_every: 0,
            save_every: 0,
            sample_every: 0,
            ..Default::default()
        };
        let early = [100, 200, 500, 1000, 2000, 5000];
        assert_eq!(stops(&train), [&[0][..], &early, &[6000]].concat());
        let found = (0..6000).filter(|step| is_early(&train, *step));
        assert_eq!(found.collect::<Vec<_>>(), early);
        let never = TrainConfig {
            early_images: 0,
            ..train
        };
        assert_eq!(stops(&never), [0, 6000]);
        assert!(!is_early(&never, 100));
    }
}
