//! A clock that exists everywhere: in a browser the standard library has none and panics when asked, so times are zero.

#[cfg(not(target_arch = "wasm32"))]
pub use std::time::Instant;

#[cfg(target_arch = "wasm32")]
pub use none::Instant;

#[cfg(target_arch = "wasm32")]
mod none {
    use std::time::Duration;

    /// Stands in for [`std::time::Instant`].
    #[derive(Clone, Copy, Debug)]
    pub struct Instant;

    impl Instant {
        /// No moment in particular.
        pub fn now() -> Instant {
            Instant
        }

        /// No time at all.
        pub fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }
}
