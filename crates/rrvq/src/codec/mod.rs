//! The codec: images to files and back, without loss.
pub mod chunk;
mod codes;
pub mod networks;
mod pixels;
pub mod stack;
pub mod tiles;
