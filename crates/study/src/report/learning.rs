//! How runs learnt, on charts that have all of them.

use super::runs::{Seen, by_step, in_use, splits, unit_of};
use super::{Chart, Report, Series};
use rrvq::train::log::Record;

/// Points of a line of training batches, each the mean of the records since the last one.
const POINTS: usize = 80;

/// Adds the charts of how all runs learnt.
pub fn learning(page: Report, seen: &[Seen]) -> Report {
    let chart = |title: &str, x: &str, y: &str, series: Vec<Series>| Chart {
        title: title.into(),
        x_label: x.into(),
        y_label: y.into(),
        log_x: false,
        log_y: false,
        dots: series.iter().all(|line| line.points.len() <= 20),
        series,
    };
    let lines = |of: &dyn Fn(&Seen) -> Vec<(f64, f64)>| -> Vec<Series> {
        let all = seen.iter().map(|run| Series::new(&run.name, of(run)));
        all.filter(|line| !line.points.is_empty()).collect()
    };
    let bits = lines(&|run| run.by_step(|eval| Some(eval.bits_per_dim)));
    let mut page = page.heading("Learning");
    let evaluated = !bits.is_empty();
    if !evaluated {
        page = page.paragraph("No run has been evaluated yet.");
    } else {
        page = page.chart(&chart(
            &format!(
                "Bits per dim of {} images, hard samples, averaged weights",
                splits(seen)
            ),
            "step",
            "bits per dim",
            bits,
        ));
    }
    if seen.len() > 1 && evaluated {
        let by_time = |unit: f64| {
            lines(&|run| {
                let points = run.by_step(|eval| Some(eval.bits_per_dim)).into_iter();
                let at = |step| Some(run.seconds_at(step)? / unit);
                let timed = points.filter_map(|(step, bits)| Some((at(step)?, bits)));
                timed.collect()
            })
        };
        let ends = by_time(1.0).into_iter().flat_map(|line| line.points);
        let (unit, name) = unit_of(ends.map(|(x, _)| x).fold(0.0, f64::max));
        page = page.chart(&chart(
            "The same by time",
            &format!("{name} of training"),
            "bits per dim",
            by_time(unit),
        ));
    }
    let trained = lines(&|run| training(&run.records));
    if trained.iter().any(|line| line.points.len() > 1) {
        page = page.chart(&chart(
            "Bits per dim of training batches, with the weights of each step",
            "step",
            "bits per dim",
            trained,
        ));
    }
    let quality = lines(&|run| {
        let found = run.evaluations();
        let points = found.filter_map(|eval| eval.rate_and_quality(&run.config.model));
        points.collect()
    });
    if !quality.is_empty() {
        page = page.chart(&chart(
            "Rate and distortion, evaluation by evaluation",
            "bits a pixel (KL)",
            "PSNR, dB",
            quality,
        ));
    }
    let used = lines(&|run| by_step(run.code_use(), |r| in_use(r).map(|share| share * 100.0)));
    if used.is_empty() {
        return page;
    }
    page.chart(&chart(
        "Codes in use, of all layers",
        "step",
        "per cent of all codes",
        used,
    ))
}

/// Means of what training told, over steps; the first batches, which every model begins far off with, are left out.
fn training(records: &[Record]) -> Vec<(f64, f64)> {
    let told = records.iter().filter_map(|record| match record {
        Record::Train(train) if train.bits_per_dim.is_finite() => {
            Some((train.step as f64, train.bits_per_dim))
        }
        _ => None,
    });
    let told: Vec<(f64, f64)> = told.collect();
    let each = told.len().div_ceil(POINTS).max(1);
    let mean = |window: &[(f64, f64)]| {
        let sum = window.iter().map(|point| point.1).sum::<f64>();
        (window[window.len() - 1].0, sum / window.len() as f64)
    };
    told.chunks(each).skip(1).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rrvq::train::log::TrainRecord;

    fn log(count: usize) -> Vec<Record> {
        let record = |step: usize| {
            Record::Train(TrainRecord {
                step,
                bits_per_dim: if step == 1 { 1e3 } else { step as f64 },
                ..TrainRecord::default()
            })
        };
        (1..=count).map(record).collect()
    }

    #[test]
    fn lines_of_training_are_means_without_the_first() {
        assert_eq!(training(&log(3)), [(2.0, 2.0), (3.0, 3.0)]);
        assert!(training(&log(1)).is_empty() && training(&[]).is_empty());
        let long = training(&log(POINTS * 4));
        assert_eq!((long.len(), long[0]), (POINTS - 1, (8.0, 6.5)));
        let mut broken = log(5);
        let Record::Train(last) = &mut broken[4] else {
            panic!("a record of training")
        };
        last.bits_per_dim = f64::NAN;
        assert_eq!(training(&broken).len(), 3);
    }
}
