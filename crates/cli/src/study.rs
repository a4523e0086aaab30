//! `rrvq study`: lists studies, or runs them and says what they found.

use crate::terminal::{Follow, SAVING, line, watch_for_interrupts};
use crate::{args, jobs};
use rrvq::train::Watch;
use rrvq::{Error, Result};
use rrvq_study::framework::{self, PAGE, Settings, Stored, Study};
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
        device: args.compute.open()?,
        minutes: args.minutes,
        seeds: args.seeds.map(usize::from),
        runs: args.run.iter().cloned().collect(),
        jobs: args.jobs.into(),
    };
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
