//! Which member served which of its ServiceAccounts' keys first, kept in the data directory from one run to the next.

use tributary_authentication::MemberKeys;

use crate::data_directory::{DataDirectory, kept};

/// Where it is kept.
const MEMBER_KEYS_FILE: &str = "service-account-keys.json";

/// What an earlier run kept. Without it whoever is asked first is believed: no reason not to start.
pub(crate) fn read(directory: &DataDirectory) -> MemberKeys {
    kept(
        directory,
        MEMBER_KEYS_FILE,
        "the kept keys of clusters' ServiceAccounts cannot be read; they are fetched anew",
        |bytes| Ok(serde_json::from_slice(bytes)?),
    )
}

/// Keeps them for later runs. Where that fails those will fetch them anew, so it is logged and served on.
pub(crate) fn write(directory: &DataDirectory, keys: &MemberKeys) {
    let bytes = serde_json::to_vec(keys).unwrap_or_default();
    if let Err(error) = directory.write(MEMBER_KEYS_FILE, &bytes) {
        let error = tributary_apimachinery::explain(&error);
        tracing::warn!(
            error,
            "the keys of clusters' ServiceAccounts were not kept; after a restart they are fetched anew"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tributary_apimachinery::ClusterName;
    use tributary_authentication::JsonWebKeySet;

    use super::*;

    #[test]
    fn who_served_a_key_first_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        assert_eq!(read(&directory), MemberKeys::default());
        let text = br#"{"keys":[{"kty":"RSA","kid":"k","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}"#;
        let mut keys = MemberKeys::default();
        keys.take([(ClusterName::new("a").unwrap(), JsonWebKeySet::parse(text).unwrap())], true, SystemTime::now());
        write(&directory, &keys);
        assert_eq!(read(&directory), keys);
        directory.write(MEMBER_KEYS_FILE, b"[").unwrap();
        assert_eq!(read(&directory), MemberKeys::default(), "what cannot be read is no reason not to start");
    }
}
