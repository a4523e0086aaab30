//! Neighbouring codes as a context, on top of the prior.
//!
//! Given the layers above, the hierarchy takes the codes of a layer for independent. They are not: where a picture is smooth,
//! a position often has the code of its neighbour, more often than the prior says. So the code is first compared with up to
//! six neighbours of the same tile and layer that were coded before: a binary decision each, with an adaptive probability.
//! Its context is which neighbour it is, how many of the six have the same code, and the odds that the prior gives it; where a context
//! is new, its probability is the prior's. A code that is none of its neighbours' is coded by the prior without these.
//!
//! All of it is integers, and adapts to what is coded alone: a reader has the writer's probabilities.

use super::super::codes::Table;
use super::super::stack::{Slot, Stack, TOTAL};

/// Neighbours, columns and rows from the position: those that say most first.
const NEIGHBOURS: [(isize, isize); 6] = [(-1, 0), (0, -1), (-1, -1), (1, -1), (-2, 0), (0, -2)];

/// Classes of odds: twice for each halving or doubling.
const CLASSES: usize = 64;

/// The least probability of a decision, in 2⁻²⁴.
const LEAST: u32 = 1 << 11;

/// The prior's odds count as much as so many decisions, less one.
const FIRST: u32 = 8;

/// A probability follows about so many decisions.
const MEMORY: u32 = 250;

/// The probability of a yes, and how many decisions it has seen.
#[derive(Clone, Copy, Default)]
struct Estimate {
    /// In 2⁻²⁴.
    yes: u32,
    seen: u32,
}

/// Writing or reading, decision by decision; none where a file ends.
pub trait Coder {
    /// Whether the code is `candidate`, which has `yes` of all counts.
    fn is(&mut self, candidate: u32, yes: u32) -> Option<bool>;
    /// The code, by a table.
    fn code(&mut self, table: &Table<'_>) -> Option<u32>;
}

/// What was learnt in a layer of one group of tiles.
pub struct Context {
    /// Side of a tile's map.
    side: usize,
    /// By neighbour, number of neighbours with its code, and class.
    estimates: Vec<Estimate>,
    room: Vec<u32>,
}

impl Context {
    pub fn new(side: usize) -> Context {
        Context {
            side,
            estimates: vec![
                Estimate::default();
                NEIGHBOURS.len() * (NEIGHBOURS.len() + 1) * CLASSES
            ],
            room: Vec::new(),
        }
    }

    /// The next code of a tile, of which `before` are known, row by row.
    pub fn next(
        &mut self,
        table: &Table<'_>,
        before: &[u32],
        coder: &mut impl Coder,
    ) -> Option<u32> {
        let (x, y) = (before.len() % self.side, before.len() / self.side);
        let neighbours = NEIGHBOURS.map(|(dx, dy)| {
            let (x, y) = (x.checked_add_signed(dx)?, y.checked_add_signed(dy)?);
            (x < self.side).then(|| before[y * self.side + x])
        });
        let (mut tried, mut left) = ([0; NEIGHBOURS.len()], TOTAL);
        let mut count = 0;
        for (place, candidate) in neighbours.iter().enumerate() {
            let Some(candidate) = *candidate else {
                continue;
            };
            if tried[..count].contains(&candidate) {
                continue;
            }
            // All others were denied.
            if count + 1 == table.codes() {
                return Some(candidate);
            }
            let share = table.share(candidate as usize).count;
            let agree = neighbours
                .iter()
                .filter(|other| **other == Some(candidate))
                .count();
            let which = (place * (NEIGHBOURS.len() + 1) + agree) * CLASSES + class(share, left);
            let estimate = &mut self.estimates[which];
            if estimate.seen == 0 {
                estimate.yes = (((share as u64) << 24) / left as u64) as u32;
            }
            let yes = estimate.yes.clamp(LEAST, TOTAL - LEAST);
            let answer = coder.is(candidate, yes)?;
            estimate.learn(answer);
            if answer {
                return Some(candidate);
            }
            left -= share;
            tried[count] = candidate;
            count += 1;
        }
        match count {
            0 => coder.code(table),
            _ => coder.code(&table.without(&tried[..count], left, &mut self.room)),
        }
    }
}

impl Estimate {
    fn learn(&mut self, answer: bool) {
        // The first decision counts an eighth, later ones less and less.
        let share = (1 << 16) / (self.seen + FIRST);
        let target = if answer { TOTAL } else { 0 };
        let step = (target.abs_diff(self.yes) as u64 * share as u64) >> 16;
        match answer {
            true => self.yes += step as u32,
            false => self.yes -= step as u32,
        }
        self.seen = (self.seen + 1).min(MEMORY);
    }
}

/// The class of `share` in `all`: by odds, below even ones and above.
fn class(share: u32, all: u32) -> usize {
    let odds = |small: u32, large: u32| {
        // In sixteenths, at least one: small ≤ large.
        let ratio = ((large as u64) << 4) / small.max(1) as u64;
        let bits = ratio.ilog2();
        let half = (ratio >> (bits - 1)) & 1;
        ((2 * (bits - 4) + half as u32) as usize).min(CLASSES / 2 - 1)
    };
    match 2 * (share as u64) <= all as u64 {
        true => CLASSES / 2 - 1 - odds(share, all - share),
        false => CLASSES / 2 + odds(all - share, share),
    }
}

/// Reads one code.
pub struct Read<'a> {
    pub stack: &'a mut Stack,
    /// Whether the block's end is missing.
    pub cut: bool,
    /// Whether nothing more can be had.
    pub dry: bool,
}

impl Coder for Read<'_> {
    fn is(&mut self, _candidate: u32, yes: u32) -> Option<bool> {
        if self.dry {
            return None;
        }
        let answer = self.stack.peek() < yes;
        self.dry = self.stack.pop_bare(slot(answer, yes), self.cut).is_err();
        Some(answer)
    }

    fn code(&mut self, table: &Table<'_>) -> Option<u32> {
        if self.dry {
            return None;
        }
        let (code, slot) = table.find(self.stack.peek());
        self.dry = self.stack.pop_bare(slot, self.cut).is_err();
        Some(code as u32)
    }
}

/// Writes one code.
pub struct Write<'a> {
    pub code: u32,
    pub slots: &'a mut Vec<Slot>,
}

impl Coder for Write<'_> {
    fn is(&mut self, candidate: u32, yes: u32) -> Option<bool> {
        let answer = self.code == candidate;
        self.slots.push(slot(answer, yes));
        Some(answer)
    }

    fn code(&mut self, table: &Table<'_>) -> Option<u32> {
        self.slots.push(table.slot(self.code as usize));
        Some(self.code)
    }
}

/// The slot of a decision: yes comes first.
fn slot(answer: bool, yes: u32) -> Slot {
    match answer {
        true => Slot {
            left: 0,
            count: yes,
        },
        false => Slot {
            left: yes,
            count: TOTAL - yes,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(seed: &mut u64) -> u32 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 40) as u32
    }

    /// Slots of a map of codes under one table.
    fn written(side: usize, numbers: &[f32], codes: &[u32]) -> Vec<Slot> {
        let (mut context, mut slots) = (Context::new(side), Vec::new());
        let mut room = vec![0; numbers.len()];
        for at in 0..codes.len() {
            let mut coder = Write {
                code: codes[at],
                slots: &mut slots,
            };
            let table = Table::new(numbers, &mut room);
            let tile = at - at % (side * side);
            assert_eq!(
                context.next(&table, &codes[tile..at], &mut coder),
                Some(codes[at])
            );
        }
        slots
    }

    #[test]
    fn every_map_comes_back() {
        let mut seed = 5;
        for (side, count) in [(1, 1), (1, 7), (3, 1), (2, 2), (5, 3), (8, 4), (8, 300)] {
            for smooth in [1, 3, 1000] {
                let numbers: Vec<f32> = (0..count)
                    .map(|_| chance(&mut seed) as f32 / count as f32)
                    .collect();
                let mut codes = vec![0; 3 * side * side];
                for at in 1..codes.len() {
                    let fresh = chance(&mut seed).is_multiple_of(smooth);
                    codes[at] = if fresh {
                        chance(&mut seed) % count as u32
                    } else {
                        codes[at - 1]
                    };
                }
                let mut stack = Stack::bare();
                let slots = written(side, &numbers, &codes);
                slots.iter().rev().for_each(|slot| stack.push(*slot));
                let (mut context, mut room) = (Context::new(side), vec![0; count]);
                let mut back: Vec<u32> = Vec::new();
                for at in 0..codes.len() {
                    let mut coder = Read {
                        stack: &mut stack,
                        cut: false,
                        dry: false,
                    };
                    let table = Table::new(&numbers, &mut room);
                    let tile = at - at % (side * side);
                    back.push(context.next(&table, &back[tile..], &mut coder).unwrap());
                }
                assert_eq!(back, codes, "{side} {count} {smooth}");
                assert!(stack.is_bare());
            }
        }
    }

    /// A map of one code costs next to nothing, whatever the prior says; one of chance costs hardly more than without.
    #[test]
    fn what_repeats_is_cheap_and_what_does_not_costs_little() {
        let (side, count) = (32, 64);
        let numbers = vec![(TOTAL / 64) as f32; count];
        let bits = |codes: &[u32]| {
            let slots = written(side, &numbers, codes).into_iter();
            slots
                .map(|slot| -(slot.count as f64 / TOTAL as f64).log2())
                .sum::<f64>()
        };
        let positions = side * side;
        let same = bits(&vec![3; positions]);
        assert!(same < 0.2 * positions as f64, "{same}");
        let mut seed = 9;
        let any: Vec<u32> = (0..positions)
            .map(|_| chance(&mut seed) % count as u32)
            .collect();
        let any = bits(&any) / (6.0 * positions as f64);
        assert!((1.0..1.01).contains(&any), "{any}");
    }

    #[test]
    fn classes_are_in_order_and_tables_without_codes_are_whole() {
        let classes: Vec<usize> = (1..TOTAL)
            .step_by(977)
            .map(|share| class(share, TOTAL))
            .collect();
        assert!(classes.is_sorted() && classes.iter().all(|class| *class < CLASSES));
        assert!((class(1, TOTAL) < 10) && class(TOTAL - 1, TOTAL) > CLASSES - 10);
        let (mut counts, mut room) = (vec![0; 5], Vec::new());
        let table = Table::new(&[9.0, 700.0, 1.0, 80_000.0, 3.0], &mut counts);
        let left = TOTAL - table.share(3).count - table.share(0).count;
        let rest = table.without(&[3, 0], left, &mut room);
        let shares: Vec<u32> = (0..5).map(|code| rest.share(code).count).collect();
        assert_eq!(shares.iter().sum::<u32>(), TOTAL);
        assert!(shares[0] == 0 && shares[3] == 0 && shares[1] > shares[4] && shares[4] > shares[2]);
        assert_eq!(rest.find(0).0, 1);
    }
}
