//! `rrvq train`: in this process, or with others that a launcher or this program has started.

use crate::args;
use crate::device::Compute;
use crate::launch::{self, joined, with};
use crate::output::manner;
use crate::terminal::{Follow, SAVING, complain, detail, grouped, note, watch_for_interrupts};
use rrvq::cluster::Cluster;
use rrvq::config::Config;
use rrvq::device::DeviceName;
use rrvq::run::{Existing, Run};
use rrvq::{Error, Result, TrainOptions, Trainer};
use std::path::{Path, PathBuf};

pub fn train(args: &args::Train) -> Result<()> {
    let asked = match (args.gpus, args.compute.device) {
        (Some(count), DeviceName::Cpu | DeviceName::Cuda(0)) => Some(0..=count as usize - 1),
        (Some(_), other) => {
            return Err(Error::new(format!(
                "--gpus and --device {other} both say which GPUs to train on; leave one of them out"
            )));
        }
        (None, DeviceName::CudaRange(first, last)) => Some(first..=last),
        _ => None,
    };
    let mut compute = args.compute;
    if args.gpus.is_some() {
        compute.device = DeviceName::Cuda(0);
    }
    let Some((launch, cluster)) = joined()? else {
        return match asked {
            Some(gpus) if gpus.clone().count() > 1 => launch::start(gpus),
            Some(gpus) => {
                compute.device = DeviceName::Cuda(*gpus.start());
                train_as(args, compute, None)
            }
            None => train_as(args, compute, None),
        };
    };
    with(launch, cluster, compute, |compute, cluster| {
        train_as(args, compute, Some(cluster))
    })
}

/// Trains in this process, alone or with others.
fn train_as(args: &args::Train, compute: Compute, cluster: Option<&Cluster>) -> Result<()> {
    let device = compute.open()?;
    let (mut config, out) = configuration(args)?;
    crate::set(&mut config, &args.set)?;
    if let Some(steps) = args.steps {
        config.train.steps = steps;
    }
    if let Some(seed) = args.seed {
        config.train.seed = seed;
    }
    if let Some(dir) = &args.data {
        config.data.dir = Some(dir.clone());
    }
    config.data.skip_damaged |= args.skip_damaged;
    let existing = existing(args.resume, args.overwrite);
    detail(|| format!("{}: data set {}", out.display(), config.data.name));
    let options = TrainOptions {
        out: Some(out.clone()),
        existing,
        tensorboard: args.tensorboard || (args.resume && has_events(&out)),
        seconds: args.minutes.map(|minutes| minutes * 60.0),
        together: cluster.map(Cluster::collective),
    };
    let mut follow = Follow::new(&name_of(&out));
    config.validate()?;
    if config.model.blocks_see_no_image() && !args.resume && !manner().one_of_many {
        complain(format!(
            "model.blocks = {} lie on the learnt top alone in a model of one layer; model.data_blocks puts blocks between \
             image and latents",
            config.model.blocks
        ));
    }
    let data = rrvq_data::open_followed(&config, &mut |n, all| follow.decoded(n, all))?;
    if let [first, ..] = data.left_out()
        && !manner().one_of_many
    {
        let count = grouped(data.left_out().len());
        complain(format!(
            "{count} damaged images are left out; the first: {first}"
        ));
    }
    // Not before: opening a data set can be ended at any moment.
    watch_for_interrupts(SAVING)?;
    if let Some(cluster) = cluster {
        cluster.check_same(&config, data.as_ref(), &device)?;
    }
    let finished = Trainer::with(&config, data.as_ref(), device, options)?.run(&mut follow)?;
    drop(follow);
    match finished.interrupted {
        true => note(format!(
            "stopped and saved at step {} of {}; go on with: rrvq train --resume --out {}",
            finished.step,
            config.train.steps,
            as_typed(&out)
        )),
        false => note(format!(
            "{} steps done; the run is in {}",
            finished.step,
            out.display()
        )),
    }
    Ok(())
}

/// What to do about a run that is there.
pub fn existing(resume: bool, overwrite: bool) -> Existing {
    match (resume, overwrite || manner().force) {
        (true, _) => Existing::Resume,
        (_, true) => Existing::Overwrite,
        _ => Existing::Refuse,
    }
}

/// Whether earlier sittings of a run wrote TensorBoard events.
pub fn has_events(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_events = |name: std::ffi::OsString| {
        let prefix = rrvq::run::EVENTS_PREFIX.as_bytes();
        name.as_encoded_bytes().starts_with(prefix)
    };
    entries.map(|entry| entry.file_name()).any(is_events)
}

/// A path as it would be typed in a shell.
pub fn as_typed(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@".contains(c);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The settings to start from and the run folder.
fn configuration(args: &args::Train) -> Result<(Config, PathBuf)> {
    let default_out = |name: &str| {
        args.out
            .clone()
            .unwrap_or_else(|| Path::new("runs").join(name))
    };
    let named = match (&args.preset, &args.config) {
        (Some(name), _) => Some(default_out(name)),
        (None, Some(file)) => Some(default_out(
            &file.file_stem().unwrap_or_default().to_string_lossy(),
        )),
        (None, None) => args.out.clone(),
    };
    let Some(out) = named else {
        return Err(Error::new(
            "--resume needs the run folder; name it with --out DIR",
        ));
    };
    let unused = match (&args.preset, &args.config) {
        (Some(name), _) => Some(format!("--preset {name}")),
        (_, Some(file)) => Some(format!("--config {}", file.display())),
        _ => None,
    };
    if let (true, Some(unused)) = (args.resume, unused) {
        complain(format!(
            "{unused} is not used: --resume goes on with the settings in {}",
            out.display()
        ));
    }
    let config = match (args.resume, &args.preset, &args.config) {
        (true, ..) => Config::load(Run::open(&out)?.config())?,
        (_, Some(name), _) => Config::preset(name)?,
        (_, _, Some(file)) => Config::load(file)?,
        _ => unreachable!("the command line asks for one of the three"),
    };
    Ok((config, out))
}

pub fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
