//! How many steps a run makes that has minutes instead of a number of steps.

/// A step is remembered for this share of the whole time.
const REMEMBERED: f64 = 0.05;

/// Seconds of a step over the last part of a run.
///
/// The first steps of a process are no measure: a GPU compiles, tries its kernels and warms up in them. They count until there are
/// others; a schedule that believed them would lower the rate at once.
#[derive(Debug, Default)]
pub struct Pace {
    /// Steps and their seconds, those that are further back counting less.
    steps: f64,
    seconds: f64,
    /// Whether there have been others than the first ones.
    warm: bool,
}

impl Pace {
    /// Takes note of steps made one after another, in a run of `budget` seconds.
    pub fn made(&mut self, steps: usize, seconds: f64, budget: f64) {
        let kept = match self.steps {
            0.0 => 0.0,
            _ if !self.warm => {
                self.warm = true;
                0.0
            }
            _ => (-seconds / (REMEMBERED * budget)).exp(),
        };
        self.steps = self.steps * kept + steps as f64;
        self.seconds = self.seconds * kept + seconds;
    }

    /// Steps that so many seconds have room for, half a step too many or too few.
    pub fn room(&self, seconds: f64) -> usize {
        let room = (seconds.max(0.0) * self.steps / self.seconds.max(1e-9) + 0.5) as usize;
        // A first step that took most of the time says nothing of the next one.
        let cold = !self.warm && self.steps > 0.0 && seconds > 0.0;
        room.max(usize::from(cold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps in all as a run of 1,000 seconds sees them after each burst of (steps, seconds).
    fn planned(bursts: impl IntoIterator<Item = (usize, f64)>) -> Vec<usize> {
        let (mut pace, mut done, mut spent) = (Pace::default(), 0, 0.0);
        let all = bursts.into_iter().map(|(steps, seconds)| {
            pace.made(steps, seconds, 1000.0);
            done += steps;
            spent += seconds;
            done + pace.room(1000.0 - spent)
        });
        all.collect()
    }

    #[test]
    fn a_slow_first_step_is_forgotten_with_the_next_ones() {
        let all = planned([(1, 20.0), (10, 1.0), (10, 1.0), (10, 1.0)]);
        assert_eq!(all, [50, 9801, 9801, 9801]);
        // Nor does it end a run that it took most of.
        assert_eq!(planned([(1, 990.0), (1, 0.1)]), [2, 101]);
    }

    #[test]
    fn a_pace_that_changes_is_followed_within_a_part_of_the_time() {
        // Ten steps a second for 200 seconds, then twenty: 2,000 and 16,000 in all.
        let bursts = (0..1000).map(|second| (if second < 200 { 10 } else { 20 }, 1.0));
        let all = planned(bursts);
        assert_eq!(all[199], 10_000);
        assert!((17_000..18_000).contains(&all[350]), "{}", all[350]);
        assert!((17_900..18_100).contains(&all[600]), "{}", all[600]);
        assert_eq!(all[999], 18_000);
    }

    #[test]
    fn one_slow_burst_does_not_change_the_plan_much() {
        let bursts = (0..300).map(|i| (10, if i == 200 { 5.0 } else { 1.0 }));
        let all = planned(bursts);
        assert!(all[199] == 10_000 && all[200] > 9_200, "{}", all[200]);
        assert!(all[299] > 9_850, "{}", all[299]);
    }

    #[test]
    fn no_time_is_no_room() {
        let mut pace = Pace::default();
        assert_eq!(pace.room(5.0), 0);
        pace.made(3, 1.0, 10.0);
        assert_eq!((pace.room(-1.0), pace.room(2.0)), (0, 6));
    }
}
