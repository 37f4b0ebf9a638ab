//! Tests of `deploy/container/build.sh`, which builds the released program. In the tests, a script replaces `cargo` and
//! compiles nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// A target with a profile for profile-guided optimization.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs `build.sh` with a script instead of `cargo`, in a folder with a space in its name. The tested binary takes the
/// place of the built program. Afterwards, the file `flags` contains the compiler's flags, one per line.
fn build(folder: &Path, unguided: &str) -> Output {
    let (programs, objects) = (folder.join("pro grams"), folder.join("tar get"));
    let built = objects.join("static").join(TARGET).join("dist");
    fs::create_dir_all(&programs).unwrap();
    fs::create_dir_all(&built).unwrap();
    symlink(env!("CARGO_BIN_EXE_tributary"), built.join("tributary")).unwrap();
    let cargo = programs.join("cargo");
    let told = folder.join("flags");
    let tells = format!("#!/bin/sh\nprintf %s \"$CARGO_ENCODED_RUSTFLAGS\" | tr '\\037' '\\n' >'{}'", told.display());
    fs::write(&cargo, tells).unwrap();
    fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/container/build.sh");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(script);
    command.arg(folder.join("image")).env("PATH", path).env("CARGO_TARGET_DIR", objects).env("TARGET", TARGET);
    command.env("UNGUIDED", unguided).env_remove("PROFILE").env("RUSTFLAGS", "-C debuginfo=0").output().unwrap()
}

/// The compiler does not warn about a profile that was recorded from another program. The built program would be
/// slower.
#[test]
fn build_refuses_a_profile_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a b");
    let output = build(&folder, "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("it is of other versions") && errors.contains("UNGUIDED=1"), "{errors}");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let flags = fs::read_to_string(folder.join("flags")).unwrap();
    let guided = format!("profile-use={}/tar get/static/", folder.display());
    assert!(flags.lines().any(|flag| flag.starts_with(&guided)), "a path is one flag: {flags}");
    for flag in ["debuginfo=0", "target-feature=+crt-static"] {
        assert!(flags.lines().any(|own| own == flag), "{flags}");
    }
}

#[test]
fn build_without_a_profile_prints_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let output = build(folder.path(), "1");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("not guided by a profile"), "{errors}");
    // The program in this test is dynamically linked, which is a second error.
    assert!(errors.contains("needs a dynamic linker"), "{errors}");
    let flags = fs::read_to_string(folder.path().join("flags")).unwrap();
    assert!(!flags.contains("profile-use"), "{flags}");
}
