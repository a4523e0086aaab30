//! A stack of bits with an asymmetric numeral system on it: symbols go on with [`Stack::push`], come off in reverse order
//! with [`Stack::pop`], and each costs what its probability says, fractions of bits included.
//!
//! Bits back needs exactly this shape: popping is drawing a sample, and pushing the sample again restores every bit. So
//! both are exact inverses of each other, and a pop that would go below the bottom changes nothing and says so.
//!
//! A file of a few hundred bytes cannot spare the 32 bits an empty stack's state has: a *bare* one starts from nothing, and
//! its last symbols lie in a state that shrinks to 0. It is written without leading zeros, what comes off first is written
//! first, and so the first part of it gives the first symbols, even where the rest never arrived.
//!
//! The state is a number in [2³², 2⁶⁴); what does not fit goes to a list of 32-bit words. Written here rather than taken
//! from a library: it is short, the format depends on each of its lines, and a dry stack must be an answer, not a guess.

/// Probabilities are counts out of 2²⁴.
pub const PRECISION: u32 = 24;
pub const TOTAL: u32 = 1 << PRECISION;

/// The state of an empty stack, and the least a state can be.
const EMPTY: u64 = 1 << 32;

/// A symbol's share of the counts: `count` of them, from `left` on. Counts are never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub left: u32,
    pub count: u32,
}

/// A pop found too few bits; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    state: u64,
    words: Vec<u32>,
}

impl Default for Stack {
    fn default() -> Self {
        Stack {
            state: EMPTY,
            words: Vec::new(),
        }
    }
}

impl Stack {
    #[inline]
    pub fn push(&mut self, slot: Slot) {
        let count = slot.count as u64;
        debug_assert!(count > 0 && slot.left as u64 + count <= TOTAL as u64);
        // A certain symbol says nothing; without this, the bound below would not fit 64 bits.
        if slot.count == TOTAL {
            return;
        }
        if self.state >= count << (64 - PRECISION) {
            self.words.push(self.state as u32);
            self.state >>= 32;
        }
        self.state = ((self.state / count) << PRECISION) + self.state % count + slot.left as u64;
    }

    /// Where the symbol on top lies among the counts.
    #[inline]
    pub fn peek(&self) -> u32 {
        self.state as u32 & (TOTAL - 1)
    }

    /// Takes the symbol on top, whose slot holds [`Stack::peek`].
    #[inline]
    pub fn pop(&mut self, slot: Slot) -> Result<(), Dry> {
        if slot.count == TOTAL {
            return Ok(());
        }
        let within = (self.peek() - slot.left) as u64;
        let state = slot.count as u64 * (self.state >> PRECISION) + within;
        if state >= EMPTY {
            self.state = state;
            return Ok(());
        }
        let word = self.words.pop().ok_or(Dry)?;
        self.state = state << 32 | word as u64;
        Ok(())
    }

    /// One that holds so many words of chance, to draw with.
    pub fn random(words: usize, seed: u64) -> Stack {
        let mut state = seed;
        // A linear congruential generator; its upper half is chance enough to draw samples with.
        let mut word = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        Stack {
            state: EMPTY,
            words: (0..words).map(&mut word).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Stack::default()
    }

    /// Bytes of [`Stack::to_bytes`].
    pub fn len(&self) -> usize {
        8 + 4 * self.words.len()
    }

    /// The state, then the words from the top down; all little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.state.to_le_bytes().to_vec();
        bytes.extend(self.words.iter().rev().flat_map(|w| w.to_le_bytes()));
        bytes
    }

    /// What [`Stack::to_bytes`] wrote, if it is that.
    pub fn from_bytes(bytes: &[u8]) -> Option<Stack> {
        let (state, words) = bytes.split_first_chunk::<8>()?;
        let state = u64::from_le_bytes(*state);
        let (words, rest) = words.as_chunks::<4>();
        let words = words.iter().rev().map(|w| u32::from_le_bytes(*w)).collect();
        (state >= EMPTY && rest.is_empty()).then_some(Stack { state, words })
    }
}

/// A bare stack: nothing but its symbols.
impl Stack {
    pub fn bare() -> Stack {
        Stack {
            state: 0,
            words: Vec::new(),
        }
    }

    pub fn is_bare(&self) -> bool {
        *self == Stack::bare()
    }

    /// Takes the symbol on top of a bare stack. Where `more` words should follow and did not come, the symbol is still
    /// right, and the answer says that it is the last one.
    #[inline]
    pub fn pop_bare(&mut self, slot: Slot, more: bool) -> Result<(), Dry> {
        match self.words.is_empty() && !more && slot.count != TOTAL {
            true => {
                let within = (self.peek() - slot.left) as u64;
                self.state = slot.count as u64 * (self.state >> PRECISION) + within;
                Ok(())
            }
            false => self.pop(slot),
        }
    }

    /// The state without leading zeros, then the words from the top down; all little-endian. Where there are words, the
    /// state has 5 to 8 bytes, so the length alone tells the two apart.
    pub fn to_bare_bytes(&self) -> Vec<u8> {
        let zeros = self.state.leading_zeros() as usize / 8;
        let mut bytes = self.state.to_le_bytes()[..8 - zeros].to_vec();
        bytes.extend(self.words.iter().rev().flat_map(|w| w.to_le_bytes()));
        bytes
    }

    /// What [`Stack::to_bare_bytes`] wrote, and whether words are missing; `bytes` may be the first of `len` only. None if
    /// it cannot be that, or if not even the state is there.
    pub fn from_bare_bytes(bytes: &[u8], len: usize) -> Option<(Stack, bool)> {
        let head = match len {
            0..=8 => len,
            _ => 5 + (len - 5) % 4,
        };
        let (head, words) = bytes.split_at_checked(head)?;
        let mut state = [0; 8];
        state[..head.len()].copy_from_slice(head);
        let state = u64::from_le_bytes(state);
        let short = head.last() == Some(&0) || (len > 8 && state < EMPTY);
        let words = words.as_chunks::<4>().0;
        let more = bytes.len() < len;
        let words = words.iter().rev().map(|w| u32::from_le_bytes(*w)).collect();
        (!short).then_some((Stack { state, words }, more))
    }
}

/// −log₂ of a slot's probability, in 65,536ths of a bit. Integers only, so that choices made by size are the same
/// everywhere; low by less than 0.006 bits.
pub fn cost(slot: Slot) -> i64 {
    const STEPS: usize = 256;
    const LOGS: [u16; STEPS] = logs();
    // count = 2^e · m with m in [1, 2).
    let exponent = 31 - slot.count.leading_zeros();
    let mantissa = (slot.count as u64) << (32 - exponent);
    let step = (mantissa >> 24) as usize % STEPS;
    ((PRECISION as i64 - exponent as i64) << 16) - LOGS[step] as i64
}

/// log₂(1 + (i + ½) / 256) in 65,536ths, bit by bit: squaring a number doubles its logarithm.
const fn logs() -> [u16; 256] {
    let mut out = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut x: u64 = (512 + 2 * i as u64 + 1) << 22;
        let (mut bit, mut log) = (0, 0u16);
        while bit < 16 {
            x = (x * x) >> 31;
            log <<= 1;
            if x >= 1 << 32 {
                x >>= 1;
                log |= 1;
            }
            bit += 1;
        }
        out[i] = log;
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same every time.
    fn numbers(seed: u64) -> impl FnMut() -> u32 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        }
    }

    fn slots(count: usize) -> Vec<Slot> {
        let mut number = numbers(count as u64);
        let slot = |_| {
            let left = number() % TOTAL;
            let room = TOTAL - left;
            let count = match number() % 4 {
                0 => 1,
                1 => room,
                _ => number() % room + 1,
            };
            Slot { left, count }
        };
        (0..count).map(slot).collect()
    }

    #[test]
    fn what_goes_on_comes_off_in_reverse_and_leaves_nothing() {
        let slots = slots(10_000);
        let mut stack = Stack::default();
        slots.iter().for_each(|slot| stack.push(*slot));
        let mut stack = Stack::from_bytes(&stack.to_bytes()).unwrap();
        for slot in slots.iter().rev() {
            let top = stack.peek();
            assert!(slot.count == TOTAL || (slot.left..slot.left + slot.count).contains(&top));
            stack.pop(*slot).unwrap();
        }
        assert!(stack.is_empty());
        assert_eq!(stack.len(), 8);
    }

    #[test]
    fn popping_then_pushing_restores_every_bit() {
        let mut stack = Stack::default();
        slots(1000).iter().for_each(|slot| stack.push(*slot));
        let before = stack.clone();
        let mut taken = Vec::new();
        // Halves, then thirds, of whatever is there: slots that the state chooses, not we.
        for width in [TOTAL / 2, TOTAL / 3, 17].repeat(50) {
            let left = stack.peek() / width * width;
            let count = width.min(TOTAL - left);
            let slot = Slot { left, count };
            stack.pop(slot).unwrap();
            taken.push(slot);
        }
        assert_ne!(stack, before);
        taken.iter().rev().for_each(|slot| stack.push(*slot));
        assert_eq!(stack, before);
    }

    #[test]
    fn a_dry_stack_says_so_and_stays_as_it_was() {
        let mut stack = Stack::default();
        let half = Slot {
            left: 0,
            count: TOTAL / 2,
        };
        assert_eq!(stack.pop(half), Err(Dry));
        assert!(stack.is_empty());
        let certain = Slot {
            left: 0,
            count: TOTAL,
        };
        stack.push(certain);
        assert!(stack.is_empty() && stack.pop(certain) == Ok(()));
    }

    #[test]
    fn sizes_are_what_the_probabilities_say() {
        let slots = slots(20_000);
        let mut stack = Stack::default();
        slots.iter().for_each(|slot| stack.push(*slot));
        let exact: f64 = slots
            .iter()
            .map(|slot| 24.0 - (slot.count as f64).log2())
            .sum();
        let told: f64 = slots.iter().map(|s| cost(*s) as f64 / 65536.0).sum();
        let bits = stack.len() as f64 * 8.0;
        assert!(
            bits > exact && bits < exact * 1.0001 + 64.0,
            "{bits} {exact}"
        );
        assert!((told - exact).abs() < 20_000.0 * 0.003, "{told} {exact}");
        let one = |count| cost(Slot { left: 0, count });
        assert!(one(1) >> 16 == 23 || one(1) >> 16 == 24);
        assert!(one(TOTAL / 2) <= 1 << 16 && one(TOTAL / 2) > (1 << 16) - 400);
    }

    #[test]
    fn bare_stacks_end_in_nothing_and_any_part_gives_the_first_symbols() {
        for count in (0..40).chain([1000]) {
            let slots = slots(count);
            let mut stack = Stack::bare();
            slots.iter().rev().for_each(|slot| stack.push(*slot));
            let bytes = stack.to_bare_bytes();
            let mut last = 0;
            for len in 0..=bytes.len() {
                let Some((mut stack, more)) = Stack::from_bare_bytes(&bytes[..len], bytes.len())
                else {
                    assert!(len < 8);
                    continue;
                };
                assert_eq!(more, len < bytes.len());
                let mut had = 0;
                for slot in &slots {
                    let top = stack.peek();
                    let right = slot.left..slot.left + slot.count;
                    assert!(slot.count == TOTAL || right.contains(&top));
                    had += 1;
                    if stack.pop_bare(*slot, more).is_err() {
                        break;
                    }
                }
                assert!(had >= last);
                last = had;
                assert_eq!(stack.is_bare(), !more || count == 0 || stack.state == 0);
            }
            assert_eq!(last, count);
            let bits: f64 = slots.iter().map(|s| 24.0 - (s.count as f64).log2()).sum();
            assert!(bytes.len() as f64 <= bits / 8.0 + 4.0, "{count}");
        }
        for (bytes, len) in [(&[1, 0][..], 2), (&[0; 9], 9), (&[7; 4], 5), (&[7], 30)] {
            assert_eq!(Stack::from_bare_bytes(bytes, len), None);
        }
    }

    #[test]
    fn bytes_that_are_no_stack_are_refused() {
        for bytes in [&[][..], &[0; 8], &[255; 7], &[255; 9], &[255; 11]] {
            assert_eq!(Stack::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
