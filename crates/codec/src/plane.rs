//! A small predictive coder for what the model is no good at: drawings, tiny images, transparency.
//!
//! Each sample is predicted from its neighbours to the left and above (the median of left, above, and the plane through
//! both and their corner), and the difference is coded as yes-or-no decisions whose odds are learnt as the image goes:
//! first whether there is a difference at all, then its eight bits. Odds are kept apart by how busy the neighbourhood is
//! and by how wrong the prediction of the channel before was. Red and blue are coded less green.
//!
//! Decisions are learnt forwards and a stack is filled backwards, so an image is cut into strips of rows, each with a
//! stack of its own; what has been learnt goes on from strip to strip.

use super::stack::{Slot, Stack, TOTAL};
use rrvq::error::{Error, Result};

/// Samples of a strip, at most, unless a single row has more.
const STRIP: usize = 1 << 18;
const ACTIVITIES: usize = 8;
const SURPRISES: usize = 4;
/// Decisions of a context: is there a difference, and a tree of eight bits.
const NODES: usize = 257;

/// The odds of one decision: that it is "no", by a quick and by a slow learner, out of 2¹⁶.
#[derive(Clone, Copy)]
struct Odds {
    quick: u16,
    slow: u16,
}

const EVEN: Odds = Odds {
    quick: 1 << 15,
    slow: 1 << 15,
};

impl Odds {
    /// Counts of "no".
    fn no(self) -> u32 {
        let both = (self.quick as u32 + self.slow as u32).clamp(64, (1 << 17) - 64);
        both << 7
    }

    fn learn(&mut self, yes: bool) {
        let learn = |odds: &mut u16, rate: u32| match yes {
            true => *odds -= *odds >> rate,
            false => *odds += (u16::MAX - *odds) >> rate,
        };
        learn(&mut self.quick, 4);
        learn(&mut self.slow, 7);
    }
}

fn slot(no: u32, yes: bool) -> Slot {
    match yes {
        false => Slot { left: 0, count: no },
        true => Slot {
            left: no,
            count: TOTAL - no,
        },
    }
}

/// Shape of an image of samples, channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
}

impl Shape {
    fn row(&self) -> usize {
        self.width * self.channels
    }

    pub fn bytes(&self) -> usize {
        self.row() * self.height
    }

    /// Rows of a strip.
    fn rows(&self) -> usize {
        (STRIP / self.row()).max(1)
    }

    /// Samples of a strip; the last one may have fewer.
    pub fn strip(&self) -> usize {
        self.rows() * self.row()
    }

    /// How many strips the image has.
    pub fn strips(&self) -> usize {
        self.height.div_ceil(self.rows())
    }
}

/// Where decisions come from or go to.
trait Decide {
    fn decide(&mut self, odds: &mut Odds, yes: bool) -> Result<bool>;
}

/// Notes decisions, to be put on a stack in reverse.
struct Noting(Vec<Slot>);

impl Decide for Noting {
    fn decide(&mut self, odds: &mut Odds, yes: bool) -> Result<bool> {
        self.0.push(slot(odds.no(), yes));
        odds.learn(yes);
        Ok(yes)
    }
}

impl Decide for Stack {
    fn decide(&mut self, odds: &mut Odds, _: bool) -> Result<bool> {
        let no = odds.no();
        let yes = self.peek() >= no;
        self.pop(slot(no, yes))?;
        odds.learn(yes);
        Ok(yes)
    }
}

/// What has been learnt so far, and the samples seen: channels less green.
struct Learner {
    shape: Shape,
    odds: Vec<[Odds; NODES]>,
    /// The row above and the present one, channel after channel for each pixel.
    above: Vec<u8>,
    here: Vec<u8>,
    first_row: bool,
}

impl Learner {
    fn new(shape: Shape) -> Learner {
        Learner {
            shape,
            odds: vec![[EVEN; NODES]; shape.channels * ACTIVITIES * SURPRISES],
            above: vec![0; shape.row()],
            here: vec![0; shape.row()],
            first_row: true,
        }
    }

    /// Codes a row: from `row` when noting, into `row` when reading.
    fn row(&mut self, row: &mut [u8], decisions: &mut impl Decide) -> Result<()> {
        let channels = self.shape.channels;
        for x in 0..self.shape.width {
            let pixel = &mut row[x * channels..][..channels];
            let mut surprise = 0u8;
            for step in 0..channels {
                let channel = order(channels, step);
                let at = x * channels + channel;
                let (predicted, activity) = self.predict(x, at);
                let base = if channels >= 3 && channel != 1 {
                    pixel[1]
                } else {
                    0
                };
                let context = (channel * ACTIVITIES + activity) * SURPRISES + level(surprise);
                let wanted = pixel[channel].wrapping_sub(base).wrapping_sub(predicted);
                let difference = difference(&mut self.odds[context], wanted, decisions)?;
                let sample = predicted.wrapping_add(difference);
                self.here[at] = sample;
                pixel[channel] = sample.wrapping_add(base);
                surprise = surprise.max((difference as i8).unsigned_abs());
            }
        }
        std::mem::swap(&mut self.above, &mut self.here);
        self.first_row = false;
        Ok(())
    }

    /// The expected sample, and how busy it is around it.
    fn predict(&self, x: usize, at: usize) -> (u8, usize) {
        let channels = self.shape.channels;
        let (left, up, corner) = match (x > 0, !self.first_row) {
            (false, false) => return (0, 0),
            (true, false) => {
                let left = self.here[at - channels];
                (left, left, left)
            }
            (false, true) => {
                let up = self.above[at];
                (up, up, up)
            }
            (true, true) => (
                self.here[at - channels],
                self.above[at],
                self.above[at - channels],
            ),
        };
        let next = match x + 1 < self.shape.width && !self.first_row {
            true => self.above[at + channels],
            false => up,
        };
        let (low, high) = (left.min(up), left.max(up));
        let predicted = match corner {
            c if c >= high => low,
            c if c <= low => high,
            c => (left as i16 + up as i16 - c as i16) as u8,
        };
        let busy =
            left.abs_diff(corner) as u32 + up.abs_diff(corner) as u32 + up.abs_diff(next) as u32;
        let activity = match busy {
            0 => 0,
            1..=2 => 1,
            3..=5 => 2,
            6..=10 => 3,
            11..=20 => 4,
            21..=40 => 5,
            41..=80 => 6,
            _ => 7,
        };
        (predicted, activity)
    }
}

/// Green first: the others are coded less it.
fn order(channels: usize, step: usize) -> usize {
    match (channels >= 3, step) {
        (true, 0) => 1,
        (true, 1) => 0,
        _ => step,
    }
}

fn level(surprise: u8) -> usize {
    match surprise {
        0 => 0,
        1..=2 => 1,
        3..=8 => 2,
        _ => 3,
    }
}

/// Codes a difference: none, or its bits from the highest on, small ones of either sign first.
fn difference(odds: &mut [Odds; NODES], wanted: u8, decisions: &mut impl Decide) -> Result<u8> {
    if !decisions.decide(&mut odds[0], wanted != 0)? {
        return Ok(0);
    }
    // 1, −1, 2, −2, … as 0, 1, 2, 3, …; −128 comes last.
    let signed = wanted as i8;
    let folded = match signed > 0 {
        true => (signed as u8).wrapping_mul(2).wrapping_sub(2),
        false => (signed as u8)
            .wrapping_neg()
            .wrapping_mul(2)
            .wrapping_sub(1),
    };
    let mut node = 1usize;
    for bit in (0..8).rev() {
        let yes = decisions.decide(&mut odds[node], folded >> bit & 1 == 1)?;
        node = 2 * node + yes as usize;
    }
    let found = (node - 256) as u8;
    let size = found / 2 + 1;
    Ok(match found % 2 {
        0 => size,
        _ => size.wrapping_neg(),
    })
}

/// Codes an image strip by strip.
pub struct Writer {
    learner: Learner,
    row: Vec<u8>,
}

impl Writer {
    pub fn new(shape: Shape) -> Writer {
        Writer {
            row: vec![0; shape.row()],
            learner: Learner::new(shape),
        }
    }

    /// The next strip, of the samples that are [`Shape::strip`] of them.
    pub fn strip(&mut self, samples: &[u8]) -> Result<Vec<u8>> {
        let mut noted = Noting(Vec::new());
        for row in samples.chunks_exact(self.row.len()) {
            self.row.copy_from_slice(row);
            self.learner.row(&mut self.row, &mut noted)?;
        }
        let mut stack = Stack::default();
        noted.0.iter().rev().for_each(|slot| stack.push(*slot));
        Ok(stack.to_bytes())
    }
}

/// The strips of an image.
pub fn write(shape: Shape, samples: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut writer = Writer::new(shape);
    let strips = samples.chunks(shape.strip());
    strips.map(|strip| writer.strip(strip)).collect()
}

/// The same, each strip read back and compared; none where one does not come back as it was.
pub fn write_checked(shape: Shape, samples: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
    let (mut writer, mut reader) = (Writer::new(shape), Reader::new(shape));
    let mut strips = Vec::with_capacity(shape.strips());
    for strip in samples.chunks(shape.strip()) {
        rrvq::interrupt::check()?;
        let coded = writer.strip(strip)?;
        reader.strip(&coded)?;
        if reader.take() != strip {
            return Ok(None);
        }
        strips.push(coded);
    }
    Ok(Some(strips))
}

/// Reads an image strip by strip.
pub struct Reader {
    learner: Learner,
    /// Rows that were read.
    rows: usize,
    pub samples: Vec<u8>,
}

impl Reader {
    pub fn new(shape: Shape) -> Reader {
        Reader {
            learner: Learner::new(shape),
            rows: 0,
            samples: Vec::new(),
        }
    }

    /// Takes the next strip. Memory grows with what was really read.
    pub fn strip(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = || Error::new("its bits do not belong together");
        let mut stack = Stack::from_bytes(bytes).ok_or_else(damaged)?;
        let shape = self.learner.shape;
        let mut row = vec![0; shape.row()];
        for _ in 0..shape.rows().min(shape.height - self.rows) {
            row.fill(0);
            self.learner.row(&mut row, &mut stack)?;
            self.samples.extend_from_slice(&row);
            self.rows += 1;
        }
        match stack.is_empty() {
            true => Ok(()),
            false => Err(damaged()),
        }
    }

    /// Gives away what was read since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.samples)
    }
}

/// Reads all strips.
pub fn read(shape: Shape, strips: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut reader = Reader::new(shape);
    for strip in strips {
        reader.strip(strip)?;
    }
    Ok(reader.samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(shape: Shape, at: impl Fn(usize, usize, usize) -> u8) -> Vec<u8> {
        let Shape {
            width,
            height,
            channels,
        } = shape;
        let all = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        all.flat_map(|(x, y)| (0..channels).map(move |c| (x, y, c)))
            .map(|(x, y, c)| at(x, y, c))
            .collect()
    }

    #[test]
    fn images_come_back() {
        for (width, height) in [(1, 1), (1, 7), (7, 1), (33, 31), (700, 400)] {
            for channels in 1..=4 {
                let shape = Shape {
                    width,
                    height,
                    channels,
                };
                let noisy = image(shape, |x, y, c| {
                    ((x * 7 + y * 13 + c * 40) as u8) ^ (x * y % 11) as u8
                });
                let strips = write(shape, &noisy).unwrap();
                assert_eq!(strips.len(), shape.strips());
                assert_eq!(read(shape, &strips).unwrap(), noisy, "{shape:?}");
            }
        }
    }

    #[test]
    fn every_difference_comes_back() {
        let shape = Shape {
            width: 256,
            height: 256,
            channels: 1,
        };
        let jumps = image(shape, |x, y, _| (x * y) as u8 ^ (y as u8).reverse_bits());
        let strips = write(shape, &jumps).unwrap();
        assert_eq!(read(shape, &strips).unwrap(), jumps);
    }

    #[test]
    fn a_drawing_is_small_and_noise_is_not_large() {
        let shape = Shape {
            width: 400,
            height: 300,
            channels: 3,
        };
        let size = |samples: &[u8]| -> usize {
            let strips = write(shape, samples).unwrap();
            strips.iter().map(Vec::len).sum()
        };
        let flat = image(shape, |_, _, c| [20, 200, 90][c]);
        assert!(size(&flat) < 400, "{}", size(&flat));
        let squares = image(shape, |x, y, c| {
            [20, 200, 90][c] ^ (((x / 50 + y / 50) % 2) as u8 * 77)
        });
        assert!(size(&squares) < 2500, "{}", size(&squares));
        let mut seed = 1u32;
        let noise: Vec<u8> = (0..shape.bytes())
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        assert!(size(&noise) < noise.len() * 103 / 100, "{}", size(&noise));
    }

    #[test]
    fn damage_is_noticed_or_harmless_but_never_a_panic() {
        let shape = Shape {
            width: 40,
            height: 30,
            channels: 3,
        };
        let samples = image(shape, |x, y, c| (x * 3 + y * c) as u8);
        let strip = write(shape, &samples).unwrap().remove(0);
        let mut noticed = 0;
        for at in 0..strip.len() {
            let mut bent = strip.clone();
            bent[at] ^= 1 << (at % 8);
            noticed += (read(shape, &[bent]).ok() != Some(samples.clone())) as usize;
            assert!(read(shape, &[strip[..at].to_vec()]).is_err());
        }
        assert_eq!(noticed, strip.len());
    }
}
