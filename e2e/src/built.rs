//! Whether a program that cargo has built is one of the sources as they are now.
//!
//! Cargo writes `tributary.d` beside the program for `cargo build` alone. The lists of sources by which it judges
//! itself what to build, one for each crate in `deps`, are there whatever has built the program.

use anyhow::{Context, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The crate of the program itself, and how the names of all that are ours begin.
const PROGRAM: &str = "tributary";

/// Crates of ours that no program has: a change of them makes none old.
const BESIDE: [&str; 3] = ["tributary_bench", "tributary_e2e", "tributary_fuzz_properties"];

/// How a program of now is made.
pub(crate) const REMEDY: &str = "run `cargo test --workspace --no-run --locked` (for the benchmarks `cargo build \
                                 --profile dist -p tributary-server --locked`), or name another program in \
                                 TRIBUTARY_BIN";

/// Makes sure that no source of a program has changed since the program was built. `workspace` is where the paths of
/// sources begin. Cost: a look at each of a thousand files.
///
/// # Errors
/// Which source has changed, and what helps; and where cargo's lists of sources are not beside the program.
pub(crate) fn ensure_of_now(program: &Path, workspace: &Path) -> anyhow::Result<()> {
    let built = changed(program).with_context(|| format!("look at {}", program.display()))?;
    let lists = program.with_file_name("deps");
    let sources = sources(&lists).with_context(|| format!("read what {} is made of", program.display()))?;
    ensure!(!sources.is_empty(), "{} does not say what {} is made of: {REMEDY}", lists.display(), program.display());
    for source in sources {
        // One that is gone was left out of what was built since.
        let is_newer = changed(&workspace.join(&source)).is_ok_and(|changed| changed > built);
        ensure!(!is_newer, "{} is older than {}: {REMEDY}", program.display(), source.display());
    }
    Ok(())
}

fn changed(path: &Path) -> std::io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// The sources of the program and of its libraries, without those of tests alone.
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
            // A library's tests are a program, and what is only looked at by clippy is no library.
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

/// The paths of a line. A space within one has a backslash before it.
fn paths(line: &str) -> Vec<PathBuf> {
    let marked = line.replace("\\ ", "\0");
    marked.split(' ').filter(|path| !path.is_empty()).map(|path| PathBuf::from(path.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Writes a file that was last changed then, in seconds.
    fn write(path: &Path, text: &str, changed: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(changed)).unwrap();
    }

    #[test]
    fn a_program_is_old_once_one_of_its_sources_is_newer() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let program = path("target/debug/tributary");
        write(&program, "", 10);
        let ensure_of_now = || ensure_of_now(&program, folder.path()).map_err(|error| format!("{error:#}"));
        write(&path("target/debug/deps/other-1.d"), "/deps/libother-1.rlib: other.rs\n", 0);
        assert!(ensure_of_now().unwrap_err().contains("does not say"), "it is not known what it is made of");

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
        // Those are no part of it.
        for source in ["other.rs", "router/src/tests.rs", "e2e/src/lib.rs"] {
            write(&path(source), "", 11);
        }
        assert_eq!(ensure_of_now(), Ok(()));
        for source in ["server/src/main.rs", "router/src/lib.rs", "router/src/a b.rs"] {
            write(&path(source), "", 11);
            let said = ensure_of_now().unwrap_err();
            assert!(said.contains(source) && said.contains("cargo test --workspace --no-run --locked"), "{said}");
            write(&path(source), "", 10);
            assert_eq!(ensure_of_now(), Ok(()), "{source} is as old");
        }
    }
}
