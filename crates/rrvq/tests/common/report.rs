//! Differences found, each beside its limit. All are looked at before any is complained about, and the largest of
//! each kind is printed, so that a limit can be judged without making a test fail.

use std::collections::BTreeMap;

/// Numbers below this are compared by their difference, not by its share: a KL is a sum over positions of
/// differences of logarithms, and what is near 0 has no more digits than these.
const SMALL: f32 = 0.1;

pub struct Report {
    title: String,
    /// By kind: how often looked at, the largest error, its limit, and where it was.
    worst: BTreeMap<&'static str, (usize, f32, f32, String)>,
    failed: Vec<String>,
}

impl Report {
    pub fn new(title: impl Into<String>) -> Report {
        Report {
            title: title.into(),
            worst: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// An error and the largest it may be.
    pub fn note(&mut self, kind: &'static str, what: &str, error: f32, limit: f32) {
        // What is no number is as wrong as can be.
        let error = if error.is_nan() { f32::INFINITY } else { error };
        if error > limit {
            self.failed
                .push(format!("{what} is off by {error:.2e}, not {limit:.0e}"));
        }
        let row = self
            .worst
            .entry(kind)
            .or_insert((0, -1.0, limit, "".into()));
        row.0 += 1;
        if error > row.1 {
            (row.1, row.2, row.3) = (error, limit, what.into());
        }
    }

    /// The largest difference of two tensors, of the largest value of the one that is wanted.
    pub fn tensor(
        &mut self,
        kind: &'static str,
        what: &str,
        have: &[f32],
        want: &[f32],
        limit: f32,
    ) {
        self.scaled(kind, what, have, want, largest(want), limit);
    }

    /// The same, of a given scale.
    pub fn scaled(
        &mut self,
        kind: &'static str,
        what: &str,
        have: &[f32],
        want: &[f32],
        scale: f32,
        limit: f32,
    ) {
        if have.len() != want.len() {
            let (have, want) = (have.len(), want.len());
            self.failed
                .push(format!("{what} has {have} elements, not {want}"));
            return;
        }
        self.note(kind, what, difference(have, want, scale), limit);
    }

    /// Numbers that stand for themselves, each by its own size.
    pub fn each(&mut self, kind: &'static str, what: &str, have: &[f32], want: &[f32], limit: f32) {
        if have.len() != want.len() {
            return self.scaled(kind, what, have, want, 1.0, limit);
        }
        for (i, (&have, &want)) in have.iter().zip(want).enumerate() {
            let error = difference(&[have], &[want], want.abs().max(SMALL));
            self.note(
                kind,
                &format!("{what} {i} ({have} for {want})"),
                error,
                limit,
            );
        }
    }

    /// Things that must be the same.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, have: &[T], want: &[T]) {
        if have.len() != want.len() {
            let (have, want) = (have.len(), want.len());
            self.failed
                .push(format!("{what}: {have} of them, not {want}"));
            return;
        }
        let apart: Vec<_> = have.iter().zip(want).filter(|(a, b)| a != b).collect();
        if let Some((have, want)) = apart.first() {
            let count = apart.len();
            self.failed.push(format!(
                "{what}: {count} differ, first {have:?} for {want:?}"
            ));
        }
    }

    /// Prints what was found and fails where something was beyond its limit.
    #[track_caller]
    pub fn end(self) {
        let wrong = self.told();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Prints what was found; what was beyond its limit, some of it in words.
    pub fn told(self) -> Vec<String> {
        println!("{}:", self.title);
        for (kind, (count, error, limit, what)) in &self.worst {
            println!("  {kind}: at most {error:.1e} of {limit:.0e} in {count} ({what})");
        }
        if self.failed.is_empty() {
            return Vec::new();
        }
        let (title, count) = (&self.title, self.failed.len());
        let mut told = vec![format!("{title}: {count} wrong")];
        told.extend(self.failed.into_iter().take(12));
        told
    }
}

pub fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, v| a.max(v.abs()))
}

/// The largest difference, of `scale`; anything at all of nothing is infinite.
fn difference(have: &[f32], want: &[f32], scale: f32) -> f32 {
    let apart = |(a, b): (&f32, &f32)| match (a - b).abs() {
        d if d.is_nan() => f32::INFINITY,
        d => d,
    };
    match have.iter().zip(want).map(apart).fold(0.0, f32::max) {
        0.0 => 0.0,
        most => most / scale,
    }
}
