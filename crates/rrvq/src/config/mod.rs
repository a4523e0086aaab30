//! One configuration for model, data and training.
//!
//! A [`Config`] always holds a value for every key: it starts from the defaults or a preset, a file changes some keys,
//! `set` changes single ones. Presets are TOML files built into the program, in the same form as a user's own.
//! A key that does not exist, or a value of the wrong kind, is refused with the place it was found at and the key that
//! was probably meant. Whether the values make sense together is a second question, asked by [`Config::validate`] once
//! all changes are in.
//!
//! ```
//! let mut config = rrvq::config::Config::preset("tiny-swatches")?;
//! config.set("train.lr=1e-3")?;
//! config.validate()?;
//! assert_eq!(config.train.lr, 1e-3);
//! # Ok::<(), rrvq::Error>(())
//! ```

mod keys;
mod sections;
mod values;

pub use keys::Key;
pub use sections::*;
pub use values::*;

use crate::error::{Error, Result};
use keys::{Node, Problem, section};
use std::path::Path;
use toml::de::DeTable;

section! {
    /// Everything that decides a run.
    ///
    /// ```
    /// use rrvq::Config;
    ///
    /// let mut config = Config::preset("l5-cifar10")?;
    /// config.set("model.channels=96")?;
    /// config.validate()?;
    /// assert_eq!(config.model.channels, 96);
    /// assert_eq!(Config::read(&config.to_toml()?, "a copy")?, config);
    /// # Ok::<(), rrvq::Error>(())
    /// ```
    pub struct Config {
        /// What the model is.
        model: ModelConfig = ModelConfig::default(),
        /// What it is trained on.
        data: DataConfig = DataConfig::default(),
        /// How it is trained.
        train: TrainConfig = TrainConfig::default(),
        /// The prior over its codes, trained after it.
        prior: PriorConfig = PriorConfig::default(),
    }
}

macro_rules! presets {
    ($($group:literal: [$($name:literal),* $(,)?]),* $(,)?) => {
        &[$(($group, &[$(($name, include_str!(concat!("../../presets/", $name, ".toml")))),*])),*]
    };
}

/// Groups of presets; each preset's name and its text.
type Groups = &'static [(&'static str, &'static [(&'static str, &'static str)])];

const GROUPS: Groups = presets![
    "Colour swatches, made up: seconds to a minute on a CPU": [
        "tiny-swatches",
        "swatches-l5",
        "swatches-rvq",
        "mlp-swatches",
    ],
    "CIFAR-10, small: minutes on a two-core CPU": [
        "small-best-cifar10",
        "small-l5-cifar10",
        "small-rvq-cifar10",
        "small-vq-cifar10",
        "small-fsq-cifar10",
        "small-spatial-cifar10",
        "small-vimco-cifar10",
        "small-foust1-cifar10",
        "small-foust4-cifar10",
        "small-ablate-direct-one-cifar10",
        "small-ablate-direct-learnt-cifar10",
        "small-ablate-embed-one-cifar10",
        "small-ablate-embed-learnt-cifar10",
    ],
    "Tiles of natural images, for the codec": [
        "small-tiles",
        "tiles",
    ],
    "CIFAR-10: for a GPU": [
        "best-cifar10",
        "compact-cifar10",
        "l32-cifar10",
        "l16-cifar10",
        "l5-cifar10",
        "rvq-cifar10",
        "vq-cifar10",
        "vq-ema-cifar10",
        "spatial1-cifar10",
        "spatial32-cifar10",
        "vimco-cifar10",
        "foust1-cifar10",
        "foust4-cifar10",
        "ablate-direct-one-cifar10",
        "ablate-direct-learnt-cifar10",
        "ablate-embed-one-cifar10",
        "ablate-embed-learnt-cifar10",
    ],
    "SVHN: for a GPU": [
        "best-svhn",
        "l32-svhn",
        "l5-svhn",
        "rvq-svhn",
        "spatial32-svhn",
        "ablate-direct-one-svhn",
        "ablate-direct-learnt-svhn",
        "ablate-embed-one-svhn",
        "ablate-embed-learnt-svhn",
    ],
    "The paper's own numbers and nothing of ours: for a GPU and a long time": [
        "paper-l32-cifar10",
        "paper-l32-uniform-cifar10",
        "paper-l32-svhn",
        "paper-l32-celeba",
        "paper-l5-cifar10",
        "paper-l5-svhn",
        "paper-l5-celeba",
        "paper-rvq-cifar10",
        "paper-rvq-svhn",
        "paper-rvq-celeba",
        "paper-spatial32-cifar10",
        "paper-spatial32-svhn",
        "paper-spatial32-celeba",
        "paper-ablate-direct-one-cifar10",
        "paper-ablate-direct-learnt-cifar10",
        "paper-ablate-embed-one-cifar10",
        "paper-ablate-direct-one-svhn",
        "paper-ablate-direct-learnt-svhn",
        "paper-ablate-embed-one-svhn",
        "paper-fig1-rvq-swatches",
        "paper-fig1-rvq-svhn",
        "paper-fig1-rvq-cifar10",
        "paper-fig1-spatial-swatches",
        "paper-fig1-spatial-svhn",
        "paper-fig1-spatial-cifar10",
    ],
    "CelebA, 64×64: for a GPU": [
        "best-celeba",
        "compact-celeba",
        "l32-celeba",
        "l5-celeba",
        "rvq-celeba",
        "spatial32-celeba",
        "rd-l5-celeba",
        "rd-celeba",
    ],
    "CelebA, 64×64, small: minutes on a two-core CPU": [
        "small-rd-celeba",
    ],
    "Photographs of any size: an hour on a two-core CPU": [
        "rd-photos",
    ],
];

fn all_presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().flat_map(|(_, group)| group.iter().copied())
}

/// The first line of a preset: what it is for.
fn about(text: &'static str) -> &'static str {
    let first = text.lines().next().unwrap_or("");
    first.trim_start_matches('#').trim()
}

/// The presets: name, and one line on what it is for.
pub fn presets() -> Vec<(&'static str, &'static str)> {
    all_presets()
        .map(|(name, text)| (name, about(text)))
        .collect()
}

/// The same in groups: what those of a group share, and its presets.
pub fn preset_groups() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let group = |(title, group): &(&'static str, &[(&'static str, &'static str)])| {
        let of = group.iter().map(|(name, text)| (*name, about(text)));
        (*title, of.collect())
    };
    GROUPS.iter().map(group).collect()
}

impl Config {
    /// The preset called `name`.
    pub fn preset(name: &str) -> Result<Config> {
        let Some((_, text)) = all_presets().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = all_presets().map(|(known, _)| known).collect();
            let meant = match keys::nearest(name, names.iter().copied()) {
                Some(meant) => format!("; did you mean {meant}?"),
                None => String::new(),
            };
            return Err(Error::new(format!(
                "there is no preset {name:?}{meant} (`rrvq presets` lists all {})",
                names.len()
            )));
        };
        Config::read(text, &format!("preset {name}"))
    }

    /// The configuration a text gives: its own keys, over those of the preset it names as its `base`, over the defaults.
    pub fn read(text: &str, source: &str) -> Result<Config> {
        let mut table = parse(text, source)?;
        let mut config = match table.remove("base") {
            None => Config::default(),
            Some(toml::Value::String(name)) => {
                Config::preset(&name).map_err(|e| Error::new(format!("{source}: base: {e}")))?
            }
            Some(other) => {
                let found = format!("{other}");
                return Err(Error::new(format!(
                    "{source}: base: expected the name of a preset, as text, found {found}"
                )));
            }
        };
        config.merge(table, text, source)?;
        Ok(config)
    }

    /// The configuration in the TOML file at `path`. Keys it does not name keep their defaults, or what they are in
    /// the preset that the file's first key may name: `base = "l5-cifar10"`.
    pub fn load(path: impl AsRef<Path>) -> Result<Config> {
        let path = path.as_ref();
        let bytes = crate::limits::read_file(path)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::new(format!(
                "{} is not a text file; expected a configuration in TOML",
                path.display()
            ))
        })?;
        Config::read(&text, &path.display().to_string())
    }

    /// Changes one key: `section.key=value`, the value as in TOML, quotes around text not needed.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let source = assignment;
        let Some((path, text)) = assignment.split_once('=') else {
            return Err(Error::new(format!(
                "{source}: expected key=value, such as train.lr=1e-3"
            )));
        };
        let (path, text) = (path.trim(), text.trim());
        let value = format!("value = {text}")
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut table| table.remove("value").filter(|_| table.is_empty()))
            .unwrap_or_else(|| toml::Value::String(text.into()));
        let steps: Vec<&str> = path.split('.').map(str::trim).collect();
        // A change is made whole or not at all.
        let mut changed = self.clone();
        changed
            .put("", &steps, &value)
            .map_err(|problem| tell(source, problem))?;
        *self = changed;
        Ok(())
    }

    /// A complete TOML file that loads again to an equal configuration.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self)
            .map_err(|error| Error::new(format!("cannot write the configuration as TOML: {error}")))
    }

    /// Every key with its documentation and its value here.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        self.list("", "", &mut keys);
        keys
    }

    /// Changes every key of `table`, which `text` was parsed to; `source` is what to call it in messages.
    fn merge(&mut self, table: toml::Table, text: &str, source: &str) -> Result<()> {
        self.put("", &[], &toml::Value::Table(table))
            .map_err(|problem| {
                let (Problem::Unknown { path } | Problem::Misfit { path, .. }) = &problem;
                match line_of_key(text, path) {
                    Some(line) => tell(&format!("{source}, line {line}"), problem),
                    None => tell(source, problem),
                }
            })
    }
}

fn parse(text: &str, source: &str) -> Result<toml::Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map(|span| line_of(text, span.start))
            .unwrap_or(1);
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        Error::new(format!(
            "{source}, line {line}: this is not TOML: {message}"
        ))
    })
}

/// The sentence for a problem found in `source`.
fn tell(source: &str, problem: Problem) -> Error {
    match problem {
        Problem::Unknown { path } => {
            let known = Config::default().keys();
            let section = path
                .split_once('.')
                .map(|(section, _)| format!("{section}."));
            let hint = match keys::nearest(&path, known.iter().map(|key| key.path.as_str())) {
                Some(meant) => format!("did you mean {meant}?"),
                None => {
                    let within = |key: &&Key| {
                        section
                            .as_ref()
                            .is_some_and(|section| key.path.starts_with(section))
                    };
                    let near: Vec<&str> = known
                        .iter()
                        .filter(within)
                        .map(|key| key.path.as_str())
                        .collect();
                    match near.is_empty() {
                        true => "the sections are model, data, train and prior".into(),
                        false => format!("the keys there are {}", near.join(", ")),
                    }
                }
            };
            Error::new(format!("{source}: there is no key {path}; {hint}"))
        }
        Problem::Misfit {
            path,
            expected,
            found,
        } => Error::new(format!(
            "{source}: {path}: expected {expected}, found {found}"
        )),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(offset)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// The line on which the dotted `path` stands, or the innermost part of it that can be found.
fn line_of_key(text: &str, path: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut line = None;
    for name in path.split('.') {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else {
            break;
        };
        line = Some(line_of(text, key.span().start));
        match value.get_ref().as_table() {
            Some(inner) => table = inner,
            None => break,
        }
    }
    line
}

#[cfg(test)]
mod preset_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        Config::read(text, "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn written_configurations_load_again_equal() {
        let mut config = Config::default();
        for change in [
            "model.codes=[8, 7, 6, 5, 4]",
            "model.temperature.start=1.25",
            "model.sigma=isotropic",
            "data.dir=some/where \"odd\"",
            "train.epsilon=1e-9",
            "train.seed=9007199254740993",
        ] {
            config.set(change).unwrap();
        }
        for config in [
            config,
            Config::default(),
            Config::preset("swatches-rvq").unwrap(),
        ] {
            let text = config.to_toml().unwrap();
            assert_eq!(Config::read(&text, "written").unwrap(), config);
            assert_eq!(
                toml::from_str::<Config>(&text).unwrap(),
                config,
                "and by serde alone"
            );
        }
    }

    #[test]
    fn a_base_is_a_preset_that_the_rest_changes() {
        let text = "base = \"l5-svhn\"\n\n[train]\nsteps = 7\n";
        let config = Config::read(text, "my.toml").unwrap();
        let mut expected = Config::preset("l5-svhn").unwrap();
        expected.train.steps = 7;
        assert_eq!(config, expected);
        assert!(
            said("base = \"l5-shvn\"\n").starts_with(
                "my.toml: base: there is no preset \"l5-shvn\"; did you mean l5-svhn?"
            )
        );
        assert!(said("base = 5\n").contains("expected the name of a preset"));
        let wrong = "base = \"l5-svhn\"\n[train]\nstep = 7\n";
        assert!(said(wrong).starts_with("my.toml, line 3: there is no key train.step"));
    }

    #[test]
    fn unknown_keys_name_the_file_the_line_and_the_nearest_key() {
        assert_eq!(
            said("[model]\nchannels = 8\n\n[train]\nlearning_rate = 1\nbatc = 3\n"),
            "my.toml, line 6: there is no key train.batc; did you mean train.batch?",
        );
        assert_eq!(
            said("[model]\nbatch = 3\n"),
            "my.toml, line 2: there is no key model.batch; did you mean train.batch?"
        );
        assert!(said("[modle]\nsize = 3\n").contains("line 1: there is no key modle"));
    }

    #[test]
    fn wrong_values_name_what_was_expected() {
        assert_eq!(
            said("[train]\nlr = \"abc\"\n"),
            "my.toml, line 2: train.lr: expected a number, found the text \"abc\"",
        );
        assert_eq!(
            said("[model]\n\n\nchannels = -3\n"),
            "my.toml, line 4: model.channels: expected a whole number of at least 0, found the number -3",
        );
        assert_eq!(
            said("[model]\nsigma = \"two\"\n"),
            "my.toml, line 2: model.sigma: expected one of \"diagonal\", \"isotropic\", \"printed\", \"one\", found the text \"two\"",
        );
        assert_eq!(
            said("model = 3\n"),
            "my.toml, line 1: model: expected a table of settings, found the number 3"
        );
        assert!(said("[model\n").starts_with("my.toml, line 1: this is not TOML: "));
    }

    #[test]
    fn set_takes_toml_values_and_bare_words() {
        let mut config = Config::default();
        config.set("train.steps = 1e5").unwrap();
        config.set("train.schedule=cosine").unwrap();
        config.set("model.maps=[4,2]").unwrap();
        config.set("model.temperature={start=1, end=0.1}").unwrap();
        assert_eq!(config.train.steps, 100_000);
        assert_eq!(config.train.schedule, Schedule::Cosine);
        assert_eq!(config.model.maps, [4, 2]);
        assert_eq!(
            config.model.temperature,
            Temperature {
                start: 1.0,
                end: 0.1
            }
        );
    }

    #[test]
    fn set_refuses_with_a_sentence_and_changes_nothing() {
        let mut config = Config::default();
        let mut said = |change: &str| config.set(change).unwrap_err().to_string();
        assert_eq!(
            said("lr=1"),
            "lr=1: there is no key lr; did you mean train.lr?"
        );
        assert_eq!(
            said("train.lr"),
            "train.lr: expected key=value, such as train.lr=1e-3"
        );
        assert_eq!(
            said("data.flip=perhaps"),
            "data.flip=perhaps: data.flip: expected true or false, found the text \"perhaps\"",
        );
        assert!(said("train.lr.x=1").contains("there is no key train.lr.x"));
        assert!(said("model.temperature={start=2, stop=1}").contains("did you mean"));
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_key_has_a_line_of_documentation() {
        let keys = Config::default().keys();
        assert!(
            keys.iter()
                .any(|key| key.path == "model.temperature.start" && key.default == "0.5")
        );
        assert!(
            keys.iter()
                .all(|key| key.doc.ends_with('.') && !key.doc.contains('\n'))
        );
    }
}
