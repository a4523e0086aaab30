//! Which parameters belong to single codes: means, variances, and the outputs of a direct prior.
//!
//! They are not listed by name: they are those whose shape changes with the number of codes.

use super::Model;
use crate::config::Codes;
use crate::nn::layer_of;
use std::ops::Range;

/// A parameter of which every code of a layer has a share.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Its place in the list of parameters.
    pub entry: usize,
    /// Layers count from 0 at the bottom.
    pub layer: usize,
    /// Codes of the layer.
    pub codes: usize,
    /// Values of a code that lie side by side; shares of all codes lie one after another, once or several times.
    pub inner: usize,
}

impl Shared {
    /// Where the values of code `k` lie among `len` values of the parameter.
    pub fn of_code(&self, k: usize, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (inner, all) = (self.inner, self.codes * self.inner);
        (0..len / all).map(move |block| {
            let first = block * all + k * inner;
            first..first + inner
        })
    }
}

impl Model {
    /// All such parameters, in the order of the layout.
    pub fn shared_by_codes(&self) -> Vec<Shared> {
        let mut more = self.config.clone();
        let codes = |layer| self.config.codes.at(layer);
        more.codes = Codes::Each((0..more.layers()).map(|l| codes(l) + 1).collect());
        let more = Model::new(&more);
        let pairs = self.layout.entries().iter().zip(more.layout.entries());
        let changed = pairs.enumerate().filter_map(|(entry, (few, many))| {
            let axis = (0..few.shape.len()).find(|&i| few.shape[i] != many.shape[i])?;
            let layer = layer_of(&few.name).expect("only a layer has codes");
            Some(Shared {
                entry,
                layer,
                codes: codes(layer),
                inner: few.shape[axis + 1..].iter().product(),
            })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn model(changes: &[&str]) -> Model {
        let mut config = Config::preset("tiny-swatches").unwrap();
        changes.iter().for_each(|c| config.set(c).unwrap());
        Model::new(&config.model)
    }

    fn found(model: &Model) -> Vec<(String, usize, usize)> {
        let name = |s: &Shared| model.layout.entries()[s.entry].name.clone();
        let shared = model.shared_by_codes();
        shared.iter().map(|s| (name(s), s.layer, s.codes)).collect()
    }

    #[test]
    fn means_and_variances_are_the_codes_own() {
        let model = model(&["model.codes=[16, 7]"]);
        let want = [
            ("layer.2.codes.mean", 1, 7),
            ("layer.2.codes.logvar", 1, 7),
            ("layer.1.codes.mean", 0, 16),
            ("layer.1.codes.logvar", 0, 16),
        ];
        let mut have = found(&model);
        let mut want = want.map(|(n, l, k)| (n.to_string(), l, k));
        have.sort();
        want.sort();
        assert_eq!(have, want);
    }

    /// A fully connected direct prior gives the logits of all positions in one row: a code has a share at each.
    #[test]
    fn a_code_may_have_several_shares_of_a_parameter() {
        let model = model(&["model.prior=direct", "model.backbone=mlp"]);
        let shared = model.shared_by_codes();
        let several = shared.iter().filter(|s| {
            let entry = &model.layout.entries()[s.entry];
            entry.name.contains("pstrap") && s.of_code(0, entry.len()).count() > 1
        });
        assert!(several.count() > 0);
        for s in &shared {
            let entry = &model.layout.entries()[s.entry];
            let mut seen = vec![0; entry.len()];
            for k in 0..s.codes {
                for range in s.of_code(k, entry.len()) {
                    seen[range].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{}", entry.name);
        }
    }
}
