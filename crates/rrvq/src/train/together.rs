//! What a training has to settle with the other processes of its group: who has which part of a batch, from which
//! checkpoint all go on, when all stop. Alone, none of it does anything.

use super::checkpoint::Progress;
use super::trainer::TrainOptions;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::validate::check_shards;
use rrvq_tensor::{Device, Group};

/// The processes that train together and the shards of a batch; none where this one trains alone on whole batches.
pub(super) fn group_of(
    config: &Config,
    device: &Device,
    options: &TrainOptions,
) -> Result<Option<Group>> {
    let train = &config.train;
    let shards = match (&options.together, device.is_cpu()) {
        (None, true) if train.shards > 1 => return Ok(Some(Group::alone(train.shards))),
        (None, _) => return Ok(None),
        (Some(together), true) if together.world() * train.shards == 1 => return Ok(None),
        (Some(_), true) => train.shards,
        (Some(together), false) => together.world(),
    };
    let Some(together) = &options.together else {
        return Ok(None);
    };
    let world = together.world();
    if !shards.is_multiple_of(world) {
        return Err(Error::new(format!(
            "train.shards = {shards} cannot be shared by {world} processes; set train.shards to a multiple of {world}, or start \
             a number of processes that divides it"
        )));
    }
    check_shards(train, shards)?;
    Ok(Some(Group::new(together.clone(), shards)?))
}

/// Refuses to go on from different checkpoints.
pub(super) fn check_agreement(group: Option<&Group>, progress: &Progress) -> Result<()> {
    let Some(group) = group else {
        return Ok(());
    };
    let steps = group.gather(&progress.step.to_le_bytes())?;
    match steps.iter().position(|step| *step != steps[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::new(format!(
            "rank {rank} does not see the checkpoint that rank 0 goes on from; the run folder must be on a file system that \
             all machines share"
        ))),
    }
}

/// The first process's seconds: what depends on time must be the same in all.
pub(super) fn agreed(group: Option<&Group>, seconds: f64) -> Result<f64> {
    let Some(group) = group else {
        return Ok(seconds);
    };
    let all = group.gather(&seconds.to_le_bytes())?;
    let bytes: [u8; 8] = all[0].as_slice().try_into().unwrap_or_default();
    Ok(f64::from_le_bytes(bytes))
}

/// Whether any process says so.
pub(super) fn any(group: Option<&Group>, said: bool) -> Result<bool> {
    match group {
        None => Ok(said),
        Some(group) => {
            let all = group.gather(&[said as u8])?;
            Ok(all.iter().any(|bytes| bytes.contains(&1)))
        }
    }
}
