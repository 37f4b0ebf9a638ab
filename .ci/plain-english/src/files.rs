//! Finds the files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files with this extension below `root`, as sorted paths relative to `root`. Build results, hidden
/// folders except `.ci`, and files written by tests or fuzzers are skipped.
pub(crate) fn with_extension(root: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if root.join(&path).is_dir() {
                let is_skipped = name.starts_with('.') && name != ".ci";
                if !is_skipped && !matches!(name.as_str(), "target" | "vendor" | "corpus" | "artifacts") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|own| own == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the folder of a file's crate: the nearest parent folder with a `Cargo.toml`.
pub(crate) fn crate_of(root: &Path, path: &Path) -> String {
    let mut above = path.ancestors().skip(1);
    let folder = above.find(|folder| root.join(folder).join("Cargo.toml").exists());
    folder.unwrap_or(Path::new("")).display().to_string()
}
