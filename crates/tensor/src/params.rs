//! Named parameters in one flat vector, their first values, and safetensors in and out.
//!
//! All parameters of a model live in one f32 vector, each at an offset that is a multiple of 16, so that the
//! optimiser is a handful of element-wise kernels over the whole vector, and a checkpoint is a few of them.

use crate::limit::check_room;
use crate::rng::{Distribution, Noise, fill};
use crate::simd::isa;
use crate::{Error, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};

/// The name of the flat vector of parameters among the vectors of a [`Store`](crate::Store).
pub const PARAMETERS: &str = "theta";

/// A parameter's first value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// The same value everywhere.
    Constant(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
}

/// One parameter: its name, shape, first value and place.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name it was given in the graph.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How its first value is made.
    pub init: Init,
    /// Where it begins in the flat vector.
    pub offset: usize,
}

impl Entry {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether an axis has size zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The parameters of a model, in the order in which they were added to a graph: where each lies in the flat vector.
///
/// Programs of one model share a layout and the vector it describes: a sampler's graph has some of the parameters of
/// the training graph, and finds them by name.
///
/// ```
/// use rrvq_tensor::{Graph, Init};
/// let g = Graph::new();
/// g.param("weight", &[3, 5], Init::Normal(0.1));
/// g.param("bias", &[5], Init::Constant(0.0));
/// let layout = g.layout();
/// assert_eq!(layout.count(), 20);
/// let bias = layout.get("bias").unwrap();
/// let flat = layout.initial(7);
/// assert_eq!(flat[bias.offset..][..5], [0.0; 5]);
/// // The first values depend on the seed and the name alone.
/// assert_eq!(flat, layout.initial(7));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    len: usize,
}

/// Offsets are multiples of this many floats: a cache line.
const ALIGN: usize = 16;

impl Layout {
    pub(crate) fn add(&mut self, name: &str, shape: &[usize], init: Init) {
        if let Some(&index) = self.by_name.get(name) {
            assert_eq!(
                self.entries[index].shape, shape,
                "parameter {name} has two shapes"
            );
            return;
        }
        let entry = Entry {
            name: name.into(),
            shape: shape.into(),
            init,
            offset: self.len,
        };
        self.len = (self.len + entry.len()).next_multiple_of(ALIGN);
        self.by_name.insert(name.into(), self.entries.len());
        self.entries.push(entry);
    }

    /// All parameters.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The parameter of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|&i| &self.entries[i])
    }

    /// Length of the flat vector, gaps included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of trained values, gaps left out.
    pub fn count(&self) -> usize {
        self.entries.iter().map(Entry::len).sum()
    }

    /// The flat vector of first values. Each parameter's noise is addressed by its name, so that adding one
    /// does not change the others.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for entry in &self.entries {
            let values = &mut flat[entry.offset..entry.offset + entry.len()];
            match entry.init {
                Init::Constant(c) => values.fill(c),
                Init::Normal(std) => {
                    let noise = Noise {
                        seed,
                        stream: name_hash(&entry.name),
                        step: u64::MAX,
                    };
                    fill(isa(), noise, Distribution::Normal, 0, values);
                    values.iter_mut().for_each(|v| *v *= std);
                }
            }
        }
        flat
    }

    /// Views of a flat vector by name, for writing.
    pub fn tensors<'a>(
        &'a self,
        flat: &'a [f32],
        prefix: &str,
    ) -> Vec<(String, Vec<usize>, &'a [f32])> {
        let view = |e: &'a Entry| {
            (
                format!("{prefix}{}", e.name),
                e.shape.clone(),
                &flat[e.offset..e.offset + e.len()],
            )
        };
        self.entries.iter().map(view).collect()
    }

    /// Gathers a flat vector from named tensors; every parameter must be there with its shape.
    pub fn flatten(&self, tensors: &Tensors, prefix: &str) -> Result<Vec<f32>> {
        // All of them are looked at before room is made: a file cannot claim more values than it holds.
        let mut found = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let name = format!("{prefix}{}", entry.name);
            let Some((shape, values)) = tensors.map.get(&name) else {
                return Err(Error::new(format!(
                    "tensor {name} is missing; the file belongs to another model"
                )));
            };
            if *shape != entry.shape {
                let want = &entry.shape;
                return Err(Error::new(format!(
                    "tensor {name} has shape {shape:?} where the model has {want:?}; the file belongs to another model"
                )));
            }
            found.push((entry, values));
        }
        check_room::<f32>("a vector of parameters", self.len)?;
        let mut flat = vec![0.0; self.len];
        for (entry, values) in found {
            flat[entry.offset..entry.offset + entry.len()].copy_from_slice(values);
        }
        Ok(flat)
    }
}

/// FNV-1a, 32 bits.
fn name_hash(name: &str) -> u32 {
    name.bytes()
        .fold(0x811c9dc5, |h, b| (h ^ b as u32).wrapping_mul(0x0100_0193))
}

/// Named tensors and text, as a safetensors file holds them.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// Shape and values of each tensor, by name.
    pub map: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// Text beside the tensors.
    pub metadata: BTreeMap<String, String>,
}

/// The upper half of an f32, rounded to the nearest, ties to even.
pub fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The f32 whose upper half this is.
pub fn from_bf16(half: u16) -> f32 {
    f32::from_bits((half as u32) << 16)
}

/// The bytes of a safetensors file with f32 tensors.
pub fn to_safetensors(
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    to_safetensors_bf16(tensors, metadata, |_| false)
}

/// The same, with the values of those tensors `rounded` says yes to rounded to bf16.
pub fn to_safetensors_bf16(
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: &BTreeMap<String, String>,
    rounded: impl Fn(&str) -> bool,
) -> Result<Vec<u8>> {
    let bytes = |(name, _, v): &(String, Vec<usize>, &[f32])| -> Vec<u8> {
        match rounded(name) {
            true => v.iter().flat_map(|v| to_bf16(*v).to_le_bytes()).collect(),
            false => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(bytes).collect();
    let mut views = Vec::new();
    for ((name, shape, _), data) in tensors.iter().zip(&bytes) {
        let dtype = match rounded(name) {
            true => Dtype::BF16,
            false => Dtype::F32,
        };
        let view = TensorView::new(dtype, shape.clone(), data)
            .map_err(|e| Error::new(format!("tensor {name} cannot be written: {e}")))?;
        views.push((name.as_str(), view));
    }
    let metadata: HashMap<String, String> = metadata.clone().into_iter().collect();
    serialize(views, Some(metadata))
        .map_err(|e| Error::new(format!("tensors cannot be written: {e}")))
}

/// Reads what [`to_safetensors`] or [`to_safetensors_bf16`] wrote. A damaged file is an error that says so, never a panic.
pub fn from_safetensors(bytes: &[u8]) -> Result<Tensors> {
    let damaged =
        |e: safetensors::SafeTensorError| Error::new(format!("not a whole safetensors file ({e})"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let mut out = Tensors::default();
    if let Some(metadata) = header.metadata() {
        out.metadata = metadata.clone().into_iter().collect();
    }
    for (name, view) in file.iter() {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::BF16 => data
                .chunks_exact(2)
                .map(|b| from_bf16(u16::from_le_bytes([b[0], b[1]])))
                .collect(),
            other => {
                return Err(Error::new(format!(
                    "tensor {name} has type {other:?} where F32 or BF16 was expected"
                )));
            }
        };
        out.map.insert(name.into(), (view.shape().to_vec(), values));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_the_nearest_and_comes_back() {
        for (value, want) in [
            (1.0, 1.0),
            // Halfway between 1 and 1 + 2⁻⁷: to the even one; a little more goes up.
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 1.0 / 256.0 + 1e-6, 1.0 + 1.0 / 128.0),
            (1.0 + 3.0 / 256.0, 1.0 + 2.0 / 128.0),
            (-0.0, -0.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ] {
            let have = from_bf16(to_bf16(value));
            assert_eq!(have.to_bits(), f32::to_bits(want), "{value} became {have}");
            assert_eq!(to_bf16(have), to_bf16(value));
        }
        assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
        let values = [0.1f32, -3.7, 1e-20];
        let tensors = ["a", "b"].map(|name| (name.to_string(), vec![3], &values[..]));
        let file = to_safetensors_bf16(&tensors, &BTreeMap::new(), |name| name == "a").unwrap();
        let back = from_safetensors(&file).unwrap();
        let want: Vec<f32> = values.iter().map(|v| from_bf16(to_bf16(*v))).collect();
        assert_eq!(back.map["a"], (vec![3], want));
        assert_eq!(back.map["b"], (vec![3], values.to_vec()));
    }
}
