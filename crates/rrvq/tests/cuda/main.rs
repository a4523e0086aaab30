//! Whole models on a GPU: against PyTorch's golden values, against the CPU, against themselves run again. Single
//! operations have tests of their own, in the tensor crate.
//!
//! Every check takes its device. Tests named `…_here` run it on the CPU, against the CPU, on every machine; the
//! others print a word and return where there is no GPU.

#[path = "../common/mod.rs"]
mod common;

mod evaluation;
mod memory;
mod noise;
mod responsibility;
mod runs;
mod training;
mod values;

#[test]
fn a_report_fails_beyond_its_limit_and_not_before() {
    use common::report::Report;
    let fails = |note: fn(&mut Report)| {
        let mut report = Report::new("on purpose");
        note(&mut report);
        std::panic::catch_unwind(|| report.end()).is_err()
    };
    assert!(!fails(|r| r.tensor(
        "a",
        "a",
        &[1.0, 4.1],
        &[1.0, 4.0],
        0.03
    )));
    assert!(fails(|r| r.tensor(
        "a",
        "a",
        &[1.0, 4.1],
        &[1.0, 4.0],
        0.02
    )));
    assert!(!fails(|r| r.tensor("a", "a", &[0.0], &[0.0], 0.0)));
    assert!(fails(|r| r.tensor("a", "a", &[1e-9], &[0.0], 0.1)));
    assert!(fails(|r| r.tensor("a", "a", &[f32::NAN], &[1.0], 0.1)));
    assert!(fails(|r| r.tensor("a", "a", &[1.0], &[1.0, 2.0], 0.1)));
    assert!(fails(|r| r.each(
        "a",
        "a",
        &[1.0, 0.03],
        &[1.0, 0.02],
        0.05
    )));
    assert!(!fails(|r| r.each(
        "a",
        "a",
        &[1.0, 0.03],
        &[1.0, 0.02],
        0.2
    )));
    assert!(fails(|r| r.each("a", "a", &[], &[1.0], 0.1)));
    assert!(!fails(|r| r.same("a", &[1, 2], &[1, 2])));
    assert!(fails(|r| r.same("a", &[1, 2], &[1, 3])));
}
