//! The paper's tables, figures and theorems, one file each. To add one, write its file and name it here and in [`STUDIES`].

mod codes;
mod entropy;
mod estimators;
mod fig3;
mod mlp;
mod models;
mod swatches;

use crate::framework::Study;
use rrvq::{Error, Result};

/// Every study, in the order of the page.
pub static STUDIES: &[&dyn Study] = &[
    &entropy::Entropy,
    &estimators::Estimators,
    &swatches::Swatches,
    &mlp::Mlp,
    &fig3::Fig3,
    &codes::Codes,
];

/// The study called `name`, or all of them.
pub fn named(name: &str) -> Result<Vec<&'static dyn Study>> {
    if name == "all" {
        return Ok(STUDIES.to_vec());
    }
    let found: Vec<_> = STUDIES.iter().copied().filter(|s| s.name() == name).collect();
    match found.is_empty() {
        false => Ok(found),
        true => {
            let names: Vec<&str> = STUDIES.iter().map(|s| s.name()).collect();
            let names = names.join(", ");
            Err(Error::new(format!(
                "there is no study {name:?}; expected all, or one of {names}"
            )))
        }
    }
}
