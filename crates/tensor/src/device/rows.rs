//! Rows of bytes that a device gathers by number, so that many runs follow each other without the host.

use super::{Data, Device};
use crate::{Error, Result};
use std::any::Any;

/// The bit of a row's number that asks for the row flipped; see [`RowLayout`].
pub const FLIPPED: u32 = 1 << 31;

/// The size of a row, and what flipping it means: a row is a tensor [.., `axis`, `element`] of bytes, and a flip
/// reverses its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Bytes of a row.
    pub bytes: usize,
    /// Length of the axis that a flip reverses.
    pub axis: usize,
    /// Bytes that stay together in a flip.
    pub element: usize,
}

impl RowLayout {
    /// Flips one row in place.
    pub fn flip(&self, row: &mut [u8]) {
        let (axis, element) = (self.axis, self.element);
        for part in row.chunks_exact_mut(axis * element) {
            for i in 0..axis / 2 {
                for byte in 0..element {
                    part.swap(i * element + byte, (axis - 1 - i) * element + byte);
                }
            }
        }
    }
}

/// One run of [`Program::replay`](super::Program::replay).
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Every input but the gathered one.
    pub inputs: &'a [(&'a str, Data<'a>)],
    /// Numbers of rows in the bank, plus [`FLIPPED`] for those to flip.
    pub rows: &'a [u32],
    /// The name of the u8 input that takes the rows, one after another.
    pub gathered: &'a str,
}

/// Many rows of bytes in the memory of a device, such as the images of a training set.
pub struct RowBank {
    /// A `Vec<u8>` on the CPU, the device's own type elsewhere.
    pub(crate) stored: Box<dyn Any + Send + Sync>,
    pub(crate) layout: RowLayout,
    pub(crate) count: usize,
}

impl RowBank {
    /// Copies rows to the device.
    pub fn new(device: &Device, bytes: Vec<u8>, layout: RowLayout) -> Result<Self> {
        let (have, row) = (bytes.len(), layout.bytes);
        if row == 0 || have == 0 || !have.is_multiple_of(row) {
            return Err(Error::new(format!(
                "rows of {row} bytes were expected, but {have} bytes were given"
            )));
        }
        if row % (layout.axis * layout.element).max(1) != 0 || layout.axis * layout.element == 0 {
            return Err(Error::new(format!(
                "a row of {row} bytes cannot be flipped along an axis of {} elements of {} bytes",
                layout.axis, layout.element
            )));
        }
        let stored: Box<dyn Any + Send + Sync> = match device {
            Device::Cpu => Box::new(bytes),
            #[cfg(feature = "cuda")]
            Device::Cuda(on) => Box::new(on.gpu.alloc_with(&bytes)?),
        };
        Ok(RowBank {
            stored,
            layout,
            count: have / row,
        })
    }

    /// What the device of a program stored, of the type that this device stores.
    pub(crate) fn stored<T: 'static>(&self) -> Result<&T> {
        self.stored.downcast_ref().ok_or_else(|| {
            Error::new("the row bank is on another device than the program; create both on one")
        })
    }

    /// The row that a number of a frame names, without its flip; an error names a row that is not there.
    pub(crate) fn index(&self, row: u32) -> Result<usize> {
        let (index, count) = ((row & !FLIPPED) as usize, self.count);
        match index < count {
            true => Ok(index),
            false => Err(Error::new(format!(
                "row {index} was asked for, but the bank has {count} rows"
            ))),
        }
    }
}
