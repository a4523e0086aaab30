//! What goes into a program and what outlives its runs.
//!
//! Vectors live on the host. A device of its own keeps a second copy beside them and works on that; the host's is
//! then behind until [`Store::fetch`] is asked for, so that training never waits for a copy nobody reads.

use super::backend::DeviceCopy;
use crate::compile::Named;
use crate::graph::DType;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Flat f32 vectors that outlive a run, by name: parameters, moments, averages. Programs read them as parameters and
/// [states](crate::Graph::state) and write what is [assigned](crate::Graph::assign).
///
/// ```
/// use rrvq_tensor::{Data, Device, Graph, Layout, Program, Store};
/// let g = Graph::new();
/// let count = g.state("count", 1) + 1.0;
/// g.assign("count", count);
/// let mut program = Program::new(&Device::Cpu, &g, &Layout::default(), &[])?;
/// let mut store = Store::with("count", vec![0.0]);
/// program.run(&mut store, &[])?;
/// program.run(&mut store, &[])?;
/// store.fetch()?; // a device may hold newer values than the host
/// assert_eq!(store.get("count"), [2.0]);
/// # Ok::<(), rrvq_tensor::Error>(())
/// ```
#[derive(Default)]
pub struct Store {
    pub(crate) vectors: BTreeMap<String, Vec<f32>>,
    /// The copy in a device's memory, once a program there has run on this store.
    pub(crate) copy: Option<Box<dyn DeviceCopy>>,
}

impl Store {
    /// A store of one vector.
    pub fn with(name: &str, vector: Vec<f32>) -> Self {
        let mut store = Self::default();
        store.insert(name, vector);
        store
    }

    /// Adds or replaces a vector, on every device.
    pub fn insert(&mut self, name: &str, vector: Vec<f32>) {
        if let Some(copy) = &mut self.copy {
            copy.invalidate(name);
        }
        self.vectors.insert(name.into(), vector);
    }

    /// The host's copy of a vector that is known to be there; after runs on another device, [`fetch`](Self::fetch)
    /// comes first.
    pub fn get(&self, name: &str) -> &[f32] {
        self.vectors.get(name).map_or(&[], Vec::as_slice)
    }

    /// Brings what a device has changed back to the host. Nothing to do on the CPU.
    pub fn fetch(&mut self) -> Result<()> {
        match &mut self.copy {
            Some(copy) => copy.fetch(&mut self.vectors),
            None => Ok(()),
        }
    }

    /// The newest values of a part of a vector, from wherever they are.
    pub fn part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>> {
        let mut values = self.host_part(name, &part)?.to_vec();
        match &self.copy {
            Some(copy) if copy.holds(name) => copy.read(name, part.start, &mut values)?,
            _ => {}
        }
        Ok(values)
    }

    /// Replaces values of a vector from `first` on, where its newest are.
    pub fn set_part(&mut self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        let part = first..first + values.len();
        self.host_part(name, &part)?;
        match &mut self.copy {
            Some(copy) if copy.holds(name) => copy.write(name, first, values),
            _ => {
                let vector = self.vectors.get_mut(name).expect("looked at above");
                vector[part].copy_from_slice(values);
                Ok(())
            }
        }
    }

    fn host_part(&self, name: &str, part: &Range<usize>) -> Result<&[f32]> {
        let vector = self.get(name);
        vector.get(part.clone()).ok_or_else(|| {
            let (first, end, len) = (part.start, part.end, vector.len());
            Error::new(format!(
                "values {first} to {end} of the vector {name} were asked for, which has {len}"
            ))
        })
    }

    /// Makes `name` a copy of the vector `from` of another store, where that vector is newest: on its device.
    pub fn copy_from(&mut self, name: &str, other: &Store, from: &str) -> Result<()> {
        let Some(source) = other.vectors.get(from) else {
            return Err(Error::new(format!(
                "the store has no vector {from} to copy"
            )));
        };
        match &other.copy {
            Some(copy) if copy.holds(from) => {
                // The host's is a placeholder of the right length; the values are on the device.
                let vector = self.vectors.entry(name.into()).or_default();
                vector.resize(source.len(), 0.0);
                copy.copy_to(from, &mut self.copy, name)
            }
            _ => {
                let mut vector = self.vectors.remove(name).unwrap_or_default();
                vector.clone_from(source);
                self.insert(name, vector);
                Ok(())
            }
        }
    }
}

/// The values of one input of a run, in row-major order.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// For an input of [`DType::F32`].
    F32(&'a [f32]),
    /// For an input of [`DType::U32`].
    U32(&'a [u32]),
    /// For an input of [`DType::U8`].
    U8(&'a [u8]),
}

impl Data<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Data::F32(v) => v.len(),
            Data::U32(v) => v.len(),
            Data::U8(v) => v.len(),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Data::F32(_) => DType::F32,
            Data::U32(_) => DType::U32,
            Data::U8(_) => DType::U8,
        }
    }

    /// As they lie in memory.
    #[cfg(feature = "cuda")]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers are bytes.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len() * self.dtype().bytes()) }
    }

    pub(crate) fn pointer(&self) -> *const u8 {
        match self {
            Data::F32(v) => v.as_ptr().cast(),
            Data::U32(v) => v.as_ptr().cast(),
            Data::U8(v) => v.as_ptr(),
        }
    }
}

/// The input a plan wants, among those given, with its length and kind checked.
pub(crate) fn find_input<'a>(want: &Named, inputs: &[(&str, Data<'a>)]) -> Result<Data<'a>> {
    let name = &want.name;
    let Some((_, data)) = inputs.iter().find(|(n, _)| n == name) else {
        return Err(Error::new(format!("input {name} was not given")));
    };
    let len: usize = want.shape.iter().product();
    if data.len() != len || data.dtype() != want.dtype {
        let (have, dtype) = (data.len(), data.dtype());
        let wanted = want.dtype;
        return Err(Error::new(format!(
            "input {name} has {have} {dtype:?} where {len} {wanted:?} are expected"
        )));
    }
    Ok(*data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_vectors_are_read_and_replaced() {
        let mut store = Store::with("theta", vec![1.0, 2.0, 3.0, 4.0]);
        store.set_part("theta", 1, &[5.0, 6.0]).unwrap();
        assert_eq!(store.part("theta", 0..3).unwrap(), [1.0, 5.0, 6.0]);
        let said = store.set_part("theta", 3, &[0.0, 0.0]).unwrap_err();
        assert!(said.to_string().contains("values 3 to 5"), "{said}");
        assert!(store.part("ema", 0..1).is_err());
        assert_eq!(store.get("theta"), [1.0, 5.0, 6.0, 4.0]);
    }
}
