//! Notifies about changes of configuration files.
//!
//! Directories are watched, not files: editors replace files, and the kubelet swaps the link `..data`. Some file
//! systems (network mounts) report no changes, so the content is also checked at long intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Changes come in bursts (write, rename, chmod); this long after the first the files are read.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// Interval of checks without a notification.
const SLOW_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Watches a changing set of files and directories.
pub struct FileWatch {
    watcher: Option<RecommendedWatcher>,
    directories: BTreeSet<PathBuf>,
    events: mpsc::Receiver<()>,
    files: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Option<[u8; 32]>>,
    /// Time of the next check: soon after a notification, otherwise by the interval. Stored here and not in a future,
    /// because callers wait for other events as well and start again each time.
    due: Instant,
}

impl FileWatch {
    /// Watches nothing yet. Where the system offers no notifications, the slow check alone finds changes.
    pub fn new() -> Self {
        // One pending notification suffices.
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| concerns_contents(&event.kind)) {
                // Full means that a notice is pending already.
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

    /// Sets the watched files and directories. The current content of new ones counts as seen; for known ones the
    /// content of the last notification, so that a change during a read is not lost.
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

    /// Waits until the contents of a watched file have changed.
    ///
    /// Cancel: safe at any point; a notice that was taken, and the time until the slow check, outlive the future.
    pub async fn changed(&mut self) {
        loop {
            tokio::select! {
                // Without a watcher there are no events, only the interval.
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
            // A removed file has no watch any more.
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

/// Reads are events, too, and would cause further reads without end.
fn concerns_contents(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
}

/// The directories in which a change of a file can show: its own, and that of the file that a link leads to.
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

/// Digests of the content of files, and of the files in directories. `None` for an unreadable one.
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

    /// Returns whether a change is noticed before the slow check.
    async fn changes(watch: &mut FileWatch) -> bool {
        tokio::time::timeout(SLOW_CHECK_INTERVAL * 3 / 4, watch.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn replaced_linked_and_new_files_are_noticed() {
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

    /// A volume of a pod: the kubelet writes a directory, and exchanges the link `..data` through which each file is a
    /// link.
    #[tokio::test]
    async fn each_exchange_of_a_mounted_volume_is_noticed() {
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
                // The watch is set after each read.
                watch.set(files.clone());
            }
        }
    }

    /// Waits in short turns, as a loop does that has other things to do.
    async fn changes_in_turns(watch: &mut FileWatch, turn: Duration) -> bool {
        for _ in 0..2_000 {
            if tokio::time::timeout(turn, watch.changed()).await.is_ok() {
                return true;
            }
        }
        false
    }

    #[tokio::test]
    async fn an_interrupted_wait_loses_no_notice() {
        let parent = tempfile::tempdir().unwrap();
        let config = parent.path().join("config");
        fs::write(&config, "one").unwrap();
        let mut watch = FileWatch::new();
        watch.set(vec![config.clone()]);
        fs::write(&config, "two").unwrap();
        // Each turn is shorter than the pause after a notice.
        assert!(changes_in_turns(&mut watch, Duration::from_millis(20)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn interrupted_waits_reach_the_slow_check() {
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
    async fn reading_and_rewriting_the_same_is_no_change() {
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
