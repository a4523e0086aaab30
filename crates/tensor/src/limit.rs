//! The most memory that anything described by a file may ask for, the same for the whole process.
//!
//! A configuration of a few bytes can describe a program of terabytes. What is larger than the limit is refused with both
//! numbers before any of it is allocated; what is smaller and still cannot be had is an error too, never an abort.

use crate::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit of a process that sets none: 8 GiB.
pub const DEFAULT_MEMORY_LIMIT: usize = match usize::BITS {
    64 => 8usize.wrapping_shl(30),
    // Where addresses are shorter, as in a browser, what can be addressed at once.
    _ => usize::MAX / 2,
};

static LIMIT: AtomicUsize = AtomicUsize::new(DEFAULT_MEMORY_LIMIT);

/// Bytes that one program, one vector of parameters or one unpacked file may take.
pub fn memory_limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// Sets [`memory_limit`] for the process.
pub fn set_memory_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Refuses what needs more than [`memory_limit`]; `what` begins the sentence.
pub fn check_memory(what: &str, bytes: usize) -> Result<()> {
    let limit = memory_limit();
    match bytes <= limit {
        true => Ok(()),
        false => Err(Error::new(format!(
            "{what} needs {} of memory and may take {} (max-memory); make it smaller, or raise the limit if you trust it",
            readable(bytes),
            readable(limit)
        ))),
    }
}

/// Whether the system has room for `count` values; an allocation that follows does not abort the process.
pub(crate) fn check_room<T>(what: &str, count: usize) -> Result<()> {
    check_memory(what, count.saturating_mul(size_of::<T>()))?;
    Vec::<T>::new().try_reserve_exact(count).map_err(|_| {
        let bytes = readable(count.saturating_mul(size_of::<T>()));
        Error::new(format!(
            "{what} needs {bytes} of memory, which this machine does not have; make it smaller"
        ))
    })
}

/// Bytes as people write them.
pub fn readable(bytes: usize) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match value.fract() == 0.0 {
        true => format!("{value} {}", units[unit]),
        false => format!("{value:.1} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_with_both_numbers() {
        assert!(check_memory("a plan", DEFAULT_MEMORY_LIMIT).is_ok());
        let said = check_memory("a plan", usize::MAX).unwrap_err().to_string();
        let (needs, limit) = (readable(usize::MAX), readable(DEFAULT_MEMORY_LIMIT));
        assert!(
            said.starts_with(&format!("a plan needs {needs}")) && said.contains(&limit),
            "{said}"
        );
        assert!(check_room::<f32>("a plan", usize::MAX).is_err());
        assert_eq!(readable(1536), "1.5 KiB");
    }
}
