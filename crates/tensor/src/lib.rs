//! Static tensor graphs.
