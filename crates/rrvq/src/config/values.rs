//! Values of settings that have more than one form: a number or a list, a word or a number.

use super::keys::{Key, Leaf, Node, Problem, join, misfit};
use super::sections::CropWord;
use serde::{Deserialize, Serialize};

/// What the last convolution of a residual block is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BlockScale {
    /// By this, in every model.
    Constant(f64),
    /// By less in deeper models.
    Word(BlockScaleWord),
}

/// A scale of blocks, by a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockScaleWord {
    /// 1/√N with N residual blocks between the top and the bottom, so that their sum is as large in all depths.
    #[serde(rename = "depth")]
    Depth,
}

impl Leaf for BlockScale {
    fn expected() -> String {
        "a number above 0, or \"depth\"".into()
    }
    fn show(&self) -> String {
        match self {
            BlockScale::Constant(scale) => scale.show(),
            BlockScale::Word(BlockScaleWord::Depth) => "\"depth\"".into(),
        }
    }
}

/// The part of an image that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Crop {
    /// By a word.
    Word(CropWord),
    /// Left, top, right and bottom, in pixels; right and bottom are the first ones outside.
    Square([usize; 4]),
}

impl Leaf for Crop {
    fn expected() -> String {
        "\"auto\", \"centre\", \"random\" or a square such as [15, 40, 163, 188]".into()
    }
    fn show(&self) -> String {
        match self {
            Crop::Word(word) => word.show(),
            Crop::Square(square) => format!("{square:?}"),
        }
    }
}

/// Sizes of the codebooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Codes {
    /// The same in every layer.
    Same(usize),
    /// One for each layer, bottom first.
    Each(Vec<usize>),
}

impl Codes {
    /// Codes in the codebook of `layer`, counted from the bottom.
    pub fn at(&self, layer: usize) -> usize {
        match self {
            Codes::Same(codes) => *codes,
            Codes::Each(codes) => codes[layer],
        }
    }
}

impl Leaf for Codes {
    fn expected() -> String {
        "a whole number, or a list of them with one for each layer".into()
    }
    fn show(&self) -> String {
        match self {
            Codes::Same(codes) => codes.show(),
            Codes::Each(codes) => codes.show(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn blocks_are_scaled_by_a_number_or_by_depth() {
        let mut config = Config::preset("l16-cifar10").unwrap();
        assert_eq!(config.model.block_factor(), 0.25);
        for (value, factor) in [("depth", 0.25), ("0.3", 0.3), ("1", 1.0)] {
            config.set(&format!("model.block_scale={value}")).unwrap();
            assert_eq!(config.model.block_factor(), factor);
            let written = Config::read(&config.to_toml().unwrap(), "written").unwrap();
            assert_eq!(written, config);
        }
        // Sixteen layers of four blocks each.
        config.set("model.block_scale=depth").unwrap();
        config.set("model.blocks=4").unwrap();
        assert_eq!(config.model.block_factor(), 0.125);
        let said = config.set("model.block_scale=width").unwrap_err();
        assert!(said.to_string().contains("or \"depth\""), "{said}");
    }
}

/// Settings of one kind of latent: `model.options.NAME`. Which there are, the kind says
/// ([`crate::latent::Latent::options`]).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(toml::Table);

impl Options {
    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of those that are set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A list of whole numbers; none where it is not set, an error where it is something else.
    pub fn numbers(&self, name: &str) -> crate::error::Result<Option<Vec<usize>>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        match Vec::<usize>::read(value) {
            Some(list) => Ok(Some(list)),
            None => Err(crate::error::Error::new(format!(
                "model.options.{name} is {value}; expected {}",
                Vec::<usize>::expected()
            ))),
        }
    }
}

impl Node for Options {
    fn put(&mut self, path: &str, rest: &[&str], value: &toml::Value) -> Result<(), Problem> {
        match (rest, value) {
            ([], toml::Value::Table(table)) => self.0 = table.clone(),
            ([], _) => return Err(misfit(path, "a table of settings", value)),
            ([name], _) => {
                self.0.insert(name.to_string(), value.clone());
            }
            ([name, below, ..], _) => {
                return Err(Problem::Unknown {
                    path: join(&join(path, name), below),
                });
            }
        }
        Ok(())
    }

    fn list(&self, _: &str, _: &'static str, _: &mut Vec<Key>) {}
}
