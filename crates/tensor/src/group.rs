//! Several processes that train one model: who they are, and sums over all of them.
//!
//! A batch is cut into *shards* of consecutive rows, and every process works on one or several of them. What crosses
//! shards is a sum ([`Var::all_sum`](crate::Var::all_sum)). On the CPU the parts of a sum are added in the order of the
//! shards, whoever holds them, so that the number of processes does not change a bit; on GPUs there is one shard a
//! process, and NCCL adds.

use crate::{Error, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// How processes talk to each other. All of them make the same calls in the same order.
pub trait Collective: std::fmt::Debug + Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn world(&self) -> usize;

    /// Everybody's bytes, in order of rank. Their lengths may differ.
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// `mine` is one block for each rank, all of one size; what comes back is the block each rank had for this one.
    fn exchange(&self, mine: &[u8]) -> Result<Vec<u8>>;

    /// Ends all processes; `sentence` is what a person is told.
    fn fail(&self, sentence: &str) -> ! {
        eprintln!("{sentence}");
        std::process::exit(2)
    }
}

/// What a process does before it ends in the middle of its work.
static BEFORE_THE_END: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

/// Has `work` done by [`abort_all`]: libraries that wait for other processes are told to give up.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) fn on_abort(work: impl Fn() + Send + 'static) {
    let mut all = BEFORE_THE_END.lock().unwrap_or_else(|e| e.into_inner());
    all.push(Box::new(work));
}

/// Makes libraries that wait for other processes give up, within two seconds: the process is about to end.
pub fn abort_all() {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let all = BEFORE_THE_END.lock().unwrap_or_else(|e| e.into_inner());
        all.iter().for_each(|work| work());
        let _ = done.send(());
    });
    let _ = wait.recv_timeout(std::time::Duration::from_secs(2));
}

/// One process, which has nobody to talk to.
#[derive(Debug)]
struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }
    fn world(&self) -> usize {
        1
    }
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![mine.to_vec()])
    }
    fn exchange(&self, mine: &[u8]) -> Result<Vec<u8>> {
        Ok(mine.to_vec())
    }
}

/// The processes of a training and the shards of its batches. Clones are the same group.
///
/// ```
/// use rrvq_tensor::{DType, Data, Device, Graph, Group, Layout, Program, Store};
/// let group = Group::alone(2);
/// let g = Graph::new().in_group(&group);
/// let x = g.input("x", &[1], DType::F32);
/// let mut program = Program::new(&Device::Cpu, &g, &Layout::default(), &[("sum", x.all_sum())])?;
/// let shards = [[("x", Data::F32(&[1.0]))], [("x", Data::F32(&[2.0]))]];
/// program.run_shards(&mut Store::default(), &[&shards[0], &shards[1]])?;
/// assert_eq!(program.scalar("sum")?, 3.0);
/// # Ok::<(), rrvq_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct Group {
    shards: usize,
    collective: Arc<dyn Collective>,
}

/// Floats of a vector that are summed at once, so that the memory it takes has a limit.
const AT_ONCE: usize = 1 << 22;

impl Group {
    /// A single process that works on all shards.
    pub fn alone(shards: usize) -> Group {
        Group {
            shards: shards.max(1),
            collective: Arc::new(Alone),
        }
    }

    /// Processes with the same number of shards each.
    pub fn new(collective: Arc<dyn Collective>, shards: usize) -> Result<Group> {
        let world = collective.world();
        if shards == 0 || !shards.is_multiple_of(world) {
            return Err(Error::new(format!(
                "{world} processes cannot share {shards} shards of a batch evenly"
            )));
        }
        Ok(Group { shards, collective })
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// How many processes there are.
    pub fn world(&self) -> usize {
        self.collective.world()
    }

    /// Shards of a batch, of all processes together.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The shards of this process.
    pub fn own(&self) -> Range<usize> {
        let each = self.shards / self.world();
        self.rank() * each..(self.rank() + 1) * each
    }

    /// Everybody's bytes, in order of rank.
    pub fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collective.gather(mine)
    }

    /// Ends all processes; `sentence` is what a person is told.
    pub fn fail(&self, sentence: &str) -> ! {
        self.collective.fail(sentence)
    }

    /// Replaces the vectors of this process's shards, all of one length, with their sum over all shards of all processes,
    /// added in the order of the shards.
    pub fn sum(&self, parts: &mut [&mut [f32]]) -> Result<()> {
        debug_assert_eq!(parts.len(), self.own().len());
        let len = parts.first().map_or(0, |part| part.len());
        for first in (0..len).step_by(AT_ONCE) {
            let some = first..len.min(first + AT_ONCE);
            let mine: Vec<&[f32]> = parts.iter().map(|part| &part[some.clone()]).collect();
            let sum = match self.world() {
                1 => added(&mine),
                _ => self.sum_of_all(&mine)?,
            };
            for part in parts.iter_mut() {
                part[some.clone()].copy_from_slice(&sum);
            }
        }
        Ok(())
    }

    /// Every process adds one share of the elements and tells the others.
    fn sum_of_all(&self, mine: &[&[f32]]) -> Result<Vec<f32>> {
        let (world, len) = (self.world(), mine[0].len());
        let share = len.div_ceil(world);
        let mut blocks = Vec::with_capacity(world * mine.len() * share * 4);
        for rank in 0..world {
            for part in mine {
                let here = (rank * share).min(len)..((rank + 1) * share).min(len);
                let missing = share - here.len();
                let values = part[here].iter().copied();
                let padded = values.chain(std::iter::repeat_n(0.0, missing));
                padded.for_each(|v| blocks.extend_from_slice(&v.to_le_bytes()));
            }
        }
        let received = floats(&self.collective.exchange(&blocks)?);
        if received.len() != self.shards * share {
            return Err(Error::new(
                "the processes of this training sum vectors of different lengths; start all of them with the same program",
            ));
        }
        let shares: Vec<&[f32]> = received.chunks_exact(share).collect();
        let bytes: Vec<u8> = added(&shares)
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let mut sum = floats(&self.collective.gather(&bytes)?.concat());
        sum.truncate(len);
        Ok(sum)
    }
}

/// Vectors of one length, added in their order.
fn added(parts: &[&[f32]]) -> Vec<f32> {
    let mut sum = parts[0].to_vec();
    for part in &parts[1..] {
        sum.iter_mut().zip(*part).for_each(|(s, v)| *s += v);
    }
    sum
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let float = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(float).collect()
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, world, shards) = (self.rank(), self.world(), self.shards);
        write!(f, "rank {rank} of {world}, {shards} shards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Threads that stand for processes.
    #[derive(Debug)]
    struct Threads {
        rank: usize,
        board: Arc<(Mutex<Vec<Vec<u8>>>, Barrier)>,
    }

    impl Collective for Threads {
        fn rank(&self) -> usize {
            self.rank
        }
        fn world(&self) -> usize {
            self.board.0.lock().unwrap().len()
        }
        fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
            let (board, barrier) = &*self.board;
            board.lock().unwrap()[self.rank] = mine.to_vec();
            barrier.wait();
            let all = board.lock().unwrap().clone();
            barrier.wait();
            Ok(all)
        }
        fn exchange(&self, mine: &[u8]) -> Result<Vec<u8>> {
            let size = mine.len() / self.world();
            let all = self.gather(mine)?;
            let block = |bytes: &Vec<u8>| bytes[self.rank * size..][..size].to_vec();
            Ok(all.iter().flat_map(block).collect())
        }
    }

    #[test]
    fn any_number_of_processes_adds_in_the_order_of_the_shards() {
        // Numbers whose sum depends on the order.
        let value = |shard: usize, i: usize| {
            ((shard * 37 + i * 11) as f32).sin() * 10f32.powi((shard % 5) as i32)
        };
        let shard = |s: usize| -> Vec<f32> { (0..101).map(|i| value(s, i)).collect() };
        let all: Vec<Vec<f32>> = (0..12).map(shard).collect();
        let expected = added(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for world in [1, 2, 3, 4, 6, 12] {
            let board = Arc::new((Mutex::new(vec![Vec::new(); world]), Barrier::new(world)));
            std::thread::scope(|scope| {
                for rank in 0..world {
                    let (board, all, expected) = (board.clone(), &all, &expected);
                    scope.spawn(move || {
                        let group = Group::new(Arc::new(Threads { rank, board }), 12).unwrap();
                        let mut mine: Vec<Vec<f32>> = all[group.own()].to_vec();
                        let mut parts: Vec<&mut [f32]> =
                            mine.iter_mut().map(Vec::as_mut_slice).collect();
                        group.sum(&mut parts).unwrap();
                        for part in &mine {
                            assert_eq!(part, expected, "{group:?}");
                        }
                    });
                }
            });
        }
        let board = Arc::new((Mutex::new(vec![Vec::new(); 5]), Barrier::new(5)));
        let uneven = Group::new(Arc::new(Threads { rank: 0, board }), 12);
        assert!(uneven.unwrap_err().to_string().contains("5 processes"));
    }
}
