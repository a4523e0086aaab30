//! The example runs.

#[path = "../examples/compress_in_memory.rs"]
mod compress_in_memory;

#[test]
fn images_are_compressed_in_memory() {
    compress_in_memory::main().unwrap();
}
