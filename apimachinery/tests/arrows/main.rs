//! Tests that neither the files of a crate nor its top-level modules form a cycle. A reader then understands a file or
//! module from the files that it names, and a change of a caller does not change its callee. Cargo forbids cycles of
//! crates.
//!
//! The test reads `use` lines and paths that begin with `crate`, `super` or `self`, outside of tests. Between files, a
//! re-export counts as a dependency on the file that defines the name. A parent that only declares or re-exports its
//! children does not depend on them. Between modules, a re-export counts as a dependency on the module that re-exports.
//! The test ignores method calls.
//!
//! The test is part of this crate because cargo builds this crate first.
#![allow(clippy::unwrap_used, reason = "a panic is how a test and its helpers fail")]

mod graph;
mod source;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use graph::{Arrow, Crate};

/// Collects all Rust files below a folder. The keys are paths in the folder, with `/`.
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

/// Returns the workspace's crates by their folders. A crate's folder may contain other crates.
fn crates() -> BTreeMap<String, Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut crates = BTreeMap::new();
    add_crates(root, "", &mut crates);
    crates
}

fn add_crates(folder: &Path, within: &str, crates: &mut BTreeMap<String, Crate>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("Cargo.toml").exists() && folder.join("src").exists() {
            let mut found = BTreeMap::new();
            files(&folder.join("src"), "", &mut found);
            let name = format!("{within}{}", folder.file_name().unwrap().to_str().unwrap());
            crates.insert(name.clone(), Crate::read(&found));
            add_crates(&folder, &format!("{name}/"), crates);
        }
    }
}

/// Panics if a crate has a dependency cycle, with a line for each dependency of the cycle. The crates in `but` are
/// excluded.
fn assert_no_cycles(of: &str, but: &[&str], cycles: fn(&Crate) -> Vec<Vec<Arrow>>) {
    let crates = crates();
    assert!(crates.len() > 12, "the crates were not found: {:?}", crates.keys());
    let mut found = String::new();
    for (name, read) in crates.iter().filter(|(name, _)| !but.contains(&name.as_str())) {
        for cycle in cycles(read) {
            found.push_str(&format!("in {name}, these {} {of} form a cycle:\n", cycle.len()));
            for Arrow { file, line, path, to, .. } in cycle {
                found.push_str(&format!("  {name}/src/{file}:{line}: {path} ({to})\n"));
            }
        }
    }
    assert!(found.is_empty(), "{found}Move the items that both sides name into a file or module below them.");
}

#[test]
fn source_files_of_each_crate_form_no_dependency_cycle() {
    assert_no_cycles("files", &[], Crate::file_cycles);
}

#[test]
fn top_level_modules_of_each_crate_form_no_dependency_cycle() {
    assert_no_cycles("modules", &[], Crate::module_cycles);
}

/// At most two crates may define a type with the same name, so that a reader finds the definition of a name quickly.
/// Types inside functions and tests are excluded.
#[test]
fn type_name_occurs_in_at_most_two_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut definitions = BTreeMap::<String, Vec<(String, String)>>::new();
    for name in crates().into_keys().filter(|name| !FOR_TESTS.contains(&name.as_str())) {
        let mut found = BTreeMap::new();
        files(&root.join(&name).join("src"), "", &mut found);
        for (path, text) in found.iter().filter(|(path, _)| !path.ends_with("tests.rs") && !path.contains("tests/")) {
            for defined in source::code(text).lines().filter_map(defined_type) {
                definitions.entry(defined).or_default().push((name.clone(), format!("{name}/src/{path}")));
            }
        }
    }
    assert!(definitions.len() > 1_000, "the types were not found");
    let is_repeated = |of: &Vec<(String, String)>| {
        let crates: BTreeSet<_> = of.iter().map(|(name, _)| name).collect();
        crates.len() > 2 || crates.len() < of.len()
    };
    definitions.retain(|_, of| is_repeated(of));
    assert!(definitions.is_empty(), "a name in more than two crates, or twice in one: {definitions:#?}");
}

/// Crates for tests and benchmarks. No crate of the product depends on them.
const FOR_TESTS: [&str; 5] = ["simulator", "e2e", "bench", "fuzz-properties", "fuzz"];

/// Returns the name of the type that a line at the top level of a file defines; `None` if the line defines no type.
fn defined_type(line: &str) -> Option<String> {
    let rest =
        line.strip_prefix("pub ").or_else(|| Some(line.strip_prefix("pub(")?.split_once(") ")?.1)).unwrap_or(line);
    let mut words = rest.split(' ');
    let is_type = ["struct", "enum", "trait", "type"].contains(&words.next()?);
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    is_type.then(|| name.to_owned())
}
