//! Commands that objects of the hub may run. Without the policy, a user who may write a Secret of the hub could run any
//! program of Tributary's machine.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;

/// Length of a SHA-256 digest in hexadecimal digits.
const DIGEST_LENGTH: usize = 64;

/// Separator of the path and the digest.
const DIGEST_MARK: &str = "@sha256:";

/// Size of a read of a command's file. 64 KiB: larger reads are not faster.
const READ_BYTES: usize = 64 << 10;

/// A command that objects of the hub may run: `/usr/bin/provider`, or `/usr/bin/provider@sha256:HEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedCommand {
    path: String,
    /// The SHA-256 digest of the file, in lower case hexadecimal digits. Any file if unset.
    digest: Option<String>,
}

impl FromStr for AllowedCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, digest) = match text.split_once(DIGEST_MARK) {
            Some((path, digest)) => (path, Some(digest.to_ascii_lowercase())),
            None => (text, None),
        };
        let is_digest =
            |text: &String| text.len() == DIGEST_LENGTH && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !Path::new(path).is_absolute() || path.ends_with('/') {
            return Err("give the absolute path of a program, with or without @sha256:HEX".to_owned());
        }
        if !digest.as_ref().is_none_or(is_digest) {
            return Err(format!("give {DIGEST_LENGTH} hexadecimal digits after @sha256:, as from sha256sum"));
        }
        Ok(Self { path: path.to_owned(), digest })
    }
}

/// The reason why a command is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedCommand {
    /// The command is no absolute path.
    #[error("the command {0:?} is not an absolute path; give the absolute path of an allowed command")]
    Relative(String),
    /// The command is not in the list.
    #[error("the command {0:?} is not allowed for objects of the hub; start Tributary with --exec-allow for its path")]
    NotListed(String),
    /// The file of the command cannot be read.
    #[error("the file of the command {command:?} cannot be read: {problem}; install it, or correct --exec-allow")]
    Unreadable {
        /// The path of the command.
        command: String,
        /// The error of the operating system.
        problem: String,
    },
    /// The file of the command has a different digest.
    #[error(
        "the file of the command {command:?} has the digest sha256:{found}, which --exec-allow does not allow; restore \
         the file, or correct --exec-allow"
    )]
    Digest {
        /// The path of the command.
        command: String,
        /// The digest of the present file.
        found: String,
    },
}

/// A state of a file. A file with an equal state has an equal digest: only root can set the time of the last change of
/// the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileState {
    fn from(data: &Metadata) -> Self {
        Self {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }
}

/// Decides which commands objects of the hub may run. The default allows none. Commands of kubeconfigs on this machine
/// have no policy.
#[derive(Default)]
pub struct CommandPolicy {
    allowed: Vec<AllowedCommand>,
    /// The digests of files, so that a file is read once for each of its states.
    digests: Arc<Mutex<HashMap<String, (FileState, String)>>>,
}

impl CommandPolicy {
    /// Creates a policy that allows these commands. A path with several digests allows each of them.
    pub fn new(allowed: Vec<AllowedCommand>) -> Self {
        Self { allowed, digests: Arc::default() }
    }

    /// Checks that a command is an absolute path in the list. Does no I/O.
    ///
    /// # Errors
    /// [`RefusedCommand::Relative`], [`RefusedCommand::NotListed`].
    pub fn check(&self, command: &str) -> Result<(), RefusedCommand> {
        if !Path::new(command).is_absolute() {
            return Err(RefusedCommand::Relative(command.to_owned()));
        }
        match self.entries(command).next() {
            Some(_) => Ok(()),
            None => Err(RefusedCommand::NotListed(command.to_owned())),
        }
    }

    /// Checks a command, and the digest of its file. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`RefusedCommand`].
    pub async fn verify(&self, command: &str) -> Result<(), RefusedCommand> {
        self.check(command)?;
        if self.entries(command).any(|entry| entry.digest.is_none()) {
            return Ok(());
        }
        let (path, digests) = (command.to_owned(), Arc::clone(&self.digests));
        let found = tokio::task::spawn_blocking(move || find_digest(&path, &digests)).await;
        let found = found
            .map_err(io::Error::other)
            .flatten()
            .map_err(|error| RefusedCommand::Unreadable { command: command.to_owned(), problem: error.to_string() })?;
        match self.entries(command).any(|entry| entry.digest.as_ref() == Some(&found)) {
            true => Ok(()),
            false => Err(RefusedCommand::Digest { command: command.to_owned(), found }),
        }
    }

    /// Returns the path of the first allowed command with this file name.
    pub fn find_by_file_name(&self, name: &str) -> Option<&str> {
        let has_name = |entry: &&AllowedCommand| Path::new(&entry.path).file_name().is_some_and(|own| own == name);
        self.allowed.iter().find(has_name).map(|entry| entry.path.as_str())
    }

    fn entries(&self, command: &str) -> impl Iterator<Item = &AllowedCommand> {
        self.allowed.iter().filter(move |entry| entry.path == command)
    }
}

impl fmt::Debug for CommandPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommandPolicy").field(&self.allowed).finish()
    }
}

/// Returns the SHA-256 digest of a file. Reads the file only if its state has changed.
fn find_digest(path: &str, digests: &Mutex<HashMap<String, (FileState, String)>>) -> io::Result<String> {
    let mut file = File::open(path)?;
    let state = FileState::from(&file.metadata()?);
    if let Some((_, digest)) = digests.lock().get(path).filter(|(known, _)| *known == state) {
        return Ok(digest.clone());
    }
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    let digest = hex(hash.finalize());
    // The file may have changed during the reading.
    if FileState::from(&file.metadata()?) == state {
        digests.lock().insert(path.to_owned(), (state, digest.clone()));
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn policy(entries: &[String]) -> CommandPolicy {
        CommandPolicy::new(entries.iter().map(|entry| entry.parse().unwrap()).collect())
    }

    #[test]
    fn allowed_command_is_an_absolute_path_with_an_optional_digest() {
        let digest = "A".repeat(DIGEST_LENGTH);
        let parsed: AllowedCommand = format!("/usr/bin/provider@sha256:{digest}").parse().unwrap();
        assert_eq!(parsed, AllowedCommand { path: "/usr/bin/provider".to_owned(), digest: Some("a".repeat(64)) });
        assert!("/usr/bin/provider".parse::<AllowedCommand>().unwrap().digest.is_none());
        for text in ["provider", "./provider", "", "/", "/usr/bin/", "/p@sha256:", "/p@sha256:xy", "@sha256:"] {
            assert!(text.parse::<AllowedCommand>().is_err(), "{text}");
        }
        assert!(format!("/p@sha256:{}", "g".repeat(DIGEST_LENGTH)).parse::<AllowedCommand>().is_err());
    }

    #[test]
    fn only_listed_absolute_paths_are_allowed() {
        let policy = policy(&["/usr/bin/provider".to_owned()]);
        assert_eq!(policy.check("/usr/bin/provider"), Ok(()));
        for command in ["provider", "./provider", "", "~/provider"] {
            assert_eq!(policy.check(command), Err(RefusedCommand::Relative(command.to_owned())));
        }
        for command in ["/usr/bin/other", "/usr/bin/../bin/provider", "/usr/bin//provider", "/usr/bin/provider/"] {
            assert_eq!(policy.check(command), Err(RefusedCommand::NotListed(command.to_owned())));
        }
        assert!(CommandPolicy::default().check("/usr/bin/provider").is_err());
        assert_eq!(policy.find_by_file_name("provider"), Some("/usr/bin/provider"));
        assert_eq!(policy.find_by_file_name("bin"), None);
    }

    #[tokio::test]
    async fn changed_file_of_a_command_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("provider").display().to_string();
        fs::write(&path, "first").unwrap();
        let digest = hex(Sha256::digest("first"));
        let policy = policy(&[format!("{path}@sha256:{digest}"), format!("{path}@sha256:{}", "0".repeat(64))]);
        assert_eq!(policy.verify(&path).await, Ok(()));
        assert_eq!(policy.verify(&path).await, Ok(()), "the digest is remembered");
        fs::write(&path, "other").unwrap();
        let refused = policy.verify(&path).await.unwrap_err();
        assert_eq!(refused, RefusedCommand::Digest { command: path.clone(), found: hex(Sha256::digest("other")) });
        fs::remove_file(&path).unwrap();
        assert!(matches!(policy.verify(&path).await, Err(RefusedCommand::Unreadable { .. })));
    }
}
