//! Every operation's gradient against finite differences.

mod cases;
mod common;

use common::check_gradient;

macro_rules! each {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                cases::$name();
            }
        )*
    };
}

each!(
    element_wise_with_one_operand,
    the_slope_of_elu_itself_has_a_gradient,
    element_wise_with_several_operands,
    broadcasting_in_every_direction,
    reductions,
    moving_and_picking,
    products,
    convolutions,
    chains_that_fuse_across_kinds,
);
