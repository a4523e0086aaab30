//! A data set that is there as a whole, in memory or in mapped files.

use super::{Dataset, Split};
use std::ops::Deref;

/// Images of one shape, one after the other; `P` holds their bytes.
///
/// ```
/// use rrvq::dataset::{Dataset, Images, Split};
///
/// let grey = Images {
///     name: "grey".into(),
///     shape: [8, 8, 1],
///     train: vec![128; 10 * 64],
///     test: vec![100; 2 * 64],
///     flip: true,
/// };
/// assert_eq!((grey.len(Split::Train), grey.len(Split::Test)), (10, 2));
/// ```
#[derive(Debug, Clone)]
pub struct Images<P = Vec<u8>> {
    /// The name of the data set in a configuration.
    pub name: String,
    /// Height, width and channels.
    pub shape: [usize; 3],
    /// Images to learn from, rows first, channels last.
    pub train: P,
    /// Images to judge by.
    pub test: P,
    /// Whether a mirrored image is as likely as the image.
    pub flip: bool,
}

impl<P: Deref<Target = [u8]>> Images<P> {
    fn of(&self, split: Split) -> &[u8] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &[],
            Split::Test => &self.test,
        }
    }

    fn each(&self) -> usize {
        self.shape.iter().product()
    }
}

impl<P: Deref<Target = [u8]> + Send + Sync> Dataset for Images<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self, split: Split) -> usize {
        self.of(split).len() / self.each()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn read(&self, split: Split, index: usize, out: &mut [u8]) {
        let each = self.each();
        out.copy_from_slice(&self.of(split)[index * each..][..each]);
    }

    fn may_flip(&self) -> bool {
        self.flip
    }
}
