//! How keys of a configuration find their fields.
//!
//! Every setting is declared once, with its line of documentation and its default, by `section!`.
//! The declaration makes the struct and the means to walk it: put a value at a path, list the paths.
//! Mistakes come back as a [`Problem`] that knows the full path, so the caller adds only the file and line.

use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::PathBuf;
use strsim::levenshtein;
use toml::Value;

/// One setting: where it is, what it does, its default.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The dotted path, such as `train.lr`.
    pub path: String,
    /// One line on what it does.
    pub doc: &'static str,
    /// The default, as TOML; empty where the default is "not set".
    pub default: String,
}

/// A value that does not fit, and the path at which it was found.
#[derive(Debug, PartialEq)]
pub enum Problem {
    Unknown {
        path: String,
    },
    Misfit {
        path: String,
        expected: String,
        found: String,
    },
}

/// A section, or a single setting.
pub trait Node {
    /// Puts `value` at `rest` below this node; `path` is this node's own, for messages.
    fn put(&mut self, path: &str, rest: &[&str], value: &Value) -> Result<(), Problem>;
    /// Appends the settings at or below this node.
    fn list(&self, path: &str, doc: &'static str, keys: &mut Vec<Key>);
}

/// The type of a single setting.
pub trait Leaf: DeserializeOwned {
    /// What a fitting value is, in words.
    fn expected() -> String;
    /// The value as TOML, for the list of defaults.
    fn show(&self) -> String;
    /// Reads the value, or says nothing if it does not fit.
    fn read(value: &Value) -> Option<Self> {
        Self::deserialize(value.clone()).ok()
    }
}

impl<T: Leaf> Node for T {
    fn put(&mut self, path: &str, rest: &[&str], value: &Value) -> Result<(), Problem> {
        if let Some(name) = rest.first() {
            return Err(Problem::Unknown {
                path: join(path, name),
            });
        }
        *self = T::read(value).ok_or_else(|| misfit(path, T::expected(), value))?;
        Ok(())
    }

    fn list(&self, path: &str, doc: &'static str, keys: &mut Vec<Key>) {
        keys.push(Key {
            path: path.into(),
            doc,
            default: self.show(),
        });
    }
}

pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.into()
    } else {
        format!("{path}.{name}")
    }
}

pub fn misfit(path: &str, expected: impl Display, value: &Value) -> Problem {
    let found = match value {
        Value::String(text) => format!("the text {text:?}"),
        Value::Integer(_) | Value::Float(_) => format!("the number {value}"),
        Value::Boolean(truth) => format!("{truth}"),
        Value::Datetime(date) => format!("the date {date}"),
        Value::Array(_) => format!("the list {value}"),
        Value::Table(_) => "a table".into(),
    };
    Problem::Misfit {
        path: path.into(),
        expected: expected.to_string(),
        found,
    }
}

/// Whole numbers may be written as floats without a fraction: `steps = 1e5`.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Float(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => {
            Some(*number as u64)
        }
        _ => None,
    }
}

impl Leaf for usize {
    fn expected() -> String {
        "a whole number of at least 0".into()
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn read(value: &Value) -> Option<Self> {
        whole(value).and_then(|number| number.try_into().ok())
    }
}

impl Leaf for u64 {
    fn expected() -> String {
        "a whole number of at least 0".into()
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn read(value: &Value) -> Option<Self> {
        whole(value)
    }
}

impl Leaf for f64 {
    fn expected() -> String {
        "a number".into()
    }
    fn show(&self) -> String {
        Value::Float(*self).to_string()
    }
}

impl Leaf for bool {
    fn expected() -> String {
        "true or false".into()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Leaf for String {
    fn expected() -> String {
        "a text".into()
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Leaf for Option<PathBuf> {
    fn expected() -> String {
        "a path, as text".into()
    }
    fn show(&self) -> String {
        self.as_ref()
            .map(|path| format!("{path:?}"))
            .unwrap_or_default()
    }
}

impl Leaf for Vec<usize> {
    fn expected() -> String {
        "a list of whole numbers, such as [16, 8, 4]".into()
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// A struct of settings: each field with one line of documentation and a default.
macro_rules! section {
    ($(#[doc = $about:literal])+ pub struct $name:ident {
        $($(#[serde($attribute:meta)])? #[doc = $doc:literal] $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(#[doc = $doc] $(#[serde($attribute)])? pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)+ }
            }
        }

        impl $crate::config::keys::Node for $name {
            fn put(
                &mut self,
                path: &str,
                rest: &[&str],
                value: &toml::Value,
            ) -> std::result::Result<(), $crate::config::keys::Problem> {
                use $crate::config::keys::{Problem, join, misfit};
                match rest {
                    [] => {
                        let table = value.as_table().ok_or_else(|| misfit(path, "a table of settings", value))?;
                        table.iter().try_for_each(|(name, value)| self.put(path, &[name.as_str()], value))
                    }
                    $([name, rest @ ..] if *name == stringify!($field) => {
                        self.$field.put(&join(path, name), rest, value)
                    })+
                    [name, ..] => Err(Problem::Unknown { path: join(path, name) }),
                }
            }

            fn list(&self, path: &str, _: &'static str, keys: &mut Vec<$crate::config::keys::Key>) {
                $(self.$field.list(&$crate::config::keys::join(path, stringify!($field)), $doc.trim(), keys);)+
            }
        }
    };
}
pub(crate) use section;

/// A setting that is one of a few words; the first is the default.
macro_rules! choice {
    ($(#[doc = $about:literal])+ pub enum $name:ident {
        $(#[doc = $first_doc:literal])? $first:ident = $first_word:literal,
        $($(#[doc = $doc:literal])? $variant:ident = $word:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[doc = $first_doc])? #[default] #[serde(rename = $first_word)] $first,
            $($(#[doc = $doc])? #[serde(rename = $word)] $variant,)+
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $name::$first => $first_word,
                    $($name::$variant => $word,)+
                })
            }
        }

        impl $crate::config::keys::Leaf for $name {
            fn expected() -> String {
                let words: [&str; _] = [$first_word, $($word),+];
                format!("one of {}", words.map(|word| format!("{word:?}")).join(", "))
            }
            fn show(&self) -> String {
                format!("{:?}", self.to_string())
            }
        }
    };
}
pub(crate) use choice;

/// The path among `known` that `path` was most likely meant to be.
pub fn nearest<'a>(path: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = |path: &'a str| path.rsplit('.').next().unwrap_or(path);
    let mine = path.rsplit('.').next().unwrap_or(path);
    known
        .map(|other| {
            // A right name in the wrong section is one slip, however different the sections' names are.
            let slips = levenshtein(path, other).min(levenshtein(mine, last(other)) + 1);
            (slips, other)
        })
        .min_by_key(|(slips, _)| *slips)
        .filter(|(slips, _)| *slips <= 2 + mine.len() / 4)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_forgives_a_wrong_section_but_not_nonsense() {
        let known = ["model.channels", "train.lr", "train.batch"];
        assert_eq!(
            nearest("train.chanels", known.into_iter()),
            Some("model.channels")
        );
        assert_eq!(nearest("lr", known.into_iter()), Some("train.lr"));
        assert_eq!(nearest("train.zzzzzzzzz", known.into_iter()), None);
    }
}
