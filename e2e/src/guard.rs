//! A guard process that outlives a test process which dies without cleaning up (SIGKILL, abort, Ctrl-C), kills what
//! that process started and removes its temporary folders.
//!
//! It is a small shell script that reads the process groups from a pipe. The pipe closes when the test process ends, in
//! whatever way, and then the script acts. This needs neither `unsafe` nor a parent-death signal (which fires when the
//! *thread* that spawned ends, not the process).

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock},
};

/// Reads `add GROUP`, `del GROUP` and `dir FOLDER` lines until the end of its input, then kills and removes.
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
    /// Kept so that the pipe's reader is known to live; never waited for: it ends after this process.
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

/// Puts a process group under guard.
pub(crate) fn add_group(group: u32) {
    print_line(&format!("add {group}\n"));
}

/// Removes a process group that has ended from the guard, so that a reused id is never killed.
pub(crate) fn remove_group(group: u32) {
    print_line(&format!("del {group}\n"));
}

/// Removes a temporary folder at the end of this process, if it still exists. Paths with blanks are ignored silently,
/// because the script splits at blanks.
pub fn remove_folder_at_exit(folder: &Path) {
    if let Some(folder) = folder.to_str().filter(|folder| !folder.contains(char::is_whitespace)) {
        print_line(&format!("dir {folder}\n"));
    }
}

/// A temporary folder that is removed on drop, or by the guard.
///
/// # Errors
/// Where the system refuses the folder.
pub fn temporary_folder(prefix: &str) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix(&format!("tributary-e2e-{prefix}-")).tempdir()?;
    remove_folder_at_exit(folder.path());
    Ok(folder)
}
