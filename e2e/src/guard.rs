//! A guard process. If a test process dies without cleaning up (SIGKILL, abort, Ctrl-C), the guard kills the processes
//! of the test and removes its temporary folders.
//!
//! The guard is a small shell script that reads process groups from a pipe. The pipe closes at the end of the test
//! process, and the script then cleans up. This needs no `unsafe` and no parent-death signal, which Linux sends at the
//! end of the spawning *thread*.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock},
};

/// The guard's script. It reads lines `add GROUP`, `del GROUP` and `dir FOLDER` until the end of its input. Then it
/// kills the process groups and removes the folders.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
groups=' '
folders=''
while read -r what value; do
  case $what in
    add) groups="$groups$value " ;;
    del) case $groups in *" $value "*) groups="${groups%% "$value" *} ${groups#* "$value" }" ;; esac ;;
    dir) folders="$folders $value" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for folder in $folders; do rm -rf -- "$folder"; done
"#;

struct Guard {
    input: Mutex<ChildStdin>,
    /// Guard script. The test process never waits for the script, because the script ends after the test process.
    _script: Child,
}

fn guard() -> Option<&'static Guard> {
    static GUARD: OnceLock<Option<Guard>> = OnceLock::new();
    GUARD
        .get_or_init(|| {
            let mut script = Command::new("sh")
                .args(["-c", SCRIPT])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .inspect_err(|error| tracing::warn!(%error, "no guard process: a crash may leave processes behind"))
                .ok()?;
            let input = script.stdin.take()?;
            Some(Guard { input: Mutex::new(input), _script: script })
        })
        .as_ref()
}

fn print_line(line: &str) {
    let Some(guard) = guard() else { return };
    if let Ok(mut input) = guard.input.lock() {
        let _guard_gone = input.write_all(line.as_bytes());
    }
}

/// Registers a process group with the guard.
pub(crate) fn add_group(group: u32) {
    print_line(&format!("add {group}\n"));
}

/// Removes an ended process group from the guard's list, so that the guard does not kill a new group with the same ID.
pub(crate) fn remove_group(group: u32) {
    print_line(&format!("del {group}\n"));
}

/// Lets the guard remove a temporary folder at the end of this process, if the folder still exists. The guard ignores
/// paths with blanks, because the script splits lines at blanks.
pub fn remove_folder_at_exit(folder: &Path) {
    if let Some(folder) = folder.to_str().filter(|folder| !folder.contains(char::is_whitespace)) {
        print_line(&format!("dir {folder}\n"));
    }
}

/// Creates a temporary folder. The returned value removes the folder on drop. If the process dies first, the guard
/// removes the folder.
///
/// # Errors
///
/// If the folder cannot be created.
pub fn temporary_folder(prefix: &str) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix(&format!("tributary-e2e-{prefix}-")).tempdir()?;
    remove_folder_at_exit(folder.path());
    Ok(folder)
}
