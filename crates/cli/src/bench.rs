//! `rrvq bench`: speed, as a line and a table, or as JSON.

use crate::args::{Bench, BenchStep};
use crate::device::Compute;
use crate::launch::{group_of, with_others};
use crate::terminal::{self, grouped, line, table};
use rrvq::Result;
use rrvq::bench::{Profile, StepBench, StepReport};
use rrvq::cluster::Cluster;
use rrvq::config::Optimiser;
use rrvq::device::{Device, SumTimes, Timed};
use serde_json::{Value, json};
use std::time::Instant;

/// `begun` is when the program started.
pub fn bench(what: &Bench, begun: Instant) -> Result<()> {
    let (Bench::Step(args) | Bench::Eval(args) | Bench::Profile(args)) = what else {
        return match what {
            Bench::Codec(args) => crate::codec::bench(args),
            _ => Ok(()),
        };
    };
    with_others(args.compute, |compute, cluster| {
        bench_with(what, args, compute, begun, cluster)
    })
}

/// Alone, or with other processes that share a batch.
fn bench_with(
    what: &Bench,
    args: &BenchStep,
    compute: Compute,
    begun: Instant,
    cluster: Option<&Cluster>,
) -> Result<()> {
    let device = compute.open()?;
    let (group, silent) = group_of(cluster)?;
    let group = group.as_ref();
    let bench = StepBench {
        layers: args.layers,
        channels: args.channels,
        embed: args.embed,
        codes: args.codes,
        batch: args.batch,
        steps: args.steps as usize,
        optimiser: match args.optimiser.as_str() {
            "adam" => Optimiser::Adam,
            "muon" => Optimiser::Muon,
            _ => Optimiser::AdaMax,
        },
    };
    match what {
        Bench::Step(_) => {
            // A GPU is only slowed down to be looked into where that is asked for.
            let profiled = device.is_cpu() && group.is_none();
            let (report, profile) = bench.step(&device, begun, profiled, group)?;
            if silent {
                return Ok(());
            }
            show_report(args, &device, &report, "step", profile.as_ref());
        }
        Bench::Eval(_) => {
            let report = bench.eval(&device, begun)?;
            show_report(args, &device, &report, "batch", None);
        }
        Bench::Profile(_) => {
            let profile = bench.profile(&device, group)?;
            if !silent {
                show_profile(args, &device, &profile);
            }
        }
        Bench::Codec(_) => {}
    }
    Ok(())
}

/// What was measured, for JSON.
fn description(args: &BenchStep, device: &Device) -> Value {
    json!({
        "device": device.name(), "precision": device.precision().name(), "layers": args.layers,
        "channels": args.channels, "embed": args.embed, "codes": args.codes, "batch": args.batch,
        "optimiser": args.optimiser, "threads": rayon::current_num_threads(),
    })
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn show_report(
    args: &BenchStep,
    device: &Device,
    report: &StepReport,
    unit: &str,
    profile: Option<&Profile>,
) {
    let gflops = report.flops / report.ms_per_step / 1e6;
    let peak = peak_memory_mib();
    if args.json {
        let mut out = description(args, device);
        let numbers = json!({
            "ms_per_step": report.ms_per_step, "images_per_second": report.images_per_second,
            "first_step_seconds": report.first_step_seconds, "parameters": report.parameters,
            "plan_bytes": report.plan_bytes, "arena_mib": mib(report.plan_bytes),
            "peak_memory_mib": peak, "kernels": report.kernels, "gflops": gflops,
            "loss": report.loss, "steps": args.steps,
        });
        extend(&mut out, numbers);
        if let Some(profile) = profile {
            let row = |kind: &Timed| (kind.kind.to_string(), json!(kind.micros / 1e3));
            out["ms_by_kind"] = Value::Object(profile.kinds.iter().map(row).collect());
        }
        return terminal::json(&out);
    }
    line(format!(
        "{:.1} ms/{unit}, {:.1} images/s, {gflops:.0} GFLOP/s, first {unit} after {:.1} s",
        report.ms_per_step, report.images_per_second, report.first_step_seconds
    ));
    line(format!(
        "{} parameters, {} kernels, {:.0} MiB planned{}, {:.3} bits/dim on noise",
        grouped(report.parameters),
        report.kernels,
        mib(report.plan_bytes),
        peak.map_or(String::new(), |p| format!(", {p:.0} MiB at most in memory")),
        report.loss,
    ));
    if let Some(profile) = profile {
        show_kinds(&profile.kinds);
    }
}

fn show_profile(args: &BenchStep, device: &Device, profile: &Profile) {
    let total: f64 = profile.kinds.iter().map(|kind| kind.micros).sum();
    if args.json {
        let row = |kind: &Timed| {
            json!({
                "kind": kind.kind, "ms": kind.micros / 1e3, "share": kind.micros / total,
                "tflops": kind.flops / kind.micros / 1e6, "gb_per_second": kind.bytes / kind.micros / 1e3,
                "launches": kind.launches,
            })
        };
        let kinds: Vec<Value> = profile.kinds.iter().map(row).collect();
        let mut out = description(args, device);
        let numbers = json!({ "ms": total / 1e3, "kernels": profile.kernels, "kinds": kinds });
        extend(&mut out, numbers);
        if let Some(times) = &profile.sums {
            out["sums"] = json!({
                "values_from_to": times.sums, "last_gradient_ms": times.last_gradient, "end_ms": times.end,
            });
        }
        return terminal::json(&out);
    }
    let launches: usize = profile.kinds.iter().map(|kind| kind.launches).sum();
    line(format!(
        "{:.2} ms in {} kernels, {launches} launches",
        total / 1e3,
        profile.kernels
    ));
    show_kinds(&profile.kinds);
    if let Some(times) = &profile.sums {
        show_sums(times);
    }
}

/// When sums over processes run in a step of all streams.
fn show_sums(times: &SumTimes) {
    let beside = times
        .sums
        .iter()
        .filter(|(_, begin, _)| *begin < times.last_gradient);
    line(format!(
        "{} of {} sums over processes begin before the last weight gradient is complete, at {:.2} of {:.2} ms:",
        beside.count(),
        times.sums.len(),
        times.last_gradient,
        times.end
    ));
    let row = |(values, begin, end): &(usize, f64, f64)| {
        vec![grouped(*values), format!("{begin:.2}"), format!("{end:.2}")]
    };
    table(
        &["values", "from ms", "to ms"],
        &times.sums.iter().map(row).collect::<Vec<_>>(),
    );
}

/// Kinds of kernels with their time, their share of it, and the speed they reach.
fn show_kinds(kinds: &[Timed]) {
    let total: f64 = kinds.iter().map(|kind| kind.micros).sum();
    let row = |kind: &Timed| {
        let flops = match kind.flops {
            0.0 => String::new(),
            flops => format!("{:.2}", flops / kind.micros / 1e6),
        };
        vec![
            kind.kind.to_string(),
            format!("{:.2}", kind.micros / 1e3),
            format!("{:.1}", 100.0 * kind.micros / total),
            flops,
            format!("{:.0}", kind.bytes / kind.micros / 1e3),
            kind.launches.to_string(),
        ]
    };
    table(
        &["kernels", "ms", "%", "TFLOP/s", "GB/s", "launches"],
        &kinds.iter().map(row).collect::<Vec<_>>(),
    );
}

/// Adds the fields of one JSON object to another.
fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}

/// The most memory this process has held, where the system tells.
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
