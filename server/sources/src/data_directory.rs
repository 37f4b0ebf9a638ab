//! The directory of persistent state: the certificate authority, the token, and facts about clusters.
//!
//! Every file has the mode 0600. A file is replaced atomically (a temporary file in the same directory, then a rename),
//! so that a reader gets the old or the new content, even after a crash. A directory or file of a different user is
//! refused, because that user could read the written data, or choose the data that is read. A directory of root is
//! refused if other users may write into it.

pub mod last_heard;
mod state_file;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

pub use state_file::{EPOCHS, MEMBER_KEYS, StateFile};

/// The mode of the data directory: only its owner has access.
const DIRECTORY_MODE: u32 = 0o700;
/// The mode of each file in the data directory.
const FILE_MODE: u32 = 0o600;
/// The file that a process locks while the process reads or creates files in the data directory.
const LOCK_FILE: &str = "lock";
/// The time to wait for the lock of another process. Creating all files takes milliseconds; ten seconds suffice for a
/// slow disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between attempts to lock the data directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The reason why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// No path is known: neither the flag, nor `XDG_DATA_HOME`, nor `HOME` is set.
    #[error("no data directory: neither XDG_DATA_HOME nor HOME is set; name one by --data-dir")]
    Unknown,
    /// The data directory cannot be created.
    #[error("data directory {path} cannot be made; name another one by --data-dir")]
    Create {
        /// Path of the data directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The data directory belongs to a different user.
    #[error(
        "data directory {path} belongs to another user (uid {owner}), who could change what is in it; name another one by --data-dir"
    )]
    Foreign {
        /// Path of the data directory.
        path: PathBuf,
        /// The user ID of the directory's owner.
        owner: u32,
    },
    /// The directory belongs to root, and other users may write into it.
    #[error(
        "data directory {path} does not belong to this user, and other users may write into it (mode {mode:o}), so \
         they could replace the credentials; name a directory inside of it by --data-dir, which is made only for this \
         user"
    )]
    Shared {
        /// Path of the data directory.
        path: PathBuf,
        /// The permissions of the data directory.
        mode: u32,
    },
    /// Another process has locked the data directory.
    #[error(
        "{path} has been locked by another process for {} s; end it, or name another directory by --data-dir",
        LOCK_TIMEOUT.as_secs()
    )]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
    },
    /// A file in the data directory cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Path of the unreadable file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file in the data directory cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Path of the file that cannot be written.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Returns the default data directory, as determined by the environment.
///
/// # Errors
/// [`DataDirectoryError::Unknown`].
pub fn default_data_directory() -> Result<PathBuf, DataDirectoryError> {
    DataDirectory::default_path(std::env::var_os("XDG_DATA_HOME").map(PathBuf::from), std::env::home_dir())
}

/// An existing data directory whose owner is this user or root.
#[derive(Clone, Debug)]
pub struct DataDirectory(PathBuf);

impl DataDirectory {
    /// Returns the default directory: `$XDG_DATA_HOME/tributary`, or else `~/.local/share/tributary`.
    ///
    /// Source: XDG base directory specification; a relative `XDG_DATA_HOME` counts as unset.
    ///
    /// # Errors
    /// [`DataDirectoryError::Unknown`] if both arguments are `None`.
    pub fn default_path(xdg_data_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, DataDirectoryError> {
        xdg_data_home
            .filter(|path| path.is_absolute())
            .or_else(|| home.filter(|home| !home.as_os_str().is_empty()).map(|home| home.join(".local/share")))
            .map(|data| data.join("tributary"))
            .ok_or(DataDirectoryError::Unknown)
    }

    /// Opens the directory. Creates a missing directory (mode 0700) and its parents. The mode of an existing directory
    /// is not changed, because its files have mode 0600. If other users may write into a directory of this user, a
    /// warning is logged.
    ///
    /// # Errors
    /// [`DataDirectoryError::Create`]; [`DataDirectoryError::Foreign`] for an owner other than this user and root;
    /// [`DataDirectoryError::Shared`] for a directory of root into which other users may write (`/tmp`, or a volume
    /// with group access).
    pub fn open(path: PathBuf) -> Result<Self, DataDirectoryError> {
        let made =
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&path).and_then(|()| fs::metadata(&path));
        let metadata = match made {
            Ok(metadata) => metadata,
            Err(source) => return Err(DataDirectoryError::Create { path, source }),
        };
        let mode = metadata.mode() & 0o7777;
        match Trust::from_owner(metadata.uid(), mode, own_uid()) {
            Trust::Whole => {}
            Trust::OpenToOthers => tracing::warn!(
                path = %path.display(),
                mode = format!("{mode:o}"),
                "other users may write into the data directory, and so replace the credentials in it; forbid it with \
                 `chmod go-w`"
            ),
            Trust::Shared => return Err(DataDirectoryError::Shared { path, mode }),
            Trust::Foreign => return Err(DataDirectoryError::Foreign { path, owner: metadata.uid() }),
        }
        Ok(Self(path))
    }

    /// Locks the directory against other processes until the returned file is dropped. Waits for ten seconds at most.
    /// Cancel: safe.
    ///
    /// # Errors
    /// [`DataDirectoryError::Locked`]; [`DataDirectoryError::Write`], also for a symbolic link or a different user's
    /// file.
    pub async fn lock(&self) -> Result<File, DataDirectoryError> {
        let deadline = tokio::time::Instant::now() + LOCK_TIMEOUT;
        loop {
            let path = self.file(LOCK_FILE);
            let tried = tokio::task::spawn_blocking(move || try_lock(&path)).await;
            let path = self.file(LOCK_FILE);
            match tried.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(Some(file)) => return Ok(file),
                Ok(None) if tokio::time::Instant::now() < deadline => tokio::time::sleep(LOCK_INTERVAL).await,
                Ok(None) => return Err(DataDirectoryError::Locked { path }),
                Err(source) => return Err(DataDirectoryError::Write { path, source }),
            }
        }
    }

    /// Returns the path of the data directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the data directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a file; returns `None` for a missing file. If other users may read the file, its mode is changed to 0600.
    ///
    /// # Errors
    /// [`DataDirectoryError::Read`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirectoryError> {
        let path = self.file(name);
        match read_private(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DataDirectoryError::Read { path, source }),
        }
    }

    /// Replaces a file atomically.
    ///
    /// # Errors
    /// [`DataDirectoryError::Write`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DataDirectoryError> {
        let path = self.file(name);
        write_private(&path, bytes).map_err(|source| DataDirectoryError::Write { path, source })
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// [`DataDirectoryError::Write`].
    pub fn remove(&self, name: &str) -> Result<(), DataDirectoryError> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DataDirectoryError::Write { path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Creates a file with the bytes of `make`, unless the file exists. Returns the content of the file.
    ///
    /// # Errors
    /// [`DataDirectoryError::Write`] and [`DataDirectoryError::Read`].
    pub fn read_or_create(&self, name: &str, make: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, DataDirectoryError> {
        if let Some(bytes) = self.read(name)? {
            return Ok(bytes);
        }
        let path = self.file(name);
        let bytes = make();
        match create_private(&path, &bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                read_private(&path).map_err(|source| DataDirectoryError::Read { path, source })
            }
            Err(source) => Err(DataDirectoryError::Write { path, source }),
        }
    }
}

/// Writes a file with mode 0600. An existing file is replaced by a rename.
///
/// # Errors
/// The error of the operating system; an existing file is then unchanged.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Creates a file (mode 0600) with its complete content. After a failure, no incomplete file exists. A hard link fails
/// if the file exists, whereas a rename would replace the file.
///
/// # Errors
/// `AlreadyExists` if the file exists, and other errors of the operating system.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    linked
}

/// Writes a temporary file with mode 0600 in the directory of `path`. Returns the path of the temporary file, for a
/// rename or a link.
pub(crate) fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let temporary = path.with_file_name(format!(".{}.{:016x}", name.to_string_lossy(), rand::random::<u64>()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&temporary)
        .and_then(|file| fill(file, bytes));
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            drop(fs::remove_file(&temporary));
            Err(error)
        }
    }
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    // The file type is checked before the open, because opening a pipe waits for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not a file"));
    }
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    check_owner(&metadata)?;
    let mode = metadata.mode() & 0o777;
    if mode & !FILE_MODE != 0 {
        file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
        tracing::warn!(path = %path.display(), mode = format!("{mode:o}"),
            "other users could read the file; its mode is 0600 now");
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens and locks a file without waiting. Returns `None` if another process has locked the file.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    check_owner(&metadata)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not a file"));
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Refuses files of other users, except root. Root could read and write all files anyway.
fn check_owner(metadata: &fs::Metadata) -> io::Result<()> {
    match Trust::from_owner(metadata.uid(), 0, own_uid()) {
        Trust::Foreign => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the file belongs to a different user (uid {})", metadata.uid()),
        )),
        _ => Ok(()),
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The degree of trust in a data directory, by its owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// This user or root owns the directory, and no other user may write into it.
    Whole,
    /// This user owns the directory, and other users may write into it.
    OpenToOthers,
    /// Root owns the directory, and other users may write into it.
    Shared,
    /// A different user owns the data directory.
    Foreign,
}

impl Trust {
    fn from_owner(owner: u32, mode: u32, own: u32) -> Self {
        let is_open = mode & 0o022 != 0;
        match (owner == own, owner == 0) {
            (true, _) if is_open => Self::OpenToOthers,
            (false, true) if is_open => Self::Shared,
            (true, _) | (_, true) => Self::Whole,
            (false, false) => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn default_data_directory_follows_the_environment() {
        let path = |xdg: Option<&str>, home: Option<&str>| {
            DataDirectory::default_path(xdg.map(PathBuf::from), home.map(PathBuf::from)).ok()
        };
        assert_eq!(path(Some("/x"), Some("/h")), Some("/x/tributary".into()));
        assert_eq!(path(Some("relative"), Some("/h")), Some("/h/.local/share/tributary".into()));
        assert_eq!(path(Some(""), Some("/h")), Some("/h/.local/share/tributary".into()));
        assert_eq!(path(None, Some("")), None);
        assert_eq!(path(None, None), None);
    }

    #[test]
    fn data_directory_files_are_accessible_only_to_their_owner() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().join("a/b")).unwrap();
        assert_eq!(mode(directory.path()), 0o700);
        directory.write("secret", b"one").unwrap();
        assert_eq!(mode(&directory.file("secret")), 0o600);
        directory.write("secret", b"two").unwrap();
        assert_eq!(directory.read("secret").unwrap().unwrap(), b"two");
        assert_eq!(directory.read("absent").unwrap(), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn files_and_directories_of_other_users_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let foreign = parent.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        // Only root can change an owner. Without root, the directory still belongs to this user.
        let given = std::os::unix::fs::chown(&foreign, Some(4321), None).is_ok();
        assert_eq!(DataDirectory::open(foreign.clone()).is_err(), given);
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        directory.write("token", b"t").unwrap();
        let given = std::os::unix::fs::chown(directory.file("token"), Some(4321), None).is_ok();
        assert_eq!(directory.read("token").is_err(), given);
        fs::create_dir(directory.file("directory")).unwrap();
        assert!(matches!(directory.read("directory"), Err(DataDirectoryError::Read { .. })));
    }

    #[test]
    fn data_directory_trust_depends_on_owner_and_mode() {
        for (owner, mode, own, expected) in [
            (1000, 0o700, 1000, Trust::Whole),
            (1000, 0o755, 1000, Trust::Whole),
            (1000, 0o775, 1000, Trust::OpenToOthers),
            (0, 0o1777, 0, Trust::OpenToOthers),
            (0, 0o755, 1000, Trust::Whole),
            (0, 0o1777, 1000, Trust::Shared),
            (0, 0o2775, 1000, Trust::Shared),
            (1001, 0o700, 1000, Trust::Foreign),
            (1001, 0o777, 1000, Trust::Foreign),
            (1001, 0o700, 0, Trust::Foreign),
        ] {
            assert_eq!(Trust::from_owner(owner, mode, own), expected, "{mode:o} of {owner} for {own}");
        }
    }

    #[tokio::test]
    async fn data_directory_lock_is_exclusive() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        let first = directory.lock().await.unwrap();
        let other = File::open(directory.file(LOCK_FILE)).unwrap();
        assert!(other.try_lock().is_err());
        drop(first);
        assert!(other.try_lock().is_ok());
        assert_eq!(mode(&directory.file(LOCK_FILE)), 0o600);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_data_directory_lock_has_a_time_limit() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        let held = directory.lock().await.unwrap();
        let error = directory.lock().await.unwrap_err();
        assert!(matches!(error, DataDirectoryError::Locked { .. }), "{error}");
        let (waiting, ()) = tokio::join!(directory.lock(), async move {
            tokio::time::sleep(LOCK_TIMEOUT / 2).await;
            drop(held);
        });
        waiting.unwrap();
    }

    #[tokio::test]
    async fn lock_file_that_is_a_link_pipe_or_foreign_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        let lock = directory.file(LOCK_FILE);
        std::os::unix::fs::symlink(directory.file("elsewhere"), &lock).unwrap();
        directory.lock().await.unwrap_err();
        assert!(!directory.file("elsewhere").exists(), "nothing is made where a link leads");
        fs::remove_file(&lock).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&lock).status().unwrap();
        assert!(made.success());
        directory.lock().await.unwrap_err();
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "").unwrap();
        // Only root can change an owner. Without root, the file still belongs to this user.
        let given = std::os::unix::fs::chown(&lock, Some(4321), None).is_ok();
        assert_eq!(directory.lock().await.is_err(), given);
    }

    #[test]
    fn data_directory_file_readable_by_others_becomes_private() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        directory.write("token", b"t").unwrap();
        fs::set_permissions(directory.file("token"), fs::Permissions::from_mode(0o644)).unwrap();
        directory.read("token").unwrap();
        assert_eq!(mode(&directory.file("token")), 0o600);
    }

    #[test]
    fn existing_data_directory_file_is_not_replaced_by_a_second_process() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        assert_eq!(directory.read_or_create("token", || b"first".to_vec()).unwrap(), b"first");
        assert_eq!(directory.read_or_create("token", || b"second".to_vec()).unwrap(), b"first");
        let path = directory.file("token");
        assert_eq!(create_private(&path, b"third").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
