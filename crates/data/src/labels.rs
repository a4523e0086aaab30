//! Labels: the class of each image, and the names of the classes.

use crate::Images;
use rrvq::dataset::{Dataset, Split};

/// The labels of both splits, in the order of the images; empty where a data set has none.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub train: Vec<Option<u32>>,
    pub test: Vec<Option<u32>>,
    /// The name of class 0, of class 1 and so on; empty where they have none.
    pub classes: Vec<String>,
}

impl Labels {
    pub fn get(&self, split: Split, index: usize) -> Option<u32> {
        let labels = match split {
            Split::Train => &self.train,
            Split::Validation => return None,
            Split::Test => &self.test,
        };
        labels.get(index).copied().flatten()
    }
}

/// Images with labels.
#[derive(Debug)]
pub(crate) struct Labelled {
    pub images: Images,
    pub labels: Labels,
    /// Why images were left out.
    pub left_out: Vec<String>,
}

impl Dataset for Labelled {
    fn name(&self) -> &str {
        self.images.name()
    }

    fn len(&self, split: Split) -> usize {
        self.images.len(split)
    }

    fn shape(&self) -> [usize; 3] {
        self.images.shape()
    }

    fn read(&self, split: Split, index: usize, out: &mut [u8]) {
        self.images.read(split, index, out)
    }

    fn may_flip(&self) -> bool {
        self.images.may_flip()
    }

    fn label(&self, split: Split, index: usize) -> Option<u32> {
        self.labels.get(split, index)
    }

    fn classes(&self) -> &[String] {
        &self.labels.classes
    }

    fn left_out(&self) -> &[String] {
        &self.left_out
    }
}
