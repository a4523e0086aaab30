//! A plan on a CUDA device: one allocation, one CUDA graph, replayed.
//!
//! Everything is decided before the first run: kernels are compiled, engines chosen, memory placed. A run uploads
//! its inputs and replays the graph. [`Program::replay`] does without the host: what changes from step to step
//! (counters, rates, numbers of rows) is uploaded for many steps at once, a first kernel picks the
//! step's share and gathers its rows from a [`RowBank`], a last one notes the results and moves on.

use super::dnn;
use super::driver::{Buffer, Capture, Event, Gpu, GraphExec, Stream, StreamRef};
use super::feed::{self, Feed};
use super::launch::Arg;
use super::lower::{Conv, jobs};
use super::prepare::{LANES, Map, Prepared, Sizes, Step, prepare};
use super::resident::Resident;
use super::sums::Sums;
use super::tools::Tools;
use super::{CudaDevice, target};
use crate::compile::{Base, Kernel, Place, Plan, compile_for};
use crate::device::backend::Executable;
use crate::device::cost::assigns;
use crate::device::{Frame, Precision, RowBank, SumTimes, Timed, bytes_text, find_input};
use crate::graph::{DType, Graph, Var};
use crate::params::Layout;
use crate::{Data, Error, Result, Store};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan with its memory on a device, ready to run.
pub struct Program {
    gpu: Gpu,
    tools: Arc<Tools>,
    plan: Plan,
    /// The graph of single runs, and the one of replays. Fields are dropped in order, and these go before the kernels,
    /// streams and memory they were recorded with.
    single: Option<Recorded>,
    replayed: Option<Recorded>,
    feed: Option<Feed>,
    jobs: Vec<Prepared>,
    /// One stream a lane.
    streams: Vec<Stream>,
    memory: Buffer,
    map: Map,
    /// Over the processes that train together.
    sums: Option<Arc<Sums>>,
    writes_states: bool,
    /// The addresses of states that the tables of shared launches hold.
    tabled: Vec<u64>,
}

/// A graph and the addresses it was recorded with.
struct Recorded {
    states: Vec<u64>,
    graph: GraphExec,
}

/// Points of a run whose times are wanted: its ends, and those of some jobs.
struct Marks {
    start: Event,
    end: Event,
    jobs: Vec<Option<(Event, Event)>>,
}

/// What an address depends on beside its place.
#[derive(Clone, Copy)]
struct Site<'a> {
    states: &'a [u64],
    lane: usize,
}

impl Program {
    pub fn new(
        on: &CudaDevice,
        graph: &Graph,
        layout: &Layout,
        outputs: &[(&str, Var<'_>)],
    ) -> Result<Self> {
        let CudaDevice { gpu, precision } = on;
        let plan = compile_for(target(*precision), graph, layout, outputs)?;
        // Said before minutes are spent on choosing engines for what cannot be.
        check_room(gpu, Map::new(&plan, &Sizes::default()).total)?;
        let tools = Tools::of(gpu)?;
        let jobs = jobs(&plan, *precision == Precision::F32);
        let (jobs, sizes) = prepare(&tools, jobs)?;
        let map = Map::new(&plan, &sizes);
        check_room(gpu, map.total)?;
        let memory = gpu.alloc(map.total)?;
        memory.fill_zero()?;
        let streams = (0..map.lanes.len())
            .map(|lane| gpu.new_stream((LANES.0..LANES.0 + LANES.1).contains(&lane)))
            .collect::<Result<_>>()?;
        let is_sum = |kernel: &Kernel| matches!(kernel, Kernel::AllSum { .. });
        let sums = match (graph.group(), plan.kernels.iter().any(is_sum)) {
            (Some(group), true) => Some(Sums::of(gpu, group)?),
            _ => None,
        };
        let writes_states = plan.kernels.iter().any(assigns);
        Ok(Program {
            gpu: gpu.clone(),
            tools,
            plan,
            jobs,
            streams,
            memory,
            map,
            single: None,
            replayed: None,
            feed: None,
            sums,
            writes_states,
            tabled: Vec::new(),
        })
    }

    fn note_changes(&self, store: &mut Store) {
        if self.writes_states {
            let resident = Resident::of(&self.gpu, &mut store.copy);
            resident.note_changes(self.plan.states.iter().map(|s| s.name.as_str()));
        }
    }

    fn find_output(&self, name: &str) -> (Place, usize) {
        let found = self.plan.outputs.iter().find(|o| o.name == name);
        let out = found.unwrap_or_else(|| panic!("the program has no output {name}"));
        (out.place, out.shape.iter().product())
    }

    fn offset(&self, place: Place, name: &str) -> Result<usize> {
        let bytes = place.offset * place.dtype.bytes();
        match place.base {
            Base::Arena => Ok(self.map.arena + bytes),
            Base::Input(i) => Ok(self.map.inputs[i] + bytes),
            _ => Err(Error::new(format!(
                "output {name} is a state; read it from the store"
            ))),
        }
    }

    /// Addresses of the plan's states in the store's copy on this GPU.
    fn states(&self, store: &mut Store) -> Result<Vec<u64>> {
        let Store { vectors, copy } = store;
        let resident = Resident::of(&self.gpu, copy);
        self.plan
            .states
            .iter()
            .map(|state| resident.address(vectors, &state.name, state.shape[0]))
            .collect()
    }

    fn address(&self, place: Place, site: Site<'_>) -> u64 {
        let start = self.memory.address();
        let base = match place.base {
            Base::Arena => start + self.map.arena as u64,
            Base::Input(i) => start + self.map.inputs[i] as u64,
            Base::State(i) => site.states[i],
            Base::Scratch => start + self.map.lanes[site.lane][0] as u64,
        };
        base + (place.offset * place.dtype.bytes()) as u64
    }

    fn argument(&self, arg: Arg, site: Site<'_>, counters: usize) -> u64 {
        let start = self.memory.address();
        match arg {
            Arg::Place(place) => self.address(place, site),
            Arg::Scratch(at) => start + (self.map.lanes[site.lane][0] + at) as u64,
            Arg::Counter(at) => start + (self.map.counters + counters + at) as u64,
            Arg::U32(value) => value.into(),
            Arg::F32(value) => value.to_bits().into(),
            Arg::Null => 0,
        }
    }

    /// Records all jobs, each on its lane.
    fn record(
        &self,
        states: Vec<u64>,
        feed: Option<&Feed>,
        marks: Option<&Marks>,
    ) -> Result<Recorded> {
        let origin = self.gpu.stream();
        let capture = Capture::begin(&self.gpu, origin)?;
        if let Some(marks) = marks {
            marks.start.record_in_graph(origin)?;
        }
        if let Some(feed) = feed {
            // SAFETY: the recording is launched in `replay` alone, which holds bank and program.
            unsafe { feed.before(origin)? };
        }
        let start = Event::new(&self.gpu)?;
        start.record(origin)?;
        let mut done: Vec<Option<Event>> = Vec::with_capacity(self.jobs.len());
        let mut last: Vec<Option<usize>> = vec![None; self.streams.len()];
        // Only what somebody waits for needs an event.
        let mut awaited = vec![false; self.jobs.len()];
        for wait in self.jobs.iter().flat_map(|job| &job.lane.waits) {
            awaited[*wait] = true;
        }
        for (index, job) in self.jobs.iter().enumerate() {
            let lane = job.lane.stream;
            let stream = self.streams[lane].borrowed();
            if last[lane].is_none() {
                start.wait(stream)?;
            }
            for &wait in &job.lane.waits {
                if let Some(event) = &done[wait] {
                    event.wait(stream)?;
                }
            }
            let site = Site {
                states: &states,
                lane,
            };
            let mark = marks.and_then(|marks| marks.jobs[index].as_ref());
            if let Some((begin, _)) = mark {
                begin.record_in_graph(stream)?;
            }
            self.queue(job, stream, site)?;
            if let Some((_, end)) = mark {
                end.record_in_graph(stream)?;
            }
            done.push(match awaited[index] {
                true => {
                    let event = Event::new(&self.gpu)?;
                    event.record(stream)?;
                    Some(event)
                }
                false => None,
            });
            last[lane] = Some(index);
        }
        for (lane, _) in last.iter().enumerate().filter(|(_, l)| l.is_some()) {
            let end = Event::new(&self.gpu)?;
            end.record(self.streams[lane].borrowed())?;
            end.wait(origin)?;
        }
        if let Some(feed) = feed {
            // SAFETY: as above.
            unsafe { feed.after(origin)? };
        }
        if let Some(marks) = marks {
            marks.end.record_in_graph(origin)?;
        }
        let graph = capture.end()?;
        Ok(Recorded { states, graph })
    }

    /// The tables of shared launches, with the states where they are now.
    fn upload_tables(&mut self, states: &[u64]) -> Result<()> {
        if self.tabled == states && !states.is_empty() {
            return Ok(());
        }
        for job in &self.jobs {
            let site = Site {
                states,
                lane: job.lane.stream,
            };
            for step in &job.steps {
                let Step::Launch {
                    counters,
                    table: Some((table, at)),
                    ..
                } = step
                else {
                    continue;
                };
                let bytes: Vec<u8> = table
                    .iter()
                    .flat_map(|&arg| self.argument(arg, site, *counters).to_le_bytes())
                    .collect();
                self.memory.upload_at(self.map.tables + at, &bytes)?;
            }
        }
        self.tabled = states.to_vec();
        Ok(())
    }

    fn queue(&self, job: &Prepared, stream: StreamRef<'_>, site: Site<'_>) -> Result<()> {
        for step in &job.steps {
            match step {
                Step::Launch {
                    kernel,
                    launch,
                    counters,
                    table,
                } => {
                    let own = launch.args.iter();
                    let args: Vec<u64> = match table {
                        None => own
                            .map(|&arg| self.argument(arg, site, *counters))
                            .collect(),
                        Some((_, at)) => {
                            vec![self.memory.address() + (self.map.tables + at) as u64]
                        }
                    };
                    let (grid, block, shared) = (launch.grid, launch.block, launch.shared);
                    // SAFETY: arguments are places in this program's memory and its states, as the plan has laid them out.
                    unsafe { kernel.launch(stream, grid, block, shared, &args)? };
                }
                Step::Conv {
                    plan,
                    conv,
                    out,
                    fused,
                } => self.convolve(plan, conv, *out, *fused, stream, site)?,
                Step::AllSum { len, from, to } => {
                    let (source, target) = (self.address(*from, site), self.address(*to, site));
                    let Some(sums) = &self.sums else {
                        return Err(Error::new("a sum over shards needs a group of them"));
                    };
                    // SAFETY: places of this program, which `hazards` keeps others from meanwhile.
                    unsafe { sums.queue(source, target, *len, from.dtype, stream)? };
                }
                Step::Product(p) => {
                    let at = |place| self.address(place, site);
                    let blas = self.tools.blas()?;
                    // SAFETY: places of this program; `hazards` puts products in order, because they touch the same workspace,
                    // and programs of one GPU run one after another.
                    unsafe { blas.matmul(p.of, p.tf32, at(p.a), at(p.b), at(p.out), stream)? };
                }
            }
        }
        Ok(())
    }

    fn convolve(
        &self,
        plan: &dnn::Plan,
        conv: &Conv,
        out: Place,
        fused: bool,
        stream: StreamRef<'_>,
        site: Site<'_>,
    ) -> Result<()> {
        let at = |place| self.address(place, site);
        let (a, b, y) = (at(conv.a), at(conv.b), at(out));
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        if fused
            && let Some(chain) = &conv.chain
            && let Some(epilogue) = dnn::Epilogue::from_chain(chain, conv.channels())
        {
            inputs.extend(
                epilogue
                    .inputs
                    .iter()
                    .map(|i| at(chain.loads[i.load].place)),
            );
            outputs.extend(chain.stores.iter().map(|s| at(s.place)));
        }
        let (x, w, y) = match conv.which {
            dnn::Direction::Forward => (a, b, y),
            dnn::Direction::Data => (y, b, a),
            dnn::Direction::Weight => (a, y, b),
        };
        let pointers = dnn::Pointers {
            x,
            w,
            y,
            workspace: self.memory.address() + self.map.lanes[site.lane][1] as u64,
            inputs: &inputs,
            outputs: &outputs,
        };
        // SAFETY: places of this program, as large as the plan's tensors; the workspace is this lane's own.
        unsafe { plan.run(stream, &pointers) }
    }
}

impl Executable for Program {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn bytes(&self) -> usize {
        self.map.total
    }

    fn run(&mut self, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
        self.gpu.make_current()?;
        let states = self.states(store)?;
        for (want, &at) in self.plan.inputs.iter().zip(&self.map.inputs) {
            let data = find_input(want, inputs)?;
            self.memory.upload_at(at, data.bytes())?;
        }
        self.upload_tables(&states)?;
        if self.single.as_ref().is_none_or(|g| g.states != states) {
            self.single = Some(self.record(states, None, None)?);
        }
        let stream = self.gpu.stream();
        if let Some(recorded) = &self.single {
            // SAFETY: the states are where they were recorded, and the rest of the memory is the program's own.
            unsafe { recorded.graph.launch(stream)? };
        }
        self.gpu.sync()?;
        self.note_changes(store);
        Ok(())
    }

    fn run_shards(&mut self, store: &mut Store, shards: &[&[(&str, Data<'_>)]]) -> Result<()> {
        match shards {
            [inputs] => self.run(store, inputs),
            _ => Err(Error::new(
                "a process has one shard of a batch on a GPU; start one process a shard",
            )),
        }
    }

    fn replay(
        &mut self,
        store: &mut Store,
        bank: &RowBank,
        frames: &[Frame<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        let Some(first) = frames.first() else {
            return Ok(Vec::new());
        };
        self.gpu.make_current()?;
        let states = self.states(store)?;
        if self.feed.as_ref().is_none_or(|f| !f.serves(bank, first)) {
            let site = Site {
                states: &states,
                lane: 0,
            };
            let places = |p: Place| self.address(p, site);
            self.feed = Some(Feed::new(
                &self.tools,
                &self.plan,
                bank,
                first.gathered,
                places,
            )?);
            self.replayed = None;
        }
        self.upload_tables(&states)?;
        let mut results = Vec::with_capacity(frames.len());
        for chunk in frames.chunks(feed::MOST) {
            if let Some(feed) = &self.feed {
                feed.upload(&self.plan, bank, chunk)?;
            }
            if self.replayed.as_ref().is_none_or(|g| g.states != states) {
                self.replayed = Some(self.record(states.clone(), self.feed.as_ref(), None)?);
            }
            if let Some(recorded) = &self.replayed {
                for _ in chunk {
                    // SAFETY: as in `run`; the bank is the one that the feed serves.
                    unsafe { recorded.graph.launch(self.gpu.stream())? };
                }
            }
            self.gpu.sync()?;
            if let Some(feed) = &self.feed {
                results.extend(feed.results(chunk.len())?);
            }
        }
        self.note_changes(store);
        Ok(results)
    }

    fn output(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        let (place, len) = self.find_output(name);
        let mut bytes = vec![0u8; len * place.dtype.bytes()];
        self.memory
            .download_at(self.offset(place, name)?, &mut bytes)?;
        let values: Vec<f32> = match place.dtype {
            DType::F32 => words(&bytes).map(f32::from_bits).collect(),
            DType::Bf16 => bytes
                .chunks_exact(2)
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                .collect(),
            other => panic!("output {name} holds {other:?}, not numbers"),
        };
        Ok(values.into())
    }

    fn output_u32(&self, name: &str) -> Result<Vec<u32>> {
        let (place, len) = self.find_output(name);
        assert_eq!(place.dtype, DType::U32, "output {name} holds numbers");
        let mut bytes = vec![0u8; len * 4];
        self.memory
            .download_at(self.offset(place, name)?, &mut bytes)?;
        Ok(words(&bytes).collect())
    }

    fn sum_times(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
    ) -> Result<Option<SumTimes>> {
        let sum_of = |job: &Prepared| {
            job.steps.iter().find_map(|step| match step {
                Step::AllSum { len, .. } => Some(*len),
                _ => None,
            })
        };
        let background = LANES.0..LANES.0 + LANES.1;
        if !self.jobs.iter().any(|job| sum_of(job).is_some()) {
            return Ok(None);
        }
        self.run(store, inputs)?;
        let event = || Event::new(&self.gpu);
        let pair = |job: &Prepared| -> Result<Option<(Event, Event)>> {
            let wanted = sum_of(job).is_some() || background.contains(&job.lane.stream);
            wanted.then(|| Ok((event()?, event()?))).transpose()
        };
        let marks = Marks {
            start: event()?,
            end: event()?,
            jobs: self.jobs.iter().map(pair).collect::<Result<_>>()?,
        };
        let states = self.states(store)?;
        let recorded = self.record(states, None, Some(&marks))?;
        // The first launch uploads the graph.
        for _ in 0..2 {
            // SAFETY: as in `run`, and the events are alive.
            unsafe { recorded.graph.launch(self.gpu.stream())? };
            self.gpu.sync()?;
        }
        let at = |event: &Event| event.elapsed_ms(&marks.start).map(f64::from);
        let (mut sums, mut last_gradient) = (Vec::new(), 0f64);
        for (job, mark) in self.jobs.iter().zip(&marks.jobs) {
            let Some((begin, end)) = mark else {
                continue;
            };
            match sum_of(job) {
                Some(len) => sums.push((len, at(begin)?, at(end)?)),
                None => last_gradient = last_gradient.max(at(end)?),
            }
        }
        let end = at(&marks.end)?;
        self.note_changes(store);
        Ok(Some(SumTimes {
            sums,
            last_gradient,
            end,
        }))
    }

    fn profile(
        &mut self,
        store: &mut Store,
        inputs: &[(&str, Data<'_>)],
        repeats: usize,
    ) -> Result<Vec<Timed>> {
        self.run(store, inputs)?;
        self.gpu.make_current()?;
        let states = self.states(store)?;
        self.upload_tables(&states)?;
        let stream = self.gpu.stream();
        let events: Vec<Event> = (0..=self.jobs.len())
            .map(|_| Event::new(&self.gpu))
            .collect::<Result<_>>()?;
        let capture = Capture::begin(&self.gpu, stream)?;
        events[0].record_in_graph(stream)?;
        for (job, event) in self.jobs.iter().zip(&events[1..]) {
            let site = Site {
                states: &states,
                lane: job.lane.stream,
            };
            self.queue(job, stream, site)?;
            event.record_in_graph(stream)?;
        }
        let graph = capture.end()?;
        let mut kinds: BTreeMap<&'static str, Timed> = BTreeMap::new();
        let repeats = repeats.max(1);
        for round in 0..=repeats {
            // SAFETY: as in `run`, and the events are alive.
            unsafe { graph.launch(stream)? };
            self.gpu.sync()?;
            if round == 0 {
                continue;
            }
            for (i, job) in self.jobs.iter().enumerate() {
                let row = kinds.entry(job.kind).or_insert(Timed::new(job.kind));
                let ms = events[i + 1].elapsed_ms(&events[i])? as f64;
                row.micros += ms * 1e3 / repeats as f64;
                if round == 1 {
                    row.flops += job.flops;
                    row.bytes += job.bytes;
                    row.launches += job.steps.len();
                }
            }
        }
        self.note_changes(store);
        Ok(kinds.into_values().collect())
    }
}

fn check_room(gpu: &Gpu, bytes: usize) -> Result<()> {
    let (free, total) = gpu.memory()?;
    match bytes > free {
        true => Err(Error::new(format!(
            "the plan needs {} and {} has {} free of {}; lower train.batch or close what else uses it",
            bytes_text(bytes),
            gpu.info().name,
            bytes_text(free),
            bytes_text(total)
        ))),
        false => Ok(()),
    }
}

/// Little-endian words of bytes.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
