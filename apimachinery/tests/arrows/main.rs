//! No circle between the files of a crate: each can be understood from those that it names, and a stage is changed
//! without the one that calls it. Between crates cargo sees to it.
//!
//! What is read are `use` lines and paths that begin with `crate`, `super` or `self`, outside of tests. A re-export
//! counts for the file that defines the name; a parent that declares or re-exports its children names nobody. Not seen
//! are method calls.
//!
//! It stands here because this crate is built first: a circle is known before anything else is.
#![allow(clippy::unwrap_used, reason = "a panic is how a test and its helpers fail")]

mod graph;
mod source;
mod uses;

use std::collections::BTreeMap;
use std::path::Path;

use graph::Crate;

/// All Rust files below a folder, by their paths in it, with `/`.
fn files(folder: &Path, within: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if within.is_empty() { name.clone() } else { format!("{within}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), &path, found);
        } else if name.ends_with(".rs") {
            found.insert(path, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

/// The workspace's crates by their folders.
fn crates() -> BTreeMap<String, Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("Cargo.toml").exists() && folder.join("src").exists() {
            let mut found = BTreeMap::new();
            files(&folder.join("src"), "", &mut found);
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            crates.insert(name, Crate::read(&found));
        }
    }
    crates
}

#[test]
fn no_files_of_a_crate_name_each_other_in_a_circle() {
    let crates = crates();
    assert!(crates.len() > 8, "the crates were not found: {:?}", crates.keys());
    let mut circles = String::new();
    for (name, read) in &crates {
        for circle in read.circles() {
            circles.push_str(&format!("in {name}, these {} arrows are a circle:\n", circle.len()));
            for arrow in circle {
                circles.push_str(&format!(
                    "  {name}/src/{}:{}: {} ({name}/src/{})\n",
                    arrow.from, arrow.line, arrow.path, arrow.to
                ));
            }
        }
    }
    assert!(circles.is_empty(), "{circles}Move what both sides name into a file below them.");
}
