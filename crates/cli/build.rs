//! Finds out whether the page of `rrvq serve` lies beside this crate: it does in the repository, not in a package of the crate.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(page_inside)");
    println!("cargo::rerun-if-changed=../../web/index.html");
    if Path::new("../../web/index.html").exists() {
        println!("cargo::rustc-cfg=page_inside");
    }
}
