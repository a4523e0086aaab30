//! RRVQ.
