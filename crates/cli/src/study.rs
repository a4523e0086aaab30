//! `rrvq study`: lists studies, or runs them and says what they found.

use crate::terminal::{Follow, SAVING, grouped, line, table, watch_for_interrupts};
use crate::{args, jobs};
use rrvq::train::Watch;
use rrvq::{Device, Error, Result};
use rrvq_study::framework::{self, Budget, PAGE, Planned, Settings, State, Stored, Study};
use rrvq_study::studies::{STUDIES, named};
use std::path::PathBuf;
use std::time::Instant;

pub fn study(args: &args::Study) -> Result<()> {
    let Some(name) = &args.name else {
        STUDIES
            .iter()
            .for_each(|study| line(format!("{:<12} {}", study.name(), study.about())));
        return Ok(());
    };
    let studies = named(name)?;
    let Some(out) = &args.out else {
        return Err(Error::new(format!(
            "study {name} needs a folder to write to; name it with --out DIR"
        )));
    };
    let settings = Settings {
        out: out.clone(),
        data: args.data.clone(),
        scale: args.scale,
        // A plan may be made where there is no GPU.
        device: if args.plan {
            Device::Cpu
        } else {
            args.compute.open()?
        },
        minutes: args.minutes,
        seeds: args.seeds.map(usize::from),
        runs: args.run.iter().cloned().collect(),
        budget: args.budget,
        jobs: args.jobs.into(),
    };
    if args.plan {
        return told(&framework::plan(&studies, &settings)?, args.jobs.into());
    }
    watch_for_interrupts(SAVING)?;
    if let Some(job) = &args.job {
        jobs::end_with_parent();
        return framework::do_job(job, &settings, &mut Progress);
    }
    let begun = Instant::now();
    let outcome = framework::run(&studies, &settings, &mut Progress);
    let page = out.join(PAGE);
    if page.is_file() {
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        line(format!(
            "{minutes:.1} minutes in all; page: {}",
            page.display()
        ));
    }
    outcome
}

/// What would be trained, as a table.
fn told(plan: &[Planned], jobs: usize) -> Result<()> {
    let budget = |planned: &Planned| match planned.budget {
        Budget::Steps(steps) => format!("{} steps", grouped(steps)),
        Budget::Minutes(minutes) => format!("{minutes:.1} minutes"),
    };
    let state = |planned: &Planned| match &planned.state {
        State::Missing => "to be trained".into(),
        State::Interrupted { step, of } => {
            format!("at step {} of {}", grouped(*step), grouped(*of))
        }
        State::Finished => "finished".into(),
        State::Given(dir) => dir.display().to_string(),
        State::Shared(study) => format!("as for {study}"),
    };
    let rows: Vec<Vec<String>> = plan
        .iter()
        .map(|p| vec![p.study.into(), p.run.clone(), budget(p), state(p)])
        .collect();
    table(&["study", "run", "budget", "state"], &rows);
    let left = |p: &&Planned| matches!(p.state, State::Missing | State::Interrupted { .. });
    let left: Vec<&Planned> = plan.iter().filter(left).collect();
    let minutes = left.iter().filter_map(|p| match (p.budget, &p.state) {
        (Budget::Steps(_), _) => None,
        (Budget::Minutes(m), State::Interrupted { step, of }) => {
            Some(m * (1.0 - *step as f64 / (*of).max(1) as f64))
        }
        (Budget::Minutes(m), _) => Some(m),
    });
    let timed: Vec<f64> = minutes.collect();
    let time = match timed.len() {
        0 => String::new(),
        many => format!(
            ", {many} of them for {:.0} minutes in all, {jobs} at a time",
            timed.iter().sum::<f64>() / jobs.min(many) as f64
        ),
    };
    let models = if left.len() == 1 { "model" } else { "models" };
    line(format!("{} {models} to train{time}", left.len()));
    Ok(())
}

struct Progress;

impl framework::Follow for Progress {
    fn started(&mut self, number: usize, all: usize, study: &dyn Study, minutes_left: f64) {
        let left = match minutes_left {
            m if m < 1.0 => "less than a minute".into(),
            m => format!("about {m:.0} minutes"),
        };
        line(format!(
            "{} ({number} of {all}): {}; {left} left in all",
            study.name(),
            study.about()
        ));
    }

    fn training(&mut self, run: &str) -> Box<dyn Watch> {
        Box::new(Follow::quiet(run))
    }

    fn waiting(&mut self, run: &str) {
        line(format!("  {run}: another process trains it; waiting"));
    }

    fn side_by_side(&mut self, files: &[PathBuf], at_a_time: usize) -> Result<()> {
        jobs::train(files, at_a_time)
    }

    fn finished(&mut self, stored: &Stored) {
        for claim in &stored.claims {
            line(format!("  {}: {}", claim.verdict, claim.claim));
            line(format!("    paper: {}; ours: {}", claim.paper, claim.ours));
        }
        line(format!("  {:.1} minutes", stored.minutes));
    }

    fn left_out(&mut self, study: &dyn Study, why: &str) {
        line(format!("{} is left out: {why}", study.name()));
    }
}
