//! Checks that a program is built from the current sources.
//!
//! Cargo writes `tributary.d` beside the program only for `cargo build`. This check therefore reads the lists of
//! sources in `deps`, one per crate, which every kind of build writes and cargo itself uses.

use anyhow::{Context, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Name of the program's crate. The names of all workspace crates begin with this name.
const PROGRAM: &str = "tributary";

/// Workspace crates that are not part of the program, so a change of their sources does not make the program outdated.
const BESIDE: [&str; 3] = ["tributary_bench", "tributary_e2e", "tributary_fuzz_properties"];

pub(crate) const REMEDY: &str = "run `cargo test --workspace --no-run --locked` (for the benchmarks `cargo build \
                                 --profile dist -p tributary-server --locked`), or name another program in \
                                 TRIBUTARY_BIN";

/// Checks that the program is not older than any of its source files. Relative paths of sources are below `workspace`.
/// Reads the modification times of about a thousand files.
///
/// # Errors
/// If a source is newer, with [`REMEDY`] in the message, or if cargo's lists of sources are not beside the program.
pub(crate) fn ensure_up_to_date(program: &Path, workspace: &Path) -> anyhow::Result<()> {
    let built = changed(program).with_context(|| format!("look at {}", program.display()))?;
    let lists = program.with_file_name("deps");
    let sources = sources(&lists).with_context(|| format!("read what {} is made of", program.display()))?;
    ensure!(!sources.is_empty(), "{} does not say what {} is made of: {REMEDY}", lists.display(), program.display());
    for source in sources {
        // A source file that no longer exists is not part of the program, so its time does not matter.
        let is_newer = changed(&workspace.join(&source)).is_ok_and(|changed| changed > built);
        ensure!(!is_newer, "{} is older than {}: {REMEDY}", program.display(), source.display());
    }
    Ok(())
}

fn changed(path: &Path) -> std::io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// Returns the source files of the program and of its libraries, without test sources.
fn sources(lists: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut sources = BTreeSet::new();
    for entry in fs::read_dir(lists)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((of, _hash)) = name.strip_suffix(".d").and_then(|name| name.rsplit_once('-')) else { continue };
        if !of.starts_with(PROGRAM) || BESIDE.contains(&of) {
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            let Some((made, from)) = line.split_once(": ") else { continue };
            // Only the library (`.rlib`) goes into the program. The unit tests of a library are a separate program, and
            // clippy writes no `.rlib` file.
            let is_in_program = match Path::new(made).extension() {
                Some(extension) => extension == "rlib",
                None => of == PROGRAM,
            };
            if is_in_program {
                sources.extend(paths(from));
            }
        }
    }
    Ok(sources)
}

/// Splits the paths in a line of one of cargo's source lists. A backslash escapes a space within a path.
fn paths(line: &str) -> Vec<PathBuf> {
    let marked = line.replace("\\ ", "\0");
    marked.split(' ').filter(|path| !path.is_empty()).map(|path| PathBuf::from(path.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Writes a file and sets its modification time, in seconds since the epoch.
    fn write(path: &Path, text: &str, changed: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(changed)).unwrap();
    }

    #[test]
    fn built_program_is_outdated_if_a_source_file_is_newer() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let program = path("target/debug/tributary");
        write(&program, "", 10);
        let ensure_up_to_date = || ensure_up_to_date(&program, folder.path()).map_err(|error| format!("{error:#}"));
        write(&path("target/debug/deps/other-1.d"), "/deps/libother-1.rlib: other.rs\n", 0);
        assert!(ensure_up_to_date().unwrap_err().contains("does not say"), "it is not known what it is made of");

        write(&path("target/debug/deps/tributary-1.d"), "/deps/tributary-1: server/src/main.rs\n", 0);
        write(
            &path("target/debug/deps/tributary_router-2.d"),
            "/deps/tributary_router-2.d: router/src/lib.rs router/src/a\\ b.rs router/src/gone.rs\n\n\
             /deps/libtributary_router-2.rlib: router/src/lib.rs router/src/a\\ b.rs router/src/gone.rs\n\n\
             router/src/lib.rs:\n",
            0,
        );
        for (name, made) in [
            ("tributary_router-3", "/deps/tributary_router-3: router/src/tests.rs"),
            ("tributary_router-4", "/deps/libtributary_router-4.rmeta: router/src/tests.rs"),
            ("tributary_e2e-5", "/deps/libtributary_e2e-5.rlib: e2e/src/lib.rs"),
        ] {
            write(&path(&format!("target/debug/deps/{name}.d")), &format!("{made}\n"), 0);
        }
        for source in ["server/src/main.rs", "router/src/lib.rs", "router/src/a b.rs"] {
            write(&path(source), "", 9);
        }
        // Cargo does not build the program from these files, so newer copies of them do not make the program outdated.
        for source in ["other.rs", "router/src/tests.rs", "e2e/src/lib.rs"] {
            write(&path(source), "", 11);
        }
        assert_eq!(ensure_up_to_date(), Ok(()));
        for source in ["server/src/main.rs", "router/src/lib.rs", "router/src/a b.rs"] {
            write(&path(source), "", 11);
            let said = ensure_up_to_date().unwrap_err();
            assert!(said.contains(source) && said.contains("cargo test --workspace --no-run --locked"), "{said}");
            write(&path(source), "", 10);
            assert_eq!(ensure_up_to_date(), Ok(()), "{source} is as old");
        }
    }
}
