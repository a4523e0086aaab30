//! Chunks side by side. Each has a stack of its own, so as many can be worked on as there are cores: with many chunks,
//! each gets one core and no time is lost in handing work around; a single chunk gets all of them.
//!
//! What is computed does not depend on it: the CPU gives the same bits for any number of threads.

use super::neighbours::Neighbours;
use super::networks::Networks;
use rrvq::error::{Error, Result};
use rrvq::interrupt::Interrupt;
use rrvq::programs::Model;
use rrvq::resize::resized;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;

/// Copies of the weights may take so many bytes.
const ROOM: usize = 1 << 30;

/// Tiles the lossy mode takes at a time, where they have the side of the model's images.
const TILES: usize = 16;

/// Tiles that have as many pixels as `most` tiles of the model's own side, at least one and never more than `most`.
pub fn as_many(most: usize, own: usize, side: usize) -> usize {
    (most * own * own / (side * side)).clamp(1, most)
}

/// A model and the threads that code with it.
pub struct Workers {
    model: Model,
    theta: Vec<f32>,
    neighbours: Option<Neighbours>,
    /// Whether the model was trained on parts of pictures, so that it knows nothing of where in one it is.
    pub of_parts: bool,
    /// How many tiles the lossy mode takes at a time.
    batch: usize,
    networks: Vec<Networks>,
    /// The same weights for tiles of other sides, as they are asked for.
    others: BTreeMap<usize, Workers>,
}

impl Workers {
    pub fn new(model: &Model, theta: &[f32]) -> Result<Workers> {
        Ok(Workers {
            networks: vec![Networks::new(model, theta)?],
            model: model.clone(),
            theta: theta.to_vec(),
            neighbours: None,
            of_parts: false,
            batch: TILES,
            others: BTreeMap::new(),
        })
    }

    /// The same model on tiles of another side ([`resized`]).
    pub fn at_side(&mut self, side: usize) -> Result<&mut Workers> {
        if side == self.model.config.size {
            return Ok(self);
        }
        match self.others.entry(side) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let (model, theta) = resized(&self.model, &self.theta, side)?;
                let sized = Workers::new(&model, &theta)?;
                let mut sized = sized.with_neighbours(self.neighbours.clone());
                sized.batch = as_many(TILES, self.model.config.size, side);
                Ok(place.insert(sized))
            }
        }
    }

    /// With pixels that learn from each other.
    pub fn with_neighbours(mut self, neighbours: Option<Neighbours>) -> Workers {
        for networks in &mut self.networks {
            networks.neighbours = neighbours.clone();
        }
        Workers { neighbours, ..self }
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How many tiles the lossy mode takes at a time.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Bytes of all programs and weights.
    pub fn bytes(&self) -> usize {
        let others: usize = self.others.values().map(Workers::bytes).sum();
        others + self.networks.iter().map(Networks::bytes).sum::<usize>()
    }

    /// How many chunks are worth having at hand.
    pub fn most(&self) -> usize {
        let copies = ROOM / (4 * self.theta.len()).max(1);
        rayon::current_num_threads().min(copies).max(1)
    }

    /// Does each job, in any order; results come in the order of the jobs.
    pub fn each<J: Send, R: Send>(
        &mut self,
        jobs: Vec<J>,
        work: impl Fn(&mut Networks, J) -> Result<R> + Sync,
    ) -> Result<Vec<Result<R>>> {
        let interrupt = Interrupt::current();
        let work = |networks: &mut Networks, job: J| {
            interrupt.check()?;
            // Long jobs ask on their way, too.
            interrupt.scope(|| work(networks, job))
        };
        let hands = self.most().min(jobs.len());
        if hands <= 1 {
            let networks = &mut self.networks[0];
            let all = || jobs.into_iter().map(|job| work(networks, job)).collect();
            // On a thread of the pool: from any other one, each program would wake one up and wait for it.
            return Ok(rayon::scope(|_| all()));
        }
        while self.networks.len() < hands {
            let mut networks = Networks::new(&self.model, &self.theta)?;
            networks.neighbours = self.neighbours.clone();
            self.networks.push(networks);
        }
        let threads = (rayon::current_num_threads() / hands).max(1);
        let count = jobs.len();
        let waiting = Mutex::new(jobs.into_iter().enumerate());
        let done = Mutex::new(Vec::with_capacity(count));
        let failed = |what: String| Error::new(format!("cannot start a thread: {what}"));
        std::thread::scope(|scope| -> Result<()> {
            for networks in &mut self.networks[..hands] {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .map_err(|error| failed(error.to_string()))?;
                let (waiting, done, work) = (&waiting, &done, &work);
                let hand = move || {
                    pool.install(|| {
                        loop {
                            let next = waiting.lock().map(|mut jobs| jobs.next());
                            let Ok(Some((number, job))) = next else {
                                break;
                            };
                            let result = work(networks, job);
                            if let Ok(mut done) = done.lock() {
                                done.push((number, result));
                            }
                        }
                    })
                };
                std::thread::Builder::new()
                    .spawn_scoped(scope, hand)
                    .map_err(|error| failed(error.to_string()))?;
            }
            Ok(())
        })?;
        let mut done = done
            .into_inner()
            .map_err(|_| Error::new("a thread of the codec broke down"))?;
        done.sort_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }
}
