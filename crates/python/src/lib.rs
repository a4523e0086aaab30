//! The Python package's native part: arrays in, library calls, arrays out. What a user sees is `python/rrvq`.
//!
//! Every call that computes goes through [`work::compute`], which releases the interpreter and ends at Ctrl-C.

mod arrays;
mod codec;
mod model;
mod train;
mod work;

use pyo3::prelude::*;

pyo3::create_exception!(
    rrvq,
    Error,
    pyo3::exceptions::PyException,
    "What went wrong, in a sentence: the file, setting or array at fault, what was expected, what to do."
);

/// The sentence of an error of the library.
fn told(error: rrvq::Error) -> PyErr {
    Error::new_err(error.to_string())
}

/// The presets: name, and one line on what each is for.
#[pyfunction]
fn presets() -> Vec<(&'static str, &'static str)> {
    rrvq::config::presets()
}

/// The built-in models: name, and one line on what each is.
#[pyfunction]
fn models() -> Vec<(&'static str, &'static str)> {
    let built_in = rrvq::models::BUILT_IN.iter();
    built_in.map(|model| (model.name, model.about)).collect()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_function(wrap_pyfunction!(presets, module)?)?;
    module.add_function(wrap_pyfunction!(models, module)?)?;
    module.add_function(wrap_pyfunction!(codec::compress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(train::train, module)?)?;
    module.add_function(wrap_pyfunction!(train::settings, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::sheet, module)?)?;
    module.add_function(wrap_pyfunction!(work::forked, module)?)?;
    Ok(())
}
