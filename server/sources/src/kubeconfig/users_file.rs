//! Changes a user's own kubeconfig, such as `~/.kube/config`: adds and removes this program's entries.
//!
//! A new file replaces the old one, so that readers always get a complete file. The file's owner, links and mode stay,
//! except that only the owner may read a file with a token. As in kubectl, a lock file excludes concurrent writers: the
//! kubeconfig's name and `.lock`.
//!
//! Source: client-go `tools/clientcmd/loader.go` (`lockFile`).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::entries::{self, ChangeError, Entries, Removal, SameName};
use super::files::{KubeconfigFiles, NoKubeconfig};
use crate::data_directory::write_temporary;

/// The time to wait for the lock of another program. kubectl writes a file in milliseconds; five seconds suffice for a
/// slow disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between attempts to lock the kubeconfig.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The reason why a kubeconfig was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersFileError {
    /// The content of the kubeconfig prevents the change.
    #[error("kubeconfig {path} {cause}; the file is unchanged")]
    Change {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause of the refusal. The cause is a part of the message, and therefore not a `source`.
        cause: ChangeError,
    },
    /// A second file in `$KUBECONFIG` contains an entry with the same name.
    #[error(
        "{other}, which KUBECONFIG also names, has {kind} {name:?}: one entry would hide the other; choose different \
         names by --kubeconfig-prefix{}",
        removal(other, *is_ours)
    )]
    Hidden {
        /// Path of the second kubeconfig.
        other: PathBuf,
        /// The list of the entry: `clusters`, `contexts` or `users`.
        kind: &'static str,
        /// Name of the duplicate entry.
        name: String,
        /// True if this program added the duplicate entry.
        is_ours: bool,
    },
    /// The kubeconfig does not exist.
    #[error("there is no kubeconfig {0}")]
    Missing(PathBuf),
    /// The kubeconfig's path is a pipe, a directory, or a dangling link.
    #[error("{0} is not a file; name another kubeconfig")]
    NoFile(PathBuf),
    /// Another program has locked the kubeconfig.
    #[error(
        "{path} has existed for {} s: another program changes the kubeconfig; if none does, remove this file",
        LOCK_TIMEOUT.as_secs()
    )]
    Locked {
        /// Path of the kubeconfig's lock file.
        path: PathBuf,
    },
    /// The kubeconfig cannot be read.
    #[error("kubeconfig {path} cannot be read")]
    Read {
        /// Path of the unreadable kubeconfig.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The kubeconfig cannot be written.
    #[error("kubeconfig {path} cannot be written; the file is unchanged")]
    Write {
        /// Path of the kubeconfig that cannot be written.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn removal(other: &Path, is_ours: bool) -> String {
    let command = || {
        format!(", or remove the entries that tributary added there: tributary kubeconfig remove {}", other.display())
    };
    if is_ours { command() } else { String::new() }
}

/// Returns the default files: `$KUBECONFIG`, or else `~/.kube/config`.
///
/// # Errors
/// [`NoKubeconfig`].
pub fn default_files() -> Result<KubeconfigFiles, NoKubeconfig> {
    let home = std::env::home_dir();
    KubeconfigFiles::resolve(None, std::env::var_os("KUBECONFIG").as_deref(), home.as_deref())
}

/// Returns the kubeconfig to which new entries are added by default: the first existing file, or else the first file in
/// the list.
///
/// Source: client-go `tools/clientcmd/loader.go` (`GetDefaultFilename`), where `kubectl config` writes.
///
/// # Errors
/// [`NoKubeconfig`].
pub fn default_path() -> Result<PathBuf, NoKubeconfig> {
    let files = default_files()?;
    let paths = files.paths();
    paths.iter().find(|path| path.exists()).or(paths.first()).cloned().ok_or(NoKubeconfig)
}

/// Returns the files that kubectl merges with `path`: all other files of `$KUBECONFIG`, if `$KUBECONFIG` contains
/// `path`.
pub fn merged_files(path: &Path) -> Vec<PathBuf> {
    let listed = default_files().map(|files| files.paths().to_vec()).unwrap_or_default();
    other_files(path, listed)
}

fn other_files(path: &Path, listed: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_it = |other: &PathBuf| other == path || fs::canonicalize(other).is_ok_and(|other| is_same(&other, path));
    let (own, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_it);
    if own.is_empty() { Vec::new() } else { others }
}

fn is_same(other: &Path, path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|path| path == other)
}

/// Adds entries to a kubeconfig, and replaces this program's entries with the same prefix. A missing file is created
/// (mode 0600). Returns whether the file changed. The entries contain a token, so other users lose their access to the
/// file, and the loss is logged. Waits up to five seconds for concurrent writers. The files of `merged_files` are
/// merged with this file, so they must not contain entries with the same names.
///
/// # Errors
/// [`UsersFileError`]; the file is then unchanged.
pub async fn add_entries(path: PathBuf, merged_files: &[PathBuf], entries: Entries) -> Result<bool, UsersFileError> {
    for other in merged_files {
        let Ok(Some(text)) = read(other) else { continue };
        if let Some(SameName { kind, name, is_ours }) = entries::same_name(&text, &entries) {
            return Err(UsersFileError::Hidden { other: other.clone(), kind, name, is_ours });
        }
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|source| write_error(&path, source))?;
    }
    locked(path, move |path| {
        let text = read(path)?.unwrap_or_default();
        match entries::put(&text, &entries).map_err(|source| change_error(path, source))? {
            None => restrict_access(path).map_err(|source| write_error(path, source)),
            Some(changed) => replace(path, &changed, Access::OwnerAlone).map(|()| true),
        }
    })
    .await
}

/// Removes all entries of this program from a kubeconfig. Returns `None` if there are no such entries.
///
/// # Errors
/// [`UsersFileError`]; the file is then unchanged.
pub async fn remove_entries(path: PathBuf) -> Result<Option<Removal>, UsersFileError> {
    let text_of = |path: &Path| read(path)?.ok_or_else(|| UsersFileError::Missing(path.to_owned()));
    // The kubeconfig is read before it is locked, so that a missing file is reported. In a missing directory, no lock
    // file could be created.
    text_of(&path)?;
    locked(path, move |path| {
        let removal = entries::remove_own_entries(&text_of(path)?).map_err(|source| change_error(path, source))?;
        if let Some(removal) = &removal {
            replace(path, &removal.text, Access::AsBefore)?;
        }
        Ok(removal)
    })
    .await
}

/// Locks a kubeconfig, and changes it on a blocking thread.
async fn locked<T: Send + 'static>(
    path: PathBuf,
    change: impl FnOnce(&Path) -> Result<T, UsersFileError> + Send + 'static,
) -> Result<T, UsersFileError> {
    let lock = Lock::acquire(&path).await?;
    let changing = path.clone();
    let changed = tokio::task::spawn_blocking(move || {
        let _lock = lock;
        change(&changing)
    });
    changed.await.unwrap_or_else(|error| Err(write_error(&path, io::Error::other(error))))
}

/// Checks that a kubeconfig is valid, if the file exists.
///
/// # Errors
/// [`UsersFileError`].
pub fn check(path: &Path) -> Result<(), UsersFileError> {
    let Some(text) = read(path)? else { return Ok(()) };
    entries::check(&text).map_err(|source| change_error(path, source))
}

fn change_error(path: &Path, cause: ChangeError) -> UsersFileError {
    UsersFileError::Change { path: path.to_owned(), cause }
}

fn write_error(path: &Path, source: io::Error) -> UsersFileError {
    UsersFileError::Write { path: path.to_owned(), source }
}

/// Reads the text of a kubeconfig. Returns `None` for a missing file.
fn read(path: &Path) -> Result<Option<String>, UsersFileError> {
    match fs::metadata(path) {
        // Reading a pipe would wait for a writer, so only regular files are read.
        Ok(metadata) if !metadata.is_file() => Err(UsersFileError::NoFile(path.to_owned())),
        Ok(_) => match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(source) => Err(UsersFileError::Read { path: path.to_owned(), source }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
            Err(UsersFileError::NoFile(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(UsersFileError::Read { path: path.to_owned(), source }),
    }
}

/// The users who may read a replaced file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// The new file is readable by all users who could read the old file.
    AsBefore,
    /// The new file is readable only by its owner, because it contains a token.
    OwnerAlone,
}

/// The mode bits of all users except the owner.
const OTHERS: u32 = 0o077;

/// Replaces a kubeconfig, or the target of a symbolic link to it.
fn replace(path: &Path, text: &str, access: Access) -> Result<(), UsersFileError> {
    let written = match fs::canonicalize(path) {
        Ok(target) => {
            fs::metadata(&target).and_then(|metadata| replace_target(&target, text, Some((&metadata, access))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace_target(path, text, None),
        Err(error) => Err(error),
    };
    written.map_err(|source| write_error(path, source))
}

fn replace_target(path: &Path, text: &str, before: Option<(&fs::Metadata, Access)>) -> io::Result<()> {
    let temporary = write_temporary(path, text.as_bytes())?;
    let alike = before.map_or(Ok(()), |(before, access)| copy_permissions(&temporary, before, access));
    let renamed = alike.and_then(|()| fs::rename(&temporary, path));
    renamed.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    if let Some((before, Access::OwnerAlone)) = before {
        log_restricted_access(path, before);
    }
    Ok(())
}

/// Copies the owner and the mode of the replaced kubeconfig.
fn copy_permissions(temporary: &Path, before: &fs::Metadata, access: Access) -> io::Result<()> {
    let own = fs::metadata(temporary)?;
    if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
        chown(temporary, Some(before.uid()), Some(before.gid()))?;
    }
    let mut permissions = before.permissions();
    if access == Access::OwnerAlone {
        permissions.set_mode(permissions.mode() & !OTHERS);
    }
    fs::set_permissions(temporary, permissions)
}

/// Removes other users' access to a file with a token. Returns whether other users had access.
fn restrict_access(path: &Path) -> io::Result<bool> {
    let before = fs::metadata(path)?;
    let mode = before.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS))?;
    log_restricted_access(path, &before);
    Ok(true)
}

fn log_restricted_access(path: &Path, before: &fs::Metadata) {
    let mode = before.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        tracing::warn!(
            path = %path.display(),
            before = format!("{mode:04o}"),
            now = format!("{:04o}", mode & !OTHERS),
            "the kubeconfig has a token now, so only its owner may read it"
        );
    }
}

/// A kubeconfig's lock file, which is removed on drop.
struct Lock(PathBuf);

impl Lock {
    async fn acquire(path: &Path) -> Result<Self, UsersFileError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(write_error(path, error)),
                Err(_) if Instant::now() < deadline => tokio::time::sleep(LOCK_INTERVAL).await,
                Err(_) => return Err(UsersFileError::Locked { path: lock }),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the lock of the kubeconfig was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::super::mark::mark;
    use super::*;

    fn entries() -> Entries {
        let context =
            json!({ "name": "t-all", "context": { "cluster": "t-all", "user": "", "extensions": mark("t-") } });
        Entries { prefix: "t-".to_owned(), lists: [Vec::new(), vec![context], Vec::new()] }
    }

    #[tokio::test]
    async fn symlink_to_the_kubeconfig_stays_and_no_temporary_files_remain() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("dotfiles"), directory.path().join("config"));
        fs::write(&target, "apiVersion: v1\nclusters: []\ncontexts: []\nusers: []\n").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
        symlink("dotfiles", &link).unwrap();
        assert!(add_entries(link.clone(), &[], entries()).await.unwrap());
        assert!(!add_entries(link.clone(), &[], entries()).await.unwrap(), "it is there");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&target).unwrap().contains("t-all"));
        assert_eq!(remove_entries(link.clone()).await.unwrap().unwrap().contexts, ["t-all"]);
        assert_eq!(remove_entries(link.clone()).await.unwrap(), None);
        assert_eq!(fs::read_to_string(&target).unwrap(), "apiVersion: v1\nclusters: []\ncontexts: []\nusers: []\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    /// A kubeconfig with only exec plugins is not secret, and all users may read it. A token makes the file secret.
    #[tokio::test]
    async fn token_is_not_written_to_a_file_that_others_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        for (before, now) in [(0o644, 0o600), (0o640, 0o600), (0o600, 0o600), (0o750, 0o700)] {
            fs::write(&path, "apiVersion: v1\nclusters: []\ncontexts: []\nusers: []\n").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            assert!(add_entries(path.clone(), &[], entries()).await.unwrap());
            assert_eq!(mode(), now, "{before:o}");
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            assert_eq!(add_entries(path.clone(), &[], entries()).await.unwrap(), before != now, "it is there");
            assert_eq!(mode(), now, "{before:o}");
            remove_entries(path.clone()).await.unwrap();
            assert_eq!(mode(), now, "nothing is opened again");
        }
    }

    #[tokio::test]
    async fn kubeconfig_entry_that_would_hide_another_files_entry_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [own, other, missing] = ["own", "other", "missing"].map(|name| directory.path().join(name));
        add_entries(other.clone(), &[], entries()).await.unwrap();
        let merged_files = [missing, other.clone()];
        let refused = add_entries(own.clone(), &merged_files, entries()).await.unwrap_err().to_string();
        for part in ["has contexts \"t-all\"", "--kubeconfig-prefix", "tributary kubeconfig remove "] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        assert!(!own.exists());
        remove_entries(other.clone()).await.unwrap();
        assert!(add_entries(own.clone(), &merged_files, entries()).await.unwrap());

        let link = directory.path().join("link");
        symlink("own", &link).unwrap();
        assert_eq!(other_files(&own, vec![link, other.clone()]), std::slice::from_ref(&other));
        assert_eq!(other_files(&own, vec![other]), Vec::<PathBuf>::new(), "it is read alone");
    }

    #[tokio::test]
    async fn new_kubeconfig_is_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".kube/config");
        assert!(matches!(remove_entries(path.clone()).await, Err(UsersFileError::Missing(_))));
        assert!(add_entries(path.clone(), &[], entries()).await.unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn kubeconfig_that_cannot_be_changed_stays_untouched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let broken = "clusters:\n- name: [hunter2\n";
        fs::write(&path, broken).unwrap();
        let message = add_entries(path.clone(), &[], entries()).await.unwrap_err().to_string();
        for part in [path.to_str().unwrap(), "does not parse at line ", "the file is unchanged"] {
            assert!(message.contains(part) && !message.contains("hunter2"), "{part} in {message}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        assert!(matches!(
            add_entries(directory.path().to_owned(), &[], entries()).await,
            Err(UsersFileError::NoFile(_))
        ));
        let dangling = directory.path().join("link");
        symlink("nowhere", &dangling).unwrap();
        assert!(matches!(add_entries(dangling.clone(), &[], entries()).await, Err(UsersFileError::NoFile(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_kubeconfig_lock_has_a_time_limit() {
        let directory = tempfile::tempdir().unwrap();
        let (path, lock) = (directory.path().join("config"), directory.path().join("config.lock"));
        fs::write(&lock, "").unwrap();
        let refused = add_entries(path.clone(), &[], entries()).await.unwrap_err();
        assert!(refused.to_string().contains("config.lock has existed for 5 s"), "{refused}");
        assert!(lock.exists() && !path.exists(), "it is another's");
        let waiting = tokio::spawn({
            let path = path.clone();
            async move { add_entries(path, &[], entries()).await }
        });
        tokio::time::sleep(LOCK_TIMEOUT / 2).await;
        assert!(!waiting.is_finished());
        fs::remove_file(&lock).unwrap();
        assert!(waiting.await.unwrap().unwrap());
        assert!(path.exists() && !lock.exists());
    }
}
