//! The paper's tables, figures and theorems, one file each. To add one, write its file and name it here and in [`STUDIES`].

mod app_e;
mod codes;
mod compression;
mod depth;
mod entropy;
mod estimators;
mod fig1;
mod fig3;
mod mlp;
mod models;
mod patchwork;
mod probe;
mod speed;
mod spread;
mod swatches;
mod table1;
mod table2;
mod table3;

use crate::framework::Study;
use rrvq::{Error, Result};

/// Every study, in the order of the page.
pub static STUDIES: &[&dyn Study] = &[
    &table1::Table1,
    &table2::Table2,
    &table3::Table3,
    &depth::Depth,
    &fig1::Fig1,
    &fig3::Fig3,
    &codes::Codes,
    &app_e::AppE,
    &compression::Compression,
    &entropy::Entropy,
    &speed::Speed,
    &swatches::Swatches,
    &mlp::Mlp,
    &estimators::Estimators,
];

/// The study called `name`, or all of them.
pub fn named(name: &str) -> Result<Vec<&'static dyn Study>> {
    if name == "all" {
        return Ok(STUDIES.to_vec());
    }
    let found: Vec<_> = STUDIES
        .iter()
        .copied()
        .filter(|s| s.name() == name)
        .collect();
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
