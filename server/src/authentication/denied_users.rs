//! Reads the file of denied users, and detects its changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tributary_crds::denied_users::{self, DeniedUsersError};

/// The interval between two reads of the file of denied users. With 1 s, the open streams of a denied user end within 2
/// s. Polling works on all file systems (network mounts report no changes), and a read costs some microseconds.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DeniedUsersFileError {
    /// The file of denied users cannot be read.
    #[error("--denied-users-file {}: the file cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The content of the file of denied users is invalid.
    #[error("--denied-users-file {}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: DeniedUsersError,
    },
}

/// The file of denied users, with its last valid content.
pub(crate) struct DeniedUsersFile {
    path: PathBuf,
    denied: BTreeSet<String>,
    /// The problem of the file of denied users, if the last read failed. Each problem is logged once.
    problem: Option<String>,
}

impl DeniedUsersFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`DeniedUsersFileError`].
    pub(crate) async fn open(path: &Path) -> Result<Self, DeniedUsersFileError> {
        Ok(Self { denied: read(path).await?, path: path.to_owned(), problem: None })
    }

    pub(crate) fn denied(&self) -> &BTreeSet<String> {
        &self.denied
    }

    /// Waits until the set of denied users changes. An invalid or missing file is logged, and does not change the set.
    /// Cancel: safe.
    pub(crate) async fn changed(&mut self) {
        let mut look = tokio::time::interval(INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Without this reset, the interval's first tick would complete at once, although the file has just been read.
        look.reset();
        loop {
            look.tick().await;
            match read(&self.path).await {
                Ok(denied) => {
                    if self.problem.take().is_some() {
                        tracing::info!(path = %self.path.display(), "the file of denied users can be used again");
                    }
                    if denied != self.denied {
                        tracing::info!(users = denied.len(), "other users are denied");
                        self.denied = denied;
                        return;
                    }
                }
                Err(error) => self.log_error(&error),
            }
        }
    }

    fn log_error(&mut self, error: &DeniedUsersFileError) {
        let reason = tributary_apimachinery::explain(error);
        if self.problem.as_ref() != Some(&reason) {
            tracing::error!(reason, "the file of denied users is invalid; the previous content stays in use");
            self.problem = Some(reason);
        }
    }
}

async fn read(path: &Path) -> Result<BTreeSet<String>, DeniedUsersFileError> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|source| DeniedUsersFileError::Read { path: path.to_owned(), source })?;
    denied_users::parse(&text).map_err(|source| DeniedUsersFileError::Content { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::{Instant, timeout};

    use super::*;

    fn text(names: &str) -> String {
        format!("apiVersion: tributary.dev/v1alpha1\nkind: DeniedUsers\ndeniedUsers: [{names}]\n")
    }

    fn names(file: &DeniedUsersFile) -> String {
        file.denied().iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test(start_paused = true)]
    async fn denied_users_file_is_reread_within_two_seconds_of_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("denied.yaml");
        assert!(DeniedUsersFile::open(&path).await.is_err(), "at the start it has to be there");
        fs::write(&path, text("ann")).unwrap();
        let mut file = DeniedUsersFile::open(&path).await.unwrap();
        assert_eq!(names(&file), "ann");
        assert!(timeout(Duration::from_secs(600), file.changed()).await.is_err(), "nothing has changed");
        for (content, expected) in
            [(text("ann, bob"), "ann bob"), (text("bob"), "bob"), (text(""), ""), (text("c"), "c")]
        {
            fs::write(&path, content).unwrap();
            let changed = Instant::now();
            file.changed().await;
            assert!(changed.elapsed() <= Duration::from_secs(2), "{:?}", changed.elapsed());
            assert_eq!(names(&file), expected);
        }
        for broken in ["", "deniedUsers: []", "\u{0}"] {
            fs::write(&path, broken).unwrap();
            assert!(timeout(Duration::from_secs(60), file.changed()).await.is_err(), "{broken:?}");
        }
        fs::remove_file(&path).unwrap();
        assert!(timeout(Duration::from_secs(60), file.changed()).await.is_err(), "it is gone");
        assert_eq!(names(&file), "c");
        fs::write(&path, text("d")).unwrap();
        file.changed().await;
        assert_eq!(names(&file), "d");
    }
}
