//! Images of a data set on a device, put there once instead of batch by batch.

use super::{Dataset, Split};
use crate::error::Result;
use rayon::prelude::*;
use rrvq_tensor::Device;
use rrvq_tensor::device::Bank;

/// The first `count` images of `split`, on `device`.
pub fn put(device: &Device, data: &dyn Dataset, split: Split, count: usize) -> Result<Bank> {
    let [height, width, channels] = data.shape();
    let item = height * width * channels;
    let mut bytes = vec![0; count * item];
    bytes
        .par_chunks_exact_mut(item)
        .enumerate()
        .for_each(|(index, image)| data.read(split, index, image));
    Ok(Bank::new(device, bytes, item, width, channels)?)
}

/// The same where it pays and fits; the CPU reads from memory anyway.
pub fn put_if_useful(
    device: &Device,
    data: &dyn Dataset,
    split: Split,
    count: usize,
) -> Result<Option<Bank>> {
    let Device::Cuda(gpu, _) = device else {
        return Ok(None);
    };
    let (free, _) = gpu.memory()?;
    let bytes = count * data.shape().iter().product::<usize>();
    // The top bit of an image's number says that it is mirrored.
    if bytes > free / 2 || count >= 1 << 31 {
        return Ok(None);
    }
    put(device, data, split, count).map(Some)
}
