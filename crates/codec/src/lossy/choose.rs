//! Which codes are written: all layers or some, the likeliest or better ones.
//!
//! Every way to write an image is read back at once: its codes must be the very ones that were chosen, and the picture
//! tells how good it is. The search needs to know that beforehand, since what a bit is worth depends on it: where much is
//! wrong already, a bit has to mend more.

use super::super::image::Image;
use super::super::tiles::Tiling;
use super::super::workers::Workers;
use super::file::overhead;
use super::layout::{Layout, Order, Unit, jobs};
use super::show::{Coded, Picture, show};
use super::walk::{self, Arrived, Outgoing, Written};
use super::{Keep, Options};
use rrvq::error::{Error, Result};
use std::collections::BTreeSet;

/// A way to write an image.
pub struct Attempt {
    pub dropped: usize,
    pub blocks: Vec<Vec<u8>>,
    pub colour: Vec<u8>,
    pub squared_error: u64,
}

impl Attempt {
    pub fn codes(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    pub fn overhead(&self) -> usize {
        self.blocks.iter().map(|block| overhead(block.len())).sum()
    }

    /// What counts against a budget.
    fn bytes(&self) -> usize {
        self.codes() + self.overhead()
    }
}

/// An image to be coded.
struct Job {
    image: usize,
    dropped: usize,
    worth: Option<f64>,
    /// Runs of layers whose bytes are wanted.
    runs: BTreeSet<(usize, usize)>,
}

/// Decides for the images of a segment.
pub struct Chooser<'a> {
    /// Those for the images' tiles.
    pub workers: &'a mut Workers,
    /// Tiles of a group, at most.
    pub group: usize,
    pub options: Options,
}

impl Chooser<'_> {
    fn tiling(&self, image: &Image) -> Tiling {
        Tiling {
            width: image.width,
            height: image.height,
            channels: image.channels(),
            side: self.workers.model().config.size,
        }
    }

    fn layout(&self, image: &Image, dropped: usize) -> Layout {
        let config = &self.workers.model().config;
        let positions = config.sides().into_iter().map(|side| side * side);
        Layout::new(
            &positions.collect::<Vec<_>>(),
            self.tiling(image).count(),
            self.group,
            dropped,
            Order::Context,
        )
    }

    /// The best way to write each image.
    pub fn best(&mut self, images: &[Image]) -> Result<Vec<Attempt>> {
        let dropped = match self.options.keep {
            Keep::Drop(dropped) => vec![dropped; images.len()],
            Keep::Bits(_) => self.fitting(images)?,
        };
        let all: Vec<(usize, usize)> = dropped.into_iter().enumerate().collect();
        if !self.options.search {
            return self.attempts(images, &all, None);
        }
        let mut kept = self.searched(images, &all)?;
        // What the search saves may pay for another layer.
        let mut going: Vec<usize> = match self.options.keep {
            Keep::Bits(_) => (0..images.len()).collect(),
            Keep::Drop(_) => Vec::new(),
        };
        loop {
            going.retain(|&number| kept[number].dropped > 0);
            if going.is_empty() {
                return Ok(kept);
            }
            let which = going.iter().map(|&n| (n, kept[n].dropped - 1));
            let more = self.searched(images, &which.collect::<Vec<_>>())?;
            let mut still = Vec::new();
            for (number, attempt) in going.into_iter().zip(more) {
                if self.fits(&images[number], attempt.bytes()) {
                    kept[number] = attempt;
                    still.push(number);
                }
            }
            going = still;
        }
    }

    /// The likeliest codes, or better ones where there are any.
    fn searched(&mut self, images: &[Image], which: &[(usize, usize)]) -> Result<Vec<Attempt>> {
        let mut kept = self.attempts(images, which, None)?;
        let worth: Vec<f64> = which
            .iter()
            .zip(&kept)
            .map(|((number, _), attempt)| {
                let own = worth_at(attempt.squared_error, images[*number].colour.len());
                self.options.bit_worth.unwrap_or(own)
            })
            .collect();
        let found = self.attempts(images, which, Some(&worth))?;
        for (at, attempt) in found.into_iter().enumerate() {
            let price = |a: &Attempt| a.squared_error as f64 + worth[at] * 8.0 * a.codes() as f64;
            let bytes = attempt.bytes();
            let room = self.fits(&images[which[at].0], bytes) || bytes <= kept[at].bytes();
            if room && price(&attempt) < price(&kept[at]) {
                kept[at] = attempt;
            }
        }
        Ok(kept)
    }

    /// Whether so many bytes are within the budget.
    fn fits(&self, image: &Image, bytes: usize) -> bool {
        match self.options.keep {
            Keep::Drop(_) => true,
            Keep::Bits(bits) => 8.0 * bytes as f64 <= bits * (image.width * image.height) as f64,
        }
    }

    /// For each image the fewest layers that have to be left out for the budget.
    fn fitting(&mut self, images: &[Image]) -> Result<Vec<usize>> {
        let layers = self.workers.model().config.layers();
        let jobs: Vec<Job> = images
            .iter()
            .enumerate()
            .map(|(image, it)| Job {
                image,
                dropped: 0,
                worth: None,
                runs: (0..=layers)
                    .flat_map(|n| runs(&self.layout(it, n)))
                    .collect(),
            })
            .collect();
        let written = self.code(images, &jobs)?;
        let mut fewest = Vec::new();
        for (image, groups) in images.iter().zip(&written) {
            let size = |dropped: usize| -> usize {
                let runs = runs(&self.layout(image, dropped)).into_iter();
                let lens = runs.flat_map(|run| groups.iter().map(move |g| g.runs[&run].len()));
                lens.map(|len| len + overhead(len)).sum()
            };
            let fits = |dropped: &usize| self.fits(image, size(*dropped));
            fewest.push((0..layers).find(fits).unwrap_or(layers));
        }
        Ok(fewest)
    }

    /// Does the jobs: for each, its groups.
    fn code(&mut self, images: &[Image], wanted: &[Job]) -> Result<Vec<Vec<Written>>> {
        let layout = |job: &Job| self.layout(&images[job.image], job.dropped);
        let layouts: Vec<Layout> = wanted.iter().map(layout).collect();
        let tiling = |job: &Job| self.tiling(&images[job.image]);
        let tilings: Vec<Tiling> = wanted.iter().map(tiling).collect();
        let channels = self.workers.model().config.image_channels;
        let batch = self.workers.batch();
        let jobs = jobs(layouts.iter().cloned().enumerate());
        let done = self.workers.each(jobs, |networks, units: Vec<Unit>| {
            let outgoing = |unit: &Unit| {
                let job = &wanted[unit.image];
                let tiles = layouts[unit.image].group(unit.group);
                let colour = &images[job.image].colour;
                let (squares, extents) = tiles
                    .map(|tile| tilings[unit.image].cut(colour, tile, channels))
                    .map(|tile| (tile.square, tile.extent))
                    .unzip();
                Outgoing {
                    squares,
                    extents,
                    dropped: job.dropped,
                    runs: job.runs.iter().map(|run| run.0..run.1).collect(),
                    worth: job.worth,
                }
            };
            let outgoing: Vec<Outgoing> = units.iter().map(outgoing).collect();
            Ok((units, walk::write(networks, batch, &outgoing)?))
        })?;
        let mut out: Vec<Vec<Written>> = wanted.iter().map(|_| Vec::new()).collect();
        for (units, written) in done.into_iter().collect::<Result<Vec<_>>>()? {
            for (unit, written) in units.into_iter().zip(written) {
                out[unit.image].push(written);
            }
        }
        Ok(out)
    }

    /// Codes images, each with so many layers left out, and reads them back.
    fn attempts(
        &mut self,
        images: &[Image],
        which: &[(usize, usize)],
        worth: Option<&[f64]>,
    ) -> Result<Vec<Attempt>> {
        let jobs: Vec<Job> = which
            .iter()
            .enumerate()
            .map(|(at, &(image, dropped))| Job {
                image,
                dropped,
                worth: worth.map(|worth| worth[at]),
                runs: runs(&self.layout(&images[image], dropped))
                    .into_iter()
                    .collect(),
            })
            .collect();
        let written = self.code(images, &jobs)?;
        let coded: Vec<Coded<'_>> = jobs
            .iter()
            .zip(&written)
            .map(|(job, groups)| {
                let layout = self.layout(&images[job.image], job.dropped);
                let runs = runs(&layout).into_iter();
                let blocks = runs.flat_map(|run| groups.iter().map(move |group| &group.runs[&run]));
                Coded {
                    tiling: self.tiling(&images[job.image]),
                    layout,
                    blocks: blocks.map(|bytes| Some(Arrived::whole(bytes))).collect(),
                }
            })
            .collect();
        let shown = show(self.workers, &coded, &|_| {})?;
        let mut out = Vec::new();
        for (((job, coded), groups), picture) in jobs.iter().zip(coded).zip(&written).zip(shown) {
            let picture = picture?;
            if !faithful(&picture, groups, job.dropped) {
                return Err(Error::new(
                    "what was compressed does not come back as it was, so nothing is written; please report this \
                     with the model and the images",
                ));
            }
            let errors = images[job.image].colour.iter().zip(&picture.colour);
            let blocks = coded.blocks.into_iter().flatten();
            out.push(Attempt {
                dropped: job.dropped,
                squared_error: errors.map(|(a, b)| (a.abs_diff(*b) as u64).pow(2)).sum(),
                colour: picture.colour,
                blocks: blocks.map(|block| block.bytes.to_vec()).collect(),
            });
        }
        Ok(out)
    }
}

/// The steps of a layout by their first layer and the one after their last.
fn runs(layout: &Layout) -> Vec<(usize, usize)> {
    let steps = layout.steps.iter();
    steps.map(|step| (step.start, step.end)).collect()
}

/// Whether the codes that were read are those that were written.
fn faithful(picture: &Picture, written: &[Written], dropped: usize) -> bool {
    let kept = |sums: &[u32]| sums.get(dropped..).map(<[u32]>::to_vec);
    let codes = picture.sums.iter().map(|sums| kept(sums));
    let anything = written.first().is_some_and(|w| dropped < w.sums.len());
    !anything || (!picture.damaged && codes.eq(written.iter().map(|w| kept(&w.sums))))
}

/// What a bit is worth at a quality: by the law that error falls by four with each bit a sample, the slope of it.
fn worth_at(squared_error: u64, samples: usize) -> f64 {
    // 2 ln 2.
    1.386_294_361 * squared_error as f64 / samples as f64
}
