//! Devices a [`Plan`](crate::Plan) runs on.

pub mod cpu;
pub mod cuda;
