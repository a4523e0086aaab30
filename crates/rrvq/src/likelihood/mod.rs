//! Likelihoods of 8-bit pixels given the decoder's output. One file a kind.

pub mod logistic;
