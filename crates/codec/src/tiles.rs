//! Images cut into the squares a model knows, and put together again.
//!
//! Tiles do not overlap. Those at the right and lower border may hang over: the network sees the edge repeated there, and
//! only what belongs to the image is coded. A grey image looks to a colour model like one with three equal channels, of
//! which one is coded.

use super::chunk::{Extent, Tile};

/// Tiles of an image, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Tiling {
    pub width: usize,
    pub height: usize,
    /// Channels that are coded.
    pub channels: usize,
    /// Side of a tile.
    pub side: usize,
}

impl Tiling {
    fn across(&self) -> usize {
        self.width.div_ceil(self.side)
    }

    pub fn count(&self) -> usize {
        self.across() * self.height.div_ceil(self.side)
    }

    /// Left and upper border of a tile, and what of it belongs to the image.
    fn place(&self, tile: usize) -> (usize, usize, Extent) {
        let (left, above) = (
            tile % self.across() * self.side,
            tile / self.across() * self.side,
        );
        let extent = Extent {
            width: self.side.min(self.width - left),
            height: self.side.min(self.height - above),
            channels: self.channels,
        };
        (left, above, extent)
    }

    pub fn extent(&self, tile: usize) -> Extent {
        self.place(tile).2
    }

    /// Rows of a tile, as ranges of an image's bytes.
    fn rows(&self, tile: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (left, above, extent) = self.place(tile);
        let (width, channels) = (self.width, self.channels);
        (above..above + extent.height).map(move |y| {
            let start = (y * width + left) * channels;
            start..start + extent.width * channels
        })
    }

    /// The bytes of a tile that belong to the image.
    pub fn bytes(&self, image: &[u8], tile: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.extent(tile).bytes());
        self.rows(tile)
            .for_each(|row| bytes.extend_from_slice(&image[row]));
        bytes
    }

    /// A tile of an image, for a model of so many channels.
    pub fn cut(&self, image: &[u8], tile: usize, model_channels: usize) -> Tile {
        let extent = self.extent(tile);
        Tile {
            extent,
            square: square(extent, &self.bytes(image, tile), self.side, model_channels),
        }
    }

    /// Puts the bytes of a tile into their places.
    pub fn paste(&self, image: &mut [u8], tile: usize, bytes: &[u8]) {
        let width = self.extent(tile).width * self.channels;
        for (row, bytes) in self.rows(tile).zip(bytes.chunks_exact(width)) {
            image[row].copy_from_slice(bytes);
        }
    }
}

/// The tiles of several images, one image after another.
#[derive(Default)]
pub struct Sequence {
    /// Number of an image, its tiling, and the number of its first tile.
    images: Vec<(usize, Tiling, usize)>,
    pub count: usize,
}

/// A tile of a sequence: the number of its image, how that is cut, and its own number there.
#[derive(Clone, Copy)]
pub struct Located {
    pub image: usize,
    pub tiling: Tiling,
    pub tile: usize,
}

impl Sequence {
    pub fn add(&mut self, image: usize, tiling: Tiling) {
        self.images.push((image, tiling, self.count));
        self.count += tiling.count();
    }

    /// Chunks of at most so many tiles, as ranges of them.
    pub fn chunks(&self, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let count = self.count;
        (0..count)
            .step_by(most)
            .map(move |first| first..(first + most).min(count))
    }

    /// The tiles of a range.
    pub fn tiles(&self, range: std::ops::Range<usize>) -> Vec<Located> {
        let locate = |tile: usize| {
            let next = self.images.partition_point(|(_, _, first)| *first <= tile);
            let (image, tiling, first) = self.images[next - 1];
            Located {
                image,
                tiling,
                tile: tile - first,
            }
        };
        range.map(locate).collect()
    }
}

/// A whole square around the bytes of a tile: its last column and row repeated, a single channel repeated.
pub fn square(extent: Extent, bytes: &[u8], side: usize, channels: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(side * side * channels);
    for y in 0..side {
        let row = y.min(extent.height - 1) * extent.width;
        for x in 0..side {
            let pixel = (row + x.min(extent.width - 1)) * extent.channels;
            for channel in 0..channels {
                out.push(bytes[pixel + channel.min(extent.channels - 1)]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_apart_and_together() {
        for (width, height, channels) in [(1, 1, 1), (4, 4, 3), (5, 3, 3), (9, 8, 1), (3, 13, 3)] {
            let tiling = Tiling {
                width,
                height,
                channels,
                side: 4,
            };
            let image: Vec<u8> = (0..width * height * channels).map(|i| i as u8).collect();
            let mut back = vec![0; image.len()];
            for tile in 0..tiling.count() {
                let cut = tiling.cut(&image, tile, 3);
                assert_eq!(cut.square.len(), 4 * 4 * 3);
                let Extent {
                    width: w,
                    height: h,
                    channels: c,
                } = cut.extent;
                let rows = (0..h).flat_map(|y| (0..w).map(move |x| (y * 4 + x) * 3));
                let bytes: Vec<u8> = rows.flat_map(|p| cut.square[p..p + c].to_vec()).collect();
                tiling.paste(&mut back, tile, &bytes);
            }
            assert_eq!(back, image, "{width}×{height}×{channels}");
        }
    }

    #[test]
    fn what_hangs_over_repeats_the_edge() {
        let extent = Extent {
            width: 2,
            height: 1,
            channels: 1,
        };
        let square = square(extent, &[7, 9], 3, 3);
        assert_eq!(square, [7, 7, 7, 9, 9, 9, 9, 9, 9].repeat(3));
    }
}
