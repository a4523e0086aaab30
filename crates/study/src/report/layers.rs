//! The layers of a run: what each costs and uses, at the end and over time.

use crate::report::{Cell, HeatMap, Report};
use rrvq::config::Config;
use rrvq::evaluate::EvalRecord;
use rrvq::model::hierarchy::dims;

/// What [`layer_rows`] tells; the last two of codes alone.
pub(crate) const LAYER_HEADERS: [&str; 6] = [
    "layer",
    "map",
    "KL, bits an image",
    "bits a position",
    "perplexity",
    "codes used",
];

/// Moments of a heat map; more are thinned out.
const MOMENTS: usize = 40;

/// What each layer of a model costs and uses, top first.
pub(crate) fn layer_rows(config: &Config, last: &EvalRecord) -> Vec<Vec<String>> {
    let sides = config.model.sides();
    let row = |layer: usize| {
        let (side, bits) = (sides[layer], bits_of_image(config, last, layer));
        let mut cells = vec![
            format!("{}", layer + 1),
            format!("{side} × {side}"),
            format!("{bits:.2}"),
            format!("{:.3}", bits / (side * side) as f64),
        ];
        if let Some(usage) = last.usage.get(layer) {
            cells.push(format!("{:.1}", usage.perplexity));
            cells.push(format!("{} of {}", usage.used, usage.used + usage.dead));
        }
        cells
    };
    let layers = last.kl.len().min(sides.len());
    (0..layers).rev().map(row).collect()
}

fn bits_of_image(config: &Config, record: &EvalRecord, layer: usize) -> f64 {
    record.kl[layer].max(0.0) * dims(&config.model) as f64
}

/// Maps of layers by time: codes in use, perplexity, bits a position.
pub(super) fn over_time(mut page: Report, config: &Config, records: &[&EvalRecord]) -> Report {
    let layers = config.model.layers();
    let records: Vec<&EvalRecord> = thinned(records)
        .into_iter()
        .filter(|record| record.kl.len() == layers)
        .collect();
    if layers < 2 || records.len() < 2 {
        return page;
    }
    let map = |title: &str, scale: [String; 2], cell: &dyn Fn(&EvalRecord, usize) -> Cell| {
        let row = |layer: usize| {
            let of = |record: &&EvalRecord| {
                let cell = cell(record, layer);
                let (step, split) = (record.step, &record.split);
                let text = format!(
                    "layer {}, step {step}, {} {split} images: {}",
                    layer + 1,
                    record.images,
                    cell.text
                );
                Cell { text, ..cell }
            };
            let name = format!("layer {}", layer + 1);
            (name, records.iter().map(of).collect())
        };
        HeatMap {
            title: title.into(),
            x_label: "step".into(),
            columns: records.iter().map(|r| r.step.to_string()).collect(),
            rows: (0..layers).rev().map(row).collect(),
            scale,
        }
    };
    if records.iter().all(|record| record.usage.len() == layers) {
        page = page.heat_map(&map(
            "Live codes: drawn for at least one image",
            ["none".into(), "all codes".into()],
            &|record, layer| {
                let usage = &record.usage[layer];
                let all = usage.used + usage.dead;
                Cell {
                    shade: usage.used as f64 / all as f64,
                    text: format!("{} of {all}", usage.used),
                }
            },
        ));
        page = page.heat_map(&map(
            "Perplexity of codes, shaded by its logarithm",
            ["1".into(), "all codes".into()],
            &|record, layer| {
                let usage = &record.usage[layer];
                let all = (usage.used + usage.dead) as f64;
                Cell {
                    shade: usage.perplexity.ln() / all.ln(),
                    text: format!("{:.1}", usage.perplexity),
                }
            },
        ));
    }
    if records
        .iter()
        .all(|record| record.embedding_size.len() == layers)
    {
        let size = |record: &EvalRecord, layer: usize| record.embedding_size[layer];
        page = page.heat_map(&map(
            "Embeddings, root mean square, shaded by its logarithm: far from 1, codes are out of reach",
            ["1 and less".into(), "30 and more".into()],
            &|record, layer| Cell {
                shade: (size(record, layer).ln() / 30f64.ln()).clamp(0.0, 1.0),
                text: format!("{:.2}", size(record, layer)),
            },
        ));
    }
    let sides = config.model.sides();
    let bits = |record: &EvalRecord, layer: usize| {
        bits_of_image(config, record, layer) / (sides[layer] * sides[layer]) as f64
    };
    let all = records
        .iter()
        .flat_map(|record| (0..layers).map(|layer| bits(record, layer)));
    let most = all.filter(|b| b.is_finite()).fold(1e-9, f64::max);
    page.heat_map(&map(
        "KL in bits a position, shaded by its root",
        ["0".into(), format!("{most:.2} bits")],
        &|record, layer| Cell {
            shade: (bits(record, layer) / most).sqrt(),
            text: format!("{:.3} bits", bits(record, layer)),
        },
    ))
}

/// Some of many, the newest among them.
fn thinned<'a>(records: &[&'a EvalRecord]) -> Vec<&'a EvalRecord> {
    let every = records.len().div_ceil(MOMENTS).max(1);
    let mut some: Vec<&EvalRecord> = records.iter().rev().step_by(every).copied().collect();
    some.reverse();
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::evaluate::Usage;

    fn record(step: usize, codes: usize) -> EvalRecord {
        EvalRecord {
            step,
            split: "train".into(),
            images: 64,
            kl: vec![0.1, 0.4],
            usage: (0..codes).map(|_| Usage::of(&[5, 5, 0, 0])).collect(),
            embedding_size: (0..codes).map(|_| 12.34).collect(),
            ..EvalRecord::default()
        }
    }

    fn drawn(records: &[EvalRecord]) -> String {
        let config = Config::preset("tiny-swatches").unwrap();
        let records: Vec<&EvalRecord> = records.iter().collect();
        over_time(Report::new("page"), &config, &records).to_html()
    }

    #[test]
    fn layers_are_shown_over_time() {
        let page = drawn(&[record(100, 2), record(200, 2)]);
        assert_eq!(page.matches("Heat map").count(), 4);
        // 0.4 bits a dimension of 8 × 8 × 3, on 2 × 2 positions.
        for text in [
            "layer 2, step 200, 64 train images: 2 of 4",
            "layer 1, step 100, 64 train images: 2.0",
            "layer 2, step 100, 64 train images: 19.200 bits",
            "layer 2, step 200, 64 train images: 12.34",
        ] {
            assert!(page.contains(text), "{text}");
        }
        // Gaussians have no codes; one moment is no time.
        let page = drawn(&[record(100, 0), record(200, 0)]);
        assert_eq!(page.matches("Heat map").count(), 1);
        assert!(!drawn(&[record(100, 2)]).contains("Heat map"));
    }

    #[test]
    fn many_moments_are_thinned_and_the_newest_stays() {
        let many: Vec<EvalRecord> = (0..201).map(|step| record(step, 2)).collect();
        let all: Vec<&EvalRecord> = many.iter().collect();
        let some = thinned(&all);
        assert!(some.len() <= MOMENTS && some.len() > MOMENTS / 2);
        assert_eq!(some.last().unwrap().step, 200);
    }
}
