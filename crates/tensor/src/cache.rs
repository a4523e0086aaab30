//! Where cached files go.

use std::path::PathBuf;

/// The folder for files that can be made again, such as compiled kernels: `RRVQ_CACHE` (empty: none), else
/// `XDG_CACHE_HOME/rrvq`, else `~/.cache/rrvq`.
pub fn cache_dir() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    choose(
        variable("RRVQ_CACHE"),
        variable("XDG_CACHE_HOME"),
        variable("HOME"),
    )
}

fn choose(own: Option<PathBuf>, shared: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(own) = own {
        return (!own.as_os_str().is_empty()).then_some(own);
    }
    // The convention says that a relative path there counts for nothing.
    let shared = shared.filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute());
    let folder = shared.or_else(|| home.map(|home| home.join(".cache")));
    folder.map(|folder| folder.join("rrvq"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_chosen_by_convention() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(choose(path("mine"), path("/x"), path("/h")), path("mine"));
        assert_eq!(choose(path(""), path("/x"), path("/h")), None);
        assert_eq!(choose(None, path("/x"), path("/h")), path("/x/rrvq"));
        assert_eq!(choose(None, path("x"), path("/h")), path("/h/.cache/rrvq"));
        assert_eq!(choose(None, None, None), None);
    }
}
