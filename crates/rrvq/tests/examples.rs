//! The examples run.

#[path = "../examples/own_data.rs"]
mod own_data;
#[path = "../examples/redraw_layer.rs"]
mod redraw_layer;
#[path = "../examples/tokens.rs"]
mod tokens;

#[test]
fn own_data_is_trained_on() {
    own_data::main().unwrap();
}

#[test]
fn a_layer_is_redrawn() {
    redraw_layer::main().unwrap();
}

#[test]
fn tokens_are_written_and_read() {
    tokens::main().unwrap();
}
