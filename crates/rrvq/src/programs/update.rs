//! How a configuration wants parameters updated: the optimiser, which parameters it treats as matrices, and their rates.

use crate::config::{Optimiser as Choice, TrainConfig};
use rrvq_tensor::Layout;
use rrvq_tensor::optim::{Optimiser, Rule};

/// Names of kernels end so; each has a gain and a bias beside it.
const KERNEL: &str = ".v";

impl TrainConfig {
    /// The optimiser of all parameters but those of [`TrainConfig::matrices`].
    pub fn update(&self) -> Optimiser {
        Optimiser {
            rule: match self.optimiser {
                Choice::AdaMax | Choice::Muon => Rule::AdaMax,
                Choice::Adam => Rule::Adam,
            },
            beta1: self.beta1 as f32,
            beta2: self.beta2 as f32,
            epsilon: self.epsilon as f32,
            clip: self.clip as f32,
            ema: self.ema as f32,
        }
    }

    /// Parameters whose steps are orthogonalised: the kernels, under "muon".
    pub fn matrices(&self, layout: &Layout) -> Vec<String> {
        match self.optimiser {
            Choice::AdaMax | Choice::Adam => Vec::new(),
            Choice::Muon => {
                let names = layout.entries().iter().map(|entry| &entry.name);
                names
                    .filter(|name| name.ends_with(KERNEL))
                    .cloned()
                    .collect()
            }
        }
    }

    /// Factors of the learning rate for each value of the flat vector; none where all are 1.
    pub fn rates(&self, layout: &Layout) -> Option<Vec<f32>> {
        let by_name = [
            (KERNEL, self.kernel_lr),
            (".codes.mean", self.code_lr),
            (".codes.logvar", self.logvar_lr),
        ];
        if by_name.iter().all(|(_, factor)| *factor == 1.0) {
            return None;
        }
        let mut rates = vec![1.0; layout.len()];
        for entry in layout.entries() {
            let of_entry = by_name.iter().find(|(end, _)| entry.name.ends_with(end));
            if let Some((_, factor)) = of_entry {
                rates[entry.offset..entry.offset + entry.len()].fill(*factor as f32);
            }
        }
        Some(rates)
    }
}
