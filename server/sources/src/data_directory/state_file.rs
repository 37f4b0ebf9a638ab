//! State of this process that is stored in the data directory for the next start. The process also starts without this
//! state.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tributary_authentication::MemberKeys;
use tributary_merge::Epochs;

use super::DataDirectory;

/// The file with the lists of clusters to which compact resourceVersions refer. Without this file, requests with an
/// older compact resourceVersion get a 410, and their clients list again.
pub const EPOCHS: StateFile<Epochs> = StateFile {
    name: "epochs.json",
    read_failure: "the stored lists of clusters cannot be read; older compact resourceVersions are answered 410",
    write_failure: "the list of clusters was not stored; compact resourceVersions will be answered 410 after a restart",
    value: PhantomData,
};

/// The file with the public keys that verify each cluster's ServiceAccount tokens. Without this file, the keys of an
/// unreachable cluster are unknown, so its tokens cannot be verified.
pub const MEMBER_KEYS: StateFile<MemberKeys> = StateFile {
    name: "service-account-keys.json",
    read_failure: "the stored keys of clusters' ServiceAccounts cannot be read; the keys are fetched again",
    write_failure: "the keys of clusters' ServiceAccounts were not stored; after a restart the keys are fetched again",
    value: PhantomData,
};

/// A JSON file in the data directory that stores a value for the next start. An unreadable file does not prevent the
/// start, and a failed write does not stop the process. Either error is logged with its consequence.
pub struct StateFile<T> {
    name: &'static str,
    read_failure: &'static str,
    write_failure: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T: Default + Serialize + DeserializeOwned> StateFile<T> {
    /// Returns the file's name in the data directory.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Reads the value that an earlier process stored. Returns the default if the file is missing or unreadable.
    /// Blocks.
    pub fn read(&self, directory: &DataDirectory) -> T {
        read_state_file(directory, self.name, self.read_failure, |bytes| Ok(serde_json::from_slice(bytes)?))
    }

    /// Stores the value for later processes. Blocks.
    pub fn write(&self, directory: &DataDirectory, value: &T) {
        let bytes = serde_json::to_vec(value).map_err(|error| tributary_apimachinery::explain(&error));
        let write = |bytes: Vec<u8>| directory.write(self.name, &bytes);
        let written = bytes.and_then(|bytes| write(bytes).map_err(|error| tributary_apimachinery::explain(&error)));
        if let Err(error) = written {
            tracing::warn!(file = self.name, error, "{}", self.write_failure);
        }
    }
}

/// Reads a value from a file. Returns the default if the file is missing, or if it is unreadable, which is logged.
pub(super) fn read_state_file<T: Default>(
    directory: &DataDirectory,
    name: &str,
    read_failure: &str,
    parse: impl FnOnce(&[u8]) -> anyhow::Result<T>,
) -> T {
    let read = directory.read(name).map_err(anyhow::Error::from);
    let parsed = read.and_then(|bytes| bytes.map_or_else(|| Ok(T::default()), |bytes| parse(&bytes)));
    parsed.unwrap_or_else(|error| {
        tracing::warn!(file = name, error = format!("{error:#}"), "{read_failure}");
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_authentication::JsonWebKeySet;

    use super::*;

    #[test]
    fn signing_keys_of_members_are_restored_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        assert_eq!(MEMBER_KEYS.read(&directory), MemberKeys::default());
        let text = br#"{"keys":[{"kty":"RSA","kid":"k","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}"#;
        let mut keys = MemberKeys::default();
        keys.set(ClusterName::new("a").unwrap(), JsonWebKeySet::parse(text).unwrap());
        MEMBER_KEYS.write(&directory, &keys);
        assert_eq!(MEMBER_KEYS.read(&directory), keys);
        directory.write(MEMBER_KEYS.name(), b"[").unwrap();
        assert_eq!(
            MEMBER_KEYS.read(&directory),
            MemberKeys::default(),
            "what cannot be read is no reason not to start"
        );
    }
}
