//! From codes to pictures: groups of tiles, as many side by side as there are workers, each pasted into its place.
//!
//! The writer and the reader both look at pictures through here, so what a writer saw is what a reader will see.

use super::super::tiles::Tiling;
use super::super::workers::Workers;
use super::layout::{Layout, Unit, jobs};
use super::walk::{self, Arrived, Incoming};
use rrvq::error::{Error, Result};

/// An image's codes, as far as they are there.
pub struct Coded<'a> {
    pub layout: Layout,
    pub tiling: Tiling,
    /// Step by step, group by group; what is missing at the end need not be listed.
    pub blocks: Vec<Option<Arrived<'a>>>,
}

impl<'a> Coded<'a> {
    /// Blocks that should be there.
    pub fn due(&self) -> usize {
        self.layout.steps.len() * self.layout.groups()
    }

    /// Whether something is there, and all of it.
    pub fn whole(&self) -> bool {
        let whole = |block: &Option<Arrived<'_>>| block.is_some_and(|b| b.bytes.len() == b.len);
        !self.blocks.is_empty() && self.blocks.len() == self.due() && self.blocks.iter().all(whole)
    }

    fn arrived(&self, step: usize, group: usize) -> Option<Arrived<'a>> {
        let number = step * self.layout.groups() + group;
        self.blocks.get(number).copied().flatten()
    }
}

/// What is seen of them.
pub struct Picture {
    pub colour: Vec<u8>,
    pub present: usize,
    /// For each group, checksums of the codes of each layer.
    pub sums: Vec<Vec<u32>>,
    pub damaged: bool,
}

/// Jobs at hand for each worker: enough to keep all busy, few enough to be pasted before memory grows.
const JOBS_EACH: usize = 4;

/// Pixels that may be shown out of nothing, all images of a call together, and more of them for each block that came: a
/// few bytes must not be able to claim all memory.
const FREE_PIXELS: usize = 1 << 22;
const PIXELS_A_BLOCK: usize = 1 << 16;

/// Pictures of images. One fails only if too little of it is there, or too little memory.
pub fn show(
    workers: &mut Workers,
    images: &[Coded<'_>],
    watch: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Result<Picture>>> {
    let model_channels = workers.model().config.image_channels;
    let batch = workers.batch();
    let mut free = FREE_PIXELS;
    let mut pictures: Vec<Result<Picture>> = Vec::with_capacity(images.len());
    for coded in images {
        let pixels = coded.tiling.width * coded.tiling.height;
        let guessed = match coded.whole() {
            true => 0,
            false => pixels.saturating_sub(coded.blocks.len() * PIXELS_A_BLOCK),
        };
        pictures.push(match free.checked_sub(guessed) {
            Some(left) => {
                free = left;
                Picture::new(coded)
            }
            None => Err(Error::new("too few of its codes are there to show it")),
        });
    }
    let known = |(number, coded): (usize, &Coded<'_>)| {
        let any = coded.arrived(0, 0).is_some() && pictures[number].is_ok();
        any.then(|| (number, coded.layout.clone()))
    };
    let mut waiting = jobs(images.iter().enumerate().filter_map(known)).into_iter();
    loop {
        let round: Vec<_> = waiting.by_ref().take(JOBS_EACH * workers.most()).collect();
        if round.is_empty() {
            break;
        }
        let done = workers.each(round, |networks, units: Vec<Unit>| {
            let incoming: Vec<Incoming<'_>> = units
                .iter()
                .map(|unit| {
                    let coded = &images[unit.image];
                    let steps = coded.layout.steps.iter().cloned().enumerate();
                    Incoming {
                        tiles: unit.tiles,
                        context: coded.layout.context,
                        steps: steps
                            .map(|(number, step)| (step, coded.arrived(number, unit.group)))
                            .collect(),
                    }
                })
                .collect();
            let seen = walk::read(networks, batch, &incoming)?;
            Ok((units, seen))
        })?;
        for (units, seen) in done.into_iter().collect::<Result<Vec<_>>>()? {
            for (unit, seen) in units.into_iter().zip(seen) {
                let coded = &images[unit.image];
                let Ok(picture) = &mut pictures[unit.image] else {
                    continue;
                };
                for (tile, square) in coded.layout.group(unit.group).zip(&seen.squares) {
                    picture.paste(&coded.tiling, tile, square, model_channels);
                    watch(coded.tiling.extent(tile).bytes());
                }
                picture.present += seen.present;
                picture.sums.push(seen.sums);
                picture.damaged |= seen.damaged;
            }
        }
    }
    // Without any codes all tiles are alike.
    let blank = |coded: &Coded<'_>| coded.arrived(0, 0).is_none();
    if images.iter().any(blank) {
        let one = Incoming {
            tiles: 1,
            context: false,
            steps: Vec::new(),
        };
        let seen = workers.each(vec![one], |networks, one| {
            walk::read(networks, batch, &[one])
        })?;
        let seen = seen.into_iter().collect::<Result<Vec<_>>>()?;
        let square = seen.first().and_then(|s| s.first()).map(|s| &s.squares[0]);
        for (coded, picture) in images.iter().zip(&mut pictures) {
            if let (true, Ok(picture), Some(square)) = (blank(coded), picture, square) {
                for tile in 0..coded.tiling.count() {
                    picture.paste(&coded.tiling, tile, square, model_channels);
                }
            }
        }
    }
    Ok(pictures)
}

impl Picture {
    fn new(coded: &Coded<'_>) -> Result<Picture> {
        let Tiling {
            width,
            height,
            channels,
            ..
        } = coded.tiling;
        let bytes = width * height * channels;
        let mut colour = Vec::new();
        let full = |_| Error::new(format!("there is no memory for its {bytes} bytes"));
        colour.try_reserve_exact(bytes).map_err(full)?;
        colour.resize(bytes, 0);
        Ok(Picture {
            colour,
            present: 0,
            sums: Vec::new(),
            damaged: false,
        })
    }

    /// Puts what belongs to the image into its place; grey is the mean of the model's channels.
    fn paste(&mut self, tiling: &Tiling, tile: usize, square: &[u8], model_channels: usize) {
        let extent = tiling.extent(tile);
        let mut bytes = Vec::with_capacity(extent.bytes());
        for y in 0..extent.height {
            let row = &square[y * tiling.side * model_channels..];
            for pixel in row.chunks_exact(model_channels).take(extent.width) {
                match extent.channels == model_channels {
                    true => bytes.extend_from_slice(pixel),
                    false => {
                        let sum: usize = pixel.iter().map(|byte| *byte as usize).sum();
                        bytes.push(((sum + model_channels / 2) / model_channels) as u8);
                    }
                }
            }
        }
        tiling.paste(&mut self.colour, tile, &bytes);
    }
}
