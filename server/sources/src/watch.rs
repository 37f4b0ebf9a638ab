//! Watches configuration files for changes.
//!
//! The watch covers directories, not files, because editors replace files, and the kubelet swaps the symbolic link
//! `..data`. Some file systems (network mounts) report no changes, so the content is also checked at long intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The pause between the first notification and reading the files. Changes come in bursts (write, rename, chmod).
const DEBOUNCE: Duration = Duration::from_millis(300);
/// The interval of content checks without a notification.
const SLOW_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Watches a changing set of files and directories.
pub struct FileWatch {
    watcher: Option<RecommendedWatcher>,
    directories: BTreeSet<PathBuf>,
    events: mpsc::Receiver<()>,
    files: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Option<[u8; 32]>>,
    /// The time of the next check of the files: shortly after a notification, or else after [`SLOW_CHECK_INTERVAL`].
    /// The time is a field, not part of a future, because callers cancel `changed` when another event occurs, and call
    /// it again.
    due: Instant,
}

impl FileWatch {
    /// Creates a watch without files. If the operating system offers no file notifications, only the periodic check
    /// detects changes.
    pub fn new() -> Self {
        // A capacity of one suffices, because one pending notification triggers a check of all files.
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| concerns_contents(&event.kind)) {
                // Sending fails if a notification is already pending in the channel, which suffices.
                let _ = sender.try_send(());
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "changes of files are not reported; files are checked once a minute"),
            )
            .ok();
        Self {
            watcher,
            directories: BTreeSet::new(),
            events,
            files: Vec::new(),
            seen: BTreeMap::new(),
            due: Instant::now() + SLOW_CHECK_INTERVAL,
        }
    }

    /// Sets the watched files and directories. The next check compares a new file with its content at this call, and an
    /// already watched file with its content at the last check. So a change during a read of the configuration is not
    /// lost.
    pub fn set(&mut self, files: Vec<PathBuf>) {
        let before = std::mem::take(&mut self.seen);
        self.seen = contents(&files);
        for (file, digest) in &mut self.seen {
            if let Some(known) = before.get(file) {
                *digest = *known;
            }
        }
        self.set_directories(files.iter().flat_map(|file| directories_of(file)).collect());
        self.files = files;
    }

    /// Waits until the content of a watched file has changed.
    ///
    /// Cancel: safe. A received notification and the time of the next check are stored in `self`.
    pub async fn changed(&mut self) {
        loop {
            tokio::select! {
                // Without a file watcher, this branch receives no events, and only the periodic check detects changes.
                Some(()) = self.events.recv() => self.due = self.due.min(Instant::now() + DEBOUNCE),
                () = sleep_until(self.due) => {
                    self.due = Instant::now() + SLOW_CHECK_INTERVAL;
                    let now = contents(&self.files);
                    if now != self.seen {
                        self.seen = now;
                        return;
                    }
                }
            }
        }
    }

    fn set_directories(&mut self, directories: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.directories.difference(&directories) {
            // The watch of a removed directory no longer exists, so the error is ignored.
            let _ = watcher.unwatch(gone);
        }
        for new in directories.difference(&self.directories) {
            if let Err(error) = watcher.watch(new, RecursiveMode::NonRecursive) {
                tracing::warn!(directory = %new.display(), %error, "changes in this directory are only found within a minute");
            }
        }
        self.directories = directories;
    }
}

impl Default for FileWatch {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether a file system event may change a file's content. Events of reads are ignored, because each check
/// reads the files and would trigger the next check.
fn concerns_contents(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
}

/// Returns the directories whose changes may affect a file: its own directory, and the directory of a symbolic link's
/// target.
fn directories_of(file: &Path) -> Vec<PathBuf> {
    if file.is_dir() {
        return vec![file.to_owned()];
    }
    let parent = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        parent => parent.map(Path::to_owned),
    };
    let target = fs::canonicalize(file).ok();
    [parent(file), target.as_deref().and_then(parent)].into_iter().flatten().collect()
}

/// Returns a digest for each of these files, and for each file in these directories. The digest is `None` for an
/// unreadable file.
fn contents(files: &[PathBuf]) -> BTreeMap<PathBuf, Option<[u8; 32]>> {
    let mut digests = BTreeMap::new();
    for file in files {
        match fs::read_dir(file) {
            Ok(entries) => {
                let entries = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
                digests.extend(entries.map(|path| (path.clone(), digest(&path))));
            }
            Err(_) => drop(digests.insert(file.clone(), digest(file))),
        }
    }
    digests
}

fn digest(file: &Path) -> Option<[u8; 32]> {
    fs::read(file).ok().map(|bytes| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the watch detects a change before its periodic check.
    async fn changes(watch: &mut FileWatch) -> bool {
        tokio::time::timeout(SLOW_CHECK_INTERVAL * 3 / 4, watch.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn file_watch_detects_replaced_new_and_removed_files() {
        let parent = tempfile::tempdir().unwrap();
        let (config, other) = (parent.path().join("config"), parent.path().join("other"));
        let directory = parent.path().join("directory");
        fs::create_dir(&directory).unwrap();
        fs::write(&config, "one").unwrap();
        let mut watch = FileWatch::new();
        watch.set(vec![config.clone(), directory.clone()]);
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &config).unwrap();
        assert!(changes(&mut watch).await, "a rename over the file");
        fs::write(directory.join("new.yaml"), "three").unwrap();
        assert!(changes(&mut watch).await, "a new file in the directory");
        fs::remove_file(&config).unwrap();
        assert!(changes(&mut watch).await, "the file is gone");
    }

    /// In a pod's volume, the kubelet writes a new directory, and then replaces the symbolic link `..data`, through
    /// which all files are linked.
    #[tokio::test]
    async fn file_watch_detects_each_update_of_a_mounted_volume() {
        use std::os::unix::fs::symlink;

        let volume = tempfile::tempdir().unwrap();
        let path = |name: &str| volume.path().join(name);
        let exchange = |version: &str| {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("token"), version).unwrap();
            symlink(version, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
        };
        exchange("..1");
        symlink("..data/token", path("token")).unwrap();
        for files in [vec![path("token")], vec![volume.path().to_owned()]] {
            let mut watch = FileWatch::new();
            watch.set(files.clone());
            for version in ["..2", "..3"].map(|version| format!("{version}.{}", files[0].is_dir())) {
                let before = fs::read_link(path("..data")).unwrap();
                exchange(&version);
                fs::remove_dir_all(volume.path().join(before)).unwrap();
                assert!(changes(&mut watch).await, "{version} of {files:?}");
                // Like `serve`, the test sets the watched files again after each read.
                watch.set(files.clone());
            }
        }
    }

    /// Cancels and repeats the wait for changes, as a loop with other events does.
    async fn changes_in_turns(watch: &mut FileWatch, turn: Duration) -> bool {
        for _ in 0..2_000 {
            if tokio::time::timeout(turn, watch.changed()).await.is_ok() {
                return true;
            }
        }
        false
    }

    #[tokio::test]
    async fn cancelled_wait_for_file_changes_loses_no_notification() {
        let parent = tempfile::tempdir().unwrap();
        let config = parent.path().join("config");
        fs::write(&config, "one").unwrap();
        let mut watch = FileWatch::new();
        watch.set(vec![config.clone()]);
        fs::write(&config, "two").unwrap();
        // Each cancelled wait is shorter than the pause between a notification and the check.
        assert!(changes_in_turns(&mut watch, Duration::from_millis(20)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waits_for_file_changes_do_not_postpone_the_periodic_check() {
        let parent = tempfile::tempdir().unwrap();
        let config = parent.path().join("config");
        fs::write(&config, "one").unwrap();
        let mut watch = FileWatch::new();
        watch.watcher = None;
        watch.set(vec![config.clone()]);
        fs::write(&config, "two").unwrap();
        assert!(changes_in_turns(&mut watch, Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn file_watch_ignores_reads_and_rewrites_of_equal_content() {
        let parent = tempfile::tempdir().unwrap();
        let config = parent.path().join("config");
        fs::write(&config, "one").unwrap();
        let mut watch = FileWatch::new();
        watch.set(vec![config.clone()]);
        fs::read(&config).unwrap();
        fs::write(&config, "one").unwrap();
        let quiet = tokio::time::timeout(Duration::from_secs(1), watch.changed()).await;
        assert!(quiet.is_err());
    }
}
