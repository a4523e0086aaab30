//! A data set that is there as a whole: what all kinds of files become once they are read.

use super::{Dataset, Pixels, Split};

/// Images of one shape, one after the other.
#[derive(Debug, Clone)]
pub struct Images {
    /// The name of the data set in a configuration.
    pub name: &'static str,
    /// Height, width and channels.
    pub shape: [usize; 3],
    /// Images to learn from, rows first, channels last.
    pub train: Pixels,
    /// Images to judge by.
    pub test: Pixels,
    /// Whether a mirrored image is as likely as the image.
    pub flip: bool,
}

impl Images {
    fn of(&self, split: Split) -> &[u8] {
        match split {
            Split::Train => &self.train,
            Split::Test => &self.test,
        }
    }

    fn each(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Dataset for Images {
    fn name(&self) -> &str {
        self.name
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
