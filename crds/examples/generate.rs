//! Writes the CustomResourceDefinitions to `deploy/crds`, or to the directory in the first argument.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| default.into()));
    std::fs::create_dir_all(&directory)?;
    for manifest in tributary_crds::render::manifests()? {
        std::fs::write(directory.join(&manifest.file_name), &manifest.yaml)?;
    }
    Ok(())
}
