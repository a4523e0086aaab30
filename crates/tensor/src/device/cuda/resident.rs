//! The vectors of a store on a GPU: uploaded when first used, brought back when asked for.

use super::driver::{Buffer, Gpu};
use crate::device::backend::DeviceCopy;
use crate::{Error, Result};
use std::any::Any;
use std::collections::BTreeMap;

/// The vectors of a store on the device.
pub struct Resident {
    gpu: Gpu,
    vectors: BTreeMap<String, Copy>,
}

struct Copy {
    buffer: Buffer,
    /// The host has a newer one.
    behind: bool,
    /// The host's is older.
    ahead: bool,
}

impl Resident {
    /// The copy of a store on this GPU, empty if there was none.
    pub(crate) fn of<'a>(gpu: &Gpu, slot: &'a mut Option<Box<dyn DeviceCopy>>) -> &'a mut Self {
        let copy = slot.get_or_insert_with(|| Box::new(Resident::new(gpu)));
        let copy: &mut dyn Any = copy.as_mut();
        copy.downcast_mut()
            .expect("no other device has a memory of its own")
    }

    fn new(gpu: &Gpu) -> Self {
        Resident {
            gpu: gpu.clone(),
            vectors: BTreeMap::new(),
        }
    }

    /// Where `name` lies on the device, with the newest values in it.
    pub(crate) fn address(
        &mut self,
        host: &BTreeMap<String, Vec<f32>>,
        name: &str,
        len: usize,
    ) -> Result<u64> {
        let have = host.get(name).map(Vec::len);
        let Some(vector) = host.get(name).filter(|v| v.len() == len) else {
            return Err(Error::new(format!(
                "state {name} should have {len} values, the store has {have:?}"
            )));
        };
        let fits = |copy: &Copy| copy.buffer.len() == (len * 4).max(4);
        if !self.vectors.get(name).is_some_and(fits) {
            let buffer = self.gpu.alloc((len * 4).max(4))?;
            let copy = Copy {
                buffer,
                behind: true,
                ahead: false,
            };
            self.vectors.insert(name.into(), copy);
        }
        let copy = self.vectors.get_mut(name).expect("made above");
        if copy.behind {
            if !vector.is_empty() {
                copy.buffer.upload(bytes(vector))?;
            }
            copy.behind = false;
        }
        Ok(copy.buffer.address())
    }

    /// A run has written these.
    pub(crate) fn note_changes<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if let Some(copy) = self.vectors.get_mut(name) {
                copy.ahead = true;
            }
        }
    }
}

impl DeviceCopy for Resident {
    fn fetch(&mut self, vectors: &mut BTreeMap<String, Vec<f32>>) -> Result<()> {
        for (name, copy) in &mut self.vectors {
            let Some(vector) = vectors
                .get_mut(name)
                .filter(|v| copy.ahead && !v.is_empty())
            else {
                continue;
            };
            copy.buffer.download(bytes_mut(vector))?;
            copy.ahead = false;
        }
        Ok(())
    }

    fn holds(&self, name: &str) -> bool {
        self.vectors.get(name).is_some_and(|copy| !copy.behind)
    }

    fn read(&self, name: &str, first: usize, values: &mut [f32]) -> Result<()> {
        match self.vectors.get(name) {
            Some(copy) if !values.is_empty() => {
                copy.buffer.download_at(first * 4, bytes_mut(values))
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        match self.vectors.get_mut(name) {
            Some(copy) if !values.is_empty() => {
                copy.ahead = true;
                copy.buffer.upload_at(first * 4, bytes(values))
            }
            _ => Ok(()),
        }
    }

    fn invalidate(&mut self, name: &str) {
        if let Some(copy) = self.vectors.get_mut(name) {
            (copy.behind, copy.ahead) = (true, false);
        }
    }

    fn copy_to(&self, from: &str, to: &mut Option<Box<dyn DeviceCopy>>, name: &str) -> Result<()> {
        let Some(source) = self.vectors.get(from) else {
            return Err(Error::new(format!(
                "the vector {from} is not on the GPU yet; run a program on its store first"
            )));
        };
        let to = Resident::of(&self.gpu, to);
        let fits = |copy: &Copy| copy.buffer.len() == source.buffer.len();
        if !to.vectors.get(name).is_some_and(fits) {
            let buffer = self.gpu.alloc(source.buffer.len())?;
            let copy = Copy {
                buffer,
                behind: false,
                ahead: true,
            };
            to.vectors.insert(name.into(), copy);
        }
        let copy = to.vectors.get_mut(name).expect("made above");
        (copy.behind, copy.ahead) = (false, true);
        copy.buffer.copy_from(&source.buffer)
    }
}

fn bytes(values: &[f32]) -> &[u8] {
    // SAFETY: any float is four bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len() * 4) }
}

fn bytes_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: any float is four bytes, and any four bytes are a float.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len() * 4) }
}
