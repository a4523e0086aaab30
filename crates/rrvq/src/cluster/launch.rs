//! Which process of how many this is, as its launcher says.

use crate::error::{Error, Result};
use std::env;

/// Who started the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `torchrun`, this program itself, or anybody who sets RANK and WORLD_SIZE.
    Ranks,
    /// SLURM's `srun`.
    Slurm,
    /// `mpirun` of OpenMPI or MPICH.
    Mpi,
}

/// A process among those that train together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Who started it.
    pub launcher: Launcher,
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// Its number among those of this machine: which GPU it takes.
    pub local: usize,
    /// Where the first process listens; MPI needs none.
    pub host: String,
    /// The port there.
    pub port: u16,
}

/// The port where nobody names one.
const PORT: u16 = 29_500;

impl Launch {
    /// What the environment says; nothing where this process was started by itself.
    pub fn from_environment() -> Result<Option<Launch>> {
        from(|name| env::var(name).ok())
    }
}

fn from(get: impl Fn(&str) -> Option<String>) -> Result<Option<Launch>> {
    let number = |name: &str| -> Result<Option<usize>> {
        let Some(text) = get(name) else {
            return Ok(None);
        };
        let wrong = || {
            Error::new(format!(
                "{name} is {text:?}, where a launcher sets a number; unset it or set one"
            ))
        };
        text.trim().parse().map(Some).map_err(|_| wrong())
    };
    let port = match number("MASTER_PORT")? {
        None => PORT,
        Some(port) => u16::try_from(port).map_err(|_| {
            Error::new(format!("MASTER_PORT is {port}; set a port from 1 to 65535"))
        })?,
    };
    // torchrun's own store listens at the port that it names.
    let own_store = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|told| told == "True");
    let port = number("RRVQ_PORT")?.map_or(port.wrapping_add(own_store as u16), |port| port as u16);
    let master = get("MASTER_ADDR");
    let sets = [
        (
            Launcher::Mpi,
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
        ),
        (Launcher::Mpi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        (Launcher::Ranks, "RANK", "WORLD_SIZE", "LOCAL_RANK"),
        // Not SLURM_NTASKS: a batch script has that too, and is no task of a step.
        (
            Launcher::Slurm,
            "SLURM_PROCID",
            "SLURM_STEP_NUM_TASKS",
            "SLURM_LOCALID",
        ),
    ];
    for (launcher, rank_name, world_name, local_name) in sets {
        let (Some(rank), Some(world)) = (number(rank_name)?, number(world_name)?) else {
            continue;
        };
        if rank >= world {
            return Err(Error::new(format!(
                "{rank_name} is {rank} and {world_name} is {world}; ranks count from 0 to {world_name} - 1"
            )));
        }
        let first_node = || {
            let nodes = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_NODELIST"));
            nodes.as_deref().and_then(first_host)
        };
        let host = match launcher {
            Launcher::Slurm => master.clone().or_else(first_node),
            _ => master.clone(),
        };
        return Ok(Some(Launch {
            launcher,
            rank,
            world,
            // LOCAL_RANK goes first: it can be set where a launcher shows each process one GPU only.
            local: match number("LOCAL_RANK")? {
                Some(local) => local,
                None => number(local_name)?.unwrap_or(rank),
            },
            host: host.unwrap_or_else(|| "127.0.0.1".into()),
            port,
        }));
    }
    Ok(None)
}

/// The first of SLURM's compressed names: node[003-007,9],other is node003.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(numbers) = rest.strip_prefix('[') else {
        return (!name.is_empty()).then(|| name.to_string());
    };
    let close = numbers.find(']')?;
    let first = numbers[..close].split([',', '-']).next()?;
    let suffix = &numbers[close + 1..];
    let suffix = &suffix[..suffix.find(',').unwrap_or(suffix.len())];
    Some(format!("{name}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(set: &[(&str, &str)]) -> Result<Option<Launch>> {
        from(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn every_launcher_is_understood() {
        assert_eq!(told(&[]).unwrap(), None);
        // A batch script of SLURM's is no task.
        assert_eq!(
            told(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]).unwrap(),
            None
        );
        let launch = |set: &[(&str, &str)]| told(set).unwrap().unwrap();
        let torchrun = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "first"),
            ("MASTER_PORT", "4000"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
        ];
        let expected = Launch {
            launcher: Launcher::Ranks,
            rank: 5,
            world: 8,
            local: 1,
            host: "first".into(),
            port: 4000,
        };
        assert_eq!(launch(&torchrun), expected);
        let with_store = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(launch(&with_store).port, 4001);
        let slurm = launch(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NODELIST", "gpu[007-009]"),
        ]);
        assert_eq!(
            (slurm.host.as_str(), slurm.port, slurm.local),
            ("gpu007", PORT, 0)
        );
        let mpi = launch(&[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("RANK", "9"),
        ]);
        assert_eq!((mpi.launcher, mpi.rank, mpi.world), (Launcher::Mpi, 1, 2));
        let mpich = launch(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]);
        assert_eq!((mpich.launcher, mpich.rank), (Launcher::Mpi, 1));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let said = told(&[("RANK", "two"), ("WORLD_SIZE", "2")])
            .unwrap_err()
            .to_string();
        assert!(said.contains("RANK is \"two\""), "{said}");
        let said = told(&[("RANK", "2"), ("WORLD_SIZE", "2")])
            .unwrap_err()
            .to_string();
        assert!(said.contains("RANK is 2 and WORLD_SIZE is 2"), "{said}");
        assert!(told(&[("MASTER_PORT", "70000")]).is_err());
    }

    #[test]
    fn the_first_of_slurms_hosts_is_found() {
        for (list, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[003-007,9],other", "node003"),
            ("a[1,4]-ib,b", "a1-ib"),
            ("rack2-[11-12]", "rack2-11"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_host(""), None);
    }
}
