//! Tables of codes: from a network's numbers to counts that a stack can work with.
//!
//! The program itself ends in whole numbers: for each code 1 + ⌊p · (2²⁴ − K − slack)⌋, floats that are exact. What is
//! missing to 2²⁴ goes to the likeliest code. The sum of rounded probabilities may be off by what floats are off; the
//! slack is far above that. An invalid table (NaN, of a broken model) becomes the uniform one, on both sides alike.

use super::stack::{Slot, TOTAL};
use rrvq_tensor::Var;
use rrvq_tensor::simd::with_instructions;

/// Counts kept back, so that no error of the probabilities' sum can go over the total.
const SLACK: usize = 1024;
/// The total as a float, which it is exactly.
const WHOLE: f32 = TOTAL as f32;
/// Numbers of at most 2²⁴ whose sum fits 32 bits.
const PIECE: usize = 128;
/// More codes than this leave too few counts to say anything with.
pub const MOST_CODES: usize = 1 << 16;

/// Draws the counts of probabilities given by their logarithms, [rows, K].
pub fn counts(log_p: Var<'_>) -> Var<'_> {
    let scale = TOTAL as usize - log_p.dim(1) - SLACK;
    (log_p.exp() * scale as f32).floor() + 1.0
}

/// Counts of a program's numbers, bounded; their sum, and the first of the largest.
#[inline(always)]
fn fill(numbers: &[f32], counts: &mut [u32]) -> (u64, usize) {
    let (mut sum, mut largest) = (0u64, 0);
    // Pieces whose sums fit 32 bits, so that the compiler can add many numbers at once.
    for (counts, numbers) in counts.chunks_mut(PIECE).zip(numbers.chunks(PIECE)) {
        let mut piece = 0u32;
        for (count, number) in counts.iter_mut().zip(numbers) {
            // NaN is not above 1 either. Floats are bounded first: integers have no such instruction on older machines.
            let number = if *number > 1.0 { *number } else { 1.0 };
            let number = if number < WHOLE { number } else { WHOLE };
            // SAFETY: from 1 to 2²⁴. The checked cast would look at each number on its own.
            *count = unsafe { number.to_int_unchecked::<i32>() } as u32;
            piece += *count;
            largest = largest.max(*count);
        }
        sum += piece as u64;
    }
    let mode = counts.iter().position(|c| *c == largest);
    (sum, mode.unwrap_or(0))
}

/// One position's table.
pub struct Table<'a> {
    counts: &'a [u32],
    /// The likeliest code, which also gets what is left over.
    pub mode: usize,
    rest: u32,
}

impl<'a> Table<'a> {
    /// `numbers` are what the program gave; `counts` is room for as many.
    pub fn new(numbers: &[f32], counts: &'a mut [u32]) -> Table<'a> {
        let (sum, mode) = with_instructions(
            #[inline(always)]
            || fill(numbers, counts),
        );
        match sum > TOTAL as u64 {
            true => Table::uniform(counts),
            false => Table {
                rest: TOTAL - sum as u32,
                counts,
                mode,
            },
        }
    }

    /// All codes alike; what does not divide goes to the first.
    pub fn uniform(counts: &'a mut [u32]) -> Table<'a> {
        let each = TOTAL / counts.len() as u32;
        counts.fill(each);
        Table {
            rest: TOTAL - each * counts.len() as u32,
            counts,
            mode: 0,
        }
    }

    pub fn slot(&self, code: usize) -> Slot {
        let left: u32 = self.counts[..code].iter().sum();
        let count = self.counts[code];
        match code.cmp(&self.mode) {
            std::cmp::Ordering::Less => Slot { left, count },
            std::cmp::Ordering::Equal => Slot {
                left,
                count: count + self.rest,
            },
            std::cmp::Ordering::Greater => Slot {
                left: left + self.rest,
                count,
            },
        }
    }

    /// A slot of the same size, wherever it lies: enough to know the price, and quicker.
    pub fn share(&self, code: usize) -> Slot {
        let rest = if code == self.mode { self.rest } else { 0 };
        Slot {
            left: 0,
            count: self.counts[code] + rest,
        }
    }

    /// How many codes there are.
    pub fn codes(&self) -> usize {
        self.counts.len()
    }

    /// The table without some of its codes: what was theirs goes to the others by their own shares, and what does not divide
    /// to the largest, the first of equals. `left` are the counts of the others; `room` holds the new ones.
    pub fn without<'r>(&self, codes: &[u32], left: u32, room: &'r mut Vec<u32>) -> Table<'r> {
        room.clear();
        let grown = |code| ((self.share(code).count as u64 * TOTAL as u64) / left as u64) as u32;
        room.extend((0..self.codes()).map(grown));
        codes.iter().for_each(|code| room[*code as usize] = 0);
        let sum: u32 = room.iter().sum();
        let largest = room.iter().copied().max().unwrap_or(0);
        Table {
            mode: room.iter().position(|count| *count == largest).unwrap_or(0),
            rest: TOTAL - sum,
            counts: room,
        }
    }

    /// The code whose slot holds `place`, which is below the total.
    pub fn find(&self, place: u32) -> (usize, Slot) {
        let mut left = 0;
        for (code, &count) in self.counts.iter().enumerate() {
            let count = count + if code == self.mode { self.rest } else { 0 };
            if place - left < count {
                return (code, Slot { left, count });
            }
            left += count;
        }
        unreachable!("counts sum to the total, and the place is below it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(numbers: &[f32]) -> Vec<Slot> {
        let mut counts = vec![0; numbers.len()];
        let table = Table::new(numbers, &mut counts);
        let slots: Vec<Slot> = (0..numbers.len()).map(|code| table.slot(code)).collect();
        let mut left = 0;
        for (code, slot) in slots.iter().enumerate() {
            assert!(slot.count > 0 && slot.left == left, "{slots:?}");
            assert_eq!(table.share(code).count, slot.count);
            left += slot.count;
            for place in [slot.left, left - 1] {
                assert_eq!(table.find(place), (code, *slot));
            }
        }
        assert_eq!(left, TOTAL);
        slots
    }

    #[test]
    fn tables_are_whole_whatever_the_numbers() {
        let half = TOTAL as f32 / 2.0;
        for numbers in [
            vec![1.0],
            vec![1.0, half, 3.0, half - 2000.0],
            vec![1.0; 300],
            vec![f32::NAN, 5.0, 9.0],
            vec![f32::INFINITY, 5.0],
            vec![f32::NEG_INFINITY, -3.0, 0.2],
            vec![TOTAL as f32, TOTAL as f32, 1.0],
        ] {
            whole(&numbers);
        }
    }

    #[test]
    fn the_likeliest_gets_the_rest() {
        let slots = whole(&[10.0, 1000.0, 20.0]);
        assert_eq!((slots[0].count, slots[2].count), (10, 20));
        assert_eq!(slots[1].count, TOTAL - 30);
        let uniform = whole(&[f32::INFINITY; 3]);
        assert_eq!(uniform[1].count, TOTAL / 3);
    }
}
