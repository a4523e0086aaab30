//! What records are in TensorBoard: a tag and a number each.

use super::log::TrainRecord;
use crate::evaluate::{EvalRecord, Usage};

fn of_layers(name: &str, values: impl Iterator<Item = f64>) -> Vec<(String, f64)> {
    let tagged = values.enumerate();
    let tagged = tagged.map(|(layer, value)| (format!("{name}/layer{:02}", layer + 1), value));
    tagged.collect()
}

pub(super) fn of_training(record: &TrainRecord) -> Vec<(String, f64)> {
    let mut scalars = vec![
        ("train/bits_per_dim".to_string(), record.bits_per_dim),
        ("train/reconstruction".into(), record.reconstruction),
        ("train/grad_norm".into(), record.grad_norm),
        ("train/skipped".into(), record.skipped as f64),
        ("train/lr".into(), record.lr),
        ("train/images_per_second".into(), record.images_per_second),
    ];
    scalars.extend(of_layers("train_kl", record.kl.iter().copied()));
    scalars
}

/// Those of an evaluation, whose tags begin with `name`.
pub(super) fn of_evaluation(name: &str, record: &EvalRecord) -> Vec<(String, f64)> {
    let mut scalars = vec![
        (format!("{name}/bits_per_dim"), record.bits_per_dim),
        (format!("{name}/reconstruction"), record.reconstruction),
    ];
    if let Some((used, _)) = record.codes_in_use() {
        scalars.push((format!("{name}/codes_in_use"), used as f64));
    }
    if let Some(error) = record.squared_error {
        scalars.push((format!("{name}/squared_error"), error));
    }
    let layers = [
        ("kl", record.kl.clone()),
        ("position_bits", record.position_bits.clone()),
        ("perplexity", usage(record, |u| u.perplexity)),
        ("live_codes", usage(record, |u| u.used as f64)),
        ("dead_codes", usage(record, |u| u.dead as f64)),
        ("embedding_size", record.embedding_size.clone()),
    ];
    for (what, values) in layers {
        scalars.extend(of_layers(&format!("{name}_{what}"), values.into_iter()));
    }
    scalars
}

fn usage(record: &EvalRecord, of: fn(&Usage) -> f64) -> Vec<f64> {
    record.usage.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::Usage;
    use super::*;

    #[test]
    fn each_layer_has_a_tag_of_its_own() {
        let record = EvalRecord {
            kl: vec![0.5, 0.25],
            position_bits: vec![4.0, 8.0],
            usage: vec![Usage::of(&[1, 1, 0]), Usage::of(&[0, 3])],
            ..EvalRecord::default()
        };
        let scalars = of_evaluation("early", &record);
        let value = |tag: &str| scalars.iter().find(|(t, _)| t == tag).map(|(_, v)| *v);
        assert_eq!(value("early/codes_in_use"), Some(3.0));
        assert_eq!(value("early_live_codes/layer01"), Some(2.0));
        assert_eq!(value("early_dead_codes/layer02"), Some(1.0));
        assert_eq!(value("early_position_bits/layer02"), Some(8.0));
        assert_eq!(value("early_kl/layer01"), Some(0.5));
    }
}
