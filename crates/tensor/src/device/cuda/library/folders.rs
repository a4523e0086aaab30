//! Where libraries may lie. Pure path logic: nothing is opened here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The part of the surroundings that decides where to look.
#[derive(Default)]
struct Surroundings {
    /// RRVQ_CUDA_LIBS.
    named: Option<OsString>,
    /// Active Python environments, the inner one first.
    environments: Vec<PathBuf>,
    /// The folders of the system, below this one.
    root: PathBuf,
}

/// The folders to search on this machine, best first.
pub fn of_this_machine() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"];
    search_list(&Surroundings {
        named: variable("RRVQ_CUDA_LIBS"),
        environments: environments
            .into_iter()
            .filter_map(|name| variable(name).map(PathBuf::from))
            .collect(),
        root: PathBuf::from("/"),
    })
}

/// What RRVQ_CUDA_LIBS names and is not there.
pub fn named_in_vain() -> Vec<String> {
    let value = std::env::var_os("RRVQ_CUDA_LIBS").unwrap_or_default();
    std::env::split_paths(&value)
        .filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .map(|folder| {
            format!(
                "RRVQ_CUDA_LIBS names {}, which is not a folder",
                folder.display()
            )
        })
        .collect()
}

/// Files in `folder` that are one of `starts` with nothing or a version behind it.
pub fn named(folder: &Path, starts: &[&str]) -> Vec<PathBuf> {
    let fits = |name: &str| {
        let rest = starts.iter().find_map(|start| name.strip_prefix(start));
        rest.is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit()))
    };
    let mut files = entries(folder);
    files.retain(|file| file.file_name().and_then(|n| n.to_str()).is_some_and(fits));
    files
}

fn search_list(around: &Surroundings) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for folder in around.named.iter().flat_map(std::env::split_paths) {
        if folder.as_os_str().is_empty() {
            continue;
        }
        all.push(folder.clone());
        // A toolkit, an `nvidia` folder, a site-packages folder, a whole Python environment.
        all.extend(["lib64", "lib"].map(|name| folder.join(name)));
        all.extend(packages(&folder));
        all.extend(packages(&folder.join("nvidia")));
        all.extend(environment(&folder));
    }
    for folder in &around.environments {
        all.extend(environment(folder));
        all.push(folder.join("lib"));
    }
    let mut toolkits = entries(&around.root.join("usr/local"));
    toolkits.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name == "cuda" || name.starts_with("cuda-"))
    });
    // The plain name is the link that the owner of the machine chose.
    toolkits.sort_by_key(|path| !path.ends_with("cuda"));
    all.extend(toolkits.iter().map(|path| path.join("lib64")));
    let system = [
        "opt/cuda/lib64",
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib64",
        "usr/lib",
        "usr/lib/wsl/lib",
    ];
    all.extend(system.map(|path| around.root.join(path)));
    all.retain(|folder| folder.is_dir());
    all.into_iter()
        .filter_map(|folder| std::path::absolute(folder).ok())
        .collect()
}

/// `*/lib` below an `nvidia` folder.
fn packages(nvidia: &Path) -> Vec<PathBuf> {
    let below = entries(nvidia).into_iter();
    below.map(|path| path.join("lib")).collect()
}

/// `lib/python3*/site-packages/nvidia/*/lib` below a Python environment.
fn environment(folder: &Path) -> Vec<PathBuf> {
    let mut pythons = entries(&folder.join("lib"));
    pythons.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("python3"))
    });
    pythons
        .iter()
        .flat_map(|python| packages(&python.join("site-packages/nvidia")))
        .collect()
}

/// What is in a folder, later names first, so that newer versions come before older ones.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A folder with these empty files in it.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[&str]) -> Tree {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("rrvq-folders-{}-{number}", std::process::id());
            let tree = Tree(std::env::temp_dir().join(name));
            for file in files {
                let path = tree.0.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            tree
        }

        /// The first folder of the list that has a file of this name, seen from the tree.
        fn first(&self, list: &[PathBuf], file: &str) -> Option<PathBuf> {
            let found = list.iter().find(|folder| folder.join(file).is_file())?;
            Some(found.strip_prefix(&self.0).unwrap().to_path_buf())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const FILE: &str = "libcudnn.so.9";

    #[test]
    fn a_named_folder_may_be_of_many_kinds() {
        let inner = "venv/lib/python3.12/site-packages/nvidia/cudnn/lib";
        let tree = Tree::new(&[&format!("{inner}/{FILE}")]);
        for named in [
            inner,
            "venv/lib/python3.12/site-packages/nvidia/cudnn",
            "venv/lib/python3.12/site-packages/nvidia",
            "venv/lib/python3.12/site-packages",
            "venv",
        ] {
            let list = search_list(&Surroundings {
                named: Some(tree.0.join(named).into()),
                root: tree.0.join("nowhere"),
                ..Default::default()
            });
            assert_eq!(tree.first(&list, FILE), Some(inner.into()), "{named}");
        }
    }

    #[test]
    fn what_is_named_comes_before_environments_and_those_before_the_system() {
        let named = "mine";
        let environment = "venv/lib/python3.11/site-packages/nvidia/cu13/lib";
        let chosen = "usr/local/cuda/lib64";
        let newest = "usr/local/cuda-13.0/lib64";
        let system = "usr/lib/x86_64-linux-gnu";
        let order = [named, environment, chosen, newest, system];
        for present in 0..order.len() {
            let files: Vec<String> = order[present..]
                .iter()
                .chain(&["usr/local/cuda-12.4/lib64"])
                .map(|folder| format!("{folder}/{FILE}"))
                .collect();
            let tree = Tree::new(&files.iter().map(String::as_str).collect::<Vec<_>>());
            let list = std::env::join_paths([tree.0.join("absent"), tree.0.join("mine")]).unwrap();
            let list = search_list(&Surroundings {
                named: Some(list),
                environments: vec![tree.0.join("venv")],
                root: tree.0.clone(),
            });
            let expected = match order[present] {
                folder if folder == system => "usr/local/cuda-12.4/lib64",
                folder => folder,
            };
            assert_eq!(tree.first(&list, FILE), Some(expected.into()));
        }
    }

    #[test]
    fn neighbours_are_named_by_their_versions_alone() {
        let tree = Tree::new(&[
            "libnvrtc-builtins.so.13.0",
            "libnvrtc-builtins.alt.so.13.0",
            "libnvrtc-builtins.so.13.0.txt",
            "libnvrtc.so.13",
        ]);
        let found = named(&tree.0, &["libnvrtc-builtins.so"]);
        assert_eq!(found, [tree.0.join("libnvrtc-builtins.so.13.0")]);
        assert!(named(&tree.0.join("absent"), &["lib"]).is_empty());
    }
}
