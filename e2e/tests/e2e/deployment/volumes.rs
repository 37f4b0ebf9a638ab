//! Writes the volumes of ConfigMaps and Secrets in the kubelet's layout. A file is a symbolic link to a path below
//! `..data`, and `..data` is a symbolic link to a folder. One rename replaces `..data`, and so all files at once.
//!
//! Source: kubernetes/kubernetes `pkg/volume/util/atomic_writer.go`.

use anyhow::Context;
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
};
use tributary_e2e::namespace::unique_name;

pub(super) type Files = BTreeMap<String, String>;

/// Writes the files of a volume, or replaces all existing files. Owner and group may read them, as with `fsGroup` and a
/// `defaultMode` of 0440.
pub(super) fn lay(folder: &Path, files: &Files, group: Option<u32>) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let data = folder.join("..data");
    let before = fs::read_link(&data).ok();
    let name = unique_name("..version");
    let version = folder.join(&name);
    fs::create_dir(&version)?;
    for (name, text) in files {
        let file = version.join(name);
        fs::write(&file, text)?;
        chown(&file, None, group).with_context(|| format!("give {name} to the group"))?;
        fs::set_permissions(&file, Permissions::from_mode(0o440))?;
    }
    let next = folder.join("..data_tmp");
    symlink(&name, &next)?;
    fs::rename(&next, &data)?;
    for name in files.keys() {
        let link = folder.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(name), link)?;
        }
    }
    match before {
        Some(before) => fs::remove_dir_all(folder.join(before)).context("remove what was there before"),
        None => Ok(()),
    }
}
