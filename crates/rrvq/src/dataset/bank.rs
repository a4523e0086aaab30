//! Images of a data set on a device, put there once instead of batch by batch.

use super::{Dataset, Split};
use crate::error::Result;
use rayon::prelude::*;
use rrvq_tensor::Device;
use rrvq_tensor::device::{FLIPPED, RowBank, RowLayout};

/// The first `count` images of `split`, on `device`.
pub fn put(device: &Device, data: &dyn Dataset, split: Split, count: usize) -> Result<RowBank> {
    let layout = layout(data);
    let mut bytes = vec![0; count * layout.bytes];
    bytes
        .par_chunks_exact_mut(layout.bytes)
        .enumerate()
        .for_each(|(index, image)| data.read(split, index, image));
    Ok(RowBank::new(device, bytes, layout)?)
}

/// An image as a row of bytes that is flipped left to right.
pub fn layout(data: &dyn Dataset) -> RowLayout {
    let [height, width, channels] = data.shape();
    RowLayout {
        bytes: height * width * channels,
        axis: width,
        element: channels,
    }
}

/// The same where it pays and fits; the CPU reads from memory anyway.
pub fn put_if_useful(
    device: &Device,
    data: &dyn Dataset,
    split: Split,
    count: usize,
) -> Result<Option<RowBank>> {
    let Some((free, _)) = device.memory()? else {
        return Ok(None);
    };
    let bytes = count * data.shape().iter().product::<usize>();
    if bytes > free / 2 || count >= FLIPPED as usize {
        return Ok(None);
    }
    put(device, data, split, count).map(Some)
}
