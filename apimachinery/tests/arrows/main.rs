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
use std::sync::LazyLock;

use graph::Crate;

/// The arrows that close a circle today: crate, the file that names, and the file that is named. Whoever opens a circle
/// deletes its lines; none is added.
const KNOWN: &[(&str, &str, &str)] = &[
    ("apimachinery", "snapshot/field_index.rs", "snapshot.rs"),
    ("bench", "report.rs", "figures.rs"),
    ("server", "config_source.rs", "config_source/kubeconfig_source.rs"),
    ("server", "config_source.rs", "config_source/upstream_clusters.rs"),
    ("server", "metrics.rs", "listener.rs"),
    ("simulator", "api.rs", "watch.rs"),
    ("simulator", "list.rs", "api.rs"),
    ("simulator", "log.rs", "api.rs"),
    ("simulator", "member.rs", "kubeconfig.rs"),
    ("simulator", "view.rs", "store.rs"),
];

/// The workspace's crates by their folders, read once.
static CRATES: LazyLock<BTreeMap<String, Crate>> = LazyLock::new(crates);

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

fn known(name: &str) -> Vec<(&'static str, &'static str)> {
    KNOWN.iter().filter(|(of, _, _)| *of == name).map(|(_, from, to)| (*from, *to)).collect()
}

#[test]
fn no_files_of_a_crate_name_each_other_in_a_circle() {
    assert!(CRATES.len() > 8, "the crates were not found: {:?}", CRATES.keys());
    let mut circles = String::new();
    for (name, read) in &*CRATES {
        for circle in read.circles(&known(name)) {
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

#[test]
fn each_known_arrow_still_closes_a_circle() {
    for (name, from, to) in KNOWN {
        let read = CRATES.get(*name).unwrap_or_else(|| panic!("there is no crate {name}: delete its lines from KNOWN"));
        let others: Vec<_> = known(name).into_iter().filter(|known| *known != (*from, *to)).collect();
        let closes = read.circles(&others).iter().flatten().any(|arrow| arrow.from == *from && arrow.to == *to);
        assert!(closes, "{name}/src/{from} -> {name}/src/{to} closes no circle any more: delete its line from KNOWN");
    }
}
