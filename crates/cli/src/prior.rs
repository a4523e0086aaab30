//! `rrvq prior`, and what other commands say of a prior.

use crate::args;
use crate::terminal::{Follow, SAVING, grouped, note, watch_for_interrupts};
use crate::train::{as_typed, existing, has_events};
use rrvq::config::Config;
use rrvq::evaluate::EvalRecord;
use rrvq::prior::{self, Prior};
use rrvq::run::{Existing, Run};
use rrvq::train::log::{Record, read};
use rrvq::{Error, Result, TrainOptions, Trainer};
use serde_json::{Value, json};

pub fn prior(args: &args::Prior) -> Result<()> {
    let device = args.compute.open()?;
    let run = Run::open(&args.run)?;
    let existing = existing(args.resume, args.overwrite);
    let folder = run.prior();
    if existing == Existing::Refuse && folder.config().exists() {
        return Err(Error::new(format!(
            "{} already holds a prior; go on with it (--resume) or replace it (--overwrite)",
            folder.dir().display()
        )));
    }
    if existing == Existing::Resume && !folder.config().exists() {
        return Err(Error::new(format!(
            "{} holds no prior to go on with; leave --resume out",
            folder.dir().display()
        )));
    }
    let before = match existing {
        Existing::Resume => folder.config(),
        _ => run.config(),
    };
    let mut config = Config::load(before)?;
    for assignment in &args.set {
        if !assignment.trim_start().starts_with("prior.") {
            return Err(Error::new(format!(
                "--set {assignment}: the model is trained; only settings of the section prior can change, such as \
                 prior.lr=1e-3"
            )));
        }
    }
    crate::set(&mut config, &args.set)?;
    if let Some(steps) = args.steps {
        config.prior.steps = steps;
    }
    if let Some(seed) = args.seed {
        config.prior.seed = seed;
    }
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    let options = TrainOptions {
        out: None,
        existing,
        tensorboard: args.tensorboard || (args.resume && has_events(folder.dir())),
        seconds: args.minutes.map(|minutes| minutes * 60.0),
        together: None,
    };
    let mut follow = Follow::new("prior");
    config.validate()?;
    prior::check_kind(&run, &config)?;
    let data = rrvq_data::open_followed(&config, &mut |n, all| follow.decoded(n, all))?;
    watch_for_interrupts(SAVING)?;
    let mut trainer = Trainer::prior(&args.run, &config, data.as_ref(), device, options)?;
    let finished = trainer.run(&mut follow)?;
    drop(follow);
    note(match finished.interrupted {
        true => format!(
            "stopped and saved at step {} of {}; go on with: rrvq prior {} --resume",
            finished.step,
            config.prior.steps,
            as_typed(&args.run)
        ),
        false => format!(
            "{} steps done; `rrvq sample` and `rrvq eval` now use the prior in {}",
            finished.step,
            folder.dir().display()
        ),
    });
    Ok(())
}

/// What `rrvq eval` adds for a run with a prior.
pub fn judged(record: &EvalRecord, found: &Prior, kl: f64) -> (String, Value) {
    let bits = record.reconstruction + kl;
    let text = format!(
        "with the PixelCNN prior (step {}): {bits:.4} bits/dim, of which codes {kl:.4} instead of {:.4}",
        found.step,
        record.kl.iter().sum::<f64>()
    );
    let value = json!({ "step": found.step, "bits_per_dim": bits, "kl": [kl] });
    (text, value)
}

/// What `rrvq info` says of a run's prior, if it has one.
pub fn described(run: &Run) -> Result<Option<(String, Value)>> {
    let Some(found) = prior::load(run)? else {
        return Ok(None);
    };
    let records = read(run.prior().log())?;
    let last = records.iter().rev().find_map(Record::evaluation);
    let (steps, parameters) = (found.config.prior.steps, found.model.layout.count());
    let mut text = format!(
        "PixelCNN prior: trained {} of {steps} steps, {} layers, {} channels, {} parameters",
        found.step,
        found.config.prior.layers,
        found.config.prior.channels,
        grouped(parameters)
    );
    if let Some(eval) = last {
        text += &format!("; {:.4} bits/dim with it", eval.bits_per_dim);
    }
    let value = json!({
        "step": found.step, "steps": steps, "parameters": parameters, "last_evaluation": last,
    });
    Ok(Some((text, value)))
}
